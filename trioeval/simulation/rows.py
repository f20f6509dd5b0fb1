"""The rows of a prepared task as jobs of a simulation: nothing is rendered, and no provider is opened.

The lane of a row follows from its position alone, so a million rows cost no more than their numbers. The
judges of a row follow from its test; of very many tests, evenly spaced ones stand for all others.

Order, serial rows, comparisons, conversations and registers are those of the real plan.
"""

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.evaluation.graders import SEARCHING_KINDS
from trioeval.evaluation.groups import GroupReadiness, Layout, timeout_of
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.grading import Assertion
from trioeval.grading.algebra import leaves
from trioeval.grading.judge_calls import judge_calls
from trioeval.grading.kind import ComparisonJudge
from trioeval.grading.registry import split_type
from trioeval.kernel import Edge, Job, Plan, Readiness
from trioeval.providers import ProviderSpec
from trioeval.sequences import LazySequence
from trioeval.simulation.datasets import SimulatedDataset, dataset_of
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.merge import merged
from trioeval.suite.model import Test

MOST_TESTS = 2000
"""The most tests that are read for their judges; of more, evenly spaced ones are read."""
_PROMPTS = 50
"""Prompts of each provider whose length is measured."""

JudgeQuestions: TypeAlias = tuple[int, int]
"""The index of a judge among the providers, and the calls of one assertion."""


@attrs.frozen
class TestCalls:
    """The calls of the rows of one test."""

    asks: bool
    """False if the test has its output already."""
    judges: tuple[JudgeQuestions, ...] = ()
    """One for each assertion that a model judges."""
    comparisons: tuple[JudgeQuestions, ...] = ()
    """The same for assertions that compare the outputs of a group."""
    turns: int = 0
    """The most messages of a simulated user, each of which gets a reply."""
    begins: bool = False
    """True if the initial messages of a conversation end with one of the user."""


@attrs.define  # not frozen: every row has one
class SimulatedRow:
    """The payload of a job: a row, or the comparison of a group of rows."""

    index: int
    """The index of the row; of a comparison, that of the first row of its group."""
    provider: int
    """The index of its provider."""
    place: int
    """The index of its test."""
    compares: bool = False
    user: int | None = None
    """The index of the provider that plays a simulated user; None without one."""


@attrs.frozen
class SimulatedJobs(LazySequence[Job[SimulatedRow]]):
    """The jobs of a task, made on access from their positions."""

    steps: Expansion
    lanes: Sequence[Sequence[str]]
    """The lanes of each provider."""
    layout: Layout
    comparison_lanes: Callable[[int, Sequence[str]], Sequence[str]]
    """Returns the lanes on which the comparison of a test may start; by default those of its first row."""
    size: int
    """The number of jobs, which may be fewer than the task has."""
    _firsts: tuple[int, ...] = attrs.field(init=False)
    _timeout: float = attrs.field(init=False)
    _compares: bool = attrs.field(init=False)

    @_firsts.default
    def _find_firsts(self) -> tuple[int, ...]:
        return tuple(stretch.first_index for stretch in self.steps.stretches)

    @_timeout.default
    def _find_timeout(self) -> float:
        return timeout_of(self.steps)

    @_compares.default
    def _find_compares(self) -> bool:
        return self.layout.compares

    def __len__(self) -> int:
        return self.size

    def entry(self, index: int) -> Job[SimulatedRow]:
        """Return the job with an index."""
        step: int | None = index
        if self._compares:
            step = self.layout.step(index)
            group = self.layout.group(index)
            if step is None and group is not None:
                row = attrs.evolve(self._row(group.start), compares=True)
                lanes = self.comparison_lanes(row.place, self.lanes[row.provider])
                return Job(index, lanes[index % len(lanes)], row, self._timeout)
        row = self._row(index if step is None else step)
        lanes = self.lanes[row.provider]
        return Job(index, lanes[index % len(lanes)], row, self._timeout)

    def _row(self, index: int) -> SimulatedRow:
        stretch = self.steps.stretches[bisect.bisect_right(self._firsts, index) - 1]
        shape = stretch.shape
        nth, within = divmod(index - stretch.first_index, shape.steps)
        provider = shape.provider_index
        if provider is None:
            column = shape.columns[within % len(shape.columns)]
            provider = self.steps.columns[column].provider_index
        user = None if shape.user is None else shape.user.place
        return SimulatedRow(index, provider, stretch.first_place + nth, user=user)


