"""Agents that are functions of this program, on the lanes of the kernel.

    async def repair(run):
        plan = await ask_a_model(run.prompt)
        child = await run.start_child(review, "review", plan)
        (verdict,) = await run.wait_children(child)  # holds no slot meanwhile
        if verdict.output == "good":
            run.done()

    ends = await run_agents([AgentCase("calc", repair, "Repair it.")], lanes=lanes)

Each attempt takes a slot of a lane, which has as many slots as its max concurrency; a waiting run holds none.
"""

import functools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.agent.bus.messages import MessageType
from trioeval.agent.loop import AttemptTurn, LoopEnd, run_until_done
from trioeval.agent.protocols import (
    Agent,
    AgentObserver,
    Attempts,
    CaseNotifier,
    ChildFamily,
    CountingPoster,
    LoopConfig,
    RunIds,
    own_run_ids,
)
from trioeval.agent.restarts import Attempt, AttemptEnd, AttemptFailure, RestartPolicy
from trioeval.agent.slots import LaneSlots, SlotSession
from trioeval.errors import TooLateError, UsageError
from trioeval.kernel import Calls, Done, Failed, Job, Lanes, Outcome, Plan, run_plan
from trioeval.kernel.events import guarded
from trioeval.nurseries import open_plain_nursery

# Children of agents that are functions: they live as long as their case, over its restarts.


@attrs.define(eq=False, repr=False)
class Child:
    """A run that another run has started."""

    name: str
    """Its name; several may have the same."""
    end: AttemptEnd | None = attrs.field(init=False, default=None)
    """None until it has ended."""
    _scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _over: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def wait(self) -> AttemptEnd:
        """Wait until it has ended, and return its end. A checkpoint."""
        await self._over.wait()
        assert self.end is not None  # noqa: S101 - set before
        return self.end

    async def live(self, turn: AttemptTurn, family: ChildFamily) -> None:
        """Work once; a failure affects no other run."""
        try:
            with self._scope:
                await turn.run()
                self.end = turn.end
        except Exception as error:  # noqa: BLE001 - of the lane; its parent's own next attempt meets it too
            message = f"{type(error).__name__}: {error}"
            self.end = AttemptEnd(failure=AttemptFailure("unexpected", message))
        finally:
            if self.end is None:
                self.end = AttemptEnd(failure=AttemptFailure("killed", "ended with its case"))
            self._over.set()
            family.drop(self)

    def alive(self) -> Sequence[str]:
        """Return its name."""
        return (self.name,)

    def cancel(self) -> None:
        """End it. It cleans up like any Trio task."""
        self._scope.cancel("the case is over")

    async def stop(self) -> None:
        """End it, and wait until it has cleaned up. A checkpoint."""
        self.cancel()
        await self._over.wait()

    def leave(self) -> None:
        """Do nothing: it leaves nothing behind."""


AgentFunction: TypeAlias = "Callable[[AgentRun], Awaitable[AttemptEnd | str | None]]"
"""An agent: works once, and returns its output. An exception is the failure of its attempt."""


@attrs.frozen
class AgentCase:
    """A task for an agent."""

    name: str
    """Unique among the cases of a run."""
    agent: AgentFunction
    prompt: str
    """The task."""
    policy: RestartPolicy = attrs.field(default=RestartPolicy(), kw_only=True)
    child_timeout: float = attrs.field(default=300.0, kw_only=True)
    """Seconds that children may continue after the task is done, > 0."""
    earlier: Sequence[AttemptEnd] = attrs.field(default=(), kw_only=True)
    """The ends of attempts of an earlier execution."""


