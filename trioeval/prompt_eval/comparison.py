"""A prompt evaluation whose tests compare the outputs of their columns.

The steps are those of `PromptEval`, which is unaware of comparisons; each group of steps is followed by a job
that compares. The rows of a group are held back until that job has ended, so that each row is reported once,
complete. A row that loses a comparison fails; if the comparison fails with an error, the rows of the group
have no verdict, and keep their replies.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import attrs

from trioeval.errors import GradingError
from trioeval.evaluation.grader_calls import OpenGraders
from trioeval.evaluation.groups import Group, GroupReadiness, Layout
from trioeval.evaluation.judging import (
    AssertionServices,
    JudgingContext,
    grader_metadata,
    is_transient,
    judge_error,
)
from trioeval.evaluation.outcomes import (
    NAMES,
    cut_of,
    explain,
    grading_details,
    provider_failure,
    refusal_in,
    with_refusals,
)
from trioeval.evaluation.row import Row
from trioeval.evaluation.status import Status
from trioeval.evaluation.task_run import UnstartedRows
from trioeval.evaluation.waits import NO_WAITS, sum_waits
from trioeval.grading import COMPARISONS, Assertion, JudgeUsage, Verdict
from trioeval.grading.comparison import with_comparisons
from trioeval.grading.grade import grading_error, make_ready, ungraded, verdict_of
from trioeval.grading.kind import ComparisonJudge, Contender, findings_of
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import Calls, Done, Failed, Job, Outcome, Plan, TimedOut
from trioeval.prompt_eval.task import PromptEval
from trioeval.sequences import LazySequence
from trioeval.suite.expand import Expansion, Step
from trioeval.text import counted

_FEWEST = 2
"""The minimum number of outputs that can be compared."""

Work: TypeAlias = Step | Group
"""The payload of a job."""


@attrs.frozen
class ComparisonResults:
    """The results of comparisons for the rows of one group."""

    verdicts: Mapping[int, Mapping[int, Verdict]]
    """By the index of the step, then by the index of the assertion."""


JobResult: TypeAlias = Verdict | ComparisonResults


@attrs.define
class _GroupState:
    """The state of a group."""

    verdicts: dict[int, Verdict] = attrs.field(factory=dict)
    """By the index of the step; only of steps with a verdict."""
    benches: dict[int, Callable[[Calls[Work]], JudgingContext]] = attrs.field(factory=dict)
    consulted: dict[tuple[int, int], AssertionServices] = attrs.field(factory=dict)
    """By the index of the step that is charged, and the index of the assertion."""
    useless: set[tuple[int, int]] = attrs.field(factory=set)
    """The keys of `consulted` whose replies resulted in no verdict."""
    rows: list[Row] = attrs.field(factory=list)
    """The rows that are held back."""


@attrs.frozen
class _ComparisonJobs(LazySequence[Job[Work]]):
    """The jobs of a layout, made on access."""

    layout: Layout
    steps: Sequence[Job[Step]]
    lane: Callable[[Step], str]
    """Returns the lane on which the comparison of a group starts, from the first step of the group."""

    def __len__(self) -> int:
        return len(self.layout)

    def entry(self, index: int) -> Job[Work]:
        step = self.layout.step(index)
        group = self.layout.group(index)
        if step is not None or group is None:
            job = self.steps[index if step is None else step]
            return Job(index, job.lane, job.payload, job.timeout)
        first = self.steps[group.start]
        return Job(index, self.lane(first.payload), group, first.timeout)


class ComparedEval:
    """A prompt evaluation with comparisons, for a single run.

    Args:
        body: Runs its steps.
        steps: The steps.
        layout: The assignment of jobs to steps and comparisons.
        lanes: The lane of each provider, including judges.
        graders: The judges.
    """

    def __init__(
        self,
        body: PromptEval,
        steps: Expansion,
        layout: Layout,
        lanes: Sequence[str],
        graders: OpenGraders,
    ) -> None:
        self._body = body
        self._steps = steps
        self._lanes = lanes
        self._graders = graders
        self._layout = layout
        self._groups: dict[int, _GroupState] = {}

    def plan(self) -> Plan[Work]:
        """Return the plan: the jobs of the steps, and one after each group that is compared."""
        plan, layout = self._body.plan(), self._layout
        return Plan(
            _ComparisonJobs(layout, plan.jobs, self._lane),
            list(dict.fromkeys([*plan.lanes, *sorted(self._lanes)])),
            [layout.job(step) for step in plan.serial_indices],
            readiness=lambda: GroupReadiness(layout, plan.readiness and plan.readiness()),
            needs_no_lane=None
            if plan.needs_no_lane is None
            else functools.partial(_needs_no_lane, plan.needs_no_lane),
        )

    async def perform(self, job: Job[Work], calls: Calls[Work]) -> JobResult:
        """Run the body of a job: a step, or the comparison of a group.

        Raises:
            TrioevalError: The step failed; `GradingError` if a group cannot be compared.
        """
        if isinstance(job.payload, Group):
            return await self._compare(job.payload, calls)
        own = _own(job, job.payload)
        step = own.payload
        verdict = await self._body.perform(own, cast("Calls[Step]", calls))
        if (group := self._layout.group(job.index)) is not None:
            rows = self._groups.setdefault(group.job, _GroupState())
            rows.verdicts[step.index] = verdict
            rows.benches[step.index] = self._body.bench(step.index)
        return verdict

    def rows(
        self, outcome: Outcome[JobResult], waits: Mapping[str, float] = NO_WAITS
    ) -> Sequence[Row]:
        """Return the rows that are complete now: that of a step, or those of a group.

        The outcome of a comparison comes after those of its group, which come in any order. The first of the
        rows with a verdict is charged for the comparison and its waits.
        """
        step, group = self._layout.step(outcome.index), self._layout.group(outcome.index)
        if step is not None:
            own = cast("Outcome[Verdict]", attrs.evolve(outcome, index=step))
            found = self._body.rows(own, waits)
            if group is None:
                return found
            self._groups.setdefault(group.job, _GroupState()).rows += found
            return ()
        outcome = with_refusals(outcome, has_started=True)
        state = self._groups.pop(outcome.index, _GroupState())
        consulted = [one for _, one in sorted(state.consulted.items(), key=lambda item: item[0])]
        spent = [one.spent() for one in consulted]
        if isinstance(outcome, Done | Failed | TimedOut):
            for whom in sorted(state.useless & state.consulted.keys()):
                state.consulted[whom].reject()
        in_order = sorted(state.rows, key=lambda row: row.index)
        rows = [_with_comparison(row, outcome, grader_metadata(consulted)) for row in in_order]
        for place, row in enumerate(rows):
            if row.index in state.verdicts:
                rows[place] = attrs.evolve(
                    row,
                    spent=JudgeUsage.sum([row.spent, *spent]),
                    waits=sum_waits(row.waits, waits),
                )
                break
        return rows

    def unstarted(self, jobs: range) -> UnstartedRows | None:
        """Return the rows of whole groups that were never started, and of steps without comparison."""
        taken, rows = self._layout.whole(jobs)
        started_group = min((job for job in self._groups if job in jobs), default=None)
        if started_group is not None:
            group = self._layout.group(started_group)
            first = jobs.start if group is None else started_group - (group.stop - group.start)
            taken, rows = self._layout.whole(range(jobs.start, max(jobs.start, first)))
        if not rows:
            return None
        # Steps with records have rows of their own.
        found = self._body.unstarted(rows)
        return None if found is None or found.rows != rows else attrs.evolve(found, jobs=taken)

    def on_emitted(self, row: Row) -> None:
        """Note that a row and all rows before it were emitted."""
        self._body.on_emitted(row)

    def _lane(self, step: Step) -> str:
        """Return the lane on which the comparison of a group starts: that of its judge, if it has one."""
        for assertion in step.test.assertions:
            kind = self._steps.suite.kinds.get(assertion.type)
            if kind is not None and isinstance(kind.judge, ComparisonJudge) and kind.roles:
                lane = self._graders.lane(assertion, step.test.options.provider)
                if lane is not None:
                    return lane
        return self._lanes[step.provider_index]

    async def _compare(self, group: Group, calls: Calls[Work]) -> ComparisonResults:
        state = self._groups.setdefault(group.job, _GroupState())
        found: dict[int, dict[int, Verdict]] = {step: {} for step in state.verdicts}
        for place, assertion in enumerate(self._steps[group.start].test.assertions):
            if assertion.type not in COMPARISONS:
                continue
            try:
                verdicts = await self._chosen(place, assertion, group, state, calls)
            except Exception as error:
                payer = min(state.verdicts, default=group.start)
                judge_failure = judge_error(error, state.consulted.get((payer, place)))
                is_refused = refusal_in(error) is not None
                if not is_refused and not is_transient(judge_failure):
                    state.useless.add((payer, place))
                if is_refused or assertion.weight:
                    raise grading_error(assertion, (place,), judge_failure) from error
                verdicts = dict.fromkeys(found, ungraded(assertion, judge_failure))
            else:
                state.useless.discard((min(state.verdicts), place))
            for step, verdict in verdicts.items():
                found[step][place] = verdict
        return ComparisonResults(found)

    async def _chosen(
        self, place: int, assertion: Assertion, group: Group, state: _GroupState, calls: Calls[Work]
    ) -> Mapping[int, Verdict]:
        """Return the verdicts of one comparison for all steps that have a verdict."""
        if len(state.verdicts) < _FEWEST:
            rows = counted(group.stop - group.start, "row")
            msg = f"{len(state.verdicts)} of {rows} can be compared; the others have no verdict"
            raise GradingError(msg)
        order = sorted(state.verdicts)
        benches = [state.benches[step](calls) for step in order]
        first = benches[0]
        ready = make_ready(assertion, first.render, first.kinds)
        judge = ready.kind.judge
        if not isinstance(judge, ComparisonJudge):
            msg = f"{assertion.type} does not compare rows"
            raise GradingError(msg)
        consulted = state.consulted.get((order[0], place))
        if consulted is None:
            consulted = state.consulted[order[0], place] = first.services_for(assertion)
        there = {
            step: Contender(bench.subject, state.verdicts[step])
            for step, bench in zip(order, benches, strict=True)
        }
        contenders = [there.get(step) for step in range(group.start, group.stop)]
        found = await judge.judge(contenders, ready.value, ready.assertion, consulted.outside)
        findings = findings_of(found, judge.judge, ready.assertion, len(there))
        # The first row is charged for all.
        paid = [consulted.spent(), *[NOTHING_SPENT] * (len(order) - 1)]
        return {
            step: verdict_of(ready, finding, spent)
            for step, finding, spent in zip(order, findings, paid, strict=True)
        }


def _needs_no_lane(of_step: Callable[[Job[Step]], bool], job: Job[Work]) -> bool:
    return isinstance(job.payload, Step) and of_step(_own(job, job.payload))


def _own(job: Job[Work], step: Step) -> Job[Step]:
    """Return the job of a step as `PromptEval` numbers it."""
    return Job(step.index, job.lane, step, job.timeout)


def _with_comparison(row: Row, outcome: Outcome[JobResult], replies: Mapping[str, Any]) -> Row:
    """Return a row after the comparison of its group, with the judges' replies."""
    if row.verdict is None:
        return row
    if not (isinstance(outcome, Done) and isinstance(outcome.value, ComparisonResults)):
        failed = cast("Outcome[Verdict]", outcome)
        why = explain(failed)
        return attrs.evolve(
            row,
            status=Status.without_verdict(NAMES[type(outcome)]),
            verdict=None,
            graded=row.verdict.parts,
            error=why if isinstance(failed, Failed) else f"not compared with other rows: {why}",
            failure=provider_failure(failed),
            details={**grading_details(failed), **replies},
            outcome=NAMES[type(outcome)],
            cut=cut_of(outcome),
        )
    verdict = with_comparisons(row.verdict, outcome.value.verdicts.get(row.index, {}))
    return attrs.evolve(
        row,
        status=Status.PASS if verdict.passed else Status.FAIL,
        verdict=verdict,
        error=None if verdict.passed else verdict.reason,
    )
