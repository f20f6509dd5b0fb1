"""The task type `prompt_eval`: prompts × providers × tests × repeat, one job each.

`PromptEval` is the pure plan and the body of its jobs. A reply is recorded in the step in which it arrives,
before anything else is awaited: whatever happens to the row afterwards, it contains the paid reply.

If replies may already be recorded, the prompt of a row is rendered before the row is admitted to its lane: if
there is a reply, the row need not wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.errors import GradingError, InputError, ProviderError
from trioeval.evaluation.answerer import Answerer
from trioeval.evaluation.grader_calls import RowGraders
from trioeval.evaluation.groups import StepJobs, timeout_of
from trioeval.evaluation.journal import RecordedReply
from trioeval.evaluation.judging import Judges, Judging, JudgingContext
from trioeval.evaluation.outcomes import (
    cut_of,
    explain,
    grading_details,
    outcome_name,
    provider_failure,
    with_refusals,
)
from trioeval.evaluation.prompt import PromptBuilder, RenderedPrompt
from trioeval.evaluation.row import Row
from trioeval.evaluation.scoring import Spending, spent_on_failure
from trioeval.evaluation.status import Status, has_agent
from trioeval.evaluation.task_run import UnstartedRows
from trioeval.evaluation.waits import NO_WAITS
from trioeval.grading import JudgeUsage, Verdict
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Failed,
    Interrupted,
    Job,
    NotRun,
    Outcome,
    Plan,
    Readiness,
    TimedOut,
)
from trioeval.providers import Reply
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.sizes import rows_by_column

if TYPE_CHECKING:
    from trioeval.evaluation.hooks import Hooks


@attrs.define
class _RowState:
    """The state of a running row."""

    step: Step
    planned: Step | None = None
    """The step in the suite, if an extension replaced it."""
    prompt: RenderedPrompt | None = None
    reply: Reply | None = None
    is_bought: bool = False
    """True if `reply` comes from one call, and not from a test or several attempts."""
    output: Any = None
    """The output of the reply, transformed."""
    latency_ms: float | None = None
    cached: bool = False
    recalled: int = 0
    """Requests of earlier executions that returned this reply."""
    lost: Spending = attrs.field(factory=Spending)
    """The costs of calls without a result."""
    graders: RowGraders | None = None
    judging: Judging | None = None
    ending: Done[Verdict] | Failed | None = None
    """Its outcome before extensions are called."""

    def on_request(self, _tokens: int) -> None:
        """Do nothing: the kernel counts requests."""

    def on_failure(self, error: ProviderError, _tokens: int) -> None:
        """Add the costs of a request that the provider did not answer."""
        self.lost.add(spent_on_failure(error))

    def on_reply(self, paid: RecordedReply, *, recalled: bool) -> None:
        """Store the provider's reply."""
        self.reply, self.latency_ms, self.cached = paid.reply, paid.latency_ms, paid.cached
        self.is_bought = True
        self.recalled = int(recalled and not paid.cached)

    @property
    def unused(self) -> JudgeUsage:
        """The costs of a reply that is requested again."""
        if self.reply is None or not self.is_bought or self.recalled:
            return NOTHING_SPENT
        return JudgeUsage(usage=self.reply.usage, cost=self.reply.cost, calls=int(not self.cached))

    def on_progress(
        self, reply: Reply, latency_ms: float, recalled: int, /, *, cached: bool = False
    ) -> None:
        """Store the result so far of several attempts, including those of earlier executions."""
        self.reply, self.latency_ms, self.recalled = reply, latency_ms, recalled
        self.cached = cached


