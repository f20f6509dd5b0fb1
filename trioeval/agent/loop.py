"""The restart loop of one case: an agent is started again and again until its task is done.

Before each attempt there is one question, whose answer depends only on the marker and on how the attempts
so far ended: done, given up, or once more, and after how long. So a run that is cut anywhere and gone on
with is the same as one that was not, and a task that says that it is done is done, however its last attempt
ended. What is to be answered is decided in `restarts`; an attempt is in `turn`.

Laws: SLOT, DRAIN, LEAK, RESUME.
"""

import math
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, TypeAlias

import attrs
import trio

from trioeval.agent.bus.messages import MessageType
from trioeval.agent.protocols import (
    Agent,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    CaseEnded,
    CaseEnding,
    LoopTerms,
)
from trioeval.agent.restarts import (
    Attempt,
    AttemptEnd,
    AttemptFailure,
    GaveUp,
    Stop,
    counted,
    decide,
)
from trioeval.errors import (
    AgentError,
    BudgetError,
    LaneClosedError,
    LimitError,
    MarkerError,
    TooLateError,
    leaves,
)
from trioeval.nurseries import open_plain_nursery

# Waits for the first of several things.


async def first_of(*waits: Callable[[], Awaitable[None]], seconds: float = math.inf) -> None:
    """Return when one of some waits is over, or so many seconds are; the others are cancelled. A checkpoint.

    Raises:
        Exception: What one of them raised, by itself.
    """
    failures: list[Exception] = []

    async def one(wait: Callable[[], Awaitable[None]]) -> None:
        try:
            await wait()
        except Exception as error:  # noqa: BLE001 - raised below: no group around it
            failures.append(error)
        nursery.cancel_scope.cancel("one of the waits is over")

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for wait in waits:
                nursery.start_soon(one, wait)
    if failures:
        raise failures[0]


# One attempt, from the line for its slot to its end.
#
# What waits holds no slot, and what holds one begins at once: whether the attempt is still wanted is asked
# when it has its slot, because a case may be done, or its run be stopped, while it stands in line.
#
# Laws: SLOT, DRAIN.


_AT_ONCE = 0.01
"""Seconds after which an attempt that has no slot is one that waits."""
_TOLD_WITHIN = 1.0
"""Seconds that the message may take of which the end of an attempt comes behind."""
RUN_IS_OVER = (BudgetError, LaneClosedError, LimitError, TooLateError)
"""What an agent whose calls go through lanes raises when the run cannot go on: no failure of its attempt."""
_TRACE = 4000
"""Characters of the traceback that are kept of an agent that raised."""


