"""The flags of `trioeval run`, in the groups in which its help shows them.

A flag that is not given is None, or empty: then the suite's `commandLineOptions` say it, then its
`evaluateOptions`, then the environment.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import attrs
from cyclopts import Group, Parameter
from cyclopts.validators import Number

from trioeval.errors import Problem, SuiteError, UsageError

# How long ago, as a flag says it. Pure.


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])", re.ASCII)


def read_age(text: str, flag: str) -> float:
    """Seconds of an age with its unit: `90s`, `45m`, `12h`, `30d` or `8w`.

    Raises:
        UsageError: It is none.

    Example:
        >>> read_age("1.5h", "--older-than")
        5400.0
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{flag} must be an age such as 12h, 30d or 8w, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


Count = Annotated[int, Parameter(validator=Number(gte=1))]
NotNegative = Annotated[float, Parameter(validator=Number(gte=0))]
Whole = Annotated[int, Parameter(validator=Number(gte=0))]
Texts = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
Paths = Annotated[tuple[Path, ...], Parameter(negative=(), show_default=False)]
LogLevel: TypeAlias = Literal["debug", "info", "warning"]
ProgressMode: TypeAlias = Literal["live", "plain", "github", "json"]
Switch = Annotated[bool, Parameter(negative=(), show_default=False)]

# Flags of several commands.

Database = Annotated[Path | None, Parameter(help="The database of runs.")]
EnvFiles = Annotated[
    Paths,
    Parameter(
        name=["--env-file", "--env-path"],
        help="Read environment variables, such as keys, from this file; "
        "those that are set and not empty win.",
    ),
]


def _group(name: str, key: int) -> Any:
    return Parameter(name="*", group=Group(name, sort_key=key))


@_group("What runs", 1)
@attrs.frozen(kw_only=True)
class WhatFlags:
    """What a run is made of."""

    config: Annotated[Texts, Parameter(name=["--config", "-c"])] = ()
    """Another suite file, or a pattern of some, whose parts are added; may be given several times."""
    prompts: Annotated[Texts, Parameter(name=["--prompts", "-p"])] = ()
    """A file of prompts, or a pattern, in place of the suite's prompts; may be given several times."""
    providers: Annotated[Texts, Parameter(name=["--providers", "-r"])] = ()
    """A provider of the suite by label, id or the end of its id, or another one; only these are asked."""
    tests: Annotated[str | None, Parameter(name=["--tests", "-t", "--vars", "-v"])] = None
    """A file of tests in place of the suite's tests."""
    assertions: Annotated[Path | None, Parameter(name=["--assertions", "-a"])] = None
    """Judge the outputs of --model-outputs by the assertions of this file; no provider is asked."""
    model_outputs: Path | None = None
    """A JSON list of outputs, as texts or as {output, tags}."""
    var: Texts = ()
    """`name=value`: a variable of every test that has none of that name; may be given several times."""
    prompt_prefix: str | None = None
    """Text before every prompt."""
    prompt_suffix: str | None = None
    """Text behind every prompt."""
    grader: str | None = None
    """The provider that judges where an assertion asks a model."""
    description: str | None = None
    """What result files say of the run."""
    tag: Texts = ()
    """`name=value`: a tag that result files tell; may be given several times."""
    env_file: EnvFiles = ()
    allow_outside: Switch = False
    """Let the suite read and write files outside of its folder."""
    untrusted: Switch = False
    """Refuse code in the suite, keep the environment from it, and call only its own providers."""
    allow_env: Texts = ()
    """`NAME`: a variable of the environment that an untrusted suite may use; may be given several times."""
    extension: Annotated[Texts, Parameter(name=["--extension", "-x"])] = ()
    """A hook in place of the suite's, as `file://hooks.py:name`; may be given several times."""
    record: Path | None = None
    """Write everything that providers answer to this JSONL file."""
    replay: Path | None = None
    """Let the answers that this file holds stand for all providers: no network, no keys."""


@_group("Which rows", 2)
@attrs.frozen(kw_only=True)
class RowFlags:
    """Which tests are run. No filter renumbers them."""

    task: Texts = ()
    """Only the task with this id, and those that it depends on; may be given several times."""
    filter_first_n: Annotated[Count | None, Parameter(name=["--filter-first-n", "-n"])] = None
    """Only the first tests of those that the other filters left; each set of variables counts as one."""
    filter_range: str | None = None
    """`a:b`: only tests from a up to, but without, b, counted from 0."""
    filter_pattern: str | None = None
    """Only tests whose description, or name as a case, has this regular expression in it."""
    filter_metadata: Texts = ()
    """`key=value`: only tests whose metadata contains the value; all of them, if given several times."""
    filter_sample: Count | None = None
    """Only so many tests, drawn at random."""
    filter_sample_seed: int | None = None
    """Draw the same ones every time."""
    filter_failing: Path | None = None
    """Only tests that did not pass in this result file; .json or .jsonl."""
    filter_failing_only: Path | None = None
    """Only tests that failed in this result file; those without a verdict do not count."""
    filter_errors_only: Path | None = None
    """Only tests that had no verdict in this result file."""
    filter_prompts: str | None = None
    """Only prompts whose label or id has this regular expression in it."""
    filter_providers: Annotated[
        str | None, Parameter(name=["--filter-providers", "--filter-targets"])
    ] = None
    """Only providers whose label or id has this regular expression in it."""
    allow_empty: Switch = False
    """Accept that there are no tests, or that the filters leave none."""


