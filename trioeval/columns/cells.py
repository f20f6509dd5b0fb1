# Apart from `columns.run`: together they exceed 600 lines.
"""Makes cells and groups: asks their makers, looks at what comes back, and keeps it.

What is made is checked, set, written down and told to the tracker in one synchronous step: nothing comes
between a value and its record, and nothing starts that needs a value which is not recorded.

An exception counts as a failure of the maker only if it was raised there, or says that the maker gave what it
must not; any other one is a fault of ours, and ends the run.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import attrs
import trio

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.files.cells import as_read
from trioeval.columns.graph import Producer
from trioeval.columns.groups import OpenGroup
from trioeval.columns.journal import MadeRecord
from trioeval.columns.makers.base import (
    LOCAL,
    CellError,
    CellMaker,
    CellOrder,
    GroupMaker,
    GroupOrder,
    Made,
    Order,
    Skips,
    Trouble,
)
from trioeval.columns.progress import Progress
from trioeval.columns.result import DroppedRow
from trioeval.errors import DatasetError
from trioeval.kernel import Calls

# Whether a maker gave what it was asked for. Pure.


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
        trioeval.columns.makers.base.CellError: 1 of 2 rows came back; row 3 is missing
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


_STRIDE = 500  # rows that are copied or checked between two checkpoints


@attrs.define(eq=False)
class Cells:
    """The bodies of the jobs that make columns."""

    progress: Progress
    goes_on: bool
    """Whether an earlier execution may have made some of it."""
    _asked: set[int] = attrs.field(init=False, factory=set)
    """The producers whose makers were asked for groups."""

    async def cell(self, order: CellOrder, calls: Calls[Any]) -> Exception | None:
        """Make one cell. A checkpoint only if its maker is one.

        Returns:
            How its maker failed.
        """
        progress, job, known = self.progress, order.job, order.known
        scope, group = progress.start(order), progress.groups[job.group]
        if isinstance(known, MadeRecord):
            self._keep_cell(group, order, known.values[order.row])
            return None
        if isinstance(known, Skips):
            if order.row in known.faults:
                return order.fail(known.faults[order.row], calls)
            progress.leave_out(group, job.producer, [order.row])
            progress.complete(job)
            return None
        order.values = progress.buffer.copy(order.row, self._producer(order).requires)
        maker = cast("CellMaker", progress.spec.makings[job.producer].maker)
        failure: Exception | None = None
        values: Mapping[str, Any] = {}
        try:
            with scope:
                values = self._checked(order, await maker.make(order, calls))
        except Exception as error:  # noqa: BLE001 - whatever a maker raises is its cell's failure
            failure = error
        finally:
            progress.account.spent[job.producer].add(order.tally)
        if order.is_gone:
            return None
        if failure is not None:
            return order.fail(failure, calls)
        self._keep_cell(group, order, values)
        if order.lane != LOCAL:
            progress.call_ended(order.lane, failed=False, mishap=False)
        return None

    async def group(self, order: GroupOrder, calls: Calls[Any]) -> Exception | None:
        """Make the columns of a group. A checkpoint only if its maker is one, or the group is large.

        Returns:
            How its maker failed.

        Raises:
            DatasetError: No row of it was left in: that is never meant.
        """
        progress, job, known = self.progress, order.job, order.known
        scope, group = progress.start(order), progress.groups[job.group]
        if isinstance(known, MadeRecord):
            values = {row: one for row, one in known.values.items() if not group.is_gone(row)}
            self._keep_group(group, order, values, Skips(frozenset(known.skipped)))
            return None
        skips = Skips() if known is None else known
        wanted = [row for row in group.rows_left() if row not in skips.rows]
        made: Mapping[int, Mapping[str, Any] | CellError] = {}
        failure: Exception | None = None
        if wanted:
            await self._fill(group, order, wanted)
            self._asked.add(job.producer)
            try:
                with scope:
                    made = await self._ask(order, calls)
            except DatasetError:  # the whole cannot go on
                raise
            except Exception as error:  # noqa: BLE001 - as above
                failure = error
            finally:
                progress.account.spent[job.producer].add(order.tally)
        if order.is_gone:
            return None
        if failure is not None:
            return order.fail(failure, calls)
        missing = [row for row in wanted if row not in made]
        if wanted and not made and len(wanted) == group.left:
            name = progress.producer_name(job)
            raise DatasetError(f"column {name!r} leaves out all rows of group {job.group}")
        self._keep_group(group, order, made, skips, missing)
        if order.lane != LOCAL and wanted:
            progress.call_ended(order.lane, failed=False, mishap=False)
        return None

    def _producer(self, order: Order) -> Producer:
        return self.progress.graph.producers[order.job.producer]

    async def _fill(self, group: OpenGroup, order: GroupOrder, wanted: Sequence[int]) -> None:
        """Put into an order what its maker needs of the rows that are still there."""
        producer = self._producer(order)
        order.start = group.rows.start
        order.follows = order.start > 0 and (self.goes_on or order.job.producer in self._asked)
        if producer.scope == "scratch":
            order.rows, order.values = group.rows, [{} for _ in group.rows]
            return
        rows: list[int] = []
        values: list[Mapping[str, Any]] = []
        for place, row in enumerate(wanted, 1):
            if order.is_gone:
                break
            if not group.is_gone(row):
                rows.append(row)
                values.append(self.progress.buffer.copy(row, producer.requires))
            if not place % _STRIDE:
                await trio.lowlevel.checkpoint()
        order.rows, order.values = rows, values

    async def _ask(
        self, order: GroupOrder, calls: Calls[Any]
    ) -> Mapping[int, Mapping[str, Any] | CellError]:
        """The results of a maker, by row, as they are kept."""
        making = self.progress.spec.makings[order.job.producer]
        made: Made = await cast("GroupMaker", making.maker).make(order, calls)
        check_rows(order.rows, made, leaves_out=making.leaves_out)
        values: dict[int, Mapping[str, Any] | CellError] = {}
        for place, (row, one) in enumerate(made, 1):
            values[row] = one if isinstance(one, CellError) else self._checked(order, one)
            if not place % _STRIDE:
                await trio.lowlevel.checkpoint()
        return values

    def _checked(self, order: Order, made: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = self.progress.spec
        columns = spec.graph.columns[order.job.producer]
        return cell_values(self._producer(order), columns, spec.types, made)

    def _keep_cell(self, group: OpenGroup, order: CellOrder, values: Mapping[str, Any]) -> None:
        progress = self.progress
        progress.buffer.set(order.row, values)
        if order.known is None:
            progress.record(order, {order.row: values})
        dropped = self._unwanted(order, order.row)
        if dropped is None:
            progress.complete(order.job)
        else:
            progress.drop(group, [dropped], order.job.producer)

    def _keep_group(
        self,
        group: OpenGroup,
        order: GroupOrder,
        values: Mapping[int, Mapping[str, Any] | CellError],
        skips: Skips,
        missing: Iterable[int] = (),
    ) -> None:
        """Keep the values of the rows that are still there, and drop those that have none."""
        progress, job = self.progress, order.job
        name = progress.producer_name(job)
        made: dict[int, Mapping[str, Any]] = {}
        faults: dict[int, Exception] = dict(skips.faults)
        for row, one in values.items():
            if isinstance(one, CellError):
                faults[row] = one
            elif row not in skips.skipped:
                made[row] = one
        gone = [Trouble(error, 0).dropped(row, name) for row, error in sorted(faults.items())]
        gone += [DroppedRow(row=row, cause="expression", column=name) for row in missing]
        progress.leave_out(group, job.producer, skips.skipped)
        for row, one in made.items():
            if not group.is_gone(row):
                progress.buffer.set(row, one)
                if (dropped := self._unwanted(order, row)) is not None:
                    gone.append(dropped)
        # That rows are left out is found again without a record.
        if made and not isinstance(order.known, MadeRecord):
            progress.record(order, made, skips.skipped)
        progress.drop(group, gone, job.producer)
        if group.left:
            progress.complete(job)

    def _unwanted(self, order: Order, row: int) -> DroppedRow | None:
        """The end of a row that a condition of its producer drops, with its new values."""
        making = self.progress.spec.makings[order.job.producer]
        if not making.drops:
            return None
        name, values = self._producer(order).name, self.progress.buffer.view(row)
        for cause, condition in making.drops:
            try:
                if condition(values):
                    return DroppedRow(row=row, cause=cause, column=name)
            except Exception as error:  # noqa: BLE001 - what cannot be told of a row is a failure of that row
                fault = CellError(f"whether to drop the row cannot be told: {error}")
                return Trouble(fault, 0).dropped(row, name)
        return None
