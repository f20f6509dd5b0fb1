"""The inputs of a dataset: changes that a resume accepts, and changes that it does not."""

from typing import Any

import attrs
import pytest

from trioeval.columns.fingerprints import fingerprint, producer_digests, surroundings_mark
from trioeval.columns.graph import ColumnGraph
from trioeval.columns.model import (
    Column,
    ColumnsSettings,
    ExpressionColumn,
    LlmColumn,
    ModelCallSettings,
    PythonColumn,
    Skip,
)
from trioeval.columns.types import producers_of

ASKING = ModelCallSettings(provider=0, prompt="Write.")
WRITTEN = LlmColumn(name="a", asking=ASKING)
MADE = PythonColumn(name="a", target="file://gen.py:make")


def same(one: Column, other: Column) -> tuple[bool, bool]:
    """Return True for equal values, and for equal datasets."""

    def of(column: Column) -> tuple[Any, Any]:
        settings = ColumnsSettings(columns=(column,))
        graph = ColumnGraph.of(producers_of(settings))
        return producer_digests(graph, settings, {}), fingerprint(settings, {})

    before, after = of(one), of(other)
    return before[0] == after[0], before[1] == after[1]


@pytest.mark.parametrize(
    ("column", "other"),
    [
        (WRITTEN, attrs.evolve(WRITTEN, asking=attrs.evolve(ASKING, restarts=9, corrections=3))),
        (MADE, attrs.evolve(MADE, timeout_s=1)),
        (WRITTEN, attrs.evolve(WRITTEN, skip=Skip(on_error="skip"))),
    ],
)
def test_settings_of_effort_do_not_change_the_fingerprint(column: Column, other: Column) -> None:
    assert same(column, other) == (True, True)


@pytest.mark.parametrize("changed", [{"drop_when": "a == 1"}, {"keep": False}])
def test_the_choice_of_rows_and_columns_changes_the_dataset_and_not_the_values(
    changed: dict[str, Any],
) -> None:
    assert same(WRITTEN, attrs.evolve(WRITTEN, **changed)) == (True, False)


def test_changed_texts_change_the_values() -> None:
    other = attrs.evolve(WRITTEN, asking=attrs.evolve(ASKING, prompt="Draw."))
    assert same(WRITTEN, other) == (False, False)


@pytest.mark.parametrize(
    ("template", "differs"),
    [
        ("{{ env.WORD }}", True),
        ("a\n{{ env['WORD'] }}", True),
        ("{{ env.OTHER }}", False),
        ("WORD", False),
        ("{{ env.MY_API_KEY }}", False),
    ],
)
def test_values_depend_on_the_environment_variables_that_they_use(
    template: str, *, differs: bool
) -> None:
    """Credentials are not part of a digest, which may be published."""
    column = ExpressionColumn(name="a", template=template)
    marks = {
        surroundings_mark(column, {"WORD": word, "OTHER": "x", "MY_API_KEY": word}, {})
        for word in ("one", "two")
    }
    assert (len(marks) == 2) is differs


def test_values_depend_on_the_filters_that_they_use() -> None:
    column = ExpressionColumn(name="a", template="{{ b | loud }}")
    marks = {surroundings_mark(column, {}, {"loud": digest, "low": "x"}) for digest in ("1", "2")}
    assert len(marks) == 2
    assert surroundings_mark(column, {}, {"low": "x"}) == ""