@attrs.define(eq=False, repr=False)
class SimulatedTask:
    """One task of a suite, for any number of simulations."""

    part: PreparedTask
    rows: int
    """The number of its rows that are simulated, from the first."""
    needs: Mapping[int, Sequence[Edge]] = attrs.field(factory=dict)
    """The rows of agents that wait for others."""
    _tests: dict[int, TestCalls] = attrs.field(init=False, factory=dict)
    _stride: float = attrs.field(init=False)
    _layout: Layout = attrs.field(init=False)

    @_stride.default
    def _find_stride(self) -> float:
        return max(1.0, len(self.prepared.steps.tests) / MOST_TESTS)

    @_layout.default
    def _find_layout(self) -> Layout:
        return Layout.of(self.prepared.steps.spans)

    @property
    def prepared(self) -> PreparedSuite:
        """The suite of the task."""
        return self.part.prepared

    @property
    def all_rows(self) -> int:
        """The number of rows of the task."""
        return len(self.prepared.steps)

    @property
    def is_agent(self) -> bool:
        """True if each row makes several calls to its provider, one after another."""
        return self.prepared.suite.settings.type == "agent"

    @property
    def is_whole(self) -> bool:
        """True if all of its rows are simulated."""
        return self.rows == len(self.prepared.steps)

    def first(self, rows: int) -> "SimulatedTask":
        """Return the task with its first rows only; with all of them if they depend on each other."""
        if self.prepared.order is not None or self._layout.compares or self.needs:
            rows = len(self.prepared.steps)
        return attrs.evolve(self, rows=rows)

    def plan(self, lanes: Sequence[Sequence[str]]) -> Plan[SimulatedRow]:
        """Return the jobs.

        Args:
            lanes: The lanes of each provider, including judges; its rows take turns on several.
        """
        layout, order = self._layout, self.prepared.order

        def comparison_lanes(place: int, own: Sequence[str]) -> Sequence[str]:
            for judge, _ in self.calls_of(place).comparisons:
                return lanes[judge]
            return own

        def compared() -> Readiness:
            return GroupReadiness(layout, None if order is None else order())

        steps = self.prepared.steps
        size = len(layout) if self.is_whole else self.rows
        serial = [layout.job(step) for step in steps.serial_indices if step < self.rows]
        places = range(len(lanes)) if layout.compares else steps.used_providers
        return Plan(
            SimulatedJobs(steps, lanes, layout, comparison_lanes, size),
            sorted({lane for place in places for lane in lanes[place]}),
            serial,
            edges=self.needs,
            readiness=compared if layout.compares else order,
            needs_no_lane=None if self._all_ask() else self._needs_no_lane,
        )

    def called(self) -> Iterator[tuple[int, ProviderSpec]]:
        """Yield the providers and judges that it may call, with their indices."""
        prepared = self.prepared
        judges = range(len(prepared.steps.providers), len(prepared.specs))
        users = {
            stretch.shape.user.place
            for stretch in prepared.steps.stretches
            if stretch.shape.user is not None
        }
        for place in (*sorted({*prepared.steps.used_providers, *users}), *judges):
            yield place, prepared.specs[place]

    def calls_of(self, place: int) -> TestCalls:
        """Return the calls of a test, or of the one that stands for it."""
        if self._stride > 1:
            place = int(int(place / self._stride) * self._stride)
        found = self._tests.get(place)
        if found is None:
            found = self._tests[place] = self._read(place)
        return found

    def prompts(self, provider: int) -> Sequence[str]:
        """Return texts about as long as some prompts of a provider, from evenly spaced rows."""
        steps = self.prepared.steps
        size = len(steps)
        texts = []
        for number in range(min(size, 4 * _PROMPTS)):
            step = steps.entry(number * size // min(size, 4 * _PROMPTS))
            if step.provider_index == provider:
                values = (str(value) for value in step.vars.values())
                texts.append("".join([step.template, *values]))
            if len(texts) == _PROMPTS:
                break
        return texts

    def _read(self, place: int) -> TestCalls:
        prepared = self.prepared
        suite = prepared.suite
        test = merged(suite.default_test, prepared.steps.tests[place])
        judges: list[JudgeQuestions] = []
        comparisons: list[JudgeQuestions] = []
        for _, assertion in leaves(test.assertions):
            kind = suite.kinds.get(split_type(assertion.type)[0])
            if kind is None:
                continue
            compares = isinstance(kind.judge, ComparisonJudge)
            (comparisons if compares else judges).extend(self._questions(test, assertion))
        user = None if test.provider is None else test.provider.user
        if user is None:
            return TestCalls(test.provider_output is None, tuple(judges), tuple(comparisons))
        return TestCalls(
            test.provider_output is None,
            tuple(judges),
            tuple(comparisons),
            int(user.max_turns),
            begins=bool(user.initial_messages) and user.initial_messages[-1].role == "user",
        )

    def _questions(self, test: Test, assertion: Assertion) -> Iterator[JudgeQuestions]:
        prepared = self.prepared
        suite = prepared.suite
        name = split_type(assertion.type)[0]
        lenient = suite.evaluate_options.grading == "lenient"
        for role, count in judge_calls(assertion, suite.kinds[name], lenient=lenient):
            place = prepared.graders.place(
                assertion,
                test.options.provider,
                suite.default_test,
                role,
                searches=name in SEARCHING_KINDS,
            )
            if isinstance(place, int):
                yield len(prepared.steps.providers) + place, count.usual

    def _all_ask(self) -> bool:
        tests = self.prepared.steps.tests
        count = min(len(tests), MOST_TESTS)
        return all(self.calls_of(number * len(tests) // count).asks for number in range(count))

    def _needs_no_lane(self, job: Job[SimulatedRow]) -> bool:
        return not job.payload.compares and not self.calls_of(job.payload.place).asks


def simulated_tasks(prepared: PreparedSuite) -> list[SimulatedTask | SimulatedDataset]:
    """Return the tasks of a suite, with all of their rows.

    Raises:
        SuiteError: A task cannot be simulated.
    """
    problems: list[Problem] = []
    sizes: dict[str | None, int] = {}
    found: list[SimulatedTask | SimulatedDataset] = []
    for part in prepared.parts:
        task = _simulated_task(part, sizes)
        if isinstance(task, str):
            path = "$" if part.place is None else f"$.tasks[{part.place}]"
            problems.append(Problem(path, task, "choose other tasks with --task"))
            continue
        if isinstance(task, SimulatedDataset):
            sizes[part.id] = task.rows
        found.append(task)
    if problems:
        raise SuiteError(problems)
    return found


def _simulated_task(
    part: PreparedTask, sizes: Mapping[str | None, int]
) -> SimulatedTask | SimulatedDataset | str:
    """Return a task, or the reason why it cannot be simulated.

    Args:
        part: The task.
        sizes: The rows of the datasets before it, by id.

    Raises:
        SuiteError: A seed file cannot be read, or a row of the dataset is not a valid test.
    """
    if part.prepared.suite.settings.type == "columns":
        return dataset_of(part, sizes)
    if part.prepare_with_rows is not None:
        rows_of = part.prepared.suite.rows_of
        if rows_of is None or rows_of.task not in sizes:
            source = "another task" if rows_of is None else f"task {rows_of.task}"
            return f"its tests are the rows of {source}, whose number only a run shows"
        rows = RepeatedRow(sizes[rows_of.task])
        prepared = part.prepare_with_rows(rows)
        part = attrs.evolve(part, prepared=prepared, prepare_with_rows=None, source_rows=rows)
    is_agent = part.prepared.suite.settings.type == "agent"
    return SimulatedTask(part, part.rows or 0, _needs_of(part.prepared.steps) if is_agent else {})


@attrs.frozen
class RepeatedRow(LazySequence[Mapping[str, Any]]):
    """The rows of a dataset whose values only a run makes: each has every column, as the same short text."""

    size: int

    def __len__(self) -> int:
        return self.size

    def entry(self, index: int) -> Mapping[str, Any]:
        """Return a row."""
        del index
        return _AnyColumn()


class _AnyColumn(dict[str, Any]):
    """A row with every column."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return name


def _needs_of(steps: Expansion) -> Mapping[int, Sequence[Edge]]:
    """Return the rows that each row of an agent waits for: the cases on which its case depends."""
    from trioeval.agent.model import case_of

    cases = map(case_of, steps.tests)
    if not any(case is not None and case.depends_on for case in cases):
        return {}
    keys = [_case_key(step) for step in steps]
    rows = {key: index for index, key in enumerate(keys)}
    found: dict[int, Sequence[Edge]] = {}
    for index, (step, key) in enumerate(zip(steps, keys, strict=True)):
        case = case_of(step.test)
        if case is None or not case.depends_on:
            continue
        when: Literal["success", "always"] = "success" if case.when_failed == "skip" else "always"
        needed = (rows.get((*key[:-1], name)) for name in case.depends_on)
        found[index] = [Edge(on, when) for on in needed if on is not None]
    return found


def _case_key(step: Step) -> tuple[int, int, str]:
    """Return the column of the plan that a row belongs to, and the name of its case."""
    from trioeval.agent.model import case_of

    case = case_of(step.test)
    return step.prompt_idx, step.repeat_index, "" if case is None else case.name
