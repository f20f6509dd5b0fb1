"""The events of questions, from the events of the kernel."""

import itertools
import logging
import math
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.kernel import Admitted, CallEnded, CallStarted, Event, NotRun, StopReason, Waiting
from trioeval.kernel.events import (
    Finished,
    Noted,
    Reserving,
    Shortage,
    Throttled,
    WaitReason,
    guarded,
)
from trioeval.question_eval.answer import QuestionEvent
from trioeval.question_eval.events import QuestionRun


def events_of(*events: Event, rows: range | list[int] = range(2)) -> list[QuestionEvent]:
    """Return the question events for some kernel events."""
    reported: list[QuestionEvent] = []
    life = QuestionRun(reported.append).task("quiz", rows)
    life.on_task_start(0.0)
    for event in events:
        life.on_event(event)
    return reported


def names_of(*events: Event) -> list[str]:
    return [event.name for event in events_of(*events) if event.index == 0][1:]


def waits(why: WaitReason, shortage: Shortage | None = None, until: float | None = None) -> Waiting:
    return Waiting(1.0, "lane", why, until, 0, shortage)


SHORT = Shortage("rate_limit", ("a:rpm",), 1.5)


def test_each_reason_has_one_event_however_often_it_is_reported() -> None:
    """Another key, or another kind, is another reason."""
    polls = [
        waits(WaitReason.SHARED_LIMIT, attrs.evolve(SHORT, until=at), at) for at in (1.5, 2.5, 3.5)
    ]
    other = waits(WaitReason.SHARED_LIMIT, attrs.evolve(SHORT, keys=("b:tpm",)))
    shrinks = waits(WaitReason.SHARED_LIMIT, Shortage("limit_decreasing", ("a:rpm",)))
    fails = waits(WaitReason.SHARED_LIMIT, Shortage("limiter_error", (), 9.0, "no answer"), 9.0)
    started = CallStarted(4.0, 0, "lane")
    reported = events_of(
        Admitted(0.0, 0, "lane"), Reserving(0.0, 0, "lane"), *polls, other, shrinks, fails, started
    )
    mine = [event for event in reported if event.index == 0]
    assert [event.name for event in mine] == [
        "queued",
        "scheduled",
        *("reserving", "waiting_rate_limit"),
        *("reserving", "waiting_rate_limit"),
        *("reserving", "waiting_limit_decreasing"),
        *("reserving", "waiting_limiter_error"),
        "reserving",
        "running",
    ]
    assert mine[3].details == {"retry_after_ms": 500.0, "keys": ["a:rpm"]}
    assert mine[5].details == {"keys": ["b:tpm"]}
    assert mine[9].details == {"retry_after_ms": 8000.0, "message": "no answer"}


@pytest.mark.parametrize("why", [WaitReason.PACE, WaitReason.TOKENS, WaitReason.BLOCKED])
def test_rates_of_a_lane_are_reported_as_rate_limits(why: WaitReason) -> None:
    """They are named like shared limits."""
    assert names_of(waits(why))[-1] == "waiting_rate_limit"


@pytest.mark.parametrize(
    "why", [WaitReason.SLOT, WaitReason.TURN, WaitReason.CAP, WaitReason.BACKOFF, WaitReason.PAUSED]
)
def test_other_waits_are_reported_as_waits_for_the_lane(why: WaitReason) -> None:
    """They contain the kernel's name of the reason."""
    reported = events_of(waits(why))
    assert (reported[-1].name, reported[-1].details) == (
        "waiting_lane",
        {"lane": "lane", "why": why.value},
    )


def turn(job: int, lane: str = "lane") -> Waiting:
    return Waiting(2.0, lane, WaitReason.TURN, None, job)


