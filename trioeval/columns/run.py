"""Builds one dataset on the kernel, with one plan of everything that is not made yet.

    run = DatasetRun(spec, output, journal=journal)
    result = await run.build(lanes)

The jobs of the plan are cells, groups and the stages of groups. `progress` decides during the run which of
them may start, and holds all changing state; the bodies of the jobs are here and in `finish`. After the plan:
groups that are complete are written, however the plan ended; rows without an outcome get one; and when all
groups are written, processors run over the whole dataset.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs
import trio

from trioeval.columns.events import DatasetObserver, DatasetStarted
from trioeval.columns.finish import GroupStages, Output
from trioeval.columns.graph import PREPARE, Producer
from trioeval.columns.groups import OpenGroup
from trioeval.columns.journal import DatasetJournal, MadeRecord
from trioeval.columns.lanes import LOCAL, OWN_LANES
from trioeval.columns.makers.base import (
    CellError,
    CellMaker,
    CellOrder,
    GroupMaker,
    GroupOrder,
    JobOrder,
    Made,
    MakerFailure,
    SkippedRows,
    cell_values,
    check_rows,
)
from trioeval.columns.profile import Profiles
from trioeval.columns.progress import DatasetJobs, DatasetProgress
from trioeval.columns.result import DatasetResult, DroppedRow
from trioeval.columns.spec import DatasetSpec
from trioeval.errors import DatasetError, PlanError, TrioevalError
from trioeval.kernel import (
    Budget,
    Calls,
    Interrupted,
    Job,
    Lanes,
    NotRun,
    Observer,
    Outcome,
    Plan,
    run_plan,
)
from trioeval.kernel.events import guarded
from trioeval.text import counted
from trioeval.usage import Usage

# The making of cells and groups: makers are called, their results are checked and stored.
#
# A result is checked, stored, recorded and reported to the progress in one synchronous step: nothing can come
# between a value and its record, and no job starts that needs a value which is not recorded.
#
# An exception counts as a failure of the maker only if the maker raised it, or if its result is not valid;
# any other exception is a bug of ours, and ends the run.


_STRIDE = 500  # rows that are copied or checked between two checkpoints


@attrs.define(eq=False, repr=False)
class ColumnJobs:
    """The bodies of the jobs that make columns."""

    progress: DatasetProgress
    is_resumed: bool
    """True if an earlier execution may have made some of it."""
    _requested: set[int] = attrs.field(init=False, factory=set)
    """The producers whose makers were called for groups."""

    async def cell(self, order: CellOrder, calls: Calls[Any]) -> Exception | None:
        """Make one cell. A checkpoint only if its maker is one.

        Returns:
            The failure of its maker.
        """
        progress, job, known = self.progress, order.job, order.known
        scope, group = progress.start(order), progress.groups[job.group]
        if isinstance(known, MadeRecord):
            self._keep_cell(group, order, known.values[order.row])
            return None
        if isinstance(known, SkippedRows):
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
        except Exception as error:  # noqa: BLE001 - any exception of a maker is a failure of its cell
            failure = error
        finally:
            progress.spend(job.producer, order.tally)
        if order.is_gone:
            return None
        if failure is not None:
            return order.fail(failure, calls)
        self._keep_cell(group, order, values)
        if order.lane != LOCAL:
            progress.call_ended(order.lane, failed=False, transient=False)
        return None

    async def group(self, order: GroupOrder, calls: Calls[Any]) -> Exception | None:
        """Make the columns of a group. A checkpoint only if its maker is one, or the group is large.

        Returns:
            The failure of its maker.

        Raises:
            DatasetError: All rows were dropped by the maker: that is never intended.
        """
        progress, job, known = self.progress, order.job, order.known
        scope, group = progress.start(order), progress.groups[job.group]
        if isinstance(known, MadeRecord):
            values = {row: one for row, one in known.values.items() if not group.is_gone(row)}
            self._keep_group(group, order, values, SkippedRows(frozenset(known.skipped)))
            return None
        skips = SkippedRows() if known is None else known
        rows = [row for row in group.rows_left() if row not in skips.rows]
        made: Mapping[int, Mapping[str, Any] | CellError] = {}
        failure: Exception | None = None
        if rows:
            await self._fill(group, order, rows)
            self._requested.add(job.producer)
            try:
                with scope:
                    made = await self._ask(order, calls)
            except DatasetError:  # the whole dataset cannot continue
                raise
            except Exception as error:  # noqa: BLE001 - as above
                failure = error
            finally:
                progress.spend(job.producer, order.tally)
        if order.is_gone:
            return None
        if failure is not None:
            return order.fail(failure, calls)
        missing = [row for row in rows if row not in made]
        if rows and not made and len(rows) == group.left:
            name = progress.producer_name(job)
            raise DatasetError(f"column {name!r} drops all rows of group {job.group}")
        self._keep_group(group, order, made, skips, missing)
        if order.lane != LOCAL and rows:
            progress.call_ended(order.lane, failed=False, transient=False)
        return None

    def _producer(self, order: JobOrder) -> Producer:
        return self.progress.graph.producers[order.job.producer]

    async def _fill(self, group: OpenGroup, order: GroupOrder, numbers: Sequence[int]) -> None:
        """Add to an order the values of remaining rows that its maker needs."""
        producer = self._producer(order)
        order.start = group.rows.start
        order.follows = order.start > 0 and (
            self.is_resumed or order.job.producer in self._requested
        )
        if producer.scope == "scratch":
            order.rows, order.values = group.rows, [{} for _ in group.rows]
            return
        rows: list[int] = []
        values: list[Mapping[str, Any]] = []
        for place, row in enumerate(numbers, 1):
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
        """Return the checked results of a maker, by row."""
        making = self.progress.spec.makings[order.job.producer]
        made: Made = await cast("GroupMaker", making.maker).make(order, calls)
        check_rows(order.rows, made, leaves_out=making.leaves_out)
        values: dict[int, Mapping[str, Any] | CellError] = {}
        for place, (row, one) in enumerate(made, 1):
            values[row] = one if isinstance(one, CellError) else self._checked(order, one)
            if not place % _STRIDE:
                await trio.lowlevel.checkpoint()
        return values

    def _checked(self, order: JobOrder, made: Mapping[str, Any]) -> Mapping[str, Any]:
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
        skips: SkippedRows,
        missing: Iterable[int] = (),
    ) -> None:
        """Store the values of remaining rows, and drop the rows without values."""
        progress, job = self.progress, order.job
        name = progress.producer_name(job)
        made: dict[int, Mapping[str, Any]] = {}
        faults: dict[int, Exception] = dict(skips.faults)
        for row, one in values.items():
            if isinstance(one, CellError):
                faults[row] = one
            elif row not in skips.skipped:
                made[row] = one
        drops = [MakerFailure(error, 0).dropped(row, name) for row, error in sorted(faults.items())]
        drops += [DroppedRow(row=row, cause="expression", column=name) for row in missing]
        progress.leave_out(group, job.producer, skips.skipped)
        for row, one in made.items():
            if not group.is_gone(row):
                progress.buffer.set(row, one)
                if (dropped := self._unwanted(order, row)) is not None:
                    drops.append(dropped)
        # Skipped rows are determined again without a record.
        if made and not isinstance(order.known, MadeRecord):
            progress.record(order, made, skips.skipped)
        progress.drop(group, drops, job.producer)
        if group.left:
            progress.complete(job)

    def _unwanted(self, order: JobOrder, row: int) -> DroppedRow | None:
        """Return the dropped row if a condition of its producer is true for its new values."""
        making = self.progress.spec.makings[order.job.producer]
        if not making.drops:
            return None
        name, values = self._producer(order).name, self.progress.buffer.view(row)
        for cause, condition in making.drops:
            try:
                if condition(values):
                    return DroppedRow(row=row, cause=cause, column=name)
            except Exception as error:  # noqa: BLE001 - a failure of the condition is a failure of the row
                fault = CellError(
                    f"the condition for dropping the row cannot be evaluated: {error}"
                )
                return MakerFailure(fault, 0).dropped(row, name)
        return None


# The run as a whole.


CLOSE_GRACE = 30.0
"""The maximum time in seconds for writing complete groups after a run was cut off."""


class DatasetRun:
    """One dataset that is built once.

    Args:
        spec: The specification.
        output: The destination of its rows.
        journal: Records its results; None for a preview.
        observe: Called with events, see `columns.events`.
        warn: Called with warnings for the user.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        output: Output,
        *,
        journal: DatasetJournal | None = None,
        observe: DatasetObserver | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.spec = spec
        self.stop = trio.Event()
        """Set when no new job may start: on request, or because of an early shutdown."""
        self.failure: Exception | None = None
        """The error by which the whole dataset failed."""
        done: Iterable[int] = output.written
        if spec.part is not None:  # its output has none of the other groups
            done = [one for one in range(len(spec.grouping)) if one not in spec.part.groups]
        self.progress = DatasetProgress(spec, done, journal, guarded(observe), self.stop.set)
        """Its state; other code may report to it what other processes have made."""
        self.output = output
        self._warn = warn
        is_resumed = bool(output.written) or (journal is not None and journal.resumed)
        self._cells = ColumnJobs(self.progress, is_resumed)
        # The process that builds the whole dataset counts all values.
        profiled = spec.described if spec.part is None else attrs.evolve(spec, columns=())
        self._profiles = Profiles(profiled)
        self._finishing = GroupStages(self.progress, output, self._profiles)
        self._broken = set[int]()
        """Groups with a failure that ends the run."""
        self._cut = "cancel"
        """The reason for jobs that were not run if no other is known."""
        self._last: str | None = "cancel"
        """The reason why the work after the last group did not finish; None if it did."""
        self._earlier = tuple(output.written.values())
        self._began_at: float | None = None

    def plan(self) -> Plan[JobOrder]:
        """Return a plan of everything that is not made yet."""
        progress, lanes = self.progress, {making.maker.lane for making in self.spec.makings}
        return Plan(DatasetJobs(progress), OWN_LANES | lanes, readiness=lambda: progress)

    def job_name(self, index: int) -> str:
        """Return the name of a job for the user: a column of a row or of a group, or a stage of a group."""
        job = self.progress.numbering.job(index)
        if job.producer < 0:
            return f"{'processors' if job.producer == PREPARE else 'end'} of group {job.group}"
        name = self.progress.producer_name(job)
        return f"{name} of group {job.group}" if job.row is None else f"{name} of row {job.row}"

    async def build(
        self,
        lanes: Lanes,
        *,
        deadline: float = math.inf,
        stop: trio.Event | None = None,
        observe: Observer | None = None,
        budget: Budget | None = None,
        max_live_jobs: int | None = None,
    ) -> DatasetResult:
        """Build the dataset, once. A checkpoint.

        Args:
            lanes: The lanes of its providers, and `OWN_LANES`.
            deadline: Instant on the Trio clock at which all running jobs are cut off.
            stop: Nothing new starts once it is set.
            observe: Called with the events of jobs, as by `run_plan`.
            budget: The budget of all calls.
            max_live_jobs: Jobs of one lane that may be started and not ended; see `run_plan`.

        Returns:
            The result. A caller that cancels this can call `result` afterwards.

        Raises:
            Exception: A bug of ours; groups that were complete are still written.
        """
        failure: Exception | None = None
        self._began_at = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                if stop is not None:
                    nursery.start_soon(_forward_stop, stop, self.stop)
                try:
                    await self._begin()
                    await run_plan(
                        self.plan(),
                        self._perform,
                        lanes=lanes,
                        emit=self._emit,
                        settled=self._settled,
                        deadline=deadline,
                        stop=self.stop,
                        observe=observe,
                        max_live_jobs=max_live_jobs,
                        salvage_rounds=self.spec.settings.salvage_rounds,
                        budget=budget,
                    )
                except Exception as error:  # noqa: BLE001 - raised below, after complete groups are written
                    failure = self.failure or _cause(error)
                nursery.cancel_scope.cancel("the plan has ended")
        finally:
            # Results that were paid for are stored even if the caller was cancelled: test_co_66….
            with trio.move_on_after(CLOSE_GRACE, shield=True):
                failure = await self._write_complete(failure)
            self._count_rest(failure)
        result = await self._close(deadline)
        if isinstance(failure, PlanError) or not isinstance(failure, TrioevalError | None):
            raise failure
        return result

    async def _perform(self, job: Job[JobOrder], calls: Calls[JobOrder]) -> None:
        """Run the body of a job.

        Raises:
            Exception: The failure of its maker; or, with `failure` set, the failure of the whole dataset.
        """
        order = job.payload
        failure: Exception | None = None
        try:
            match order:
                case CellOrder():
                    failure = await self._cells.cell(order, calls)
                case GroupOrder():
                    failure = await self._cells.group(order, calls)
                case _ if order.job.producer == PREPARE:
                    await self._finishing.prepare(order)
                case _:
                    await self._finishing.finish(order)
        except Exception as error:
            self.failure = self.failure or error
            self._broken.add(order.job.group)
            raise
        if failure is not None:
            raise failure

    def _settled(self, outcome: Outcome[None]) -> None:
        """Note the outcome of a job, before the kernel asks which jobs it makes ready.

        Raises:
            Exception: The failure of the whole dataset.
        """
        self.progress.last = outcome
        if self.failure is not None:
            raise self.failure

    async def _emit(self, outcome: Outcome[None]) -> None:  # noqa: ASYNC124 - there is nothing to wait for
        """Receive an outcome in order; rows are reported by group, and not here."""
        if isinstance(outcome, NotRun | Interrupted):
            self._cut = outcome.cut.value

    async def _begin(self) -> None:
        """Record the start of the dataset, and count what earlier executions made and spent.

        Returns when that is durable: before any of its files are written.
        """
        progress, spec = self.progress, self.spec
        if progress.journal is not None:
            progress.journal.on_start(spec.grouping, spec.fingerprint)
        for file in self._earlier:
            progress.account.add_earlier(file)
        progress.notify(DatasetStarted, progress.account.written, progress.account.dropped.total())
        if progress.journal is not None:
            await progress.recall(self._earlier)
            await progress.journal.durable()

    async def _write_complete(self, failure: Exception | None) -> Exception | None:
        """Write complete groups after the plan. A checkpoint if there are any.

        Args:
            failure: The failure of the whole dataset.

        Returns:
            That failure, or else the first error of writing.
        """
        self.progress.is_cut = True
        for order in self._finishing.complete_groups():
            if order.job.group in self._broken:
                continue
            try:
                await self._finishing.finish(order)
            except Exception as error:  # noqa: BLE001 - the others are still written
                failure = failure or error
        return failure

    def _count_rest(self, failure: Exception | None) -> None:
        """Give an outcome to every row without one. Called once, after complete groups are written.

        Args:
            failure: The failure of the whole dataset.
        """
        self.failure = failure
        progress, account = self.progress, self.progress.account
        cut = "fault" if failure is not None else self._cut
        for group in progress.groups.values():
            progress.abandon(group, cut)
        known = account.written + account.dropped.total() + account.not_run.total()
        if rest := self.spec.grouping.rows - known:
            if failure is None:
                cut = "early_shutdown" if account.early_shutdown else progress.held_up or cut
            account.not_run[cut] += rest

    async def _close(self, deadline: float) -> DatasetResult:
        """Run the processors of the whole dataset and return its result. A checkpoint if there are any.

        Args:
            deadline: Instant at which these processors are cut off.
        """
        progress, account = self.progress, self.progress.account
        for file in sorted(self._earlier, key=lambda one: one.group):
            await self._profiles.add_earlier(await self.output.read(file.group))
        if self.failure is None and account.groups == len(self.spec.grouping):
            try:
                is_over = await self._finishing.generation(deadline)
                result = self.result(trio.current_time())
                if is_over and result.error is None and not result.not_run:
                    await self.output.finish(_result_note(result))
                self._last = None if is_over else "deadline"
            except TrioevalError as error:
                self.failure = error
        if progress.journal is not None:
            await progress.journal.durable()
        result = self.result(trio.current_time())
        is_part = self.spec.part is not None
        if self._warn is not None and not is_part and (result.lost or result.not_run):
            lost = sum(result.not_run.values()) + result.lost
            written, of = result.written, counted(result.requested, "row")
            self._warn(
                f"{written} of {of} {'is' if written == 1 else 'are'} written; {lost} missing"
            )
        return result

    def result(self, now: float) -> DatasetResult:
        """Return the current result of the dataset."""
        account, spec = self.progress.account, self.spec
        error = None
        if self.failure is not None:
            error = str(self.failure) or type(self.failure).__name__
        elif account.early_shutdown and not account.written:
            error = f"too many calls failed permanently; the first failure: {account.first_error}"
        all_is_there = self.failure is None and account.groups == len(spec.grouping)
        costs = [spent.cost for spent in account.spent if spent.cost is not None]
        return DatasetResult(
            task=spec.task,
            requested=spec.grouping.rows,
            written=account.written,
            dropped={cause: count for cause, count in sorted(account.dropped.items()) if count},
            not_run={why: count for why, count in sorted(account.not_run.items()) if count},
            unfinished=self._last if spec.stages.after_generation and all_is_there else None,
            groups=account.groups,
            partial_groups=tuple(sorted(account.partial)),
            early_shutdown=account.early_shutdown,
            failures=tuple(account.failures),
            first_error=account.first_error,
            error=error,
            columns=self._profiles.columns(account.spent),
            folder=self.output.path,
            format=self.output.format,
            calls=sum(spent.calls for spent in account.spent),
            usage=Usage.sum(spent.usage for spent in account.spent),
            cost=sum(costs) if costs else None,
            duration_s=0.0 if self._began_at is None else now - self._began_at,
        )


def _cause(error: Exception) -> Exception:
    """Return the failure of the readiness, which the kernel wraps in its own error."""
    cause = error.__cause__
    return cause if isinstance(error, PlanError) and isinstance(cause, Exception) else error


async def _forward_stop(stop: trio.Event, own: trio.Event) -> None:
    await stop.wait()
    own.set()


def _result_note(result: DatasetResult) -> dict[str, object]:
    """Return the result as it is stored in the header: nothing that differs from run to run."""
    return {
        "requested": result.requested,
        "written": result.written,
        "dropped": dict(result.dropped),
    }
