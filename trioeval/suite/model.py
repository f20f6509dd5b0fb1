"""The suite as frozen data.

Field names are the keys of the file in snake_case. These classes can be created directly in Python as well; a
suite loaded from a file and an equal one built by hand are interchangeable.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

import attrs

from trioeval.documents.structure import (
    ALSO,
    BESIDE_OTHERS,
    NOT_IN_FILES,
    ONE_OR_MORE,
    TEXT,
    Count,
    ErrorStatus,
    Form,
    Milliseconds,
    NamedText,
    NotNegative,
    Number,
    Positive,
    Scalars,
    SomeText,
    SomeTexts,
    Texts,
    Words,
)
from trioeval.documents.trust import TRUSTED, Trust
from trioeval.errors import Problem
from trioeval.grading import KINDS, Assertion, Kinds
from trioeval.limits.model import LimitKey, SharedLimit
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.simulated_user import SimulatedUser
from trioeval.text import KEY, own_description


@attrs.frozen(kw_only=True)
class BatchSettings:
    """The batching of requests to the backend of the shared limits."""

    size: Count = 128
    """The maximum number of leases in one request, 1 to 256."""
    flush_ms: Milliseconds = 2
    """Milliseconds that a request waits for others, ≥ 1."""


@attrs.frozen(kw_only=True)
class LimitsSettings:
    """The backend of the shared limits."""

    backend: Literal["memory", "redis", "http"] = "memory"
    url: str | None = attrs.field(default=None, repr=False)
    """The address of Redis, or of `trioeval limits serve`; required by both."""
    namespace: str = "trioeval"
    """The prefix of keys in Redis."""
    define: tuple[SharedLimit, ...] | None = None
    """In memory, all limits; in other backends, limits that are created if they do not exist."""
    file: Annotated[Path, Form(TEXT)] | None = None
    """A file of limits, in place of `define`; absolute."""
    unreachable: Literal["closed", "open"] = "closed"
    """The end of calls if the backend is unreachable for longer than the patience: they fail, or proceed."""
    patience_ms: Milliseconds = 30_000
    """Milliseconds that calls wait for an unreachable backend, ≥ 1."""
    request_timeout_ms: Milliseconds = 2000
    """The maximum duration of one request in milliseconds, ≥ 1."""
    batch: BatchSettings | None = None
    """None sends each request alone."""
    max_output_tokens: Count = 2048
    """The estimated number of tokens of a reply without a bound, ≥ 1."""
    workers: Count = 1
    """Concurrent questions on each lane of a task that does not set this itself, ≥ 1."""


_VARIABLES = Form({"type": ["object", "string", "array", "null"]})


@attrs.frozen(kw_only=True)
class RowsOfTask:
    """Tests that are the rows of an earlier task: `{"fromTask": "problems", "vars": {…}}`."""

    task: SomeText = attrs.field(metadata={KEY: "fromTask"})
    """The id of an earlier task."""
    vars: SomeTexts | None = None
    """The variables of tests, each with its column or a template over the row; None uses all columns."""
    assertions: tuple[Assertion, ...] = attrs.field(default=(), metadata={KEY: "assert"})
    """The assertions of each test; their texts may refer to the variables."""
    question: Mapping[str, str] = attrs.field(factory=dict, metadata=NOT_IN_FILES)
    """For a task of questions: the columns of `question`, `answers`, `correctAnswers` and `id`."""
    limit: Count | None = None
    """The number of rows used, from the first, ≥ 1; None uses all."""


@attrs.frozen(kw_only=True)
class LaneSettings:
    """The limits of the calls to one provider key."""

    key: str | None = None
    """The rate-limit scope, if it is not the provider's; equal keys share a lane."""
    max_concurrency: Count | None = None
    """Calls in flight at once, ≥ 1; None takes the suite's `max_concurrency`."""
    rpm: Positive | None = None
    """Requests per minute, > 0; None is unlimited."""
    burst: Count = 1
    """Requests that may start at once before the rate of `rpm` applies, ≥ 1."""
    tpm: Positive | None = None
    """Tokens per minute, > 0; None is unlimited."""
    token_burst: Number = 0
    """Tokens that may be used at once beyond the rate of `tpm` after a pause, ≥ 0."""
    min_gap: NotNegative | None = None
    """The minimum gap between two starts in seconds, ≥ 0; None takes the suite's `delay`."""
    delay: NotNegative | None = None
    """The same gap in milliseconds, ≥ 0, in place of `min_gap`."""
    adaptive: Literal["aimd", "latency", "off"] = "aimd"
    """The signal that adapts the number of calls in flight: refusals, latency as well, or none."""
    slow_start: bool = False
    """Begin with one call in flight and double that number until the first failure; for `aimd`."""
    retries: Number = 3
    """The maximum number of retries after transient failures, ≥ 0."""
    max_retries: Number | None = None
    """The maximum number of retries for any reason, ≥ 0; None bounds refusals by the patience only."""
    retry_delay: NotNegative = 0.5
    """Most seconds before the first retry after a transient failure, ≥ 0; doubles with each further one."""
    refusal_delay: Positive = 0.5
    """Most seconds before the first retry after a refusal without a named wait, > 0; doubles likewise."""
    max_retry_delay: NotNegative = 60
    """Most seconds to which these delays grow, ≥ 0; a larger first delay stays as it is."""
    patience: Positive = 300
    """Seconds of failures without one success after which the lane is closed, > 0."""
    breaker_threshold: Count = 3
    """Consecutive permanent refusals after which the lane is closed, ≥ 1."""
    oversize: Literal["alone", "refuse"] = "alone"
    """The treatment of a call that exceeds a minute's tokens: start it alone, or refuse it."""
    overload_statuses: tuple[ErrorStatus, ...] = ()
    """HTTP statuses, besides 429 and 529, that mean "too many calls"; ≥ 400."""
    limits: tuple[LimitKey, ...] = ()
    """Limits of the suite's `limits` that its calls count against as well."""


