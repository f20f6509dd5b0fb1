"""The groups that are open, and what is known of their jobs beforehand: recorded, left out, or to be made."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.columns.buffer import Buffer
from trioeval.columns.journal import MadeRecord
from trioeval.columns.makers.base import CODE, LOCAL, CellError, Tally
from trioeval.columns.progress import PREPARE, MakeJob
from trioeval.columns.result import Cause, DroppedRow
from trioeval.columns.spec import DatasetSpec, Making, Stages


@attrs.frozen
class Skips:
    """Rows for which a job asks nobody."""

    skipped: frozenset[int] = frozenset()
    """They are left out."""
    faults: Mapping[int, CellError] = attrs.field(factory=dict)
    """It cannot be said whether they are."""

    @property
    def rows(self) -> frozenset[int]:
        """All of them."""
        return self.skipped | self.faults.keys()


Known: TypeAlias = MadeRecord | Skips | None
"""What is known of a job before it starts."""


@attrs.frozen
class ReadyJob:
    """A job that may start, has started, or is set aside."""

    job: MakeJob
    lane: str
    known: Known = None


@attrs.define(eq=False)
class Flight:
    """A job that is under way."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_gone: bool = False
    """Whether what it makes is not wanted any more."""

    def drop(self) -> None:
        """What it makes is not wanted any more."""
        self.is_gone = True
        self.scope.cancel("its row was dropped")


@attrs.define(eq=False)
class GroupState:
    """What is kept of one open group beside its values."""

    number: int
    rows: range
    records: dict[tuple[int, int], MadeRecord]
    """What an earlier execution has made, by producer and unit."""
    begun: dict[int, Flight | None] = attrs.field(factory=dict)
    """Jobs that were begun and are not over; None of those that failed by mishap, until they run again."""
    aside: set[int] = attrs.field(factory=set)
    """Those of them whose round has not come."""
    tallies: dict[int, Tally] = attrs.field(factory=dict)
    """What the earlier rounds of jobs have used."""
    skipped: dict[int, set[int]] = attrs.field(factory=dict)
    """By row, the producers that left it out."""
    dropped: Counter[Cause] = attrs.field(factory=Counter)
    dropped_later: Sequence[DroppedRow] = ()
    """Rows that an earlier execution has dropped, and that processors have still to see."""
    reasons: dict[int, str] = attrs.field(factory=dict)
    """By row, why something of it is not made in this run."""
    lost: str | None = None
    """Why the group cannot finish."""

    @property
    def left(self) -> int:
        """Rows that are not dropped."""
        return len(self.rows) - self.dropped.total()

    def skip(self, row: int, producer: int) -> None:
        """A producer leaves a row out."""
        self.skipped.setdefault(row, set()).add(producer)


def is_skipped(
    making: Making,
    upstream: Sequence[int],
    skipped: set[int] | None,
    values: Mapping[str, Any],
) -> bool:
    """Whether a cell is left out.

    Args:
        making: Of its producer.
        upstream: The producers that it needs.
        skipped: Those that left out its row; None if none did.
        values: Of the row.

    Raises:
        CellError: It cannot be said.
    """
    if skipped and making.skip.propagate and not skipped.isdisjoint(upstream):
        return True
    if making.skip_when is None:
        return False
    try:
        return bool(making.skip_when(values))
    except Exception as error:
        if making.skip.on_error == "skip":
            return True
        raise CellError(f"skip.when cannot be told: {error}") from error


def skips_of(
    making: Making,
    upstream: Sequence[int],
    group: GroupState,
    rows: Iterable[int],
    view: Callable[[int], Mapping[str, Any]],
) -> Skips | None:
    """Those of these rows for which a job asks nobody; None if there are none.

    Args:
        making: Of its producer.
        upstream: The producers that it needs.
        group: That of the rows.
        rows: Those that the job makes something of.
        view: Gives the values of a row.
    """
    skipped, faults = set[int](), dict[int, CellError]()
    for row in rows:
        try:
            if is_skipped(making, upstream, group.skipped.get(row), view(row)):
                skipped.add(row)
        except CellError as error:
            faults[row] = error
    return Skips(frozenset(skipped), faults) if skipped or faults else None


def lane_of(making: Making, known: Known, rows: Sequence[int]) -> str:
    """Where a job runs: where its maker asks, unless there is nothing to ask."""
    if isinstance(known, MadeRecord) or (known is not None and len(known.rows) == len(rows)):
        return LOCAL
    return making.maker.lane


def stage_lane(stages: Stages, stage: int) -> str:
    """Where a stage of a group runs: with the suite's own code if it has processors."""
    processors = stages.before_batch if stage == PREPARE else stages.after_batch
    return CODE if processors else LOCAL


def leave_out(
    spec: DatasetSpec, buffer: Buffer, group: GroupState, producer: int, row: int
) -> None:
    """A cell is left out, and with it its side effects."""
    value = spec.makings[producer].skip.value
    buffer.set(row, dict.fromkeys(spec.graph.columns[producer], value))
    group.skip(row, producer)
