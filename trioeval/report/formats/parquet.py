"""Results as a Parquet file: a line for each row, in typed columns, for every program that reads tables.

The rows are written in batches, which are joined at the end: a run of any size needs the memory of one
batch. The same rows give the same bytes.
"""

import importlib.util
import itertools
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.files.formats import Parquet
from trioeval.grading import output_text
from trioeval.report.formats.json import compact
from trioeval.report.records import RowRecord
from trioeval.report.results import Results

_BATCH = 2000  # rows
_HALF = re.compile("[\ud800-\udfff]")
_WHOLE = 2**63  # larger numbers do not fit a column of integers


@attrs.frozen
class ParquetColumn:
    """A column of the file; an unknown value is NULL."""

    name: str
    kind: ColumnType
    about: str
    """The description of the column in `docs/howto/export.md`."""
    get: Callable[[Results, RowRecord], Any]


def _of(*path: str) -> Callable[[Results, RowRecord], Any]:
    """Return a reader of an attribute of a row, or of a member of one of its objects."""

    def get(_part: Results, row: RowRecord) -> Any:
        found = getattr(row, path[0])
        return found if len(path) == 1 else (found or {}).get(path[1])

    return get


PARQUET_COLUMNS: Sequence[ParquetColumn] = (
    ParquetColumn("run", "text", "the run's id", lambda part, _: part.head.eval_id),
    ParquetColumn("task", "text", "the task's id", lambda part, _: part.task),
    ParquetColumn("row_id", "text", "the row's id", _of("id")),
    ParquetColumn("test", "int", "the number of its test, from 0", _of("test_idx")),
    ParquetColumn(
        "prompt_number", "int", "the number of its provider and prompt", _of("prompt_idx")
    ),
    ParquetColumn("repeat", "int", "the number of its repeat", _of("repeat")),
    ParquetColumn("provider", "text", "label or id of the provider", _of("provider")),
    ParquetColumn("prompt_label", "text", "label of the prompt", _of("prompt_label")),
    ParquetColumn("description", "text", "the title of the test", _of("title")),
    ParquetColumn("vars", "json", "its variables", _of("vars")),
    ParquetColumn("prompt", "text", "the rendered prompt", _of("prompt")),
    ParquetColumn(
        "output",
        "text",
        "the output after transforms; JSON text if it is not a text",
        _of("output"),
    ),
    ParquetColumn(
        "status",
        "text",
        "`pass`, `fail`, `error`, `not_graded` or `not_run`",
        lambda _, row: row.status.value,
    ),
    ParquetColumn(
        "score",
        "float",
        "the score, from 0 to 1; NULL if the row was not graded",
        _of("counted_score"),
    ),
    ParquetColumn("outcome", "text", "the outcome of its job", _of("outcome")),
    ParquetColumn("reason", "text", "the reason of its verdict", _of("verdict", "reason")),
    ParquetColumn("error", "text", "the reason of a failure, or the error", _of("error")),
    ParquetColumn("error_kind", "text", "the kind of a failed call", _of("own", "errorKind")),
    ParquetColumn("metrics", "json", "its named scores", _of("named_scores")),
    ParquetColumn(
        "latency_ms", "float", "milliseconds until the reply was complete", _of("latency_ms")
    ),
    ParquetColumn("wait_ms", "float", "milliseconds of waiting for its lane", _of("own", "waitMs")),
    ParquetColumn(
        "first_token_ms", "float", "milliseconds until the first token", _of("own", "firstTokenMs")
    ),
    ParquetColumn("calls", "int", "the number of requests", _of("own", "attempts")),
    ParquetColumn("tokens", "int", "tokens, without judges", _of("usage", "total")),
    ParquetColumn("prompt_tokens", "int", "tokens of the prompt", _of("usage", "prompt")),
    ParquetColumn("completion_tokens", "int", "tokens of the reply", _of("usage", "completion")),
    ParquetColumn("cost_usd", "float", "US dollars, without judges", _of("cost")),
    ParquetColumn("grading_cost_usd", "float", "US dollars of judges", _of("grading_cost")),
    ParquetColumn(
        "cached", "bool", "whether the reply came from the cache", _of("response", "cached")
    ),
    ParquetColumn(
        "finish_reason", "text", "the finish reason of the model", _of("response", "finishReason")
    ),
    ParquetColumn("metadata", "json", "the metadata of the test", _of("test", "metadata")),
)


def missing_for_parquet() -> str | None:
    """Return what is missing to write Parquet files, and how to install it; None if nothing is."""
    # Not imported: modules loaded before a run stay in memory, and DuckDB complains about that.
    try:
        found = importlib.util.find_spec("duckdb")
    except ValueError:  # the module was replaced in sys.modules
        found = None
    if found is None:
        return "Parquet files need the extra `parquet`: pip install 'trioeval[parquet]'"
    return None


def write_parquet(path: Path, parts: Sequence[Results]) -> None:
    """Write all rows of a run.

    Args:
        path: The file; an existing one is replaced.
        parts: The run, or its tasks. Datasets have no rows here.

    Raises:
        OSError: The file cannot be written.
    """
    kinds = {column.name: column.kind for column in PARQUET_COLUMNS}
    rows = ((part, record) for part in parts for record in part.shown())
    parquet = Parquet()
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as folder:
            written: list[Path] = []
            for batch in batches(rows):
                written.append(Path(folder, f"{len(written)}.parquet"))
                parquet.write(written[-1], kinds, column_values(batch))
            parquet.join(path, written)
    finally:
        parquet.close()


def batches(
    rows: Iterable[tuple[Results, RowRecord]],
) -> Iterator[list[tuple[Results, RowRecord]]]:
    """Yield rows in batches; an empty batch without rows."""
    rows = iter(rows)
    batch = list(itertools.islice(rows, _BATCH))
    yield batch
    while batch := list(itertools.islice(rows, _BATCH)):
        yield batch


def column_values(batch: Sequence[tuple[Results, RowRecord]]) -> Mapping[str, Sequence[Any]]:
    """Return the values of rows by column, each of the column's type or None."""
    return {
        column.name: [_value(column.kind, column.get(part, record)) for part, record in batch]
        for column in PARQUET_COLUMNS
    }


def _value(kind: ColumnType, found: Any) -> Any:
    """Return a value in the type of its column; None if it does not fit, as in foreign files."""
    match kind:
        case _ if found is None:
            return None
        case "int":
            fits = isinstance(found, int | float) and -_WHOLE <= found < _WHOLE
            return int(found) if fits and float(found).is_integer() else None
        case "float":
            fits = isinstance(found, int | float) and abs(found) <= sys.float_info.max
            return float(found) if fits else None
        case "bool":
            return found if isinstance(found, bool) else None
        case "json":
            # The escape of a lone surrogate becomes text: JSON parsers refuse it otherwise.
            return _whole(_HALF.sub(lambda half: rf"\\u{ord(half[0]):04x}", compact(found)))
        case _:
            return _whole(output_text(found))


def _whole(text: str) -> str:
    """Replace lone surrogates, which JSON may hold but text files cannot."""
    return text.encode("utf-8", "backslashreplace").decode()
