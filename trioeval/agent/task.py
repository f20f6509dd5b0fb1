# Apart from `run.open_task`: it belongs to this package, which the other only uses.
"""Answers the rows of a task of type `agent`: a case is worked on until it is done, and that is the reply.

A case waits for those that it depends on, then for its turn among all programs, and only then for a slot for
each of its attempts; it holds nothing while it waits. Each attempt is written down as soon as it is over: a
run that is resumed goes on with the next one, in the same folder.
"""

import functools
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
import trio

from trioeval.agent.attempts import (
    RecordedAttempts,
    answer_of,
    attempts_told,
    ended_as,
    with_cut_attempt,
)
from trioeval.agent.bus_messages import CasePosts
from trioeval.agent.case_folder import (
    CaseFiles,
    CaseNames,
    CaseRoom,
    Wanted,
    claim_folder,
    open_workspace,
    task_folder,
)
from trioeval.agent.case_order import InOrder, KeptCases, Place, Procession, gates_of
from trioeval.agent.cases import WorkspaceTemplates
from trioeval.agent.child_runs import open_child_runs
from trioeval.agent.command_agent import CommandAgent
from trioeval.agent.journal import AgentJournal
from trioeval.agent.loop import RUN_IS_OVER, LoopEnd, first_of, run_until_done
from trioeval.agent.model import AgentSettings, case_of
from trioeval.agent.model_agent import ModelAgent
from trioeval.agent.open import AgentRun, cut_off_attempt
from trioeval.agent.planner import Submission, Turn, planner_turn
from trioeval.agent.processes import end_survivors, open_family
from trioeval.agent.prompts import ensure_prompt
from trioeval.agent.protocols import (
    Agent,
    AgentEvent,
    CaseBlocked,
    CaseEnded,
    CaseEnding,
    CaseQueued,
    Family,
    FileMarker,
    LoopTerms,
    Posts,
    Slots,
    at_once,
)
from trioeval.agent.restarts import RestartPolicy
from trioeval.agent.slots import LaneSlots
from trioeval.agent.workspace_tools import WorkspaceTools
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import AgentError, BlockedError, MarkerError, StoreError, TemplateError
from trioeval.evaluation.answerer import AnswerListener, ComeTo
from trioeval.evaluation.outcomes import StoppedError, cut_by
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.prompt import Asked
from trioeval.evaluation.provider_calls import Asker
from trioeval.kernel import Calls, Cut
from trioeval.kernel.events import guarded
from trioeval.providers import Reply, Request
from trioeval.providers.programs.entries import AGENT_RUNS, CommandAgentSettings
from trioeval.suite.expand import Step

_CANCELLED = "it was cancelled while it waited in the line (trioeval agent cancel)"


