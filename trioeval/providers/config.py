"""Reading the `config` of a provider: known keys, right types, and every mistake at once."""

import difflib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import attrs

from trioeval.errors import Problem
from trioeval.paths import Fence, Refused
from trioeval.providers.base import Provider
from trioeval.providers.http.wire import HttpClient, TlsSettings
from trioeval.providers.metering import Metering

Check: TypeAlias = Callable[[Any], bool]


@attrs.frozen
class Key:
    """One key that a provider knows."""

    name: str
    """As documented; the camelCase and snake_case spellings mean the same."""
    right: str
    """What its value must be, for the sentence "must be …"."""
    check: Check
    secret: bool = False
    """Whether a wrong value must not be shown."""


def read_config(
    config: Mapping[str, Any], keys: Iterable[Key]
) -> tuple[dict[str, Any], list[Problem]]:
    """The values by snake_case key, and what is wrong with the others.

    A key whose value is null is kept with None: it takes a default away.

    Returns:
        The values that are right, and the problems, with paths that begin with `.config`.
    """
    known = {to_snake(key.name): key for key in keys}
    values: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    problems: list[Problem] = []
    for spelling, value in config.items():
        path = config_path(spelling)
        name = to_snake(str(spelling))
        key = known.get(name)
        if key is None:
            problems.append(Problem(path, f'"{spelling}" is not a key', _meant(name, known)))
        elif name in spellings:
            both = f'"{spellings[name]}" and "{spelling}"'
            problems.append(Problem(path, f"{both} mean the same", "keep one of them"))
        elif value is not None and not key.check(value):
            got = "; what is there is not shown" if key.secret else f", got {show(value)}"
            problems.append(Problem(path, f"must be {key.right}{got}"))
        else:
            spellings[name] = spelling
            values[name] = value
    return values, problems


def to_snake(name: str) -> str:
    """`maxTokens` as `max_tokens`; a name in snake_case stays as it is."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def config_path(key: object) -> str:
    """Where a key of the config is, relative to the provider's entry."""
    text = str(key)
    return f".config.{text}" if re.fullmatch(r"[A-Za-z_]\w*", text) else f".config[{show(text)}]"


def show(value: object, limit: int = 60) -> str:
    """A value as it would stand in the file, shortened to `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _meant(name: str, known: Mapping[str, Key]) -> str:
    if not known:
        return "this provider takes no config"
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f'did you mean "{known[close[0]].name}"?'
    return f"known are {', '.join(sorted(key.name for key in known.values()))}"


def is_text(value: Any) -> bool:
    """Whether it is text that says something."""
    return isinstance(value, str) and bool(value.strip())


def is_flag(value: Any) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether it is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_json(value)


def is_count(value: Any) -> bool:
    """Whether it is a whole number of at least 1."""
    return is_integer(value) and value >= 1


def is_amount(value: Any) -> bool:
    """Whether it is a finite number of at least 0."""
    return is_number(value) and value >= 0


def is_positive(value: Any) -> bool:
    """Whether it is a finite number above 0."""
    return is_number(value) and value > 0


def is_visible(text: str) -> bool:
    """Whether a text is printable ASCII, as headers and URLs must be."""
    return text.isascii() and text.isprintable()


def is_visible_text(value: Any) -> bool:
    """Whether it is text of printable ASCII that says something."""
    return is_text(value) and is_visible(value)


def is_json(value: Any) -> bool:
    """Whether it can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_json_object(value: Any) -> bool:
    """Whether it is a JSON object."""
    return isinstance(value, Mapping) and is_json(value)


def is_json_list(value: Any) -> bool:
    """Whether it is a JSON list."""
    return isinstance(value, list | tuple) and is_json(value)


def is_texts(value: Any) -> bool:
    """Whether it is a list of texts that say something."""
    return is_json_list(value) and all(map(is_text, value))


