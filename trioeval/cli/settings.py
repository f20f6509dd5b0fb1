"""What a run does, settled from flags, suite and environment. Looks at no files, but follows links.

A flag wins over the suite's `commandLineOptions`, those over its `evaluateOptions`, and those over the
environment.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from trioeval.agent.model import AgentSettings
from trioeval.cli.environment import EnvironmentSettings
from trioeval.cli.flags import (
    NOT_PROVIDED,
    KeepFlags,
    LimitFlags,
    LogLevel,
    ProgressMode,
    RowFlags,
    RunFlags,
    WhatFlags,
)
from trioeval.columns.model import ColumnsSettings
from trioeval.documents.structure import camel
from trioeval.loading.own_files import place_of
from trioeval.question_eval.model import QuestionSettings
from trioeval.suite.filters import (
    Filters,
    keep_prompts,
    keep_providers,
    read_pair,
    read_pattern,
    read_range,
)
from trioeval.suite.model import MOST_ROWS, BudgetSettings, CommandLineOptions, Suite, Test

T = TypeVar("T")

_CELL = 40  # characters of an answer in the table of rows


@attrs.frozen(kw_only=True)
class RunSettings:
    """What the command does with a suite besides running it."""

    environment: EnvironmentSettings = attrs.field(factory=EnvironmentSettings)
    outputs: tuple[Path, ...] = ()
    max_concurrency: int | None = None
    """Calls in flight that no lane may exceed."""
    one_by_one: bool = False
    """Whether steps run one after another."""
    record: Path | None = None
    replay: Path | None = None
    progress: bool = True
    progress_mode: ProgressMode | None = None
    """None is what suits whoever reads stderr."""
    quiet: bool = False
    """Whether only errors and the last line are told."""
    trace: Path | None = None
    otel: bool = False
    log: LogLevel | None = None
    live: bool | None = None
    """Whether the run can be watched and steered from outside; None where that can be, without a word."""
    verbose: bool = False
    """Whether everything that happens to questions and agents is told."""
    metrics_port: int | None = None
    """Where metrics are served; 0 takes a free port."""
    table: bool = True
    cell: int = _CELL
    """Characters of an answer in the table."""
    plan: bool = False
    fail_fast: bool = False
    allow_empty: bool = False
    write: bool = True
    """Whether a record of the run is kept."""
    fail_exit_code: int = 100


def settle(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> RunSettings:
    """What the command does with a suite."""
    said, output = suite.command_line_options, flags.output
    verbose = output.verbose or bool(said.verbose)
    asked = None if suite.evaluate_options.delay else environment.delay_ms
    delay = first(flags.limits.delay, said.delay, asked or 0.0)
    compatible = suite.evaluate_options.serialize == "all"
    # Whose lines come in place of it; other suites have none.
    lines = verbose and (bool(_question_tasks(suite)) or _has_agents(suite))
    shown = suite.evaluate_options.show_progress_bar and not lines
    return RunSettings(
        environment=environment,
        outputs=output.output or _outputs(suite),
        max_concurrency=first(flags.limits.max_concurrency, said.max_concurrency, None),
        one_by_one=compatible and delay > 0,
        record=flags.what.record,
        replay=flags.what.replay,
        progress=not output.quiet
        and (output.progress_mode is not None or first(output.progress, said.progress_bar, shown)),
        progress_mode=output.progress_mode,
        quiet=output.quiet,
        trace=output.trace,
        otel=output.otel,
        log=output.log,
        live=output.live,
        verbose=verbose,
        metrics_port=output.metrics_port,
        table=not output.quiet and first(output.table, said.table, True),  # noqa: FBT003
        cell=first(output.table_cell_max_length, said.table_cell_max_length, _CELL),
        plan=output.plan,
        fail_fast=flags.limits.fail_fast,
        allow_empty=flags.rows.allow_empty,
        write=first(flags.begin.write, said.write, True),  # noqa: FBT003
        fail_exit_code=first(output.fail_exit_code, None, environment.failed_exit_code),
    )


def said_in_vain(suite: Suite, flags: RunFlags) -> tuple[str, ...]:
    """What is asked for and not given, as warnings.

    Args:
        suite: Whose `commandLineOptions` ask.
        flags: Which ask as well; those that are never given are refused elsewhere.
    """
    said = suite.command_line_options
    asked = {"share": said.share, "generateSuggestions": said.generate_suggestions}
    why = {
        "share": NOT_PROVIDED["--share"],
        "generateSuggestions": NOT_PROVIDED["--suggest-prompts"],
    }
    never = (f"commandLineOptions.{name}: {why[name]}" for name, wish in asked.items() if wish)
    return (*never, *_in_vain_for_questions(suite, flags.what))


_AS_THEY_STAND = "they are asked as their file has them"
_NOT_FOR_QUESTIONS = {
    "var": _AS_THEY_STAND,
    "prompt_prefix": _AS_THEY_STAND,
    "prompt_suffix": _AS_THEY_STAND,
    "grader": "no model judges their answers",
    "extension": "hooks are for tests",
}
"""Flags and options that tasks of questions have no use for, and why."""


def _in_vain_for_questions(suite: Suite, flags: WhatFlags) -> Iterator[str]:
    tasks = ", ".join(_question_tasks(suite))
    if not tasks:
        return
    said = suite.command_line_options
    for name, why in _NOT_FOR_QUESTIONS.items():
        of_flag = getattr(flags, name)
        if of_flag or getattr(said, name):
            asked = (
                f"--{name.replace('_', '-')}" if of_flag else f"commandLineOptions.{camel(name)}"
            )
            yield f"{asked}: changes nothing of the questions of {tasks}: {why}"


def _question_tasks(suite: Suite) -> list[str]:
    """Ids of the tasks that ask questions."""
    return [task.id for task in suite.tasks if isinstance(task.suite.settings, QuestionSettings)]


def _has_agents(suite: Suite) -> bool:
    return any(isinstance(task.suite.settings, AgentSettings) for task in suite.tasks)


def first(flag: T | None, option: T | None, default: T) -> T:
    """What the flag says, else the suite's option, else the default."""
    if flag is not None:
        return flag
    return default if option is None else option


