"""Playing recordings back: which of them answers the next call.

A recording may say for which entry, test, prompt and repeat of a suite it was made, and a call knows for
which it asks. So of all recordings of a prompt those of the same entry answer, of these those of the same
test, and so on; where there are none of the same, all stay in the choice. That way each call of a run
hears its own answer, in whatever order the calls come, and a file that says nothing of all that, or a
suite that has changed since, is served as well as it can be.

What is left answers the first, second, … call that comes down to it, and the last one is repeated.
"""

from typing import Self

import attrs

from trioeval.providers.local.recordings import Recording

PLACES = ("entry_idx", "test_idx", "prompt_idx", "repeat")
"""What tells recordings of one prompt apart, the most telling first."""


@attrs.frozen
class Wanted:
    """What a call asks of a tape."""

    prompt: str
    """The exact text."""
    model: str | None = None
    """Leave out recordings of other models; those that name no model stay."""
    entry_idx: int | None = None
    """Which entry of the suite asks, from 0; None if it is not known. Likewise the others."""
    test_idx: int | None = None
    prompt_idx: int | None = None
    repeat: int | None = None


@attrs.define(eq=False)
class _Takes:
    """Recordings that may all answer, and how many of them have."""

    takes: list[Recording]
    _decided: int = 0
    """How many of `PLACES` they were chosen by."""
    played: int = 0
    _parts: dict[int | None, Self] | None = None

    @property
    def next(self) -> Recording:
        return self.takes[min(self.played, len(self.takes) - 1)]

    def narrowed(self, wanted: Wanted) -> Self:
        """Those of them that fit best."""
        if len(self.takes) == 1 or self._decided == len(PLACES):
            return self
        place = PLACES[self._decided]
        if self._parts is None:
            self._parts = self._split(place)
        part = self._parts.get(getattr(wanted, place), self._parts[None])
        return part.narrowed(wanted)

    def _split(self, place: str) -> dict[int | None, Self]:
        """Those of each value, and under None all of them."""
        make, decided = type(self), self._decided + 1
        parts: dict[int | None, Self] = {None: make(self.takes, decided)}
        for take in self.takes:
            value = getattr(take, place)
            if value is not None:
                parts.setdefault(value, make([], decided)).takes.append(take)
        return parts


@attrs.define(eq=False)
class Tape:
    """Recordings with a reading position for each choice of them; belongs to one opened provider.

    What it remembers grows with the recordings that were asked for, not with the calls.
    """

    recordings: tuple[Recording, ...] = attrs.field(repr=False)
    _by_prompt: dict[str, list[Recording]] = attrs.field(init=False, repr=False, factory=dict)
    _asked: dict[tuple[str, str | None], _Takes] = attrs.field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for recording in self.recordings:
            self._by_prompt.setdefault(recording.prompt, []).append(recording)

    def find(self, wanted: Wanted) -> Recording | None:
        """The next recording that answers, or None if there is none. Takes nothing."""
        takes = self._takes(wanted)
        return None if takes is None else takes.next

    def advance(self, wanted: Wanted) -> None:
        """Let the next `find` of the same give the recording after."""
        takes = self._takes(wanted)
        if takes is not None:
            takes.played += 1

    def _takes(self, wanted: Wanted) -> _Takes | None:
        asked = wanted.prompt, wanted.model
        takes = self._asked.get(asked)
        if takes is None:
            fitting = [
                take
                for take in self._by_prompt.get(wanted.prompt, ())
                if wanted.model is None or take.model in (None, wanted.model)
            ]
            if not fitting:
                return None
            takes = self._asked[asked] = _Takes(fitting)
        return takes.narrowed(wanted)
