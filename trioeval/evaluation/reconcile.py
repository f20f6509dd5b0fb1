"""Matching of the rows of a stored run with those of a changed suite.

A stored row and a row of the suite are the same row if they have the same identity; the n-th of several equal
rows is the n-th on both sides. Rows are matched by id and content first: these are *kept*, whatever their
position now. The rest is matched by id alone: these are *changed*. Then the remaining rows of the suite are
*new*, and the remaining stored ones are *gone*.

Both sides are read in parallel, once, and a row is forgotten as soon as it has a match. So the memory needed
is proportional to the number of moved rows: none for equal suites, k rows if k were inserted at the start. Of
every row only the index is stored.
"""

import itertools
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import UsageError
from trioeval.evaluation.identity import Identities, row_name
from trioeval.evaluation.status import has_ended
from trioeval.suite.expand import Expansion

# The rows of a stored run that are run again, and those of them that need new replies.


Which: TypeAlias = Literal["rest", "none", "errors", "timeouts", "failed", "rows"]
"""The rows to run again besides those that did not run to their end, which always are.

`rest` are the rows that an earlier execution was to run again and did not; `none` excludes even those.
"""

_WORDS: tuple[Which, ...] = ("failed", "errors", "timeouts", "none")
_RANGE = re.compile(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?")

_TIMED_OUT = "timed_out"


@attrs.frozen
class Retry:
    """The rows to run again."""

    which: Which = "rest"
    rows: tuple[range, ...] = ()
    """With `rows`: their indices, ascending and unique."""

    def beyond(self, size: int) -> int | None:
        """Return the largest index that a run with this many rows does not have, if any."""
        last = max((part.stop - 1 for part in self.rows), default=-1)
        return last if last >= size else None

    def __str__(self) -> str:
        if self.which != "rows":
            return self.which
        return ",".join(
            str(part.start) if len(part) == 1 else f"{part.start}-{part.stop - 1}"
            for part in self.rows
        )


def parse_retry(text: str) -> Retry:
    """Parse a selection of rows to run again: `failed`, `errors`, `timeouts`, `none`, or row indices.

    Raises:
        UsageError: The text is none of these.

    Example:
        >>> str(parse_retry("errors")), str(parse_retry("20-25, 3,17,4"))
        ('errors', '3-4,17,20-25')
    """
    word = text.strip().lower()
    for known in _WORDS:
        if word == known:
            return Retry(known)
    parts = [_RANGE.fullmatch(part) for part in text.split(",")]
    ranges = [
        range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part is not None
    ]
    if len(ranges) < len(parts) or not all(ranges):
        usage = "use failed, errors, timeouts, none, or rows such as 3,17,20-25"
        msg = f"invalid rows to run again: {text!r}; {usage}"
        raise UsageError(msg)
    return Retry("rows", _joined(ranges))


def _joined(ranges: list[range]) -> tuple[range, ...]:
    """Return the same indices, ascending and unique, in as few ranges as possible."""
    found: list[range] = []
    for part in sorted(ranges, key=lambda one: one.start):
        if found and part.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return tuple(found)


def runs_again(retry: Retry, outcome: str, *, passed: bool | None, index: int) -> bool:
    """Return whether a recorded row is run again.

    Args:
        retry: The selected rows.
        outcome: The outcome of its job, as in `Row.outcome`.
        passed: Its verdict; None without one.
        index: Its index.

    Example:
        >>> runs_again(Retry(), "interrupted", passed=None, index=0)
        True
        >>> runs_again(Retry(), "failed", passed=None, index=0)
        False
    """
    if not has_ended(outcome):
        return True
    match retry.which:
        case "rest" | "none":
            return False
        case "errors":
            return passed is None
        case "timeouts":
            return outcome == _TIMED_OUT
        case "failed":
            return passed is False
        case "rows":
            return any(index in part for part in retry.rows)


def needs_new_replies(retry: Retry, outcome: str, *, passed: bool | None, index: int) -> bool:
    """Return whether a recorded row is run again with new replies, ignoring the recorded ones.

    If a row has no verdict, its replies are good, and only failed calls are repeated. If it has one, only new
    replies can change it. A row that is selected by its index gets only new replies.
    """
    if not has_ended(outcome) or retry.which not in ("failed", "rows"):
        return False
    return runs_again(retry, outcome, passed=passed, index=index)


State: TypeAlias = Literal["kept", "changed", "new"]
"""The match of a row of the suite."""

_STATES: Sequence[State] = ("new", "kept", "changed")
_NEW, _KEPT, _CHANGED = range(3)
_SHOWN_STATES: Sequence[State] = ("kept", "changed", "new")
_ID = 16  # bytes of a key that are the id
_SHOWN_ROWS = 10  # rows of each state that are listed


@attrs.frozen
class StoredIdentity:
    """The identity of one stored row."""

    index: int
    id: str
    """See `row_id`."""
    content: str
    """See `content_digest`."""


@attrs.frozen(eq=False, repr=False)
class Moves(Mapping[int, int]):
    """Maps the index of a row of the suite to that of its stored row."""

    _stored: "array[int]"
    """By index in the suite; -1 for none."""

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < len(self._stored) or self._stored[index] < 0:
            raise KeyError(index)
        return self._stored[index]

    def __iter__(self) -> Iterator[int]:
        return (index for index, stored in enumerate(self._stored) if stored >= 0)

    def __len__(self) -> int:
        return len(self._stored) - self._stored.count(-1)


@attrs.frozen(eq=False, kw_only=True)
class Reconciled:
    """The matches of all rows."""

    steps: Expansion = attrs.field(repr=False)
    moves: Moves = attrs.field(repr=False)
    """The stored index of each kept or changed row, by its index in the suite."""
    gone: Sequence[int] = attrs.field(repr=False)
    """Indices of stored rows that the suite no longer has, ascending."""
    begun: Mapping[int, int] = attrs.field(factory=dict, repr=False)
    """The stored indices of rows with recorded calls but no recorded row, by their index in the suite."""
    dropped: Sequence[int] = attrs.field(default=(), repr=False)
    """Stored indices of such calls whose rows the suite no longer has, ascending."""
    unrecorded: int = 0
    """Rows that the stored run did not record: up to this many of the new rows may not be new."""
    _states: bytearray = attrs.field(repr=False)

    def state(self, index: int) -> State:
        """Return the match of a row of the suite."""
        return _STATES[self._states[index]]

    def indices(self, state: State) -> Iterator[int]:
        """Yield the rows of the suite with a match of this kind, ascending."""
        number, place = _STATES.index(state), -1
        while (place := self._states.find(number, place + 1)) >= 0:
            yield place

    def count(self, state: State) -> int:
        """Return the number of such rows."""
        return self._states.count(_STATES.index(state))

    @property
    def is_same(self) -> bool:
        """True if each row is kept in its position. Unknown, and so False, with unrecorded rows."""
        return not (
            self.gone
            or self.dropped
            or self.unrecorded
            or self.count("changed")
            or self.count("new")
            or any(True for _ in self.moved())
        )

    def moved(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of the stored index and the suite's index of rows that have moved."""
        return ((stored, index) for index, stored in self.moves.items() if stored != index)

    def moved_calls(self) -> Iterator[tuple[int, int]]:
        """Yield the same pairs for rows with recorded calls only."""
        return ((stored, index) for index, stored in self.begun.items() if stored != index)


@attrs.define(eq=False, repr=False)
class _UnmatchedRows:
    """Unmatched rows of one side, by their keys, in their order."""

    rows: dict[bytes, int | deque[int]] = attrs.field(factory=dict)

    def put(self, key: bytes, index: int) -> None:
        there = self.rows.get(key)
        match there:
            case None:
                self.rows[key] = index
            case deque():
                there.append(index)
            case first:
                self.rows[key] = deque((first, index))

    def take(self, key: bytes) -> int | None:
        """Remove and return the first row with this key."""
        there = self.rows.get(key)
        if not isinstance(there, deque):
            return None if there is None else self._only(key)
        first = there.popleft()
        if not there:
            del self.rows[key]
        return first

    def _only(self, key: bytes) -> int:
        found = self.rows.pop(key)
        return found if isinstance(found, int) else found.popleft()

    def left(self) -> list[tuple[int, bytes]]:
        """Return the indices, ascending, and keys of all unmatched rows."""
        return sorted(
            (index, key)
            for key, there in self.rows.items()
            for index in (there if isinstance(there, deque) else (there,))
        )


def reconcile(
    stored: Iterable[StoredIdentity],
    steps: Expansion,
    *,
    started_rows: Iterable[tuple[int, str]] = (),
    expected: int | None = None,
    same_settings: bool = True,
    sources: Callable[[str], str | None] | None = None,
) -> Reconciled:
    """Match the rows of a stored run. Both sides are read once, in order.

    Args:
        stored: The recorded rows of one task, in the order of their indices.
        steps: The rows that its suite has now.
        started_rows: The indices and ids of the task's rows with recorded calls but no recorded row.
        expected: Number of rows of the stored run, recorded or not; None means that all are recorded.
        same_settings: Whether `settings_digest` is unchanged; if not, no row is kept.
        sources: See `Identities`.
    """
    identities = Identities(sources)
    matching = _Matching.of(len(steps))
    written = 0
    entries = steps.providers
    for was, step in itertools.zip_longest(stored, steps):
        if was is not None:
            written += 1
            matching.stored(_key(was.id, was.content), was.index)
        if step is not None:
            now = identities.of(step, entries[step.column.provider_index])
            matching.own(_key(now.id, now.content), step.index)
    gone = matching.match_ids()
    found, dropped = matching.match_calls(started_rows)
    if not same_settings:
        matching.change_all()
    return Reconciled(
        steps=steps,
        moves=Moves(matching.places),
        gone=gone,
        begun=found,
        dropped=dropped,
        unrecorded=0 if expected is None else max(0, expected - written),
        states=matching.states,
    )


@attrs.define(eq=False, repr=False)
class _Matching:
    """Matches stored rows with the rows of the suite."""

    places: "array[int]"
    states: bytearray
    _theirs: _UnmatchedRows = attrs.field(init=False, factory=_UnmatchedRows)
    """Stored rows."""
    _ours: _UnmatchedRows = attrs.field(init=False, factory=_UnmatchedRows)

    @classmethod
    def of(cls, size: int) -> "_Matching":
        """Return an empty matching."""
        return cls(array("q", itertools.repeat(-1, size)), bytearray(size))

    def stored(self, key: bytes, place: int) -> None:
        """Add the next stored row."""
        index = self._ours.take(key)
        if index is None:
            self._theirs.put(key, place)
        else:
            self._match(index, place, _KEPT)

    def own(self, key: bytes, index: int) -> None:
        """Add the next row of the suite."""
        place = self._theirs.take(key)
        if place is None:
            self._ours.put(key, index)
        else:
            self._match(index, place, _KEPT)

    def match_ids(self) -> Sequence[int]:
        """Match the remaining rows by id alone; return the stored rows without a match."""
        known = _UnmatchedRows()
        for place, key in self._theirs.left():
            known.put(key[:_ID], place)
        for index, key in self._ours.left():
            found = known.take(key[:_ID])
            if found is not None:
                self._match(index, found, _CHANGED)
        return [place for place, _ in known.left()]

    def match_calls(
        self, started_rows: Iterable[tuple[int, str]]
    ) -> tuple[Mapping[int, int], Sequence[int]]:
        """Match unrecorded rows with calls to unmatched rows of the suite by id; return matches and rest."""
        rows = [*started_rows]
        if not rows:
            return {}, ()
        ours = _UnmatchedRows()
        for index, key in self._ours.left():
            if self.places[index] < 0:
                ours.put(key[:_ID], index)
        found: dict[int, int] = {}
        dropped = []
        for place, row in rows:
            taken = ours.take(bytes.fromhex(row))
            if taken is None:
                dropped.append(place)
            else:
                found[taken] = place
        return found, dropped

    def change_all(self) -> None:
        """Mark all kept rows as changed."""
        self.states[:] = self.states.replace(bytes((_KEPT,)), bytes((_CHANGED,)))

    def _match(self, index: int, place: int, state: int) -> None:
        self.places[index], self.states[index] = place, state


def _key(row: str, content: str) -> bytes:
    return bytes.fromhex(f"{row}{content}")


def summarize(reconciled: Reconciled, name_of_gone: Callable[[int], str] | None = None) -> str:
    """Return a summary of the matching: the numbers, and a line for each state except kept.

    Args:
        reconciled: The matching.
        name_of_gone: Returns the name of a stored row that is gone, by its index; see `name_of_record`.
    """
    steps = reconciled.steps
    counts = {state: reconciled.count(state) for state in _SHOWN_STATES}
    shown = [f"{count} {_word(state, reconciled)}" for state, count in counts.items() if count]
    gone = reconciled.gone
    left = f"; {len(gone)} {'is' if len(gone) == 1 else 'are'} gone" if gone else ""
    lines = [
        f"of {len(steps)} {'row' if len(steps) == 1 else 'rows'}: {', '.join(shown) or 'none'}{left}"
    ]
    if unrecorded := min(reconciled.unrecorded, counts["new"]):
        are = "unrecorded row runs" if unrecorded == 1 else "unrecorded rows run"
        lines.append(f"  {unrecorded} {are} as the suite says now")
    for state in _SHOWN_STATES[1:]:
        if counts[state]:
            first = itertools.islice(reconciled.indices(state), _SHOWN_ROWS)
            named = [_named(index, row_name(steps[index])) for index in first]
            lines.append(f"  {state}: {_listed(named, counts[state])}")
    if gone:
        call = name_of_gone or (lambda _: "")
        named = [_named(place, call(place)) for place in gone[:_SHOWN_ROWS]]
        lines.append(f"  gone: {_listed(named, len(gone))}")
    return "\n".join(lines)


def _word(state: State, reconciled: Reconciled) -> str:
    match state:
        case "kept":
            moved = sum(reconciled.state(index) == "kept" for _, index in reconciled.moved())
            return f"kept ({moved} of them at other positions)" if moved else "kept"
        case "new" if reconciled.unrecorded:
            return "new, or not run before"
        case _:
            return state


def _named(index: int, name: str) -> str:
    return f"{index} ({name})" if name else str(index)


def _listed(named: Sequence[str], count: int) -> str:
    more = count - len(named)
    return f"{', '.join(named)}, and {more} more" if more else ", ".join(named)
