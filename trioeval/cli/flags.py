"""The flags of `trioeval run`, in the groups of its help.

A flag that is not given is None or empty: then the suite's `commandLineOptions` apply, then its
`evaluateOptions`, then the environment, then the default that the help shows. The types say how the parser
reads a flag and are names only, see `flag_types`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import attrs

from trioeval.errors import Problem, SuiteError, UsageError

if TYPE_CHECKING:
    # A run without flags needs no parser: `flag_types.resolve_types` gives these names a value.
    from cyclopts import Parameter
    from cyclopts.validators import Number

    from trioeval.cli.flag_types import (
        ClusterName,
        Count,
        Database,
        EnvFiles,
        LaneOwner,
        Linger,
        NotNegative,
        OmitZeroCounters,
        Paths,
        SentPaths,
        Share,
        Switch,
        Texts,
        Whole,
        effective,
    )

# Ages as flags name them. Pure.


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])", re.ASCII)


def read_age(text: str, flag: str) -> float:
    """Return the seconds of an age with its unit: `90s`, `45m`, `12h`, `30d` or `8w`.

    Raises:
        UsageError: The text is not an age.

    Example:
        >>> read_age("1.5h", "--older-than")
        5400.0
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{flag} must be a duration such as 90s, 12h or 30d, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


LogLevel: TypeAlias = Literal["debug", "info", "warning"]
ProgressMode: TypeAlias = Literal["live", "plain", "github", "json"]


@attrs.frozen(kw_only=True)
class SuiteFlags:
    """Flags that select and change the suite."""

    config: Annotated[Texts, Parameter(name=["--config", "-c"])] = ()
    """Add the parts of another suite file, or of all files of a pattern. Repeatable."""
    prompts: Annotated[Texts, Parameter(name=["--prompts", "-p"])] = ()
    """Replace the suite's prompts by this file, pattern or text. Repeatable."""
    providers: Annotated[Texts, Parameter(name=["--providers", "-r"])] = ()
    """Call only this provider: a label, an id, the end of an id, or a provider that the suite does not have.
    Repeatable."""
    tests: Annotated[str | None, Parameter(name=["--tests", "-t", "--vars", "-v"])] = None
    """Replace the suite's tests by this file."""
    assertions: Annotated[Path | None, Parameter(name=["--assertions", "-a"])] = None
    """Check the outputs of --model-outputs with the assertions of this file, without calling a provider."""
    model_outputs: Path | None = None
    """A JSON list of outputs, as texts or as {output, tags}."""
    var: Texts = ()
    """`name=value`: a variable of every test that does not set it. Repeatable."""
    prompt_prefix: str | None = None
    """Text to put before every prompt."""
    prompt_suffix: str | None = None
    """Text to append to every prompt."""
    grader: Annotated[str | None, effective("the suite's")] = None
    """The provider that judges model-graded assertions."""
    description: Annotated[str | None, effective("the suite's")] = None
    """The description of the run in result files."""
    tag: Texts = ()
    """`name=value`: a tag of the run in result files. Repeatable."""
    env_file: EnvFiles = ()
    allow_outside: Switch = False
    """Let the suite read and write files outside its repository, or else its folder."""
    allow_network: Switch = False
    """Fetch tests from any URL, not only from those that the suite file itself names."""
    strict: Switch = False
    """Refuse keys of the suite that are not known; otherwise only misspelt ones are refused."""
    untrusted: Switch = False
    """Refuse code in the suite, hide the environment from it, and call only the providers that it names."""
    allow_env: Texts = ()
    """`NAME`: an environment variable that an untrusted suite may read. Repeatable."""
    extension: Annotated[Texts, Parameter(name=["--extension", "-x"])] = ()
    """Replace the suite's hooks by this one, as `file://hooks.py:name`. Repeatable."""
    record: Path | None = None
    """Record every provider reply in this JSONL file."""
    replay: Path | None = None
    """Take all replies from this recording instead of calling providers: no network, no keys."""