class AgentRun:
    """The interface of an agent: its attempt, and its possible actions. Used for one attempt.

    Obtained from `run_agents` only.
    """

    def __init__(
        self, attempt: Attempt, session: SlotSession, flag: trio.Event, case: "_RunningCase"
    ) -> None:
        self.attempt = attempt
        """Its number, its run id and that of the attempt before it."""
        self._session = session
        self._flag = flag
        self._case = case
        self._children: list[Child] = []

    @property
    def prompt(self) -> str:
        """The task, after a continuation note if it has been started before."""
        return self.attempt.prompt

    def done(self) -> None:
        """Mark the task as done, so that no further attempt starts. Not a checkpoint.

        A child has its own task, and works once whether or not it calls this.
        """
        self._flag.set()

    def waiting(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager for waits: inside of `async with`, the agent holds no slot.

        Afterwards it has a slot again, also if the wait was cut off by a timeout.
        """
        return self._session.waiting()

    async def start_child(
        self, agent: AgentFunction, name: str, prompt: str | None = None
    ) -> Child:
        """Start another agent, which works concurrently in its own slot. A checkpoint.

        It belongs to the case, not to the attempt: when the task is done it is awaited, and when the case
        ends it is ended. It works once.

        Args:
            agent: The agent.
            name: Its name.
            prompt: Its prompt; None uses the task of this agent.

        Raises:
            TooLateError: The case has ended.
        """
        await trio.lowlevel.checkpoint()
        child_prompt = self.attempt.task_prompt if prompt is None else prompt
        child = self._case.start_child(agent, name, child_prompt)
        self._children.append(child)
        return child

    async def wait_children(self, *children: Child) -> list[AttemptEnd]:
        """Wait for children, without a slot. A checkpoint.

        Args:
            *children: The children to wait for; all of this attempt without arguments.

        Returns:
            Their ends, in the same order.
        """
        async with self.waiting():
            return [await child.wait() for child in children or tuple(self._children)]


async def run_agents(
    cases: Sequence[AgentCase],
    *,
    lanes: Lanes,
    lane: str = "agent runs",
    emit: Callable[[AgentCase, LoopEnd], Awaitable[None]] | None = None,
    post: Callable[[AgentCase, MessageType, str], Awaitable[None]] | None = None,
    observe: AgentObserver | None = None,
    stop: trio.Event | None = None,
    deadline: float = math.inf,
    run_ids: RunIds | None = None,
) -> list[LoopEnd]:
    """Work on cases until each is done, given up or stopped. A checkpoint.

    Attempts start in the order of the cases as slots allow. When cancelled, it ends all of them and
    their children, and passes their results to `emit`, before it raises.

    Args:
        cases: The cases.
        lanes: The lanes, which may be shared with other work.
        lane: The name of the lane whose max concurrency limits concurrent attempts; it may change meanwhile.
        emit: Awaited with the end of one case after another, in their order.
        post: Called with events of cases, to post them on a bus; its exceptions are counted.
        observe: Called immediately with every event of an attempt.
        stop: When set, no further attempt starts and running ones continue to their end.
        deadline: Instant on the Trio clock at which everything is cut off.
        run_ids: Creates run ids; None uses the clock of this machine and a random owner.

    Returns:
        The ends of the cases, in their order.

    Raises:
        UsageError: Two cases have the same name, or a case has no prompt, or a time is out of range.
        PlanError: The lane does not exist.
        Exception: Whatever `emit` raised; everything is ended first.
    """
    _check(cases)
    stop = trio.Event() if stop is None else stop
    ids = own_run_ids() if run_ids is None else run_ids
    ends: list[LoopEnd] = []
    made = [_RunningCase(case, lane, ids, stop, post, guarded(observe)) for case in cases]

    async def perform(job: Job[_RunningCase], calls: Calls[_RunningCase]) -> LoopEnd:
        return await job.payload.work(calls)

    async def take(outcome: Outcome[LoopEnd]) -> None:
        end = made[outcome.index].end_of(outcome)
        ends.append(end)
        if emit is not None:
            await emit(cases[outcome.index], end)

    await run_plan(
        Plan.of(Job(index, lane, case) for index, case in enumerate(made)),
        perform,
        lanes=lanes,
        emit=take,
        stop=stop,
        deadline=deadline,
        max_live_jobs=max(1, len(made)),  # cases between two attempts must not block others
    )
    return ends


def _check(cases: Sequence[AgentCase]) -> None:
    names = [case.name for case in cases]
    wrong = [
        f"two cases have the name {name!r}" for name in sorted(set(names)) if names.count(name) > 1
    ]
    wrong += [f"case {case.name!r} has no prompt" for case in cases if not case.prompt.strip()]
    wrong += [
        f"case {case.name!r}: child_timeout must be more than 0 seconds, got {case.child_timeout!r}"
        for case in cases
        if not case.child_timeout > 0
    ]
    if wrong:
        raise UsageError("; ".join(wrong))


@attrs.define(eq=False, repr=False)
class _RunningCase:
    """A running case."""

    case: AgentCase
    _lane: str
    _ids: RunIds
    _stop: trio.Event
    _post: Callable[[AgentCase, MessageType, str], Awaitable[None]] | None
    _observe: AgentObserver | None
    _attempts: Attempts = attrs.field(init=False)
    _names: Counter[str] = attrs.field(init=False, factory=Counter)
    """Number of started children by name."""
    _ahead: LaneSlots = attrs.field(init=False)
    _config: LoopConfig = attrs.field(init=False)

    @_attempts.default
    def _earlier(self) -> Attempts:
        return Attempts(ids=self._ids, prompt=self.case.prompt, ends=[*self.case.earlier])

    async def work(self, calls: Calls[Any]) -> LoopEnd:
        """Run the body of its job."""
        self._ahead = LaneSlots(calls, self._lane, ahead=True)
        session, flag = SlotSession(LaneSlots(calls, self._lane), self._ahead), trio.Event()
        async with open_plain_nursery() as nursery:
            self._config = LoopConfig(
                policy=self.case.policy,
                child_timeout=self.case.child_timeout,
                slots=session,
                marker=flag,
                children=ChildFamily(nursery),
                posts=CountingPoster(self._post_on_bus),
                attempts=self._attempts,
                stop=self._stop,
                notify=CaseNotifier(
                    observe=self._observe, case=self.case.name, agent=_name(self.case.agent)
                ),
            )
            session.notify = lambda event: self._config.notify(
                event, number=len(self._attempts.ends)
            )
            agent = self._agent(self.case.agent, session, flag)
            return await run_until_done(agent, self._config)

    def start_child(self, agent: AgentFunction, name: str, prompt: str) -> Child:
        """Start another agent in the case.

        Raises:
            TooLateError: The case has ended.
        """
        family = self._config.children
        if family.has_ended:
            raise TooLateError(f"the child {name!r} cannot start: its case has ended")
        session, flag = SlotSession(self._ahead, self._ahead), trio.Event()
        self._names[name] += 1
        twin = f"#{self._names[name]}" if self._names[name] > 1 else ""
        config = attrs.evolve(
            self._config,
            slots=session,
            marker=flag,
            posts=CountingPoster(self._post_on_bus),
            attempts=Attempts(ids=self._ids, prompt=prompt),
            stop=trio.Event(),  # its parent runs to its end, and may need it
            notify=attrs.evolve(
                self._config.notify, case=f"{self.case.name}/{name}{twin}", agent=name
            ),
        )
        session.notify = functools.partial(config.notify, number=0)
        child = Child(name)
        family.relatives.append(child)
        turn = AttemptTurn(self._agent(agent, session, flag), config)
        family.nursery.start_soon(child.live, turn, family, name=f"child {name}")
        return child

    def end_of(self, outcome: Outcome[LoopEnd]) -> LoopEnd:
        """Return the end of the case for any outcome of its job."""
        if isinstance(outcome, Done):
            return outcome.value
        if isinstance(
            outcome, Failed
        ):  # not the agent's failure: that of its lane, or of the creation of run ids
            message = f"{type(outcome.error).__name__}: {outcome.error}"
        else:
            message = "interrupted" if self._attempts.last_id is not None else "not started"
        return LoopEnd(ending="interrupted", message=message, attempts=tuple(self._attempts.ends))

    def _agent(self, function: AgentFunction, session: SlotSession, flag: trio.Event) -> Agent:
        async def agent(attempt: Attempt, /) -> AttemptEnd:
            began_at = trio.current_time()
            returned = await function(AgentRun(attempt, session, flag, self))
            if isinstance(returned, AttemptEnd):
                return returned
            worked = trio.current_time() - began_at - session.waited
            return AttemptEnd(output="" if returned is None else returned, duration_s=worked)

        return agent

    async def _post_on_bus(self, type_: MessageType, body: str) -> None:
        if self._post is not None:
            await self._post(self.case, type_, body)


def _name(agent: AgentFunction) -> str:
    return getattr(agent, "__name__", type(agent).__name__)