@attrs.define(eq=False)
class Turn:
    """The turn of one attempt; good for one `run`."""

    _agent: Agent
    _terms: LoopTerms
    attempt: Attempt | None = attrs.field(init=False, default=None)
    """None as long as it has not begun."""
    end: AttemptEnd | None = attrs.field(init=False, default=None)
    """None as long as it is not over."""
    _told: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when the bus has been told of its start, or will not be."""
    _line: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """What it waits for its slot in."""

    async def run(self) -> None:
        """Wait for a slot, work in it, and tell of it; or not at all, if that is not wanted any more.

        A checkpoint.

        Raises:
            Exception: What the slots raise, and what writes down beginnings and ends.
        """
        is_cut_off = True
        try:
            async with open_plain_nursery() as nursery:
                nursery.start_soon(self._watch)
                try:
                    with self._line:
                        await self._terms.slots(partial(self._work, nursery))
                    if self.attempt is not None:
                        await self._told.wait()
                finally:
                    nursery.cancel_scope.cancel("the attempt is over")
            is_cut_off = False
        finally:
            if is_cut_off and self.attempt is not None and self._told.is_set():
                # Bounded: who reads the bus is not to wait for a resume that may never come.
                with trio.move_on_after(_TOLD_WITHIN, shield=True):
                    await self._tell_cut(self.attempt)
        if self.attempt is not None and self.end is not None:
            await self._tell_end(self.attempt, self.end.failure)

    async def _tell_cut(self, attempt: Attempt) -> None:
        """What the bus is told of an attempt with which its case is cut off."""
        if self.end is None:
            said = f"attempt {attempt.number} was cut off: run {attempt.run_id}"
            await self._terms.posts("RUN_CRASH", said)
        else:
            await self._tell_end(attempt, self.end.failure)

    async def _tell_end(self, attempt: Attempt, failure: AttemptFailure | None) -> None:
        """What the bus is told, when the slot has been given back."""
        await self._terms.posts(*end_message(attempt.number, attempt.run_id, failure))
        if failure is not None:
            await self._terms.posts("WARNING", f"attempt {attempt.number} failed: {failure}")

    async def _watch(self) -> None:
        """Tell that it waits, if it does; and end its wait at a stop."""
        stop = self._terms.stop
        with trio.move_on_after(_AT_ONCE):
            await stop.wait()
        if self.attempt is None and not stop.is_set():
            self._terms.tell(AttemptWaiting, number=len(self._terms.attempts.ends))
        await stop.wait()
        if self.attempt is None:
            self._line.cancel("no further attempt is to begin")

    async def _tell_start(self, attempt: Attempt) -> None:
        """What the bus is told while the agent begins: others may have locked it, and a disk is slow."""
        said = f"attempt {attempt.number} has begun: run {attempt.run_id}"
        await self._terms.posts.within(_TOLD_WITHIN, "RUN_START", said)
        self._told.set()

    async def _work(self, nursery: trio.Nursery) -> AttemptEnd | None:
        """Everything that is done in the slot; how the attempt ended, for whoever settles what it used."""
        terms = self._terms
        if terms.stop.is_set() or terms.marker.is_set():
            return None
        attempt = self.attempt = terms.attempts.begin()
        run = {"number": attempt.number, "run_id": attempt.run_id}
        terms.tell(AttemptStarted, **run)
        started_at = trio.current_time()
        try:
            nursery.start_soon(self._tell_start, attempt)
            end = await self._ask(attempt, started_at)
            terms.attempts.ended(attempt, end)
            self.end = end
            return end
        finally:
            failure = None if self.end is None else self.end.failure
            terms.tell(
                AttemptEnded,
                **run,
                failed=failure is not None,
                cancelled=self.end is None,
                reason="" if failure is None else str(failure),
            )

    async def _ask(self, attempt: Attempt, started_at: float) -> AttemptEnd:
        try:
            return await self._agent(attempt)
        except Exception as error:  # noqa: BLE001 - whatever an agent raises is how its attempt ended
            over = next((one for one in leaves(error) if isinstance(one, RUN_IS_OVER)), None)
            if over is None:
                return AttemptEnd(
                    failure=AttemptFailure("unexpected", _said(error)),
                    duration_s=trio.current_time() - started_at,
                    metadata={"trace": "".join(traceback.format_exception(error))[-_TRACE:]},
                )
        raise over  # no group around it


def end_message(
    number: int, run_id: str, failure: AttemptFailure | None
) -> tuple[MessageType, str]:
    """What a bus is told of the end of an attempt: type and body."""
    if failure is None:
        return "RUN_STOP", f"attempt {number} has ended: run {run_id}"
    return "RUN_CRASH", f"attempt {number} has failed: run {run_id}"


def _said(error: Exception) -> str:
    """What was raised; out of a nursery each that was."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))


LoopEnding: TypeAlias = Literal["done", "failed", "interrupted"]


@attrs.frozen(kw_only=True)
class LoopEnd:
    """What became of a case."""

    ending: LoopEnding
    gave_up: GaveUp | None = None
    """Why, of one that failed."""
    message: str
    """In a sentence: `done after 3 attempts`."""
    attempts: tuple[AttemptEnd, ...]
    """Those of earlier executions among them; all but the last without their output."""
    children_ended: int = 0
    """Children that had to be ended."""
    untold: int = 0
    """Messages that the bus did not take."""


