# Apart from `agent.task`: together they exceed 600 lines.
"""Where the cases of a task wait for those that they depend on. They hold no slot meanwhile.

All cases of a plan begin at once, and wait here until they may go on. Each column of the plan, which is a
prompt with a provider and a repetition, has its own cases: nothing waits for a case of another column.

What a case waits for changes when another one is over, so it sleeps until it is told. When every case of a
column that is not over sleeps, nothing can change any more: those that are stuck are given up, each with its
chain, and what they held up goes on as its policy says.

A case that was cut off is not over for good: a resume goes on with it. So what depends on it is left too,
whatever its policy, unless something else that it depends on has failed.
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
from trioeval.kernel import Cut
from trioeval.suite.dependencies import Blocked, Dependent, Lacking, Tracker

# Lets cases go on in the order in which they came, whatever each of them has to do before.


R = TypeVar("R")


@attrs.define(eq=False)
class Place:
    """The place of one case. Made by `Procession.join`."""

    _line: "OrderedDict[Place, None]" = attrs.field(repr=False)
    """Those that have not left, in the order in which they came."""
    _left: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def come_first(self) -> None:
        """Return when all that came before have left. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while (first := next(iter(self._line))) is not self:
            await first._left.wait()  # noqa: SLF001 - of another one of these

    def leave(self) -> None:
        """Let the next one go on. Said twice, the first time counts."""
        self._line.pop(self, None)
        self._left.set()


@attrs.define(eq=False)
class Procession:
    """Cases that get ready at the same time, and go on one after another."""

    _line: OrderedDict[Place, None] = attrs.field(init=False, factory=OrderedDict)

    @contextmanager
    def join(self) -> Generator[Place]:
        """Take the last place, until it is left or the block is over."""
        place = Place(self._line)
        self._line[place] = None
        try:
            yield place
        finally:
            place.leave()


@attrs.frozen
class InOrder:
    """Slots; whoever asks for one makes way for the next case."""

    slots: Slots
    place: Place

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something in a slot, when it is its turn."""
        self.place.leave()
        return await self.slots(run)


_TOLD = 5  # names of cases


@attrs.define(eq=False)
class Gate:
    """What lets the cases of one column begin; good for one plan. Made by `gates_of`."""

    cases: Sequence[Dependent]
    """All that will come. Those that an earlier execution of the run has left are among them; `over` is said
    of them first."""
    warn: Callable[[str], None]
    """Told in a line of what people should know."""
    stop: trio.Event
    """Set when nothing is to begin any more, which ends all waits."""
    label: str = ""
    """What tells the column from others: ` of model-1`."""
    tracker: Tracker = attrs.field(init=False)
    """Knows nothing of those that were cut off."""
    needs: Mapping[str, tuple[str, ...]] = attrs.field(init=False)
    """What each depends on."""
    left: set[str] = attrs.field(init=False)
    """Those that are not over."""
    kept: set[str] = attrs.field(init=False, factory=set)
    """Those that are done since an earlier execution, and stand whatever becomes of what they depend on;
    without those that were told of."""
    asleep: dict[str, "_Wait"] = attrs.field(init=False, factory=dict)
    """Those about which nothing is decided: what they wait for is not over, or never will be."""
    cuts: dict[str, Cut] = attrs.field(init=False, factory=dict)
    """Why, of those that were cut off."""

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
        """Return when a case may begin, or need not because its task is done. A checkpoint.

        When it raises, whatever that is, the case is over and not done.

        Args:
            name: Of the case; it waits once.
            done: Says that the task of the case is done, which ends the wait.
            post: Tells its bus; never raises but when cancelled.
            timeout: Seconds that it may wait; None does not bound it.
            waiting: Told synchronously of the cases that it waits for whenever those change, and of none
                when it has waited and begins. Must not raise.

        Raises:
            BlockedError: What it depends on will never be done, and its policy is `skip`; or that is `block`
                and nothing can change any more.
            AgentError: Its policy is `fail`; it has waited too long; or what is in the place of its marker
                is none.
            StoppedError: Nothing is to begin any more; or something that it depends on was cut off.
        """
        begins, cut = False, None
        try:
            await trio.lowlevel.checkpoint()
            await _pass(_Wait(name, self, done, post, waiting), timeout)
            begins = True
        except StoppedError as error:
            cut = error.cut
            raise
        finally:
            if not begins:
                self.over(name, done=False, cut=cut)

    def over(self, name: str, *, done: bool, cut: Cut | None = None) -> None:
        """A case is over, however it ended. Said twice of one, the first time counts.

        Args:
            name: Of the case.
            done: Whether its agent has done its task.
            cut: Why it was cut off, so that a resume goes on with it; None of one that has failed.
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
        """A case is not done any more, or not yet: tell of those that are kept and rest on it."""
        if not self.kept:
            return
        found, before = {name}, 0
        while before < len(found):
            before = len(found)
            found |= {one.name for one in self.cases if not found.isdisjoint(one.depends_on)}
        resting = [one.name for one in self.cases if one.name in found & self.kept]
        self.kept.difference_update(resting)
        if resting:
            rest = len(resting) - _TOLD
            more = f" and {rest} more" if rest > 0 else ""
            self.warn(
                f"case {name} is not done any more, and these, which rest on it, stand as they were: "
                f"{', '.join(resting[:_TOLD])}{more}; --retry with their indices runs them again"
            )

    def cut_of(self, name: str) -> Cut | None:
        """Why the first was cut off that a case depends on and that was."""
        return next((self.cuts[other] for other in self.needs[name] if other in self.cuts), None)

    def wake(self, name: str) -> None:
        """Something has happened that concerns a case."""
        wait = self.asleep.get(name)
        if wait is None:
            return
        if wait.is_ended or not self.blockers(name):
            del self.asleep[name]
        wait.changed.set()

    def blockers(self, name: str) -> tuple[str, ...]:
        """What a case that sleeps waits for; nothing of any other."""
        state = self.tracker.state(name)
        return state.by if name in self.asleep and isinstance(state, Blocked) else ()

    def give_up(self) -> None:
        """Give up what is stuck, if nothing else goes on."""
        if not self.left or len(self.asleep) < len(self.left) or self.stop.is_set():
            return
        for name, chain in self.tracker.stuck(()).items():
            wait = self.asleep.pop(name, None)
            if wait is None:
                continue  # it was cut off: a resume goes on with it
            wait.chain = chain
            wait.changed.set()
            self.warn(f"case {name}{self.label} is blocked for good: {self.tracker.why(chain)}")