class PromptEval:
    """One prompt evaluation, bound to its answerer and lanes; for a single run.

    Args:
        steps: The expansion of the suite.
        answerer: Returns the reply for each row.
        lanes: The lane of each provider, in the order of `steps.providers`.
        tools: Makes prompts and outputs.
        judges: Judge outputs.
        order: The order in which steps may start.
        task: The id of the task, if its suite has several.
        hooks: Extensions that are called with rows, and may change them.
    """

    def __init__(
        self,
        steps: Expansion,
        answerer: Answerer,
        *,
        lanes: Sequence[str],
        tools: PromptBuilder,
        judges: Judges,
        order: Callable[[], Readiness] | None = None,
        task: str | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._steps = steps
        self._answerer = answerer
        self._lanes = tuple(lanes)
        self._tools = tools
        self._judges = judges
        self._order = order
        self._task = task
        self._hooks = hooks
        self._states: dict[int, _RowState] = {}
        self._ahead: dict[int, RenderedPrompt] = {}
        """The prompts of rows that are not started yet."""

    def plan(self) -> Plan[Step]:
        """Return the plan. Lazy: a step becomes an object when its job starts."""
        jobs = StepJobs(self._steps, self._lanes, timeout_of(self._steps))
        used = {self._lanes[provider] for provider in self._steps.used_providers}
        return Plan(
            jobs,
            sorted(used),
            self._steps.serial_indices,
            readiness=self._order,
            needs_no_lane=self._begins_at_once if self._looks_ahead() else None,
        )

    def _looks_ahead(self) -> bool:
        # The changes of an extension to a test are only known when its row runs.
        is_open = self._hooks is not None and self._hooks.change_tests
        return self._answerer.may_start_early(self._steps.used_providers, are_final=not is_open)

    def _begins_at_once(self, job: Job[Step]) -> bool:
        """Return True if a row that is about to start need not wait for its lane.

        Returns False if finding out would take code or a file, because all other rows would wait for that.
        """
        step, state = job.payload, self._states.get(job.index)
        if step.test.fault is not None or step.test.provider_output is not None:
            return True
        is_answered = state is not None and state.judging is not None
        ask = functools.partial(self._ask_ahead, step)
        return self._answerer.starts_without_lane(step, ask, is_answered=is_answered)

    def _ask_ahead(self, step: Step) -> RenderedPrompt | None:
        prompt = self._tools.build_now(step)
        if prompt is not None:
            self._ahead[step.index] = prompt
        return prompt

    async def perform(self, job: Job[Step], calls: Calls[Step]) -> Verdict:
        """Run the body of a job: render the prompt, call the provider, transform, grade, store the output.

        Raises:
            InputError: The test, or a variable of it, is not valid.
            TemplateError: The prompt cannot be rendered.
            ProviderError: The provider failed, or returned an empty reply.
            ScriptError: Code of the suite failed.
            GradingError: An assertion could not be evaluated.
        """
        state = self._started(job)
        if self._hooks is None:
            return await self._judge(job, calls, state)
        if state.judging is None:
            state.step = await self._hooks.before_each(job.payload)
            state.planned = None if state.step is job.payload else job.payload
        outcome: Done[Verdict] | Failed
        try:
            outcome = Done(job.index, 0, 0, 0, 0, await self._judge(job, calls, state))
        except Exception as error:  # noqa: BLE001 - passed to extensions, and raised again below
            outcome = Failed(job.index, 0, 0, 0, 0, error)
        state.ending = outcome
        ended = with_refusals(outcome, has_started=state.reply is not None)
        judged = await self._hooks.after_each(self._row(ended, state))
        if judged.step is not state.step:
            state.planned = job.payload
        state.step, state.reply = judged.step, judged.reply
        if isinstance(outcome, Failed):
            raise outcome.error
        return judged.verdict or outcome.value

    def _started(self, job: Job[Step]) -> _RowState:
        """Return the state of a row that starts; one that was judged before keeps its paid replies."""
        state = self._states.get(job.index)
        if state is None or state.judging is None:
            before, state = state, _RowState(job.payload)
            self._states[job.index] = state
            if before is not None:
                state.lost = before.lost
                state.lost.add(before.unused)
        state.ending = None
        return state

    async def _judge(self, job: Job[Step], calls: Calls[Step], state: _RowState) -> Verdict:
        if state.judging is None:
            state.judging = await self._answered(job, calls, state)
        elif state.graders is not None:
            state.graders.resume(calls)
        verdict = await state.judging.run()
        self._tools.store(state.step, state.output)
        return verdict

    async def _answered(self, job: Job[Step], calls: Calls[Step], state: _RowState) -> Judging:
        """Return the judging of a row after its provider has answered."""
        step = state.step
        if step.test.fault is not None:
            raise InputError(step.test.fault)
        prompt = self._ahead.pop(job.index, None)
        if prompt is None:
            prompt = await self._tools.build(step)
        state.prompt = prompt
        if step.test.provider_output is None:
            reply = state.reply = await self._answerer.answer(step, prompt, calls, state)
        else:
            reply = state.reply = Reply(output=step.test.provider_output, cost=0.0)
            state.latency_ms = 0.0
        if reply.output is None:
            msg = "the reply has no output"
            raise ProviderError("empty_reply", msg)
        self._tools.remember_turn(step, prompt, reply)
        output = await self._tools.transform(step, prompt, reply)
        state.output = output
        state.graders = self._judges.graders.of_row(step, prompt, calls)
        return self._judges.of(
            state.graders, reply, output, state.latency_ms, self._answerer.workspace(step)
        )

    def bench(self, index: int) -> Callable[[Calls[Any]], JudgingContext]:
        """Return a function that makes the context to judge a row again, with the calls of another job.

        Later contexts know the calls of earlier ones, so that nothing is paid for twice.
        """
        state = self._states[index]
        prompt, reply = state.prompt, state.reply
        if prompt is None or reply is None:
            msg = f"row {index} has no reply"
            raise GradingError(msg)
        graders: RowGraders | None = None

        def make(calls: Calls[Any]) -> JudgingContext:
            nonlocal graders
            if graders is None:
                graders = self._judges.graders.of_row(state.step, prompt, calls)
            else:
                graders.resume(calls)
            workspace = self._answerer.workspace(state.step)
            judging = self._judges.of(graders, reply, state.output, state.latency_ms, workspace)
            return judging.context

        return make

    def rows(
        self, outcome: Outcome[Verdict], waits: Mapping[str, float] = NO_WAITS
    ) -> Sequence[Row]:
        """Return the row of a job that has ended. Called once per outcome, in any order."""
        self._ahead.pop(outcome.index, None)
        state = self._states.pop(outcome.index, None) or _RowState(self._steps[outcome.index])
        if state.ending is not None and isinstance(outcome, TimedOut | Interrupted):
            outcome = self._without_hook(outcome, state.ending)
        outcome = with_refusals(outcome, has_started=state.reply is not None)
        if isinstance(outcome, Done | Failed | TimedOut):
            self._reject_useless(state)
        self._answerer.on_row_end(state.planned or state.step, cut_of(outcome))
        return (self._row(outcome, state, waits),)

    def _reject_useless(self, state: _RowState) -> None:
        """Discard a reply without a usable result, so that another run does not reuse it."""
        if state.judging is not None:
            state.judging.reject_unusable()
        elif state.reply is not None and state.reply.output is None:
            self._answerer.reject(state.step)

    def unstarted(self, jobs: range) -> UnstartedRows | None:
        """Return the rows of jobs that were never started and have no state."""
        if self._answerer.follows_every_row:
            return None
        for state in (self._states, self._ahead):
            behind = min((index for index in state if index in jobs), default=jobs.stop)
            jobs = range(jobs.start, behind)
        return UnstartedRows(len(jobs), jobs, rows_by_column(self._steps, jobs)) if jobs else None

    def on_emitted(self, row: Row) -> None:
        """Note that a row and all rows before it were emitted, and forget state that only they need."""
        self._tools.on_row_end(row.step)

    def _without_hook(
        self, cut: TimedOut | Interrupted, ending: Done[Verdict] | Failed
    ) -> Outcome[Verdict]:
        """Return the outcome of a job that was interrupted during `afterEach`: as without extensions."""
        if self._hooks is not None:
            self._hooks.warn(f"afterEach of row {cut.index} was interrupted: {explain(cut)}")
        return attrs.evolve(
            ending,
            started_at=cut.started_at,
            finished_at=cut.finished_at,
            waited=cut.waited,
            calls=cut.calls,
        )

    def _row(
        self, outcome: Outcome[Verdict], state: _RowState, waits: Mapping[str, float] = NO_WAITS
    ) -> Row:
        step, prompt, named = state.step, state.prompt, outcome_name(outcome)
        verdict = outcome.value if isinstance(outcome, Done) else None
        waited, calls = 0.0, 0
        graders, reply = state.graders, state.reply
        if not isinstance(outcome, NotRun | Blocked):
            waited, calls = outcome.waited, outcome.calls + state.recalled
            reply = self._answerer.last_reply(step, reply, named)
        if verdict is None:
            status = Status.without_verdict(named)
        else:
            status = Status.of_verdict(
                verdict.passed,
                step.test.assertions,
                verdict.parts,
                verdict.named_scores,
                reply is not None and has_agent(reply.metadata),
            )
        unjudged = {} if verdict is not None or state.judging is None else state.judging.unjudged
        return Row(
            index=outcome.index,
            step=step,
            provider=self._steps.suite.providers[step.column.provider_index],
            status=status,
            prompt=None if prompt is None else prompt.prompt,
            reply=reply,
            output=state.output,
            verdict=verdict,
            error=explain(outcome),
            failure=provider_failure(outcome),
            outcome=named,
            cut=cut_of(outcome),
            lane=self._lanes[step.provider_index],
            latency_ms=state.latency_ms,
            wait_ms=waited * 1000,
            calls=calls if graders is None else calls + graders.recalled,
            cached=state.cached,
            waits=waits,
            graded=() if verdict is not None or state.judging is None else state.judging.parts,
            spent=NOTHING_SPENT if graders is None else graders.spending.total,
            lost=state.lost.total,
            details={**grading_details(outcome), **unjudged},
            task=self._task,
            planned=state.planned,
        )
