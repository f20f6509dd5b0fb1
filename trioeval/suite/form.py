"""Providers and prompts in a suite: their several notations, some of which are files."""

import difflib
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import cattrs

from trioeval.documents.files import FILE, FileContext, names_file
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    below,
    collect_warning,
    kind,
    nearest,
    read_list,
)
from trioeval.documents.paths import DocumentPath
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import Hook, object_hook, snake, some_text
from trioeval.documents.trust import CODE_PREFIXES
from trioeval.grading import quote
from trioeval.scripting import names_script
from trioeval.suite.model import LaneSettings, Prompt, ProviderEntry
from trioeval.suite.schema_types import tool_type_mistakes
from trioeval.suite.simulated_user import SimulatedUser
from trioeval.suite.sources.output_paths import code_mistakes
from trioeval.suite.sources.prompts import read_prompts
from trioeval.suite.sources.values import config_values
from trioeval.templates import Templates
from trioeval.text import json_text

# Keys of promptfoo configurations that are known and have no effect here, or are not supported yet.
#
# Keys with an effect that is not supported yet are refused: ignoring them would falsify the results.


IGNORED_KEYS: Collection[str] = (
    "$schema",
    "redteam",
    "sharing",
    "telemetry",
    "tracing",
    "writeLatestResults",
)
"""Top-level keys that are accepted and ignored with a warning; those beginning with `x-` without one."""

IGNORED_SILENTLY: Collection[str] = ("$schema",)
"""Those of them that are ignored without a warning."""

DEFINITIONS: Collection[str] = ("$defs", "assertionTemplates", "definitions")
"""Top-level keys whose contents have an effect only as targets of a `$ref`."""

IGNORED_OPTIONS: Collection[str] = (
    "generateSuggestions",
    "interactiveProviders",
    "isRedteam",
    "silent",
    "suggestionsCount",
)
"""Options that are accepted and ignored with a warning."""

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
"""An object with one of these as its only key is settings; with any other only key, that key is the id."""


_TRANSFORMS = ("transform",)
SIMULATED_USER = "promptfoo:simulated-user"
"""The id of a provider that talks to the providers of the suite."""
_USER_PROVIDERS = ("userProvider", "user_provider")
_READ_OF_USER = {field.name for field in attrs.fields(SimulatedUser)} - {"user_provider"}
"""Keys of the config of a simulated user, in snake_case, whose files are read."""
_SENT = {"multipart"}
"""Keys of a config in which `file://` names a file that is sent unchanged."""


def many(
    value: Any,
    members: str,
    read: Callable[[Any], Iterable[T]],
    *,
    alone: type | tuple[type, ...] = str,
) -> tuple[T, ...]:
    """Read the entries of a list, each of which may expand to several values.

    Args:
        value: The list, or one entry.
        members: The kind of entries, for messages.
        read: Reads one entry.
        alone: Types of an entry that need not be in a list.

    Raises:
        MistakenError: All mistakes of all entries.
    """
    if isinstance(value, alone):
        return tuple(read(value))
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list{members}, got {kind(value)}"))
    return tuple(itertools.chain.from_iterable(read_list(value, read)))


@attrs.define(eq=False, repr=False)
class _SeenEntries:
    """The entries read so far: a literal duplicate counts once."""

    what: str
    context: FileContext
    _seen: set[str] = attrs.field(init=False, factory=set)

    def is_known(self, entry: Any) -> bool:
        """Return whether an entry was read before; if so, warn that it is ignored."""
        text = json_text(entry)
        if text not in self._seen:
            self._seen.add(text)
            return False
        message = f"duplicate {self.what} {quote(entry)}: it counts once"
        self.context.warn(Mistake(message, "give one of them a label to have both"))
        return True


def prompts_hook(context: FileContext, filters: Iterable[str] = ()) -> Hook:
    """Return the hook for the list of prompts: texts, objects with the text as `raw`, and files of them."""
    templates = templates_of(context, filters)
    again = _SeenEntries("prompt", context)

    def read(entry: Any) -> tuple[Prompt, ...]:
        if isinstance(entry, str) and not entry.strip():
            raise MistakenError(Mistake("a prompt must not be empty"))
        if isinstance(entry, str) and again.is_known(entry):
            return ()
        prompts = read_prompts(entry, context)
        at = ("raw",) if isinstance(entry, dict) else ()
        errors = [templates.prompt_error(prompt.raw) for prompt in prompts if not prompt.function]
        if mistakes := [Mistake(error, at=at) for error in errors if error]:
            raise MistakenError(*mistakes)
        return tuple(_prompt_with_files(prompt, context) for prompt in prompts)

    def hook(value: Any, _wanted: Any) -> tuple[Prompt, ...]:
        if isinstance(value, tuple):  # already read
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


