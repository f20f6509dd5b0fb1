"""Playing recordings back: which of them answers the next call.

Where one prompt is recorded several times, its recordings are the answers to its first, second, … call,
and the last one is repeated after that. Recordings that know their repeat answer that repeat alone, as
long as there is one for it: then it does not matter in which order the calls of a run come.
"""

from collections import Counter

import attrs

from trioeval.providers.local.recordings import Recording


@attrs.frozen
class Wanted:
    """What a call asks of a tape."""

    prompt: str
    """The exact text."""
    model: str | None = None
    """Leave out recordings of other models; those that name no model stay."""
    provider: str | None = None
    """Likewise, of other providers."""
    repeat: int | None = None
    """Which repeat of its test asks, from 0; None if it is not known."""

    def fits(self, recording: Recording) -> bool:
        """Whether a recording of the prompt may answer, whatever its repeat."""
        return (self.model is None or recording.model in (None, self.model)) and (
            self.provider is None or recording.provider in (None, self.provider)
        )


@attrs.define(eq=False)
class Tape:
    """Recordings with a reading position for each prompt; belongs to one opened provider."""

    recordings: tuple[Recording, ...] = attrs.field(repr=False)
    _by_prompt: dict[str, list[Recording]] = attrs.field(init=False, repr=False, factory=dict)
    _played: Counter[Wanted] = attrs.field(init=False, repr=False, factory=Counter)

    def __attrs_post_init__(self) -> None:
        for recording in self.recordings:
            self._by_prompt.setdefault(recording.prompt, []).append(recording)

    def find(self, wanted: Wanted) -> Recording | None:
        """The next recording that answers, or None if there is none. Takes nothing."""
        takes, track = self._takes(wanted)
        return takes[min(self._played[track], len(takes) - 1)] if takes else None

    def advance(self, wanted: Wanted) -> None:
        """Let the next `find` of the same give the recording after."""
        self._played[self._takes(wanted)[1]] += 1

    def _takes(self, wanted: Wanted) -> tuple[list[Recording], Wanted]:
        """The recordings that may answer, in order, and under what their position is kept."""
        fitting = [take for take in self._by_prompt.get(wanted.prompt, ()) if wanted.fits(take)]
        own = [take for take in fitting if take.repeat is not None and take.repeat == wanted.repeat]
        return (own, wanted) if own else (fitting, attrs.evolve(wanted, repeat=None))