def test_a_queued_question_waits_for_the_same_cause_as_the_first() -> None:
    """It names the limits without room; on another lane, or when the first has gone, that is its turn."""
    shrinks = Shortage("limit_decreasing", ("a:tpm",))
    for first, name, more in (
        (waits(WaitReason.SHARED_LIMIT, SHORT), "waiting_rate_limit", {"keys": ["a:rpm"]}),
        (waits(WaitReason.SHARED_LIMIT, shrinks), "waiting_limit_decreasing", {"keys": ["a:tpm"]}),
        (waits(WaitReason.BLOCKED, until=9.0), "waiting_rate_limit", {}),
        (waits(WaitReason.SLOT), "waiting_lane", {}),
        (attrs.evolve(waits(WaitReason.PACE), index=None), "waiting_rate_limit", {}),
        (waits(WaitReason.BACKOFF), "waiting_lane", {}),
    ):
        reported = events_of(first, turn(1))[-1]
        assert (reported.name, reported.details) == (name, {"lane": "lane", "why": "turn", **more})
    for gone in (
        CallStarted(1.5, 0, "lane"),
        Finished(1.5, NotRun(0, StopReason.CANCEL)),
        turn(0),
        Waiting(1.5, "lane", WaitReason.BACKOFF, 3.0, 0),
    ):
        assert (
            events_of(waits(WaitReason.SHARED_LIMIT, SHORT), gone, turn(1))[-1].name
            == "waiting_lane"
        )
    started = Admitted(1.5, 0, "lane")
    paced = attrs.evolve(waits(WaitReason.PACE), index=None)
    assert events_of(paced, started, turn(1))[-1].name == "waiting_lane"
    assert (
        events_of(waits(WaitReason.SHARED_LIMIT, SHORT), turn(1, "other"))[-1].name
        == "waiting_lane"
    )
    # Of two reasons, the last reported one counts.
    later = attrs.evolve(waits(WaitReason.SHARED_LIMIT, shrinks), index=2)
    for several in (
        [waits(WaitReason.SHARED_LIMIT, SHORT), later],
        [later, waits(WaitReason.SHARED_LIMIT, SHORT), later],
    ):
        assert events_of(*several, turn(1), rows=range(3))[-1].details["keys"] == ["a:tpm"]


def test_a_back_off_is_named_after_its_cause() -> None:
    """A rate limit is a rate; a failure is not, nor is one after a successful call."""
    refused = Throttled(0.5, 0, "lane", 3.0, -math.inf)
    rest = waits(WaitReason.BACKOFF, until=3.5)
    assert names_of(refused, rest)[-1] == "waiting_rate_limit"
    assert names_of(attrs.evolve(refused, index=1), rest)[-1] == "waiting_lane"
    assert names_of(refused, CallStarted(0.75, 0, "lane"), rest)[-1] == "waiting_lane"
    assert (
        names_of(refused, Finished(0.75, NotRun(0, StopReason.CANCEL)), rest)[-1] == "waiting_lane"
    )


def test_a_late_start_contains_its_reasons() -> None:
    """The limits are those of the questions before it on its lane; without a wait there are none."""
    behind = Waiting(0.5, "lane", WaitReason.TURN, None, None)
    other = waits(WaitReason.SHARED_LIMIT, attrs.evolve(SHORT, keys=("b:tpm",)))

    def scheduled(*events: Event, waited: Mapping[str, float]) -> Mapping[str, object]:
        life = QuestionRun(None).task("quiz", range(2))
        for event in events:
            life.on_event(event)
        life.on_event(Admitted(3.0, 1, "lane"), waited)
        (found,) = [event for event in life.of(1) if event.name == "scheduled"]
        return found.details

    waited = {"turn": 1.5, "pace": 1.0}
    reported = {"waited_ms": 2500, "reasons": ["turn", "pace"]}
    assert scheduled(waited=waited) == reported
    assert scheduled(waits(WaitReason.SHARED_LIMIT, SHORT), behind, waited=waited) == {
        **reported,
        "keys": ["a:rpm"],
    }
    found = scheduled(behind, waits(WaitReason.SHARED_LIMIT, SHORT), other, waited=waited)
    assert found == {**reported, "keys": ["a:rpm", "b:tpm"]}
    elsewhere = attrs.evolve(behind, lane="elsewhere")
    assert scheduled(waits(WaitReason.SHARED_LIMIT, SHORT), elsewhere, waited=waited) == reported
    once = (waits(WaitReason.SHARED_LIMIT, SHORT), behind, Admitted(1.0, 0, "lane"))
    assert scheduled(*once, waited=waited) == reported
    assert scheduled(waits(WaitReason.SHARED_LIMIT, SHORT), behind, waited={}) == {}


