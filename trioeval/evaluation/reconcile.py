"""What has become of the rows of a stored run, where its suite is another one now.

A stored row and a row of the suite are the same row if they have the same identity: the n-th of those that
are equal is the n-th again. So rows are matched by id and content first, and each of them is *kept*, wherever
it stands now. Of what is left, rows are matched by id alone: they are *changed*. Then rows of the suite that
are left are *new*, and stored ones are *gone*.

Both sides are read side by side, once, and a row is forgotten as soon as it has its match. So what is held at
a time is about as much as rows have moved: nothing for equal suites, k rows where k were put in front. Of
every row the index alone is kept.
"""

import itertools
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import UsageError
from trioeval.evaluation.identity import Identities, name_of
from trioeval.evaluation.row import LEFT
from trioeval.suite.expand import Expansion

# Which rows of a stored run are run again, and which of those ask for everything anew.


Which: TypeAlias = Literal["rest", "none", "errors", "timeouts", "failed", "rows"]
"""What is run again besides the rows that never came to an end, which always are.

`rest` is what an earlier execution was to run again and did not, and `none` is not even that.
"""

_WORDS: tuple[Which, ...] = ("failed", "errors", "timeouts", "none")
_RANGE = re.compile(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?")

_TIMED_OUT = "timed_out"


@attrs.frozen
class Retry:
    """What is run again."""

    which: Which = "rest"
    rows: tuple[range, ...] = ()
    """With `rows`: their indices, in order, none of them twice."""

    def beyond(self, size: int) -> int | None:
        """The largest row that is named and that a run with so many rows does not have, if any."""
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
    """What a text says that is run again: `failed`, `errors`, `timeouts`, `none`, or the indices of rows.

    Raises:
        UsageError: It says none of these.

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
        msg = f"cannot run {text!r} again; write failed, errors, timeouts, none, or rows such as 3,17,20-25"
        raise UsageError(msg)
    return Retry("rows", _joined(ranges))


def _joined(ranges: list[range]) -> tuple[range, ...]:
    """The same indices, ascending, each once, in as few ranges as there can be."""
    found: list[range] = []
    for part in sorted(ranges, key=lambda one: one.start):
        if found and part.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return tuple(found)


def has_ended(outcome: str) -> bool:
    """Whether a row came to an end: it stays until another one that did takes its place.

    Args:
        outcome: How its job ended, as in `Row.outcome`.

    Example:
        >>> has_ended("failed"), has_ended("not_run")
        (True, False)
    """
    return outcome not in LEFT


def runs_again(retry: Retry, outcome: str, *, passed: bool | None, index: int) -> bool:
    """Whether a recorded row is run again.

    Args:
        retry: What is asked for.
        outcome: How its job ended, as in `Row.outcome`.
        passed: Its verdict; None where it has none.
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


def asks_anew(retry: Retry, outcome: str, *, passed: bool | None, index: int) -> bool:
    """Whether a recorded row is run again and asks for everything anew, also for replies that are there.

    Where a row has no verdict, the replies that it has are good, and only what failed is asked again. Where
    it has one, another can come of other replies only. Of a row that is named everything is asked.
    """
    if not has_ended(outcome) or retry.which not in ("failed", "rows"):
        return False
    return runs_again(retry, outcome, passed=passed, index=index)


State: TypeAlias = Literal["kept", "changed", "new"]
"""What has become of a row of the suite."""

_STATES: Sequence[State] = ("new", "kept", "changed")
_NEW, _KEPT, _CHANGED = range(3)
_TOLD_OF: Sequence[State] = ("kept", "changed", "new")
_ID = 16  # bytes of a key that are the id
_TOLD = 10  # rows of each kind that are named


@attrs.frozen
class StoredIdentity:
    """What one stored row is."""

    index: int
    id: str
    """See `row_id`."""
    content: str
    """See `content_digest`."""


@attrs.frozen(eq=False)
class Moves(Mapping[int, int]):
    """From the index of a row of the suite to that of the stored row that it is."""

    _stored: "array[int]"
    """By index of the suite; -1 for none."""

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
    """What has become of all rows."""

    steps: Expansion = attrs.field(repr=False)
    moves: Moves = attrs.field(repr=False)
    """Where each row is stored that is kept or changed, by its index in the suite."""
    gone: Sequence[int] = attrs.field(repr=False)
    """Indices of stored rows that the suite has no more, ascending."""
    begun: Mapping[int, int] = attrs.field(factory=dict, repr=False)
    """Where the calls are stored of rows that were never written down, by their index in the suite."""
    dropped: Sequence[int] = attrs.field(default=(), repr=False)
    """Indices of such calls whose rows the suite has no more, ascending."""
    unrecorded: int = 0
    """Rows that the stored run never wrote down: so many of the new ones may be no news."""
    _states: bytearray = attrs.field(repr=False)

    def state(self, index: int) -> State:
        """What has become of a row of the suite."""
        return _STATES[self._states[index]]

    def indices(self, state: State) -> Iterator[int]:
        """The rows of the suite of which that has become, ascending."""
        wanted, place = _STATES.index(state), -1
        while (place := self._states.find(wanted, place + 1)) >= 0:
            yield place

    def count(self, state: State) -> int:
        """How many they are."""
        return self._states.count(_STATES.index(state))

    @property
    def is_same(self) -> bool:
        """Whether every row of either side is kept where it was. Of one never written down nobody knows."""
        return not (
            self.gone
            or self.dropped
            or self.unrecorded
            or self.count("changed")
            or self.count("new")
            or any(True for _ in self.moved())
        )

    def moved(self) -> Iterator[tuple[int, int]]:
        """The indices of stored rows that are other ones now: the stored one, and that of the suite."""
        return ((stored, index) for index, stored in self.moves.items() if stored != index)

    def moved_calls(self) -> Iterator[tuple[int, int]]:
        """The same of rows of which nothing but calls is stored."""
        return ((stored, index) for index, stored in self.begun.items() if stored != index)


@attrs.define(eq=False)
class _Waiting:
    """Rows of one side that have no match yet, by their keys, in their order."""

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
        """The first row with this key, which waits no longer."""
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
        """All that still wait: their indices, ascending, and keys."""
        return sorted(
            (index, key)
            for key, there in self.rows.items()
            for index in (there if isinstance(there, deque) else (there,))
        )


def reconcile(
    stored: Iterable[StoredIdentity],
    steps: Expansion,
    *,
    begun: Iterable[tuple[int, str]] = (),
    expected: int | None = None,
    same_settings: bool = True,
    sources: Callable[[str], str | None] | None = None,
) -> Reconciled:
    """What has become of the rows of a stored run. Both sides are read once, in order.

    Args:
        stored: The rows of one task that were written down, in the order of their indices.
        steps: The rows that its suite has now.
        begun: The rows of the task of which only calls were written down: their indices, and ids.
        expected: How many rows the stored run has, written down or not; None takes it that all were.
        same_settings: Whether `settings_digest` is what it was; if not, no row is kept.
        sources: As for `Identities`.
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
    found, dropped = matching.match_calls(begun)
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


@attrs.define(eq=False)
class _Matching:
    """Finds which stored row each row of the suite is."""

    places: "array[int]"
    states: bytearray
    _theirs: _Waiting = attrs.field(init=False, factory=_Waiting)
    """Stored rows."""
    _ours: _Waiting = attrs.field(init=False, factory=_Waiting)

    @classmethod
    def of(cls, size: int) -> "_Matching":
        """Nothing is matched yet."""
        return cls(array("q", itertools.repeat(-1, size)), bytearray(size))

    def stored(self, key: bytes, place: int) -> None:
        """Take the next stored row."""
        index = self._ours.take(key)
        if index is None:
            self._theirs.put(key, place)
        else:
            self._match(index, place, _KEPT)

    def own(self, key: bytes, index: int) -> None:
        """Take the next row of the suite."""
        place = self._theirs.take(key)
        if place is None:
            self._ours.put(key, index)
        else:
            self._match(index, place, _KEPT)

    def match_ids(self) -> Sequence[int]:
        """Match by id alone what is left; what is still left then of the stored rows."""
        known = _Waiting()
        for place, key in self._theirs.left():
            known.put(key[:_ID], place)
        for index, key in self._ours.left():
            found = known.take(key[:_ID])
            if found is not None:
                self._match(index, found, _CHANGED)
        return [place for place, _ in known.left()]

    def match_calls(
        self, begun: Iterable[tuple[int, str]]
    ) -> tuple[Mapping[int, int], Sequence[int]]:
        """Match by id what was begun with the rows of the suite that have no match; what is left of it."""
        rows = [*begun]
        if not rows:
            return {}, ()
        ours = _Waiting()
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
        """No row is as it was."""
        self.states[:] = self.states.replace(bytes((_KEPT,)), bytes((_CHANGED,)))

    def _match(self, index: int, place: int, state: int) -> None:
        self.places[index], self.states[index] = place, state


def _key(row: str, content: str) -> bytes:
    return bytes.fromhex(f"{row}{content}")


def told(reconciled: Reconciled, name_of_gone: Callable[[int], str] | None = None) -> str:
    """What has become of the rows, for people: the numbers, and a line for each kind but those kept.

    Args:
        reconciled: That.
        name_of_gone: What a stored row that is gone is called, by its index; see `name_of_record`.
    """
    steps = reconciled.steps
    counts = {state: reconciled.count(state) for state in _TOLD_OF}
    shown = [f"{count} {_word(state, reconciled)}" for state, count in counts.items() if count]
    gone = reconciled.gone
    left = f"; {len(gone)} {'is' if len(gone) == 1 else 'are'} gone" if gone else ""
    lines = [f"of {len(steps)} rows: {', '.join(shown) or 'none'}{left}"]
    if unrecorded := min(reconciled.unrecorded, counts["new"]):
        are = (
            "row that was not recorded yet is"
            if unrecorded == 1
            else "rows that were not recorded yet are"
        )
        lines.append(f"  {unrecorded} {are} run as the suite says now")
    for state in _TOLD_OF[1:]:
        if counts[state]:
            first = itertools.islice(reconciled.indices(state), _TOLD)
            named = [_named(index, name_of(steps[index])) for index in first]
            lines.append(f"  {state}: {_listed(named, counts[state])}")
    if gone:
        call = name_of_gone or (lambda _: "")
        named = [_named(place, call(place)) for place in gone[:_TOLD]]
        lines.append(f"  gone: {_listed(named, len(gone))}")
    return "\n".join(lines)


def _word(state: State, reconciled: Reconciled) -> str:
    match state:
        case "kept":
            moved = sum(reconciled.state(index) == "kept" for _, index in reconciled.moved())
            return f"kept ({moved} of them at other places)" if moved else "kept"
        case "new" if reconciled.unrecorded:
            return "new, or not run before"
        case _:
            return state


def _named(index: int, name: str) -> str:
    return f"{index} ({name})" if name else str(index)


def _listed(named: Sequence[str], count: int) -> str:
    more = count - len(named)
    return f"{', '.join(named)}, and {more} more" if more else ", ".join(named)
