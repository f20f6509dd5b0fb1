"""The restart loop of one case: an agent is started again and again until its task is done.

Before each attempt there is one decision, which depends only on the marker and on the ends of the attempts so
far: done, given up, or another attempt, and after how long. So a run that is interrupted anywhere and resumed
equals an uninterrupted one, and a task that is marked as done is done, however its last attempt ended. The
decisions are made in `restarts`; `AttemptTurn` is an attempt.

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
    LoopConfig,
)
from trioeval.agent.restarts import (
    Attempt,
    AttemptEnd,
    AttemptFailure,
    GiveUp,
    GiveUpReason,
    attempts_text,
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

# Waits for the first of several events.


async def wait_for_first(*waits: Callable[[], Awaitable[None]], seconds: float = math.inf) -> None:
    """Wait until one of several waits ends, or the timeout; the others are cancelled. A checkpoint.

    Raises:
        Exception: The exception of one of them, without a group.
    """
    failures: list[Exception] = []

    async def one(wait: Callable[[], Awaitable[None]]) -> None:
        try:
            await wait()
        except Exception as error:  # noqa: BLE001 - raised below: no group around it
            failures.append(error)
        nursery.cancel_scope.cancel("one of the waits has ended")

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for wait in waits:
                nursery.start_soon(one, wait)
    if failures:
        raise failures[0]


# One attempt, from the wait for its slot to its end.
#
# A waiting attempt holds no slot, and one with a slot starts at once: whether it is still needed is checked
# when it has its slot, because a case may be done, or its run be stopped, while it is queued.
#
# Laws: SLOT, DRAIN.


_AT_ONCE = 0.01
"""Seconds after which an attempt without a slot is reported as waiting."""
_POST_TIMEOUT = 1.0
"""Maximum seconds for posting a message that precedes the end of an attempt."""
RUN_IS_OVER = (BudgetError, LaneClosedError, LimitError, TooLateError)
"""Exceptions of an agent with calls on lanes when the run cannot continue: not failures of its attempt."""
_TRACE = 4000
"""Maximum length of the recorded traceback of an agent."""


@attrs.define(eq=False, repr=False)
class AttemptTurn:
    """The turn of one attempt; `run` is called once."""

    _agent: Agent
    _config: LoopConfig
    attempt: Attempt | None = attrs.field(init=False, default=None)
    """None until it has started."""
    end: AttemptEnd | None = attrs.field(init=False, default=None)
    """None until it has ended."""
    _start_posted: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when its start is posted on the bus, or will not be."""
    _queue_scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """The scope of the wait for its slot."""

    async def run(self) -> None:
        """Wait for a slot, work in it, and post its end; do nothing if the attempt is no longer needed.

        A checkpoint.

        Raises:
            Exception: Whatever the slots raise, and the record of starts and ends.
        """
        is_cut_off = True
        try:
            async with open_plain_nursery() as nursery:
                nursery.start_soon(self._watch)
                try:
                    with self._queue_scope:
                        await self._config.slots(partial(self._work, nursery))
                    if self.attempt is not None:
                        await self._start_posted.wait()
                finally:
                    nursery.cancel_scope.cancel("the attempt has ended")
            is_cut_off = False
        finally:
            if is_cut_off and self.attempt is not None and self._start_posted.is_set():
                # Bounded: readers of the bus must not wait for a resume that may never come.
                with trio.move_on_after(_POST_TIMEOUT, shield=True):
                    await self._post_interruption(self.attempt)
        if self.attempt is not None and self.end is not None:
            await self._post_end(self.attempt, self.end.failure)

    async def _post_interruption(self, attempt: Attempt) -> None:
        """Post the end of an attempt that is cut off with its case."""
        if self.end is None:
            message = f"attempt {attempt.number} was cut off: run {attempt.run_id}"
            await self._config.posts("RUN_CRASH", message)
        else:
            await self._post_end(attempt, self.end.failure)

    async def _post_end(self, attempt: Attempt, failure: AttemptFailure | None) -> None:
        """Post the end of an attempt, after its slot is released."""
        await self._config.posts(*end_message(attempt.number, attempt.run_id, failure))
        if failure is not None:
            await self._config.posts("WARNING", f"attempt {attempt.number} failed: {failure}")

    async def _watch(self) -> None:
        """Report the attempt as waiting, if it waits; and end its wait at a stop."""
        stop = self._config.stop
        with trio.move_on_after(_AT_ONCE):
            await stop.wait()
        if self.attempt is None and not stop.is_set():
            self._config.notify(AttemptWaiting, number=len(self._config.attempts.ends))
        await stop.wait()
        if self.attempt is None:
            self._queue_scope.cancel("no further attempt may start")

    async def _post_start(self, attempt: Attempt) -> None:
        """Post the start, concurrently with the agent: the bus may be locked, and a disk may be slow."""
        message = f"attempt {attempt.number} started: run {attempt.run_id}"
        await self._config.posts.within(_POST_TIMEOUT, "RUN_START", message)
        self._start_posted.set()

    async def _work(self, nursery: trio.Nursery) -> AttemptEnd | None:
        """Do everything that needs the slot; return the attempt's end, from which its usage is settled."""
        config = self._config
        if config.stop.is_set() or config.marker.is_set():
            return None
        attempt = self.attempt = config.attempts.begin()
        run = {"number": attempt.number, "run_id": attempt.run_id}
        config.notify(AttemptStarted, **run)
        started_at = trio.current_time()
        try:
            nursery.start_soon(self._post_start, attempt)
            end = await self._run_agent(attempt, started_at)
            config.attempts.ended(attempt, end)
            self.end = end
            return end
        finally:
            failure = None if self.end is None else self.end.failure
            config.notify(
                AttemptEnded,
                **run,
                failed=failure is not None,
                cancelled=self.end is None,
                reason="" if failure is None else str(failure),
            )

    async def _run_agent(self, attempt: Attempt, started_at: float) -> AttemptEnd:
        try:
            return await self._agent(attempt)
        except Exception as error:  # noqa: BLE001 - any exception of an agent is the failure of its attempt
            over = next((one for one in leaves(error) if isinstance(one, RUN_IS_OVER)), None)
            if over is None:
                return AttemptEnd(
                    failure=AttemptFailure("unexpected", _error_text(error)),
                    duration_s=trio.current_time() - started_at,
                    metadata={"trace": "".join(traceback.format_exception(error))[-_TRACE:]},
                )
        raise over  # without a group


