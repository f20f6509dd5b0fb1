"""The pages about the kernel agree with its types."""

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import attrs
import pytest
from snippets import DOCS, table

from trioeval import kernel
from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel import (
    Allowance,
    BreakerState,
    Budget,
    Calls,
    Edge,
    Event,
    Job,
    Lane,
    Lanes,
    LaneSpec,
    LaneStatistics,
    Metered,
    Outcome,
    Plan,
    RateHint,
    Readiness,
    ReadinessUpdate,
    StopReason,
    Summary,
    WaitReason,
    collect,
    map_on_lanes,
    run_plan,
)

NAMES = ("kernel", "plans", "calls", "lanes")
ALL = "\n".join((DOCS / "reference" / f"{name}.md").read_text() for name in NAMES)


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^##? |\Z)", ALL, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def named(heading: str, first: str) -> list[str]:
    """The names in the first column of a table, without code marks."""
    return [row[0].strip("`") for row in table(section(heading), first)]


def fields(model: type[attrs.AttrsInstance]) -> list[str]:
    return [field.name for field in attrs.fields(model) if field.init]


def types_of(union: object) -> list[type]:
    return [get_origin(part) or part for part in get_args(union)]


def parameters(function: Callable[..., object]) -> Iterator[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    return (parameter for parameter in found if parameter.name != "self")


def written(function: Callable[..., object], name: str) -> str:
    """A call of the function with its defaults, as a page shows it."""
    parts: list[str] = []
    for parameter in parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(p[0] == "*" for p in parts):
            parts.append("*")
        default: object = parameter.default
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}")
        elif default is parameter.empty:
            parts.append(parameter.name)
        else:  # a factory makes `{}`, which a signature does not show
            parts.append(f"{parameter.name}={'{}' if default is attrs.NOTHING else repr(default)}")
    return f"{name}({', '.join(parts)})".replace("''", '""')


def test_every_argument_of_run_plan_is_listed() -> None:
    """Each has its default."""
    expected = [
        [
            f"`{parameter.name}`",
            "required" if parameter.default is parameter.empty else f"`{parameter.default}`",
        ]
        for parameter in parameters(run_plan)
    ]
    assert [row[:2] for row in table(section("run_plan"), "argument")] == expected


def test_the_table_of_map_on_lanes_has_every_argument_with_its_default() -> None:
    """In the order of the signature; exceptions by their names."""

    def shown(default: object) -> str:
        if default is inspect.Parameter.empty:
            return "required"
        if isinstance(default, tuple):
            return f"`({', '.join(one.__name__ for one in default)})`"
        return f"`{default!r}`"

    expected = [[f"`{p.name}`", shown(p.default)] for p in parameters(map_on_lanes)]
    assert [row[:2] for row in table(section("map_on_lanes"), "argument")] == expected
    documented = section("map_on_lanes")
    names = ["item", "lane", "outcome", "index", "error", "unwrap()"]
    assert [name for name in names if f"`{name}`" not in documented] == []


def test_the_arguments_that_collect_lacks_are_named() -> None:
    """It has all other arguments of `run_plan`."""
    missing = [
        p.name for p in parameters(run_plan) if p.name not in inspect.signature(collect).parameters
    ]
    assert missing == [
        "emit",
        "settled",
        "never_ran",
        "reorder_window",
        "pause_after",
        "flush_grace",
    ]
    documented = section("run_plan").partition("`await collect(")[2]
    assert [name for name in missing if f"`{name}`" not in documented] == []


@pytest.mark.parametrize(
    ("heading", "first", "union"), [("Outcomes", "outcome", Outcome), ("Events", "event", Event)]
)
def test_every_outcome_and_event_is_listed_with_its_fields(
    heading: str, first: str, union: object
) -> None:
    """They are in the order of the union."""
    expected = [
        [f"`{kind.__name__}`", ", ".join(f"`{name}`" for name in fields(kind))]
        for kind in types_of(union)
    ]
    assert [[row[0], row[-1]] for row in table(section(heading), first)] == expected


