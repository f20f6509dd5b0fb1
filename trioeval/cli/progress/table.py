"""The picture of a run on a terminal: lines of styled text that fit its room. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import attrs
from rich.cells import cell_len, set_cell_size

from trioeval.kernel import WaitReason
from trioeval.report.activity import WAIT_WORDS, lane_names
from trioeval.report.counts import money, percent
from trioeval.report.run_state import LaneState, RunSnapshot, WorkerState
from trioeval.report.text import cut_middle
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

# The words of progress: numbers, times, and reasons of waits. Pure.


_REASON = 60  # characters of the reason why a lane is closed
_SOON = 0.95  # seconds of the shortest wait whose end is shown


def compact(number: float) -> str:
    """Return a non-negative number in at most four characters, below 10¹⁵.

    Example:
        >>> [compact(number) for number in (0, 7.5, 999, 1234, 99_950, 2_500_000)]
        ['0', '7.5', '999', '1.2k', '100k', '2.5M']
    """
    if round(number) < 1000:  # noqa: PLR2004 - a thousand
        return f"{number:.3g}"
    for unit in "kMGT":
        number /= 1000
        if round(number) < 1000 or unit == "T":  # noqa: PLR2004
            break
    return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"  # noqa: PLR2004


def clock(seconds: float) -> str:
    """Return seconds as minutes and seconds, with hours if needed.

    Example:
        >>> clock(75.6), clock(3600)
        ('1:15', '1:00:00')
    """
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def pass_rate(state: RunSnapshot) -> str | None:
    """The share of the graded rows that passed, as `98.0 %`; None of no rows."""
    rated = state.passed + state.failed + state.errors
    return f"{percent(state.passed, rated)} % of {rated}" if rated else None


def in_flight(lane: LaneState) -> str:
    """Return the calls in flight and the limit, as `4/8`, or as `2/3 of 8` below the max concurrency."""
    of = "" if lane.limit == lane.max_concurrency else f" of {lane.max_concurrency}"
    return f"{lane.in_flight}/{lane.limit}{of}"


def rate(used: int, allowed: float | None) -> str:
    """Return the use of the last minute, and the limit of a minute."""
    return compact(used) if allowed is None else f"{compact(used)}/{compact(allowed)}"


def left(lane: LaneState) -> str:
    """Return the time that the rest of its rows takes, as `1:15`; empty without rows, or if it is unknown."""
    return clock(lane.eta_s) if lane.eta_s is not None and lane.done < lane.rows else ""


def wait_words(lane: LaneState) -> str:
    """Return the reason and the time of a lane's wait, or why it is closed; empty without a wait. Inert."""
    if lane.mood == "closed":
        return f"closed: {escape_control_characters(lane.reason, _REASON)}"
    if lane.mood == "paused":
        return "paused"
    if lane.why is None or lane.why is WaitReason.TURN:
        return "probing" if lane.mood == "probing" else ""
    word = WAIT_WORDS[lane.why]
    words = f"probing, {word}" if lane.mood == "probing" else word
    is_long = lane.wait_s is not None and lane.wait_s > _SOON
    return f"{words}, {lane.wait_s:.0f} s" if is_long else words


def by_business(lane: LaneState) -> tuple[int, int, int]:
    """Return the sort key of lanes; the least busy lane is first."""
    return lane.in_flight, lane.queued, lane.calls


def named(lanes: Sequence[LaneState]) -> Sequence[LaneState]:
    """The lanes with short names: the labels of their providers, or unique parts of their keys."""
    labels = {lane.name: lane.label for lane in lanes if lane.label is not None}
    names = lane_names((lane.name for lane in lanes), labels)
    return [attrs.evolve(lane, name=names[lane.name]) for lane in lanes]


Piece: TypeAlias = tuple[str, str]
"""A text, and the name of a rich style; empty for none."""
Line: TypeAlias = list[Piece]

_NAME = 60  # characters of the longest name of a lane
_WORKER = 30  # characters of the longest name of a worker
_BAR = (6, 30)  # the least and the most cells of the bar
_GAP = "  "


@attrs.frozen(kw_only=True)
class Room:
    """The room for a picture."""

    width: int
    """Cells of a line, ≥ 1."""
    height: int
    """Lines, ≥ 1."""
    bar: tuple[str, str] = ("━", "─")
    """The characters of the done part of a bar, and of the rest."""


