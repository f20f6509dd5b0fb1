"""The page about datasets agrees with the models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from model_tables import columns, documented, tables
from snippets import DOCS
from workbench import lay_out

from trioeval.columns.column_form import KINDS, SAMPLERS
from trioeval.columns.model import (
    ColumnEntry,
    ColumnsSettings,
    ErrorWindow,
    ModelCallSettings,
    Processor,
    Score,
    Skip,
)
from trioeval.documents.structure import fields_by_key
from trioeval.loading.load import load_suite
from trioeval.suite.model import RowsOfTask
from trioeval.suite.rows_of_task import ROW_NAMES, QuestionsOfTask

PAGE = DOCS / "reference" / "columns.md"
_PROVIDER = ("text or object", "", "required")
_WRITTEN: Mapping[str, tuple[str, str, str]] = {
    "provider": _PROVIDER,
    "prompt": ("text or list", "", "required"),
    "columns": ("list or object", "", "required"),
    "outputs": ("list", "", "`name` alone"),
    "schema": ("text or object", "", "none"),
    "as_type": ("`text`, `int`, `float`, `bool`, `json`", "", "`text`, of Python `json`"),
    "as_types": ("text or object", "", "`json`"),
}
_COMMON = {f"`{key}`" for key in fields_by_key(ColumnEntry)}


def section(heading: str) -> str:
    text = PAGE.read_text()
    assert text.count(f"\n{heading}\n") == 1
    rest = text.split(f"\n{heading}\n")[1]
    return rest.split("\n#")[0] + "\n"


def only_table(part: str, first: str) -> list[list[str]]:
    (found,) = [table for table in tables(part) if table[0][0] == f"`{first}`"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_column_has_the_keys_of_its_model(kind: str) -> None:
    """Keys of all kinds have their own table."""
    model = KINDS[kind]
    wanted = [line for line in documented(model, _WRITTEN) if line[0] not in _COMMON]
    part = section(f"### `type: {kind}`")
    assert columns(only_table(part, wanted[0][0].strip("`")), 4) == wanted


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_sampler_has_the_keys_of_its_model(kind: str) -> None:
    """Each has a separate table, in the order of the page."""
    part = section("### `type: sampler`")
    _, *found = tables(part)
    assert columns(found[list(SAMPLERS).index(kind)], 4) == list(documented(SAMPLERS[kind]))
    assert f"`sampler: {kind}`" in part


_SETTINGS: Mapping[str, Any] = {
    "columns": ("list", "", "required"),
    "output_dir": ("text", "", "none"),
    "max_open_bytes": ("whole number", "at least 1", "268435456"),
}


@pytest.mark.parametrize(
    ("heading", "model", "written"),
    [
        ("## The task", ColumnsSettings, _SETTINGS),
        ("## Columns", ColumnEntry, {}),
        ("## Columns", Skip, {}),
        ("### `type: llm`", ModelCallSettings, _WRITTEN),
        ("### `type: judge`", Score, {}),
        ("## Processors", Processor, {}),
        (
            "## Early shutdown",
            ErrorWindow,
            {"error_rate": ("number", "above 0, at most 1", "0.5")},
        ),
        ("## Rows of earlier tasks", RowsOfTask, {}),
        ("## Rows of earlier tasks", QuestionsOfTask, {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_table_equals_its_model(heading: str, model: type, written: Mapping[str, Any]) -> None:
    """It has every key with type, range and default, in the order of the model."""
    wanted = list(documented(model, written))
    assert wanted in [columns(table, 4) for table in tables(section(heading))]


def test_variables_of_rows_of_other_tasks_are_listed() -> None:
    """The page has each name."""
    (line,) = [
        line
        for line in section("## Rows of earlier tasks").splitlines()
        if line.startswith("Rows of other tasks")
    ]
    assert [word for word in line.split("`")[1::2] if word in ROW_NAMES] == list(ROW_NAMES)


def test_the_suite_of_the_page_loads(tmp_path: Path) -> None:
    """It is used unchanged."""
    lay_out(PAGE, tmp_path)
    problems, exam = load_suite(tmp_path / "problems.yaml").tasks
    assert isinstance(problems.suite.settings, ColumnsSettings)
    assert exam.depends_on == ("problems",)