@pytest.mark.parametrize(
    ("function", "name"),
    [
        *(
            (made, made.__name__)
            for made in (Job, Plan, Edge, ReadinessUpdate, Metered, RateHint, Budget)
        ),
        (Lanes, "Lanes"),
        (Plan.of, "Plan.of"),
        (CallError, "CallError"),
        (Calls.__call__, "await calls"),
        (Readiness.begin, "begin"),
        (Readiness.on_outcome, "over"),
        (Readiness.rank, "rank"),
        (Readiness.on_set_aside, "aside"),
    ],
)
def test_signatures_are_those_of_the_code(function: Callable[..., object], name: str) -> None:
    """A reader can type the signatures of a page."""
    assert f"`{written(function, name)}`" in ALL


@pytest.mark.parametrize(
    ("heading", "first", "expected"),
    [
        ("The handle", "argument", [p.name for p in parameters(Calls.__call__)]),
        ("Creating lanes", "argument", [p.name for p in parameters(Lanes)]),
        ("Statistics", "field", fields(LaneStatistics)),
        ("Budgets", "dimension", fields(Budget)),
    ],
)
def test_every_field_is_listed(heading: str, first: str, expected: list[str]) -> None:
    """The fields are in the order of the code."""
    assert named(heading, first) == expected


def test_jobs_and_plans_are_described() -> None:
    """The fields of a job come first, then those of a plan."""
    rows = re.findall(r"^\| `(\w+)` \|", section("Jobs"), re.MULTILINE)
    assert rows == [*fields(Job), *fields(Plan)]


def test_the_fields_of_a_send_are_listed() -> None:
    """The fields of `Metered` come first, then those of an `Allowance`."""
    rows = re.findall(r"^\| `(\w+)` \|", section("The result of a send"), re.MULTILINE)
    assert rows == [*fields(Metered), *fields(Allowance)]


def test_a_lane_is_described_with_its_defaults() -> None:
    """Every field except the name is listed in the order of the class."""
    expected = [
        [f"`{field.name}`", f"`{field.default!r}`"]
        for field in attrs.fields(LaneSpec)
        if field.name != "name"
    ]
    assert [row[:2] for row in table(section("Creating lanes"), "field")] == expected


@pytest.mark.parametrize(
    "row", table(section("Creating lanes"), "field"), ids=lambda row: str(row[0])
)
def test_the_range_of_a_field_equals_its_error_message(row: list[str]) -> None:
    """An invalid value is refused with the words of the page."""
    name, allowed = row[0].strip("`"), row[2]
    if not allowed:
        assert name in {"slow_start", "backoff", "busy_backoff"}
        return
    wrong: dict[str, Any] = {name: -1}
    with pytest.raises(PlanError) as refused:
        LaneSpec("m", **wrong)
    assert str(refused.value) == f"lane 'm': {name} must be {allowed}, got -1"


def test_the_arguments_of_a_call_error_are_listed() -> None:
    """The page has all optional arguments besides fault and message."""
    found = re.findall(r"^\| `(\w+)` \|", section("Failures"), re.MULTILINE)
    assert found == [p.name for p in parameters(CallError) if p.kind is p.KEYWORD_ONLY]


def test_every_number_of_a_summary_is_named() -> None:
    """The page describes every field."""
    documented = section("run_plan")
    assert [name for name in fields(Summary) if f"`{name}`" not in documented] == []


@pytest.mark.parametrize(
    ("heading", "first", "words"),
    [("Outcomes", "cut", StopReason), ("Events", "why", WaitReason), ("Failures", "fault", Fault)],
)
def test_every_reason_is_listed(heading: str, first: str, words: type[enum.Enum]) -> None:
    """All members are listed in their order, by their names in a program."""
    assert named(heading, first) == [str(word) for word in words]


def test_every_state_of_a_breaker_is_named() -> None:
    """The page uses their names in a program."""
    documented = section("Statistics")
    assert [str(state) for state in BreakerState if f"`{state}`" not in documented] == []


def test_every_method_of_a_lane_is_listed() -> None:
    """The names in the table are methods of the class."""
    verbs = re.findall(r"^\| `\.(\w+)", section("Changing lanes while they run"), re.MULTILINE)
    assert verbs == ["max_concurrency", "retune", "pause", "resume"]
    assert all(hasattr(Lane, verb) for verb in verbs)


def test_every_public_name_of_the_kernel_is_documented() -> None:
    """Every name that can be imported is on a page, except names that occur only in signatures."""
    classes = {name for name, found in vars(kernel).items() if isinstance(found, type)}
    only_in_signatures = {"Lane", "Calls", "Readiness"}
    documented = set(re.findall(r"\w+", ALL))
    assert classes - only_in_signatures - documented == set()
