"""Columns that a function of the suite's own makes, in another process."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.kernel import Calls
from trioeval.suite.column_models import PythonColumn
from trioeval.suite.mistakes import kind, nearest
from trioeval.tasks.columns.making import CODE, CellError, CellOrder, GroupOrder, Made
from trioeval.tasks.columns.worker_calls import called, function_of
from trioeval.tasks.scripts import Scripts


@attrs.frozen
class PythonCellMaker:
    """Makes the columns of a function that gets one row at a time: `make(row)`."""

    column: PythonColumn
    scripts: Scripts

    @property
    def lane(self) -> str:
        """It runs code of the suite."""
        return CODE

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:  # noqa: ARG002 - it asks nobody
        """What the function makes of a row. Always a checkpoint."""
        value = await _result(self.column, self.scripts, [dict(order.values)])
        return values_of(self.column, value)


@attrs.frozen
class PythonGroupMaker:
    """Makes the columns of a function that gets a group: `make(rows, numbers)`, or `make(start, count)`."""

    column: PythonColumn
    scripts: Scripts

    @property
    def lane(self) -> str:
        """It runs code of the suite."""
        return CODE

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it asks nobody
        """What the function makes of a group. Always a checkpoint."""
        column = self.column
        if column.scope == "scratch":
            arguments: list[Any] = [order.start, len(order.rows)]
        else:
            arguments = [list(map(dict, order.values)), list(order.rows)]
        continues = column.ordered and order.follows
        result = await _result(column, self.scripts, arguments, continues=continues)
        if not isinstance(result, list):
            raise CellError(
                f"{_name(column)} must return a list with a member for each row, got {kind(result)}"
            )
        if len(result) != len(order.rows):
            raise CellError(
                f"{_name(column)} must return a member for each of {len(order.rows)} rows, got {len(result)}"
            )
        return [
            (row, values_of(column, value, row))
            for row, value in zip(order.rows, result, strict=True)
        ]


def values_of(column: PythonColumn, value: Any, row: int | None = None) -> Mapping[str, Any]:
    """The values of the columns, of what a function gave for one row. Pure.

    A column that makes one output and nothing else takes what was given; all others an object with a member
    for each output. A side effect that is not there is None.

    Raises:
        CellError: It is no such object.

    Example:
        >>> pair = PythonColumn(name="x", outputs=("x", "y"), extras=("z",), target="file://g.py:f")
        >>> values_of(pair, {"x": 1, "y": 2})
        {'x': 1, 'y': 2, 'z': None}
    """
    outputs = column.outputs or (column.name,)
    if len(outputs) == 1 and not column.extras:
        return {outputs[0]: value}
    where = "" if row is None else f" for row {row}"
    if not isinstance(value, dict):
        wanted = ", ".join(map(quote, outputs))
        raise CellError(
            f"{_name(column)} must give an object with {wanted}{where}, got {kind(value)}"
        )
    if missing := [name for name in outputs if name not in value]:
        raise CellError(
            f"{_name(column)} gave no {', '.join(map(quote, missing))}{where}; "
            f"it gave {', '.join(map(quote, value)) or 'nothing'}"
        )
    known = (*outputs, *column.extras)
    if foreign := [name for name in value if name not in known]:
        raise CellError(
            f"{_name(column)} gave {', '.join(map(quote, foreign))}{where}, which it does not make; "
            f"{nearest(foreign[0], known)}"
        )
    return {name: value.get(name) for name in known}


async def _result(
    column: PythonColumn, scripts: Scripts, arguments: Sequence[Any], *, continues: bool = False
) -> Any:
    file, function = function_of(column.target)
    # The calls of an ordered function are made one after another, by one process.
    workers = 1 if column.ordered else scripts.workers_of(column.workers)
    return await called(
        lambda: scripts.call(
            file, function, arguments, column.timeout_s, workers=workers, continues=continues
        )
    )


def _name(column: PythonColumn) -> str:
    file, function = function_of(column.target)
    return f"{file.name}:{function}"
