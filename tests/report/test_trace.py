"""A trace shows the events of a run with the same sums as other reports, in the form that viewers read."""

import json
from collections import Counter
from typing import Any

import pytest
from hostile import TEXTS
from hypothesis import given, settings
from trace_rules import check_trace, read_cut

from trioeval.errors import CallError, Fault, ProviderError
from trioeval.kernel import (
    Admitted,
    CallEnded,
    CallStarted,
    Done,
    Event,
    Finished,
    LaneClosed,
    LimitChanged,
    Salvaged,
    Throttled,
    Waiting,
)
from trioeval.kernel.events import WaitReason
from trioeval.report.activity import Activity
from trioeval.report.trace import TraceRecords, error_kind
from trioeval.testing import run_scenario
from trioeval.testing.scenario import RunScenario
from trioeval.testing.strategies import faulty_scenarios


def lines_of(
    trace: TraceRecords, *events: Event, task: str | None = None, now: float = 100.0
) -> str:
    return trace.head() + "".join(trace.records(task, event) for event in events) + trace.tail(now)


def records_of(trace: TraceRecords, *events: Event, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lines_of(trace, *events, **more))
    return found


@given(faulty_scenarios())
@settings(max_examples=max(1, settings().max_examples // 4))
def test_a_trace_has_the_sums_of_the_activity(scenario: RunScenario) -> None:
    """For any run, calls, tokens, refusals, waits and limits are those of the activity."""
    events = run_scenario(scenario).events
    end = max((event.at for event in events), default=0.0)
    trace, activity = TraceRecords(began_at=0.0, run_id="r"), Activity(0.0)
    for event in events:
        activity.observe(event)
    text = lines_of(trace, *events, now=end)
    drawn = check_trace(json.loads(text))
    for name, lane in activity.lanes.items():
        assert drawn.calls[name] == lane.calls
        assert drawn.tokens[name] == lane.tokens
        assert drawn.refused[name] == lane.refused
        for why, seconds in lane.waited(end).items():
            assert drawn.waits.get((name, why.value), 0.0) == pytest.approx(seconds, abs=1e-5)
    failed = sum(lane.failed for lane in activity.lanes.values())
    assert drawn.errors.total() == failed
    limits = {event.lane: event.limit for event in events if isinstance(event, LimitChanged)}
    assert drawn.limits == limits
    ended = Counter(type(event.outcome).__name__ for event in events if isinstance(event, Finished))
    shown = Counter(one["args"]["outcome"] for one in drawn.jobs)
    started = ended.keys() & {"Done", "Failed", "TimedOut", "Interrupted"}
    assert {name: shown[name] for name in started} == {name: ended[name] for name in started}


def test_overlapping_calls_have_separate_tracks_that_are_reused() -> None:
    """The number of tracks is the largest number of calls in flight; the lowest free one is used."""
    drawn = records_of(
        TraceRecords(began_at=10.0, run_id="r"),
        CallStarted(10.0, 0, "m"),
        CallStarted(11.0, 1, "m"),
        CallEnded(12.0, 0, "m"),
        CallStarted(13.0, 2, "m"),
        CallEnded(14.0, 1, "m"),
        CallEnded(15.0, 2, "m"),
    )
    check_trace(drawn)
    starts = [(one["name"], one["tid"], one["ts"]) for one in drawn if one["ph"] == "B"]
    assert starts == [("job 0", 2, 0.0), ("job 1", 3, 1e6), ("job 2", 2, 3e6)]
    names = [one["args"]["name"] for one in drawn if one.get("name") == "thread_name"]
    assert names == ["m: waits", "m 1", "m 2"]


def test_a_truncated_file_is_readable() -> None:
    """Each record is a line: the events before a kill are visible, also calls in flight."""
    text = lines_of(
        TraceRecords(began_at=0.0, run_id="r", limits={"m": 4}),
        Admitted(0.0, 7, "m"),
        CallStarted(1.0, 7, "m"),
        CallEnded(2.0, 7, "m", tokens=3),
    )
    lines = text.splitlines()
    for count in range(2, len(lines)):
        check_trace(read_cut("\n".join(lines[:count])), whole=False)
    first = next(place for place, line in enumerate(lines) if '"ph":"B"' in line)
    assert check_trace(read_cut("\n".join(lines[: first + 1])), whole=False).unfinished == 1


def test_everything_under_way_ends_with_the_trace() -> None:
    """This includes calls, jobs and waits of an interrupted run."""
    drawn = check_trace(
        records_of(
            TraceRecords(began_at=0.0, run_id="r"),
            Admitted(0.0, 0, "m"),
            CallStarted(1.0, 0, "m"),
            Waiting(2.0, "m", WaitReason.TOKENS, 9.0, None),
            now=5.0,
        )
    )
    assert drawn.waits == {("m", "tokens"): 3.0}
    assert [one["args"] for one in drawn.jobs] == [{"outcome": "cut"}]


def test_jobs_of_two_tasks_are_separate_and_a_retried_job_has_two_slices() -> None:
    """Indices are per task; a job that is set aside has a slice for each of its rounds."""
    trace = TraceRecords(
        began_at=0.0, run_id="r", name_of=lambda task, row: f"row {row}" if task else None
    )
    text = trace.head()
    done = Done(3, 0.0, 9.0, 0.0, 1, "x")
    events: list[tuple[str, Event]] = [
        ("a", Admitted(1.0, 3, "m")),
        ("b", Admitted(2.0, 3, "m")),
        ("a", Finished(3.0, done)),
        ("b", Salvaged(4.0, (3,))),
        ("b", Admitted(4.0, 3, "m")),
        ("b", Finished(5.0, done)),
        ("b", Finished(6.0, Done(8, 0.0, 9.0, 0.0, 1, "never admitted"))),
    ]
    for task, event in events:
        text += trace.records(task, event, row_of=lambda job: job + 10)
    records = json.loads(text + trace.tail(9.0))
    ends = [(one["ts"], one["args"]["outcome"]) for one in check_trace(records).jobs]
    assert ends == [(3e6, "Done"), (4e6, "set aside"), (5e6, "Done")]
    jobs = [one["args"]["job"] for one in records if one["ph"] == "b"]
    assert jobs == ["a 13 row 13", "b 13 row 13", "b 13 row 13"]


def test_a_job_without_a_row_has_its_own_name() -> None:
    trace = TraceRecords(
        began_at=0.0,
        run_id="r",
        limits={},
        name_of=lambda _task, row: f"row {row}",
    )
    text = trace.records("t", Admitted(1.0, 3, "m"), row_of=lambda _job: "text of row 7")
    records = json.loads(trace.head() + text + trace.tail(2.0))
    assert [one["args"]["job"] for one in records if one["ph"] == "b"] == ["t text of row 7"]


def test_refusals_limits_and_closed_lanes_are_shown() -> None:
    records = records_of(
        TraceRecords(began_at=0.0, run_id="r", limits={"m": 8}),
        CallStarted(0.0, 0, "m"),
        Throttled(1.0, 0, "m", float("inf"), -float("inf")),
        CallEnded(1.0, 0, "m", ProviderError("rate_limited", "secret words"), money=float("nan")),
        LimitChanged(1.0, "m", 4, 4),
        LaneClosed(2.0, "m", "says no"),
    )
    drawn = check_trace(records)
    assert (drawn.refused["m"], drawn.limits["m"], drawn.errors) == (1, 4, {"rate_limited": 1})
    assert "secret words" not in json.dumps(records)
    closed = [one for one in records if one["ph"] == "i" and one["s"] == "p"]
    assert [(one["name"], one["args"]) for one in closed] == [
        ("m is closed", {"reason": "says no"})
    ]


def test_waits_and_refusals_are_named_after_their_rows() -> None:
    """Jobs of a resumed run have other numbers than their rows, and those of two tasks have equal numbers."""
    trace = TraceRecords(began_at=0.0, run_id="r")
    events: list[Event] = [
        Admitted(0.0, 2, "m"),
        Waiting(0.0, "m", WaitReason.SLOT, None, 2),
        CallStarted(1.0, 2, "m"),
        Throttled(2.0, 2, "m", None, 3.0),
        CallEnded(2.0, 2, "m", ProviderError("rate_limited", "x")),
        Waiting(2.0, "m", WaitReason.BACKOFF, None, 2),
        Finished(3.0, Done(2, 0.0, 9.0, 0.0, 1, "x")),
    ]
    text = trace.head()
    text += "".join(trace.records("t", event, row_of=lambda job: job + 20) for event in events)
    records = json.loads(text + trace.tail(4.0))
    names = [(one["name"], one["args"]["job"]) for one in records if one["ph"] in "iX"]
    assert names == [("slot", "t 22"), ("429", "t 22"), ("backoff", "t 22")]


def test_lanes_with_equal_prefixes_have_separate_counters() -> None:
    """Names are truncated, and viewers merge counters that have one name."""
    lanes = ["x" * 200 + end for end in "ab"]
    records = records_of(
        TraceRecords(began_at=0.0, run_id="r"), *(CallStarted(0.0, 0, n) for n in lanes)
    )
    counters = {one["name"] for one in records if one["ph"] == "C"}
    assert len(counters) == 2
    assert check_trace(records).calls.total() == 2


def test_an_error_is_shown_in_one_word() -> None:
    errors = [CallError(Fault.TRANSIENT, "x"), ValueError("x"), ProviderError("bad_request", "x")]
    assert [error_kind(error) for error in errors] == ["transient", "ValueError", "bad_request"]


def test_backslashes_are_written_as_viewers_read_them() -> None:
    text = 'C:\\data\\ "x\\" \\'
    records = records_of(TraceRecords(began_at=0.0, run_id="r"), LaneClosed(0.0, "m", text))
    assert [one["args"]["reason"] for one in records if one["ph"] == "i"] == [text]


@pytest.mark.parametrize("name", TEXTS)
def test_foreign_names_are_inert(name: str) -> None:
    """Lane, row and reason are one line of ASCII JSON each, truncated, and without keys."""
    text = TEXTS[name]
    trace = TraceRecords(
        began_at=0.0,
        run_id=text,
        name_of=lambda _task, _row: f"sk-key {text}",
        hide=lambda shown: shown.replace("sk-key", "[hidden]"),
    )
    written = lines_of(
        trace,
        Admitted(0.0, 0, text),
        CallStarted(0.0, 0, text),
        LaneClosed(1.0, text, text),
        task=text,
    )
    assert written.isascii()
    assert r"\\" not in written, "Perfetto does not find the end of a text that ends in a backslash"
    assert "sk-key" not in written
    assert written.replace("\n", "").isprintable()
    records = json.loads(written)
    check_trace(records)
    assert all(len(line) < 2000 for line in written.splitlines())
    json.dumps(records, ensure_ascii=False).encode()  # no halves of surrogate pairs