def test_events_without_a_question_are_not_reported() -> None:
    """The next job of a lane is not started yet, and not every kernel event is reported."""
    assert (
        names_of(
            Waiting(0.0, "lane", WaitReason.SLOT, None, None),
            Noted(0.0, 0, "thinking", {}),
            CallEnded(0.0, 0, "lane"),
        )
        == []
    )


def test_remaining_rows_have_their_own_indices() -> None:
    """The jobs of a resumed task are numbered again; questions are not."""
    reported = events_of(Admitted(0.0, 1, "lane"), rows=[3, 8])
    assert [(event.name, event.index, event.job) for event in reported] == [
        ("task_start", None, None),
        ("queued", 3, "quiz-4"),
        ("queued", 8, "quiz-9"),
        ("scheduled", 8, "quiz-9"),
    ]


def test_the_events_stored_with_a_row_are_those_reported() -> None:
    """This holds without an observer too."""
    reported = events_of(Admitted(0.5, 1, "lane"), CallStarted(0.75, 1, "lane"))
    life = QuestionRun(None).task("quiz", range(2))
    life.on_task_start(0.0)
    life.on_event(Admitted(0.5, 1, "lane"))
    life.on_event(CallStarted(0.75, 1, "lane"))
    assert list(life.of(1)) == [event for event in reported if event.index == 1]
    assert [event.name for event in life.of(1)] == ["queued"]
    assert life.of(7) == ()


some_waits = st.builds(
    Waiting,
    st.just(1.0),
    st.just("lane"),
    st.sampled_from(WaitReason),
    st.none() | st.just(2.0),
    st.integers(0, 1),
    st.none()
    | st.builds(
        Shortage,
        st.sampled_from(["rate_limit", "limit_decreasing", "limiter_error"]),
        st.sampled_from([("a",), ("a", "b")]),
    ),
)
some_events = st.lists(
    some_waits
    | st.builds(Admitted, st.just(1.0), st.integers(0, 1), st.just("lane"))
    | st.builds(Reserving, st.just(1.0), st.integers(0, 1), st.just("lane"))
    | st.builds(CallStarted, st.just(1.0), st.integers(0, 1), st.just("lane"))
    | st.builds(
        Noted,
        st.just(1.0),
        st.integers(0, 1),
        st.sampled_from(["tool_start", "tool_finish", "parsing"]),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(some_events)
def test_waits_and_runs_follow_a_reservation(events: list[Event]) -> None:
    """Nothing waits or runs without a reservation, and no event is repeated in a row."""
    reported = events_of(*events)
    assert [event.sequence for event in reported] == list(range(len(reported)))
    for index in (0, 1):
        names = [event.name for event in reported if event.index == index]
        for before, name in itertools.pairwise(names):
            if name == "running" or name.startswith("waiting"):
                assert before == "reserving"
            if name == "reserving":
                assert before != "reserving"


def test_an_observer_that_raises_is_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one entry, with its traceback."""
    reported: list[str] = []

    def observe(event: QuestionEvent) -> None:
        reported.append(event.name)
        raise ValueError

    tell = guarded(observe)
    assert tell is not None
    with caplog.at_level(logging.ERROR):
        life = QuestionRun(tell).task(None, range(3))
        life.on_task_start(0.0)
    assert reported == ["task_start"]
    assert len(caplog.records) == 1
