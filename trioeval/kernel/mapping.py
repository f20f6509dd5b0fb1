"""A function called for items on their lanes, where items and lanes may arrive while it runs.

`run_plan` knows all its jobs before it starts, and is a closed call. A crawler finds its work, and its hosts,
on the way. So this is a run over a plan that grows: `add` gives an item the next index, makes its lane if
there is none, and queues it there. Everything else is the run of a plan, with the same laws.

**Results** are taken by the loop of the caller, inside of the block whose nursery owns the workers: nothing
is suspended inside of a nursery. A job's outcome is recorded synchronously, so a deadline loses none.

**The end.** The loop ends when the items are exhausted and every item has had its turn in the loop. What the
body of the loop adds, it adds before it asks for the next result; what the function adds, it adds while its
own item has no outcome. So in neither case can the end come too early.

Laws: TOTAL, ORDER, WIDTH, PACE, EAGER, ISOLATION, SLOT, LIMIT, DEADLINE, LEAK.
"""

import math
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, Generic, Self, TypeAlias, cast

import attrs
import trio

from trioeval.errors import CallError, Fault, LaneClosedError, PlanError, TooLateError, leaves
from trioeval.kernel.arguments import (
    NOTHING,
    check_async_function,
    check_deadline,
    check_error_classes,
    check_items,
    check_plain_function,
    check_timeout,
    described,
    not_awaitable,
)
from trioeval.kernel.calls import Calls, call_error
from trioeval.kernel.events import Observer, guarded
from trioeval.kernel.jobs import Job, P, Plan
from trioeval.kernel.lane_spec import LaneSpec
from trioeval.kernel.lanes import Lanes, check_lanes
from trioeval.kernel.ledger import Ledger
from trioeval.kernel.outcomes import Done, Failed, NotRun, Outcome, StopReason, TimedOut, V
from trioeval.kernel.run_state import RunState
from trioeval.kernel.workers import LaneWorkers
from trioeval.nurseries import open_plain_nursery

Items: TypeAlias = Iterable[P] | AsyncIterable[P]

_READ_AT_ONCE = 16
"""Items that are read, while there is room, between two checkpoints."""


@attrs.frozen
class MappedItem(Generic[P, V]):
    """An item with its outcome."""

    item: P
    lane: str
    """The name of its lane."""
    outcome: Outcome[V]
    """`Done`, `Failed` or `TimedOut`; at and after the deadline also `Interrupted` or `NotRun`, and on a
    closed lane `NotRun`."""

    @property
    def index(self) -> int:
        """Its position, from 0, in the order in which the items were read and added."""
        return self.outcome.index

    @property
    def error(self) -> Exception | None:
        """The exception that the function raised; None if it returned.

        For an item that was cut off or never started, it is a `trio.TooSlowError` because of the timeout or
        the deadline, or a `LaneClosedError`.
        """
        outcome = self.outcome
        if isinstance(outcome, Done):
            return None
        if isinstance(outcome, Failed):
            return outcome.error
        if isinstance(outcome, TimedOut):
            return trio.TooSlowError(f"item {outcome.index} took more than {outcome.timeout:g} s")
        if isinstance(outcome, NotRun) and outcome.cut is StopReason.LANE:
            return LaneClosedError(self.lane, outcome.reason or "")
        return trio.TooSlowError(f"item {outcome.index} was not over at the deadline")

    def unwrap(self) -> V:
        """Return what the function returned for the item.

        Raises:
            Exception: `error`, if there is one.
        """
        if not isinstance(self.outcome, Done):
            raise self.error or RuntimeError
        return self.outcome.value


class _TransientError(CallError):
    """An attempt that failed with an error that is worth a retry, its cause."""


class _Arrivals(Ledger[V]):
    """The outcomes of a run whose jobs are not all known, for a consumer that takes them one by one."""

    def __init__(self, *, ordered: bool) -> None:
        super().__init__(-1)  # never complete
        self._is_ordered = ordered

    def record(self, outcome: Outcome[V]) -> None:
        """Record the one outcome of a job. Synchronous; never waits."""
        if not self._is_ordered:
            self._next = outcome.index  # its turn has come
        super().record(outcome)

    def notify(self) -> None:
        """Wake the consumer: something may have changed for it."""
        self._news.set()

    async def wait(self) -> None:
        """Wait for the next change. A checkpoint."""
        self._news = trio.Event()
        await self._news.wait()

    def take(self) -> Outcome[V]:
        """Remove and return the next outcome."""
        self.emitted += 1
        return self._ordered.popleft()


