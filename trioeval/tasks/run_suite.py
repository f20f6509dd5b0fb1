"""Runs a suite: opens its providers, expands it, and gives its rows in order.

The one call that the command line and Trio applications share. It reads the environment and the suite's
files before anything is asked of a provider, so that everything that is wrong with a suite is said first.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from trioeval.errors import Problem, SuiteError, UsageError
from trioeval.grading import Verdict
from trioeval.kernel import Budget, Lanes, LaneSpec, Observer, Outcome, run_plan
from trioeval.providers import Metering, Provider, ProviderSpec, Recorder, open_providers, resolve
from trioeval.providers.config import is_integer, to_snake
from trioeval.providers.local.replay import read_for_all
from trioeval.providers.secrets import hide, hide_in
from trioeval.suite import (
    BudgetSettings,
    Expansion,
    ProviderEntry,
    Suite,
    Templates,
    expand,
    load_suite,
    place_problems,
)
from trioeval.tasks.lanes import lane_names, lane_specs, merge_lane_specs
from trioeval.tasks.metering import Meter
from trioeval.tasks.prompt_eval import PromptEval
from trioeval.tasks.rows import Row, Status

_PRICE_EXAMPLE = '"config": {"price": {"input": 1, "output": 4}}'

Emit = Callable[[Row], Awaitable[None]]
"""What gets the rows, one after another."""


@attrs.frozen
class SuiteSummary:
    """How a suite ended, in numbers. Every row is in exactly one of the three."""

    passed: int
    failed: int
    errors: int
    duration: float
    """Seconds on the Trio clock."""

    @property
    def rows(self) -> int:
        """All rows."""
        return self.passed + self.failed + self.errors


@attrs.frozen
class PreparedSuite:
    """A suite whose providers are known to be right; nothing is open yet."""

    suite: Suite
    specs: tuple[ProviderSpec, ...]
    """In the order of `suite.providers`."""
    lane_specs: tuple[LaneSpec, ...]
    """The lanes that it uses, with the limits that it gives them."""
    steps: Expansion = attrs.field(init=False, repr=False)
    """What it expands to; computed once."""

    @steps.default
    def _expanded(self) -> Expansion:
        return expand(self.suite)

    @property
    def lane_names(self) -> tuple[str, ...]:
        """The lane of each provider."""
        return lane_names(self.suite, self.specs)


def prepare(
    suite: Suite | str | os.PathLike[str],
    *,
    providers: Mapping[str, Provider] | None = None,
    environ: Mapping[str, str] | None = None,
    max_concurrency: int | None = None,
    replay: Path | None = None,
) -> PreparedSuite:
    """Load a suite if it is a path, and check all of its providers.

    Args:
        suite: A suite, or the path of a suite file.
        providers: Async callables by the id that stands for them in the suite.
        environ: Where keys and base URLs are looked for; the process environment if None.
        max_concurrency: Calls in flight that no lane may exceed, ≥ 1.
        replay: A file of recordings that answers in place of every provider, each with its own.

    Raises:
        SuiteError: Everything that is wrong with it.
    """
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    templates = Templates()
    specs = [] if replay is None else _replayed(loaded, replay)
    problems: list[Problem] = []
    for position, entry in enumerate(loaded.providers if replay is None else ()):
        try:
            spec = resolve(
                entry.id,
                entry.config,
                environ=os.environ if environ is None else environ,
                directory=loaded.directory,
                templates=templates,
                custom={} if providers is None else providers,
                label=entry.label,
                overload_statuses=_overload_statuses(loaded, entry),
            )
        except SuiteError as error:
            problems += [_of_provider(problem, position) for problem in error.problems]
        else:
            specs.append(spec)
    if not problems:
        problems += _unbounded(loaded, specs)
    lanes: tuple[LaneSpec, ...] = ()
    if not problems:
        try:
            lanes = lane_specs(loaded, specs, cap=max_concurrency)
        except SuiteError as error:
            problems += error.problems
    if problems:
        raise SuiteError(place_problems(problems, loaded.file) if loaded.file else problems)
    return PreparedSuite(_without_secrets(loaded, specs), tuple(specs), lanes)


def make_lanes(*suites: PreparedSuite) -> Lanes:
    """Lanes that serve all of these suites; where two give a lane different limits, the stricter hold."""
    specs = merge_lane_specs(prepared.lane_specs for prepared in suites)
    # Chance, so that programs that share a provider do not come back to it in step.
    return Lanes(specs, rng=Random().random)  # noqa: S311 - no secret


async def run_suite(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    emit: Emit,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    recorder: Recorder | None = None,
) -> SuiteSummary:
    """Run a suite and emit its rows in index order. A checkpoint.

    Cancelling the surrounding scope ends the calls at once; every row is still emitted, those that were
    not finished as errors that say so.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file.
        emit: Awaited with one row after another, each as soon as all before it are known.
        lanes: Lanes to run on, shared with other runs; its own if None. See `make_lanes`.
        providers: Async callables by the id that stands for them in the suite.
        stop: When set, no new row starts and those under way run to their end.
        observe: Told of everything that lanes and jobs do.
        recorder: Writes down everything that providers answer.

    Returns:
        How many rows ended in which way.

    Raises:
        SuiteError: The suite is wrong; nothing was called.
        UsageError: `providers` for a suite that was prepared with its own.
        PlanError: `lanes` lacks a lane that the suite needs.
        Exception: Whatever `emit` raised; the run is ended for it.

    Example:
        >>> from trioeval.suite import parse_suite
        >>> async def shout(request):
        ...     return request.prompt.upper()
        >>> async def show(row):
        ...     print(row.output, row.status.value)
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["shout"],
        ...         "prompts": ["say {{word}}"],
        ...         "tests": [
        ...             {"vars": {"word": "hi"}, "assert": [{"type": "contains", "value": "HI"}]}
        ...         ],
        ...     }
        ... )
        >>> async def main():
        ...     return await run_suite(suite, emit=show, providers={"shout": shout})
        >>> trio.run(main).passed
        SAY HI pass
        1
    """
    if isinstance(suite, PreparedSuite):
        if providers is not None:
            raise UsageError("a prepared suite has its providers: give them to `prepare`")
        prepared = suite
    else:
        prepared = prepare(suite, providers=providers)
    counts = dict.fromkeys(Status, 0)
    templates = Templates()
    async with open_providers(prepared.specs, templates, recorder) as opened:
        options = prepared.suite.evaluate_options
        task = PromptEval(
            prepared.suite,
            prepared.steps,
            opened,
            prepared.lane_names,
            templates=templates,
            meter=Meter(
                [spec.metering for spec in prepared.specs],
                prepared.lane_names,
                bounds_only=options.budget is not None,
            ),
        )

        async def pass_on(outcome: Outcome[Verdict]) -> None:
            row = task.row(outcome)
            await emit(row)
            counts[row.status] += 1

        limit_ms = options.max_eval_time_ms
        started_at = trio.current_time()
        await run_plan(
            task.plan(),
            task.perform,
            lanes=make_lanes(prepared) if lanes is None else lanes,
            emit=pass_on,
            deadline=started_at + (float("inf") if limit_ms is None else limit_ms / 1000),
            stop=stop,
            observe=observe,
            salvage_rounds=options.salvage_rounds,
            budget=_budget(options.budget),
        )
        duration = trio.current_time() - started_at
    return SuiteSummary(counts[Status.PASS], counts[Status.FAIL], counts[Status.ERROR], duration)


async def collect(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
) -> list[Row]:
    """Run a suite and return its rows, `rows[i].index == i`. A checkpoint.

    A caller that may cancel it and wants what was finished gives `run_suite` an `emit` of its own.

    Raises:
        SuiteError: The suite is wrong; nothing was called.
    """
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    await run_suite(suite, emit=keep, lanes=lanes, providers=providers)
    return rows


def _overload_statuses(suite: Suite, entry: ProviderEntry) -> frozenset[int]:
    """The statuses by which the lane of an entry knows that there are too many calls."""
    settings = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
    return frozenset() if settings is None else frozenset(settings.overload_statuses)


def _replayed(suite: Suite, file: Path) -> list[ProviderSpec]:
    """The providers of a suite, each replaced by its recordings.

    Raises:
        SuiteError: The file cannot be read, or is wrong.
    """
    names = [entry.label or entry.id for entry in suite.providers]
    return [
        ProviderSpec(
            f"replay:{file}",
            name,
            settings,
            metering=Metering(),
            overload_statuses=_overload_statuses(suite, entry),
            max_retries=_max_retries(entry),
        )
        for name, entry, settings in zip(
            names, suite.providers, read_for_all(file, names), strict=True
        )
    ]


def _max_retries(entry: ProviderEntry) -> int | None:
    """What the config of a provider that is replayed says of its lane; all else of it does not count."""
    said = (value for key, value in entry.config.items() if to_snake(str(key)) == "max_retries")
    return next((value for value in said if is_integer(value) and value >= 0), None)


def _without_secrets(suite: Suite, specs: Sequence[ProviderSpec]) -> Suite:
    """The suite as it may be shown: an id or a config may hold a URL with a key."""
    entries = tuple(
        attrs.evolve(
            entry,
            id=hide(entry.id, spec.secrets),
            label=None if entry.label is None else hide(entry.label, spec.secrets),
            config=hide_in(entry.config, spec.secrets),
        )
        for entry, spec in zip(suite.providers, specs, strict=True)
    )
    return attrs.evolve(suite, providers=entries)


def _unbounded(suite: Suite, specs: Sequence[ProviderSpec]) -> Iterator[Problem]:
    """A budget cannot hold for services that cost nobody knows how much, or answer without bounds."""
    budget = suite.evaluate_options.budget
    if budget is None or (budget.usd is None and budget.tokens is None):
        return
    for position, spec in enumerate(specs):
        known = spec.metering
        if known.is_paid and not known.is_bounded:
            yield Problem(
                f"$.providers[{position}]",
                f"there is a budget, and nothing bounds the replies of {spec.id}",
                "give a bound in its config, for example max_completion_tokens or maxOutputTokens",
            )
        if known.is_paid and known.price is None and budget.usd is not None:
            yield Problem(
                f"$.providers[{position}]",
                f"there is a budget in usd, and no price of {spec.id} is known",
                "give it one in US dollars per million tokens: " + _PRICE_EXAMPLE,
            )


def _budget(settings: BudgetSettings | None) -> Budget | None:
    if settings is None:
        return None
    return Budget(settings.requests, settings.tokens, settings.usd)


def _of_provider(problem: Problem, position: int) -> Problem:
    """A problem of a provider's entry as one of the suite; one in another file keeps its place."""
    return attrs.evolve(problem, path=f"$.providers[{position}]{problem.path}")
