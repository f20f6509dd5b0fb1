"""Spans of a trace: how they are read, counted and timed, and which of them are errors."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import trioeval
from trioeval import Status
from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject, Verdict, check_assertion, grade
from trioeval.grading.kinds.traces import ReplySpan, trace_of
from trioeval.grading.kinds.workspace_files import matches

SPANS: list[dict[str, Any]] = [
    {"name": "llm.call", "startTime": 0, "endTime": 100},
    {"name": "LLM.call", "startTime": 100, "endTime": 400, "statusCode": 2, "statusMessage": "no"},
    {"name": "db.query", "startTime": 100, "endTime": 150},
    {"name": "db.write", "startTime": 150},
]


def judged(type_name: str, value: Any, spans: Any = SPANS) -> Verdict:
    subject = Subject.of("x", metadata={"trace": {"spans": spans}})
    return grade(subject, [Assertion(type=type_name, value=value)]).parts[0]


CASES: list[tuple[str, Any, bool, str]] = [
    (
        "trace-span-count",
        {"pattern": "llm.*"},
        True,
        'found 2 spans matching "llm.*", expected any number',
    ),
    (
        "trace-span-count",
        {"pattern": "db.?????", "min": 2},
        True,
        'found 2 spans matching "db.?????", expected at least 2',
    ),
    (
        "trace-span-count",
        {"pattern": "*", "max": 3},
        False,
        'found 4 spans matching "*", expected at most 3',
    ),
    (
        "not-trace-span-count",
        {"pattern": "*", "max": 3},
        True,
        'found 4 spans matching "*", expected at most 3',
    ),
    (
        "trace-span-count",
        {"pattern": "db", "min": 1, "max": 2},
        False,
        'found 0 spans matching "db", expected 1 to 2',
    ),
    (
        "trace-span-duration",
        {"max": 300},
        True,
        "the longest of 3 spans is 300 ms, expected at most 300 ms; slowest: LLM.call 300 ms, llm",
    ),
    (
        "trace-span-duration",
        {"max": 299.5},
        False,
        "the longest of 3 spans is 300 ms, expected at most 299.5 ms",
    ),
    ("not-trace-span-duration", {"max": 299}, True, "the longest of 3 spans is 300 ms"),
    (
        "trace-span-duration",
        {"max": 100, "percentile": 50},
        True,
        "percentile 50 of 3 spans is 100 ms",
    ),
    (
        "trace-span-duration",
        {"max": 99, "percentile": 34},
        False,
        "percentile 34 of 3 spans is 100 ms",
    ),
    ("trace-span-duration", {"max": 50, "percentile": 0}, True, "percentile 0 of 3 spans is 50 ms"),
    (
        "trace-span-duration",
        {"max": 0, "pattern": "db.w*"},
        True,
        'no span that matches "db.w*" has a start and an end',
    ),
    (
        "trace-error-spans",
        None,
        False,
        '1 of 4 spans that match "*" have errors (25.0 %), expected at most 0: LLM.call (no)',
    ),
    (
        "trace-error-spans",
        1,
        True,
        '1 of 4 spans that match "*" have errors (25.0 %), expected at most 1: LLM.call (no)',
    ),
    ("not-trace-error-spans", 0, True, "1 of 4 spans"),
    (
        "trace-error-spans",
        {"max_percentage": 25},
        True,
        '1 of 4 spans that match "*" have errors (25.0 %), expected at most 25 %',
    ),
    ("trace-error-spans", {"max_percentage": 24}, False, "1 of 4 spans"),
    (
        "trace-error-spans",
        {"max_count": 1, "max_percentage": 60, "pattern": "llm*"},
        True,
        '1 of 2 spans that match "llm*" have errors (50.0 %), expected at most 1 and at most 60 %: LLM',
    ),
    ("trace-error-spans", {"max_count": 0, "max_percentage": 60}, False, "1 of 4 spans"),
    (
        "trace-error-spans",
        {"pattern": "db.*"},
        True,
        '0 of 2 spans that match "db.*" have errors (0.0 %), expected at most 0',
    ),
    ("trace-error-spans", {"pattern": "x"}, True, 'no span matches "x"'),
]


@pytest.mark.parametrize(("type_name", "value", "passes", "reason"), CASES)
def test_spans_are_judged(type_name: str, value: Any, reason: str, *, passes: bool) -> None:
    """Bounds are inclusive; no spans at all are neither slow nor errors."""
    assert not list(check_assertion(Assertion(type=type_name, value=value)))
    verdict = judged(type_name, value)
    assert (verdict.passed, verdict.score) == (passes, float(passes))
    assert verdict.reason.startswith(reason)


def test_three_of_many_errors_are_listed() -> None:
    """The others are counted."""
    spans = [{"name": f"s{place}", "status": "ERROR"} for place in range(5)]
    assert judged("trace-error-spans", 4, spans).reason.endswith(": s0, s1, s2 and 2 more")


@pytest.mark.parametrize(
    ("span", "wrong"),
    [
        ({}, False),
        ({"status": {"code": 1, "message": "fine"}}, False),
        ({"status": {"code": "STATUS_CODE_ERROR"}}, True),
        ({"status": "error"}, True),
        ({"status": "ok"}, False),
        ({"status": "503"}, True),
        ({"statusCode": 404}, True),
        ({"status": {"code": 0, "message": "Timeout after 3 s"}}, True),
        ({"statusMessage": "aborted"}, True),
        ({"attributes": {"error": True}}, True),
        ({"attributes": {"exception": {"type": "x"}}}, True),
        ({"attributes": {"failed": "true", "failure": False}}, True),
        ({"attributes": {"failure": "false", "error": None}}, False),
        ({"attributes": {"http.status_code": "500"}}, True),
        ({"attributes": {"http.status_code": 399}}, False),
        ({"attributes": {"http.status_code": "many"}}, False),
        ({"attributes": {"otel.status_code": "ERROR"}}, True),
        ({"attributes": [{"key": "http.status_code", "value": {"intValue": "404"}}]}, True),
        ({"attributes": [{"key": "status.code", "value": {"stringValue": "ERROR"}}, 3]}, True),
        ({"attributes": 3}, False),
    ],
)
def test_errors_are_recognized_in_several_forms(span: dict[str, Any], *, wrong: bool) -> None:
    """They are recognized by the status, by its text, and by attributes."""
    trace = {"spans": [{"name": "a", **span}]}
    (found,) = trace_of(Subject.of("x", metadata={"trace": trace})).spans
    assert found.is_error is wrong


def test_times_of_opentelemetry_are_read() -> None:
    """They are nanoseconds, often as text."""
    span = {"name": "a", "startTimeUnixNano": "1000000", "endTimeUnixNano": 3_500_000}
    (found,) = trace_of(Subject.of("x", metadata={"trace": {"spans": [span]}})).spans
    assert found == ReplySpan("a", 1, 3.5)
    assert found.duration == 2.5


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "the reply has no trace; providers return one as metadata.trace of the reply: {"),
        ({"trace": []}, "the trace of the reply has no list of spans: []"),
        ({"trace": {"spans": None}}, 'the trace of the reply has no list of spans: {"spans":null}'),
        ({"trace": {"spans": [{"name": 1}]}}, 'spans[0] of the trace has no name: {"name":1}'),
        (
            {"trace": {"spans": [{"name": "a", "endTime": "noon"}]}},
            'endTime of spans[0] of the trace must be a number, got "noon"',
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["", "not-"])
def test_a_missing_trace_is_an_error(metadata: Any, message: str, prefix: str) -> None:
    """The error has a hint about the format."""
    with pytest.raises(GradingError) as caught:
        grade(Subject.of("x", metadata=metadata), [Assertion(type=f"{prefix}trace-error-spans")])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("trace-span-count", {"pattern": ""}),
        ("trace-span-count", {"name": "a", "pattern": "a"}),
        ("trace-span-count", {"pattern": "a", "min": 2, "max": 1}),
        ("trace-span-count", "a"),
        ("trace-span-duration", {"pattern": "a"}),
        ("trace-span-duration", {"max": True}),
        ("trace-span-duration", {"max": 1, "percentile": -1}),
        ("trace-span-duration", {"max": 1, "precentile": 1}),
        ("trace-error-spans", []),
        ("trace-error-spans", {"maxCount": 1}),
        ("trace-error-spans", {"pattern": 1}),
        ("trace-error-spans", float("nan")),
    ],
)
def test_invalid_bounds_are_reported(type_name: str, value: Any) -> None:
    """They are reported before a run; an unknown key would bound nothing."""
    (problem,) = check_assertion(Assertion(type=type_name, value=value))
    assert problem.path == ".value"


@given(st.text("aB.\n", max_size=8), st.text("abB.*?", max_size=8))
def test_patterns_match_like_their_definition(name: str, pattern: str) -> None:
    """The definition is recursive."""

    def fits(at: int, of: int) -> bool:
        if of == len(pattern):
            return at == len(name)
        if pattern[of] == "*":
            return fits(at, of + 1) or (at < len(name) and fits(at + 1, of))
        same = at < len(name) and pattern[of].lower() in ("?", name[at].lower())
        return same and fits(at + 1, of + 1)

    assert matches(name, pattern) is fits(0, 0)


def test_patterns_match_quickly() -> None:
    """Each star is matched once."""
    assert not matches("a" * 5000, "*a" * 50 + "*b")


PROGRAM = """
def call_api(prompt, options, context):
    spans = [{"name": "search", "startTime": 5, "endTime": 9, "attributes": {"tool.name": "search"}}]
    return {"output": prompt, "metadata": {"trace": {"spans": spans}, "skillCalls": [{"name": "find"}]}}
"""


def test_python_providers_return_traces(tmp_path: Path) -> None:
    """Traces are in the metadata of their results."""
    (tmp_path / "p.py").write_text(PROGRAM)
    asserts = [
        {"type": "trace-span-duration", "value": {"max": 4}},
        {"type": "trajectory:tool-used", "value": "search"},
        {"type": "skill-used", "value": "find"},
    ]
    suite = tmp_path / "suite.json"
    tests = [{"assert": asserts}, {"assert": asserts, "providerOutput": "x"}]
    suite.write_text(json.dumps({"providers": ["file://p.py"], "prompts": ["p"], "tests": tests}))
    first, second = trio.run(partial(trioeval.collect, suite))
    assert (first.status, first.error) == (Status.PASS, None)
    assert second.status is Status.ERROR
    assert "assert[0] (trace-span-duration): the reply has no trace" in (second.error or "")
