"""The checks of foreign schedulers and paces find all defects, and nothing else."""

import math
from collections.abc import Sequence

import attrs
import pytest
import trio
from foreign_schedulers import (
    Careful,
    Defect,
    fan_out,
    fan_out_and_collect,
    metered,
    semaphored,
    sleeping,
)
from hypothesis import given, settings

from trioeval.errors import UsageError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Outcome, Plan, run_plan
from trioeval.rates import Pace
from trioeval.testing.conformance import (
    CAPABILITIES,
    OUTSIDE_LAWS,
    Capability,
    MakePace,
    broken_laws,
    broken_pace_rules,
    check_pacer,
    check_scheduler,
    outside_scenarios,
)
from trioeval.testing.foreign import Emit, ForeignJob, ForeignReply, Scheduler, Send, call_of
from trioeval.testing.scenario import RunScenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # hundreds of runs for each test


_ONLY_JOBS: list[Capability] = ["timeout", "deadline", "stop"]


async def kernel(
    jobs: Sequence[ForeignJob],
    lanes: Sequence[LaneSpec],
    send: Send,
    emit: Emit,
    *,
    deadline: float,
    stop: trio.Event,
) -> None:
    """The kernel, as a scheduler like any other."""

    async def perform(job: Job[ForeignJob], calls: Calls[ForeignJob]) -> ForeignReply:
        return await calls(job.lane, send, job.payload)

    async def hand_on(outcome: Outcome[ForeignReply]) -> None:
        await emit(outcome.index, outcome.value if isinstance(outcome, Done) else outcome)

    plan = Plan.of([Job(job.index, job.lane, job, job.timeout) for job in jobs])
    await run_plan(plan, perform, lanes=Lanes(lanes), emit=hand_on, deadline=deadline, stop=stop)