@attrs.define(eq=False, repr=False, kw_only=True)
class _OpenRun(RunState[P, V]):
    """A run whose jobs join it while it runs."""

    fn: Callable[[P], Awaitable[V]]
    items: Items[P]
    lane_of: Callable[[P], str]
    spec: LaneSpec | Callable[[str], LaneSpec] | None
    retry_on: tuple[type[Exception], ...]
    timeout: float
    ordered: bool
    plan: Plan[P] = attrs.field(init=False)
    perform: Callable[[Job[P], Calls[P]], Awaitable[V]] = attrs.field(init=False)
    ledger: _Arrivals[V] = attrs.field(init=False)
    joined: dict[int, Job[P]] = attrs.field(factory=dict, init=False)
    """The jobs of its plan by index, from the arrival of an item until its outcome is taken."""
    reading: bool = attrs.field(default=True, init=False)
    """True if more items may follow."""
    read_error: Exception | None = attrs.field(default=None, init=False)
    """The error that ended the items."""
    closed: bool = attrs.field(default=False, init=False)
    """True if no job starts any more."""
    left: bool = attrs.field(default=False, init=False)
    """True if the block was left."""
    _arrived: int = attrs.field(default=0, init=False)
    _workers: dict[str, LaneWorkers[P, V]] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self.plan = Plan(cast("Sequence[Job[P]]", self.joined), self.lanes)
        self.perform = self._call
        super().__attrs_post_init__()
        self.ledger = _Arrivals(ordered=self.ordered)

    @property
    def over(self) -> bool:
        """False: a job may join at any time."""
        return False

    async def run(self, task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC114 - `_open` starts it
        """Run the jobs until the deadline, a failure, or the end of the block cuts them off."""
        try:
            with self.scope:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self.timeouts.keep)
                    self._nursery.start_soon(self._read)
                    task_status.started()
                    try:
                        await trio.sleep_forever()
                    finally:  # while the jobs that are cut off end, no more join
                        self.closed = True
        finally:
            self._settle_rest()

    def add(self, item: P) -> int:
        """Let an item join the run; return its index."""
        name = self.lane_of(item)
        if type(name) is not str or not name:
            what = f"{described(name)} for {described(item)}"
            raise PlanError(f"lane must return the name of a lane, got {what}")
        if name not in self._workers and not self.closed:
            self._serve(name)
        index = self._arrived
        self._arrived += 1
        self.joined[index] = Job(index, name, item, self.timeout)
        if self.closed:
            self.settle(NotRun(index, self.cut(trio.current_time(), started=False)))
        else:
            self.backlog.add(index, name)
            self._workers[name].notify()
        return index

    def take(self) -> MappedItem[P, V]:
        """Remove and return the next result, and let others start."""
        outcome = self.ledger.take()
        job = self.joined.pop(outcome.index)
        self.on_emitted()
        self._room.unpark_all()
        return MappedItem(job.payload, job.lane or "", outcome)

    def notify(self) -> None:
        """Notify the lanes with queued jobs, of possibly many, that one may start."""
        for name, workers in self._workers.items():
            if self.backlog.first(name) is not None:
                workers.notify()

    async def _call(self, job: Job[P], calls: Calls[P]) -> V:
        """Call the function on the item's lane, until it succeeds or the lane gives up: a job's body.

        Raises:
            Exception: The last that the function raised.
        """
        try:
            return await calls(job.lane, self._send, job.payload)
        except _TransientError as failure:
            error = failure.__cause__ or failure
        raise error  # not above, where it would get another context

    async def _send(self, item: P) -> V:
        calling: Any = NOTHING
        try:
            calling = self.fn(item)
            result: V = await calling
        except Exception as error:
            wrong = not_awaitable("fn", self.fn, calling)
            if wrong is not None:
                self.fail(wrong)
                raise wrong from None
            if call_error(error) is None and all(
                isinstance(leaf, self.retry_on) for leaf in leaves(error)
            ):
                raise _TransientError(
                    Fault.TRANSIENT, f"{type(error).__name__}: {error}"
                ) from error
            raise
        return result

    def _serve(self, name: str) -> None:
        """Start the workers of a lane, which is made if there is none."""
        lane = self.lanes.by_name.get(name)
        if lane is None:
            lane = self.lanes.add(self._spec_of(name))
        workers = self._workers[name] = LaneWorkers(self, lane)
        self._nursery.start_soon(workers.serve, name=workers.title)

    def _spec_of(self, name: str) -> LaneSpec:
        """Return the configuration of a new lane."""
        if self.spec is None:
            known = f"lane {name!r} is not one of {sorted(self.lanes)}"
            raise PlanError(f"{known}; pass spec to make lanes on first use")
        made: object = self.spec if isinstance(self.spec, LaneSpec) else self.spec(name)
        if not isinstance(made, LaneSpec):
            raise PlanError(f"spec must return a LaneSpec, got {described(made)} for lane {name!r}")
        return attrs.evolve(made, name=name)

    async def _read(self) -> None:
        """Add the items, as long as there is room for them."""
        items = self.items
        try:
            if isinstance(items, AsyncGenerator):
                async with aclosing(items):
                    await self._read_async(items)
            elif isinstance(items, AsyncIterable):
                await self._read_async(items)
            else:
                for item in items:
                    self.add(item)
                    await self._wait_room()
        except Exception as error:  # noqa: BLE001 - raised in the loop, after the results of earlier items
            self.read_error = error
        finally:
            self.reading = False
            self.ledger.notify()

    async def _read_async(self, items: AsyncIterable[P]) -> None:
        async for item in items:
            self.add(item)
            await self._wait_room()

    async def _wait_room(self) -> None:
        """Wait until one more item may be read. A checkpoint now and then."""
        if self._arrived % _READ_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        while len(self.joined) >= self.most_waiting:
            await self._room.park()

    def _settle_rest(self) -> None:
        """Settle the jobs that are not started, and wake the consumer."""
        left: list[int] = []
        for name in self._workers:
            while (job := self.backlog.pop(name)) is not None:
                left.append(job.index)
        cut = self.cut(trio.current_time(), started=False)
        for index in sorted(left):
            self.settle(NotRun(index, cut))
        self.ledger.notify()


