"""The replies to the rows of a task of type `agent`: the result of working on a case until it is done.

A case waits for its dependencies, then for its turn among all programs, and only then for a slot for each of
its attempts; it holds nothing while it waits. Each attempt is recorded as soon as it ends: a resumed run
continues with the next one, in the same folder.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import attrs
import trio

from trioeval.agent.attempts import (
    RecordedAttempts,
    case_reply,
    reported_attempts,
    with_cut_attempt,
    with_row_outcome,
)
from trioeval.agent.case_folder import (
    CaseContext,
    CaseFiles,
    CaseNames,
    FolderRequest,
    claim_folder,
    ensure_prompt,
    open_workspace,
    task_folder,
)
from trioeval.agent.case_order import (
    DependencyGate,
    OrderedSlots,
    StartOrder,
    StartPosition,
    dependency_gates,
)
from trioeval.agent.cases import WorkspaceTemplates
from trioeval.agent.command_agent import CommandAgent
from trioeval.agent.journal import AgentJournal
from trioeval.agent.loop import RUN_IS_OVER, LoopEnd, run_until_done, wait_for_first
from trioeval.agent.model import AgentSettings, case_of
from trioeval.agent.model_agent import ModelAgent
from trioeval.agent.open import AgentRunContext, CasePoster
from trioeval.agent.planner import PlannerTurn, Submission, planner_turn
from trioeval.agent.processes import end_survivors, open_family
from trioeval.agent.protocols import (
    Agent,
    AgentEvent,
    AgentObserver,
    CaseBlocked,
    CaseEnded,
    CaseEnding,
    CaseNotifier,
    CaseQueued,
    ChildFamily,
    CountingPoster,
    FileMarker,
    LoopConfig,
    Slots,
    without_slot,
)
from trioeval.agent.report_file import cut_off_attempt
from trioeval.agent.restarts import RestartPolicy
from trioeval.agent.slots import LaneSlots, open_child_runs
from trioeval.agent.workspace_tools import WorkspaceTools
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import AgentError, BlockedError, MarkerError, StoreError, TemplateError
from trioeval.evaluation.answerer import AnswerObserver, OnProgress
from trioeval.evaluation.outcomes import StoppedError, cut_by
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.prompt import RenderedPrompt
from trioeval.evaluation.provider_calls import ReplySource
from trioeval.kernel import Calls, StopReason
from trioeval.kernel.events import guarded
from trioeval.providers import Reply, Request
from trioeval.providers.programs import AGENT_RUNS
from trioeval.providers.programs.entries import CommandAgentSettings
from trioeval.suite.expand import Step
from trioeval.templates import Templates

R = TypeVar("R")

_CANCELLED = "cancelled while queued (trioeval agent cancel)"


@attrs.define(eq=False, repr=False)
class AgentAnswerer:
    """Works on the rows of one task, each case in its own folder; used for one run."""

    prepared: PreparedSuite
    """The task."""
    settings: AgentSettings
    """The settings of its agents."""
    reply_source: ReplySource
    """Calls models, and has the records of earlier calls."""
    task: str | None = attrs.field(kw_only=True)
    """Its id."""
    journal: AgentJournal | None = attrs.field(kw_only=True)
    """Records processes."""
    run: AgentRunContext = attrs.field(kw_only=True)
    """The shared state of all agent tasks."""
    names: CaseNames = attrs.field(init=False)
    gates: Mapping[str, DependencyGate] = attrs.field(init=False)
    start_order: StartOrder = attrs.field(init=False, factory=StartOrder)
    folder_lock: Lock = attrs.field(init=False, factory=Lock)
    """Held while folders of cases move."""
    observe: AgentObserver | None = attrs.field(init=False)
    workspaces: WorkspaceTemplates = attrs.field(init=False)
    templates: Templates = attrs.field(init=False)
    """Strict: leaving out a missing variable would give another word."""
    _over: set[int] = attrs.field(init=False, factory=set)
    """Cases whose end was reported to the gate."""

    def __attrs_post_init__(self) -> None:
        prepared, run = self.prepared, self.run
        self.names = CaseNames.of(prepared.steps)
        cases = {} if run.options.are_placed else self.names.dependents
        self.gates = dependency_gates(cases, warn=run.warn, stop=run.stop)
        self.observe = guarded(run.options.observe)
        self.workspaces = WorkspaceTemplates.of(prepared.context, prepared.templates)
        self.templates = self.workspaces.templates

    async def end_survivors(self) -> None:
        """End the remaining processes of earlier executions of the run. A checkpoint."""
        left = () if self.journal is None else self.journal.left()
        await end_survivors((one.process for one in left), self.settings.grace)
        if self.journal is not None:
            for one in left:
                self.journal.gone(one.run_id)

    def register_kept(self, index: int, record: Mapping[str, Any]) -> None:
        """Register the end of a case that is not worked on again."""
        reply = record.get("response")
        metadata = reply.get("metadata") if isinstance(reply, Mapping) else None
        agent = metadata.get("agent") if isinstance(metadata, Mapping) else None
        is_done = isinstance(agent, Mapping) and agent.get("outcome") == "done"
        if is_done and (gate := self.gate_of(index)) is not None:
            gate.kept.add(self.names.names[index])
        self._report_end(index, done=is_done, has_started=False)

    @property
    def follows_every_row(self) -> bool:
        """True: other cases may wait for one that never started."""
        return True

    def may_start_early(self, _providers: Iterable[int], /, *, are_final: bool) -> bool:  # noqa: ARG002
        """Return True: cases may wait for each other."""
        return True

    def starts_without_lane(
        self,
        step: Step,
        _ask: Callable[[], RenderedPrompt | None],
        /,
        *,
        is_answered: bool,  # noqa: ARG002
    ) -> bool:
        """Return whether it waits for other cases or the planner before it needs a slot."""
        case = case_of(step.test)
        waits = case is not None and bool(case.depends_on)
        return waits or self.run.options.planner is not None

    def workspace(self, step: Step, /) -> Path:
        """Return the folder in which its agent works."""
        return self.files_of(step.index).workspace

    def last_reply(self, step: Step, reply: Reply | None, outcome: str, /) -> Reply | None:
        """Return the result of a case, including the usage of an interrupted attempt. Reads files."""
        end = cut_off_attempt(self.files_of(step.index), reported_attempts(reply))
        reply = reply if end is None else with_cut_attempt(reply, end)
        return None if reply is None else with_row_outcome(reply, outcome)

    def reject(self, _step: Step, /) -> None:
        """Do nothing: each attempt keeps its end."""

    def on_row_end(self, step: Step, cut: StopReason | None, /) -> None:
        """Handle the end of a row; a case that is not known to be done is not, unless it was interrupted."""
        self._report_end(step.index, done=False, cut=cut)

    async def answer(
        self, step: Step, prompt: RenderedPrompt, calls: Calls[Any], listener: AnswerObserver, /
    ) -> Reply:
        """Work on a case until it is done, given up, or stopped. A checkpoint.

        Raises:
            AgentError: The case cannot be worked on.
            BlockedError: A dependency is not done.
            StoppedError: The run is stopped.
        """
        case = _TaskCase(
            work=self, step=step, rendered=prompt, calls=calls, on_progress=listener.on_progress
        )
        return case_reply(await self._follow(case, case.perform), case.about)

    async def place(
        self,
        step: Step,
        prompt: RenderedPrompt,
        calls: Calls[Any],
        perform: Callable[[], Awaitable[LoopEnd]],
    ) -> None:
        """Let another process work on a case as soon as it is its turn. A checkpoint.

        The case waits here, for its dependencies and for the planner, in its folder.

        Args:
            step: The row.
            prompt: Its prompt.
            calls: The calls of the running job, which makes none.
            perform: Waits until another process has worked on the case, and returns how that ended.

        Raises:
            Exception: As for `answer`, and whatever `perform` raises.
        """
        case = _TaskCase(
            work=self, step=step, rendered=prompt, calls=calls, on_progress=_ignore_progress
        )
        await self._follow(case, perform)

    async def _follow(
        self, case: "_TaskCase", perform: Callable[[], Awaitable[LoopEnd]]
    ) -> LoopEnd:
        """Run a case when it is its turn, and report how it ended."""
        step = case.step
        ending: CaseEnding = "failed"
        cut: StopReason | None = None
        try:
            ended = await case.run(perform)
            ending = ended.ending
            cut = StopReason.STOP if ending == "interrupted" else None
        except BlockedError:
            ending = "blocked"
            raise
        except (StoppedError, *RUN_IS_OVER, trio.Cancelled) as error:
            ending, cut = "interrupted", cut_by(error)
            raise
        finally:
            self._report_end(step.index, done=ending == "done", cut=cut)
            case.notify(CaseEnded, ending=ending)
        if ending == "interrupted":
            raise StoppedError
        return ended

    def gate_of(self, index: int) -> DependencyGate | None:
        """Return the gate that lets a case start; None without dependencies."""
        return self.gates.get(self.names.columns[index])

    def files_of(self, index: int) -> CaseFiles:
        """Return the folder of a case."""
        folder = self.run.folder / task_folder(self.task) / self.names.folder_names[index]
        return CaseFiles(folder, self.settings.done_file)

    def _report_end(
        self, index: int, *, done: bool, cut: StopReason | None = None, has_started: bool = True
    ) -> None:
        """Report the end of a case to the cases that wait for it, once."""
        if index in self._over:
            return
        self._over.add(index)
        if (gate := self.gate_of(index)) is not None:
            if has_started and not done and cut is None:
                gate.lost(self.names.names[index])
            gate.over(self.names.names[index], done=done, cut=cut)


@attrs.define(eq=False, repr=False, kw_only=True)
class _TaskCase:
    """A running case, from its submission to the planner to its end."""

    work: AgentAnswerer
    step: Step
    rendered: RenderedPrompt
    calls: Calls[Any]
    on_progress: OnProgress
    room: CaseContext = attrs.field(init=False)
    notify: CaseNotifier = attrs.field(init=False)
    post: CasePoster = attrs.field(init=False)
    attempts: RecordedAttempts = attrs.field(init=False)
    wanted: FolderRequest = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        work, index = self.work, self.step.index
        name, agent = (
            work.names.folder_names[index],
            work.reply_source.names[self.step.provider_index],
        )
        if not self.rendered.prompt.strip():
            msg = f"the prompt of case {work.names.names[index]} is empty"
            raise AgentError(msg)
        self.room = CaseContext(
            project=work.run.project,
            task=work.task,
            name=name,
            files=work.files_of(index),
            suite=work.prepared.suite.directory,
            vars=self.rendered.vars,
            index=index,
            row=work.reply_source.row_ids(index),
            agent=agent,
        )
        self.notify = CaseNotifier(observe=work.observe, task=work.task, case=name, agent=agent)
        self.post = CasePoster(self.room.files.bus, work.run.buses, case=name)
        self.attempts = RecordedAttempts(
            reply_source=work.reply_source,
            step=self.step,
            rendered=self.rendered,
            on_progress=self.on_progress,
            is_model=not isinstance(self._program, CommandAgentSettings),
            ids=work.run.ids,
            post=self.post,
        )
        self.wanted = FolderRequest(
            digest=self.attempts.digest,
            about=name,
            template=self._template,
            is_continued=bool(self.attempts.earlier),
            # The folder of a placed case was made for it.
            starts_over=not work.run.options.are_placed
            and work.reply_source.needs_new_reply(index),
        )

    async def run(self, perform: Callable[[], Awaitable[LoopEnd]]) -> LoopEnd:
        """Wait for its turn, and for the work on the case. A checkpoint."""
        # It is submitted to the planner when it starts, in this order.
        async with self._turn() as turn:
            with self.calls.waiting():
                await self._in_thread(
                    claim_folder, self.room.files, self.wanted, self.work.folder_lock
                )
                with suppress(
                    MarkerError
                ):  # the loop checks the marker first, and gives the case up
                    await self._wait(turn)
            ended = await perform()
            if turn is not None and ended.ending != "interrupted":
                turn.done = ended.ending == "done"
        return ended

    async def perform(self) -> LoopEnd:
        """Work until the case is done, given up or stopped. A checkpoint."""
        with self.work.start_order.join() as place:
            ended = await self._work(place)
        if ended.ending == "done" and self.work.run.facts is not None:
            await self.work.run.facts.forward(self.room.files.bus)
        return ended

    @property
    def about(self) -> dict[str, Any]:
        """The data about the case in rows, besides its result."""
        case = case_of(self.step.test)
        return {
            "case": self.work.names.names[self.step.index],
            "dependsOn": [] if case is None else [*case.depends_on],
            "folder": str(self.room.files.folder),
        }

    async def _in_thread(self, make: Callable[..., R], *given: Any) -> R:
        """Run a function on the folder of the case in a thread; refuse if the run is stopped."""
        if self.work.run.stop.is_set():
            raise StoppedError
        return await trio.to_thread.run_sync(make, *given, limiter=self.work.run.makers)

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[PlannerTurn | None]:
        """Submit the case to the planner for the duration of the block; None without a planner.

        A case that does not run to its end is removed without an outcome.
        """
        run = self.work.run
        if run.options.planner is None:
            await trio.lowlevel.checkpoint()
            yield None
            return
        try:
            async with planner_turn(run.options.planner, self._submission()) as turn:
                if turn.entry.position:
                    self.notify(CaseQueued, position=turn.entry.position)
                yield turn
        except StoreError as error:
            # The case itself is fine: it can be submitted again when the database can be used.
            run.warn(f"the planner of agents cannot be used: {error}")
            run.stop.set()
            raise StoppedError from error

    def _submission(self) -> Submission:
        names, index, gate = self.work.names, self.step.index, self.work.gate_of(self.step.index)
        column, folder_names = names.columns[index], names.folder_names
        needs = () if gate is None else gate.needs[names.names[index]]
        task = "" if self.work.task is None else f"{self.work.task}/"
        in_line = f"{self.work.run.project}/{task}"
        return Submission(
            id=f"{in_line}{folder_names[index]}",
            run=self.work.run.project,
            task=f"{task}{folder_names[index]}",
            depends_on=tuple(f"{in_line}{names.folder_name_of(column, name)}" for name in needs),
        )

    async def _wait(self, turn: PlannerTurn | None) -> None:
        """Wait for its dependencies, and for its turn; `agent cancel` applies to queued cases only."""
        if turn is None:
            await self._pass_gate()
            return
        cancelled = FileMarker(self.room.files.cancelled)

        async def wait() -> None:
            await self._pass_gate()
            await self._take_turn(turn)

        await wait_for_first(wait, cancelled.wait)
        if cancelled.is_set():
            await self.post("ERROR", _CANCELLED)
            self.room.files.cancelled.unlink(missing_ok=True)  # so that the row can be run again
            raise AgentError(_CANCELLED)

    async def _pass_gate(self) -> None:
        case, gate = case_of(self.step.test), self.work.gate_of(self.step.index)
        if case is None or gate is None:
            return
        await gate.wait(
            self.work.names.names[self.step.index],
            done=self._done_early,
            post=self.post,
            timeout=case.dependency_timeout,
            waiting=lambda by: self.notify(CaseBlocked, by=by),
        )

    async def _take_turn(self, turn: PlannerTurn) -> None:
        stop = self.work.run.stop
        await turn.clear_dependencies()
        if turn.entry.position:
            self.notify(CaseQueued, position=turn.entry.position)
        # Other programs may hold their slots for hours after this one is to stop, or the case is done.
        await wait_for_first(turn.wait_started, stop.wait, self._done_early.wait)
        if stop.is_set():
            raise StoppedError
        self.notify(CaseQueued, position=0)

    @property
    def _done_early(self) -> FileMarker:
        """The marker of a waiting case, whose workspace may not exist yet."""
        return FileMarker(self.room.files.done, may_come=True)

    async def _work(self, place: StartPosition) -> LoopEnd:
        made, files = self.attempts, self.room.files
        made.is_resumed = await self._in_thread(open_workspace, files, self.wanted)
        made.prompt = await trio.to_thread.run_sync(
            ensure_prompt, files.prompt, self.rendered.prompt
        )
        if made.is_resumed:
            await made.post_missing_end(files.bus)
        if made.earlier:
            made.report_progress()
        await place.wait_for_turn()
        settings = self.work.settings
        async with self._worker() as (agent, slots, family):
            config = LoopConfig(
                policy=_policy(settings),
                child_timeout=settings.child_timeout,
                slots=OrderedSlots(slots, place),
                marker=FileMarker(files.done),
                children=family,
                posts=CountingPoster(self.post),
                attempts=made,
                stop=self.work.run.stop,
                idle=self.calls.waiting,
                notify=attrs.evolve(self.notify, observe=self._pass_on),
            )
            return await run_until_done(agent, config)

    def _pass_on(self, event: AgentEvent) -> None:
        """Forward an event of the loop, except its end: a case may end before its loop starts."""
        if self.work.observe is not None and not isinstance(event, CaseEnded):
            self.work.observe(event)

    @asynccontextmanager
    async def _worker(self) -> AsyncGenerator[tuple[Agent, Slots, ChildFamily]]:
        """Yield the agent of the case, its slots, and its family, for the duration of the block."""
        work, settings, program = self.work, self.work.settings, self._program
        if not isinstance(program, CommandAgentSettings):
            async with open_family(settings.grace) as family:
                yield self._model(), without_slot, family
            return

        def notify(event: type[AgentEvent]) -> None:
            self.notify(event, number=len(self.attempts.ends))

        # Earlier cases of the suite have priority.
        slots = LaneSlots(self.calls, AGENT_RUNS, ahead=True, counts_usage=True)
        async with (
            open_child_runs(slots, notify) as child_runs,
            open_family(settings.grace) as family,
        ):
            agent = CommandAgent(
                settings=program,
                room=self.room,
                templates=work.templates,
                family=family,
                journal=work.journal,
                bounds=settings,
                reports=work.run.reports,
                child_runs=child_runs,
            )
            yield agent, child_runs, family

    def _model(self) -> ModelAgent:
        step, rendered, work = self.step, self.rendered, self.work
        request = Request(
            prompt=rendered.prompt,
            vars=rendered.vars,
            options=rendered.options,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        environ = work.prepared.context.environ
        return ModelAgent(
            reply_source=work.reply_source,
            index=step.index,
            place=step.provider_index,
            calls=self.calls,
            request=request,
            tools=WorkspaceTools(
                files=self.room.files, settings=work.settings, environ=environ, post=self.post
            ),
        )

    @property
    def _program(self) -> object:
        """The settings of its agent; those of a model are not `CommandAgentSettings`."""
        return self.work.reply_source.providers[self.step.provider_index].spec.settings

    def _template(self) -> Path | None:
        """Return the template of the case's workspace. Blocks on files."""
        case, settings = case_of(self.step.test), self.work.settings
        template = (None if case is None else case.workspace) or settings.workspace
        if template is None:
            return None
        try:
            return self.work.workspaces.find_undone(
                template, self.rendered.vars, settings.done_file
            )
        except (MistakenError, TemplateError) as error:
            raise AgentError(f"workspace: {error}") from error


def _ignore_progress(_reply: Reply, _latency_ms: float, _recalled: int) -> None:
    """Ignore the result so far: the other process has it."""


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
