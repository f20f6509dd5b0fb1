"""Datasets that are built column by column, as a suite file describes them: frozen data.

The kind of a column determines how its values are made. Most kinds make one column under `name`; those that
make several list them under `outputs`. `requires` of every column lists the columns that it needs: those that
the file lists there and those that its templates use, in the order of the file.
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
    """The condition for skipping a cell; a skipped cell counts as complete."""

    when: SomeText | None = None
    """An expression over the row, as between the braces of a template; None skips no cell by itself."""
    value: Any = None
    """The value of a skipped cell; JSON."""
    propagate: bool = True
    """True if a cell is also skipped when a cell that it needs was skipped."""
    on_error: Literal["fail", "skip"] = "fail"
    """The result when `when` cannot be evaluated: the cell fails, or is skipped."""


@attrs.frozen(kw_only=True)
class ColumnEntry:
    """The fields of columns of all kinds."""

    kind: ClassVar[str]
    """The value of `type` in files."""

    name: ColumnName
    """The column; for a kind that makes several, the first of them."""
    outputs: ColumnNames = attrs.field(metadata=NOT_IN_FILES)
    """All columns that it makes, `name` first."""
    requires: NamesInRows = ()
    """The columns that it uses, including those in `skip.when`; none of its own."""
    skip: Skip = Skip()
    drop_when: SomeText | None = None
    """An expression over the row including the new values; if it is true, the row is dropped."""
    keep: bool = True
    """True if it is written to the dataset; other columns only serve to make columns."""

    @outputs.default
    def _name_alone(self) -> tuple[str, ...]:
        return (self.name,)


@attrs.frozen(kw_only=True)
class SeedColumns(ColumnEntry):
    """`type: seed`. Existing columns, from a file or from the rows of an earlier task."""

    kind = "seed"
    INHERITED_KEYS: ClassVar = dict.fromkeys(("name", "outputs", "requires", "skip"))

    file: Annotated[Path, Form(SOME_TEXT)] | None = None
    """CSV, JSON lines or Parquet, by its extension; absolute. None takes the rows of `from_task`."""
    from_task: SomeText | None = None
    """The id of a task that runs first."""
    columns: SeededColumns = attrs.field(factory=dict)
    """The columns that it makes, each with its name in the source. Its keys are `outputs`."""
    order: Literal["ordered", "shuffled"] = "ordered"
    """`ordered`: row r gets source row r. `shuffled`: the source is shuffled again in each round. If there
    are more rows than in the source, it starts again."""
    seed: int | None = None
    """The seed of the shuffled order; None takes the dataset's."""
    empty_as_null: bool = False
    """True if empty cells of CSV become null."""


@attrs.frozen(kw_only=True)
class CategorySampler:
    """One of several values."""

    values: tuple[Any, ...]
    """JSON; never empty."""
    weights: tuple[NotNegative, ...] | None = None
    """The relative frequency of each value; None makes all equally frequent."""


@attrs.frozen(kw_only=True)
class SubcategorySampler:
    """One of several values, which depend on a category."""

    category: ColumnName
    """The column that it depends on."""
    values: Mapping[str, tuple[Any, ...]]
    """The possible values by the text of the category."""


@attrs.frozen(kw_only=True)
class UniformSampler:
    """A number from `low` to `high`, both included, uniformly distributed."""

    low: float
    high: float
    decimals: Number | None = None
    """Digits after the decimal point; 0 makes whole numbers, None does not round."""


@attrs.frozen(kw_only=True)
class GaussianSampler:
    """A number from a normal distribution."""

    mean: float
    deviation: Positive
    """Standard deviation."""
    decimals: Number | None = None
    low: float | None = None
    """The minimum; smaller values are drawn again."""
    high: float | None = None


@attrs.frozen(kw_only=True)
class DatetimeSampler:
    """A random date and time in a range, as text in ISO 8601, with a time zone only if the range has one."""

    start: str
    """ISO 8601, included."""
    end: str
    """ISO 8601, included if it is a whole number of units after `start`."""
    unit: Literal["second", "minute", "hour", "day"] = "second"
    """The step of the values, counted from `start`."""
    format: str | None = None
    """A format for `strftime` instead of ISO 8601."""


