"""The end of a run: its exit code, its last line, and its usage. Pure."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from trioeval.cli.terminal import Exit
from trioeval.kernel import StopReason
from trioeval.report.counts import money, percent
from trioeval.report.totals import Totals, counts_text, success_text
from trioeval.run import Status
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

if TYPE_CHECKING:
    from trioeval.columns.result import DatasetResult

_ALL = 100  # percent

_CAUSES: Mapping[StopReason, str] = {
    StopReason.STOP: "--fail-fast",  # other causes of a stop have their own names
    StopReason.DEADLINE: "the deadline",
    StopReason.BUDGET: "the budget",
    StopReason.LANE: "a closed lane",
}

_STEERED = "a stop from the live view"
_LOST_WORKERS = "the loss of workers"


@attrs.frozen(kw_only=True)
class RunOutcome:
    """The end of a run, from which its exit code and its last line follow."""

    totals: Totals
    """The totals of all rows."""
    duration: float | None = None
    """The duration of the run in seconds; None if nothing was run."""
    needed: float = _ALL
    """The percentage of rows that must pass."""
    failed_code: int = Exit.FAILED
    """The exit code if they do not pass, or if some have no verdict."""
    datasets: Sequence[DatasetResult] = ()
    """The results of its datasets."""
    signals: Sequence[signal.Signals] = ()
    """The received signals, in order."""
    cuts: Collection[StopReason | None] = ()
    """The reasons why rows did not end; None for rows that did."""
    failed_fast: Collection[str | None] = ()
    """The ids of tasks that failed fast."""
    steered: bool = False
    """True if it was stopped from the live view."""
    lost_workers: bool = False
    """True if it was stopped because its workers failed."""
    unwritten: bool = False
    """True if a file could not be written."""
    standing: int = 0
    """Rows that were to be run again, were not, and keep their results."""
    resume: str | None = None
    """The command that continues the run; None if nothing is left, or if the run is not stored."""

    @property
    def code(self) -> int:
        """The exit code."""
        return self._verdict[0]

    @property
    def line(self) -> str:
        """The last line of the output."""
        parts = [self._verdict[1]]
        if self.standing and self._kept_results not in parts[0]:
            parts.append(self._kept_results)
        parts += [] if self.resume is None else [f"continue with: {self.resume}"]
        return "; ".join(parts)

    @property
    def _kept_results(self) -> str:
        """The rows that were to be run again and still have their earlier results."""
        if self.standing == 1:
            return "1 row was not run again and keeps its earlier result"
        return f"{self.standing} rows were not run again and keep their earlier results"

    @property
    def _verdict(self) -> tuple[int, str]:
        """The exit code, and the counts with the reason."""
        totals, datasets, standing = self.totals, self.datasets, self.standing
        failed, errors, left = totals.count(Status.FAIL), totals.count(Status.ERROR), totals.left
        numbers = _numbers(totals, datasets, self.duration)
        troubles: list[str] = []
        if datasets:
            from trioeval.report.columns import trouble

            troubles += filter(None, map(trouble, datasets))
        if self.unwritten:
            return Exit.FAULT, f"{numbers}; exit 1: some results could not be written, see above"
        if self.signals:
            code = Exit.SIGNAL + self.signals[0]
            return code, f"{numbers}; exit {code}: interrupted by {self.signals[0].name}"
        if not totals.rows and not datasets:
            return Exit.OK, "no rows to run; exit 0"
        if not failed and not errors and not left and not standing and not troubles:
            return Exit.OK, f"{numbers}; exit 0: {_success(totals)}"
        ended = counted(totals.ended, "row")
        succeeded = "passed or not graded" if totals.not_graded else "passed"
        rate = (
            f"{percent(totals.successes, totals.ended)} % of {ended} {succeeded}, {self.needed:g} % needed"
            if totals.ended
            else ""
        )
        if totals.pass_rate >= self.needed and not left and not standing and not troubles:
            return Exit.OK, f"{numbers}; exit 0: {rate}"
        found = [*filter(None, [_why(totals, [*self._causes()])]), *troubles]
        why = ", ".join(found) or self._kept_results
        if self.needed != _ALL and rate:
            why += f"; {rate}"
        return self.failed_code, f"{numbers}; exit {self.failed_code}: {why}"

    def _causes(self) -> Iterator[str]:
        """The reasons why rows were not run."""
        for cut, name in _CAUSES.items():
            if cut in self.cuts:
                yield self._stopped_by or name if cut is StopReason.STOP else name
        for task in self.failed_fast:
            yield f"failFast of task {escape_control_characters(task or '', 50)}".rstrip()

    @property
    def _stopped_by(self) -> str | None:
        """The reason of a stop other than a failed row."""
        if self.lost_workers:
            return _LOST_WORKERS
        return _STEERED if self.steered else None


def is_unfinished(
    totals: Totals, datasets: Iterable[DatasetResult] = (), *, unopened: int = 0
) -> bool:
    """Return whether rows are left to run, those of datasets included.

    Args:
        totals: The totals of all rows.
        datasets: The results of its datasets.
        unopened: Tasks whose rows never became known, although the rows that they are made of exist.
    """
    left = totals.outcome("interrupted", "not_run") > 0
    return left or unopened > 0 or any(dataset.is_left for dataset in datasets)


def _numbers(totals: Totals, datasets: Sequence[DatasetResult], duration: float | None) -> str:
    """Return the number of rows, and of written rows of datasets."""
    took = "" if duration is None else f" in {duration:.1f} s"
    rows = f"{counted(totals.rows, 'row')}{took}: {counts_text(totals)}{_cached(totals)}"
    if not datasets:
        return rows
    written = sum(dataset.written for dataset in datasets)
    wanted = sum(dataset.requested for dataset in datasets)
    made = f"{written} of {wanted} rows of datasets written"
    if not totals.rows:
        return f"{made}{took}"
    return f"{rows}; {made}"


def _cached(totals: Totals) -> str:
    """The share of replies that came from the cache, and the cost of the others; empty if none did."""
    cached = sum(column.from_cache for column in totals.columns)
    if not cached:
        return ""
    replies = counted(sum(column.replies for column in totals.columns), "reply", "replies")
    costs = [cost for column in totals.columns for cost in (column.cost, column.grading_cost)]
    known = [cost for cost in costs if cost is not None]
    spent = f", {money(math.fsum(known))} spent" if known else ""
    return f"; {cached} of {replies} from cache{spent}"


def _success(totals: Totals) -> str:
    return success_text(totals) if totals.rows else "every dataset is complete"


def spent_line(totals: Totals, datasets: Sequence[DatasetResult] = ()) -> str | None:
    """Return the usage of rows, datasets and judges, and the tokens from the cache; None without any.

    Tokens alone are only in the table.
    """
    columns = totals.columns
    costs = (*(column.cost for column in columns), *(dataset.cost for dataset in datasets))
    cost = math.fsum(one or 0 for one in costs)
    judges = [column.usage.judges for column in columns if column.usage.judges is not None]
    cached = sum(column.from_cache for column in columns)
    if not cost and not judges and not cached:
        return None
    tokens = sum(column.tokens for column in columns)
    used = _used(tokens + sum(one.usage.total or 0 for one in datasets), cost)
    if cached:
        saved = sum(column.cached_tokens for column in columns)
        replies = counted(cached, "reply", "replies")
        used += f"; from cache: {replies} of {counted(saved, 'token')}"
    if not judges:
        return f"used: {used}"
    graded = _used(
        sum(one["total"] for one in judges),
        math.fsum(column.grading_cost or 0 for column in columns),
    )
    requests = sum(one.requests for one in judges)
    return f"used: {used}; by judges: {graded}, in {counted(requests, 'request')}"


def _used(tokens: int, cost: float) -> str:
    return counted(tokens, "token") + (f", {money(cost)}" if cost else "")


def _why(totals: Totals, causes: Sequence[str]) -> str:
    failed, errors = totals.count(Status.FAIL), totals.count(Status.ERROR)
    blocked = totals.outcome("blocked")
    unfinished = totals.left - blocked
    parts = [f"{counted(failed, 'row')} failed"] if failed else []
    if errors:
        ended = "ended in an error" if errors == 1 else "ended in errors"
        parts.append(f"{counted(errors, 'row')} {ended}")
    if unfinished:
        because = f" because of {' and '.join(causes)}" if causes else ""
        parts.append(f"{counted(unfinished, 'row')} not run{because}")
    if blocked:
        parts.append(f"{counted(blocked, 'row')} blocked by a failed dependency")
    return ", ".join(parts)
