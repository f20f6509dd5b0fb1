"""The restart loop of one case: an agent is started again and again until its task is done.

Before each attempt there is one question, whose answer depends only on the marker and on how the attempts
so far ended: done, given up, or once more, and after how long. So a run that is cut anywhere and gone on
with is the same as one that was not, and a task that says that it is done is done, however its last attempt
ended. What is to be answered is decided in `restarts`; an attempt is in `turn`.

Laws: SLOT, DRAIN, LEAK, RESUME.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs
import trio

from trioeval.agents.attempts import AttemptEnd
from trioeval.agents.events import CaseEnded, CaseEnding
from trioeval.agents.first_of import first_of
from trioeval.agents.posts import Posts
from trioeval.agents.restarts import GaveUp, Stop, decide
from trioeval.agents.terms import Agent, Children, LoopTerms, Marker, Slots
from trioeval.agents.turn import Turn
from trioeval.errors import AgentError, MarkerError

__all__ = [
    "Agent",
    "Children",
    "LoopEnd",
    "LoopEnding",
    "LoopTerms",
    "Marker",
    "Slots",
    "run_until_done",
]

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


async def run_until_done(
    agent: Agent, terms: LoopTerms, earlier: Sequence[AttemptEnd] = ()
) -> LoopEnd:
    """Work on a case until it is done, given up, or stopped. A checkpoint.

    When it returns or raises, none of its children is alive.

    Args:
        agent: Who works.
        terms: How.
        earlier: How attempts of earlier executions of the run ended. They count like those of this one,
            also for the delay before the next.

    Raises:
        Exception: What the slots raise, `begin` and `ended`; of the agent what says that the run is over.
    """
    return await _Case(agent, terms, list(earlier), Posts(terms.post)).run()


@attrs.define(eq=False)
class _Case:
    _agent: Agent
    _terms: LoopTerms
    _ends: list[AttemptEnd]
    _posts: Posts

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
        await self._posts("ERROR", str(failure))
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
                await self._posts("INFO", message)
                return self._over("interrupted", message, ended)
            await self._attempt()
        return await self._finish()

    async def _give_up(self, why: GaveUp, message: str) -> LoopEnd:
        ended = await self._end_children()
        await self._posts("ERROR", message)
        return self._over("failed", message, ended, why)

    async def _rest(self, delay: float) -> None:
        """Wait before an attempt; not longer than until nobody wants it any more."""
        if delay > 0 and not self._terms.stop.is_set():
            with self._terms.idle():
                await first_of(self._terms.marker.wait, self._terms.stop.wait, seconds=delay)

    async def _attempt(self) -> None:
        number = len(self._ends)
        await self._posts("INFO", f"starting attempt {number}")
        # Who is cancelled already takes nothing, also where a slot is free.
        await trio.lowlevel.checkpoint_if_cancelled()
        turn = Turn(self._agent, self._terms, self._posts, number)
        try:
            await turn.run()
        finally:
            if turn.end is not None:
                self._keep(turn.end)

    def _keep(self, end: AttemptEnd) -> None:
        """Remember how an attempt ended; of those before it not what they said, which may be large."""
        if self._ends:
            self._ends[-1] = attrs.evolve(self._ends[-1], output="")
        self._ends.append(end)

    async def _finish(self) -> LoopEnd:
        """The task is done: its children have their last seconds."""
        terms, ended = self._terms, 0
        if alive := terms.children.alive():
            await self._posts("INFO", f"done, but for {_counted(alive)}: {', '.join(alive)}")
            with terms.idle(), trio.move_on_after(terms.child_timeout):
                await terms.children.wait()
            ended = await self._end_children()
        message = f"done {self._after}"
        await self._posts("INFO", message)
        return self._over("done", message, ended)

    async def _end_children(self) -> int:
        """End those that live; returns how many that were."""
        alive = self._terms.children.alive()
        if alive:
            await self._terms.children.end()
            await self._posts("WARNING", f"ended {_counted(alive)}: {', '.join(alive)}")
        return len(alive)

    @property
    def _after(self) -> str:
        number = len(self._ends)
        if not number:
            return "before the first attempt"
        return "after 1 attempt" if number == 1 else f"after {number} attempts"

    def _over(
        self, ending: LoopEnding, message: str, children_ended: int, why: GaveUp | None = None
    ) -> LoopEnd:
        return LoopEnd(
            ending=ending,
            gave_up=why,
            message=message,
            attempts=tuple(self._ends),
            children_ended=children_ended + sum(end.children_ended for end in self._ends),
            untold=self._posts.failed,
        )


def _counted(children: Sequence[str]) -> str:
    return "1 child" if len(children) == 1 else f"{len(children)} children"
