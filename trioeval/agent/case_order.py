# Separate from `agent.task`: together they exceed 600 lines.
"""The dependencies of the cases of a task: where cases wait without holding a slot.

All cases of a plan start at once, and wait here until their dependencies allow them to continue. Each column
of the plan (a prompt with a provider and a repetition) has its own cases: no case waits for one of another
column.

The state of a case changes when another one ends, so it sleeps until it is notified. When every unfinished
case of a column sleeps, nothing can change any more: stuck cases are given up, each with its chain of
dependencies, and the cases that waited for them proceed according to their policy.

An interrupted case has not ended for good: a resume continues it. So its dependents are left for later too,
whatever their policy, unless another of their dependencies has failed.
"""

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs
import trio

from trioeval.agent.bus.messages import MessageType
from trioeval.agent.protocols import Marker, Slots
from trioeval.errors import AgentError, BlockedError
from trioeval.evaluation.outcomes import StoppedError
from trioeval.kernel import StopReason
from trioeval.suite.dependencies import Dependent, Tracker, Unsatisfied, WaitingFor

# Lets cases continue in the order in which they arrived, whatever each of them has to do before.


R = TypeVar("R")


@attrs.define(eq=False, repr=False)
class StartPosition:
    """The position of one case. Created by `StartOrder.join`."""

    _line: "OrderedDict[StartPosition, None]"
    """Positions that are not released yet, in the order of arrival."""
    _left: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def wait_for_turn(self) -> None:
        """Wait until all earlier positions are released. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while (first := next(iter(self._line))) is not self:
            await first._left.wait()  # noqa: SLF001 - another instance of this class

    def leave(self) -> None:
        """Let the next one continue. Only the first call counts."""
        self._line.pop(self, None)
        self._left.set()


@attrs.define(eq=False, repr=False)
class StartOrder:
    """Cases that get ready at the same time, and continue one after another."""

    _line: OrderedDict[StartPosition, None] = attrs.field(init=False, factory=OrderedDict)

    @contextmanager
    def join(self) -> Generator[StartPosition]:
        """Take the last position until it is released or the block ends."""
        place = StartPosition(self._line)
        self._line[place] = None
        try:
            yield place
        finally:
            place.leave()


@attrs.frozen
class OrderedSlots:
    """Slots that release the position of a case when it requests its slot."""

    slots: Slots
    place: StartPosition

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run a function in a slot, when it is its turn."""
        self.place.leave()
        return await self.slots(run)


_SHOWN_CASES = 5  # case names in a message


