"""The settings of a run, from flags, suite and environment. Reads no files, but follows links.

A flag wins over the suite's `commandLineOptions`, those over its `evaluateOptions`, and those over the
environment.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from trioeval.agent import is_agent
from trioeval.cli.environment import EnvironmentSettings
from trioeval.cli.flags import (
    NOT_PROVIDED,
    LimitFlags,
    OutputFlags,
    RowFlags,
    RunFlags,
    StartFlags,
    StorageFlags,
    SuiteFlags,
)
from trioeval.columns import is_columns
from trioeval.documents.structure import camel
from trioeval.loading.own_files import checked_path
from trioeval.question_eval import is_question_eval
from trioeval.suite.filters import (
    Filters,
    keep_prompts,
    keep_providers,
    read_pair,
    read_pattern,
    read_range,
)
from trioeval.suite.model import MOST_ROWS, BudgetSettings, Suite, Test

T = TypeVar("T")
F = TypeVar("F", SuiteFlags, RowFlags, LimitFlags, StorageFlags, StartFlags, OutputFlags)

_OWN = frozenset({"env_file", "extension", "var"})
"""Options that the suite itself uses; flags only add to them."""
_RESULTS = frozenset({"filter_errors_only", "filter_failing", "filter_failing_only"})
"""Options that name result files."""


def resolve_settings(suite: Suite, given: RunFlags) -> RunFlags:
    """Return the flags of a run: those that are given, and otherwise the options of its suite.

    Flags that remain None have their default.
    """
    found = _suite_options(suite, given)
    flags = RunFlags(
        what=_over(given.what, found),
        rows=_over(given.rows, found),
        limits=_over(given.limits, found),
        keep=_over(given.keep, found),
        begin=_over(given.begin, found),
        output=_over(given.output, found),
    )
    output = flags.output
    # Only these suites have lines to show instead of the progress.
    lines = output.verbose and (bool(_question_tasks(suite)) or _has_agents(suite))
    shown = suite.evaluate_options.show_progress_bar and not lines
    is_requested = output.progress_mode is not None or first(output.progress, shown)
    settled = attrs.evolve(
        output,
        progress=is_requested and not output.quiet,
        table=output.table is not False and not output.quiet,
    )
    return attrs.evolve(flags, output=settled)


def _suite_options(suite: Suite, given: RunFlags) -> Mapping[str, Any]:
    """Return the options of a suite for flags that are not given, by the names of flags."""
    options = suite.command_line_options
    plain = attrs.asdict(options, recurse=False)
    found = {name: one for name, one in plain.items() if one not in (None, ()) and name not in _OWN}
    for name in _RESULTS & found.keys():
        if getattr(given.rows, name) is None:
            found[name] = checked_path(suite, found[name], f"commandLineOptions.{camel(name)}")
    if not given.output.output:
        key = "commandLineOptions.output" if options.output else "outputPath"
        named = options.output or suite.output_path
        found["output"] = tuple(checked_path(suite, name, key) for name in named)
    if isinstance(options.filter_metadata, str):
        found["filter_metadata"] = (options.filter_metadata,)
    if options.filter_targets and not options.filter_providers:
        found["filter_providers"] = options.filter_targets
    if options.progress_bar is not None:
        found["progress"] = options.progress_bar
    return found


def _over(flags: F, found: Mapping[str, Any]) -> F:
    """Return a group of flags in which options replace flags that are not given."""
    missing = [
        one.name for one in attrs.fields(type(flags)) if getattr(flags, one.name) == one.default
    ]
    return attrs.evolve(flags, **{name: found[name] for name in missing if name in found})


def runs_one_by_one(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> bool:
    """Return whether steps run one after another, because of a delay that is not one of the suite's lanes."""
    of_lanes = suite.evaluate_options.delay
    delay = first(flags.limits.delay, (None if of_lanes else environment.delay_ms) or 0.0)
    return suite.evaluate_options.serialize == "all" and delay > 0


def unused_option_warnings(suite: Suite, flags: RunFlags) -> tuple[str, ...]:
    """Return warnings about options and flags that have no effect.

    Args:
        suite: The suite with its `commandLineOptions`.
        flags: The flags; unsupported ones are refused elsewhere.
    """
    found = suite.command_line_options
    requested = {"share": found.share, "generateSuggestions": found.generate_suggestions}
    why = {
        "share": NOT_PROVIDED["--share"],
        "generateSuggestions": NOT_PROVIDED["--suggest-prompts"],
    }
    never = (f"commandLineOptions.{name}: {why[name]}" for name, wish in requested.items() if wish)
    return (*never, *_unused_for_questions(suite, flags.what))


_SENT_UNCHANGED = "they are sent as their file has them"
_NOT_FOR_QUESTIONS = {
    "var": _SENT_UNCHANGED,
    "prompt_prefix": _SENT_UNCHANGED,
    "prompt_suffix": _SENT_UNCHANGED,
    "grader": "no model grades their answers",
    "extension": "hooks apply to tests",
}
"""Flags and options without effect on question tasks, with the reason."""


def _unused_for_questions(suite: Suite, flags: SuiteFlags) -> Iterator[str]:
    tasks = ", ".join(_question_tasks(suite))
    if not tasks:
        return
    found = suite.command_line_options
    for name, why in _NOT_FOR_QUESTIONS.items():
        of_flag = getattr(flags, name)
        if of_flag or getattr(found, name):
            name_used = (
                f"--{name.replace('_', '-')}" if of_flag else f"commandLineOptions.{camel(name)}"
            )
            yield f"{name_used}: no effect on the questions of {tasks}: {why}"


