"""Flags, with what suite and environment say where they are not given. Looks at no files, but follows links.

A flag wins over the suite's `commandLineOptions`, those over its `evaluateOptions`, and those over the
environment.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from trioeval.agent.model import AgentSettings
from trioeval.cli.environment import EnvironmentSettings
from trioeval.cli.flags import (
    NOT_PROVIDED,
    BeginFlags,
    KeepFlags,
    LimitFlags,
    OutputFlags,
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
from trioeval.suite.model import MOST_ROWS, BudgetSettings, Suite, Test

T = TypeVar("T")
F = TypeVar("F", WhatFlags, RowFlags, LimitFlags, KeepFlags, BeginFlags, OutputFlags)

_OWN = frozenset({"env_file", "extension", "var"})
"""Options that the suite makes use of, whatever flags add to them."""
_RESULTS = frozenset({"filter_errors_only", "filter_failing", "filter_failing_only"})
"""Those that name result files."""


def settle(suite: Suite, given: RunFlags) -> RunFlags:
    """The flags of a run: those that are given, and what its suite says otherwise.

    What stays None is as usual.
    """
    said = _said(suite, given)
    flags = RunFlags(
        what=_over(given.what, said),
        rows=_over(given.rows, said),
        limits=_over(given.limits, said),
        keep=_over(given.keep, said),
        begin=_over(given.begin, said),
        output=_over(given.output, said),
    )
    output = flags.output
    # Whose lines come in place of it; other suites have none.
    lines = output.verbose and (bool(_question_tasks(suite)) or _has_agents(suite))
    shown = suite.evaluate_options.show_progress_bar and not lines
    asked = output.progress_mode is not None or first(output.progress, shown)
    settled = attrs.evolve(
        output,
        progress=asked and not output.quiet,
        table=output.table is not False and not output.quiet,
    )
    return attrs.evolve(flags, output=settled)


def _said(suite: Suite, given: RunFlags) -> Mapping[str, Any]:
    """What a suite says where flags do not, by the names of flags."""
    options = suite.command_line_options
    plain = attrs.asdict(options, recurse=False)
    said = {name: one for name, one in plain.items() if one not in (None, ()) and name not in _OWN}
    for name in _RESULTS & said.keys():
        if getattr(given.rows, name) is None:
            said[name] = place_of(suite, said[name], f"commandLineOptions.{camel(name)}")
    if not given.output.output:
        key = "commandLineOptions.output" if options.output else "outputPath"
        named = options.output or suite.output_path
        said["output"] = tuple(place_of(suite, name, key) for name in named)
    if options.filter_targets and not options.filter_providers:
        said["filter_providers"] = options.filter_targets
    if options.progress_bar is not None:
        said["progress"] = options.progress_bar
    return said


def _over(flags: F, said: Mapping[str, Any]) -> F:
    """A group of flags, with what is said in place of those that are not given."""
    missing = [
        one.name for one in attrs.fields(type(flags)) if getattr(flags, one.name) == one.default
    ]
    return attrs.evolve(flags, **{name: said[name] for name in missing if name in said})


def runs_one_by_one(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> bool:
    """Whether steps run one after another: a delay that the suite does not give its lanes says so."""
    of_lanes = suite.evaluate_options.delay
    delay = first(flags.limits.delay, (None if of_lanes else environment.delay_ms) or 0.0)
    return suite.evaluate_options.serialize == "all" and delay > 0


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


def first(flag: T | None, default: T) -> T:
    """What the flag says, else the default."""
    return default if flag is None else flag


def with_flags(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> Suite:
    """The suite as flags, which `settle` made, and the environment change it.

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
        description=first(flags.what.description, suite.description),
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
    said = budget or BudgetSettings()
    changed = BudgetSettings(
        requests=first(flags.max_requests, said.requests),
        tokens=first(flags.max_tokens, said.tokens),
        usd=first(flags.max_cost, said.usd),
    )
    return budget if changed == said else changed


def _with_default_test(suite: Suite, flags: WhatFlags) -> Suite:
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
    """Which tests are run, but for those of earlier results.

    Raises:
        UsageError: A filter says nothing that can be used.
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
    """A result file whose rows say which tests are run."""

    path: Path
    failures: bool
    errors: bool


def earlier_files(flags: RowFlags) -> tuple[EarlierFile, ...]:
    """The result files that filters name; a test that one of them wants is run."""
    named = (
        (flags.filter_failing, True, True),
        (flags.filter_failing_only, True, False),
        (flags.filter_errors_only, False, True),
    )
    return tuple(EarlierFile(path, *wanted) for path, *wanted in named if path is not None)
