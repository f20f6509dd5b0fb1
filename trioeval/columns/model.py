"""Datasets that are built column by column, as a suite file describes them: frozen data.

A column has a kind, which is what makes its values. Most kinds make one column under `name`; those that make
several list them under `outputs`. All of them know what they need of other columns: `requires` holds what the
file says there and what templates name, in the order in which they stand there.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import attrs

from trioeval.columns.field_types import (
    Assertions,
    ColumnName,
    ColumnNames,
    ColumnTypes,
    NamesInRows,
    PromptText,
    Provider,
    ScoreOptions,
    SeededColumns,
    ValueSchema,
    read_share,
)
from trioeval.documents.structure import (
    BESIDE_OTHERS,
    NOT_IN_FILES,
    SOME_TEXT,
    BothSpellings,
    Count,
    Form,
    NotNegative,
    Number,
    Positive,
    SomeText,
)
from trioeval.suite.model import ColumnsOfTask, TaskSettings, TaskType
from trioeval.text import KEY

DEFAULT_GROUP_SIZE = 1000
_SHARE = Form({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, read_share)
_SCORES = Form({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Score"}})


@attrs.frozen(kw_only=True)
class Skip:
    """When a cell is left out, which then counts as complete."""

    when: SomeText | None = None
    """An expression over the row, as between the braces of a template; None leaves out nothing by itself."""
    value: Any = None
    """What stands in a cell that is left out; JSON."""
    propagate: bool = True
    """Whether a cell is left out as well where one that it needs was."""
    on_error: Literal["fail", "skip"] = "fail"
    """What it means that `when` cannot be evaluated: the cell fails, or is left out."""


@attrs.frozen(kw_only=True)
class ColumnEntry:
    """What columns of all kinds have in common."""

    kind: ClassVar[str]
    """The `type` that files write."""

    name: ColumnName
    """The column; of a kind that makes several, the first of them."""
    outputs: ColumnNames = attrs.field(metadata=NOT_IN_FILES)
    """All columns that it makes, `name` first."""
    requires: NamesInRows = ()
    """The columns that it looks at, those in `skip.when` among them; none of its own."""
    skip: Skip = Skip()
    drop_when: SomeText | None = None
    """An expression over the row, with the new values: where it is true the row is dropped."""
    keep: bool = True
    """Whether it is written to the dataset; others only serve to make columns."""

    @outputs.default
    def _name_alone(self) -> tuple[str, ...]:
        return (self.name,)


@attrs.frozen(kw_only=True)
class SeedColumns(ColumnEntry):
    """`type: seed`. Columns that are there already, in a file or in the rows of an earlier task."""

    kind = "seed"
    INHERITED_KEYS: ClassVar = dict.fromkeys(("name", "outputs", "requires", "skip"))

    file: Annotated[Path, Form(SOME_TEXT)] | None = None
    """CSV, JSON lines or Parquet, by its ending; absolute. None takes the rows of `from_task`."""
    from_task: SomeText | None = None
    """The id of a task that comes first."""
    columns: SeededColumns = attrs.field(factory=dict)
    """The columns that it makes, each with what it is called in the source. Its keys are `outputs`."""
    order: Literal["ordered", "shuffled"] = "ordered"
    """Whether row r gets source row r, or one of a random order that is another each time around. Where there
    are more rows than in the source, it begins again."""
    seed: int | None = None
    """Of the random order; None takes the dataset's."""
    empty_as_null: bool = False
    """Whether empty cells of CSV are null."""


@attrs.frozen(kw_only=True)
class CategorySampler:
    """One of several values."""

    values: tuple[Any, ...]
    """JSON; never empty."""
    weights: tuple[NotNegative, ...] | None = None
    """How often each of them, relative to each other; None is all alike."""


@attrs.frozen(kw_only=True)
class SubcategorySampler:
    """One of several values, which depend on a category."""

    category: ColumnName
    """The column that it depends on."""
    values: Mapping[str, tuple[Any, ...]]
    """What there is to choose from by the text of the category."""


@attrs.frozen(kw_only=True)
class UniformSampler:
    """A number from `low` to `high`, both included, each as likely as any other."""

    low: float
    high: float
    decimals: Number | None = None
    """Digits behind the point; 0 makes whole numbers, None leaves them as they are."""


@attrs.frozen(kw_only=True)
class GaussianSampler:
    """A number from a normal distribution."""

    mean: float
    deviation: Positive
    """Standard deviation."""
    decimals: Number | None = None
    low: float | None = None
    """The least value; smaller ones are drawn again."""
    high: float | None = None