def _question_tasks(suite: Suite) -> list[str]:
    """Return the ids of question tasks."""
    return [task.id for task in suite.tasks if is_question_eval(task.suite.settings)]


def _has_agents(suite: Suite) -> bool:

    return any(is_agent(task.suite.settings) for task in suite.tasks)


def first(flag: T | None, default: T) -> T:
    """Return the value of a flag, or the default if it is None."""
    return default if flag is None else flag


def with_flags(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> Suite:
    """Return the suite as changed by flags, which `resolve_settings` returned, and the environment.

    Raises:
        UsageError: The value of a flag is invalid.
    """
    suite = _with_limits(suite, flags.limits, flags.keep, environment)
    if not is_question_eval(suite.settings) and not is_columns(suite.settings):  # sent unchanged
        suite = _with_default_test(suite, flags.what)
    tags = dict(read_pair(text, "--tag") for text in flags.what.tag)
    found = suite.command_line_options
    suite = attrs.evolve(
        suite,
        description=first(flags.what.description, suite.description),
        tags={**suite.tags, **found.tags, **tags},
        extensions=suite.extensions
        if flags.what.extension
        else found.extension or suite.extensions,
        tasks=tuple(
            attrs.evolve(task, suite=with_flags(task.suite, flags, environment))
            for task in suite.tasks
        ),
    )
    # A dataset has no tests to filter, and refers to its providers by position.
    return suite if is_columns(suite.settings) else _with_columns(suite, flags.rows)


def _with_limits(
    suite: Suite, flags: LimitFlags, keep: StorageFlags, environment: EnvironmentSettings
) -> Suite:
    options = suite.evaluate_options
    timeout = first(_milliseconds(flags.timeout), first(options.timeout_ms, environment.timeout_ms))
    in_all = first(options.max_eval_time_ms, environment.max_eval_time_ms)
    return attrs.evolve(
        suite,
        evaluate_options=attrs.evolve(
            options,
            max_concurrency=options.max_concurrency or environment.max_concurrency,
            max_total_concurrency=first(flags.max_total_concurrency, options.max_total_concurrency),
            max_rows=first(flags.max_rows, first(options.max_rows, MOST_ROWS)),
            repeat=first(flags.repeat, options.repeat),
            delay=first(flags.delay, options.delay or environment.delay_ms or 0),
            timeout_ms=timeout or None,
            max_eval_time_ms=first(_milliseconds(flags.max_time), in_all) or None,
            cache=first(keep.cache, options.cache and environment.cache is not False),
            budget=_budget(options.budget, flags),
        ),
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _budget(budget: BudgetSettings | None, flags: LimitFlags) -> BudgetSettings | None:
    found = budget or BudgetSettings()
    changed = BudgetSettings(
        requests=first(flags.max_requests, found.requests),
        tokens=first(flags.max_tokens, found.tokens),
        usd=first(flags.max_cost, found.usd),
    )
    return budget if changed == found else changed


def _with_default_test(suite: Suite, flags: SuiteFlags) -> Suite:
    default = suite.default_test or Test()
    given = dict(read_pair(text, "--var") for text in flags.var)
    options = default.options
    changed = attrs.evolve(
        default,
        vars={**default.vars, **suite.command_line_options.var, **given},
        options=attrs.evolve(
            options,
            prefix=first(flags.prompt_prefix, options.prefix),
            suffix=first(flags.prompt_suffix, options.suffix),
            provider=first(flags.grader, options.provider),
        ),
    )
    return suite if changed == default else attrs.evolve(suite, default_test=changed)


def _with_columns(suite: Suite, flags: RowFlags) -> Suite:
    if flags.filter_prompts is not None:
        suite = keep_prompts(suite, read_pattern(flags.filter_prompts, "--filter-prompts"))
    if flags.filter_providers is not None:
        suite = keep_providers(suite, read_pattern(flags.filter_providers, "--filter-providers"))
    return suite


def filters_of(suite: Suite, flags: RowFlags) -> Filters:
    """Return the filters of tests, except those that read result files.

    Raises:
        UsageError: The value of a filter is invalid.
    """
    pattern = flags.filter_pattern
    within = first(flags.filter_range, suite.evaluate_options.filter_range)
    return Filters(
        metadata=tuple(read_pair(text, "--filter-metadata") for text in flags.filter_metadata),
        pattern=None if pattern is None else read_pattern(pattern, "--filter-pattern"),
        range=None if within is None else read_range(within, "--filter-range"),
        first_n=flags.filter_first_n,
        sample=flags.filter_sample,
        sample_seed=flags.filter_sample_seed,
    )


@attrs.frozen
class EarlierFile:
    """A result file whose rows select tests."""

    path: Path
    failures: bool
    errors: bool


def earlier_files(flags: RowFlags) -> tuple[EarlierFile, ...]:
    """Return the result files that filters name; a test that one of them selects is run."""
    named = (
        (flags.filter_failing, True, True),
        (flags.filter_failing_only, True, False),
        (flags.filter_errors_only, False, True),
    )
    return tuple(EarlierFile(path, *selected) for path, *selected in named if path is not None)