def _outputs(suite: Suite) -> tuple[Path, ...]:
    """The result files that a suite names itself."""
    said = suite.command_line_options.output
    key = "commandLineOptions.output" if said else "outputPath"
    return tuple(place_of(suite, name, key) for name in said or suite.output_path)


def with_flags(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> Suite:
    """The suite as flags, its own command line options and the environment change it.

    Raises:
        UsageError: A flag says nothing that can be used.
    """
    suite = _with_limits(suite, flags.limits, flags.keep, environment)
    if not isinstance(suite.settings, QuestionSettings | ColumnsSettings):  # asked as they stand
        suite = _with_default_test(suite, flags.what)
    tags = dict(read_pair(text, "--tag") for text in flags.what.tag)
    said = suite.command_line_options
    suite = attrs.evolve(
        suite,
        description=first(flags.what.description, said.description, suite.description),
        tags={**suite.tags, **said.tags, **tags},
        extensions=suite.extensions if flags.what.extension else said.extension or suite.extensions,
        tasks=tuple(
            attrs.evolve(task, suite=with_flags(task.suite, flags, environment))
            for task in suite.tasks
        ),
    )
    # A dataset has no tests to choose from, and names its providers by their places.
    return (
        suite if isinstance(suite.settings, ColumnsSettings) else _with_columns(suite, flags.rows)
    )


def _with_limits(
    suite: Suite, flags: LimitFlags, keep: KeepFlags, environment: EnvironmentSettings
) -> Suite:
    said, options = suite.command_line_options, suite.evaluate_options
    timeout, whole = _milliseconds(flags.timeout), _milliseconds(flags.max_time)
    return attrs.evolve(
        suite,
        evaluate_options=attrs.evolve(
            options,
            max_concurrency=options.max_concurrency or environment.max_concurrency,
            max_total_concurrency=first(
                flags.max_total_concurrency, options.max_total_concurrency, None
            ),
            max_rows=first(flags.max_rows, options.max_rows, MOST_ROWS),
            repeat=first(flags.repeat, said.repeat, options.repeat),
            delay=first(flags.delay, said.delay, options.delay or environment.delay_ms or 0),
            timeout_ms=first(timeout, options.timeout_ms, environment.timeout_ms) or None,
            max_eval_time_ms=first(whole, options.max_eval_time_ms, environment.max_eval_time_ms)
            or None,
            cache=first(keep.cache, said.cache, options.cache and environment.cache is not False),
            budget=_budget(options.budget, flags),
        ),
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _budget(budget: BudgetSettings | None, flags: LimitFlags) -> BudgetSettings | None:
    said = budget or BudgetSettings()
    changed = BudgetSettings(
        requests=first(flags.max_requests, said.requests, None),
        tokens=first(flags.max_tokens, said.tokens, None),
        usd=first(flags.max_cost, said.usd, None),
    )
    return budget if changed == said else changed


def _with_default_test(suite: Suite, flags: WhatFlags) -> Suite:
    said, default = suite.command_line_options, suite.default_test or Test()
    given = dict(read_pair(text, "--var") for text in flags.var)
    options = default.options
    changed = attrs.evolve(
        default,
        vars={**default.vars, **said.var, **given},
        options=attrs.evolve(
            options,
            prefix=first(flags.prompt_prefix, said.prompt_prefix, options.prefix),
            suffix=first(flags.prompt_suffix, said.prompt_suffix, options.suffix),
            provider=first(flags.grader, said.grader, options.provider),
        ),
    )
    return suite if changed == default else attrs.evolve(suite, default_test=changed)


def _with_columns(suite: Suite, flags: RowFlags) -> Suite:
    said = suite.command_line_options
    prompts = first(flags.filter_prompts, said.filter_prompts, None)
    named = said.filter_providers or said.filter_targets
    providers = first(flags.filter_providers, named, None)
    if prompts is not None:
        suite = keep_prompts(suite, read_pattern(prompts, "--filter-prompts"))
    if providers is not None:
        suite = keep_providers(suite, read_pattern(providers, "--filter-providers"))
    return suite


def filters_of(suite: Suite, flags: RowFlags) -> Filters:
    """Which tests are run, but for those of earlier results.

    Raises:
        UsageError: A filter says nothing that can be used.
    """
    said, options = suite.command_line_options, suite.evaluate_options
    pattern = first(flags.filter_pattern, said.filter_pattern, None)
    within = first(flags.filter_range, said.filter_range, options.filter_range)
    metadata = flags.filter_metadata or _texts(said.filter_metadata)
    return Filters(
        metadata=tuple(read_pair(text, "--filter-metadata") for text in metadata),
        pattern=None if pattern is None else read_pattern(pattern, "--filter-pattern"),
        range=None if within is None else read_range(within, "--filter-range"),
        first_n=first(flags.filter_first_n, said.filter_first_n, None),
        sample=first(flags.filter_sample, said.filter_sample, None),
        sample_seed=first(flags.filter_sample_seed, said.filter_sample_seed, None),
    )


def _texts(said: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if said is None:
        return ()
    return (said,) if isinstance(said, str) else said


@attrs.frozen
class EarlierFile:
    """A result file whose rows say which tests are run."""

    path: Path
    failures: bool
    errors: bool


def earlier_files(suite: Suite, flags: RowFlags) -> tuple[EarlierFile, ...]:
    """The result files that filters name; a test that one of them wants is run."""
    said: CommandLineOptions = suite.command_line_options
    named = {
        "filterFailing": (flags.filter_failing, said.filter_failing, True, True),
        "filterFailingOnly": (flags.filter_failing_only, said.filter_failing_only, True, False),
        "filterErrorsOnly": (flags.filter_errors_only, said.filter_errors_only, False, True),
    }
    found = []
    for key, (flag, option, failures, errors) in named.items():
        path = flag
        if path is None and option is not None:
            path = place_of(suite, option, f"commandLineOptions.{key}")
        if path is not None:
            found.append(EarlierFile(path, failures, errors))
    return tuple(found)
