"""How a run ended, as an exit code and the sentence that says why, and what it used. Pure."""

import math
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from trioeval.cli.terminal import Exit
from trioeval.columns.result import DatasetResult
from trioeval.inert import inert
from trioeval.kernel import Cut
from trioeval.report import Totals
from trioeval.report.columns import trouble
from trioeval.report.totals import percent
from trioeval.run import Status

_ALL = 100  # percent

_CAUSES: Mapping[Cut, str] = {
    Cut.STOP: "--fail-fast",  # whatever else stops a run is told by itself
    Cut.DEADLINE: "the deadline",
    Cut.BUDGET: "the budget",
    Cut.LANE: "a closed lane",
}

_STEERED = "a stop by who watches it"


@attrs.frozen(kw_only=True)
class Ending:
    """The end of a run: what its exit code and its last line, which says why, are made of."""

    totals: Totals
    """Of all rows."""
    duration: float | None = None
    """Of the run in seconds; None where nothing was run."""
    needed: float = _ALL
    """Percent of the rows that must pass."""
    failed_code: int = Exit.FAILED
    """The code where they do not, or some have no verdict."""
    datasets: Sequence[DatasetResult] = ()
    """How those of its tasks ended."""
    signals: Sequence[signal.Signals] = ()
    """Those that came, in order."""
    cuts: Collection[Cut | None] = ()
    """What kept rows from running to their end; None is nothing."""
    failed_fast: Collection[str | None] = ()
    """Tasks whose own failure kept their rows from being started, by id."""
    steered: bool = False
    """Whether who watches it has stopped it."""
    unwritten: bool = False
    """Whether something that was to be written could not be."""
    standing: int = 0
    """Rows that were to be run again, were not, and stand as they were."""
    resume: str | None = None
    """The command that goes on with it; None if nothing is left, or it was not kept."""

    @property
    def code(self) -> int:
        """The exit code."""
        return self._verdict[0]

    @property
    def line(self) -> str:
        """The last line."""
        parts = [self._verdict[1]]
        if self.standing:
            # What they came to before says nothing of what was asked for now.
            parts += [f"{self.standing} rows that were to be run again stand as they were"]
        parts += [] if self.resume is None else [f"continue with: {self.resume}"]
        return "; ".join(parts)

    @property
    def _verdict(self) -> tuple[int, str]:
        """The exit code, and the numbers with the reason."""
        totals, datasets, standing = self.totals, self.datasets, self.standing
        passed, failed, errors, left = (totals.count(status) for status in Status)
        numbers = _numbers(totals, datasets, self.duration)
        troubles = [told for dataset in datasets if (told := trouble(dataset)) is not None]
        if self.unwritten:
            return Exit.FAULT, f"{numbers}; exit 1: not everything could be written, see above"
        if self.signals:
            code = Exit.SIGNAL + self.signals[0]
            return code, f"{numbers}; exit {code}: interrupted by {self.signals[0].name}"
        if not totals.rows and not datasets:
            return Exit.OK, "no rows to run; exit 0"
        if not failed and not errors and not left and not standing and not troubles:
            every = "every row passed" if totals.rows else "every dataset is complete"
            return Exit.OK, f"{numbers}; exit 0: {every}"
        of = f" of the {totals.ended} rows that were run" if left else ""
        rate = (
            f"{percent(passed, totals.ended)} %{of} passed, {self.needed:g} % are needed"
            if totals.ended
            else ""
        )
        if totals.pass_rate >= self.needed and not left and not standing and not troubles:
            return Exit.OK, f"{numbers}; exit 0: {rate}"
        found = [*filter(None, [_why(totals, [*self._causes()])]), *troubles]
        why = ", ".join(found) or "not everything was run again"
        if self.needed != _ALL and rate:
            why += f"; {rate}"
        return self.failed_code, f"{numbers}; exit {self.failed_code}: {why}"

    def _causes(self) -> Iterator[str]:
        """What left rows without a verdict."""
        for cut, name in _CAUSES.items():
            if cut in self.cuts:
                yield _STEERED if self.steered and cut is Cut.STOP else name
        for task in self.failed_fast:
            yield f"failFast of task {inert(task or '', 50)}".rstrip()


def is_unfinished(
    totals: Totals, datasets: Iterable[DatasetResult] = (), *, unopened: int = 0
) -> bool:
    """Whether some rows were left for another time, those of datasets among them.

    Args:
        totals: Of all rows.
        datasets: How those of its tasks ended.
        unopened: Tasks whose rows never became known, although those that they are made of are there.
    """
    left = totals.outcome("interrupted", "not_run") > 0
    return left or unopened > 0 or any(dataset.is_left for dataset in datasets)


def _numbers(totals: Totals, datasets: Sequence[DatasetResult], duration: float | None) -> str:
    """How many rows there are, and of datasets how many are written."""
    passed, failed, errors, left = (totals.count(status) for status in Status)
    took = "" if duration is None else f" in {duration:.1f} s"
    judged = f"{passed} passed, {failed} failed, {errors} errors"
    judged += f", {left} not run" if left else ""
    if not datasets:
        return f"{totals.rows} rows{took}: {judged}"
    written = sum(dataset.written for dataset in datasets)
    wanted = sum(dataset.requested for dataset in datasets)
    made = f"{written} of {wanted} rows of datasets written"
    if not totals.rows:
        return f"{made}{took}"
    return f"{totals.rows} rows{took}: {judged}; {made}"


def spent_line(totals: Totals, datasets: Sequence[DatasetResult] = ()) -> str | None:
    """What rows, datasets and judges used, and what came from the cache; None where that is nothing of it.

    Tokens alone are told in the table.
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
        replies = "1 reply" if cached == 1 else f"{cached} replies"
        used += f"; from the cache: {replies} of {saved} tokens"
    if not judges:
        return f"used: {used}"
    graded = _used(
        sum(one["total"] for one in judges),
        math.fsum(column.grading_cost or 0 for column in columns),
    )
    requests = sum(one.requests for one in judges)
    return f"used: {used}; by judges: {graded}, in {requests} requests"


def _used(tokens: int, cost: float) -> str:
    return f"{tokens} tokens" + (f", {cost:.4f} US dollars" if cost else "")


def _why(totals: Totals, causes: Sequence[str]) -> str:
    failed, errors = totals.count(Status.FAIL), totals.count(Status.ERROR)
    blocked = totals.outcome("blocked")
    unfinished = totals.left - blocked
    parts = [f"{failed} rows failed"] if failed else []
    if errors:
        parts.append(f"{errors} rows ended as errors")
    if unfinished:
        parts.append(
            f"{' and '.join(causes)} left {unfinished} rows without a verdict"
            if causes
            else f"{unfinished} rows are left without a verdict"
        )
    if blocked:
        parts.append(f"{blocked} rows are blocked by what they depend on")
    return ", ".join(parts)