@attrs.frozen(kw_only=True)
class RowFlags:
    """Flags that select tests. Filters never renumber tests."""

    task: Texts = ()
    """Run only the task with this id and its dependencies. Repeatable."""
    filter_first_n: Annotated[
        Count | None, effective("all"), Parameter(name=["--filter-first-n", "-n"])
    ] = None
    """Run only the first tests that the other filters leave; each set of variables counts as one."""
    filter_range: Annotated[str | None, effective("all")] = None
    """`a:b`: run only the tests from a up to b, without b, counted from 0."""
    filter_pattern: str | None = None
    """Run only the tests whose description, or case name, matches this regular expression."""
    filter_metadata: Texts = ()
    """`key=value`: run only the tests whose metadata contains the value. Repeatable: all must match."""
    filter_sample: Annotated[Count | None, effective("all")] = None
    """Run a random sample of this many tests."""
    filter_sample_seed: Annotated[int | None, effective("random")] = None
    """The seed of the random sample."""
    filter_failing: Path | None = None
    """Run only the tests that did not pass in this result file (.json or .jsonl)."""
    filter_failing_only: Path | None = None
    """Run only the tests that failed in this result file, without those that ended in an error."""
    filter_errors_only: Path | None = None
    """Run only the tests that ended in an error in this result file."""
    filter_prompts: str | None = None
    """Run only the prompts whose label or id matches this regular expression."""
    filter_providers: Annotated[
        str | None, Parameter(name=["--filter-providers", "--filter-targets"])
    ] = None
    """Run only the providers whose label or id matches this regular expression."""
    allow_empty: Switch = False
    """Accept a suite without tests and filters that match no rows."""


@attrs.frozen(kw_only=True)
class LimitFlags:
    """Flags that bound concurrency, rate, time and cost."""

    max_concurrency: Annotated[
        Count | None,
        effective("as each lane says, else 4"),
        Parameter(name=["--max-concurrency", "-j"]),
    ] = None
    """The most calls in flight on any one lane."""
    max_total_concurrency: Annotated[Count | None, effective("no limit")] = None
    """The most calls in flight on all lanes together."""
    max_rows: Annotated[Whole | None, effective("1,000,000")] = None
    """The most rows that a run may have; 0 for no limit."""
    repeat: Annotated[Count | None, effective("1")] = None
    """The number of times to run each test."""
    delay: Annotated[NotNegative | None, effective("0")] = None
    """The minimum gap between two calls on a lane, in milliseconds."""
    timeout: Annotated[NotNegative | None, effective("no limit")] = None
    """The working time of one row, in seconds; 0 for no limit."""
    max_time: Annotated[NotNegative | None, effective("no limit")] = None
    """The time of the whole run, in seconds; 0 for no limit."""
    max_requests: Annotated[Whole | None, effective("no limit")] = None
    """The most requests that the run may make, including retries."""
    max_tokens: Annotated[Whole | None, effective("no limit")] = None
    """The most tokens that the run may use."""
    max_cost: Annotated[NotNegative | None, effective("no limit")] = None
    """The most US dollars that the run may cost; every provider then needs a known price or maxCost."""
    fail_fast: Switch = False
    """Start no more rows after the first one that did not pass."""


@attrs.frozen(kw_only=True)
class StorageFlags:
    """Flags about stored runs and cached replies, and their reuse."""

    db: Database = None
    durability: Annotated[Literal["normal", "full"] | None, effective("normal")] = None
    """Survive a power failure without the last moments (normal), or without any loss but slower (full)."""
    cache: Annotated[bool | None, effective("on")] = None
    """Use cached replies, and cache new ones."""
    refresh: Switch = False
    """Call providers even for cached replies, and cache the new replies."""
    retry: str | None = None
    """Run these rows of a stored run again: failed, errors, timeouts, indices such as `3,17`, or none, which
    cancels an earlier --retry."""
    retry_errors: Switch = False
    """Short for --retry errors."""
    reconcile: Switch = False
    """Continue a run although its suite has changed; unchanged rows are kept."""


