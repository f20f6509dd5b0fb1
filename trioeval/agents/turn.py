"""One attempt, from the line for its slot to its end.

What waits holds no slot, and what holds one begins at once: whether the attempt is still wanted is asked
when it has its slot, because a case may be done, or its run be stopped, while it stands in line.

Laws: SLOT, DRAIN.
"""

import traceback
from functools import partial

import attrs
import trio

from trioeval.agents.attempts import Attempt, AttemptEnd, AttemptFailure
from trioeval.agents.events import AttemptEnded, AttemptStarted, AttemptWaiting
from trioeval.agents.posts import Posts
from trioeval.agents.terms import Agent, LoopTerms
from trioeval.errors import BudgetError, LaneClosedError, QuotaError, TooLateError, leaves

_AT_ONCE = 0.01
"""Seconds after which an attempt that has no slot is one that waits."""
_TOLD_WITHIN = 1.0
"""Seconds that the message may take of which the end of an attempt comes behind."""
RUN_IS_OVER = (BudgetError, LaneClosedError, QuotaError, TooLateError)
"""What an agent whose calls go through lanes raises when the run cannot go on: no failure of its attempt."""
_TRACE = 4000
"""Characters of the traceback that are kept of an agent that raised."""


@attrs.define(eq=False)
class Turn:
    """The turn of one attempt; good for one `run`."""

    _agent: Agent
    _terms: LoopTerms
    _posts: Posts
    _number: int
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
        failure: Exception | None = None
        is_cut_off = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                try:
                    with self._line:
                        await self._terms.slots(partial(self._work, nursery))
                    if self.attempt is not None:
                        await self._told.wait()
                except Exception as error:  # noqa: BLE001 - raised below: no group around it
                    failure = error
                nursery.cancel_scope.cancel("the attempt is over")
            is_cut_off = failure is not None
        finally:
            if is_cut_off and self.attempt is not None and self._told.is_set():
                # Bounded: who reads the bus is not to wait for a resume that may never come.
                with trio.move_on_after(_TOLD_WITHIN, shield=True):
                    await self._tell_cut(self.attempt)
        if failure is not None:
            raise failure
        if self.attempt is not None and self.end is not None:
            await self._tell_end(self.attempt, self.end.failure)

    async def _tell_cut(self, attempt: Attempt) -> None:
        """What the bus is told of an attempt with which its case is cut off."""
        if self.end is None:
            said = f"attempt {attempt.number} was cut off: run {attempt.run_id}"
            await self._posts("RUN_CRASH", said)
        else:
            await self._tell_end(attempt, self.end.failure)

    async def _tell_end(self, attempt: Attempt, failure: AttemptFailure | None) -> None:
        """What the bus is told, when the slot has been given back."""
        run = f"run {attempt.run_id}"
        if failure is None:
            await self._posts("RUN_STOP", f"attempt {attempt.number} has ended: {run}")
            return
        await self._posts("RUN_CRASH", f"attempt {attempt.number} has failed: {run}")
        said = f"{failure.kind}: {failure.message}"
        await self._posts("WARNING", f"attempt {attempt.number} failed: {said}")

    async def _watch(self) -> None:
        """Tell that it waits, if it does; and end its wait at a stop."""
        stop = self._terms.stop
        with trio.move_on_after(_AT_ONCE):
            await stop.wait()
        if self.attempt is None and not stop.is_set():
            self._terms.tell(AttemptWaiting, number=self._number)
        await stop.wait()
        if self.attempt is None:
            self._line.cancel("no further attempt is to begin")

    async def _tell_start(self, attempt: Attempt) -> None:
        """What the bus is told while the agent begins: others may have locked it, and a disk is slow."""
        said = f"attempt {attempt.number} has begun: run {attempt.run_id}"
        await self._posts.within(_TOLD_WITHIN, "RUN_START", said)
        self._told.set()

    async def _work(self, nursery: trio.Nursery) -> AttemptEnd | None:
        """Everything that is done in the slot; how the attempt ended, for whoever settles what it used."""
        terms = self._terms
        if terms.stop.is_set() or terms.marker.is_set():
            return None
        attempt = self.attempt = terms.begin(self._number)
        run = {"number": attempt.number, "run_id": attempt.run_id}
        terms.tell(AttemptStarted, **run)
        started_at = trio.current_time()
        try:
            nursery.start_soon(self._tell_start, attempt)
            end = await self._ask(attempt, started_at)
            terms.ended(attempt, end)
            self.end = end
            return end
        finally:
            failure = None if self.end is None else self.end.failure
            terms.tell(
                AttemptEnded,
                **run,
                failed=failure is not None,
                cancelled=self.end is None,
                reason="" if failure is None else f"{failure.kind}: {failure.message}",
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


def _said(error: Exception) -> str:
    """What was raised; out of a nursery each that was."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
