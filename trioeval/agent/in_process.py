"""Agents that are functions of this program, on the lanes of the kernel.

    async def repair(run):
        plan = await ask_a_model(run.prompt)
        child = await run.start_child(review, "review", plan)
        (verdict,) = await run.wait_children(child)  # holds no slot meanwhile
        if verdict.output == "good":
            run.done()

    ends = await run_agents([AgentCase("calc", repair, "Repair it.")], lanes=lanes)

Each attempt takes a slot of a lane, of which there are as many as the lane is wide; a run that waits holds
none.
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
from trioeval.agent.loop import LoopEnd, Turn, run_until_done
from trioeval.agent.protocols import (
    Agent,
    AgentObserver,
    Attempts,
    CaseTeller,
    Family,
    LoopTerms,
    Posts,
    RunIds,
    own_run_ids,
)
from trioeval.agent.restarts import Attempt, AttemptEnd, AttemptFailure, RestartPolicy
from trioeval.agent.slots import LaneSlots, Stretches
from trioeval.errors import TooLateError, UsageError
from trioeval.kernel import Calls, Done, Failed, Job, Lanes, Outcome, Plan, run_plan
from trioeval.kernel.events import guarded
from trioeval.nurseries import open_plain_nursery

# Children of agents that are functions: they live in the scope of their case, over its restarts.


@attrs.define(eq=False)
class Child:
    """A run that another one has started."""

    name: str
    """What it is called; several may have one name."""
    end: AttemptEnd | None = attrs.field(init=False, default=None)
    """None as long as it lives."""
    _scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _over: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def wait(self) -> AttemptEnd:
        """How it ended, when it has. A checkpoint."""
        await self._over.wait()
        assert self.end is not None  # noqa: S101 - set before
        return self.end

    async def live(self, turn: Turn, family: Family) -> None:
        """Work once; whatever becomes of it, nobody beside it fails."""
        try:
            with self._scope:
                await turn.run()
                self.end = turn.end
        except Exception as error:  # noqa: BLE001 - the lane's; its parent's own next turn meets it too
            message = f"{type(error).__name__}: {error}"
            self.end = AttemptEnd(failure=AttemptFailure("unexpected", message))
        finally:
            if self.end is None:
                self.end = AttemptEnd(failure=AttemptFailure("killed", "ended with its case"))
            self._over.set()
            family.drop(self)

    def alive(self) -> Sequence[str]:
        """Its name."""
        return (self.name,)

    def cancel(self) -> None:
        """End it. It cleans up as Trio's tasks do."""
        self._scope.cancel("the case is over")

    async def stop(self) -> None:
        """End it, and return when it has cleaned up. A checkpoint."""
        self.cancel()
        await self._over.wait()

    def leave(self) -> None:
        """Nothing is left of it."""


AgentFunction: TypeAlias = "Callable[[AgentRun], Awaitable[AttemptEnd | str | None]]"
"""An agent: works once, and returns what it says. What it raises is how its attempt failed."""


@attrs.frozen
class AgentCase:
    """A task for an agent."""

    name: str
    """Different for all cases of one run."""
    agent: AgentFunction
    prompt: str
    """What is to be done."""
    policy: RestartPolicy = attrs.field(default=RestartPolicy(), kw_only=True)
    child_timeout: float = attrs.field(default=300.0, kw_only=True)
    """Seconds that children may go on when the task is done, > 0."""
    earlier: Sequence[AttemptEnd] = attrs.field(default=(), kw_only=True)
    """How attempts of an earlier execution ended."""


class AgentRun:
    """What an agent works with: its attempt, and what it may do. Good for one attempt.

    Types obtained from `run_agents` only.
    """

    def __init__(
        self, attempt: Attempt, stretches: Stretches, flag: trio.Event, case: "_Case"
    ) -> None:
        self.attempt = attempt
        """Its number, its run id and that of the attempt before it."""
        self._stretches = stretches
        self._flag = flag
        self._case = case
        self._children: list[Child] = []

    @property
    def prompt(self) -> str:
        """What is to be done, after a word on how it came to this if it has begun before."""
        return self.attempt.prompt

    def done(self) -> None:
        """Say that the task is done: there is no other attempt. Not a checkpoint.

        A child has a task of its own, and works once whether or not it says so.
        """
        self._flag.set()

    def waiting(self) -> AbstractAsyncContextManager[None]:
        """Put around what the agent waits for, with `async with`: it holds no slot inside.

        Behind, it has a slot again, also if what it waited for was cut off by a time limit.
        """
        return self._stretches.waiting()

    async def start_child(
        self, agent: AgentFunction, name: str, prompt: str | None = None
    ) -> Child:
        """Start another agent, which works beside this one in a slot of its own. A checkpoint.

        It lives in the case, not in the attempt: when the task is done it is waited for, and when the case is
        over it is ended. It works once.

        Args:
            agent: Who works.
            name: What it is called.
            prompt: What it is told; None tells it the task.

        Raises:
            TooLateError: The case is over.
        """
        await trio.lowlevel.checkpoint()
        told = self.attempt.task_prompt if prompt is None else prompt
        child = self._case.start_child(agent, name, told)
        self._children.append(child)
        return child

    async def wait_children(self, *children: Child) -> list[AttemptEnd]:
        """Wait for children, without a slot. A checkpoint.

        Args:
            *children: Which; all that this attempt has started, if none is named.

        Returns:
            How each of them ended, in that order.
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

    Attempts begin in the order of the cases as far as there are slots. Cancelled, it ends all of them and
    their children, and tells `emit` what was done, before it gives way.

    Args:
        cases: What to do.
        lanes: The lanes, which others may use at the same time.
        lane: The name of that whose width is the number of attempts at once; it may be changed meanwhile.
        emit: Awaited with the end of one case after another, in their order.
        post: Told of what happens to cases, to put it on a bus; what it raises is counted.
        observe: Told of every attempt, in the instant.
        stop: When set, no further attempt begins and those under way run to their end.
        deadline: Instant on the Trio clock at which everything is cut off.
        run_ids: Names attempts; by the clock of this machine and a random owner if None.

    Returns:
        The ends of the cases, in their order.

    Raises:
        UsageError: Two cases have one name, or a case has no prompt, or a time is out of its range.
        PlanError: There is no such lane.
        Exception: Whatever `emit` raised; everything is ended for it.
    """
    _check(cases)
    stop = trio.Event() if stop is None else stop
    ids = own_run_ids() if run_ids is None else run_ids
    ends: list[LoopEnd] = []
    made = [_Case(case, lane, ids, stop, post, guarded(observe)) for case in cases]

    async def perform(job: Job[_Case], calls: Calls[_Case]) -> LoopEnd:
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
        max_live_jobs=max(1, len(made)),  # cases between two attempts keep nobody from beginning
    )
    return ends