async def run_until_done(agent: Agent, terms: LoopTerms) -> LoopEnd:
    """Work on a case until it is done, given up, or stopped. A checkpoint.

    When it returns or raises, none of its children is alive.

    Raises:
        Exception: What the slots raise, and the record of attempts; of the agent what says that the run is
            over.
    """
    return await _Case(agent, terms).run()


@attrs.define(eq=False)
class _Case:
    _agent: Agent
    _terms: LoopTerms

    async def run(self) -> LoopEnd:
        ending: CaseEnding = "interrupted"
        try:
            await trio.lowlevel.checkpoint()
            end = await self._work_told()
            ending = end.ending
        except AgentError:
            ending = "failed"
            raise
        finally:
            # Nothing outlives its case, whatever ends that. Bounded by what ends them.
            # Test: test_no_child_is_alive_when_the_loop_is_over.
            with trio.CancelScope(shield=True):
                await self._terms.children.end()
            self._terms.tell(CaseEnded, ending=ending)
        return end

    async def _work_told(self) -> LoopEnd:
        failure: AgentError
        try:
            return await self._work()
        except MarkerError as error:
            return await self._give_up("marker", f"gave up {self._after}: {error}")
        except AgentError as error:
            failure = error
        await self._terms.posts("ERROR", str(failure))
        raise failure

    async def _work(self) -> LoopEnd:
        terms = self._terms
        while not terms.marker.is_set():
            verdict = decide(terms.policy, self._ends)
            if isinstance(verdict, Stop):
                return await self._give_up(verdict.why, verdict.message)
            await self._rest(verdict.delay)
            if terms.marker.is_set():
                break
            if terms.stop.is_set():
                ended = await self._end_children()
                message = f"interrupted {self._after}"
                await self._terms.posts("INFO", message)
                return self._over("interrupted", message, ended)
            await self._attempt()
        return await self._finish()

    async def _give_up(self, why: GaveUp, message: str) -> LoopEnd:
        ended = await self._end_children()
        await self._terms.posts("ERROR", message)
        return self._over("failed", message, ended, why)

    async def _rest(self, delay: float) -> None:
        """Wait before an attempt; not longer than until nobody wants it any more."""
        if delay > 0 and not self._terms.stop.is_set():
            with self._terms.idle():
                await first_of(self._terms.marker.wait, self._terms.stop.wait, seconds=delay)

    async def _attempt(self) -> None:
        await self._terms.posts("INFO", f"starting attempt {len(self._ends)}")
        # Who is cancelled already takes nothing, also where a slot is free.
        await trio.lowlevel.checkpoint_if_cancelled()
        await Turn(self._agent, self._terms).run()

    async def _finish(self) -> LoopEnd:
        """The task is done: its children have their last seconds."""
        terms, ended = self._terms, 0
        if alive := terms.children.alive():
            await self._terms.posts("INFO", f"done, but for {_counted(alive)}: {', '.join(alive)}")
            with terms.idle(), trio.move_on_after(terms.child_timeout):
                await terms.children.wait()
            ended = await self._end_children()
        message = f"done {self._after}"
        await self._terms.posts("INFO", message)
        return self._over("done", message, ended)

    async def _end_children(self) -> int:
        """End those that live; returns how many that were."""
        alive = self._terms.children.alive()
        if alive:
            await self._terms.children.end()
            await self._terms.posts("WARNING", f"ended {_counted(alive)}: {', '.join(alive)}")
        return len(alive)

    @property
    def _ends(self) -> Sequence[AttemptEnd]:
        return self._terms.attempts.ends

    @property
    def _after(self) -> str:
        number = len(self._ends)
        return f"after {counted(number)}" if number else "before the first attempt"

    def _over(
        self, ending: LoopEnding, message: str, children_ended: int, why: GaveUp | None = None
    ) -> LoopEnd:
        return LoopEnd(
            ending=ending,
            gave_up=why,
            message=message,
            attempts=tuple(self._ends),
            children_ended=children_ended + sum(end.children_ended for end in self._ends),
            untold=self._terms.posts.failed,
        )


def _counted(children: Sequence[str]) -> str:
    return "1 child" if len(children) == 1 else f"{len(children)} children"