async def invent_results(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """Return invented results."""
    for job in jobs:
        await emit(job.index, ForeignReply(job.index))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("scheduler", [kernel, Careful()], ids=["kernel", "careful"])
def test_a_scheduler_that_keeps_every_law_passes(scheduler: Scheduler, seed: int) -> None:
    """The kernel does, and it is not the only one."""
    check_scheduler(lambda: scheduler, examples=150, seed=seed)


@pytest.mark.parametrize(
    ("scheduler", "unsupported", "laws"),
    [
        (fan_out, ["retries", "retry_after"], "ORDER PACE TURN"),
        (
            fan_out_and_collect,
            ["retries", "retry_after", "cancel"],
            "TOTAL PROMPT PACE TURN ISOLATION",
        ),
        (metered, ["retries", "burst"], "RETRY_AFTER"),
        (metered, ["retries", "retry_after"], "EAGER"),
        (semaphored, [], "PACE TURN RETRY_AFTER"),
        (semaphored, ["rate", "gap"], "TURN RETRY_AFTER"),
        (sleeping, [], "EAGER ISOLATION SLOT"),
        (invent_results, [], "HONEST"),
    ],
)
def test_a_foreign_scheduler_breaks_exactly_these_laws(
    scheduler: Scheduler, unsupported: list[Capability], laws: str
) -> None:
    """Each law that it breaks is found, and none that it keeps; unsupported features are not tested."""
    lacking = [*_ONLY_JOBS, *unsupported]
    found = broken_laws(lambda: scheduler, examples=150, unsupported=lacking, shrink=False)
    assert " ".join(found) == laws


@pytest.mark.parametrize(
    ("defect", "laws"),
    [
        ("one slot too many", "WIDTH"),
        ("one start too many", "PACE"),
        ("looks once a second", "EAGER"),
        ("one line for all lanes", "EAGER ISOLATION"),
        ("last job first", "TURN"),
        ("a failure ends its lane", "TOTAL PROMPT HONEST"),
        ("a failure keeps its slot", "TOTAL EAGER"),
        ("answers are lost", "HONEST"),
        ("a task is left behind", "LEAK"),
        ("rests in its slot", "EAGER SLOT"),
        ("requested waits are ignored", "RETRY_AFTER ATTEMPTS"),
        ("one retry too many", "ATTEMPTS"),
        ("final failures are repeated", "ATTEMPTS"),
        ("waits count against the timeout", "LIMIT"),
        ("timeouts are not kept", "LIMIT"),
        ("the deadline is not kept", "DEADLINE"),
        ("a stop is ignored", "DRAIN"),
        ("a stop cuts calls off", "DRAIN"),
        ("goes on when it is cancelled", "DEADLINE"),
    ],
)
def test_one_defect_breaks_exactly_these_laws(defect: Defect, laws: str) -> None:
    """The same scheduler without the defect breaks none."""
    unsupported: list[Capability] = [] if "timeout" in defect else ["timeout"]
    found = broken_laws(
        lambda: Careful(defect), examples=150, unsupported=unsupported, shrink=False
    )
    assert " ".join(found) == laws


def test_all_broken_laws_are_reported_with_their_smallest_scenarios() -> None:
    """Unselected laws are left out."""
    with pytest.raises(AssertionError) as caught:
        check_scheduler(lambda: Careful("answers are lost"))
    assert str(caught.value).splitlines() == [
        "broken laws: HONEST",
        "",
        (
            "HONEST is broken: job 1 was emitted with None, after request 1 of job 1 on lane a"
            " (0.25 to 0.5, returned)"
        ),
        "  lane a: max concurrency 1",
        "  job 0 on a: 0.25 s",
        "  job 1 on a: 0.25 s",
        "  timeline:",
        "       0.000  a: job 0 starts",
        "       0.250  a: job 0 ends",
        "       0.250  a: job 1 starts",
        "       0.500  a: job 1 ends",
        "       0.500  the scheduler returns",
    ]
    found = broken_laws(lambda: Careful("one start too many"), laws=("LEAK", "EAGER", "PACE"))
    assert [str(breach).splitlines()[1:4] for breach in found.values()] == [
        [
            "  lane a: max concurrency 1, 120 rpm with a burst of 1",
            "  job 0 on a: 0.25 s",
            "  job 1 on a: 0.25 s",
        ]
    ]


def test_the_timeline_shows_a_back_off_that_holds_a_slot() -> None:
    """It shows the refusal, the back-off, and the job that waits for the slot."""
    (breach,) = broken_laws(lambda: sleeping, laws=["SLOT"], unsupported=_ONLY_JOBS).values()
    assert str(breach).splitlines() == [
        (
            "SLOT is broken: job 0 kept its slot from 0.3125 to 0.5625, in no call; request 1 of job 1"
            " on lane a (0.875 to 1.125, returned) could have started at 0.3125"
        ),
        "  lane a: max concurrency 1, retries: 3",
        "  job 0 on a: 0.3125 s, then transient; again: 0.3125 s",
        "  job 1 on a: 0.25 s",
        "  timeline:",
        "       0.000  a: job 0 starts",
        "       0.312  a: job 0 fails: transient",
        "       0.562  a: job 0, request 2 starts",
        "       0.875  a: job 0, request 2 ends",
        "       0.875  a: job 1 starts",
        "       1.125  a: job 1 ends",
        "       1.125  the scheduler returns",
    ]


def test_a_hanging_scheduler_is_distinguished_from_one_that_raises() -> None:
    """Neither ends the check."""
    found = broken_laws(lambda: Careful("a failure keeps its slot"), laws=["TOTAL"], shrink=False)
    assert found["TOTAL"].message.startswith("TOTAL is broken: the scheduler failed: it had not")
    found = broken_laws(lambda: fan_out_and_collect, laws=["TOTAL"], unsupported=CAPABILITIES)
    assert found["TOTAL"].message.splitlines()[0] == (
        "TOTAL is broken: the scheduler failed: it raised CallError: job 0 was configured to fail"
    )


def test_equal_seeds_find_equal_scenarios() -> None:
    """A failure can be reproduced."""
    first, second = (
        broken_laws(lambda: Careful("last job first"), examples=50, seed=7) for _ in range(2)
    )
    assert first == second


def test_unsupported_features_are_not_drawn() -> None:
    """No scenario has a feature that is declared as unsupported."""

    @given(outside_scenarios(unsupported=CAPABILITIES))
    @settings(max_examples=100, database=None)
    def is_plain(scenario: RunScenario) -> None:
        assert min(scenario.deadline, scenario.stop_at, scenario.cancel_at) == math.inf
        for lane in scenario.lanes:
            assert (lane.rpm, lane.burst, lane.min_gap) == (None, 1, 0.0)
        for script in scenario.scripts:
            assert (script.timeout, call_of(script).attempts) == (math.inf, ())

    is_plain()


def test_checks_that_cannot_be_made_are_rejected() -> None:
    """They would pass without an examination."""
    with pytest.raises(UsageError) as caught:
        check_scheduler(Careful, laws=["AIMD"])
    known = ", ".join(OUTSIDE_LAWS)
    assert str(caught.value) == f"laws must be some of {known}, got AIMD"
    with pytest.raises(UsageError) as caught:
        check_scheduler(Careful, unsupported=["serial"])  # type: ignore[list-item]
    known = ", ".join(CAPABILITIES)
    assert str(caught.value) == f"unsupported must be some of {known}, got serial"


def test_an_argument_that_the_scheduler_lacks_is_named_before_any_run() -> None:
    """Otherwise the call would be reported as a failure of the scheduler."""
    with pytest.raises(UsageError) as caught:
        check_scheduler(lambda: fan_out)
    assert str(caught.value) == (
        "the scheduler does not accept the argument deadline and the argument stop: add it, or declare"
        " unsupported=['deadline', 'stop']"
    )


@attrs.define
class TokenBucket:
    """A usual pace: a bucket of `burst` tokens. It is mutable."""

    rpm: float | None
    burst: int
    min_gap: float
    tokens: float = attrs.field(init=False)
    at: float = 0.0
    last: float | None = None

    @tokens.default
    def _full(self) -> float:
        return float(self.burst)

    def _filled(self, now: float) -> float:
        return min(self.burst, self.tokens + (now - self.at) * (self.rpm or 0.0) / 60)

    def earliest(self, now: float) -> float:
        gap_over_at = now if self.last is None else self.last + self.min_gap
        missing = 1 - self._filled(now) if self.rpm else 0.0
        return max(now, gap_over_at, now + missing * 60 / (self.rpm or 1.0))

    def take(self, now: float) -> "TokenBucket":
        self.tokens = self._filled(now) - (self.rpm is not None)
        self.at = self.last = now
        return self


@attrs.define
class FixedMinutes:
    """A usual pace: a number of starts in each minute of the clock. It has no gap."""

    rpm: float | None
    burst: int
    min_gap: float
    starts: list[float] = attrs.field(factory=list)

    def earliest(self, now: float) -> float:
        used = sum(at // 60 == now // 60 for at in self.starts)
        return now if self.rpm is None or used < self.rpm else (now // 60 + 1) * 60

    def take(self, now: float) -> "FixedMinutes":
        self.starts.append(now)
        return self


def our_pace(rpm: float | None, burst: int, min_gap: float) -> Pace:
    return Pace.per_minute(rpm, burst=burst, min_gap=min_gap)


@pytest.mark.parametrize("make", [our_pace, TokenBucket])
def test_an_exact_pace_passes(make: MakePace) -> None:
    """This holds for a pace that returns the next state and for a mutable one."""
    check_pacer(make)


@pytest.mark.parametrize(
    ("make", "rules"),
    [
        (FixedMinutes, "RATE EAGER LONG_RUN"),
        (lambda rpm, burst, gap: our_pace(rpm, burst + 1, gap), "RATE LONG_RUN"),
        (lambda rpm, burst, gap: our_pace(rpm, burst, gap + 0.5), "EAGER LONG_RUN"),
        (lambda rpm, burst, gap: our_pace(rpm, burst, gap).take(0.0), "FIRST EAGER LONG_RUN"),
        (lambda rpm, burst, gap: Impatient(our_pace(rpm, burst, gap)), "RATE MONOTONE LONG_RUN"),
    ],
    ids=["fixed minutes", "burst too large", "gap too large", "waits at first", "impatient"],
)
def test_a_wrong_pace_breaks_exactly_these_rules(make: MakePace, rules: str) -> None:
    """Each rule that it breaks is found, and none that it keeps."""
    assert " ".join(broken_pace_rules(make)) == rules


@attrs.frozen
class Impatient:
    """A pace that returns instants slightly before now."""

    pace: Pace

    def earliest(self, now: float) -> float:
        return self.pace.earliest(now) - 0.125

    def take(self, now: float) -> "Impatient":
        return Impatient(self.pace.take(now))


def test_a_wrong_pace_is_reported_with_its_smallest_example() -> None:
    """The report has the limits, the requests and the right instants."""
    with pytest.raises(AssertionError) as caught:
        check_pacer(lambda rpm, burst, gap: our_pace(rpm, burst + 1, gap))
    assert str(caught.value).splitlines()[:4] == [
        "broken rules: RATE, LONG_RUN",
        "",
        "RATE is broken: at 0.0, start 1 is allowed at 0.0, expected 1.0; before: [0.0]",
        "  PaceLimits(rpm=60.0, burst=1, min_gap=0.0), waits [0.0, 0.0]",
    ]