def _check(cases: Sequence[AgentCase]) -> None:
    names = [case.name for case in cases]
    wrong = [
        f"two cases are called {name!r}" for name in sorted(set(names)) if names.count(name) > 1
    ]
    wrong += [f"case {case.name!r} has no prompt" for case in cases if not case.prompt.strip()]
    wrong += [
        f"case {case.name!r}: child_timeout must be more than 0 seconds, got {case.child_timeout!r}"
        for case in cases
        if not case.child_timeout > 0
    ]
    if wrong:
        raise UsageError("; ".join(wrong))


@attrs.define(eq=False)
class _Case:
    """A case at work."""

    case: AgentCase
    _lane: str
    _ids: RunIds
    _stop: trio.Event
    _post: Callable[[AgentCase, MessageType, str], Awaitable[None]] | None
    _observe: AgentObserver | None
    _attempts: Attempts = attrs.field(init=False)
    _names: Counter[str] = attrs.field(init=False, factory=Counter)
    """How many children were started of each name."""
    _ahead: LaneSlots = attrs.field(init=False)
    _terms: LoopTerms = attrs.field(init=False)

    @_attempts.default
    def _earlier(self) -> Attempts:
        return Attempts(ids=self._ids, prompt=self.case.prompt, ends=[*self.case.earlier])

    async def work(self, calls: Calls[Any]) -> LoopEnd:
        """The body of its job."""
        self._ahead = LaneSlots(calls, self._lane, ahead=True)
        stretches, flag = Stretches(LaneSlots(calls, self._lane), self._ahead), trio.Event()
        async with open_plain_nursery() as nursery:
            self._terms = LoopTerms(
                policy=self.case.policy,
                child_timeout=self.case.child_timeout,
                slots=stretches,
                marker=flag,
                children=Family(nursery),
                posts=Posts(self._tell_bus),
                attempts=self._attempts,
                stop=self._stop,
                tell=CaseTeller(
                    observe=self._observe, case=self.case.name, agent=_name(self.case.agent)
                ),
            )
            stretches.tell = lambda event: self._terms.tell(event, number=len(self._attempts.ends))
            agent = self._agent(self.case.agent, stretches, flag)
            return await run_until_done(agent, self._terms)

    def start_child(self, agent: AgentFunction, name: str, prompt: str) -> Child:
        """Let another agent live in the case.

        Raises:
            TooLateError: The case is over.
        """
        family = self._terms.children
        if family.has_ended:
            raise TooLateError(f"{name!r} was to be started when its case was over")
        stretches, flag = Stretches(self._ahead, self._ahead), trio.Event()
        self._names[name] += 1
        twin = f"#{self._names[name]}" if self._names[name] > 1 else ""
        terms = attrs.evolve(
            self._terms,
            slots=stretches,
            marker=flag,
            posts=Posts(self._tell_bus),
            attempts=Attempts(ids=self._ids, prompt=prompt),
            stop=trio.Event(),  # its parent runs to its end, and may need it for that
            tell=attrs.evolve(self._terms.tell, case=f"{self.case.name}/{name}{twin}", agent=name),
        )
        stretches.tell = functools.partial(terms.tell, number=0)
        child = Child(name)
        family.relatives.append(child)
        turn = Turn(self._agent(agent, stretches, flag), terms)
        family.nursery.start_soon(child.live, turn, family, name=f"child {name}")
        return child

    def end_of(self, outcome: Outcome[LoopEnd]) -> LoopEnd:
        """What became of the case, whatever became of its job."""
        if isinstance(outcome, Done):
            return outcome.value
        if isinstance(
            outcome, Failed
        ):  # nothing of the agent: its lane, or what names its attempts
            message = f"{type(outcome.error).__name__}: {outcome.error}"
        else:
            message = "interrupted" if self._attempts.last_id is not None else "not begun"
        return LoopEnd(ending="interrupted", message=message, attempts=tuple(self._attempts.ends))

    def _agent(self, function: AgentFunction, stretches: Stretches, flag: trio.Event) -> Agent:
        async def agent(attempt: Attempt, /) -> AttemptEnd:
            began_at = trio.current_time()
            said = await function(AgentRun(attempt, stretches, flag, self))
            if isinstance(said, AttemptEnd):
                return said
            worked = trio.current_time() - began_at - stretches.waited
            return AttemptEnd(output="" if said is None else said, duration_s=worked)

        return agent

    async def _tell_bus(self, type_: MessageType, body: str) -> None:
        if self._post is not None:
            await self._post(self.case, type_, body)


def _name(agent: AgentFunction) -> str:
    return getattr(agent, "__name__", type(agent).__name__)
