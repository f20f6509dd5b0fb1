"""Providers and prompts as a suite writes them: in several forms, some of which are files."""

import difflib
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import cattrs

from trioeval.documents.files import FILE, Around, names_file
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    below,
    kind,
    nearest,
    read_list,
)
from trioeval.documents.paths import DocumentPath
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import Hook, object_hook
from trioeval.documents.trust import CODE_PREFIXES
from trioeval.grading import quote
from trioeval.suite.model import Prompt, ProviderEntry
from trioeval.suite.sources.output_paths import code_mistakes
from trioeval.suite.sources.prompts import read_prompts
from trioeval.suite.sources.values import config_values
from trioeval.templates import Templates
from trioeval.text import json_text

# The keys of promptfoo configurations that are known here and have no meaning, or not yet.
#
# Keys that mean something and are not supported yet are refused: ignoring them would lie about the results.


WITHOUT_MEANING: Collection[str] = (
    "$schema",
    "redteam",
    "sharing",
    "telemetry",
    "tracing",
    "writeLatestResults",
)
"""At the top; taken, not looked at, and told of. So is every key there that begins with `x-`, untold."""

UNTOLD: Collection[str] = ("$schema",)
"""Of those, what is not worth telling."""

DEFINITIONS: Collection[str] = ("$defs", "assertionTemplates", "definitions")
"""At the top; what stands there means something where a `$ref` leads to it, and nothing by itself."""

WITHOUT_MEANING_IN_OPTIONS: Collection[str] = (
    "generateSuggestions",
    "interactiveProviders",
    "isRedteam",
    "silent",
    "suggestionsCount",
)
"""Taken, not looked at, and told of."""

NOT_YET_IN_LANES: Collection[str] = ("exclusiveGroup", "itpm", "otpm")


T = TypeVar("T")

_PROGRAM_FILE = re.compile(r"\.(?:py|[cm]?[jt]s|go|rb)(:\w+(\.\w+)*)?$")
"""A function in a file is a provider itself, not the description of one."""
_PROVIDER_KEYS = {
    "id",
    "label",
    "config",
    "lane",
    "prompts",
    "delay",
    "transform",
    "env",
}
"""An object with one key is read as settings where it is one of these, and otherwise the key is the id."""


_TRANSFORMS = ("transform",)
_SENT = {"multipart"}
"""Keys of a config in which `file://` names what is sent as it is."""


def many(
    value: Any,
    what: str,
    read: Callable[[Any], Iterable[T]],
    *,
    alone: type | tuple[type, ...] = str,
) -> tuple[T, ...]:
    """Everything that the entries of a list stand for, each of which may be several things.

    Args:
        value: The list, or one entry.
        what: For messages.
        read: From one entry to what it stands for.
        alone: Types of an entry that may stand without a list.

    Raises:
        MistakenError: Everything that is wrong with any of them.
    """
    if isinstance(value, alone):
        return tuple(read(value))
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list{what}, got {kind(value)}"))
    return tuple(itertools.chain.from_iterable(read_list(value, read)))


@attrs.define
class _Again:
    """Entries that were read before: what stands twice, word for word, is meant once."""

    what: str
    around: Around
    _seen: set[str] = attrs.field(init=False, factory=set)

    def is_known(self, entry: Any) -> bool:
        """Whether an entry was here before; if so, a warning says that it is left out."""
        text = json_text(entry)
        if text not in self._seen:
            self._seen.add(text)
            return False
        message = f"the {self.what} {quote(entry)} stands twice, and counts once"
        self.around.warn(Mistake(message, "give one of them a label to have both"))
        return True


def prompts_hook(around: Around, filters: Iterable[str] = ()) -> Hook:
    """For the list of prompts: texts, objects with the text as `raw`, and files of them."""
    templates = templates_of(around, filters)
    again = _Again("prompt", around)

    def read(entry: Any) -> tuple[Prompt, ...]:
        if isinstance(entry, str) and not entry.strip():
            raise MistakenError(Mistake("a prompt must not be empty"))
        if isinstance(entry, str) and again.is_known(entry):
            return ()
        prompts = read_prompts(entry, around)
        at = ("raw",) if isinstance(entry, dict) else ()
        errors = [templates.prompt_error(prompt.raw) for prompt in prompts if not prompt.function]
        if mistakes := [Mistake(error, at=at) for error in errors if error]:
            raise MistakenError(*mistakes)
        return tuple(_prompt_with_files(prompt, around) for prompt in prompts)

    def hook(value: Any, _wanted: Any) -> tuple[Prompt, ...]:
        if isinstance(value, tuple):  # read already
            return value
        if isinstance(value, dict):  # files with their labels
            value = [{"raw": path, "label": label} for path, label in value.items()]
            return many(value, " of prompts", read)
        if not isinstance(value, list):
            return many(value, " of prompts", read)
        numbers = itertools.count()

        def read_numbered(entry: Any) -> list[Prompt]:
            number = next(numbers)
            return [attrs.evolve(prompt, entry=number) for prompt in read(entry)]

        return many(value, " of prompts", read_numbered)

    return hook


