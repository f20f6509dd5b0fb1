"""The task type `prompt_eval`: prompts × providers × tests × repeat, one job each.

`PromptEval` is the pure plan and the body of its jobs. A reply is written down in the step in which it
arrives, before anything else is awaited: whatever then befalls the row, a paid reply stands in it.
"""

from collections.abc import Callable, Sequence
from typing import Any, overload

import attrs
import trio

from trioeval.errors import GradingError, InputError, ProviderError
from trioeval.grading import Verdict
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Failed,
    Interrupted,
    Job,
    Metered,
    NotRun,
    Outcome,
    Plan,
    Readiness,
    TimedOut,
)
from trioeval.providers import OpenProvider, Reply, Request
from trioeval.suite import Expansion, Step
from trioeval.tasks.endings import NAMES, explain, grading_details, provider_failure
from trioeval.tasks.grader_calls import RowGraders
from trioeval.tasks.hooks import Hooks
from trioeval.tasks.judges import Judges
from trioeval.tasks.judging import Bench, Judging
from trioeval.tasks.metering import Estimate, Meter, tokens_used
from trioeval.tasks.rows import Row, Status
from trioeval.tasks.tools import Asked, Tools


@attrs.define
class _Known:
    """What is known of a row under way."""

    step: Step
    asked: Asked | None = None
    reply: Reply | None = None
    output: Any = None
    """The reply's output, transformed."""
    latency_ms: float | None = None
    graders: RowGraders | None = None
    judging: Judging | None = None
    ending: Done[Verdict] | Failed | None = None
    """How it ended, before extensions are told of that."""


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
        return Job(step.index, self.lanes[step.provider_index], step, self.timeout)


