"""The page about the kernel says what the kernel's types say."""

import inspect
import re
from collections.abc import Callable
from typing import get_args, get_origin

import attrs
import pytest
from snippets import DOCS

from trioeval.kernel import Cut, Event, LaneSpec, LaneStatistics, Outcome, Summary, Why, run_plan
from trioeval.kernel.jobs import Job, Plan

PAGE = (DOCS / "reference" / "kernel.md").read_text()


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def fields(model: type) -> list[str]:
    return [field.name for field in attrs.fields(model)]


def types_of(union: object) -> list[type]:
    return [get_origin(part) or part for part in get_args(union)]


def written(function: Callable[..., object]) -> str:
    """A call of the function, with its defaults, as the page writes it."""
    parts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        no_default = parameter.default is parameter.empty
        parts.append(parameter.name if no_default else f"{parameter.name}={parameter.default}")
    return f"{function.__name__}({', '.join(parts)})"


def test_every_argument_of_run_plan_stands_there() -> None:
    """With its default."""
    expected = [
        (name, "required" if parameter.default is parameter.empty else f"`{parameter.default}`")
        for name, parameter in inspect.signature(run_plan).parameters.items()
    ]
    listed = re.findall(r"^\| `(\w+)` \| (.*?) \|", section("run_plan"), re.MULTILINE)
    assert listed == expected


@pytest.mark.parametrize(("heading", "union"), [("Outcomes", Outcome), ("Events", Event)])
def test_every_outcome_and_event_stands_there_with_its_fields(heading: str, union: object) -> None:
    """In the order of the union."""
    listed = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", section(heading), re.MULTILINE)
    expected = [
        (kind.__name__, ", ".join(f"`{name}`" for name in fields(kind))) for kind in types_of(union)
    ]
    assert listed == expected


@pytest.mark.parametrize("model", [Job, Plan, LaneSpec])
def test_signatures_are_those_of_the_classes(model: type) -> None:
    """What the page says can be typed."""
    assert f"`{written(model)}`" in PAGE


@pytest.mark.parametrize("model", [Summary, LaneStatistics])
def test_every_number_is_named(model: type) -> None:
    """Summaries and statistics hold nothing that the page does not tell of."""
    assert [name for name in fields(model) if name != "name" and f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("words", [Cut, Why])
def test_every_reason_is_named(words: type[Cut] | type[Why]) -> None:
    """All members, by the names under which they are written in a program."""
    assert [str(word) for word in words if f"`{word}`" not in PAGE] == []