@attrs.define(eq=False)
class _Wait:
    """A case that waits."""

    name: str
    gate: Gate
    done: Marker
    post: Callable[[MessageType, str], Awaitable[None]]
    waiting: Callable[[tuple[str, ...]], None]
    changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    is_marked: bool = attrs.field(init=False, default=False)
    """Whether its own task was done meanwhile."""
    trouble: AgentError | None = attrs.field(init=False, default=None)
    """What is wrong with its marker."""
    chain: tuple[str, ...] | None = attrs.field(init=False, default=None)
    """Why it is given up."""

    @property
    def is_ended(self) -> bool:
        """Whether something else has ended the wait than an end of what it waits for."""
        is_left = self.gate.stop.is_set() or self.gate.cut_of(self.name) is not None
        return self.is_marked or self.trouble is not None or is_left

    async def sleep(self, limit: float) -> tuple[str, ...]:
        """Sleep until it is decided what becomes of the case; what it still waits for at the limit."""
        asleep = self.gate.asleep
        asleep[self.name] = self
        try:
            with trio.move_on_after(limit):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch_marker)
                    nursery.start_soon(self._watch_stop)
                    await self._sleep_on()
                    nursery.cancel_scope.cancel("it is decided")
        finally:
            late = self.gate.blockers(self.name)
            asleep.pop(self.name, None)
        return late

    async def _sleep_on(self) -> None:
        told: tuple[str, ...] = ()
        while by := self.gate.blockers(self.name):
            if by != told:
                told = by
                self.waiting(by)
                # Others may be over before this is written: what is told next is what holds then.
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
            # What was decided before it was set stands: people may have been told of it.
            self.is_marked = self.name in self.gate.asleep
        self.gate.wake(self.name)

    async def _watch_stop(self) -> None:
        await self.gate.stop.wait()
        self.gate.wake(self.name)


def gates_of(
    columns: Mapping[str, Sequence[Dependent]],
    *,
    warn: Callable[[str], None],
    stop: trio.Event | None = None,
) -> dict[str, Gate]:
    """The gates of the columns of a task, by what each is called; nothing has begun yet.

    Raises:
        UsageError: A name is there twice in a column, or cases wait for each other.
    """
    stop = trio.Event() if stop is None else stop
    is_only = len(columns) == 1
    return {
        column: Gate(cases, warn, stop, label="" if is_only else f" of {column}")
        for column, cases in columns.items()
    }


async def _pass(wait: _Wait, limit: float | None) -> None:
    """Wait as long as that is needed, and see what has become of it."""
    tracker = wait.gate.tracker
    state = tracker.state(wait.name)
    if state is not None and wait.done.is_set():
        return
    was_blocked = isinstance(state, Blocked) and not wait.is_ended
    if was_blocked and (late := await wait.sleep(math.inf if limit is None else limit)):
        raise AgentError(f"it has waited {limit:g} s for {', '.join(late)} (dependencyTimeout)")
    if state is not None and not wait.is_marked:
        _check(wait)
    if was_blocked:
        wait.waiting(())  # of those that do not begin it is told that they are over
    if wait.is_marked:
        return
    if lost := tracker.lost(wait.name):
        await wait.post("WARNING", f"begins although these are not done: {', '.join(lost)}")
    elif was_blocked:
        await wait.post("FACT", "dependencies satisfied")


def _check(wait: _Wait) -> None:
    """See that nothing keeps a case from beginning that does not wait any more."""
    if wait.gate.stop.is_set():
        raise StoppedError
    if wait.trouble is not None:
        raise wait.trouble
    tracker = wait.gate.tracker
    if wait.chain is not None:
        raise BlockedError(wait.chain[1], f"blocked for good: {tracker.why(wait.chain)}")
    match tracker.state(wait.name):
        case Lacking(by, "skip"):
            raise BlockedError(by, f"blocked by case {by}, which is not done")
        case Lacking(by):
            raise AgentError(f"case {by}, which it depends on, is not done")
    if (cut := wait.gate.cut_of(wait.name)) is not None:
        raise StoppedError(cut)