@attrs.frozen(kw_only=True)
class StartFlags:
    """Flags that say where a run runs, whether it is stored, and which run is continued."""

    write: Annotated[bool | None, effective("on")] = None
    """Store the run in the database."""
    resume: str | None = None
    """Continue a run, by its id or the beginning of it; without a value, the latest run of the suite."""
    on: ClusterName = None
    lane_owner: LaneOwner = False
    send: SentPaths = ()
    linger: Linger = 0.0


@attrs.frozen(kw_only=True)
class OutputFlags:
    """Flags about what is shown and written."""

    output: Annotated[Paths, Parameter(name=["--output", "-o"])] = ()
    """Write the results to this file: .json .jsonl .csv .html .yaml .txt .xml .junit.xml .md .parquet .eval.
    Repeatable."""
    omit_zero_counters: OmitZeroCounters = False
    table: Annotated[bool | None, effective("on")] = None
    """Show a table of the first rows after the run."""
    table_cell_max_length: Annotated[
        int | None, effective("40"), Parameter(validator=Number(gte=8))
    ] = None
    """The most characters of an output in that table."""
    progress: Annotated[
        bool | None,
        effective("on"),
        Parameter(
            name=["--progress", "--progress-bar"], negative=["--no-progress", "--no-progress-bar"]
        ),
    ] = None
    """Show on stderr what each lane is doing."""
    progress_mode: Annotated[ProgressMode | None, effective("automatic")] = None
    """The form of the progress: redrawn in place, lines at intervals, groups and annotations of GitHub
    Actions, or JSON lines."""
    quiet: Annotated[Switch, Parameter(name=["--quiet", "-q"])] = False
    """Show only errors and the last line."""
    trace: Path | None = None
    """Write a trace of lanes and calls to this file, for ui.perfetto.dev or chrome://tracing."""
    otel: Switch = False
    """Send spans and evaluation events to OpenTelemetry, configured by its own environment variables."""
    log: Annotated[LogLevel | None, effective("off")] = None
    """Show the log of the library on stderr, from this level on."""
    live: Annotated[bool | None, effective("on")] = None
    """Let `trioeval view` on this machine show and control the run; --live warns if that is not possible."""
    verbose: Switch = False
    """Print a line on stderr for each event of questions and agents, instead of the progress. Warnings and
    errors are always shown."""
    metrics_port: Annotated[
        int | None, effective("off"), Parameter(validator=Number(gte=0, lte=65535))
    ] = None
    """Serve metrics of the run for Prometheus on this port of this machine; 0 takes a free one."""
    no_share: Switch = False
    """No effect: results are never shared."""
    plan: Switch = False
    """Show what would run, its cost and its minimum duration, without calling a provider."""
    watch: Annotated[Switch, Parameter(name=["--watch", "-w"])] = False
    """Run again whenever a file of the suite changes."""
    fail_exit_code: Annotated[
        int | None, effective("100"), Parameter(validator=Number(gte=1, lte=255))
    ] = None
    """The exit code if too few rows pass or a row has no verdict."""


@attrs.frozen(kw_only=True)
class RunFlags:
    """All flags of a run."""

    what: SuiteFlags = SuiteFlags()
    rows: RowFlags = RowFlags()
    limits: LimitFlags = LimitFlags()
    keep: StorageFlags = StorageFlags()
    begin: StartFlags = StartFlags()
    output: OutputFlags = OutputFlags()


@attrs.frozen(kw_only=True)
class PreviewFlags:
    """The flags of `trioeval preview`."""

    task: Texts = ()
    """Show only the dataset of this task and the datasets that it uses. Repeatable."""
    rows: Count = 10
    """The number of rows of each dataset."""
    env_file: EnvFiles = ()
    untrusted: Switch = False
    """Refuse code in the suite, hide the environment from it, and call only the providers that it names."""
    allow_env: Texts = ()
    """`NAME`: an environment variable that an untrusted suite may read. Repeatable."""
    max_concurrency: Annotated[
        Count | None,
        effective("as each lane says, else 4"),
        Parameter(name=["--max-concurrency", "-j"]),
    ] = None
    """The most calls in flight on any one lane."""
    replay: Path | None = None
    """Take all replies from this recording instead of calling providers: no network, no keys."""
    cache: Annotated[bool | None, effective("on")] = None
    """Use cached replies, and cache new ones."""