@attrs.define(eq=False, repr=False)
class DependencyGate:
    """Decides when the cases of one column may start; used for one plan. Created by `dependency_gates`."""

    cases: Sequence[Dependent]
    """All cases of the column. Those that an earlier execution of the run has finished are included; `over`
    is called for them first."""
    warn: Callable[[str], None]
    """Called with one-line warnings."""
    stop: trio.Event
    """Set when no case may start any more, which ends all waits."""
    label: str = ""
    """Distinguishes the column in messages: ` of model-1`."""
    tracker: Tracker = attrs.field(init=False)
    """Excludes interrupted cases."""
    needs: Mapping[str, tuple[str, ...]] = attrs.field(init=False)
    """The dependencies of each case."""
    left: set[str] = attrs.field(init=False)
    """Unfinished cases."""
    kept: set[str] = attrs.field(init=False, factory=set)
    """Cases that were done in an earlier execution and are kept whatever happens to their dependencies;
    without those that were already reported."""
    asleep: dict[str, "_DependencyWait"] = attrs.field(init=False, factory=dict)
    """Undecided cases: their dependencies have not ended, or never will."""
    cuts: dict[str, StopReason] = attrs.field(init=False, factory=dict)
    """The reasons of interrupted cases."""

    def __attrs_post_init__(self) -> None:
        self.tracker = Tracker.of(self.cases)
        self.needs = {case.name: case.depends_on for case in self.cases}
        self.left = set(self.needs)

    async def wait(
        self,
        name: str,
        *,
        done: Marker,
        post: Callable[[MessageType, str], Awaitable[None]],
        timeout: float | None = None,  # noqa: ASYNC109 - a term of the suite, not of this call
        waiting: Callable[[tuple[str, ...]], None] = lambda _by: None,
    ) -> None:
        """Wait until a case may start, or need not because its task is done. A checkpoint.

        If it raises, for any reason, the case has ended and is not done.

        Args:
            name: The name of the case; it waits once.
            done: The marker of the case, which ends the wait.
            post: Posts to its bus; raises only when cancelled.
            timeout: Maximum wait in seconds; None means no limit.
            waiting: Called synchronously with the cases that it waits for whenever those change, and with
                none when it has waited and starts. Must not raise.

        Raises:
            BlockedError: A dependency will never be done, and its policy is `skip`; or its policy is `block`
                and nothing can change any more.
            AgentError: Its policy is `fail`; the wait timed out; or its marker is invalid.
            StoppedError: No case may start any more; or a dependency was interrupted.
        """
        begins, cut = False, None
        try:
            await trio.lowlevel.checkpoint()
            await _wait_and_check(_DependencyWait(name, self, done, post, waiting), timeout)
            begins = True
        except StoppedError as error:
            cut = error.cut
            raise
        finally:
            if not begins:
                self.over(name, done=False, cut=cut)

    def over(self, name: str, *, done: bool, cut: StopReason | None = None) -> None:
        """Handle the end of a case. Only the first call for a case counts.

        Args:
            name: The name of the case.
            done: Whether its agent has done its task.
            cut: The reason of an interrupted case, which a resume continues; None for a failed one.
        """
        if name not in self.left:
            return
        self.left.discard(name)
        self.asleep.pop(name, None)
        if cut is None or done:
            others = self.tracker.over(name, done=done)
        else:
            self.cuts[name] = cut
            others = self.tracker.needing(name)
        for other in others:
            self.wake(other)
        self.give_up()

    def lost(self, name: str) -> None:
        """Warn about kept cases that depend on a case that is not done, or not any more."""
        if not self.kept:
            return
        found, before = {name}, 0
        while before < len(found):
            before = len(found)
            found |= {one.name for one in self.cases if not found.isdisjoint(one.depends_on)}
        resting = [one.name for one in self.cases if one.name in found & self.kept]
        self.kept.difference_update(resting)
        if resting:
            rest = len(resting) - _SHOWN_CASES
            more = f" and {rest} more" if rest > 0 else ""
            self.warn(
                f"case {name} is no longer done; these cases, which depend on it, keep their results: "
                f"{', '.join(resting[:_SHOWN_CASES])}{more}; run them again with --retry and their indices"
            )

    def cut_of(self, name: str) -> StopReason | None:
        """Return the reason of the first interrupted dependency of a case."""
        return next((self.cuts[other] for other in self.needs[name] if other in self.cuts), None)

    def wake(self, name: str) -> None:
        """Notify a case of an event that may concern it."""
        wait = self.asleep.get(name)
        if wait is None:
            return
        if wait.is_ended or not self.blockers(name):
            del self.asleep[name]
        wait.changed.set()

    def blockers(self, name: str) -> tuple[str, ...]:
        """Return the cases that a sleeping case waits for; none for any other case."""
        state = self.tracker.state(name)
        return state.by if name in self.asleep and isinstance(state, WaitingFor) else ()

    def give_up(self) -> None:
        """Give up stuck cases if no other case can make progress."""
        if not self.left or len(self.asleep) < len(self.left) or self.stop.is_set():
            return
        for name, chain in self.tracker.stuck(()).items():
            wait = self.asleep.pop(name, None)
            if wait is None:
                continue  # it was interrupted: a resume continues it
            wait.chain = chain
            wait.changed.set()
            self.warn(f"case {name}{self.label} is blocked forever: {self.tracker.why(chain)}")


