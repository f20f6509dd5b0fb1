"""`map_on_lanes` keeps the laws of a run: over given items it does what `run_plan` does, call by call.

TOTAL, ORDER, WIDTH, PACE, DEADLINE and LEAK hold as well when items and lanes are added while it runs, when
the loop is slow, is left early or is cancelled, and when items are read from a generator.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Calls,
    Done,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    MappedItem,
    MappedItems,
    NotRun,
    Outcome,
    Plan,
    StopReason,
    collect,
    map_on_lanes,
)
from trioeval.testing import AttemptScript, lane_specs, run_virtual

pytestmark = pytest.mark.slow

NAMES = "abc"
GRAIN = 2**20
"""Fractions so small that sums of many of them stay below those on which rates lie."""


def spread() -> float:
    """The part of a back-off that is waited, the same for all: the order of failures does not matter."""
    return 95 / 256


QUARTERS = st.integers(0, 8).map(lambda number: number / 4)
FAULTS = st.sampled_from((None,) * 6 + (Fault.TRANSIENT,) * 2 + (Fault.RATE_LIMITED, Fault.REFUSED))


@attrs.frozen
class Page:
    """An item: what each attempt to fetch it does, and what it links to."""

    number: int
    lane: str
    attempts: tuple[AttemptScript, ...]
    links: "tuple[Page, ...]" = ()
    added_by: str = "loop"
    """`loop` or `fn`: which of them adds its links."""

    def all(self) -> "Iterator[Page]":
        yield self
        for link in self.links:
            yield from link.all()


@attrs.define
class Fetcher:
    """Fetches pages, and records what happened."""

    starts: list[tuple[float, Page]] = attrs.field(factory=list)
    ends: list[float] = attrs.field(factory=list)
    in_flight: Counter[str] = attrs.field(factory=Counter)
    most_in_flight: Counter[str] = attrs.field(factory=Counter)
    made: dict[int, Iterator[int]] = attrs.field(factory=lambda: defaultdict(itertools.count))
    results: MappedItems[Page, int] | None = None

    async def fetch(self, page: Page) -> int:
        """Fail as a connection does: OSError is a transient failure."""
        try:
            return await self.send(page)
        except CallError as error:
            if error.fault is Fault.TRANSIENT:
                raise ConnectionError from None
            if error.fault is Fault.REFUSED:
                raise ValueError from None
            raise

    async def send(self, page: Page) -> int:
        number = next(self.made[page.number])
        self.starts.append((trio.current_time(), page))
        self.in_flight[page.lane] += 1
        now = self.in_flight[page.lane]
        self.most_in_flight[page.lane] = max(now, self.most_in_flight[page.lane])
        attempt = page.attempts[min(number, len(page.attempts) - 1)]
        try:
            await trio.sleep(attempt.duration)
            if self.results is not None and page.added_by == "fn" and number == 0:
                for link in page.links:
                    self.results.add(link)
            if attempt.fault is Fault.RATE_LIMITED:
                raise CallError(attempt.fault, retry_after=attempt.retry_after)
            if attempt.fault is not None:  # as other exceptions have no hint
                raise CallError(attempt.fault)
            return page.number
        finally:
            self.in_flight[page.lane] -= 1
            self.ends.append(trio.current_time())


def attempts() -> st.SearchStrategy[tuple[AttemptScript, ...]]:
    return st.lists(
        st.builds(AttemptScript, QUARTERS, FAULTS, st.sampled_from((None, None, 0.5, 2.0))),
        min_size=1,
        max_size=4,
    ).map(tuple)


ATTEMPTS = attempts()
SPECS = {name: lane_specs(name) for name in NAMES}
LANE_NAMES = st.sampled_from(NAMES)
DEADLINES = st.sampled_from((math.inf, math.inf, 3.125, 9.5))


def distinct(
    attempts: tuple[AttemptScript, ...], fractions: Iterator[int]
) -> tuple[AttemptScript, ...]:
    """The attempts with durations of their own, at most one refusal, and one more that succeeds."""
    found = []
    for place, attempt in enumerate((*attempts, AttemptScript(1))):
        again = attempt.fault is Fault.RATE_LIMITED and place > 0
        fault = Fault.TRANSIENT if again else attempt.fault
        duration = attempt.duration + next(fractions) / GRAIN
        found.append(attrs.evolve(attempt, duration=duration, fault=fault))
    return tuple(found)


@st.composite
def pages(draw: st.DrawFn) -> tuple[Page, ...]:
    """Draw pages for which the rules leave nothing open.

    No two attempts end at one instant, and no page is refused twice, after which its retry has no precedence.
    """
    drawn = draw(st.lists(st.tuples(LANE_NAMES, ATTEMPTS), max_size=12))
    fractions = itertools.count(1)
    return tuple(
        Page(
            number,
            lane,
            distinct(attempts, fractions),
        )
        for number, (lane, attempts) in enumerate(drawn)
    )


@st.composite
def sites(draw: st.DrawFn) -> tuple[Page, ...]:
    """Draw pages that link to pages."""
    size = draw(st.integers(1, 14))
    links: dict[int, list[Page]] = defaultdict(list)
    roots = []
    for number in reversed(range(size)):
        page = Page(
            number,
            draw(LANE_NAMES),
            draw(ATTEMPTS),
            tuple(links[number]),
            draw(st.sampled_from(("loop", "fn"))),
        )
        parent = draw(st.integers(-1, number - 1))
        if parent < 0:
            roots.append(page)
        else:
            links[parent].append(page)
    return tuple(roots)


FIXED = {
    name: st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=st.sampled_from((None, None, 240.0, 60.0)),
        burst=st.integers(1, 3),
        min_gap=st.sampled_from((0.0, 0.0, 0.25)),
        adaptive=st.just("off"),
        retries=st.integers(0, 3),
        max_retries=st.sampled_from((None, 0, 1, 3)),
    )
    for name in NAMES
}
"""Lanes that do not learn: what they learn depends on the order of the events of one instant."""


@st.composite
def fixed_specs(draw: st.DrawFn) -> dict[str, LaneSpec]:
    return {name: draw(FIXED[name]) for name in NAMES}


@st.composite
def all_specs(draw: st.DrawFn) -> dict[str, LaneSpec]:
    return {name: draw(SPECS[name]) for name in NAMES}


def plain(outcome: Outcome[int]) -> object:
    """An outcome whose error is only a kind, since the errors of two runs differ."""
    if isinstance(outcome, Failed):
        error = outcome.error
        kind = error.fault.value if isinstance(error, CallError) else type(error).__name__
        known = {"ConnectionError": Fault.TRANSIENT.value, "ValueError": Fault.REFUSED.value}
        return attrs.evolve(outcome, error=known.get(kind, kind))  # type: ignore[arg-type]
    return outcome


def lane_of(page: Page) -> str:
    return page.lane


@given(
    given_pages=pages(),
    specs=fixed_specs(),
    deadline=DEADLINES,
    schedule=st.random_module(),
)
def test_a_map_does_what_a_run_of_the_same_jobs_does(
    given_pages: tuple[Page, ...],
    specs: dict[str, LaneSpec],
    deadline: float,
    schedule: object,
) -> None:
    """The same outcomes and the same starts, at the same instants: so EAGER and ISOLATION hold as well."""

    async def run() -> tuple[list[object], list[tuple[float, Page]]]:
        fetcher = Fetcher()

        async def perform(job: Job[Page], calls: Calls[Page]) -> int:
            return await calls(job.lane, fetcher.send, job.payload)

        plan = Plan.of(Job(page.number, page.lane, page) for page in given_pages)
        outcomes = await collect(
            plan, perform, lanes=Lanes(specs.values(), rng=spread), deadline=deadline
        )
        return [plain(outcome) for outcome in outcomes], fetcher.starts

    async def run_map() -> tuple[list[object], list[tuple[float, Page]]]:
        fetcher = Fetcher()
        async with map_on_lanes(
            fetcher.fetch,
            given_pages,
            lane=lane_of,
            spec=specs.__getitem__,
            lanes=Lanes([], rng=spread),
            deadline=deadline,
            ordered=True,
        ) as results:
            outcomes = [plain(result.outcome) async for result in results]
        return outcomes, fetcher.starts

    outcomes, starts = run_virtual(run)
    mapped, map_starts = run_virtual(run_map)
    assert mapped == outcomes
    key = lambda start: (start[0], start[1].number)  # noqa: E731 - a sort key
    assert sorted(map_starts, key=key) == sorted(starts, key=key)


@attrs.define
class Crawl:
    """One crawl: how its loop behaves, and what came of it."""

    roots: tuple[Page, ...]
    specs: dict[str, LaneSpec]
    ordered: bool = False
    buffer: int = 1000
    pause: float = 0.0
    """Seconds that the loop takes for each result."""
    deadline: float = math.inf
    cancel_at: float = math.inf
    leave_after: float = math.inf
    """Results after which the loop is left."""
    source: str = "tuple"
    fetcher: Fetcher = attrs.field(factory=Fetcher)
    results: list[MappedItem[Page, int]] = attrs.field(factory=list)
    read: int = 0
    inside: int = 0
    """Items read and not taken by the loop."""
    most_inside: int = 0
    most_ready: int = 0
    ended_at: float = math.nan
    left_over: list[str] = attrs.field(factory=list)

    def items(self) -> Iterator[Page]:
        for page in self.roots:
            self.read += 1
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
            yield page

    async def items_later(self) -> AsyncIterator[Page]:
        for page in self.items():
            yield page
            await trio.sleep(0.125)

    async def run(self) -> None:
        living = trio.lowlevel.current_statistics().tasks_living
        lanes = Lanes([], rng=spread)
        with trio.move_on_at(self.cancel_at):
            await self._run(lanes)
        self.ended_at = trio.current_time()
        if trio.lowlevel.current_statistics().tasks_living != living:
            self.left_over.append("tasks")
        for name, lane in lanes.items():
            seen = lane.statistics()
            if seen.in_flight or seen.waiting or seen.resting or lane.followers:
                self.left_over.append(name)
        if not lanes.gate.idle:
            self.left_over.append("the gate")

    async def _run(self, lanes: Lanes) -> None:
        items: Iterable[Page] | AsyncIterable[Page] = self.roots
        if self.source != "tuple":
            items = self.items() if self.source == "generator" else self.items_later()
        async with map_on_lanes(
            self.fetcher.fetch,
            items,
            lane=lane_of,
            spec=self.specs.__getitem__,
            lanes=lanes,
            deadline=self.deadline,
            ordered=self.ordered,
            buffer=self.buffer,
        ) as results:
            self.fetcher.results = results
            roots = set(self.roots)
            async for result in results:
                self.results.append(result)
                self.inside -= result.item in roots
                if len(self.results) >= self.leave_after:
                    break
                if result.item.added_by == "loop":
                    for link in result.item.links:
                        results.add(link)
                await trio.sleep(self.pause)


@st.composite
def crawls(draw: st.DrawFn) -> Crawl:
    return Crawl(
        draw(sites()),
        draw(all_specs()),
        draw(st.booleans()),
        draw(st.sampled_from((1000, 1, 2, 5))),
        draw(st.sampled_from((0.0, 0.0, 0.25, 2.0))),
        draw(DEADLINES),
        source=draw(st.sampled_from(("tuple", "generator", "async"))),
    )


def check_lanes(crawl: Crawl) -> None:
    """WIDTH and PACE, from the starts; DEADLINE; LEAK."""
    for name, spec in crawl.specs.items():
        assert crawl.fetcher.most_in_flight[name] <= spec.max_concurrency
        starts = [at for at, page in crawl.fetcher.starts if page.lane == name]
        period = 60 / spec.rpm if spec.rpm else 0.0
        for first, last in itertools.combinations(range(len(starts)), 2):
            gap = starts[last] - starts[first]
            assert gap >= (last - first + 1 - spec.burst) * period
            assert gap >= spec.min_gap
    assert all(at < crawl.deadline for at, _ in crawl.fetcher.starts)
    assert all(at <= crawl.deadline for at in crawl.fetcher.ends)
    assert crawl.left_over == []


def indices(results: Sequence[MappedItem[Page, int]]) -> list[int]:
    return [result.index for result in results]


@given(crawl=crawls(), schedule=st.random_module())
def test_every_item_has_one_result_whoever_adds_it(crawl: Crawl, schedule: object) -> None:
    """TOTAL and ORDER: also of items that were never started, because of the deadline or their lane."""
    run_virtual(crawl.run)
    check_lanes(crawl)
    if crawl.ordered:
        assert indices(crawl.results) == list(range(len(crawl.results)))
    assert sorted(indices(crawl.results)) == list(range(len(crawl.results)))
    yielded = Counter(result.item.number for result in crawl.results)
    assert set(yielded.values()) <= {1}
    for result in crawl.results:
        assert result.lane == result.item.lane
        if result.item.added_by == "loop" or isinstance(result.outcome, Done):
            assert {link.number for link in result.item.links} <= set(yielded)
        started = any(page is result.item for _, page in crawl.fetcher.starts)
        assert started or not isinstance(result.outcome, Done)
        if isinstance(result.outcome, NotRun):
            assert not started
            closed = result.outcome.cut is StopReason.LANE
            assert closed or (
                result.outcome.cut is StopReason.DEADLINE and crawl.deadline < math.inf
            )
        assert (result.error is None) == isinstance(result.outcome, Done)
    if crawl.deadline == math.inf:
        assert {page.number for page in crawl.roots} <= set(yielded)


@given(crawl=crawls(), schedule=st.random_module())
def test_items_are_read_only_while_there_is_room(crawl: Crawl, schedule: object) -> None:
    """At most `buffer` items were read and have not been taken by the loop."""
    crawl.source = "generator"
    run_virtual(crawl.run)
    assert crawl.most_inside <= crawl.buffer


@given(
    crawl=crawls(),
    cancel_at=st.sampled_from((0.0, 0.125, 1.0, 3.25, 10.0)),
    leave_after=st.integers(1, 6),
    schedule=st.random_module(),
)
def test_leaving_and_cancelling_end_everything_at_once(
    crawl: Crawl, cancel_at: float, leave_after: int, schedule: object
) -> None:
    """LEAK: no task and no slot is left, and the block ends at that instant."""
    crawl.cancel_at = cancel_at
    crawl.leave_after = leave_after
    run_virtual(crawl.run)
    check_lanes(crawl)
    assert crawl.ended_at <= cancel_at
    assert len(crawl.results) <= leave_after
