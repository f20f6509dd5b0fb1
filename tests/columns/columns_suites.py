"""Suites of datasets for tests, and their mistakes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.columns.model import Column, ColumnsSettings
from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.suite.model import Suite

PROVIDERS: Sequence[Any] = (
    {"id": "echo", "label": "writer"},
    {"id": "echo:judge"},
    {"id": "echo:unused"},
)
A: Mapping[str, Any] = {"name": "a", "type": "sampler", "sampler": "uniform", "low": 0, "high": 9}
B: Mapping[str, Any] = {"name": "b", "type": "expression", "template": "{{ a }}"}
TOPIC: Mapping[str, Any] = {
    "name": "topic",
    "type": "sampler",
    "sampler": "category",
    "values": ["apples", "trains"],
}
LLM: Mapping[str, Any] = {"name": "text", "type": "llm", "provider": "writer", "prompt": "{{ a }}"}


def fill(folder: Path) -> Path:
    """Fill a folder with the files that these suites name."""
    (folder / "people.csv").write_text("name,age\nAda,36\n")
    (folder / "ask.txt").write_text("About {{ topic }}")
    (folder / "answer.json").write_text('{"type": "integer"}')
    (folder / "gen.py").write_text("def make(row):\n    return 1\n")
    return folder


def parsed(folder: Path, *columns: Mapping[str, Any], **entry: Any) -> Suite:
    """Return a suite of one dataset; `top` of the entry is the top of the file."""
    top = {"providers": list(PROVIDERS), **entry.pop("top", {})}
    task = {"id": "data", "type": "columns", "rows": 3, "columns": [*columns], **entry}
    return parse_suite({**top, "tasks": [task]}, directory=folder, strict=True)


def settings_of(folder: Path, *columns: Mapping[str, Any], **entry: Any) -> ColumnsSettings:
    """Return the settings of its dataset."""
    settings = parsed(folder, *columns, **entry).tasks[0].suite.settings
    assert isinstance(settings, ColumnsSettings)
    return settings


def column_of(folder: Path, *columns: Mapping[str, Any]) -> Column:
    """Return the last of its columns."""
    return settings_of(folder, *columns).columns[-1]


def hinted(folder: Path, *columns: Any, **entry: Any) -> list[str]:
    """Return the mistakes below the task, with their hints."""
    try:
        parsed(folder, *columns, **entry)
    except SuiteError as error:
        return [
            " | ".join(line.strip() for line in str(one).splitlines()).removeprefix("$.tasks[0].")
            for one in error.problems
        ]
    raise AssertionError("nothing is wrong")


def problems_of(folder: Path, *columns: Any, **entry: Any) -> list[str]:
    """Return the mistakes below the task."""
    return [line.partition(" | ")[0] for line in hinted(folder, *columns, **entry)]
