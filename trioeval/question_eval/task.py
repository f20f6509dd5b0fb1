"""The task type `question_eval`: multiple-choice questions × providers × repeat, one job each.

A job is a chain of calls: a model may call tools of the suite before it answers. Each step is a separate
call, so it waits for its turn on its lane and for its shared limits, and holds neither while tools run. Each
reply is recorded as it arrives, as in every other task.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.documents.files import FILE
from trioeval.errors import InputError, ProviderError, ScriptError
from trioeval.evaluation.groups import StepJobs, timeout_of
from trioeval.evaluation.outcomes import NAMES, cut_of, provider_failure
from trioeval.evaluation.prompt import PromptBuilder, RenderedPrompt
from trioeval.evaluation.provider_calls import ProviderCall, ReplySource
from trioeval.evaluation.row import Row
from trioeval.evaluation.status import Status
from trioeval.evaluation.task_run import UnstartedRows
from trioeval.evaluation.tools import (
    ModelTurn,
    ToolConversation,
    ToolResult,
    arguments_of,
    read_turn,
    tool_offers,
)
from trioeval.evaluation.waits import NO_WAITS
from trioeval.grading import output_text
from trioeval.grading.kinds.tools import OfferedFunction
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import Blocked, Calls, Job, NotRun, Outcome, Plan
from trioeval.providers import Request, ToolCall
from trioeval.question_eval.answer import QuestionResult, question_prompt
from trioeval.question_eval.counts import FATAL
from trioeval.question_eval.events import QuestionEvents
from trioeval.question_eval.form import as_question
from trioeval.question_eval.model import Question, QuestionSettings, Tool
from trioeval.question_eval.result import (
    as_not_run,
    judged,
    result_of,
    row_error,
    stop_of,
    stopped,
    tokens_of,
)
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.sizes import rows_by_column
from trioeval.templates import Templates
from trioeval.text import verbatim

# The tools that a suite gives to models while they answer questions: functions of the suite, in processes.
#
# A tool that fails does not fail the question: the model gets the error message, and continues. No slot of a
# lane is held while it runs.


RunFunction: TypeAlias = Callable[[Path, str, Sequence[Any]], Awaitable[Any]]
"""Calls a function of a file and returns its result as JSON data; raises `ScriptError` on failure."""


@attrs.frozen
class ToolBox:
    """The tools that a model may call."""

    offers: Sequence[Mapping[str, Any]]
    """In the format of chat completions."""
    _functions: Sequence[OfferedFunction] = attrs.field(repr=False)
    _places: Mapping[str, tuple[Path, str]] = attrs.field(repr=False)
    _run_function: RunFunction = attrs.field(repr=False)

    @classmethod
    def of(cls, tools: Sequence[Tool], run_function: RunFunction) -> "ToolBox":
        """Return the tools of a task."""
        places = {}
        for tool in tools:
            file, _, function = tool.target.removeprefix(FILE).rpartition(":")
            places[tool.name] = Path(file), function
        functions = [OfferedFunction(tool.name, dict(tool.parameters)) for tool in tools]
        return cls(tool_offers(tools), functions, places, run_function)

    async def run(self, call: ToolCall) -> ToolResult:
        """Return the result of a call. A checkpoint, unless the call is not valid."""
        arguments = arguments_of(call, self._functions)
        if isinstance(arguments, ToolResult):
            return arguments
        file, function = self._places[call.name]
        try:
            return ToolResult(await self._run_function(file, function, [arguments]))
        except ScriptError as error:
            return ToolResult(error.message, failed=True)


_STATUSES: Mapping[str, Status] = {
    "correct": Status.PASS,
    "incorrect": Status.FAIL,
    "parse_error": Status.FAIL,
    "budget_exceeded": Status.FAIL,
}
"""The statuses of the outcomes that are not errors."""


@attrs.define
class _QuestionState:
    """The state of a running question."""

    step: Step
    question: Question
    chain: ToolConversation
    output: object = None
    """The output of the last reply, transformed."""


@attrs.define(eq=False, repr=False, kw_only=True)
class QuestionEval:
    """One task of questions, bound to its providers and lanes; for a single run."""

    _steps: Expansion
    """The expansion of its suite, whose tests are the questions."""
    _settings: QuestionSettings
    _asker: ReplySource
    _tools: PromptBuilder
    """Transforms outputs."""
    _templates: Templates
    """The templates for transforms."""
    _box: ToolBox
    """The tools for models."""
    _events: QuestionEvents
    """Makes the events of the task."""
    _stop: trio.Event
    """Set when no more questions may start: after a failure, with `failFast`."""
    _task: str | None = None
    """The id of the task in its suite; None if the suite has no tasks."""
    _states: dict[int, _QuestionState] = attrs.field(init=False, factory=dict)

    def plan(self) -> Plan[Step]:
        """Return the plan. Lazy: a question becomes an object when its job starts."""
        lanes = tuple(self._asker.lanes)
        used = {lanes[provider] for provider in self._steps.used_providers}
        looks_ahead = any(map(self._asker.may_have_reply, self._steps.used_providers))
        return Plan(
            StepJobs(self._steps, lanes, timeout_of(self._steps)),
            sorted(used),
            self._steps.serial_indices,
            needs_no_lane=self._needs_no_call if looks_ahead else None,
        )

    def _needs_no_call(self, job: Job[Step]) -> bool:
        """Return True if a question that is about to start needs no call."""
        if job.payload.test.fault is not None:
            return True
        if not self._asker.may_have_reply(job.payload.provider_index):
            return False
        return self._asker.has_reply(self._inquiry(self._started(job)))

    async def perform(self, job: Job[Step], calls: Calls[Step]) -> QuestionResult:
        """Run the body of a job: call the model and its tools until it answers or the budget is exhausted.

        Raises:
            InputError: The question is not valid.
            ProviderError: The provider failed, or returned an empty reply.
            LimitError: A call exceeds a shared limit.
            ScriptError: A transform of the provider failed.
        """
        state = self._started(job)
        if state.step.test.fault is not None:
            raise InputError(state.step.test.fault)
        try:
            return await self._answered(state, calls)
        finally:
            now = trio.current_time()
            state.chain.worked_s += now - calls.started_at - calls.waited(now)

    async def _answered(self, state: _QuestionState, calls: Calls[Step]) -> QuestionResult:
        chain = state.chain
        while True:
            now = trio.current_time()
            working = now - calls.started_at - calls.waited(now)
            stop = stop_of(self._settings.budget, chain, working)
            if stop is not None:
                return stopped(state.question, stop)
            turn = await self._step(state, calls)
            if not turn.calls:
                break
            results = [await self._run_tool(call, chain, calls) for call in turn.calls]
            chain.add_results(turn, results)
        calls.note("parsing")
        return judged(state.question, await self._text(state, turn))

    async def _step(self, state: _QuestionState, calls: Calls[Step]) -> ModelTurn:
        """Return the next turn of the model."""
        inquiry = self._inquiry(state)
        paid = await self._asker.fetch(inquiry, calls, state.chain)
        output = paid.reply.output
        if output is None:
            self._asker.reject(inquiry)  # an empty reply must not be reused
            msg = "the reply has no output"
            raise ProviderError("empty_reply", msg)
        turn = read_turn(output)
        # Calls of tools that were not offered belong to the provider's own tools.
        return turn if self._box.offers else attrs.evolve(turn, calls=())

    async def _run_tool(
        self, call: ToolCall, chain: ToolConversation, calls: Calls[Step]
    ) -> ToolResult:
        began_at = trio.current_time()
        chain.tool_calls[call.name] += 1  # also if it is interrupted
        calls.note("tool_start", name=call.name)
        result = await self._box.run(call)
        took_ms = (trio.current_time() - began_at) * 1000
        failed = {"error": str(result.value)} if result.failed else {}
        calls.note("tool_finish", name=call.name, duration_ms=took_ms, **failed)
        return result

    async def _text(self, state: _QuestionState, turn: ModelTurn) -> str:
        """Return the last output of the model, after the transform of its provider."""
        step, reply = state.step, state.chain.replies[-1]
        prompt = RenderedPrompt(
            prompt=self._prompt(state.question),
            vars=step.vars,
            options={},
            templates=self._templates,
            named=step.vars,
        )
        state.output = await self._tools.transform(step, prompt, reply)
        return turn.text if state.output is reply.output else output_text(state.output)

    def _started(self, job: Job[Step]) -> _QuestionState:
        """Return the state of a question that starts; one that runs again keeps its paid replies."""
        state = self._states.get(job.index)
        if state is None:
            step = job.payload
            question = as_question(step.test)
            state = _QuestionState(step, question, ToolConversation.of(self._prompt(question)))
            self._states[job.index] = state
        return state

    def _prompt(self, question: Question) -> str:
        return question_prompt(question.question, question.answers)

    def _inquiry(self, state: _QuestionState) -> ProviderCall:
        step, question = state.step, state.question
        offers = {"tools": list(self._box.offers)} if self._box.offers else {}
        request = Request(
            prompt=state.chain.prompt,
            # Without the correct answers.
            vars=verbatim({"question": question.question, "answers": list(question.answers)}),
            options=offers,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        number = state.chain.steps
        more = (number,) if number else ()
        return self._asker.prepare(step.index, "provider", step.provider_index, request, *more)

    def rows(
        self, outcome: Outcome[QuestionResult], waits: Mapping[str, float] = NO_WAITS
    ) -> Sequence[Row]:
        """Return the row of a job that has ended. Called once per outcome, in any order."""
        state = self._states.pop(outcome.index, None)
        chain = None if state is None else state.chain
        outcome = as_not_run(outcome, has_started=chain is not None and chain.steps > 0)
        step = self._steps[outcome.index] if state is None else state.step
        question = as_question(step.test) if state is None else state.question
        has_run, waited, calls = False, 0.0, 0
        if not isinstance(outcome, NotRun | Blocked):
            has_run, waited = True, outcome.waited
            calls = outcome.calls + (0 if chain is None else chain.recalled)
        wait_s = sum(waits.values()) or waited
        result = attrs.evolve(
            result_of(question, outcome, failed_fast=self._events.failed_fast),
            wait_s=wait_s if wait_s or (has_run and chain is not None) else None,
            attempts=calls,
            events=self._events.of(outcome.index),
        )
        if chain is not None:
            result = attrs.evolve(
                result,
                tokens_total=tokens_of(chain),
                wall_time_s=chain.elapsed(0.0) if has_run else None,
                steps=chain.steps,
                tool_calls=dict(chain.tool_calls),
            )
        if self._settings.fail_fast and result.outcome in FATAL:
            self._fail_fast(outcome.index)
        row = Row(
            index=outcome.index,
            step=step,
            provider=self._steps.suite.providers[step.column.provider_index],
            status=_STATUSES.get(result.outcome) or Status.without_verdict(NAMES[type(outcome)]),
            prompt=None if state is None else self._prompt(question),
            reply=None if chain is None else chain.reply(),
            output=None if state is None else state.output,
            verdict=result.verdict,
            error=row_error(result, outcome, failed_fast=self._events.failed_fast),
            failure=provider_failure(outcome),
            outcome=NAMES[type(outcome)],
            cut=cut_of(outcome),
            lane=self._asker.lanes[step.provider_index],
            latency_ms=None if chain is None or not chain.steps else chain.latency_ms,
            wait_ms=waited * 1000,
            calls=calls,
            cached=chain is not None and 0 < chain.steps == chain.cached,
            waits=waits,
            lost=NOTHING_SPENT if chain is None else chain.failures.total,
            task=self._task,
            result=result,
        )
        return (row,)

    def _fail_fast(self, index: int) -> None:
        # A task that is already stopped was stopped for another reason.
        if not self._stop.is_set():
            self._events.failed_fast = index
            self._stop.set()

    def unstarted(self, jobs: range) -> UnstartedRows | None:
        """Return the rows of questions that were never started and have no state."""
        behind = min((index for index in self._states if index in jobs), default=jobs.stop)
        rows = range(jobs.start, behind)
        return UnstartedRows(len(rows), rows, rows_by_column(self._steps, rows)) if rows else None

    def on_emitted(self, row: Row) -> None:
        """Do nothing: rows leave no state for later ones."""