@_group("Limits", 3)
@attrs.frozen(kw_only=True)
class LimitFlags:
    """How hard, how often and how long."""

    max_concurrency: Annotated[Count | None, Parameter(name=["--max-concurrency", "-j"])] = None
    """Calls in flight that no lane may exceed."""
    max_total_concurrency: Count | None = None
    """Calls in flight on all lanes together."""
    max_rows: Whole | None = None
    """Rows that a run may have, 1,000,000 if nothing else is said; 0 for no bound."""
    repeat: Count | None = None
    """How often each test is asked."""
    delay: NotNegative | None = None
    """Least gap between two calls on a lane, in milliseconds."""
    timeout: NotNegative | None = None
    """Working time of one row, in seconds; 0 for no limit."""
    max_time: NotNegative | None = None
    """Time of the whole run, in seconds; 0 for no limit."""
    max_requests: Whole | None = None
    """Requests that the run may make, retries among them."""
    max_tokens: Whole | None = None
    """Tokens that the run may use."""
    max_cost: NotNegative | None = None
    """US dollars that the run may cost; every provider then needs a known price or maxCost."""
    fail_fast: Switch = False
    """Start no more rows after the first one that did not pass."""


@_group("What is kept", 4)
@attrs.frozen(kw_only=True)
class KeepFlags:
    """Where runs and replies are kept, and which of them are used again."""

    db: Database = None
    durability: Literal["normal", "full"] | None = None
    """What outlives a loss of power: all but the last moments, or everything, which is slower."""
    cache: bool | None = None
    """Let replies come from the cache."""
    refresh: Switch = False
    """Ask anew, and keep the new replies in the cache."""
    retry: str | None = None
    """Run these rows of a run again: failed, errors, timeouts, or indices as `3,17`; none gives that up."""
    retry_errors: Switch = False
    """The same as --retry errors."""
    reconcile: Switch = False
    """Go on although the suite has changed: rows that are the same are kept."""


@_group("What is kept", 4)
@attrs.frozen(kw_only=True)
class BeginFlags:
    """Whether a run is kept, or goes on with one that was."""

    write: bool | None = None
    """Keep a record of the run."""
    resume: str | None = None
    """Go on with a run: its id, or the beginning of it; without a value the latest one of the suite."""


@_group("Output", 5)
@attrs.frozen(kw_only=True)
class OutputFlags:
    """What is shown and written."""

    output: Annotated[Paths, Parameter(name=["--output", "-o"])] = ()
    """Write this file: .json .jsonl .csv .html .yaml .txt .xml .junit.xml .md .parquet .eval; may be given
    several times."""
    table: bool | None = None
    """Show a table of the first rows after the run."""
    table_cell_max_length: Annotated[int | None, Parameter(validator=Number(gte=8))] = None
    """Characters of an answer in that table."""
    progress: Annotated[
        bool | None,
        Parameter(
            name=["--progress", "--progress-bar"], negative=["--no-progress", "--no-progress-bar"]
        ),
    ] = None
    """Show on stderr what each lane is doing."""
    progress_mode: ProgressMode | None = None
    """How: redrawn in place, as lines now and then, as groups and annotations of GitHub Actions, or as
    lines of JSON. Without it, as what reads it seems to want."""
    quiet: Annotated[Switch, Parameter(name=["--quiet", "-q"])] = False
    """Show nothing but errors and the last line."""
    trace: Path | None = None
    """Write what lanes and calls did, and when, to this file, for ui.perfetto.dev or chrome://tracing."""
    otel: Switch = False
    """Send spans and evaluation events to OpenTelemetry, as its own environment variables say."""
    log: LogLevel | None = None
    """Show on stderr what the library logs, from this level on."""
    live: bool | None = None
    """Let `trioeval view` on this machine show the run while it goes on, and steer it."""
    verbose: Switch = False
    """Tell on stderr of everything that happens to questions and agents, a line each, in place of the
    progress; all warnings and errors are told anyway."""
    metrics_port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None
    """Serve metrics of the run for Prometheus on this port of this machine; 0 takes a free one."""
    no_share: Switch = False
    """As without: results are never shared."""
    plan: Switch = False
    """Show what would run, what it may use and how long it takes at the least; ask nobody."""
    watch: Annotated[Switch, Parameter(name=["--watch", "-w"])] = False
    """Run again whenever a file of the suite changes."""
    fail_exit_code: Annotated[int | None, Parameter(validator=Number(gte=1, lte=255))] = None
    """The exit code when too few rows passed, or some have no verdict."""