@attrs.frozen(kw_only=True)
class BudgetSettings:
    """The maximum consumption of a run."""

    requests: Number | None = None
    """Requests, retries included, ≥ 0; None is unlimited."""
    tokens: Number | None = None
    """Tokens of prompts and replies, ≥ 0; None is unlimited."""
    usd: NotNegative | None = None
    """US dollars, ≥ 0; None is unlimited. Every provider then needs a known price or `maxCost`."""


@attrs.frozen(kw_only=True)
class ProviderEntry:
    """One provider of a suite."""

    id: NamedText
    """`echo`, `openai:chat:gpt-4.1-mini`, `replay:file.jsonl`, or the name of a callable of the caller."""
    label: str | None = None
    config: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    lane: LaneSettings | str | None = None
    """Settings of the provider's lane, or the name of an entry in the suite's `lanes`."""
    prompts: tuple[str, ...] | None = None
    """Labels or ids of its prompts, prefixes of them with `*`, or groups; None is all prompts."""
    delay: NotNegative | None = None
    """The gap of its lane in milliseconds; the largest of all entries of the lane and its own applies."""
    transform: str | None = None
    """The transform of its outputs before a test sees them, if the test has no transform itself."""
    env: Scalars = attrs.field(factory=dict, repr=False)
    """Environment variables of this provider only; they override those of the suite."""
    own_id: str | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """The id that names it in rows and references in place of `id`: in files, the `id` of an object that is
    itself below the id."""
    user: SimulatedUser | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """The settings of a simulated user, in `config` as they are written; None for other providers."""

    @property
    def shown_id(self) -> str:
        """The id that names it in rows and references."""
        return self.id if self.own_id is None else self.own_id

    @property
    def name(self) -> str:
        """Its label, or else its id."""
        return self.label or self.shown_id


@attrs.frozen(kw_only=True)
class PromptFunction:
    """A program of the user that creates the text of a prompt when a row runs."""

    kind: Literal["python", "javascript", "exec"]
    target: str
    """The absolute path of a file, or a command."""
    function: str | None = None
    """The function in the file; None for JavaScript's default export, or a program that prints the prompt."""