class AgentWork:
    """Answers the rows of one task by its agents, each case in a folder of its own; good for one run.

    Args:
        prepared: The task.
        settings: How its agents are started.
        asker: Asks models, and knows what was written down.
        task: Its id.
        journal: Where processes are written down.
        run: What all tasks of agents share.
    """

    def __init__(
        self,
        prepared: PreparedSuite,
        settings: AgentSettings,
        asker: Asker,
        *,
        task: str | None,
        journal: AgentJournal | None,
        run: AgentRun,
    ) -> None:
        self._prepared = prepared
        self._settings = settings
        self._asker = asker
        self._task = task
        self._run = run
        self._names = CaseNames.of(prepared.steps)
        self._kept = KeptCases(self._names, run.warn)
        self._gates = gates_of(self._names.dependents, warn=run.warn, stop=run.stop)
        self._over: set[int] = set()
        """Cases of which the gate was told."""
        self._procession = Procession()
        self._moving = Lock()
        """Held while folders of cases move."""
        self._observe = guarded(run.terms.observe)
        self._workspaces = WorkspaceTemplates.of(prepared.around, prepared.templates)
        self._journal = journal
        # What is left of a word without a variable that is missing would be another word.
        self._templates = attrs.evolve(prepared.templates, strict=True)

    async def end_survivors(self) -> None:
        """End what earlier executions of the run have left running. A checkpoint."""
        left = () if self._journal is None else self._journal.left()
        await end_survivors((one.process for one in left), self._settings.grace)
        if self._journal is not None:
            for one in left:
                self._journal.gone(one.run_id)

    def keep(self, index: int, record: Mapping[str, Any]) -> None:
        """Know how a case ended that is not worked on again."""
        reply = record.get("response")
        told = reply.get("metadata") if isinstance(reply, Mapping) else None
        agent = told.get("agent") if isinstance(told, Mapping) else None
        is_done = isinstance(agent, Mapping) and agent.get("outcome") == "done"
        if is_done:
            self._kept.add(index)
        self._tell_over(index, done=is_done, begun=False)

    @property
    def follows_all(self) -> bool:
        """True: others may wait for a case that never began."""
        return True

    def looks_ahead(self, _providers: Iterable[int], /, *, are_final: bool) -> bool:  # noqa: ARG002
        """True: cases may wait for each other."""
        return True

    def begins_at_once(
        self,
        step: Step,
        _ask: Callable[[], Asked | None],
        /,
        *,
        is_answered: bool,  # noqa: ARG002
    ) -> bool:
        """Whether it waits for other things before it needs a slot."""
        case = case_of(step.test)
        waits = case is not None and bool(case.depends_on)
        return waits or self._run.terms.planner is not None

    def workspace(self, step: Step, /) -> Path:
        """Where its agent works."""
        return self._files(step.index).workspace

    def last_reply(self, step: Step, reply: Reply | None, outcome: str, /) -> Reply | None:
        """The result of a case, with the usage of an attempt that was cut off. Looks at files."""
        end = cut_off_attempt(self._files(step.index), attempts_told(reply))
        reply = reply if end is None else with_cut_attempt(reply, end)
        return None if reply is None else ended_as(reply, outcome)

    def reject(self, _step: Step, /) -> None:
        """Nothing: each attempt stands as it ended."""

    def over(self, step: Step, cut: Cut | None, /) -> None:
        """A row is over; what is not known to be done is not, unless it was cut off."""
        self._tell_over(step.index, done=False, cut=cut)

    async def answer(
        self, step: Step, asked: Asked, calls: Calls[Any], listener: AnswerListener, /
    ) -> Reply:
        """Work on a case until it is done, given up, or stopped. A checkpoint.

        Raises:
            AgentError: It cannot be worked on.
            BlockedError: What it depends on is not done.
            StoppedError: The run is stopped.
        """
        room, post = self._room(step, asked), self._posts(step)
        ending: CaseEnding = "failed"
        cut: Cut | None = None
        try:
            # It stands in the line of all programs from the moment in which it begins, in that order.
            async with self._turn(step) as turn:
                with calls.waiting():
                    made, wanted = await self._claim(step, asked, listener.on_progress, room, post)
                    with suppress(MarkerError):  # the loop looks first, and gives the case up
                        await self._wait(step, room, post, turn)
                with self._procession.join() as place:
                    ended = await self._work(made, calls, wanted, room, place)
                ending = ended.ending
                cut = Cut.STOP if ending == "interrupted" else None
                if turn is not None and ending != "interrupted":
                    turn.done = ending == "done"
                if ending == "done" and self._run.facts is not None:
                    await self._run.facts.pass_on(room.files.bus)
        except BlockedError:
            ending = "blocked"
            raise
        except (StoppedError, *RUN_IS_OVER, trio.Cancelled) as error:
            ending, cut = "interrupted", cut_by(error)
            raise
        finally:
            self._tell_over(step.index, done=ending == "done", cut=cut)
            self._tell(step, CaseEnded, ending=ending)
        if ending == "interrupted":
            raise StoppedError
        return answer_of(ended, self._about(step, room))

    def _posts(self, step: Step) -> CasePosts:
        files, case = self._files(step.index), self._names.rooms[step.index]
        return CasePosts(files.bus, self._run.buses, case=case)

    async def _wait(self, step: Step, room: CaseRoom, post: CasePosts, turn: Turn | None) -> None:
        """Wait for the cases that it depends on, and for its turn; only what stands in line is cancelled.

        Raises:
            AgentError: It was cancelled meanwhile; or as `Gate.wait`.
            BlockedError: As `Gate.wait`.
            StoppedError: The run is stopped.
        """
        if turn is None:
            await self._pass_gate(step, room, post)
            return
        cancelled = FileMarker(room.files.cancelled)

        async def wait() -> None:
            await self._pass_gate(step, room, post)
            await self._take_turn(step, turn, FileMarker(room.files.done, may_come=True))

        await first_of(wait, cancelled.wait)
        if cancelled.is_set():
            await post("ERROR", _CANCELLED)
            room.files.cancelled.unlink(missing_ok=True)  # who runs the row again wants it
            raise AgentError(_CANCELLED)

    async def _pass_gate(self, step: Step, room: CaseRoom, post: CasePosts) -> None:
        case = case_of(step.test)
        gate = self._gates.get(self._names.columns[step.index])
        if case is None or gate is None:
            return

        def waiting(by: tuple[str, ...]) -> None:
            self._tell(step, CaseBlocked, by=by)

        await gate.wait(
            self._names.names[step.index],
            done=FileMarker(room.files.done, may_come=True),
            post=post,
            timeout=case.dependency_timeout,
            waiting=waiting,
        )

    @asynccontextmanager
    async def _turn(self, step: Step) -> AsyncGenerator[Turn | None]:
        """The case's place in the line of all programs, for as long as the block; None where there is none.

        What does not come to its end leaves without an outcome.
        """
        planner = self._run.terms.planner
        if planner is None:
            await trio.lowlevel.checkpoint()
            yield None
            return
        try:
            async with planner_turn(planner, self._submission(step)) as turn:
                if turn.entry.position:
                    self._tell(step, CaseQueued, position=turn.entry.position)
                yield turn
        except StoreError as error:
            # Nothing is wrong with the case: it may come again when the database can be used.
            self._run.warn(f"the turns of agents cannot be taken: {error}")
            self._run.stop.set()
            raise StoppedError from error

    def _submission(self, step: Step) -> Submission:
        names, index = self._names, step.index
        column = names.columns[index]
        waits = next(
            (one for one in names.dependents.get(column, ()) if one.name == names.names[index]),
            None,
        )
        needs = () if waits is None else waits.depends_on
        return Submission(
            id=self._id(names.rooms[index]),
            run=self._run.project,
            task=self._shown(names.rooms[index]),
            depends_on=tuple(self._id(names.room_of(column, name)) for name in needs),
        )

    def _shown(self, room: str) -> str:
        return room if self._task is None else f"{self._task}/{room}"

    def _id(self, room: str) -> str:
        """What a case is called in the line of all programs."""
        return f"{self._run.project}/{self._shown(room)}"

    async def _take_turn(self, step: Step, turn: Turn, done: FileMarker) -> None:
        await turn.set_free()
        if turn.entry.position:
            self._tell(step, CaseQueued, position=turn.entry.position)
        # Others may keep their places for hours when this program is to stop, or the case is done.
        await first_of(turn.wait_started, self._run.stop.wait, done.wait)
        if self._run.stop.is_set():
            raise StoppedError
        self._tell(step, CaseQueued, position=0)

    async def _claim(
        self, step: Step, asked: Asked, told: ComeTo, room: CaseRoom, post: CasePosts
    ) -> tuple[RecordedAttempts, Wanted]:
        """See that the folder of a case is its own before it waits: who waits may be marked as done there.

        Returns:
            The attempts that earlier executions have made, and what the folder is to be.
        """
        made = RecordedAttempts(
            asker=self._asker,
            step=step,
            asked=asked,
            told=told,
            is_model=not isinstance(self._program(step), CommandAgentSettings),
            ids=self._run.ids,
            post=post,
        )
        wanted = Wanted(
            digest=made.digest,
            about=room.name,
            template=functools.partial(self._template, step, asked),
            goes_on=bool(made.earlier),
            anew=self._asker.asks_anew(step.index),
        )
        if self._run.stop.is_set():
            raise StoppedError
        claim = functools.partial(claim_folder, room.files, wanted, self._moving)
        await trio.to_thread.run_sync(claim, limiter=self._run.makers)
        return made, wanted

    async def _work(
        self,
        made: RecordedAttempts,
        calls: Calls[Any],
        wanted: Wanted,
        room: CaseRoom,
        place: Place,
    ) -> LoopEnd:
        step, asked = made.step, made.asked
        if self._run.stop.is_set():
            raise StoppedError
        begin = functools.partial(open_workspace, room.files, wanted)
        made.is_resumed = await trio.to_thread.run_sync(begin, limiter=self._run.makers)
        made.prompt = await trio.to_thread.run_sync(ensure_prompt, room.files.prompt, asked.prompt)
        if made.is_resumed:
            await made.tell_lost_end(room.files.bus)
        if made.earlier:
            made.tell()
        await place.come_first()
        async with self._worker(made, room, calls) as (agent, slots, family):
            terms = LoopTerms(
                policy=_policy(self._settings),
                child_timeout=self._settings.child_timeout,
                slots=InOrder(slots, place),
                marker=FileMarker(room.files.done),
                children=family,
                posts=Posts(made.post),
                attempts=made,
                stop=self._run.stop,
                idle=calls.waiting,
                observe=self._pass_on,
                task=self._task,
                case=room.name,
                agent=self._agent(step),
            )
            return await run_until_done(agent, terms)

    @asynccontextmanager
    async def _worker(
        self, made: RecordedAttempts, room: CaseRoom, calls: Calls[Any]
    ) -> AsyncGenerator[tuple[Agent, Slots, Family]]:
        """What works on a case for as long as the block, in which slots, and what it has started."""
        settings, program = self._settings, self._program(made.step)
        if not isinstance(program, CommandAgentSettings):
            async with open_family(settings.grace) as family:
                yield self._model(made, room, calls), at_once, family
            return

        def tell(event: type[AgentEvent]) -> None:
            self._tell(made.step, event, number=len(made.ends))

        # What stands first in the suite goes on first.
        slots = LaneSlots(calls, AGENT_RUNS, ahead=True, counts_use=True)
        async with (
            open_child_runs(slots, tell) as child_runs,
            open_family(settings.grace) as family,
        ):
            agent = CommandAgent(
                settings=program,
                room=room,
                templates=self._templates,
                family=family,
                journal=self._journal,
                timeout=settings.attempt_timeout,
                max_processes=settings.max_processes,
                reports=self._run.reports,
                child_runs=child_runs,
            )
            yield agent, child_runs, family

    def _model(self, made: RecordedAttempts, room: CaseRoom, calls: Calls[Any]) -> ModelAgent:
        step, asked = made.step, made.asked
        request = Request(
            prompt=asked.prompt,
            vars=asked.vars,
            options=asked.options,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        environ = self._prepared.around.environ
        return ModelAgent(
            asker=self._asker,
            index=step.index,
            place=step.provider_index,
            calls=calls,
            request=request,
            files=room.files,
            settings=self._settings,
            tools=WorkspaceTools.of(room.files, self._settings, environ, made.post),
        )

    def _program(self, step: Step) -> object:
        """The settings of the agent of a case; those of a model are no `CommandAgentSettings`."""
        return self._asker.providers[step.provider_index].spec.settings

    def _template(self, step: Step, asked: Asked) -> Path | None:
        """What the workspace of a case is a copy of. Blocks on files."""
        case = case_of(step.test)
        said = (None if case is None else case.workspace) or self._settings.workspace
        if said is None:
            return None
        try:
            return self._workspaces.find_undone(said, asked.vars, self._settings.done_file)
        except (MistakenError, TemplateError) as error:
            raise AgentError(f"workspace: {error}") from error

    def _room(self, step: Step, asked: Asked) -> CaseRoom:
        if not asked.prompt.strip():
            name = self._names.names[step.index]
            raise AgentError(f"the prompt of case {name} is empty, so nothing is to be done")
        return CaseRoom(
            project=self._run.project,
            task=self._task,
            name=self._names.rooms[step.index],
            files=self._files(step.index),
            suite=self._prepared.suite.directory,
            vars=asked.vars,
            index=step.index,
            row=self._asker.row_ids(step.index),
            agent=self._agent(step),
        )

    def _files(self, index: int) -> CaseFiles:
        folder = self._run.folder / task_folder(self._task) / self._names.rooms[index]
        return CaseFiles(folder, self._settings.done_file)

    def _about(self, step: Step, room: CaseRoom) -> dict[str, Any]:
        """What rows tell of a case beside what became of it."""
        case = case_of(step.test)
        return {
            "case": self._names.names[step.index],
            "dependsOn": [] if case is None else [*case.depends_on],
            "folder": str(room.files.folder),
        }

    def _agent(self, step: Step) -> str:
        return self._asker.names[step.provider_index]

    def _tell(self, step: Step, event: type[AgentEvent], **details: Any) -> None:
        if self._observe is not None:
            about: dict[str, Any] = {
                "task": self._task,
                "case": self._names.rooms[step.index],
                "agent": self._agent(step),
            }
            self._observe(event(at=trio.current_time(), **about, **details))

    def _pass_on(self, event: AgentEvent) -> None:
        """Tell what the loop tells, but not its end: a case may be over before its loop begins."""
        if self._observe is not None and not isinstance(event, CaseEnded):
            self._observe(event)

    def _tell_over(
        self, index: int, *, done: bool, cut: Cut | None = None, begun: bool = True
    ) -> None:
        """Tell those that wait for a case, once."""
        if index in self._over:
            return
        self._over.add(index)
        if begun and not done and cut is None:
            self._kept.lost(index)
        if (gate := self._gates.get(self._names.columns[index])) is not None:
            gate.over(self._names.names[index], done=done, cut=cut)


def _policy(settings: AgentSettings) -> RestartPolicy:
    return RestartPolicy(
        max_attempts=settings.max_restarts,
        delay=settings.restart_delay,
        backoff=settings.restart_backoff,
        max_delay=settings.max_restart_delay,
        identical_failures=settings.identical_failures,
        max_tokens=settings.max_tokens,
        max_cost=settings.max_cost,
    )
