"""The waits of rows."""

from typing import Any

import pytest
from journalled import Model, Notes, execute

from trioeval.errors import ProviderError
from trioeval.evaluation.waits import NO_WAITS, WaitTimes
from trioeval.kernel import Admitted, CallStarted, Event, Lanes, LaneSpec, Waiting
from trioeval.kernel.events import WaitReason


def suite(*words: str, **lane: Any) -> dict[str, Any]:
    return {
        "providers": [{"id": "model", "lane": lane}],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": word}} for word in words],
    }


def waits_of(document: dict[str, Any], **models: Any) -> list[dict[str, float]]:
    ran = execute(document, models, Notes())
    return [dict(row.waits) for row in ran.rows]


def test_each_row_waits_for_the_slot_from_when_it_is_next() -> None:
    document = suite("a", "b", "c", maxConcurrency=1)
    assert waits_of(document, model=Model(takes=2.0)) == [{}, {"slot": 2.0}, {"slot": 2.0}]


def test_the_minimum_gap_of_a_lane_counts_as_waiting() -> None:
    document = suite("a", "b", maxConcurrency=4, delay=5000)
    assert waits_of(document, model=Model()) == [{}, {"delay": 5.0}]


def test_a_refused_row_reports_its_wait_and_that_of_the_row_it_blocked() -> None:
    failures = [ProviderError("rate_limited", "slow down", retry_after=30)]
    model = Model(fails=lambda _: failures.pop() if failures else None)
    found = waits_of(suite("a", "b", maxConcurrency=1), model=model)
    assert sum(found[0].values()) == pytest.approx(30, rel=0.2)
    assert "backoff" in found[0] or "blocked" in found[0]


def test_waits_for_judges_count() -> None:
    good = '{"pass": true, "score": 1, "reason": "r"}'
    judge = Model(takes=10.0, says=lambda _: good)
    document = suite("a", "b", maxConcurrency=2)
    who = {"id": "judge", "lane": {"maxConcurrency": 1}}
    document["defaultTest"] = {"assert": [{"type": "llm-rubric", "value": "x", "provider": who}]}
    ran = execute(document, {"model": Model(), "judge": judge}, Notes())
    # The first one to arrive.
    assert sorted((row.waits.get("slot", 0.0), row.wait_ms) for row in ran.rows) == [
        (0.0, 0.0),
        (10.0, 10_000.0),
    ]


def test_without_an_observer_no_waits_are_measured() -> None:
    """Without a journal or an observer, rows have no additional cost."""
    document = suite("a", "b", maxConcurrency=1)
    ran = execute(document, {"model": Model()})
    assert [dict(row.waits) for row in ran.rows] == [{}, {}]
    events: list[Any] = []
    ran = execute(document, {"model": Model()}, observe=events.append)
    assert [dict(row.waits) for row in ran.rows] == [{}, {"slot": 1.0}]
    assert {type(event).__name__ for event in events} >= {"Admitted", "CallEnded", "Finished"}


def test_a_row_that_is_run_once_more_adds_to_its_waits() -> None:
    waits = WaitTimes(Lanes([LaneSpec("m"), LaneSpec("n")]))
    events: list[Event] = [
        Waiting(0.0, "m", WaitReason.PACE, None, None),
        Admitted(1.0, 7, "m"),
        Waiting(1.0, "m", WaitReason.SLOT, None, 7),
        Waiting(2.0, "m", WaitReason.BLOCKED, 4.0, 7),
        CallStarted(4.0, 7, "m"),
        Waiting(5.0, "m", WaitReason.PACE, None, None),
        Admitted(9.0, 7, "m"),
        Waiting(9.0, "n", WaitReason.SLOT, None, 7),
    ]
    for event in events:
        waits(event)
    assert waits.take(7, 10.0) == {"pace": 5.0, "slot": 2.0, "blocked": 2.0}
    assert waits.take(7, 10.0) is NO_WAITS


def test_a_started_job_has_only_its_own_waits() -> None:
    """Waits of the previous job, and of the next one on another lane, are not included."""
    waits = WaitTimes(Lanes([LaneSpec("m"), LaneSpec("n")]))
    events: list[Event] = [
        Waiting(1.0, "m", WaitReason.PACE, None, None),
        Waiting(1.0, "n", WaitReason.TURN, None, None),
        Admitted(3.0, 0, "m"),
    ]
    for event in events:
        waits(event)
    assert waits.ahead == {"pace": 2.0}
    waits(Admitted(4.0, 1, "m"))
    assert waits.ahead == {}
    waits(Admitted(5.0, 2, "n"))
    assert waits.ahead == {"turn": 4.0}