@attrs.frozen(kw_only=True)
class Prompt:
    """One prompt template."""

    raw: NamedText
    label: str
    """Its name in tables and files; by default the raw text."""
    id: str = attrs.field(metadata=NOT_IN_FILES)
    """The digest of the label, else of the given id, else of the raw text: the same in every run."""
    given_id: str | None = attrs.field(default=None, metadata={KEY: "id"})
    """The id in the file, by which a provider's `prompts` may refer to it."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """Keys of the provider's config that are overridden for this prompt."""
    function: PromptFunction | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """Creates the text in place of `raw`, which then is only shown."""
    entry: int | None = attrs.field(default=None, eq=False, repr=False, metadata=NOT_IN_FILES)
    """The index of its entry in the list of prompts; None without a list."""
    find_origin: Callable[[], str] | None = attrs.field(
        default=None, eq=False, repr=False, metadata=NOT_IN_FILES
    )
    """Returns the place of its entry as `suite.yaml:9:5`, or "" if it is unknown; None without a file."""


@attrs.frozen(kw_only=True)
class TestOptions:
    """Options of one test."""

    __test__ = False  # not a test class for pytest

    run_serially: bool | None = None
    """Run alone, before all parallel rows. None takes the value of `default_test`, else false."""
    repeat: Count | None = None
    """The number of repetitions, in place of the suite's `repeat`, ≥ 1."""
    prefix: str | None = None
    """Text before the prompt."""
    suffix: str | None = None
    """Text after the prompt."""
    transform: str | None = attrs.field(default=None, metadata={ALSO: "postprocess"})
    """The transform of the output before it is graded, in place of the provider's `transform`."""
    transform_vars: str | None = None
    """Code that adds or changes variables before they are expanded; runs when the suite is loaded."""
    store_output_as: str | None = None
    """The register that stores the output, a variable of later steps."""
    disable_var_expansion: bool | None = None
    """Use lists of texts as values instead of expanding them to one row for each text."""
    disable_conversation_var: bool | None = None
    """Do not add `_conversation` to the variables of the prompt."""
    disable_default_asserts: bool | None = None
    """Leave out the assertions of `default_test`."""
    provider: Any = None
    """The judge, for assertions that call a model."""
    rubric_prompt: Any = None
    """The prompt of the judge."""
    factuality: Mapping[str, float] | None = None
    """Scores of the categories of `factuality`."""
    overrides: Mapping[str, Any] = attrs.field(factory=dict, metadata=BESIDE_OTHERS)
    """All other keys: keys of the provider's config that are overridden for this test."""


class ExtraKeys(Protocol):
    """Keys that a test of one type of task has besides those of every test."""

    name: str
    """Unique among the tests of the task."""

    @property
    def assertions(self) -> Sequence[Assertion]:
        """Assertions that every such test begins with, except types it uses itself."""
        return ()

    def identity(self) -> Sequence[Any]:
        """Return the keys that influence how its rows end, as JSON data."""
        return ()