@attrs.frozen(kw_only=True)
class UuidSampler:
    """A random UUID of version 4."""

    prefix: str = ""
    short: bool = False
    """Use only the first eight digits."""
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
    """`type: expression`. A value computed from other columns of the row by a template or by Python."""

    kind = "expression"

    template: str | None = None
    python: str | None = None
    """A Python expression over the columns by name. Exactly one of the two is given."""
    as_type: Literal["text", "int", "float", "bool", "json"] = attrs.field(metadata={KEY: "as"})
    """The type that the text of a template is converted to, and that Python must return; the key `as` of the
    file. The default is `text` for a template and `json` for Python."""

    @as_type.default
    def _as_type(self) -> Literal["text", "json"]:
        return "text" if self.python is None else "json"


@attrs.frozen(kw_only=True)
class ModelCallSettings:
    """The model call that makes a cell."""

    provider: Provider
    """The index of the provider in the suite."""
    prompt: PromptText
    """A template over the row: text, or JSON or YAML of chat messages, as in prompts of suites."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """Keys of the provider's config that are overridden here."""
    restarts: Number = 5
    """The maximum number of new conversations after replies that cannot be used, ≥ 0."""
    corrections: Number = 0
    """The maximum number of corrections within a conversation after replies that cannot be used, ≥ 0."""


@attrs.frozen(kw_only=True)
class LlmColumn(ColumnEntry):
    """`type: llm`. The output of a model: text, or data that matches a schema."""

    kind = "llm"

    asking: ModelCallSettings = attrs.field(metadata=BESIDE_OTHERS)
    schema: ValueSchema | None = None
    """The JSON schema of the value; None for text."""
    reasoning: ColumnName | None = None
    """The side-effect column for the model's reasoning; None stores none."""
    trace: ColumnName | None = None
    """The side-effect column for the conversation: a list of messages; None stores none."""


@attrs.frozen(kw_only=True)
class Score:
    """One criterion of a judge."""

    name: SomeText
    description: SomeText
    options: ScoreOptions
    """The meaning of each score, by the score as text; scores that are numbers are returned as numbers."""


@attrs.frozen(kw_only=True)
class JudgeColumn(ColumnEntry):
    """`type: judge`. A model's rating of the row: for each score `{"score": …, "reasoning": …}`."""

    kind = "judge"

    asking: ModelCallSettings = attrs.field(metadata=BESIDE_OTHERS)
    """Its `prompt` contains what is judged; the instructions follow from the scores."""
    scores: Annotated[tuple[Score, ...], _SCORES]
    reasoning: ColumnName | None = None
    trace: ColumnName | None = None


@attrs.frozen(kw_only=True)
class EmbeddingColumn(ColumnEntry):
    """`type: embedding`. The vector of a text."""

    kind = "embedding"

    provider: Provider
    """The index of the provider in the suite."""
    text: SomeText
    """A template over the row."""
    config: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class PythonColumn(ColumnEntry):
    """`type: python`. The results of a function of the suite.

    The arguments of the function depend on `scope`: the row (`cell`), a list of rows and a list of their
    numbers (`full`), or the number of the first row and the number of rows (`scratch`). It returns the value
    (with several outputs, an object of them), or a list of values.
    """

    kind = "python"
    INHERITED_KEYS: ClassVar = {"outputs": "outputs"}

    target: str
    """`file://gen.py:make`, with an absolute path."""
    scope: Literal["cell", "full", "scratch"] = "cell"
    ordered: bool = False
    """True if row groups are made one after another, in order. Not for cells."""
    timeout_s: Positive = attrs.field(default=60.0, metadata={KEY: "timeout"})
    workers: Count | None = None
    """Processes that call the function, 1 to 64; None uses one per processor. Not for ordered columns."""
    extras: ColumnNames = ()
    """Side-effect columns: keys that it may return besides its outputs."""
    as_types: ColumnTypes = attrs.field(factory=dict, metadata={KEY: "as"})
    """The types of its columns that are not `json`; the key `as` of the file, one type or an object."""