def _prompt_with_files(prompt: Prompt, context: FileContext) -> Prompt:
    if not prompt.config:
        return prompt
    with below("config"):
        config = config_values(prompt.config, context)
        Mistakes(tool_type_mistakes(config)).raise_any()
        return attrs.evolve(prompt, config=config)


def templates_of(context: FileContext, filters: Iterable[str]) -> Templates:
    """Return an engine that checks texts of a suite for template syntax only."""
    enabled = not context.switch("DISABLE_TEMPLATING")
    return Templates(filters=dict.fromkeys(filters, str), enabled=enabled)


def providers_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for the list of providers; `file://list.yaml` is a file with more of them."""
    structure = converter.get_structure_hook(ProviderEntry)
    again = _SeenEntries("provider", context)

    def read(entry: Any) -> tuple[ProviderEntry, ...]:
        if again.is_known(entry):
            return ()
        match entry:
            case str() if entry.startswith(FILE) and not _PROGRAM_FILE.search(entry):
                file = context.file(entry)
                document = read_placed(file)
                return structured(document, file, lambda data: many(data, "", read, alone=dict))
            case _:
                return (structure(entry, ProviderEntry),)

    return lambda value, _wanted: many(value, " of providers", read)


def lane_mistakes(lane: LaneSettings) -> Iterator[Mistake]:
    """Yield the mistake of a lane whose minimum gap is given twice."""
    if lane.delay is not None and lane.min_gap is not None:
        message = "delay and minGap are the same gap, in milliseconds and in seconds"
        yield Mistake(message, "write one of them", at=("delay",), key=True)


def provider_hook(
    converter: cattrs.Converter, context: FileContext, templates: Templates | None = None
) -> Hook:
    """Return the hook for one provider: an id, an object with one, or an object whose only key is the id.

    Files that its config names are read.

    Args:
        converter: Structures the entry.
        context: The context of files.
        templates: Checks the syntax of templates of simulated users; None leaves that to the run.
    """
    structure = object_hook(converter, ProviderEntry)

    def hook(value: Any, target: Any) -> ProviderEntry:
        inside, settings = provider_settings(value)
        at = ("id",) if isinstance(value, dict) and "id" in value else inside
        mistakes = Mistakes(
            part.below(*inside) for part in code_mistakes(settings, _TRANSFORMS, context)
        )
        own_id = None
        if inside and settings["id"] != inside[0]:
            with mistakes.below(*inside, "id"):
                own_id = some_text(settings["id"])
            settings = {**settings, "id": inside[0]}
        named = settings.get("id") if isinstance(settings, dict) else None
        if isinstance(named, str) and (named.startswith(CODE_PREFIXES) or names_script(named)):
            with mistakes.below(*at):
                context.check_code(quote(named))
                if names_script(named):
                    from trioeval.suite.sources.code import check_node_reference

                    check_node_reference(named, "is a provider", context)
        with mistakes.below(*inside):
            entry: ProviderEntry = structure(settings, target)
        mistakes.raise_any()
        if not entry.id.strip():
            raise MistakenError(
                Mistake("the id of a provider must not be empty", 'for example "echo"', at=at)
            )
        if entry.id == "echo" and entry.config:
            message = "the config of a provider echo is ignored"
            hint = "echo returns the prompt, whatever its config"
            collect_warning(message, hint, *inside, "config", key=True)
        with below(*inside, "config"):
            config = _with_files(entry, context)
            Mistakes(tool_type_mistakes(config)).raise_any()
            user = simulated_user(config) if entry.id == SIMULATED_USER else None
            return attrs.evolve(entry, config=config, own_id=own_id, user=user)

    def simulated_user(config: Mapping[str, Any]) -> SimulatedUser:
        from trioeval.documents.environment import render_environment
        from trioeval.suite.simulated_user_form import simulated_user_hook

        # The environment is filled in as in prompts; the provider that plays it does so itself.
        own = {key: part for key, part in config.items() if key not in _USER_PROVIDERS}
        filled = render_environment(own, [str(own)], context)
        Mistakes((*filled.refused, *filled.wrong)).raise_any()
        for unset in filled.unset:
            collect_warning(unset.message, unset.hint, *unset.at)
        structure_user = simulated_user_hook(converter, hook, templates)
        found: SimulatedUser = structure_user({**config, **filled.data}, None)
        return found

    return hook


def _with_files(entry: ProviderEntry, context: FileContext) -> Mapping[str, Any]:
    """Return the config of a provider with its files read and its functions called."""
    if entry.id.startswith("exec:"):  # receives it as it is written
        return entry.config
    # The provider that plays a simulated user is read like any other provider; a misspelt key is reported.
    kept = {
        key
        for key in entry.config
        if key in _SENT or (entry.id == SIMULATED_USER and snake(key) not in _READ_OF_USER)
    }
    read = config_values({k: part for k, part in entry.config.items() if k not in kept}, context)
    return {
        key: read.get(key, part)
        for key, part in entry.config.items()
        if key in kept or key in read  # parts that only a run can compute are left out
    }


def provider_settings(value: Any) -> tuple[DocumentPath, Any]:
    """Return the object form of a provider, and the path of its settings below the entry.

    Its id is the one that names it; in an entry whose only key is an id, `id` replaces that name.

    Raises:
        MistakenError: The id is the key of a value that is not an object.

    Example:
        >>> provider_settings({"openai:gpt-4.1": {"label": "a"}})
        (('openai:gpt-4.1',), {'id': 'openai:gpt-4.1', 'label': 'a'})
        >>> provider_settings({"echo": {"id": "own"}})
        (('echo',), {'id': 'own'})
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
            return (name,), {"id": name, **rest}
        case _:
            return (), value