@attrs.frozen(kw_only=True)
class RunFlags:
    """All of them."""

    what: WhatFlags = WhatFlags()
    rows: RowFlags = RowFlags()
    limits: LimitFlags = LimitFlags()
    keep: KeepFlags = KeepFlags()
    begin: BeginFlags = BeginFlags()
    output: OutputFlags = OutputFlags()


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class PreviewFlags:
    """What is to be seen of datasets."""

    task: Texts = ()
    """Only the dataset of this task, and those that it is made of; may be given several times."""
    rows: Count = 10
    """How many rows of each."""
    env_file: EnvFiles = ()
    untrusted: Switch = False
    """Refuse code in the suite, keep the environment from it, and call only its own providers."""
    allow_env: Texts = ()
    """`NAME`: a variable of the environment that an untrusted suite may use; may be given several times."""
    max_concurrency: Annotated[Count | None, Parameter(name=["--max-concurrency", "-j"])] = None
    """Calls in flight that no lane may exceed."""
    replay: Path | None = None
    """Let the answers that this file holds stand for all providers: no network, no keys."""
    cache: Annotated[bool | None, Parameter(show_default=False)] = None
    """Whether replies come from the cache, and go into it."""


NOT_PROVIDED = {
    "--share": "results are not shared: send the file that -o writes",
    "--view": "run `trioeval view`, which shows runs in a browser while they go on",
    "--suggest-prompts": "prompts are not suggested here",
    "--remote": "nothing is graded or generated elsewhere than by your own providers",
    "--interactive-providers": "-j 1 asks one question at a time",
    "--shuffle": "rows start in the order of the suite, and are written in it",
}
"""Flags of promptfoo that mean nothing here, each with a sentence."""


# Tells mistakes in what a flag says as that flag's, and not as those of a suite that says something else.


@contextmanager
def blaming_flags(flags: WhatFlags) -> Iterator[None]:
    """Problems at keys that flags give name the flag in place of file, line and path.

    Raises:
        SuiteError: The one that the block raised, told so.
    """
    try:
        yield
    except SuiteError as error:
        named = _named(flags)
        told = [_told(problem, named) for problem in error.problems]
        raise SuiteError(told, files=error.files) from None


def _named(flags: WhatFlags) -> Mapping[str, str]:
    """What is given, by the key that it stands for."""
    given = {
        "prompts": ("-p", flags.prompts),
        "providers": ("-r", flags.providers),
        "extensions": ("-x", flags.extension),
        "tests": ("-t", () if flags.tests is None else (flags.tests,)),
    }
    return {
        f"$.{key}": f"{flag} {values[0]}" if len(values) == 1 else flag
        for key, (flag, values) in given.items()
        if values
    }


def _told(problem: Problem, named: Mapping[str, str]) -> Problem:
    for path, flag in named.items():
        rest = problem.path.removeprefix(path)
        if rest != problem.path and (not rest or rest[0] in "[."):
            return attrs.evolve(problem, path=flag, file=None, line=None, column=None)
    return problem


# Which flags contradict each other. Pure.


def check_flags(flags: RunFlags) -> None:
    """Refuse flags that contradict each other.

    Raises:
        UsageError: All that do are named.
    """
    keep, begin = flags.keep, flags.begin
    wrong = []
    if keep.retry is not None and keep.retry_errors:
        wrong.append("--retry-errors and --retry exclude each other: it is --retry errors")
    if begin.resume is not None and keep.retry_errors:
        # Either way to resume, `--resume` and `resume`.
        wrong.append(
            "--retry-errors is not for a run that is resumed: write --retry errors instead"
        )
    if keep.refresh and keep.cache is False:
        wrong.append(
            "--refresh and --no-cache exclude each other: without a cache all is asked anew"
        )
    wrong += _told_twice(flags.output)
    if flags.what.untrusted and flags.what.allow_outside:
        wrong.append(
            "--untrusted and --allow-outside exclude each other: an untrusted suite stays in its folder"
        )
    if flags.what.allow_env and not flags.what.untrusted:
        wrong.append("--allow-env is for --untrusted: any other suite sees the whole environment")
    if goes_on(flags):
        wrong += [
            f"{flag} is of a whole run: it cannot be given for the rest of one"
            for flag, given in (
                ("--no-write", begin.write is False),
                ("--watch", flags.output.watch),
                ("--plan", flags.output.plan),
            )
            if given
        ]
    elif keep.reconcile:
        wrong.append("--reconcile is for a run that goes on: it needs --resume or --retry")
    if wrong:
        raise UsageError("\n".join(wrong))


def _told_twice(output: OutputFlags) -> list[str]:
    """What is to be told and not to be told."""
    found = []
    if output.quiet:
        asked = {
            "--progress": output.progress,
            "--progress-mode": output.progress_mode,
            "--table": output.table,
            "--verbose": output.verbose,
        }
        found = [f"--quiet and {flag} exclude each other" for flag, asks in asked.items() if asks]
    if output.progress is False and output.progress_mode is not None:
        found.append("--no-progress and --progress-mode exclude each other")
    return found


def goes_on(flags: RunFlags) -> bool:
    """Whether a run is asked for that is there already."""
    return flags.begin.resume is not None or flags.keep.retry is not None or flags.keep.retry_errors