def picture(state: RunSnapshot, more: Iterable[str], room: Room) -> list[Line]:
    """Return the state of a run in the given room.

    Args:
        state: The state.
        more: Further lines, those of questions, datasets and agents, which are inert.
        room: The room.
    """
    head = [_head(state, room), _counts(state, room.width), _workers(state, room.width)]
    others: list[Line] = [[(_cut(line, room.width), "")] for line in more]
    top = [line for line in head if line]
    height = max(
        room.height - len(top) - len(others), 2
    )  # the heading, and a lane or the number of lanes
    return [*top, *_lanes(named(state.lanes), room.width, height), *others][: room.height]


def _head(state: RunSnapshot, room: Room) -> Line:
    facts: list[Piece] = [("stopping", "bold yellow")] if state.stopping else []
    facts += [(f"{state.done}/{state.total} rows", "bold")] if state.total else []
    facts += [(clock(state.elapsed_s), "")]
    if state.eta_s is not None and state.total:
        facts += [(f"{clock(state.eta_s)} left", "")]
    line = _fitting(facts, room.width)
    least, most = _BAR
    cells = min(most, room.width - _width(line) - len(_GAP))
    if not state.total or cells < least:
        return line
    done = min(cells, cells * state.done // state.total)
    full, empty = room.bar
    return [(full * done, "green"), (empty * (cells - done), "dim"), (_GAP, ""), *line]


def _counts(state: RunSnapshot, width: int) -> Line:
    facts: list[Piece] = []
    if (passed := pass_rate(state)) is not None:
        facts = [(f"{passed} pass", "bold")]
        facts += [(f"{state.passed} passed", "green")]
        facts += [(f"{state.failed} failed", "red" if state.failed else "dim")]
        facts += [(counted(state.errors, "error"), "bold yellow" if state.errors else "dim")]
    facts += [(f"{state.not_graded} not graded", "cyan")] if state.not_graded else []
    facts += [(f"{state.not_run} not run", "dim")] if state.not_run else []
    if state.kept:
        facts += [(f"{state.kept} kept", "")]
    if state.tokens:
        facts += [(f"{compact(state.tokens)} tokens", "")]
    if state.cost:
        facts += [(money(state.cost), "")]
    return _fitting(facts, width)


def _workers(state: RunSnapshot, width: int) -> Line:
    """Return the number of workers, and the rows and calls of as many of them as fit."""
    facts: list[Piece] = [(counted(len(state.workers), "worker"), "bold")] if state.workers else []
    facts += [(worker_words(worker), "") for worker in state.workers]
    return _fitting(facts, width)


def worker_words(worker: WorkerState) -> str:
    """Return a worker with its rows, calls in flight, and the reasons of waits of its lanes. Inert."""
    name = cut_middle(escape_control_characters(worker.name), _WORKER)
    words = dict.fromkeys(filter(None, map(wait_words, worker.lanes)))
    waits = f" ({'; '.join(words)})" if words else ""
    return f"{name}: {counted(worker.rows, 'row')}, {worker.in_flight} in flight{waits}"


def _fitting(facts: Iterable[Piece], width: int) -> Line:
    """Return as many facts as fit, the first ones first."""
    line: Line = []
    for text, style in facts:
        gap = _GAP if line else ""
        if _width(line) + len(gap) + cell_len(text) <= width:
            line += [(gap, "")] * bool(gap) + [(text, style)]
        elif not line:
            line = [(_cut(text, width), style)]
    return line


@attrs.frozen(eq=False, repr=False)
class _LaneColumn:
    """A column of the table of lanes."""

    heading: str
    cell: Callable[[LaneState], str]
    least: int
    """The least useful width, in cells."""
    is_number: bool = True


_NAMES = _LaneColumn(
    "lane",
    lambda lane: cut_middle(escape_control_characters(lane.name), _NAME) or "–",
    12,
    is_number=False,
)
_IN_FLIGHT = _LaneColumn("in flight", in_flight, 3)
_QUEUED = _LaneColumn("queued", lambda lane: str(lane.queued), 6)
_RPM = _LaneColumn("rpm", lambda lane: rate(lane.used_rpm, lane.rpm), 3)
_TPM = _LaneColumn("tpm", lambda lane: rate(lane.used_tpm, lane.tpm), 3)
_TOKENS = _LaneColumn("tokens", lambda lane: compact(lane.tokens), 6)
_COST = _LaneColumn("cost", lambda lane: money(lane.cost), 3)
_ROWS = _LaneColumn("rows", lambda lane: f"{lane.done}/{lane.rows}" if lane.rows else "", 3)
_LEFT = _LaneColumn("left", left, 4)
_WAITING = _LaneColumn("waiting", wait_words, 10, is_number=False)
_ALL = (_NAMES, _IN_FLIGHT, _QUEUED, _RPM, _TPM, _TOKENS, _COST, _ROWS, _LEFT, _WAITING)
_GO_FIRST = (_COST, _TOKENS, _TPM, _RPM, _QUEUED, _ROWS, _LEFT, _WAITING, _IN_FLIGHT)
"""The columns that a narrow terminal leaves out, the first one first."""
_SHRINK = (_WAITING, _NAMES)
"""The columns that are cut before others are left out."""


def _lanes(lanes: Sequence[LaneState], width: int, height: int) -> Iterator[Line]:
    """Yield a heading and the lanes; without room for all, the busiest, and the number of the others."""
    if not lanes or height < 1:
        return
    shown = lanes
    if len(lanes) > height - 1:
        busy = sorted(range(len(lanes)), key=lambda at: by_business(lanes[at]), reverse=True)
        shown = [lanes[at] for at in sorted(busy[: max(height - 2, 0)])]
    if shown:
        yield from _table(shown, _columns(shown), width)
    if hidden := len(lanes) - len(shown):
        flying = sum(lane.in_flight for lane in lanes) - sum(lane.in_flight for lane in shown)
        more = counted(hidden, "more lane" if shown else "lane")
        yield [(_cut(f"{more}, {flying} in flight", width), "dim")]


def _columns(lanes: Sequence[LaneState]) -> list[_LaneColumn]:
    """Return the columns with any content."""
    applies = {
        _RPM: any(lane.rpm is not None for lane in lanes),
        _TPM: any(lane.tpm is not None for lane in lanes),
        _TOKENS: any(lane.tokens for lane in lanes),
        _COST: any(lane.cost for lane in lanes),
        # The line above has these facts of a single lane.
        _ROWS: len(lanes) > 1 and any(lane.rows for lane in lanes),
        _LEFT: len(lanes) > 1 and any(map(left, lanes)),
    }
    return [column for column in _ALL if applies.get(column, True)]


def _table(lanes: Sequence[LaneState], columns: list[_LaneColumn], width: int) -> Iterator[Line]:
    cells = {column: [column.cell(lane) for lane in lanes] for column in columns}
    full_widths = {
        column: max(map(cell_len, (column.heading, *cells[column]))) for column in columns
    }
    widths = _fit(full_widths, width)
    last = [*widths][-1]

    def line(texts: Iterable[str]) -> str:
        fields = zip(widths.items(), texts, strict=True)
        return _GAP.join(_field(text, own, column, last) for (column, own), text in fields)

    yield [(line(column.heading for column in widths).rstrip(), "dim")]
    for at, lane in enumerate(lanes):
        text = line(cells[column][at] for column in widths).rstrip()
        yield [(text, "red" if lane.mood == "closed" else "")]


def _field(text: str, width: int, column: _LaneColumn, last: _LaneColumn) -> str:
    found = cut_middle(text, width) if column is _NAMES else _cut(text, width)
    blanks = " " * (width - cell_len(found))
    if column.is_number:
        return blanks + found
    return found if column is last else found + blanks


def _fit(widths: dict[_LaneColumn, int], width: int) -> dict[_LaneColumn, int]:
    """Return the widths of the columns that fit `width` cells."""
    kept = dict(widths)
    for going in _GO_FIRST:
        if sum(_least(column, cells) for column, cells in kept.items()) + _gaps(kept) <= width:
            break
        kept.pop(going, None)
    for column in _SHRINK:
        excess = sum(kept.values()) + _gaps(kept) - width
        if column in kept and excess > 0:
            kept[column] = max(_least(column, kept[column]), kept[column] - excess)
    excess = sum(kept.values()) + _gaps(kept) - width
    if excess > 0:  # only names are left
        kept[_NAMES] = max(1, kept[_NAMES] - excess)
    return kept


def _least(column: _LaneColumn, full: int) -> int:
    return min(full, column.least) if column in _SHRINK else full


def _gaps(columns: Sequence[object] | dict[_LaneColumn, int]) -> int:
    return len(_GAP) * (len(columns) - 1)


def _width(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def _cut(text: str, width: int) -> str:
    """Return a text in at most this many cells."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