@attrs.frozen(kw_only=True)
class Test:
    """One set of variables and the expectations on the replies to it."""

    __test__ = False

    description: Words | None = None
    vars: Annotated[Mapping[str, Any], _VARIABLES] = attrs.field(factory=dict)
    provider: ProviderEntry | None = None
    """Replies in place of the provider of each column, or talks to it as a simulated user."""
    providers: tuple[str, ...] | None = None
    """Labels or ids of the providers that get the test, as in `ProviderEntry.prompts`; None is all."""
    prompts: tuple[str, ...] | None = None
    """Labels or ids of the prompts that get the test; None is all."""
    provider_output: Any = None
    """Used in place of a reply; no provider is called. An empty text counts as a reply."""
    assertions: tuple[Assertion, ...] = attrs.field(default=(), metadata={KEY: "assert"})
    """The key `assert` of the file."""
    threshold: float | None = None
    """The minimum weighted score to pass; replaces "no assertion failed"."""
    assert_scoring_function: str | None = None
    """Combines the verdicts of the assertions, in place of their mean: `file://x.py:name`."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    options: TestOptions = TestOptions()
    judge: ProviderEntry | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """Of the default test: the judge where none is set elsewhere. This is its `provider` if it is only an id;
    that provider then replies to no test."""
    is_data: bool = attrs.field(default=False, metadata=NOT_IN_FILES)
    """True if its variables are plain data, neither file names nor templates: they come from the rows of
    another task, and the outputs of models are not trusted."""
    extra: ExtraKeys | None = attrs.field(default=None, metadata=BESIDE_OTHERS)
    """The keys that its type of task adds."""
    fault: str | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """The reason why it cannot run: a line of a large file that is invalid. Its rows are errors."""

    @property
    def known_as(self) -> str | None:
        """The text that distinguishes tests with equal variables: the name of the case or the description."""
        if self.extra is not None:
            return self.extra.name
        found: str | None = own_description(self.description)
        return found


@attrs.frozen(kw_only=True)
class Scenario:
    """Tests that are run once for each of several settings."""

    config: tuple[Test, ...]
    """The settings, as parts of tests."""
    tests: tuple[Test, ...] = (Test(),)
    description: Words | None = None


@attrs.frozen(kw_only=True)
class DerivedMetric:
    """A number computed from the metrics of a column when all of its rows are complete."""

    name: str
    """Its name; later metrics may use it."""
    value: str
    """Arithmetic on the sums of metrics and `__count`, the rows of the column; or `file://x.py:name`."""


MOST_ROWS = 1_000_000
"""The default of the maximum number of rows of a run."""

WIDTH = 4
"""The default of the max concurrency of a lane."""


@attrs.frozen(kw_only=True)
class EvaluateOptions:
    """Options of a run."""

    max_concurrency: Count | None = None
    """The max concurrency of every lane that sets none itself, ≥ 1; None is 4."""
    max_total_concurrency: Count | None = None
    """Calls in flight on all lanes together, ≥ 1; None is unlimited."""
    assertions_max_concurrency: Count | None = None
    """Concurrent assertions of one row that call models, code or servers, ≥ 1; None is 3."""
    max_live_jobs: Count | None = None
    """Rows or cells of one lane that may be started and not finished, except those in a back-off, ≥ 1; None
    is 256 plus the max concurrency of all lanes."""
    timeout_ms: NotNegative | None = None
    """The maximum working time of one row in milliseconds; None and 0 are unlimited."""
    max_eval_time_ms: NotNegative | None = None
    """The maximum time of the whole run in milliseconds; None and 0 are unlimited."""
    repeat: Count = 1
    """The number of repetitions of each test, ≥ 1."""
    cluster: str | None = None
    """A key of the metadata of tests, or a variable: tests with equal values are dependent observations for
    confidence intervals; None is the key `cluster` of metadata."""
    max_rows: Number = MOST_ROWS
    """The maximum number of rows of a run, ≥ 0; a larger run is refused before it begins. 0 is unlimited."""
    delay: NotNegative = 0
    """The minimum gap between two starts on a lane in milliseconds, ≥ 0."""
    salvage_rounds: Number = 0
    """The number of final retry rounds for rows with transient failures, ≥ 0."""
    budget: BudgetSettings | None = None
    """The maximum consumption of the run; None is unlimited."""
    serialize: Literal["all", "conversation", "register", "auto"] = "all"
    """The steps that run in order if conversations or registers make steps depend on each other: all steps,
    only those of one conversation, only those that share a register, or only those that really depend."""
    register_scope: Literal["suite", "column"] = "suite"
    """The scope of registers: shared by all columns, or separate for each."""
    strict_variables: bool = False
    """Undefined variables are errors; otherwise they print nothing."""
    filter_range: str | None = None
    """`a:b`: the tests from a up to, but without, b; from 0."""
    cache: bool = True
    """Use the cache of replies."""
    show_progress_bar: bool = True
    grading: Literal["strict", "lenient"] = "strict"
    """The reading of replies of judges: an unreadable one is an error, or interpreted as by promptfoo."""


@attrs.frozen(kw_only=True)
class CommandLineOptions:
    """Defaults of command-line flags; flags override them, and they override `EvaluateOptions`."""

    max_concurrency: Count | None = None
    repeat: Count | None = None
    delay: NotNegative | None = None
    """Milliseconds."""
    cache: bool | None = None
    description: str | None = None
    env_file: Texts = ()
    env_path: Texts = ()
    """Another name of `env_file`."""
    extension: Texts = ()
    """Hooks in place of the suite's."""
    filter_errors_only: str | None = None
    filter_failing: str | None = None
    filter_failing_only: str | None = None
    filter_first_n: Count | None = None
    filter_metadata: Annotated[str | tuple[str, ...], ONE_OR_MORE] | None = None
    filter_pattern: str | None = None
    filter_prompts: str | None = None
    filter_providers: str | None = None
    filter_range: str | None = None
    filter_sample: Count | None = None
    filter_sample_seed: int | None = None
    filter_targets: str | None = None
    generate_suggestions: bool | None = None
    """No effect, as `no_share` and `share`; `true` causes a warning if the feature would be missed."""
    grader: str | None = None
    no_share: bool | None = None
    output: Texts = ()
    progress_bar: bool | None = None
    prompt_prefix: str | None = None
    prompt_suffix: str | None = None
    share: bool | None = None
    table: bool | None = None
    table_cell_max_length: Count | None = None
    tags: Scalars = attrs.field(factory=dict)
    var: Scalars = attrs.field(factory=dict)
    verbose: bool | None = None
    watch: bool | None = None
    write: bool | None = None