@attrs.frozen(kw_only=True)
class ValidationColumn(ColumnEntry):
    """`type: validation`. The result of assertions on another column: `pass`, `score` and `reason`."""

    kind = "validation"

    target: SomeText
    """The column that is validated."""
    assertions: Assertions = attrs.field(metadata={KEY: "assert"})
    """Assertions that make no calls."""
    drop: bool = False
    """True if rows that do not pass are dropped."""


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
    """A function or a removal of columns, for all rows of a group or of the whole dataset, at one stage."""

    stage: Annotated[Literal["before_batch", "after_batch", "after_generation"], BothSpellings()]
    """When the seeds of a group exist; when a group is complete; when all groups are written."""
    target: str | None = None
    """`file://gen.py:clean`: a function that gets rows and their numbers, and returns rows and their numbers;
    after generation it gets all rows."""
    drop_columns: tuple[str, ...] = ()
    """Columns to remove; `*` matches any text. Exactly one of `target` and `drop_columns` is given."""
    keep_aside: bool = True
    """True if removed columns are written to separate files."""
    on_error: Annotated[Literal["abort", "drop_group"], BothSpellings()] = "abort"
    timeout_s: Positive = attrs.field(default=60.0, metadata={KEY: "timeout"})


@attrs.frozen(kw_only=True)
class ErrorWindow:
    """The condition for an early shutdown: too many calls fail permanently."""

    calls: Count = 10
    """The number of recent calls that are considered."""
    error_rate: Annotated[float, _SHARE] = 0.5
    """The share of permanent failures among them, from which on nothing new is started; > 0 and ≤ 1."""
    enabled: bool = True


@attrs.frozen(kw_only=True)
class ColumnsSettings(TaskSettings):
    """The settings of a dataset."""

    type: ClassVar[TaskType] = "columns"

    columns: tuple[Column, ...]
    rows: Count | None = None
    """The number of rows, ≥ 1; None takes the number of rows of its first seed."""
    group_size: Count = DEFAULT_GROUP_SIZE
    """Rows of a checkpoint file, and of one call of a full column, ≥ 1."""
    seed: int = 0
    """The seed of everything random."""
    output_dir: Annotated[Path, Form(SOME_TEXT)] | None = None
    """The folder of its files; absolute. None is `datasets/<task>` in the working folder."""
    format: Literal["auto", "parquet", "jsonl"] = "auto"
    """The format of its files; `auto` is Parquet if the extra `parquet` is installed, else JSON lines."""
    existing: Annotated[Literal["never", "if_possible", "always"], BothSpellings()] = attrs.field(
        default="never", metadata={KEY: "resume"}
    )
    """Treatment of files of an earlier run in the folder of a new one. `never`: refuse them. `if_possible`:
    continue with them if they fit, otherwise start again. `always`: continue or fail. The key `resume` of the
    file."""
    salvage_rounds: Count = 2
    """The final retry rounds of cells with transient failures, after everything else of their group; ≥ 1."""
    max_open_cells: Count = 50_000
    """The maximum number of values in memory, ≥ 1: above it no further group is opened."""
    max_open_bytes: Count = 268_435_456
    """The maximum estimated size of these values in bytes, ≥ 1: above it no further group is opened."""
    shutdown: ErrorWindow = ErrorWindow()
    processors: tuple[Processor, ...] = ()

    def code(self) -> Iterator[str]:
        """Yield the functions of columns and processors."""
        yield from (one.target for one in self.columns if isinstance(one, PythonColumn))
        yield from (one.target for one in self.processors if one.target is not None)

    def called(self) -> Iterator[int]:
        """Yield the providers of columns, by their index in the suite."""
        for one in self.columns:
            match one:
                case LlmColumn() | JudgeColumn():
                    yield one.asking.provider
                case EmbeddingColumn():
                    yield one.provider
                case _:
                    continue

    def files(self) -> Iterator[Path]:
        """Yield the seed files."""
        for one in self.columns:
            if isinstance(one, SeedColumns) and one.file is not None:
                yield one.file

    def sources(self) -> Iterator[ColumnsOfTask]:
        """Yield the seeds that are rows of earlier tasks."""
        for place, one in enumerate(self.columns):
            if isinstance(one, SeedColumns) and one.from_task is not None:
                yield ColumnsOfTask(task=one.from_task, place=place, columns=one.columns)


def folder_of(settings: ColumnsSettings, task: str) -> Path:
    """Return the folder of a dataset's files; absolute.

    Args:
        settings: The settings of the dataset.
        task: The id of its task.
    """
    if settings.output_dir is not None:
        return settings.output_dir
    return Path.cwd() / "datasets" / task