@attrs.frozen(kw_only=True)
class SimulateFlags:
    """The flags of `trioeval simulate`."""

    task: Texts = ()
    """Simulate only the task with this id and its dependencies. Repeatable."""
    run: Annotated[str | None, Parameter(name="--from")] = None
    """Take latencies, tokens, costs and failures from the calls of this stored run: an id or latest."""
    db: Database = None
    recording: Path | None = None
    """Take them from this recording, a JSONL file of run --record."""
    latency: Texts = ()
    """Seconds of a call, as mean or mean±deviation; `NAME=0.8±0.3` for one provider. Repeatable."""
    prompt_tokens: Annotated[str | None, effective("as measured")] = None
    """Tokens of a prompt, for providers with a given latency."""
    reply_tokens: str = "150±50"
    """Tokens of a reply, for providers with a given latency."""
    failure_rate: Annotated[Share | None, effective("as observed, else 0")] = None
    """The share of requests that fail."""
    agent_calls: Annotated[str | None, effective("as observed")] = None
    """Calls of each case of an agent, one after another, as mean or mean±deviation."""
    limit_rpm: Texts = ()
    """Requests per minute beyond which a provider refuses; `NAME=60` for one provider. Repeatable."""
    limit_burst: Texts = ()
    """Requests that a provider accepts at once; without it --limit-rpm is per rolling minute. Repeatable."""
    limit_tpm: Texts = ()
    """Tokens per minute beyond which a provider refuses; `NAME=90000` for one provider. Repeatable."""
    limit_in_flight: Texts = ()
    """Requests at once beyond which a provider refuses; `NAME=8` for one provider. Repeatable."""
    bare_refusals: Switch = False
    """Let providers refuse without naming a wait, and report no remaining amounts."""
    deadline: str | None = None
    """Say whether the run ends within this time, such as 90s, 45m or 2h."""
    budget: NotNegative | None = None
    """Say whether the run costs at most this many US dollars."""
    max_concurrency: Annotated[
        Count | None,
        effective("as each lane says, else 4"),
        Parameter(name=["--max-concurrency", "-j"]),
    ] = None
    """The most calls in flight on any one lane."""
    compare: bool = True
    """Simulate other settings as well, and recommend some."""
    seed: int = 0
    """The seed of all random choices."""
    json: Switch = False
    """Print JSON."""
    env_file: EnvFiles = ()
    untrusted: Switch = False
    """Refuse code in the suite, hide the environment from it, and call only the providers that it names."""
    allow_env: Texts = ()
    """`NAME`: an environment variable that an untrusted suite may read. Repeatable."""


@attrs.frozen(kw_only=True)
class InitFlags:
    """The flags of `trioeval init`."""

    csv: Path | None = None
    """Write a suite for the questions of this CSV file, whose first line names the columns."""
    model: Texts = ()
    """A model that answers, such as openai:gpt-4.1-mini; required with --csv. Repeatable."""
    base_url: str | None = None
    """The URL of an OpenAI-compatible server that has the models, such as http://localhost:8000/v1."""
    answer_column: Annotated[str | None, effective("found by its name")] = None
    """The column of the right answers."""
    question_column: Annotated[Texts, effective("found by their names")] = ()
    """A column that the prompt shows. Repeatable."""
    output: Annotated[
        Path | None,
        effective("suite.yaml beside the CSV file"),
        Parameter(name=["--output", "-o"]),
    ] = None
    """The suite file; an existing file is not overwritten."""


