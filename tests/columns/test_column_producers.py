"""The producers of the columns of a dataset, and the types of columns."""

from pathlib import Path
from typing import Any

import pytest
from columns_suites import LLM, TOPIC, A, B, column_of, fill, settings_of

from trioeval.columns.graph import Producer
from trioeval.columns.model import (
    ColumnsSettings,
    ExpressionColumn,
    SamplerColumn,
    SeedColumns,
    UniformSampler,
)
from trioeval.columns.types import column_types, producer_of, producers_of, written_columns


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seeds, a prompt, a schema and functions."""
    return fill(tmp_path)


MADE: dict[str, Any] = {"name": "x", "type": "python", "target": "file://gen.py:make"}


def test_each_entry_is_a_producer(folder: Path) -> None:
    """Producers are in order; makers of cells are called per row, the others per group."""
    vector = {"name": "v", "type": "embedding", "provider": "writer", "text": "{{ a }}"}
    check = {"name": "ok", "type": "validation", "target": "a", "assert": [{"type": "is-json"}]}
    found = producers_of(
        settings_of(
            folder,
            {"type": "seed", "file": "people.csv", "columns": ["name", "age"]},
            A,
            {**A, "name": "later", "requires": ["a"]},
            B,
            {"name": "one", "type": "expression", "python": "1"},
            {**LLM, "trace": "t", "reasoning": "r"},
            vector,
            {**MADE, "scope": "full", "ordered": True, "outputs": ["x", "y"], "extras": ["z"]},
            check,
        )
    )
    assert found == (
        Producer(name="name", outputs=("name", "age"), scope="scratch"),
        Producer(name="a", outputs=("a",), scope="scratch"),
        Producer(name="later", outputs=("later",), requires=("a",), scope="full"),
        Producer(name="b", outputs=("b",), requires=("a",), scope="full"),
        Producer(name="one", outputs=("one",), scope="scratch"),
        Producer(name="text", outputs=("text",), extras=("r", "t"), requires=("a",), scope="cell"),
        Producer(name="v", outputs=("v",), requires=("a",), scope="cell"),
        Producer(name="x", outputs=("x", "y"), extras=("z",), scope="full", ordered=True),
        Producer(name="ok", outputs=("ok",), requires=("a",), scope="full"),
    )


def test_a_column_built_in_python_has_its_name_as_output() -> None:
    """This is the default of `outputs`."""
    column = SamplerColumn(name="x", sampler=UniformSampler(low=0, high=1))
    assert producer_of(column).outputs == ("x",)
    settings = ColumnsSettings(columns=(column,))
    assert column_types(settings) == {"x": "float"}
    assert written_columns(settings) == ("x",)
    assert ExpressionColumn(name="x", template="1").as_type == "text"
    assert ExpressionColumn(name="x", python="1").as_type == "json"


NUMBER: dict[str, Any] = {"name": "x", "type": "sampler", "low": 0, "high": 1}
PYTHON: dict[str, Any] = {"name": "x", "type": "expression", "python": "1"}


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({**TOPIC, "name": "x", "values": [1, 2]}, "int"),
        ({**TOPIC, "name": "x", "values": [1, 2.5, None]}, "float"),
        ({**TOPIC, "name": "x", "values": [True]}, "bool"),
        ({**TOPIC, "name": "x", "values": [1, "a"]}, "json"),
        ({**NUMBER, "sampler": "uniform"}, "float"),
        ({**NUMBER, "sampler": "uniform", "decimals": 0}, "int"),
        ({**NUMBER, "sampler": "uniform", "decimals": 2}, "float"),
        ({**NUMBER, "sampler": "gaussian", "mean": 0, "deviation": 1, "decimals": 0}, "int"),
        ({"name": "x", "type": "sampler", "sampler": "uuid"}, "text"),
        (PYTHON, "json"),
        ({**PYTHON, "as": "text"}, "text"),
        ({**PYTHON, "as": "float"}, "float"),
        ({"name": "x", "type": "expression", "template": "1"}, "text"),
        ({"name": "x", "type": "expression", "template": "1", "as": "bool"}, "bool"),
        ({**LLM, "name": "x"}, "text"),
        ({**LLM, "name": "x", "schema": {}}, "json"),
        ({**LLM, "name": "x", "schema": {"type": "string"}}, "text"),
        ({**LLM, "name": "x", "schema": {"type": "integer"}}, "int"),
        ({**LLM, "name": "x", "schema": {"type": ["number", "null"]}}, "float"),
        ({**LLM, "name": "x", "schema": {"type": ["number", "string"]}}, "json"),
        ({**LLM, "name": "x", "schema": {"type": "object"}}, "json"),
        ({**LLM, "name": "x", "schema": {"enum": ["a", "b"]}}, "text"),
        ({**LLM, "name": "x", "schema": {"const": True}}, "bool"),
        ({"name": "x", "type": "embedding", "provider": "writer", "text": "a"}, "vector"),
        (MADE, "json"),
        ({**MADE, "as": "vector"}, "vector"),
        ({**MADE, "as": {"x": "int"}}, "int"),
    ],
    ids=str,
)
def test_columns_have_types(folder: Path, entry: dict[str, Any], wanted: str) -> None:
    """Types are known as far as the suite states them."""
    assert column_types(settings_of(folder, A, entry))["x"] == wanted


def test_types_of_seeds_are_known_without_reading_files(folder: Path) -> None:
    """All CSV columns are text; other sources have no types yet."""
    seed = {"type": "seed", "file": "people.csv", "columns": ["name", "age"]}
    assert column_types(settings_of(folder, seed)) == {"name": "text", "age": "text"}
    other = SeedColumns(name="x", outputs=("x",), file=Path("/x.parquet"), columns={"x": "x"})
    assert column_types(ColumnsSettings(columns=(other,))) == {}


def test_side_effects_have_types_and_are_written(folder: Path) -> None:
    """They are written with their column; a real column with the same name comes first."""
    kept = {**LLM, "reasoning": "why", "trace": "trail"}
    settings = settings_of(folder, kept, A, {**MADE, "extras": ["z", "a"], "as": {"z": "int"}})
    assert column_types(settings) == {
        "why": "text",
        "trail": "json",
        "z": "int",
        "a": "float",
        "text": "text",
        "x": "json",
    }
    assert written_columns(settings) == ("text", "why", "trail", "a", "x", "z")
    settings = settings_of(folder, {**kept, "keep": False}, A)
    assert written_columns(settings) == ("a",)


def test_a_processor_removes_columns(folder: Path) -> None:
    """The names may be patterns."""
    processors = [{"stage": "afterBatch", "dropColumns": ["t*", "b"]}]
    settings = settings_of(folder, A, B, {**LLM, "trace": "trail"}, processors=processors)
    assert written_columns(settings) == ("a",)
    assert column_of(folder, A, B).keep
