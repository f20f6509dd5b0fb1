"""What a suite file means, as frozen data.

Field names are the keys of the file in snake_case. These classes can be made directly in Python as well;
a suite that was loaded from a file and one that was built by hand are the same thing.
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
from trioeval.limits.model import Limit, LimitKey
from trioeval.suite.dependencies import FailedDependency
from trioeval.text import KEY


@attrs.frozen(kw_only=True)
class BatchSettings:
    """How requests to whoever keeps the limits are put together."""

    size: Count = 128
    """Most leases in one request, 1 to 256."""
    flush_ms: Milliseconds = 2
    """How long one waits for others, ≥ 1."""


@attrs.frozen(kw_only=True)
class LimitsSettings:
    """Where the shared limits are kept."""

    backend: Literal["memory", "redis", "http"] = "memory"
    url: str | None = attrs.field(default=None, repr=False)
    """Of Redis, or of `trioeval limits serve`; needed by both."""
    namespace: str = "trioeval"
    """What keys in Redis begin with."""
    limits: tuple[Limit, ...] | None = None
    """In memory, those that there are; elsewhere those that are made where they are not there yet."""
    limits_file: Annotated[Path, Form(TEXT)] | None = None
    """A file of them, in place of `limits`; absolute."""
    unreachable: Literal["closed", "open"] = "closed"
    """What becomes of calls when nobody can be asked for longer than the patience: they fail, or are made."""
    patience_ms: Milliseconds = 30_000
    """How long calls wait for whoever keeps the limits to answer again, in milliseconds, ≥ 1."""
    request_timeout_ms: Milliseconds = 2000
    """Milliseconds that one request may take, ≥ 1."""
    batch: BatchSettings | None = None
    """None sends each request alone."""
    max_output_tokens: Count = 2048
    """What a reply is taken to have at most where nothing bounds it, in tokens, ≥ 1."""
    workers: Count = 1
    """Questions under way at once on each lane of a task that does not say how many, ≥ 1."""


_VARIABLES = Form({"type": ["object", "string", "array", "null"]})


@attrs.frozen(kw_only=True)
class RowsOfTask:
    """Tests that are the rows of an earlier task: `{"fromTask": "problems", "vars": {…}}`."""

    task: SomeText = attrs.field(metadata={KEY: "fromTask"})
    """The id of a task that comes first."""
    vars: SomeTexts | None = None
    """The variables of the tests, each with the column that it is, or with a template over the row; None
    gives each column under its name."""
    assertions: tuple[Assertion, ...] = attrs.field(default=(), metadata={KEY: "assert"})
    """What is expected of each reply; their texts may name the variables."""
    question: Mapping[str, str] = attrs.field(factory=dict, metadata=NOT_IN_FILES)
    """Of a task of questions: the columns that are `question`, `answers`, `correctAnswers` and `id`."""
    limit: Count | None = None
    """Only the first so many rows, ≥ 1."""


@attrs.frozen(kw_only=True)
class LaneSettings:
    """How hard one provider key may be used."""

    key: str | None = None
    """The rate-limit scope, where it is another than the provider's; equal keys share a lane."""
    max_concurrency: Count | None = None
    """Calls in flight at once, ≥ 1; None takes the suite's `max_concurrency`."""
    rpm: Positive | None = None
    """Requests per minute, > 0; None does not limit them."""
    burst: Count = 1
    """Requests that may start together before the pace of `rpm` holds, ≥ 1."""
    tpm: Positive | None = None
    """Tokens per minute, > 0; None does not limit them."""
    delay: NotNegative | None = None
    """Least gap between two starts in milliseconds, ≥ 0; None takes the suite's `delay`."""
    adaptive: Literal["aimd", "latency", "off"] = "aimd"
    """What the calls in flight follow: refusals, latency as well, or nothing."""
    retries: Number = 3
    """How often a call that failed by mishap is made again, ≥ 0."""
    max_retries: Number | None = None
    """How often a call is made again for whatever reason, ≥ 0; None leaves refusals to the patience."""
    retry_delay: NotNegative = 2
    """Most seconds before a call that failed by mishap is made again for the first time, ≥ 0; each further
    time it is twice that, and chance chooses."""
    lane_patience: Positive = 300
    """Seconds of trouble without one success after which the lane is closed, > 0."""
    overload_statuses: tuple[ErrorStatus, ...] = ()
    """HTTP statuses that mean "too many calls" here, besides 429 and 529; ≥ 400."""
    breaker_threshold: Count = 3
    """Refusals for good in a row after which the lane is closed, ≥ 1."""
    limits: tuple[LimitKey, ...] = ()
    """Limits of the suite's `limits` that its calls count against as well."""