_NEEDED = {"input", "output"}
_OTHERS = {"cachedInput", "cacheWrite"}
_LONG = {"upTo", "beyond"}


def is_price(value: Any) -> bool:
    """Whether it is an object with `input` and `output`, and perhaps the other keys of a price.

    `upTo` and `beyond` come together: a cost that depends on what is not said would be none.
    """
    return (
        isinstance(value, Mapping)
        and _NEEDED <= value.keys() <= _NEEDED | _OTHERS | _LONG
        and len(value.keys() & _LONG) in (0, len(_LONG))
        and all(
            is_price(part) if name == "beyond" else is_amount(part) for name, part in value.items()
        )
    )


PRICE = Key("price", "an object with input and output, in US dollars per million tokens", is_price)
"""The key of a config that says what calls cost."""

# What stands between an entry of a suite and an open provider: the seam that every family fills.
#
# A family is a module with a function `read` (a `Reader`), which checks an entry and gives its `Settings`:
# plain data, nothing open. Settings know their lane and their secrets, and open the provider.


class Templates(Protocol):
    """Fills variables into texts."""

    def render(self, text: str, variables: Mapping[str, Any], /) -> str:
        """The text with its variables filled in.

        Raises:
            TemplateError: It cannot be rendered.
        """
        ...

    def syntax_error(self, text: str, /) -> str | None:
        """What is wrong with a text as a template; None if nothing is."""
        ...


@attrs.frozen(kw_only=True)
class Surroundings:
    """What an entry is read against."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """Where keys and base URLs are looked for."""
    directory: Path
    """What relative paths are relative to."""
    templates: Templates = attrs.field(repr=False)
    withheld: frozenset[str] = frozenset()
    """Variables of `environ` that no template may name."""
    runs_code: bool = True
    """Whether reading an entry may run its code; otherwise that is only looked at."""
    fence: Fence = attrs.field()
    """Decides which files the entry may name; those of `directory` if nothing else is given."""

    @fence.default
    def _own_folder(self) -> Fence:
        return Fence((self.directory,))

    def place(self, named: str) -> Path | Refused:
        """The path that an entry names, with its links followed, or why it may not be opened."""
        return self.fence.admit(self.directory / named, show(named))


class Shared(Protocol):
    """What the providers of one run share, alive as long as they are open."""

    @property
    def templates(self) -> Templates:
        """For providers whose config holds templates."""
        ...

    @property
    def runs_code(self) -> bool:
        """Whether code that a call brings along may run."""
        ...

    async def http(self, tls: TlsSettings | None = None) -> HttpClient:
        """The client for connections with these TLS settings, opened when it is first asked for."""
        ...


class Settings(ABC):
    """An entry that is known to be right; nothing is open yet."""

    @property
    @abstractmethod
    def lane_key(self) -> str:
        """Settings with equal keys share one rate-limit scope, and so one lane. Holds no secret."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that nothing that is written may contain."""
        return ()

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs that stand in the suite; each may be a template."""
        return ()

    @property
    def named_variables(self) -> tuple[str, ...]:
        """Environment variables that the id names."""
        return ()

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys of the config that hold code which a request brings along."""
        return ()

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """Keys of the config that choose among the credentials on the user's machine.

        Each with the variable by which the user makes the same choice.
        """
        return {}

    @property
    def metering(self) -> Metering:
        """What is known of its tokens and prices before a call."""
        return Metering()

    @abstractmethod
    def open(self, shared: Shared, /) -> AbstractAsyncContextManager[Provider]:
        """A provider of its own, which is closed with everything it opened."""


Reader: TypeAlias = Callable[[str, str, Mapping[str, Any], Surroundings], Settings | list[Problem]]
"""`read(prefix, rest, config, around)`: for the id `exec:date -u` the prefix is `exec`, the rest
`date -u`. Returns everything that is wrong, with paths relative to the entry: `.id`, `.config.seed`."""
