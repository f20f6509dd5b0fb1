"""The waits of a job, explained from the events of its run."""

import attrs
import pytest

from trioeval.errors import Fault
from trioeval.kernel import Edge, Event, LaneSpec, Noted, Reserving, Shortage, Waiting, WaitReason
from trioeval.report.explain import explain
from trioeval.testing import (
    AttemptScript,
    CallScript,
    JobScript,
    RunScenario,
    SharedLimitScript,
    run_scenario,
)


def test_a_refused_call_is_explained_with_its_waits_and_requests() -> None:
    """Every wait has its reason and end; the last line sums up."""
    refused = (AttemptScript(1.0, Fault.RATE_LIMITED, 5.0), AttemptScript(0.5))
    scenario = RunScenario(
        (LaneSpec("a", max_concurrency=1),),
        (
            JobScript("a", (CallScript("a", 2.0),)),
            JobScript("a", (CallScript("a", 0.0, attempts=refused),)),
        ),
    )
    history = explain(run_scenario(scenario).events, 1)
    assert str(history) == (
        "job 1\n"
        "     2.000  is started on lane a\n"
        "     2.000  a request on lane a starts\n"
        "     3.000  lane a refuses the call (rate limit), retry after 5 s; "
        "blocked until 8.000\n"
        "     3.000  the request on lane a fails: job 1 was configured to\n"
        "     3.000  waits for lane a: backoff, until 8.500\n"
        "     8.500  a request on lane a starts\n"
        "     9.000  the request on lane a ends\n"
        "     9.000  is done: 2 requests, 1.500 s of work, 5.500 s of waits"
    )


def test_a_job_includes_the_lane_wait_before_its_start() -> None:
    """A job waits for its lane's pace before it is started."""
    scenario = RunScenario((LaneSpec("a", rpm=30),), (JobScript("a", (CallScript("a", 0.5),)),) * 2)
    first, *_ = explain(run_scenario(scenario).events, 1).moments
    assert first == (0.0, "waits for lane a: pace, until 2.000")


def test_the_wait_for_a_permit_names_the_full_limits() -> None:
    """The wait lasts from the request to the start; entries of the body are included."""
    lack = Shortage("rate_limit", ("team:rpm", "team:tpm"), 4.5)
    events: list[Event] = [
        Reserving(1.0, 0, "a"),
        Waiting(1.0, "a", WaitReason.SHARED_LIMIT, 4.5, 0, lack),
        Noted(5.0, 0, "parsing", {"characters": 3}),
    ]
    assert explain(events, 0).moments == (
        (1.0, "requests a permit of lane a"),
        (1.0, "waits for lane a: shared limit, until 4.500 (team:rpm, team:tpm)"),
        (5.0, "note: parsing"),
    )
    assert explain(events, 1).moments == ()
    limit = SharedLimitScript(("a",), room=1)
    scenario = RunScenario(
        (LaneSpec("a"),), (JobScript("a", (CallScript("a", 2.0),)),) * 2, shared=(limit,)
    )
    assert [what for _, what in explain(run_scenario(scenario).events, 1).moments[:4]] == [
        "is started on lane a",
        "requests a permit of lane a",
        "waits for lane a: shared limit",
        "a request on lane a starts",
    ]


@pytest.mark.parametrize(
    ("lack", "text"),
    [
        (Shortage("limit_decreasing", ("rpm",), 9.0), ", until 9.000 (rpm becomes smaller)"),
        (
            Shortage("limiter_error", ("rpm",), 9.0, "redis://x: connection refused"),
            ", until 9.000 (the limit server does not respond): redis://x: connection refused",
        ),
        (Shortage("rate_limit"), ""),
    ],
)
def test_a_refused_permit_is_described_in_words(lack: Shortage, text: str) -> None:
    """The description also covers reasons other than a full limit."""
    wait = Waiting(1.0, "a", WaitReason.SHARED_LIMIT, lack.until, 0, lack)
    assert explain([wait], 0).moments == ((1.0, f"waits for lane a: shared limit{text}"),)


def test_jobs_that_never_ran_have_a_reason() -> None:
    """The reason is a closed lane, or a dependency that failed."""
    dead = CallScript("a", 0.0, attempts=(AttemptScript(1.0, Fault.QUOTA_EXHAUSTED),))
    scenario = RunScenario(
        (LaneSpec("a", max_concurrency=1),), (JobScript("a", (dead,)),) * 3, edges={2: (Edge(0),)}
    )
    trace = run_scenario(scenario)
    assert explain(trace.events, 1).moments[-1] == (
        1.0,
        "was not run (lane): job 0 was configured to",
    )
    assert explain(trace.events, 2).moments == ((1.0, "is blocked by job 0"),)


def test_a_job_without_events_has_no_history() -> None:
    """No history is invented."""
    trace = run_scenario(RunScenario((LaneSpec("a"),), (JobScript("a", ()),)))
    assert explain(trace.events, 5).moments == ()
    assert attrs.asdict(explain(trace.events, 5))["index"] == 5