@attrs.define(eq=False, repr=False)
class _DependencyWait:
    """A waiting case."""

    name: str
    gate: DependencyGate
    done: Marker
    post: Callable[[MessageType, str], Awaitable[None]]
    waiting: Callable[[tuple[str, ...]], None]
    changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    is_marked: bool = attrs.field(init=False, default=False)
    """True if its own task was done meanwhile."""
    trouble: AgentError | None = attrs.field(init=False, default=None)
    """The problem of its marker."""
    chain: tuple[str, ...] | None = attrs.field(init=False, default=None)
    """The chain of dependencies because of which it is given up."""

    @property
    def is_ended(self) -> bool:
        """True if something other than its dependencies has ended the wait."""
        is_left = self.gate.stop.is_set() or self.gate.cut_of(self.name) is not None
        return self.is_marked or self.trouble is not None or is_left

    async def sleep(self, limit: float) -> tuple[str, ...]:
        """Sleep until the case is decided; return the cases that it still waits for at the timeout."""
        asleep = self.gate.asleep
        asleep[self.name] = self
        try:
            with trio.move_on_after(limit):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch_marker)
                    nursery.start_soon(self._watch_stop)
                    await self._sleep_on()
                    nursery.cancel_scope.cancel("the case is decided")
        finally:
            late = self.gate.blockers(self.name)
            asleep.pop(self.name, None)
        return late

    async def _sleep_on(self) -> None:
        reported: tuple[str, ...] = ()
        while by := self.gate.blockers(self.name):
            if by != reported:
                reported = by
                self.waiting(by)
                # Others may end before this is written: the next message states the current set.
                await self.post("PROGRESS", f"blocked by {', '.join(by)}")
                continue
            self.changed = trio.Event()
            self.gate.give_up()
            await self.changed.wait()

    async def _watch_marker(self) -> None:
        try:
            await self.done.wait()
        except AgentError as error:
            self.trouble = error
        else:
            # A decision before the marker was set is final: it may have been reported already.
            self.is_marked = self.name in self.gate.asleep
        self.gate.wake(self.name)

    async def _watch_stop(self) -> None:
        await self.gate.stop.wait()
        self.gate.wake(self.name)


def dependency_gates(
    columns: Mapping[str, Sequence[Dependent]],
    *,
    warn: Callable[[str], None],
    stop: trio.Event | None = None,
) -> dict[str, DependencyGate]:
    """Return the gate of each column of a task, before any case has started.

    Raises:
        UsageError: A column has a name twice, or its dependencies contain a cycle.
    """
    stop = trio.Event() if stop is None else stop
    is_only = len(columns) == 1
    return {
        column: DependencyGate(cases, warn, stop, label="" if is_only else f" of {column}")
        for column, cases in columns.items()
    }


async def _wait_and_check(wait: _DependencyWait, limit: float | None) -> None:
    """Wait as long as necessary, and check the result."""
    tracker = wait.gate.tracker
    state = tracker.state(wait.name)
    if state is not None and wait.done.is_set():
        return
    was_blocked = isinstance(state, WaitingFor) and not wait.is_ended
    if was_blocked and (late := await wait.sleep(math.inf if limit is None else limit)):
        raise AgentError(f"it has waited {limit:g} s for {', '.join(late)} (dependencyTimeout)")
    if state is not None and not wait.is_marked:
        _check(wait)
    if was_blocked:
        wait.waiting(())  # cases that do not start report their end instead
    if wait.is_marked:
        return
    if lost := tracker.lost(wait.name):
        await wait.post("WARNING", f"starts although these are not done: {', '.join(lost)}")
    elif was_blocked:
        await wait.post("FACT", "dependencies satisfied")


def _check(wait: _DependencyWait) -> None:
    """Check that nothing prevents a case from starting after its wait."""
    if wait.gate.stop.is_set():
        raise StoppedError
    if wait.trouble is not None:
        raise wait.trouble
    tracker = wait.gate.tracker
    if wait.chain is not None:
        raise BlockedError(wait.chain[1], f"blocked forever: {tracker.why(wait.chain)}")
    match tracker.state(wait.name):
        case Unsatisfied(by, "skip"):
            raise BlockedError(by, f"blocked by case {by}, which is not done")
        case Unsatisfied(by):
            raise AgentError(f"case {by}, which it depends on, is not done")
    if (cut := wait.gate.cut_of(wait.name)) is not None:
        raise StoppedError(cut)