@attrs.frozen(kw_only=True)
class RunLimits:
    """Limits for all tasks of type `agent` of a suite together: the key `agents` of the file."""

    max_concurrent_runs: Number | None = None
    """Concurrent attempts of programs, over all tasks; 0 is unlimited; None takes the `max_concurrency`."""
    max_concurrent_root_tasks: Number = 0
    """Concurrent cases, over all programs that share the database, in order of arrival; 0 is unlimited."""
    bus_rotate_bytes: Count | None = None
    """The size at which a file of a message bus is closed and the next one is opened; None never does."""
    bus_keep_segments: Count | None = None
    """The number of files of a bus that are retained, the newest; None retains all."""


TaskType: TypeAlias = Literal["prompt_eval", "question_eval", "columns", "agent"]
CodeDigests: TypeAlias = Callable[[str], str | None]
"""Returns the digest of the file of code that a text of a suite names; None if it names none."""


@attrs.frozen(kw_only=True)
class ColumnsOfTask:
    """Columns that a dataset takes from the rows of an earlier task."""

    task: str
    """The id of an earlier task."""
    place: int
    """The index of the entry that names them in the key `columns` of the task."""
    columns: Mapping[str, str]
    """The columns of the dataset, each with its name in the rows."""


class TaskSettings(Protocol):
    """Settings that a task of one type has besides those of every suite."""

    type: ClassVar[TaskType]
    """The key `type` of the task."""

    @property
    def row_tokens(self) -> int | None:
        """The maximum number of tokens of one row, over all of its calls; None is unlimited."""
        return None

    def rows_at_once(self, limits: LimitsSettings | None) -> int:
        """Return the concurrent rows on each lane without a max concurrency; 0 leaves that to the lane.

        Args:
            limits: The key `limits` of the suite.
        """
        del limits
        return 0

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """Return the settings that influence how rows end, as JSON data.

        Args:
            sources: Digests of code; None leaves them out.
        """
        del sources
        return ()

    def code(self) -> Iterable[str]:
        """Return the texts among the settings that name code."""
        return ()

    def files(self) -> Iterable[Path]:
        """Return the files that are read only when the task runs, and determine its rows."""
        return ()

    def sources(self) -> Iterable[ColumnsOfTask]:
        """Return the columns that are taken from the rows of earlier tasks."""
        return ()


@attrs.frozen
class PromptEvalSettings(TaskSettings):
    """The settings of `type: prompt_eval`, and of a suite without `tasks`: no further ones."""

    type: ClassVar[TaskType] = "prompt_eval"