@attrs.frozen(kw_only=True)
class DatetimeSampler:
    """An instant between two others, as text in ISO 8601 without a zone unless they have one."""

    start: str
    """ISO 8601, included."""
    end: str
    """ISO 8601, included where `unit` gets there."""
    unit: Literal["second", "minute", "hour", "day"] = "second"
    """What it is a multiple of, from `start` on."""
    format: str | None = None
    """As of `strftime`, in place of ISO 8601."""


@attrs.frozen(kw_only=True)
class UuidSampler:
    """A random UUID of version 4."""

    prefix: str = ""
    short: bool = False
    """Only its first eight digits."""
    uppercase: bool = False


Sampler: TypeAlias = (
    CategorySampler
    | SubcategorySampler
    | UniformSampler
    | GaussianSampler
    | DatetimeSampler
    | UuidSampler
)


@attrs.frozen(kw_only=True)
class SamplerColumn(ColumnEntry):
    """`type: sampler`. Values drawn at random, the same in every run with the same seed."""

    kind = "sampler"

    sampler: Sampler = attrs.field(metadata=BESIDE_OTHERS)
    seed: int | None = None
    """None takes the dataset's."""


@attrs.frozen(kw_only=True)
class ExpressionColumn(ColumnEntry):
    """`type: expression`. What follows from other columns of the row: a template, or Python."""

    kind = "expression"

    template: str | None = None
    python: str | None = None
    """A Python expression over the columns by name. Exactly one of the two is given."""
    as_type: Literal["text", "int", "float", "bool", "json"] = attrs.field(metadata={KEY: "as"})
    """What the text of a template is read as, and what Python has to give; the key `as` of the file.
    `text` of a template and `json` of Python where nothing is said."""

    @as_type.default
    def _as_type(self) -> Literal["text", "json"]:
        return "text" if self.python is None else "json"


@attrs.frozen(kw_only=True)
class Asking:
    """How a model is asked for a cell."""

    provider: Provider
    """Its place among the providers of the suite."""
    prompt: PromptText
    """A template over the row: text, or JSON or YAML of chat messages, as in prompts of suites."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """Keys of the provider's config that are different here."""
    restarts: Number = 5
    """How often it is asked anew after replies that cannot be used, ≥ 0."""
    corrections: Number = 0
    """How often it is told within one conversation what was wrong with its reply, ≥ 0."""


@attrs.frozen(kw_only=True)
class LlmColumn(ColumnEntry):
    """`type: llm`. What a model writes: text, or data of a schema."""

    kind = "llm"

    asking: Asking = attrs.field(metadata=BESIDE_OTHERS)
    schema: ValueSchema | None = None
    """JSON schema of the value; None is text."""
    reasoning: ColumnName | None = None
    """The side-effect column for the model's reasoning; None keeps none."""
    trace: ColumnName | None = None
    """The side-effect column for what was asked and answered: a list of messages; None keeps none."""


@attrs.frozen(kw_only=True)
class Score:
    """One thing that a judge looks at."""

    name: SomeText
    description: SomeText
    options: ScoreOptions
    """What each score means, by the score as text; numbers are given back as numbers."""


@attrs.frozen(kw_only=True)
class JudgeColumn(ColumnEntry):
    """`type: judge`. What a model thinks of the row: for each score `{"score": …, "reasoning": …}`."""

    kind = "judge"

    asking: Asking = attrs.field(metadata=BESIDE_OTHERS)
    """Its `prompt` says what is judged; how to answer is told by the scores."""
    scores: Annotated[tuple[Score, ...], _SCORES]
    reasoning: ColumnName | None = None
    trace: ColumnName | None = None


@attrs.frozen(kw_only=True)
class EmbeddingColumn(ColumnEntry):
    """`type: embedding`. The vector of a text."""

    kind = "embedding"

    provider: Provider
    """Its place among the providers of the suite."""
    text: SomeText
    """A template over the row."""
    config: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class PythonColumn(ColumnEntry):
    """`type: python`. What a function of the suite's own makes.

    The function gets, by `scope`: `cell` the row, `full` a list of rows and of their numbers, `scratch` the
    number of the first row and how many are wanted. It returns the value (with several outputs, an object of
    them), or a list of them.
    """

    kind = "python"
    INHERITED_KEYS: ClassVar = {"outputs": "outputs"}

    target: str
    """`file://gen.py:make`, with an absolute path."""
    scope: Literal["cell", "full", "scratch"] = "cell"
    ordered: bool = False
    """Whether row groups are made one after another, in order. Not for cells."""
    timeout_s: Positive = attrs.field(default=60.0, metadata={KEY: "timeout"})
    workers: Count | None = None
    """Processes that call the function, 1 to 64; None is one for each processor. Not for ordered ones."""
    extras: ColumnNames = ()
    """Side-effect columns: keys that it may give besides its outputs."""
    as_types: ColumnTypes = attrs.field(factory=dict, metadata={KEY: "as"})
    """The types of its columns, where they are not `json`; the key `as` of the file, one type or an
    object."""