# Providers of a suite by name: their labels, or else their ids.


_OWN = 'an object such as {"id": "openai:chat:gpt-4.1-mini"} defines a separate provider'


def entries_of(providers: Any) -> Sequence[Any]:
    """Return the value of `providers` as a list."""
    match providers:
        case list():
            return providers
        case None:
            return ()
        case _:
            return (providers,)


def places_of(name: str, providers: Sequence[Any]) -> list[int]:
    """Return the indices of the providers that have a label, or else an id.

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
    """Yield the providers with settings and their indices; mistakes in others are reported elsewhere."""
    for place, entry in enumerate(providers):
        try:
            _, settings = provider_settings(entry)
        except MistakenError:
            continue
        if isinstance(settings, dict):
            yield place, settings


@attrs.define(eq=False, repr=False)
class ProviderIndex:
    """Finds providers that are named one by one, and records which ones were."""

    entries: Sequence[ProviderEntry]
    """All providers."""
    listed: int
    """The number of them, from the first, that may be named; the others are defined where they are used."""
    written: Sequence[Any]
    """The providers that may be named, as they are written in the file."""
    is_right: bool
    """True if their suite could be read; otherwise the entries are empty."""
    structure: Callable[[Any], ProviderEntry]
    """Reads a provider that is written where it is used."""
    _used: list[int] = attrs.field(init=False, factory=list)

    @property
    def used(self) -> tuple[ProviderEntry, ...]:
        """The providers that were named, in that order, without duplicates."""
        return tuple(self.entries[place] for place in self._used)

    def place(self, value: Any) -> int:
        """Return the index among the used providers of one named by label or id, or written as an object.

        A provider that exists but has mistakes gets any index.

        Raises:
            MistakenError: No provider, or more than one, has that name.
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
        found = found or [place for place, entry in enumerate(entries) if entry.shown_id == name]
        if len(found) > 1:
            message = f"{quote(name)} names {len(found)} providers"
            raise MistakenError(Mistake(message, "give them labels, and name one of these"))
        if found:
            return self._use(found[0])
        if not self.is_right and (
            places_of(name, self.written) or any(map(names_file, self.written))
        ):
            return 0
        names = {entry.name for entry in entries}
        if not self.is_right:
            names_written = (
                one.get("label") or one.get("id") for _, one in _readable(self.written)
            )
            names = {name for name in names_written if isinstance(name, str)}
        hint = f"{nearest(name, names)}; {_OWN}" if names else f"the suite has no providers; {_OWN}"
        raise MistakenError(Mistake(f"unknown provider {quote(name)}", hint))

    def _whole(self, value: Any) -> int:
        try:
            number = self.structure(value)
        except MistakenError:  # reported with the other mistakes
            return 0
        places = (place for place, entry in enumerate(self.entries) if entry == number)
        place = next(places, None)
        return 0 if place is None else self._use(place)

    def _use(self, place: int) -> int:
        if place not in self._used:
            self._used.append(place)
        return self._used.index(place)