@attrs.frozen(kw_only=True)
class BudgetSettings:
    """The most that a run may use."""

    requests: Number | None = None
    """Requests, retries among them, ≥ 0; None does not bound them."""
    tokens: Number | None = None
    """Tokens of prompts and replies, ≥ 0; None does not bound them."""
    usd: NotNegative | None = None
    """US dollars, ≥ 0; None does not bound them. Every provider then needs a known price or `maxCost`."""


@attrs.frozen(kw_only=True)
class ProviderEntry:
    """One provider as a suite names it."""

    id: NamedText
    """`echo`, `openai:chat:gpt-4.1-mini`, `replay:file.jsonl`, or a name the caller passes a callable for."""
    label: str | None = None
    config: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    lane: LaneSettings | str | None = None
    """Settings of the provider's lane, or the name of an entry in the suite's `lanes`."""
    prompts: tuple[str, ...] | None = None
    """Labels or ids of the prompts it gets, beginnings of them with `*`, or groups; None is all of them."""
    delay: NotNegative | None = None
    """Short for the `delay` of its lane, where the lane gives none."""
    transform: str | None = None
    """What becomes of its outputs before a test sees them, where the test has no transform of its own."""
    env: Scalars = attrs.field(factory=dict, repr=False)
    """Environment variables of this provider alone, over those of the suite."""


@attrs.frozen(kw_only=True)
class PromptFunction:
    """A program of the user's that makes the text of a prompt when a row runs."""

    kind: Literal["python", "exec"]
    target: str
    """The absolute path of a Python file, or a command."""
    function: str | None = None
    """The function of the file; None for a program that gets JSON as its argument and prints the prompt."""


@attrs.frozen(kw_only=True)
class Prompt:
    """One prompt template."""

    raw: NamedText
    label: str
    """What tables and files call it; the raw text where nothing else is given."""
    id: str = attrs.field(metadata=NOT_IN_FILES)
    """Digest of label, else given id, else raw text: it stays the same from run to run."""
    given_id: str | None = attrs.field(default=None, metadata={KEY: "id"})
    """The id that the file gives, by which a provider's `prompts` may name it."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """Keys of the provider's config that are different for this prompt."""
    function: PromptFunction | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """What makes the text, in place of `raw`, which then is only shown."""
    entry: int | None = attrs.field(default=None, eq=False, repr=False, metadata=NOT_IN_FILES)
    """The index of its entry in the list of prompts; None if there is no list."""
    find_origin: Callable[[], str] | None = attrs.field(
        default=None, eq=False, repr=False, metadata=NOT_IN_FILES
    )
    """Returns the place of its entry as `suite.yaml:9:5`, or "" if it is unknown; None without a file."""


@attrs.frozen(kw_only=True)
class TestOptions:
    """Switches of one test."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    run_serially: bool | None = None
    """Run alone, before everything that may run side by side. None is as `default_test` says, else false."""
    repeat: Count | None = None
    """Replaces the suite's `repeat` for this test, ≥ 1."""
    prefix: str | None = None
    """Text before the prompt."""
    suffix: str | None = None
    """Text behind the prompt."""
    transform: str | None = attrs.field(default=None, metadata={ALSO: "postprocess"})
    """What becomes of the output before it is judged, in place of the provider's `transform`."""
    transform_vars: str | None = None
    """What adds to the variables, or changes them, before they are expanded; applied at load."""
    store_output_as: str | None = None
    """The register that gets the output, a variable of later steps."""
    disable_var_expansion: bool | None = None
    """Take lists of texts as they are, not as alternatives."""
    disable_conversation_var: bool | None = None
    """Give no `_conversation` to the prompt."""
    disable_default_asserts: bool | None = None
    """Leave out the assertions of `default_test`."""
    provider: Any = None
    """Who judges, for assertions that ask a model."""
    rubric_prompt: Any = None
    """How it is asked."""
    factuality: Mapping[str, float] | None = None
    """Scores of the categories of `factuality`."""
    overrides: Mapping[str, Any] = attrs.field(factory=dict, metadata=BESIDE_OTHERS)
    """All other keys: those of the provider's config that are different for this test."""