@attrs.frozen(kw_only=True)
class Suite:
    """A whole suite."""

    providers: tuple[ProviderEntry, ...]
    prompts: tuple[Prompt, ...]
    tests: Sequence[Test] = (Test(),)
    """By default one test without variables. A large file of tests is read on access."""
    scenarios: tuple[Scenario, ...] | None = None
    """Their tests come after `tests`; None if the file has none, which then has at least one test."""
    description: Words | None = None
    default_test: Test | None = None
    evaluate_options: EvaluateOptions = EvaluateOptions()
    command_line_options: CommandLineOptions = CommandLineOptions()
    lanes: Mapping[str, LaneSettings] = attrs.field(factory=dict)
    """Lane settings by name, for providers that share one lane."""
    limits: LimitsSettings | None = None
    """The backend of shared limits; None uses none."""
    env: Scalars = attrs.field(factory=dict, repr=False)
    """Environment variables for templates and providers; they override those of the process."""
    nunjucks_filters: Mapping[str, str] = attrs.field(factory=dict)
    """Filters for templates by name: Python or JavaScript files."""
    assertion_types: Mapping[str, str] = attrs.field(factory=dict)
    """The suite's own assertion types by name: `file://x.py:name`, as the value of a `python` assertion."""
    derived_metrics: tuple[DerivedMetric, ...] = ()
    """Numbers computed from the metrics of each column, in order."""
    extensions: Texts = ()
    """Hooks: `file://x.py:name`."""
    before_all: Mapping[str, Any] | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """The changes of `beforeAll` of its extensions, which is not called again; None before it is called."""
    output_path: Texts = ()
    """Result files, as if named by `-o`."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    tags: Scalars = attrs.field(factory=dict)
    directory: Path = attrs.field(factory=Path.cwd, metadata=NOT_IN_FILES)
    """The base of relative paths of the suite."""
    file: Path | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """The file it was loaded from; None for a suite created in Python."""
    files: tuple[Path, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """All files that it was loaded from."""
    warnings: tuple[Problem, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """Warnings about the suite."""
    allow_outside: bool = attrs.field(default=False, metadata=NOT_IN_FILES)
    """True if it may read files outside of `roots`."""
    roots: tuple[Path, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """Folders whose files it may read: those of its own files or repositories; empty means `directory`."""
    trust: Trust = attrs.field(default=TRUSTED, metadata=NOT_IN_FILES)
    """Its permissions."""
    unknown: tuple[str, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """Descriptions of what only a run can determine, if it was loaded without running code."""
    place: Callable[[Problem], Problem] | None = attrs.field(
        default=None, eq=False, repr=False, metadata=NOT_IN_FILES
    )
    """Finds the file, line and column of a problem by its path; None for a suite created in Python."""
    kinds: Kinds = attrs.field(default=KINDS, eq=False, repr=False, metadata=NOT_IN_FILES)
    """The assertion types that its tests may use."""
    settings: TaskSettings = attrs.field(default=PromptEvalSettings(), metadata=NOT_IN_FILES)
    """The settings that its type of task adds."""
    run_limits: RunLimits = attrs.field(factory=RunLimits, metadata={KEY: "agents"})
    """Limits for all tasks of type `agent` together."""
    rows_of: RowsOfTask | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """The source of its tests, if they are the rows of an earlier task: known when that has ended."""
    tasks: tuple["Task", ...] = ()
    """Its tasks; a suite with tasks has no prompts and tests itself."""


UNREADABLE = Suite(providers=(), prompts=(), directory=Path())
"""Stands in for a suite with mistakes, so that references to its parts can be checked anyway."""


@attrs.frozen(kw_only=True)
class Task:
    """One of the tasks of a suite."""

    id: str
    suite: Suite
    """Its contents: a suite that takes from the top what the task does not set itself."""
    depends_on: tuple[str, ...] = ()
    """Ids of earlier tasks, every row of which must have a verdict."""
    when_failed: FailedDependency = "skip"
    """The effect on this task if one of those is not complete."""