def _prompt_with_files(prompt: Prompt, around: Around) -> Prompt:
    if not prompt.config:
        return prompt
    with below("config"):
        return attrs.evolve(prompt, config=config_values(prompt.config, around))


def templates_of(around: Around, filters: Iterable[str]) -> Templates:
    """What tells whether texts of a suite are templates; for their syntax only."""
    enabled = not around.switch("DISABLE_TEMPLATING")
    return Templates(filters=dict.fromkeys(filters, str), enabled=enabled)


def providers_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For the list of providers; `file://list.yaml` is a file with more of them."""
    structure = converter.get_structure_hook(ProviderEntry)
    again = _Again("provider", around)

    def read(entry: Any) -> tuple[ProviderEntry, ...]:
        if again.is_known(entry):
            return ()
        match entry:
            case str() if entry.startswith(FILE) and not _PROGRAM_FILE.search(entry):
                file = around.file(entry)
                document = read_placed(file)
                return structured(document, file, lambda data: many(data, "", read, alone=dict))
            case _:
                return (structure(entry, ProviderEntry),)

    return lambda value, _wanted: many(value, " of providers", read)


def provider_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For one provider: an id, an object with one, or an object whose one key is the id.

    Files that its config names are read.
    """
    structure = object_hook(converter, ProviderEntry)

    def hook(value: Any, wanted: Any) -> ProviderEntry:
        inside, settings = provider_settings(value)
        at = ("id",) if isinstance(value, dict) and "id" in value else inside
        mistakes = Mistakes(
            part.below(*inside) for part in code_mistakes(settings, _TRANSFORMS, around)
        )
        named = settings.get("id") if isinstance(settings, dict) else None
        if isinstance(named, str) and named.startswith(CODE_PREFIXES):
            with mistakes.below(*at):
                around.check_code(quote(named))
        with mistakes.below(*inside):
            entry: ProviderEntry = structure(settings, wanted)
        mistakes.raise_any()
        if not entry.id.strip():
            raise MistakenError(Mistake("the id of a provider must not be empty", at=at))
        if entry.id == "echo" and entry.config:
            message = "the config of a provider echo is not looked at"
            around.warn(Mistake(message, "echo answers with the prompt, whatever it says"))
        with below(*inside, "config"):
            return attrs.evolve(entry, config=_with_files(entry, around))

    return hook


def _with_files(entry: ProviderEntry, around: Around) -> Mapping[str, Any]:
    """The config of a provider with what its files hold and its functions return."""
    if entry.id.startswith("exec:"):  # gets it as it is written
        return entry.config
    read = config_values({k: part for k, part in entry.config.items() if k not in _SENT}, around)
    return {
        key: read.get(key, part)
        for key, part in entry.config.items()
        if key in _SENT or key in read  # what only a run makes of it is left out
    }


def provider_settings(value: Any) -> tuple[DocumentPath, Any]:
    """The object form of a provider, and where its settings stand below the entry.

    Raises:
        MistakenError: The id is given twice, or is the key of something else than an object.

    Example:
        >>> provider_settings({"openai:gpt-4.1": {"label": "a"}})
        (('openai:gpt-4.1',), {'id': 'openai:gpt-4.1', 'label': 'a'})
    """
    match value:
        case str():
            return (), {"id": value}
        case dict() if len(value) == 1 and not value.keys() & _PROVIDER_KEYS:
            ((name, rest),) = value.items()
            rest = {} if rest is None else rest
            if not isinstance(rest, dict):
                if difflib.get_close_matches(name, _PROVIDER_KEYS, n=1):
                    return (), value
                raise MistakenError(Mistake(f"must be an object, got {kind(rest)}", at=(name,)))
            if "id" in rest:
                message = f"the id is given twice, here and as {quote(name)}"
                raise MistakenError(Mistake(message, at=(name, "id"), key=True))
            return (name,), {"id": name, **rest}
        case _:
            return (), value


# Providers of a suite by what they are called: their labels, or else their ids.


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
    for place, settings in _readable(providers):
        for key, places in named.items():
            if settings.get(key) == name:
                places.append(place)
    return named["label"] or named["id"]


def _readable(providers: Sequence[Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The providers that have settings, by their place; problems in others are reported elsewhere."""
    for place, entry in enumerate(providers):
        try:
            _, settings = provider_settings(entry)
        except MistakenError:
            continue
        if isinstance(settings, dict):
            yield place, settings


@attrs.define
class Roster:
    """Finds providers that are named one by one, and keeps in mind which ones were."""

    entries: Sequence[ProviderEntry]
    """All that there are."""
    listed: int
    """How many of them, from the first on, may be named; the others stand where they are used."""
    written: Sequence[Any]
    """Those that may be named, as they stand in the file."""
    is_right: bool
    """Whether the suite that they are of can be read; otherwise there are no entries."""
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
        if not self.is_right:
            said = (one.get("label") or one.get("id") for _, one in _readable(self.written))
            names = {name for name in said if isinstance(name, str)}
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
