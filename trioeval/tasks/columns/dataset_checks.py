"""Whether a maker gave what it was asked for. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.datasets.files.cells import as_read
from trioeval.datasets.graph import Producer
from trioeval.datasets.types import ColumnType, fits
from trioeval.tasks.columns.making import CellError

_SHOWN = 60  # characters of a value in a message


def cell_values(
    producer: Producer,
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    made: Mapping[str, Any],
) -> Mapping[str, Any]:
    """What a maker made of one row, as it is kept, and as it will be read again.

    Args:
        producer: Whose it is.
        columns: What comes of it: outputs, and the side-effect columns that are there.
        types: Of all columns.
        made: By column. Side-effect columns may be missing, which are null then.

    Raises:
        CellError: A column is missing, is not one of its own, or is not of its type.
    """
    kept: dict[str, Any] = {}
    try:
        for name in columns:
            value, kind = made[name], types[name]
            if value is None:
                kept[name] = None
            elif fits(value, kind):
                kept[name] = as_read(value, kind)
            else:
                raise CellError(_misfit(producer, name, kind, value))
    except KeyError:
        return _with_holes(producer, columns, types, made)
    if len(made) > len(kept):
        _refuse_foreign(producer, made)
    return kept


def _with_holes(
    producer: Producer,
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    made: Mapping[str, Any],
) -> Mapping[str, Any]:
    for name in producer.outputs:
        if name not in made:
            given = ", ".join(map(repr, made)) or "nothing"
            raise CellError(f'it made no column "{name}", only {given}')
    return cell_values(producer, columns, types, {**dict.fromkeys(columns), **made})


def _refuse_foreign(producer: Producer, made: Mapping[str, Any]) -> None:
    own = {*producer.outputs, *producer.extras}
    for name in made:
        if name not in own:
            allowed = ", ".join(map(repr, (*producer.outputs, *producer.extras)))
            raise CellError(f"it made column {name!r}, which is not one of its own ({allowed})")


def _misfit(producer: Producer, name: str, wanted: ColumnType, value: Any) -> str:
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    of = "" if name == producer.name else f" of column {name!r}"
    return f"its value{of} is {shown}, which is no {wanted}"


def check_rows(wanted: Sequence[int], made: Sequence[tuple[int, Any]], *, leaves_out: bool) -> None:
    """Refuse what a maker of groups made of others than the rows that it was asked for.

    Args:
        wanted: The rows, ascending.
        made: Rows with what was made of them, in any order.
        leaves_out: Whether rows may be missing.

    Raises:
        CellError: A row is there twice, is none of them, or is missing.

    Example:
        >>> check_rows([3, 4], [(4, "x")], leaves_out=True)
        >>> check_rows([3, 4], [(4, "x"), (3, "y")], leaves_out=False)
        >>> check_rows([3, 4], [(4, "x")], leaves_out=False)
        Traceback (most recent call last):
        trioeval.tasks.columns.making.CellError: 1 of 2 rows came back; row 3 is missing
    """
    asked, seen = set(wanted), set[int]()
    for row, _ in made:
        if row not in asked:
            raise CellError(f"it made row {row!r}, which it was not asked for")
        if row in seen:
            raise CellError(f"it made row {row} twice")
        seen.add(row)
    if len(seen) < len(asked) and not leaves_out:
        first = min(asked - seen)
        raise CellError(f"{len(seen)} of {len(asked)} rows came back; row {first} is missing")
