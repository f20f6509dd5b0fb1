"""The task type `prompt_eval`: prompts × providers × tests × repeat, one job each.

`PromptEval` is the pure plan and the body of its jobs. A reply is written down in the step in which it
arrives, before anything else is awaited: whatever then befalls the row, a paid reply stands in it.
"""

from collections.abc import Sequence
from typing import overload

import attrs
import trio

from trioeval.errors import ProviderError, TrioevalError
from trioeval.grading import Verdict, grade
from trioeval.kernel import (
    Blocked,
    Calls,
    Cut,
    Done,
    Failed,
    Interrupted,
    Job,
    Metered,
    NotRun,
    Outcome,
    Plan,
    TimedOut,
)
from trioeval.providers import OpenProvider, Reply, Request, Usage
from trioeval.suite import Expansion, Step, Suite, Templates
from trioeval.tasks.metering import Estimate, Meter
from trioeval.tasks.rows import Row, Status


@attrs.define
class _Known:
    """What is known of a row under way."""

    step: Step
    prompt: str | None = None
    reply: Reply | None = None
    latency_ms: float | None = None


@attrs.frozen
class _StepJobs(Sequence[Job[Step]]):
    """The jobs of an expansion, made when they are looked at."""

    steps: Expansion
    lanes: tuple[str, ...]
    timeout: float

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Job[Step]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job[Step]]: ...
    def __getitem__(self, index: int | slice) -> Job[Step] | Sequence[Job[Step]]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        step = self.steps[index]
        return Job(step.index, self.lanes[step.column.provider_index], step, self.timeout)


class PromptEval:
    """One prompt evaluation, bound to its providers and lanes; good for one run.

    Args:
        suite: The suite.
        steps: Its expansion.
        providers: Open providers, in the order of `suite.providers`.
        lanes: The name of each provider's lane, in the same order.
        templates: What renders the prompts.
        meter: What says how much calls may use.
    """

    def __init__(
        self,
        suite: Suite,
        steps: Expansion,
        providers: Sequence[OpenProvider],
        lanes: Sequence[str],
        *,
        templates: Templates,
        meter: Meter,
    ) -> None:
        self._suite = suite
        self._steps = steps
        self._providers = providers
        self._lanes = tuple(lanes)
        self._templates = templates
        self._meter = meter
        self._known: dict[int, _Known] = {}

    def plan(self) -> Plan[Step]:
        """The jobs. Lazy: a step becomes an object when its job starts."""
        timeout_ms = self._suite.evaluate_options.timeout_ms
        timeout = float("inf") if timeout_ms is None else timeout_ms / 1000
        jobs = _StepJobs(self._steps, self._lanes, timeout)
        used = {self._lanes[column.provider_index] for column in self._steps.columns}
        return Plan(jobs, sorted(used), self._steps.serial_indices)

    async def perform(self, job: Job[Step], calls: Calls[Step]) -> Verdict:
        """The body of a job: render, ask, grade.

        Raises:
            TemplateError: The prompt cannot be rendered.
            ProviderError: The provider failed, or answered nothing.
            GradingError: An assertion could not be evaluated.
        """
        step = job.payload
        known = self._known[job.index] = _Known(step)
        known.prompt = self._templates.render(step.column.prompt.raw, step.vars)
        estimate = self._meter.estimate(step.column.provider_index, known.prompt)
        reply = await calls(
            job.lane,
            self._ask,
            known,
            known.prompt,
            estimate,
            tokens=estimate.tokens,
            money=estimate.money,
        )
        if reply.output is None:
            msg = "the reply has no output"
            raise ProviderError("empty_reply", msg)
        return grade(
            reply.output,
            step.test.assertions,
            threshold=step.test.threshold,
            render=lambda text: self._templates.render(text, step.vars),
        )

    def row(self, outcome: Outcome[Verdict]) -> Row:
        """The row of a job that is over. Each outcome is given once."""
        known = self._known.pop(outcome.index, None) or _Known(self._steps[outcome.index])
        step = known.step
        verdict = outcome.value if isinstance(outcome, Done) else None
        status = Status.ERROR
        if verdict is not None:
            status = Status.PASS if verdict.passed else Status.FAIL
        waited, calls = 0.0, 0
        if not isinstance(outcome, NotRun | Blocked):
            waited, calls = outcome.waited, outcome.calls
        return Row(
            index=outcome.index,
            step=step,
            provider=self._suite.providers[step.column.provider_index],
            status=status,
            prompt=known.prompt,
            reply=known.reply,
            verdict=verdict,
            error=_explain(outcome),
            failure=_failure(outcome),
            outcome=_NAMES[type(outcome)],
            lane=self._lanes[step.column.provider_index],
            latency_ms=known.latency_ms,
            wait_ms=waited * 1000,
            calls=calls,
        )

    async def _ask(self, known: _Known, prompt: str, estimate: Estimate) -> Metered[Reply]:
        step = known.step
        position = step.column.provider_index
        request = Request(
            prompt=prompt,
            vars=step.vars,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        started_at = trio.current_time()
        reply = await self._providers[position](request)
        known.reply = reply
        known.latency_ms = (trio.current_time() - started_at) * 1000
        self._meter.learn(position, estimate, reply.usage)
        return Metered(reply, tokens=_used(reply.usage), money=reply.cost, hint=reply.hint)


def _used(usage: Usage) -> int | None:
    """All tokens of a call; None if its provider tells neither their number nor its parts."""
    if usage.total is not None or usage.prompt is None or usage.completion is None:
        return usage.total
    return usage.prompt + usage.completion


_NAMES = {
    Done: "done",
    Failed: "failed",
    TimedOut: "timed_out",
    Interrupted: "interrupted",
    Blocked: "blocked",
    NotRun: "not_run",
}

_CUTS = {
    Cut.DEADLINE: "the run's deadline (maxEvalTimeMs) passed",
    Cut.STOP: "the run was stopped",
    Cut.CANCEL: "the run was cancelled",
    Cut.LANE: "its lane is closed",
    Cut.BUDGET: "the budget of the run is used up",
    Cut.FAULT: "the run itself failed",
}


def _failure(outcome: Outcome[Verdict]) -> ProviderError | None:
    if isinstance(outcome, Failed) and isinstance(outcome.error, ProviderError):
        return outcome.error
    return None


def _explain(outcome: Outcome[Verdict]) -> str | None:
    """Why there is no verdict, or why it is not a pass."""
    match outcome:
        case Done():
            return None if outcome.value.passed else outcome.value.reason
        case Failed():
            if isinstance(outcome.error, TrioevalError):
                return str(outcome.error)
            return f"{type(outcome.error).__name__}: {outcome.error}"
        case TimedOut():
            return f"timed out after {outcome.timeout:g} s of working time (timeoutMs)"
        case Interrupted():
            return f"interrupted: {_CUTS[outcome.cut]}"
        case Blocked():
            return f"blocked by row {outcome.by}"
        case NotRun():
            more = "" if outcome.reason is None else f": {outcome.reason}"
            return f"not run: {_CUTS[outcome.cut]}{more}"
