"""Providers of a suite by what they are called: their labels, or else their ids."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.suite.forms import provider_settings
from trioeval.suite.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.suite.models import ProviderEntry
from trioeval.suite.sources.around import names_file

_OWN = 'an object such as {"id": "openai:chat:gpt-4.1-mini"} is a provider of its own'


def entries_of(providers: Any) -> Sequence[Any]:
    """What stands under `providers`, as a list."""
    match providers:
        case list():
            return providers
        case None:
            return ()
        case _:
            return (providers,)


def places_of(name: str, providers: Sequence[Any]) -> list[int]:
    """Where the providers stand that have a label, or else an id.

    Example:
        >>> places_of("b", ["a", {"id": "b", "label": "c"}, {"id": "d", "label": "b"}])
        [2]
    """
    named: dict[str, list[int]] = {"label": [], "id": []}
    for place, entry in enumerate(providers):
        try:
            _, settings = provider_settings(entry)
        except MistakenError:  # told where it stands
            continue
        for key, places in named.items():
            if isinstance(settings, dict) and settings.get(key) == name:
                places.append(place)
    return named["label"] or named["id"]


@attrs.define
class Roster:
    """Finds providers that are named one by one, and keeps in mind which ones were."""

    entries: Sequence[ProviderEntry]
    """All that there are."""
    listed: int
    """How many of them, from the first on, may be named; the others stand where they are used."""
    written: Sequence[Any]
    """As they stand in the file."""
    is_right: bool
    """Whether nothing is wrong with them."""
    structure: Callable[[Any], ProviderEntry]
    """Reads one that is written where it is used."""
    _used: list[int] = attrs.field(init=False, factory=list)

    @property
    def used(self) -> tuple[ProviderEntry, ...]:
        """Those that were named, in that order, each once."""
        return tuple(self.entries[place] for place in self._used)

    def place(self, value: Any) -> int:
        """The place among those that are used of a provider: its label or id, or the whole of it.

        One that is there, but wrong, has any place.

        Raises:
            MistakenError: There is none, or there are several.
        """
        match value:
            case str() if value.strip():
                return self._named(value)
            case dict():
                return self._whole(value)
            case _:
                message = f"must be a provider: its label or id, or an object, got {kind(value)}"
                raise MistakenError(Mistake(message))

    def _named(self, name: str) -> int:
        entries = self.entries[: self.listed]
        found = [place for place, entry in enumerate(entries) if entry.label == name]
        found = found or [place for place, entry in enumerate(entries) if entry.id == name]
        if len(found) > 1:
            message = f"{quote(name)} names {len(found)} providers"
            raise MistakenError(Mistake(message, "give them labels, and name one of these"))
        if found:
            return self._use(found[0])
        if not self.is_right and (
            places_of(name, self.written) or any(map(names_file, self.written))
        ):
            return 0
        names = {entry.label or entry.id for entry in entries}
        hint = f"{nearest(name, names)}; {_OWN}" if names else f"there are no providers; {_OWN}"
        raise MistakenError(Mistake(f"there is no provider {quote(name)}", hint))

    def _whole(self, value: Any) -> int:
        try:
            wanted = self.structure(value)
        except MistakenError:  # told with the others
            return 0
        places = (place for place, entry in enumerate(self.entries) if entry == wanted)
        place = next(places, None)
        return 0 if place is None else self._use(place)

    def _use(self, place: int) -> int:
        if place not in self._used:
            self._used.append(place)
        return self._used.index(place)