class PromptEval:
    """One prompt evaluation, bound to its providers and lanes; good for one run.

    Args:
        steps: The expansion of the suite.
        providers: Open providers, in the order of `steps.providers`.
        lanes: The name of each provider's lane, in the same order.
        tools: What makes prompts and outputs.
        judges: What judges outputs.
        meter: What says how much calls may use.
        order: In which order steps may start.
        task: Which task of its suite it is, where that has several.
        hooks: What is told of rows, and may change them.
    """

    def __init__(
        self,
        steps: Expansion,
        providers: Sequence[OpenProvider],
        lanes: Sequence[str],
        *,
        tools: Tools,
        judges: Judges,
        meter: Meter,
        order: Callable[[], Readiness] | None = None,
        task: str | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._steps = steps
        self._providers = providers
        self._lanes = tuple(lanes)
        self._tools = tools
        self._judges = judges
        self._meter = meter
        self._order = order
        self._task = task
        self._hooks = hooks
        self._known: dict[int, _Known] = {}

    def plan(self) -> Plan[Step]:
        """The jobs. Lazy: a step becomes an object when its job starts."""
        timeout_ms = self._steps.suite.evaluate_options.timeout_ms
        timeout = timeout_ms / 1000 if timeout_ms else float("inf")
        jobs = _StepJobs(self._steps, self._lanes, timeout)
        used = {self._lanes[provider] for provider in self._steps.used_providers}
        return Plan(jobs, sorted(used), self._steps.serial_indices, readiness=self._order)

    async def perform(self, job: Job[Step], calls: Calls[Step]) -> Verdict:
        """The body of a job: make the prompt, ask, transform, grade, and leave the output to others.

        Raises:
            InputError: The test, or a variable of it, cannot be used.
            TemplateError: The prompt cannot be rendered.
            ProviderError: The provider failed, or answered nothing.
            ScriptError: Code of the suite failed.
            GradingError: An assertion could not be evaluated.
        """
        known = self._begun(job)
        if self._hooks is None:
            return await self._judge(job, calls, known)
        if known.judging is None:
            known.step = await self._hooks.before_each(job.payload)
        outcome: Done[Verdict] | Failed
        try:
            outcome = Done(job.index, 0, 0, 0, 0, await self._judge(job, calls, known))
        except Exception as error:  # noqa: BLE001 - extensions are told of it, and it is raised again
            outcome = Failed(job.index, 0, 0, 0, 0, error)
        known.ending = outcome
        judged = await self._hooks.after_each(self._row(outcome, known))
        known.step, known.reply = judged.step, judged.reply
        if isinstance(outcome, Failed):
            raise outcome.error
        return judged.verdict or outcome.value

    def _begun(self, job: Job[Step]) -> _Known:
        """What is known of a row that begins: one that was judged before has all that was paid for."""
        known = self._known.get(job.index)
        if known is None or known.judging is None:
            known = self._known[job.index] = _Known(job.payload)
        known.ending = None
        return known

    async def _judge(self, job: Job[Step], calls: Calls[Step], known: _Known) -> Verdict:
        if known.judging is None:
            known.judging = await self._answered(job, calls, known)
        elif known.graders is not None:
            known.graders.resume(calls)
        verdict = await known.judging.run()
        self._tools.store(known.step, known.output)
        return verdict

    async def _answered(self, job: Job[Step], calls: Calls[Step], known: _Known) -> Judging:
        """What judges a row, whose provider has answered."""
        step = known.step
        if step.test.fault is not None:
            raise InputError(step.test.fault)
        asked = await self._tools.ask(step)
        known.asked = asked
        if step.test.provider_output is None:
            reply = await self._call(job, calls, known, asked)
        else:
            reply = known.reply = Reply(output=step.test.provider_output, cost=0.0)
            known.latency_ms = 0.0
        if reply.output is None:
            msg = "the reply has no output"
            raise ProviderError("empty_reply", msg)
        self._tools.remember_turn(step, asked, reply)
        output = await self._tools.transform(step, asked, reply)
        known.output = output
        known.graders = self._judges.graders.of_row(step, asked, calls)
        return self._judges.of(known.graders, reply, output, known.latency_ms)

    async def _call(self, job: Job[Step], calls: Calls[Step], known: _Known, asked: Asked) -> Reply:
        estimate = self._meter.estimate(known.step.provider_index, asked.prompt)
        return await calls(
            job.lane,
            self._send,
            known,
            asked,
            estimate,
            tokens=estimate.tokens,
            money=estimate.money,
        )

    def bench(self, index: int) -> Callable[[Calls[Any]], Bench]:
        """What makes that with which a row can be judged once more, by calls of another job.

        What it has asked is known to the next one that it makes, so that nothing is paid for twice.
        """
        known = self._known[index]
        asked, reply = known.asked, known.reply
        if asked is None or reply is None:
            msg = f"row {index} has no reply"
            raise GradingError(msg)
        graders: RowGraders | None = None

        def make(calls: Calls[Any]) -> Bench:
            nonlocal graders
            if graders is None:
                graders = self._judges.graders.of_row(known.step, asked, calls)
            else:
                graders.resume(calls)
            return self._judges.of(graders, reply, known.output, known.latency_ms).bench

        return make

    def rows(self, outcome: Outcome[Verdict]) -> Sequence[Row]:
        """The row of a job that is over. Each outcome is given once, in index order."""
        known = self._known.pop(outcome.index, None) or _Known(self._steps[outcome.index])
        if known.ending is not None and isinstance(outcome, TimedOut | Interrupted):
            outcome = self._without_hook(outcome, known.ending)
        row = self._row(outcome, known)
        self._tools.over(row.step)
        return (row,)

    def _without_hook(
        self, cut: TimedOut | Interrupted, ending: Done[Verdict] | Failed
    ) -> Outcome[Verdict]:
        """How a job ended that was cut off while extensions were told of that: as if there were none."""
        if self._hooks is not None:
            self._hooks.warn(f"afterEach of row {cut.index} was cut off: {explain(cut)}")
        return attrs.evolve(
            ending,
            started_at=cut.started_at,
            finished_at=cut.finished_at,
            waited=cut.waited,
            calls=cut.calls,
        )

    def _row(self, outcome: Outcome[Verdict], known: _Known) -> Row:
        step, asked = known.step, known.asked
        verdict = outcome.value if isinstance(outcome, Done) else None
        status = Status.ERROR
        if verdict is not None:
            status = Status.PASS if verdict.passed else Status.FAIL
        waited, calls = 0.0, 0
        if not isinstance(outcome, NotRun | Blocked):
            waited, calls = outcome.waited, outcome.calls
        unjudged = {} if verdict is not None or known.judging is None else known.judging.unjudged
        return Row(
            index=outcome.index,
            step=step,
            provider=self._steps.suite.providers[step.column.provider_index],
            status=status,
            prompt=None if asked is None else asked.prompt,
            reply=known.reply,
            output=known.output,
            verdict=verdict,
            error=explain(outcome),
            failure=provider_failure(outcome),
            outcome=NAMES[type(outcome)],
            lane=self._lanes[step.provider_index],
            latency_ms=known.latency_ms,
            wait_ms=waited * 1000,
            calls=calls,
            graded=() if verdict is not None or known.judging is None else known.judging.parts,
            spent=NOTHING_SPENT if known.graders is None else known.graders.spending.total,
            details={**grading_details(outcome), **unjudged},
            task=self._task,
        )

    async def _send(self, known: _Known, asked: Asked, estimate: Estimate) -> Metered[Reply]:
        step = known.step
        request = Request(
            prompt=asked.prompt,
            vars=asked.vars,
            options=asked.options,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        started_at = trio.current_time()
        reply = await self._providers[step.provider_index](request)
        known.reply = reply
        known.latency_ms = (trio.current_time() - started_at) * 1000
        self._meter.learn(step.provider_index, estimate, reply.usage)
        tokens = tokens_used(reply.usage)
        return Metered(reply, tokens=tokens, money=reply.cost, hint=reply.hint)
