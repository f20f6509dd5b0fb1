"""Providers and prompts as a suite writes them: in several forms, some of which are files."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs
import cattrs

from trioeval.grading import quote
from trioeval.grading.text import json_text
from trioeval.suite.anchors import FILE
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import Prompt, ProviderEntry
from trioeval.suite.paths import DocumentPath
from trioeval.suite.placing import read_placed, structured
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.nested_files import config_values
from trioeval.suite.sources.output_paths import code_mistakes
from trioeval.suite.sources.prompts import read_prompts
from trioeval.suite.strict import Hook, object_hook
from trioeval.suite.templates import Templates
from trioeval.suite.trust import CODE_PREFIXES

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
    found: list[T] = []
    mistakes: list[Mistake] = []
    for position, entry in enumerate(value):
        try:
            found += read(entry)
        except MistakenError as error:
            mistakes += [mistake.below(position) for mistake in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    return tuple(found)


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
    """For the list of prompts: texts, objects with the text as `raw`, and files of them.

    Args:
        around: What files are read against.
        filters: Names of filters that the suite brings along, which its prompts may use.
    """
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

    return hook


def _prompt_with_files(prompt: Prompt, around: Around) -> Prompt:
    if not prompt.config:
        return prompt
    try:
        return attrs.evolve(prompt, config=config_values(prompt.config, around))
    except MistakenError as error:
        raise MistakenError(*(mistake.below("config") for mistake in error.parts)) from None


def templates_of(around: Around, filters: Iterable[str]) -> Templates:
    """What tells whether texts of a suite are templates; for their syntax only.

    Args:
        around: Says whether there are templates at all.
        filters: Names of filters that the suite brings along.
    """
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
                document = read_placed(file, read_document)
                return structured(document, file, lambda data: many(data, "", read, alone=dict))
            case _:
                return (structure(entry, ProviderEntry),)

    return lambda value, _wanted: many(value, " of providers", read)


def provider_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For one provider: an id, an object with one, or an object whose one key is the id.

    Files that its config names are read.
    """
    structure = object_hook(converter, ProviderEntry, hooks={"env": scalar_texts})

    def hook(value: Any, wanted: Any) -> ProviderEntry:
        below, settings = provider_settings(value)
        at = ("id",) if isinstance(value, dict) and "id" in value else below
        mistakes = [part.below(*below) for part in code_mistakes(settings, _TRANSFORMS, around)]
        named = settings.get("id") if isinstance(settings, dict) else None
        if isinstance(named, str) and named.startswith(CODE_PREFIXES):
            try:
                around.check_code(quote(named))
            except MistakenError as error:
                mistakes += (part.below(*at) for part in error.parts)
        try:
            entry: ProviderEntry = structure(settings, wanted)
        except MistakenError as error:
            mistakes += (mistake.below(*below) for mistake in error.parts)
        if mistakes:
            raise MistakenError(*mistakes)
        if not entry.id.strip():
            raise MistakenError(Mistake("the id of a provider must not be empty", at=at))
        if entry.id == "echo" and entry.config:
            message = "the config of a provider echo is not looked at"
            around.warn(Mistake(message, "echo answers with the prompt, whatever it says"))
        try:
            return attrs.evolve(entry, config=_with_files(entry, around))
        except MistakenError as error:
            parts = (mistake.below(*below, "config") for mistake in error.parts)
            raise MistakenError(*parts) from None

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


def text_or_number(value: Any, _wanted: Any) -> str:
    """A text, as which a number is taken too."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return quote(value)
    raise MistakenError(Mistake(f"must be text, got {kind(value)}"))


def scalar_texts(value: Any, _wanted: Any) -> dict[str, str]:
    """An object of texts, in which numbers, true and false are texts too, as in an environment."""
    if not isinstance(value, dict):
        raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
    mistakes = [
        Mistake(f"must be text, got {kind(part)}", at=(key,))
        for key, part in value.items()
        if not isinstance(part, str | int | float)
    ]
    if mistakes:
        raise MistakenError(*mistakes)
    return {key: part if isinstance(part, str) else quote(part) for key, part in value.items()}


def one_or_more(value: Any, _wanted: Any) -> tuple[str, ...]:
    """A text, or a list of texts."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise MistakenError(Mistake(f"must be text or a list of texts, got {kind(value)}"))
    return tuple(texts)
