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
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.suite import Expansion
from trioeval.tasks.identity import Identities, name_of

State: TypeAlias = Literal["kept", "changed", "new"]
"""What has become of a row of the suite."""

_STATES: Sequence[State] = ("new", "kept", "changed")
_NEW, _KEPT, _CHANGED = range(3)
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

    _stored: array[int]
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
        """Whether every stored row is kept, and nothing new has come but what was never written down."""
        return not (
            self.gone or self.count("changed") or self.count("new") > self.unrecorded
        )

    def moved(self) -> Iterator[tuple[int, int]]:
        """The indices of stored rows that are other ones now: the stored one, and that of the suite."""
        return ((stored, index) for index, stored in self.moves.items() if stored != index)


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
    expected: int | None = None,
    same_settings: bool = True,
    sources: Mapping[str, str] | None = None,
) -> Reconciled:
    """What has become of the rows of a stored run. Both sides are read once, in order.

    Args:
        stored: The rows of one task that were written down, in the order of their indices.
        steps: The rows that its suite has now.
        expected: How many rows the stored run has, written down or not; None takes it that all were.
        same_settings: Whether `settings_digest` is what it was; if not, no row is kept.
        sources: As for `Identities`.
    """
    identities = Identities({} if sources is None else sources)
    places, states = array("q", itertools.repeat(-1, len(steps))), bytearray(len(steps))
    matched = _KEPT if same_settings else _CHANGED
    theirs, ours = _Waiting(), _Waiting()
    written = 0

    def match(index: int, place: int, state: int) -> None:
        places[index], states[index] = place, state

    entries = steps.providers
    for was, step in itertools.zip_longest(stored, steps):
        if was is not None:
            written += 1
            theirs.put(bytes.fromhex(f"{was.id}{was.content}"), was.index)
        if step is not None:
            now = identities.of(step, entries[step.column.provider_index])
            key = bytes.fromhex(f"{now.id}{now.content}")
            ours.put(key, step.index)
    return Reconciled(
        steps=steps,
        moves=Moves(places),
        gone=(),
        unrecorded=0,
        states=states,
    )
