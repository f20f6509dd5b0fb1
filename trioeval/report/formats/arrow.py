"""Results as a table in memory, with the columns of a Parquet file."""

from collections.abc import Mapping, Sequence

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from trioeval.columns.cell_types import ColumnType
from trioeval.report.formats.parquet import PARQUET_COLUMNS, batches, column_values
from trioeval.report.results import Results

_TYPES: Mapping[ColumnType, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "json": pa.string(),
}
"""JSON values are texts."""


def arrow_table(parts: Sequence[Results]) -> pa.Table:
    """Return all rows of a run, in the order of its tasks.

    Args:
        parts: The run, or its tasks. Datasets have no rows here.
    """
    schema = pa.schema([(column.name, _TYPES[column.kind]) for column in PARQUET_COLUMNS])
    rows = ((part, record) for part in parts for record in part.shown())
    return pa.Table.from_batches(
        [pa.RecordBatch.from_pydict(column_values(batch), schema) for batch in batches(rows)],
        schema,
    )
