"""The checks for other people's schedulers and paces find what is wrong, all of it, and nothing else."""

from collections.abc import Sequence

import attrs
import pytest
from foreign_schedulers import Careful, Defect, fan_out, fan_out_and_collect, metered

from trioeval.errors import UsageError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Outcome, Plan, run_plan
from trioeval.rates import Pace
from trioeval.testing.conformance import (
    OUTSIDE_LAWS,
    Answer,
    Emit,
    ForeignJob,
    Scheduler,
    Send,
    broken_laws,
    check_scheduler,
)
from trioeval.testing.conformance_pace import MakePace, broken_pace_rules, check_pacer

pytestmark = pytest.mark.slow


async def kernel(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """Our own kernel, as a scheduler like any other."""

    async def perform(job: Job[ForeignJob], calls: Calls[ForeignJob]) -> Answer:
        return await calls(job.lane, send, job.payload)

    async def hand_on(outcome: Outcome[Answer]) -> None:
        await emit(outcome.index, outcome.value if isinstance(outcome, Done) else outcome)

    plan = Plan.of([Job(job.index, job.lane, job) for job in jobs])
    await run_plan(plan, perform, lanes=Lanes(lanes), emit=hand_on)


async def ends_at_once(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """Invents results."""
    for job in jobs:
        await emit(job.index, Answer(job.index))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("scheduler", [kernel, Careful()], ids=["kernel", "careful"])
def test_a_scheduler_that_keeps_every_law_passes(scheduler: Scheduler, seed: int) -> None:
    """Our kernel is one, and it is not the only one."""
    check_scheduler(lambda: scheduler, seed=seed)


@pytest.mark.parametrize(
    ("scheduler", "laws"),
    [
        (fan_out, "ORDER PACE EAGER"),
        (fan_out_and_collect, "TOTAL PROMPT PACE EAGER ISOLATION"),
        (metered, "EAGER"),
        (ends_at_once, "HONEST"),
    ],
)
def test_a_foreign_scheduler_breaks_exactly_these_laws(scheduler: Scheduler, laws: str) -> None:
    """Each law that it breaks is found, and none that it keeps."""
    assert " ".join(broken_laws(lambda: scheduler, examples=400)) == laws


@pytest.mark.parametrize(
    ("defect", "laws"),
    [
        ("one slot too many", "WIDTH EAGER"),
        ("one start too many", "PACE EAGER"),
        ("looks once a second", "EAGER"),
        ("one line for all lanes", "EAGER ISOLATION"),
        ("last job first", "PACE EAGER"),
        ("a failure ends its lane", "TOTAL PROMPT"),
        ("a failure keeps its slot", "TOTAL EAGER"),
        ("answers are lost", "HONEST"),
        ("a task is left behind", "LEAK"),
    ],
)
def test_one_defect_breaks_exactly_these_laws(defect: Defect, laws: str) -> None:
    """The same scheduler without the defect breaks none."""
    assert " ".join(broken_laws(lambda: Careful(defect), examples=400)) == laws


def test_all_broken_laws_are_told_with_the_smallest_scenario_of_each() -> None:
    """Whoever reads the failure can see it happen; laws that were not asked for are left out."""
    with pytest.raises(AssertionError) as caught:
        check_scheduler(lambda: Careful("answers are lost"))
    assert str(caught.value).splitlines() == [
        "broken laws: HONEST",
        "",
        "HONEST is broken: job 1 was emitted with None",
        "  lane a: width 1",
        "  job 0 on a: 0.25 s",
        "  job 1 on a: 0.25 s",
    ]
    found = broken_laws(lambda: Careful("one start too many"), laws=("LEAK", "EAGER", "PACE"))
    assert [str(breach).splitlines()[1:] for breach in found.values()] == [
        [
            "  lane a: width 1, 120 rpm with a burst of 1",
            "  job 0 on a: 0.25 s",
            "  job 1 on a: 0.25 s",
        ]
    ] * 2


def test_a_scheduler_that_hangs_is_told_from_one_that_raises() -> None:
    """Neither ends the check."""
    found = broken_laws(lambda: Careful("a failure keeps its slot"), laws=["TOTAL"])
    assert found["TOTAL"].message.startswith("TOTAL is broken: the scheduler failed: it had not")
    found = broken_laws(lambda: fan_out_and_collect, laws=["TOTAL"])
    assert found["TOTAL"].message == (
        "TOTAL is broken: the scheduler failed: it raised ScriptedError: job 0 was told to fail"
    )


def test_equal_seeds_find_equal_scenarios() -> None:
    """A failure can be looked at again."""
    first, second = (
        broken_laws(lambda: Careful("last job first"), examples=50, seed=7) for _ in range(2)
    )
    assert first == second


def test_a_law_that_cannot_be_judged_from_outside_is_refused() -> None:
    """It would pass without having been looked at."""
    with pytest.raises(UsageError) as caught:
        check_scheduler(Careful, laws=["SLOT"])
    known = ", ".join(OUTSIDE_LAWS)
    assert str(caught.value) == f"laws must be some of {known}, got SLOT"


@attrs.define
class TokenBucket:
    """A pace that people write: a bucket of `burst` tokens. It changes itself."""

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
    """A pace that people write: so many starts in each minute of the clock. It knows no gap."""

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
    """Whether it gives the next state or changes itself."""
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
def test_a_pace_that_errs_breaks_exactly_these_rules(make: MakePace, rules: str) -> None:
    """Each rule that it breaks is found, and none that it keeps."""
    assert " ".join(broken_pace_rules(make)) == rules


@attrs.frozen
class Impatient:
    """Names instants that lie a little before now."""

    pace: Pace

    def earliest(self, now: float) -> float:
        return self.pace.earliest(now) - 0.125

    def take(self, now: float) -> "Impatient":
        return Impatient(self.pace.take(now))


def test_a_broken_pace_is_told_with_its_smallest_example() -> None:
    """Limits, requests, and what was right."""
    with pytest.raises(AssertionError) as caught:
        check_pacer(lambda rpm, burst, gap: our_pace(rpm, burst + 1, gap))
    assert str(caught.value).splitlines()[:4] == [
        "broken rules: RATE, LONG_RUN",
        "",
        "RATE is broken: asked at 0.0, start 1 may be at 0.0, right is 1.0; before: [0.0]",
        "  PaceLimits(rpm=60.0, burst=1, min_gap=0.0), waits [0.0, 0.0]",
    ]
