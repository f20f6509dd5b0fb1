"""The page about the suite file says what the models say."""

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import pytest
from snippets import DOCS
from workbench import lay_out

from trioeval.grading import Assertion
from trioeval.grading.model import HEAVIEST
from trioeval.grading.questions import ParseFaultKind
from trioeval.suite import (
    EvaluateOptions,
    LaneSettings,
    ProviderEntry,
    Scenario,
    Suite,
    Test,
    TestOptions,
    keys,
    load_suite,
)
from trioeval.suite.question_models import QuestionBudget, QuestionSettings, Tool
from trioeval.suite.quota_forms import unit_of
from trioeval.suite.quota_models import BatchSettings, QuotaSettings
from trioeval.suite.strict import camel
from trioeval.suite.structure import NOT_IN_FILES

PAGE = (DOCS / "reference" / "suite.md").read_text()

_TYPES: Mapping[Any, str] = {
    str: "text",
    Path: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "any",
}
_DEFAULTS: Mapping[tuple[type, str], str] = {(Suite, "prompts"): '`["{{prompt}}"]`'}
_RANGES: Mapping[tuple[type, str], str] = {(Assertion, "weight"): f"0 to {HEAVIEST:.0f}"}


def tables(page: str) -> list[list[list[str]]]:
    """The cells of all tables, without their headings."""
    found = re.findall(r"^\|[-|]+\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for table in found
    ]


def table_with(first: str) -> list[list[str]]:
    """The only table whose first cell is this."""
    (found,) = [table for table in tables(PAGE) if table[0][0] == f"`{first}`"]
    return found


def columns(table: Sequence[Sequence[str]], count: int) -> list[tuple[str, ...]]:
    return [tuple(line[:count]) for line in table]


def _documented(model: type, names: Mapping[str, str | None]) -> Iterable[tuple[str, ...]]:
    hints = get_type_hints(model, include_extras=True)
    for field in attrs.fields(model):
        key = names.get(field.name, camel(field.name))
        if key is not None:
            kind, bound = _type_and_range(hints[field.name])
            bound = _RANGES.get((model, field.name), bound)
            yield f"`{key}`", kind, bound, _DEFAULTS.get((model, field.name), _default(field))


def _type_and_range(hint: Any) -> tuple[str, str]:
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_type_and_range(part) for part in get_args(hint) if part is not type(None)]
        return " or ".join(kind for kind, _ in parts), parts[0][1]
    if get_origin(hint) is Annotated:
        scalar, bound = get_args(hint)
        return _TYPES[scalar], str(bound)
    if get_origin(hint) in (tuple, Sequence):
        return "list", ""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint)), ""
    return _TYPES.get(hint, "object"), ""


def _default(field: "attrs.Attribute[Any]") -> str:
    if getattr(field.default, "factory", None) is dict:
        return "empty"
    match field.default:
        case attrs.NOTHING:
            return "required"
        case None:
            return "none"
        case bool() as switch:
            return str(switch).lower()
        case () | "":
            return "empty"
        case (Test(),):
            return "one empty test"
        case str() as text:
            return f"`{text}`"
        case int() | float() as number:
            return f"{number:g}"
        case _:
            return "its defaults"


@pytest.mark.parametrize(
    ("model", "names", "first"),
    [
        (Suite, dict.fromkeys(NOT_IN_FILES), "providers"),
        (ProviderEntry, {}, "id"),
        (Test, {"assertions": "assert", "fault": None, "judge": None}, "description"),
        (TestOptions, {"overrides": None}, "runSerially"),
        (Scenario, {}, "config"),
        (Assertion, {"assertions": "assert"}, "type"),
        (EvaluateOptions, {}, "maxConcurrency"),
        (LaneSettings, {}, "key"),
        (QuotaSettings, {}, "backend"),
        (BatchSettings, {}, "size"),
        (QuestionSettings, {"file": "questionsFile", "questions": None}, "questionsFile"),
        (QuestionBudget, {}, "maxTokens"),
        (Tool, {}, "name"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_table_says_what_its_model_says(
    model: type, names: Mapping[str, str | None], first: str
) -> None:
    """Every key stands there with its type, range and default, in the order of the model."""
    assert columns(table_with(first), 4) == list(_documented(model, names))


def test_every_refused_key_stands_there() -> None:
    """The places in the order of the module, the keys in that of the alphabet."""
    (listed,) = [table for table in tables(PAGE) if table[-1][0] == "lanes"]
    refused = {
        place.removeprefix("NOT_YET_IN_").lower(): sorted(getattr(keys, place))
        for place in vars(keys)
        if place.startswith("NOT_YET_IN_")
    }
    assert {place: re.findall(r"`(\w+)`", names) for place, names in listed} == refused


def test_the_suites_of_the_page_load(tmp_path: Path) -> None:
    """Beside the files that the page shows."""
    lay_out(DOCS / "reference" / "suite.md", tmp_path)
    environ = {"REDIS_URL": "redis://localhost"}
    shared = load_suite(tmp_path / "shared.yaml", environ=environ)
    assert shared.quota is not None
    assert shared.quota.url == "redis://localhost"
    (task,) = load_suite(tmp_path / "colours.yaml").tasks
    assert [test.description for test in task.suite.tests] == ["sky"]


def test_the_ends_of_keys_stand_there() -> None:
    """With what they say of the unit."""
    (listed,) = [table for table in tables(PAGE) if table[0][0].startswith("`:rpm`")]
    assert {end: unit for ends, (unit,) in _words(listed) for end in ends} == {
        end: unit_of(end) for ends, _ in _words(listed) for end in ends
    }


def test_how_replies_are_read_stands_there() -> None:
    """Every kind of fault."""
    (listed,) = [table for table in tables(PAGE) if table[-1][0] == "anything else"]
    assert {reading.strip("`") for _, reading in listed[:-1]} == set(get_args(ParseFaultKind))


def _words(listed: list[list[str]]) -> list[list[list[str]]]:
    return [[re.findall(r"`([^`]+)`", cell) for cell in line] for line in listed]