@attrs.frozen(kw_only=True)
class ValidationColumn(ColumnEntry):
    """`type: validation`. What assertions say of another column: `pass`, `score` and `reason`."""

    kind = "validation"

    target: SomeText
    """The column that is looked at."""
    assertions: Assertions = attrs.field(metadata={KEY: "assert"})
    """Those that ask nobody."""
    drop: bool = False
    """Whether rows that do not pass are dropped."""


Column: TypeAlias = (
    SeedColumns
    | SamplerColumn
    | ExpressionColumn
    | LlmColumn
    | JudgeColumn
    | EmbeddingColumn
    | PythonColumn
    | ValidationColumn
)


@attrs.frozen(kw_only=True)
class Processor:
    """What is done with all rows of a group, or with the whole dataset, at one stage."""

    stage: Annotated[Literal["before_batch", "after_batch", "after_generation"], BothSpellings()]
    """When the seeds of a group are there; when a group is complete; when all are written."""
    target: str | None = None
    """`file://gen.py:clean`: a function that gets rows and their numbers, and returns rows and their numbers;
    after generation it gets all rows."""
    drop_columns: tuple[str, ...] = ()
    """Columns that it leaves out; `*` stands for any text. Exactly one of the two is given."""
    keep_aside: bool = True
    """Whether columns that are left out are written to a file of their own."""
    on_error: Annotated[Literal["abort", "drop_group"], BothSpellings()] = "abort"
    timeout_s: Positive = attrs.field(default=60.0, metadata={KEY: "timeout"})


@attrs.frozen(kw_only=True)
class ErrorWindow:
    """When so many calls fail for good that the rest is not tried."""

    calls: Count = 10
    """The last calls that are looked at."""
    error_rate: Annotated[float, _SHARE] = 0.5
    """The part of them that fails for good, from which on nothing new is begun; > 0 and ≤ 1."""
    enabled: bool = True


@attrs.frozen(kw_only=True)
class ColumnsSettings(TaskSettings):
    """How the dataset of a task is built."""

    type: ClassVar[TaskType] = "columns"

    columns: tuple[Column, ...]
    rows: Count | None = None
    """How many are wanted, ≥ 1; None is as many as the first of its seeds has."""
    group_size: Count = DEFAULT_GROUP_SIZE
    """Rows of a checkpoint file, and of what full columns see at once, ≥ 1."""
    seed: int = 0
    """Of everything random."""
    output_dir: Annotated[Path, Form(SOME_TEXT)] | None = None
    """The folder of its files; absolute. None is `datasets/<task>` below the working folder."""
    format: Literal["auto", "parquet", "jsonl"] = "auto"
    """Of its files; `auto` is Parquet where that can be written (extra `parquet`), else JSON lines."""
    existing: Annotated[Literal["never", "if_possible", "always"], BothSpellings()] = attrs.field(
        default="never", metadata={KEY: "resume"}
    )
    """What a new run does with files of an earlier one in its folder: refuse them; go on with them where they
    fit, else begin anew; go on with them or fail. The key `resume` of the file."""
    salvage_rounds: Count = 2
    """How often cells that failed by mishap are tried again when nothing else of their group goes on,
    ≥ 1."""
    max_open_cells: Count = 50_000
    """Values held in memory, ≥ 1: no further group is begun above it."""
    max_open_bytes: Count = 268_435_456
    """Bytes held in memory, as estimated, ≥ 1; likewise."""
    shutdown: ErrorWindow = ErrorWindow()
    processors: tuple[Processor, ...] = ()

    def code(self) -> Iterator[str]:
        """The functions of columns and processors."""
        yield from (one.target for one in self.columns if isinstance(one, PythonColumn))
        yield from (one.target for one in self.processors if one.target is not None)

    def files(self) -> Iterator[Path]:
        """The files of seeds."""
        for one in self.columns:
            if isinstance(one, SeedColumns) and one.file is not None:
                yield one.file

    def sources(self) -> Iterator[ColumnsOfTask]:
        """The seeds that are rows of earlier tasks."""
        for place, one in enumerate(self.columns):
            if isinstance(one, SeedColumns) and one.from_task is not None:
                yield ColumnsOfTask(task=one.from_task, place=place, columns=one.columns)


def folder_of(settings: ColumnsSettings, task: str) -> Path:
    """The folder of a dataset's files; absolute.

    Args:
        settings: How the dataset is built.
        task: The id of its task.
    """
    if settings.output_dir is not None:
        return settings.output_dir
    return Path.cwd() / "datasets" / task