class MappedItems(Generic[P, V]):
    """The results of `map_on_lanes`, to iterate over; obtained from it only.

    One task at a time iterates; any may add items.
    """

    def __init__(self, run: _OpenRun[P, V]) -> None:
        self._run = run
        self._is_iterating = False

    @property
    def lanes(self) -> Lanes:
        """The lanes, including those made so far."""
        return self._run.lanes

    def __repr__(self) -> str:
        ready, inside = self._run.ledger.waiting, len(self._run.joined)
        return f"<MappedItems: {inside - ready} queued or running, {ready} ready>"

    def add(self, item: P) -> int:
        """Add an item; the loop will yield its result. Not a checkpoint.

        After the deadline the item is not started, and yielded all the same.

        Returns:
            Its index.

        Raises:
            PlanError: It is on a lane that does not exist and cannot be made.
            TooLateError: The block was left.
            Exception: Any that `lane` or `spec` raised.
        """
        self._check_open()
        return self._run.add(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MappedItem[P, V]:
        """Return the next result. A checkpoint.

        Raises:
            PlanError: `fn` is not an async function.
            TooLateError: The block was left.
            trio.BusyResourceError: Another task is iterating.
            Exception: Any with which `items` ended, after the results of all items.
        """
        run = self._run
        self._check_open()
        if self._is_iterating:
            raise trio.BusyResourceError("another task is iterating over these results")
        self._is_iterating = True
        try:
            await trio.lowlevel.checkpoint()
            while run.failure is None and not run.ledger.waiting:
                if not run.reading and not run.joined:
                    error, run.read_error = run.read_error or StopAsyncIteration(), None
                    raise error
                await run.ledger.wait()
        finally:
            self._is_iterating = False
        if run.failure is not None:
            raise run.failure
        return run.take()

    def _check_open(self) -> None:
        if self._run.left:
            raise TooLateError("the block of map_on_lanes was left")


def map_on_lanes(
    fn: Callable[[P], Awaitable[V]],
    items: Items[P] | None = None,
    *,
    lane: str | Callable[[P], str] | None = None,
    spec: LaneSpec | Callable[[str], LaneSpec] | None = None,
    lanes: Lanes | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (OSError, trio.BrokenResourceError),
    timeout: float = math.inf,
    deadline: float = math.inf,
    ordered: bool = False,
    buffer: int = 1000,
    observe: Observer | None = None,
) -> AbstractAsyncContextManager[MappedItems[P, V]]:
    """Open a block in which `fn(item)` is called for every item, in a slot of the item's lane.

    The block's value is iterated for the results, one `MappedItem` for each item, and takes more items with
    `add`. The loop ends when every item has had its turn. Leaving the block, also by `break` or an exception,
    cancels what still runs; no task is left after it. Exceptions of the block are not wrapped in a group.

    An exception of `fn` is its item's outcome, `Failed`, and does not end the block: `unwrap` raises it.

    Args:
        fn: An async function of one item, which holds a slot while it runs. It may raise a `CallError` to
            describe a failure to the lane, such as a refusal with its `retry_after`.
        items: An iterable or async iterable, read while there is room; see `buffer`. None is an empty one. An
            exception that it raises is raised in the loop, after the results of the items before it.
        lane: The name of the lane of all items, or a function that returns the name of an item's lane. None
            takes the name of `spec`, or the only lane of `lanes`.
        spec: The configuration, apart from its name, of lanes that do not exist: they are made when their
            first item arrives. Or a function that returns the configuration for a name. None makes none.
        lanes: The lanes, which other runs may use at the same time; None starts without any.
        retry_on: Exceptions after which the lane calls `fn` again, as often and as late as its configuration
            allows; also in a group of nothing else. The last one is the outcome.
        timeout: Seconds of working time for each item, > 0, over all its attempts; waits do not count.
        deadline: Instant on the Trio clock at which everything that runs is cut off, and from which nothing
            starts. The loop still yields every item.
        ordered: Whether results come in the order of their indices; otherwise as soon as they exist.
        buffer: Bound, ≥ 1, of the results that wait for the loop: no item starts while so many wait. No item
            is read from `items` while so many are queued, running or waiting. Added items are queued without
            a bound.
        observe: Called with every event as it happens; see `events`.

    Raises:
        PlanError: An argument cannot be used; in the loop, `fn` is not an async function.

    Example:
        >>> async def length(word):
        ...     await trio.sleep(len(word))
        ...     return len(word)
        >>> async def main():
        ...     spec = LaneSpec("words", max_concurrency=2)
        ...     async with map_on_lanes(length, ["three", "a"], spec=spec) as results:
        ...         async for result in results:
        ...             print(result.item, result.unwrap())
        ...             if result.item == "three":
        ...                 results.add("four")
        >>> trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        a 1
        three 5
        four 4
    """
    check_async_function("fn", fn, takes="item")
    check_plain_function("observe", observe, takes="event")
    check_deadline(deadline)
    items = () if items is None else items
    check_items(items)
    check_timeout(timeout)
    if type(buffer) is not int or buffer < 1:
        raise PlanError(f"buffer must be a whole number of at least 1, got {buffer!r}")
    if lanes is None:
        lanes = Lanes([])
    check_lanes(lanes)
    if not isinstance(spec, LaneSpec):
        check_plain_function("spec", spec, takes="name")
    run: _OpenRun[P, V] = _OpenRun(
        lanes=lanes,
        deadline=deadline,
        stop=trio.Event(),
        window=buffer if ordered else math.inf,
        observe=guarded(observe),
        most_waiting=buffer,
        fn=fn,
        items=items,
        lane_of=_lane_chooser(lane, spec, lanes),
        spec=spec,
        retry_on=check_error_classes("retry_on", retry_on),
        timeout=timeout,
        ordered=ordered,
    )
    return _open(run)


@asynccontextmanager
async def _open(run: _OpenRun[P, V]) -> AsyncGenerator[MappedItems[P, V]]:
    try:
        async with open_plain_nursery() as nursery:
            await nursery.start(run.run)
            try:
                yield MappedItems(run)
            finally:
                nursery.cancel_scope.cancel("the block was left")
    finally:
        run.left = True
    if run.failure is not None:
        raise run.failure


def _lane_chooser(
    lane: str | Callable[[P], str] | None,
    spec: LaneSpec | Callable[[str], LaneSpec] | None,
    lanes: Lanes,
) -> Callable[[P], str]:
    """Return the function from an item to the name of its lane."""
    if lane is None:
        lane = spec.name if isinstance(spec, LaneSpec) else None
        if lane is None and len(lanes) == 1:
            (lane,) = lanes
        if lane is None:
            right = "lane must be the name of a lane, or a function from an item to a name"
            raise PlanError(f"{right}; for a single lane, pass spec=LaneSpec(...) with its name")
    if isinstance(lane, str):
        name = lane
        return lambda _item: name
    check_plain_function("lane", lane, takes="item")
    return lane