class ExtraKeys(Protocol):
    """Keys that a test of one type of task has besides those of every test."""

    name: str
    """Unique among the tests of the task."""

    @property
    def assertions(self) -> Sequence[Assertion]:
        """Assertions that every such test begins with, unless it has some of the same type itself."""
        return ()

    def identity(self) -> Sequence[Any]:
        """The keys that decide how its rows end, as JSON data."""
        return ()


@attrs.frozen(kw_only=True)
class Test:
    """One set of variables and what is expected of the replies to it."""

    __test__ = False

    description: Words | None = None
    vars: Annotated[Mapping[str, Any], _VARIABLES] = attrs.field(factory=dict)
    provider: ProviderEntry | None = None
    """Answers in place of the provider of each column."""
    providers: tuple[str, ...] | None = None
    """Labels or ids of the providers that get the test, as in `ProviderEntry.prompts`; None is all."""
    prompts: tuple[str, ...] | None = None
    """Labels or ids of the prompts that get it; None is all of them."""
    provider_output: Any = None
    """Stands for what a provider would answer; nobody is asked then. An empty text is an answer too."""
    assertions: tuple[Assertion, ...] = attrs.field(default=(), metadata={KEY: "assert"})
    """The key `assert` of the file."""
    threshold: float | None = None
    """Least weighted score to pass; replaces "no assertion failed"."""
    assert_scoring_function: str | None = None
    """What makes a verdict of those of the assertions, in place of their mean: `file://x.py:name`."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    options: TestOptions = TestOptions()
    judge: ProviderEntry | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """Of the default test: who judges where nothing else says so, which is its `provider` if that is a mere
    id. It answers for nobody then."""
    is_data: bool = attrs.field(default=False, metadata=NOT_IN_FILES)
    """Whether its variables are data as they stand, which name no file and are no templates: they come from
    the rows of another task, and models write anything."""
    extra: ExtraKeys | None = attrs.field(default=None, metadata=BESIDE_OTHERS)
    """What its type of task adds."""
    fault: str | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """Why it cannot be run: a line of a large file that turned out to be wrong. Its rows are errors."""

    @property
    def known_as(self) -> str | None:
        """What tells it from others with the same variables: the name of its case, or its description."""
        return self.description if self.extra is None else self.extra.name


@attrs.frozen(kw_only=True)
class Scenario:
    """Tests that are run once for each of several settings."""

    config: tuple[Test, ...]
    """The settings, as parts of tests."""
    tests: tuple[Test, ...] = (Test(),)
    description: Words | None = None


@attrs.frozen(kw_only=True)
class DerivedMetric:
    """A number that is made of the metrics of a column when all of its rows are there."""

    name: str
    """What it is called; later ones may use it."""
    value: str
    """Arithmetic on the sums of metrics and `__count`, the rows of the column; or `file://x.py:name`."""


MOST_ROWS = 1_000_000
"""The most rows of a run, where nothing says how many."""

WIDTH = 4
"""Calls in flight on a lane, where nothing says how many."""


@attrs.frozen(kw_only=True)
class EvaluateOptions:
    """How a suite is run."""

    max_concurrency: Count | None = None
    """Width of every lane that names none of its own, ≥ 1; None is 4."""
    max_total_concurrency: Count | None = None
    """Calls in flight on all lanes together, ≥ 1; None does not limit them."""
    assertions_max_concurrency: Count | None = None
    """Assertions of one row that ask models, run code or call servers at once, ≥ 1; None is 3."""
    max_live_jobs: Count | None = None
    """Rows or cells of one lane that may be begun and not over, ≥ 1, but for those in a back-off; None is
    256 and the widths of all lanes."""
    timeout_ms: NotNegative | None = None
    """Working time of one row in milliseconds; None and 0 do not limit it."""
    max_eval_time_ms: NotNegative | None = None
    """Time of the whole run in milliseconds; None and 0 do not limit it."""
    repeat: Count = 1
    """How often each test is asked, ≥ 1."""
    cluster: str | None = None
    """A key of the metadata of tests, or a variable: tests with the same value are no independent
    observations when intervals are made; None looks at the key `cluster` of metadata."""
    max_rows: Number = MOST_ROWS
    """The most rows that a run may have, ≥ 0; a larger run is refused before it begins. 0 bounds nothing."""
    delay: NotNegative = 0
    """Least gap between two starts on a lane in milliseconds, ≥ 0."""
    salvage_rounds: Number = 0
    """How often rows that failed by mishap are run once more at the end, ≥ 0."""
    budget: BudgetSettings | None = None
    """The most that the run may use; None does not bound it."""
    serialize: Literal["all", "conversation", "register", "auto"] = "all"
    """What runs in order where conversations or registers make steps depend on each other: everything, or
    only the steps of one conversation, only those that share a register, or only what really depends."""
    register_scope: Literal["suite", "column"] = "suite"
    """Whether all columns share registers, or each has its own."""
    strict_variables: bool = False
    """Whether it is an error to use a variable that is not defined, which otherwise prints nothing."""
    filter_range: str | None = None
    """`a:b`: the tests from a up to, but without, b; from 0."""
    cache: bool = True
    """Whether replies may come from the cache."""
    show_progress_bar: bool = True
    grading: Literal["strict", "lenient"] = "strict"
    """How replies of judges are read: what cannot be read is an error, or else guessed as promptfoo does."""


@attrs.frozen(kw_only=True)
class CommandLineOptions:
    """What the command line says where its flags do not; flags win, and these win over `EvaluateOptions`."""

    max_concurrency: Count | None = None
    repeat: Count | None = None
    delay: NotNegative | None = None
    """Milliseconds."""
    cache: bool | None = None
    description: str | None = None
    env_file: Texts = ()
    env_path: Texts = ()
    """The same."""
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
    """Without meaning, as are `no_share` and `share`; `true` is told where it would be missed."""
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
    """What holds for all tasks of type `agent` of a suite: the key `agents` of the file."""

    max_concurrent_runs: Number | None = None
    """Attempts of programs that run at once, over all tasks; 0 does not bound them; None takes the
    `maxConcurrency` of `evaluateOptions`."""
    max_concurrent_root_tasks: Number = 0
    """Cases that are under way at once, over all programs that share the database of runs, each in its turn;
    0 does not bound them."""
    bus_rotate_bytes: Count | None = None
    """Size at which a file of a message bus is closed and the next one begun; None never does."""
    bus_keep_segments: Count | None = None
    """Files of a bus that are kept, the newest; None keeps all."""


TaskType: TypeAlias = Literal["prompt_eval", "question_eval", "columns", "agent"]
CodeDigests: TypeAlias = Callable[[str], str | None]
"""Gives the digest of the file of code that a text of a suite names; None if it names none."""


@attrs.frozen(kw_only=True)
class ColumnsOfTask:
    """Columns that a dataset takes from the rows of an earlier task."""

    task: str
    """The id of a task that comes first."""
    place: int
    """The place of the entry that names them in the key `columns` of the task."""
    columns: Mapping[str, str]
    """The columns of the dataset, each with what it is called in the rows."""


class TaskSettings(Protocol):
    """Settings that a task of one type has besides those of every suite."""

    type: ClassVar[TaskType]
    """The key `type` of the task."""

    @property
    def row_tokens(self) -> int | None:
        """Most tokens of one row, over all of its calls; None does not bound them."""
        return None

    def rows_at_once(self, limits: LimitsSettings | None) -> int:
        """Rows under way at once on each lane without a width of its own; 0 leaves that to the lane.

        Args:
            limits: The key `limits` of the suite.
        """
        del limits
        return 0

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """The settings that decide how rows end, as JSON data.

        Args:
            sources: Digests of code; None leaves them out.
        """
        del sources
        return ()

    def code(self) -> Iterable[str]:
        """The texts among the settings that name code."""
        return ()

    def files(self) -> Iterable[Path]:
        """The files that are read only when the task runs, and decide which rows there are."""
        return ()

    def sources(self) -> Iterable[ColumnsOfTask]:
        """The columns that are taken from the rows of earlier tasks."""
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
    """One test without variables if there are none. A large file of tests is read as they are looked at."""
    scenarios: tuple[Scenario, ...] | None = None
    """Their tests come after `tests`; None if the file has none, which then has at least one test."""
    description: Words | None = None
    default_test: Test | None = None
    evaluate_options: EvaluateOptions = EvaluateOptions()
    command_line_options: CommandLineOptions = CommandLineOptions()
    lanes: Mapping[str, LaneSettings] = attrs.field(factory=dict)
    """Lane settings by name, for providers that share one lane."""
    limits: LimitsSettings | None = None
    """Where limits are kept that it shares with others; None uses none."""
    env: Scalars = attrs.field(factory=dict, repr=False)
    """Environment variables for templates and providers, over those of the process."""
    nunjucks_filters: Mapping[str, str] = attrs.field(factory=dict)
    """Filters for templates by name: Python files."""
    assertion_types: Mapping[str, str] = attrs.field(factory=dict)
    """Assertion types of its own by name: `file://x.py:name`, as the value of a `python` assertion."""
    derived_metrics: tuple[DerivedMetric, ...] = ()
    """Numbers made of the metrics of each column, in order."""
    extensions: Texts = ()
    """Hooks: `file://x.py:name`."""
    output_path: Texts = ()
    """Result files, as if named by `-o`."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    tags: Scalars = attrs.field(factory=dict)
    directory: Path = attrs.field(factory=Path.cwd, metadata=NOT_IN_FILES)
    """What relative paths of the suite are relative to."""
    file: Path | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """Where it was loaded from; None for a suite made in Python."""
    files: tuple[Path, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """All files that it was made from."""
    warnings: tuple[Problem, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """What is odd about it but no mistake."""
    allow_outside: bool = attrs.field(default=False, metadata=NOT_IN_FILES)
    """Whether it may read files outside of its folder."""
    roots: tuple[Path, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """Folders whose files it may read: those of its own files; empty means `directory`."""
    trust: Trust = attrs.field(default=TRUSTED, metadata=NOT_IN_FILES)
    """What it may do."""
    unknown: tuple[str, ...] = attrs.field(default=(), metadata=NOT_IN_FILES)
    """What only a run will show, where no code was to run when it was loaded."""
    place: Callable[[Problem], Problem] | None = attrs.field(
        default=None, eq=False, repr=False, metadata=NOT_IN_FILES
    )
    """Finds the file, line and column of a problem from its path; None for a suite made in Python."""
    kinds: Kinds = attrs.field(default=KINDS, eq=False, repr=False, metadata=NOT_IN_FILES)
    """The assertion types that its tests may use."""
    settings: TaskSettings = attrs.field(default=PromptEvalSettings(), metadata=NOT_IN_FILES)
    """What its type of task adds."""
    run_limits: RunLimits = attrs.field(factory=RunLimits, metadata={KEY: "agents"})
    """What holds for all tasks of type `agent` together."""
    rows_of: RowsOfTask | None = attrs.field(default=None, metadata=NOT_IN_FILES)
    """Where its tests come from, if they are the rows of an earlier task: known when that is over."""
    tasks: tuple["Task", ...] = ()
    """What it consists of, if that is several things; it has no prompts and tests of its own then."""


UNREADABLE = Suite(providers=(), prompts=(), directory=Path())
"""Stands for a suite that is wrong, so that what is named in it by others can be looked at all the same."""


@attrs.frozen(kw_only=True)
class Task:
    """One of several things that a suite does."""

    id: str
    suite: Suite
    """What it does: a suite that has from the whole one what the task does not say itself."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that come first, and of which every row needs a verdict."""
    when_failed: FailedDependency = "skip"
    """What becomes of it when one of those is not complete."""