NOT_PROVIDED = {
    "--share": "results are not shared; send the file that -o writes",
    "--view": "run `trioeval view`, which shows runs in progress in a browser",
    "--suggest-prompts": "suggesting prompts is not supported",
    "--remote": "only your own providers grade and generate",
    "--interactive-providers": "-j 1 runs one call at a time",
    "--shuffle": "rows start and are written in the order of the suite",
}
"""Flags of promptfoo that are not supported, each with an explanation."""


# Errors in the value of a flag name the flag, and not the suite, which has another value.


@contextmanager
def attribute_errors_to_flags(flags: SuiteFlags) -> Iterator[None]:
    """Name the flag instead of file, line and path in problems at keys that a flag replaces.

    Raises:
        SuiteError: The error of the block, with these changes.
    """
    try:
        yield
    except SuiteError as error:
        named = _named(flags)
        problems = [_attributed(problem, named) for problem in error.problems]
        raise SuiteError(problems, files=error.files) from None


def _named(flags: SuiteFlags) -> Mapping[str, str]:
    """Return the flags that are given, by the path of the key that each one replaces."""
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


def _attributed(problem: Problem, named: Mapping[str, str]) -> Problem:
    for path, flag in named.items():
        rest = problem.path.removeprefix(path)
        if rest != problem.path and (not rest or rest[0] in "[."):
            return attrs.evolve(problem, path=flag, file=None, line=None, column=None)
    return problem


# Contradictions between flags. Pure.


def check_flags(flags: RunFlags) -> None:
    """Raise if flags contradict each other.

    Raises:
        UsageError: Some do; all of them are named.
    """
    keep, begin = flags.keep, flags.begin
    wrong = []
    if keep.retry is not None and keep.retry_errors:
        wrong.append(
            "--retry-errors and --retry exclude each other; --retry-errors is short for --retry errors"
        )
    if begin.resume is not None and keep.retry_errors:
        # This includes the command `resume`.
        wrong.append("--retry-errors cannot be used with --resume; write --retry errors instead")
    if keep.refresh and keep.cache is False:
        wrong.append(
            "--refresh and --no-cache exclude each other: --no-cache already calls every provider"
        )
    wrong += _output_contradictions(flags.output)
    if flags.what.untrusted and flags.what.allow_outside:
        wrong.append(
            "--untrusted and --allow-outside exclude each other: an untrusted suite stays in its folder"
        )
    if flags.what.allow_env and not flags.what.untrusted:
        wrong.append(
            "--allow-env needs --untrusted: any other suite can read the whole environment"
        )
    if begin.on is None:
        wrong += [
            f"{flag} needs --on: {reason}"
            for flag, is_given, reason in (
                ("--lane-owner", begin.lane_owner, "one process owns all of its lanes"),
                ("--send", begin.send, "one process reads the files where they are"),
                ("--linger", begin.linger, "one process records each reply at once"),
            )
            if is_given
        ]
    if continues_run(flags):
        wrong += [
            f"{flag} applies to a whole run and cannot be used to continue one"
            for flag, given in (
                ("--no-write", begin.write is False),
                ("--watch", flags.output.watch),
                ("--plan", flags.output.plan),
            )
            if given
        ]
    elif keep.reconcile:
        wrong.append("--reconcile needs --resume or --retry: it is for continuing a run")
    if wrong:
        raise UsageError("\n".join(wrong))


def _output_contradictions(output: OutputFlags) -> list[str]:
    """Return messages about flags that ask for an output and against it."""
    found = []
    if output.quiet:
        shown = {
            "--progress": output.progress,
            "--progress-mode": output.progress_mode,
            "--table": output.table,
            "--verbose": output.verbose,
        }
        found = [f"--quiet and {flag} exclude each other" for flag, given in shown.items() if given]
    if output.progress is False and output.progress_mode is not None:
        found.append("--no-progress and --progress-mode exclude each other")
    return found


def continues_run(flags: RunFlags) -> bool:
    """Return whether the flags ask to continue a stored run."""
    return flags.begin.resume is not None or flags.keep.retry is not None or flags.keep.retry_errors