def end_message(
    number: int, run_id: str, failure: AttemptFailure | None
) -> tuple[MessageType, str]:
    """Return the type and body of the bus message for the end of an attempt."""
    if failure is None:
        return "RUN_STOP", f"attempt {number} ended: run {run_id}"
    return "RUN_CRASH", f"attempt {number} failed: run {run_id}"


def _error_text(error: Exception) -> str:
    """Return the text of an exception; of a group each of its exceptions."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))


LoopEnding: TypeAlias = Literal["done", "failed", "interrupted"]


@attrs.frozen(kw_only=True)
class LoopEnd:
    """The end of a case."""

    ending: LoopEnding
    gave_up: GiveUpReason | None = None
    """The reason, if it failed."""
    message: str
    """A short text: `done after 3 attempts`."""
    attempts: tuple[AttemptEnd, ...]
    """Including those of earlier executions; all but the last one without their output."""
    children_ended: int = 0
    """Number of children that had to be ended."""
    undelivered: int = 0
    """Number of messages that the bus did not accept."""


async def run_until_done(agent: Agent, config: LoopConfig) -> LoopEnd:
    """Work on a case until it is done, given up, or stopped. A checkpoint.

    When it returns or raises, none of its children is alive.

    Raises:
        Exception: Whatever the slots and the record of attempts raise; and those exceptions of the agent
            that end the run.
    """
    return await _CaseLoop(agent, config).run()


@attrs.define(eq=False, repr=False)
class _CaseLoop:
    _agent: Agent
    _config: LoopConfig

    async def run(self) -> LoopEnd:
        ending: CaseEnding = "interrupted"
        try:
            await trio.lowlevel.checkpoint()
            end = await self._work_reporting()
            ending = end.ending
        except AgentError:
            ending = "failed"
            raise
        finally:
            # Nothing outlives its case, however it ends. Bounded by the timeouts of ending them.
            # Test: test_no_child_is_alive_when_the_loop_is_over.
            with trio.CancelScope(shield=True):
                await self._config.children.end()
            self._config.notify(CaseEnded, ending=ending)
        return end

    async def _work_reporting(self) -> LoopEnd:
        failure: AgentError
        try:
            return await self._work()
        except MarkerError as error:
            return await self._give_up("marker", f"gave up {self._after}: {error}")
        except AgentError as error:
            failure = error
        await self._config.posts("ERROR", str(failure))
        raise failure

    async def _work(self) -> LoopEnd:
        config = self._config
        while not config.marker.is_set():
            verdict = decide(config.policy, self._ends)
            if isinstance(verdict, GiveUp):
                return await self._give_up(verdict.why, verdict.message)
            await self._rest(verdict.delay)
            if config.marker.is_set():
                break
            if config.stop.is_set():
                ended = await self._end_children()
                message = f"interrupted {self._after}"
                await self._config.posts("INFO", message)
                return self._over("interrupted", message, ended)
            await self._attempt()
        return await self._finish()

    async def _give_up(self, why: GiveUpReason, message: str) -> LoopEnd:
        ended = await self._end_children()
        await self._config.posts("ERROR", message)
        return self._over("failed", message, ended, why)

    async def _rest(self, delay: float) -> None:
        """Wait before an attempt; at most until it is no longer needed."""
        if delay > 0 and not self._config.stop.is_set():
            with self._config.idle():
                await wait_for_first(
                    self._config.marker.wait, self._config.stop.wait, seconds=delay
                )

    async def _attempt(self) -> None:
        await self._config.posts("INFO", f"starting attempt {len(self._ends)}")
        # When it is already cancelled it takes no slot, even if one is free.
        await trio.lowlevel.checkpoint_if_cancelled()
        await AttemptTurn(self._agent, self._config).run()

    async def _finish(self) -> LoopEnd:
        """Finish a case that is done: its children may continue for their timeout."""
        config, ended = self._config, 0
        if alive := config.children.alive():
            await self._config.posts("INFO", f"done, except {_counted(alive)}: {', '.join(alive)}")
            with config.idle(), trio.move_on_after(config.child_timeout):
                await config.children.wait()
            ended = await self._end_children()
        message = f"done {self._after}"
        await self._config.posts("INFO", message)
        return self._over("done", message, ended)

    async def _end_children(self) -> int:
        """End the living children; return their number."""
        alive = self._config.children.alive()
        if alive:
            await self._config.children.end()
            await self._config.posts("WARNING", f"ended {_counted(alive)}: {', '.join(alive)}")
        return len(alive)

    @property
    def _ends(self) -> Sequence[AttemptEnd]:
        return self._config.attempts.ends

    @property
    def _after(self) -> str:
        number = len(self._ends)
        return f"after {attempts_text(number)}" if number else "before the first attempt"

    def _over(
        self, ending: LoopEnding, message: str, children_ended: int, why: GiveUpReason | None = None
    ) -> LoopEnd:
        return LoopEnd(
            ending=ending,
            gave_up=why,
            message=message,
            attempts=tuple(self._ends),
            children_ended=children_ended + sum(end.children_ended for end in self._ends),
            undelivered=self._config.posts.failed,
        )


def _counted(children: Sequence[str]) -> str:
    return "1 child" if len(children) == 1 else f"{len(children)} children"
