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

from trioeval.columns.account import Trouble, left_out
from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.files.cells import as_read
from trioeval.columns.graph import Producer
from trioeval.columns.groups import Flight, GroupState, ReadyJob, Skips, leave_out
from trioeval.columns.journal import MadeRecord
from trioeval.columns.makers.base import (
    LOCAL,
    CellError,
    CellMaker,
    CellOrder,
    GroupMaker,
    GroupOrder,
    Made,
    Tally,
)
from trioeval.columns.progress import MakeJob
from trioeval.columns.readiness import MakeReadiness
from trioeval.columns.result import DroppedRow
from trioeval.columns.scheduling import Progress
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


_STRIDE = 500  # rows that are copied or checked between two looks at the rest of the world

_NO_SKIPS = Skips()


@attrs.define(eq=False)
class Cells:
    """The bodies of the jobs that make columns."""

    progress: Progress
    readiness: MakeReadiness
    goes_on: bool
    """Whether an earlier execution may have made some of it."""
    _asked: set[int] = attrs.field(init=False, factory=set)
    """The producers whose makers were asked for groups."""

    async def cell(self, index: int, ready: ReadyJob, calls: Calls[Any]) -> Exception | None:
        """Make one cell. A checkpoint only if its maker is one.

        Returns:
            How its maker failed.
        """
        progress, job, known = self.progress, ready.job, ready.known
        row = cast("int", job.row)
        flight, group = progress.begin(index), progress.groups[job.group]
        tally = Tally()
        if isinstance(known, MadeRecord):
            self._keep_cell(group, job, row, known.values[row])
            return None
        if isinstance(known, Skips):
            if row in known.faults:
                return self._failed(index, known.faults[row], tally, calls)
            leave_out(progress.spec, progress.buffer, group, job.producer, row)
            progress.complete(job)
            return None
        producer = progress.spec.graph.producers[job.producer]
        maker = cast("CellMaker", progress.spec.makings[job.producer].maker)
        order = CellOrder(row, progress.buffer.copy(row, producer.requires), tally)
        failure: Exception | None = None
        values: Mapping[str, Any] = {}
        try:
            with flight.scope:
                values = self._checked(job, await maker.make(order, calls))
        except Exception as error:  # noqa: BLE001 - whatever a maker raises is its cell's failure
            failure = error
        finally:
            progress.account.spent[job.producer].add(tally)
        if flight.is_gone:
            return None
        if failure is not None:
            return self._failed(index, failure, tally, calls)
        self._keep_cell(group, job, row, values, tally)
        if ready.lane != LOCAL:
            progress.call_ended(ready.lane, failed=False, mishap=False)
        return None

    async def group(self, index: int, ready: ReadyJob, calls: Calls[Any]) -> Exception | None:
        """Make the columns of a group. A checkpoint only if its maker is one, or the group is large.

        Returns:
            How its maker failed.

        Raises:
            DatasetError: No row of it was left in: that is never meant.
        """
        progress, job, known = self.progress, ready.job, ready.known
        flight, group = progress.begin(index), progress.groups[job.group]
        if isinstance(known, MadeRecord):
            rows = [row for row in known.values if not progress.tracker.is_dropped(row)]
            skips = Skips(frozenset(known.skipped))
            self._keep_group(job, {row: known.values[row] for row in rows}, skips)
            return None
        skips = known if isinstance(known, Skips) else _NO_SKIPS
        tally = Tally()
        wanted = [row for row in progress.tracker.left(job.group) if row not in skips.rows]
        values: Mapping[int, Mapping[str, Any] | CellError] = {}
        failure: Exception | None = None
        if wanted:
            order = await self._order(flight, group, job, wanted, tally)
            self._asked.add(job.producer)
            try:
                with flight.scope:
                    values = await self._ask(job, order, calls)
            except DatasetError:  # the whole cannot go on
                raise
            except Exception as error:  # noqa: BLE001 - as above
                failure = error
            finally:
                progress.account.spent[job.producer].add(tally)
        if flight.is_gone:
            return None
        if failure is not None:
            return self._failed(index, failure, tally, calls)
        missing = [row for row in wanted if row not in values]
        if wanted and not values and len(wanted) == group.left:
            name = progress.producer_name(job)
            raise DatasetError(f"column {name!r} leaves out all rows of group {job.group}")
        self._keep_group(job, values, skips, tally=tally, missing=missing)
        if ready.lane != LOCAL and wanted:
            progress.call_ended(ready.lane, failed=False, mishap=False)
        return None

    async def _order(
        self,
        flight: Flight,
        group: GroupState,
        job: MakeJob,
        wanted: Sequence[int],
        tally: Tally,
    ) -> GroupOrder:
        producer = self.progress.spec.graph.producers[job.producer]
        start = group.rows.start
        follows = start > 0 and (self.goes_on or job.producer in self._asked)
        if producer.scope == "scratch":
            return GroupOrder(
                job.group, start, group.rows, [{} for _ in group.rows], tally, follows
            )
        rows: list[int] = []
        values: list[Mapping[str, Any]] = []
        for place, row in enumerate(wanted, 1):
            if flight.is_gone:
                break
            if not (group.dropped and self.progress.tracker.is_dropped(row)):
                rows.append(row)
                values.append(self.progress.buffer.copy(row, producer.requires))
            if not place % _STRIDE:
                await trio.lowlevel.checkpoint()
        return GroupOrder(job.group, start, rows, values, tally, follows)

    async def _ask(
        self, job: MakeJob, order: GroupOrder, calls: Calls[Any]
    ) -> Mapping[int, Mapping[str, Any] | CellError]:
        """What a maker makes, by row, as it is kept."""
        making = self.progress.spec.makings[job.producer]
        made: Made = await cast("GroupMaker", making.maker).make(order, calls)
        check_rows(order.rows, made, leaves_out=making.leaves_out)
        values: dict[int, Mapping[str, Any] | CellError] = {}
        for place, (row, one) in enumerate(made, 1):
            values[row] = one if isinstance(one, CellError) else self._checked(job, one)
            if not place % _STRIDE:
                await trio.lowlevel.checkpoint()
        return values

    def _checked(self, job: MakeJob, made: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = self.progress.spec
        producer, columns = spec.graph.producers[job.producer], spec.graph.columns[job.producer]
        return cell_values(producer, columns, spec.types, made)

    def _failed(self, index: int, error: Exception, tally: Tally, calls: Calls[Any]) -> Exception:
        self.readiness.failed(index, Trouble(error, calls.count, calls.refused_alone), tally)
        return error

    def _keep_cell(
        self,
        group: GroupState,
        job: MakeJob,
        row: int,
        values: Mapping[str, Any],
        tally: Tally | None = None,
    ) -> None:
        progress = self.progress
        progress.buffer.set(row, values)
        if tally is not None:
            progress.record(job, {row: values}, tally)
        dropped = self._unwanted(job, row)
        if dropped is None:
            progress.complete(job)
        else:
            progress.drop(group, [dropped], job.producer)

    def _keep_group(
        self,
        job: MakeJob,
        values: Mapping[int, Mapping[str, Any] | CellError],
        skips: Skips,
        *,
        tally: Tally | None = None,
        missing: Iterable[int] = (),
    ) -> None:
        """Keep what was made of the rows that are there still, and drop those of which nothing was."""
        progress, name = self.progress, self.progress.producer_name(job)
        group, is_dropped = progress.groups[job.group], progress.tracker.is_dropped
        made: dict[int, Mapping[str, Any]] = {}
        faults: dict[int, Exception] = dict(skips.faults)
        for row, one in values.items():
            if isinstance(one, CellError):
                faults[row] = one
            elif row not in skips.skipped:
                made[row] = one
        gone = [Trouble(error, 0).dropped(row, name) for row, error in sorted(faults.items())]
        gone += [left_out(row, "expression", name) for row in missing]
        for row in skips.skipped:
            if not is_dropped(row):
                leave_out(progress.spec, progress.buffer, group, job.producer, row)
        some_are_gone = bool(group.dropped)
        for row, one in made.items():
            if not (some_are_gone and is_dropped(row)):
                progress.buffer.set(row, one)
                if (dropped := self._unwanted(job, row)) is not None:
                    gone.append(dropped)
        if tally is not None and made:  # that rows are left out is found again without a record
            progress.record(job, made, tally, skips.skipped)
        progress.drop(group, gone, job.producer)
        progress.complete(job)

    def _unwanted(self, job: MakeJob, row: int) -> DroppedRow | None:
        """Whether a condition of the producer drops a row, with its new values."""
        making = self.progress.spec.makings[job.producer]
        if not making.drops:
            return None
        name, values = self.progress.producer_name(job), self.progress.buffer.view(row)
        for cause, condition in making.drops:
            try:
                if condition(values):
                    return left_out(row, cause, name)
            except Exception as error:  # noqa: BLE001 - what cannot be told of a row is a failure of that row
                return Trouble(
                    CellError(f"whether to drop the row cannot be told: {error}"), 0
                ).dropped(row, name)
        return None
