"""Validation of a provider's `config`: known keys, correct types, and all problems at once."""

import difflib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs

from trioeval.errors import Problem
from trioeval.paths import Fence, Refused
from trioeval.providers.base import Provider
from trioeval.providers.http.wire import TlsSettings, WebClient
from trioeval.providers.metering import Metering

if TYPE_CHECKING:
    from trioeval.kernel import LaneSpec
    from trioeval.providers.http.endpoint import Endpoint

Check: TypeAlias = Callable[[Any], bool]

THIS_PROVIDER = "this provider"
"""The beginning of a problem's message that `resolve` replaces by the provider's name."""

_SUGGESTIONS = 3
_ALMOST = 0.1
"""Difference in likeness to the nearest name from which on a name is not suggested."""


@attrs.frozen
class Key:
    """One config key of a provider."""

    name: str
    """The documented name; its camelCase and snake_case spellings are equal."""
    right: str
    """The requirement on its value, for the sentence "must be …"."""
    check: Check
    secret: bool = False
    """True if a wrong value must not be shown."""


def read_config(
    config: Mapping[str, Any], keys: Iterable[Key]
) -> tuple[dict[str, Any], list[Problem]]:
    """Check a config against known keys.

    A key whose value is null is kept as None: it removes a default.

    Returns:
        The valid values by snake_case key, and the problems, with paths that begin with `.config`.
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
            problems.append(Problem(path, f'"{spelling}" is not a key', _nearest_keys(name, known)))
        elif name in spellings:
            both = f'"{spellings[name]}" and "{spelling}"'
            problems.append(Problem(path, f"{both} mean the same", "keep one of them"))
        elif value is not None and not key.check(value):
            got = " (its value is not shown)" if key.secret else f", got {show(value)}"
            problems.append(Problem(path, f"must be {key.right}{got}"))
        else:
            spellings[name] = spelling
            values[name] = value
    return values, problems


def to_snake(name: str) -> str:
    """Convert a name to snake_case: `maxTokens` becomes `max_tokens`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def config_path(key: object) -> str:
    """Return the path of a config key, relative to the provider's entry."""
    text = str(key)
    return f".config.{text}" if re.fullmatch(r"[A-Za-z_]\w*", text) else f".config[{show(text)}]"


def show(value: object, limit: int = 60) -> str:
    """Return a value as written in a suite, shortened to `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _nearest_keys(name: str, known: Mapping[str, Key]) -> str | None:
    every = {**LIMITS, **known}
    close = nearest(name, every)
    if close:
        return did_you_mean(every[one].name for one in close)
    if not known:
        return "this provider takes no config"
    names = sorted(key.name for key in known.values())
    return f"known are {', '.join(names)}" if len(names) <= _SUGGESTIONS else None


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return at most three names that are spelt almost like a name, the nearest first.

    Args:
        name: The unknown name.
        names: The known names.
        cutoff: Minimum likeness, 0 to 1.

    Example:
        >>> nearest("opnai", ["openai", "anthropic", "xai"])
        ['openai']
    """
    close = difflib.get_close_matches(name, [*names], _SUGGESTIONS, cutoff)
    likeness = [difflib.SequenceMatcher(None, one, name).ratio() for one in close]
    return [one for one, like in zip(close, likeness, strict=True) if like > likeness[0] - _ALMOST]


def did_you_mean(names: Iterable[str]) -> str:
    """Return the question that suggests names.

    Example:
        >>> did_you_mean(["seed"]), did_you_mean(["a", "b", "c"])
        ('did you mean "seed"?', 'did you mean "a", "b" or "c"?')
    """
    *others, last = [f'"{name}"' for name in names]
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


def is_text(value: Any) -> bool:
    """Return whether a value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_flag(value: Any) -> bool:
    """Return whether a value is true or false."""
    return isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Return whether a value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_json(value)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of at least 1."""
    return is_integer(value) and value >= 1


def is_amount(value: Any) -> bool:
    """Return whether a value is a finite number of at least 0."""
    return is_number(value) and value >= 0


def is_positive(value: Any) -> bool:
    """Return whether a value is a finite number above 0."""
    return is_number(value) and value > 0


LIMITS: Mapping[str, Key] = {
    "max_retries": Key(
        "maxRetries", "a whole number of at least 0", lambda value: is_integer(value) and value >= 0
    ),
    "max_cost": Key("maxCost", "a number of US dollars of at least 0", is_amount),
}
"""Config keys of every provider, which no provider reads itself."""


def is_visible(text: str) -> bool:
    """Return whether a text is printable ASCII, as headers and URLs must be."""
    return text.isascii() and text.isprintable()


def is_visible_text(value: Any) -> bool:
    """Return whether a value is a printable ASCII text that is not blank."""
    return is_text(value) and is_visible(value)


def is_json(value: Any) -> bool:
    """Return whether a value can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_json_object(value: Any) -> bool:
    """Return whether a value is a JSON object."""
    return isinstance(value, Mapping) and is_json(value)


def is_json_list(value: Any) -> bool:
    """Return whether a value is a JSON list."""
    return isinstance(value, list | tuple) and is_json(value)


def is_texts(value: Any) -> bool:
    """Return whether a value is a list of texts that are not blank."""
    return is_json_list(value) and all(map(is_text, value))


_NEEDED = {"input", "output"}
_OTHERS = {"cachedInput", "cacheWrite"}
_LONG = {"upTo", "beyond"}
_TIERS = "tiers"


def is_price(value: Any) -> bool:
    """Return whether a value is an object with `input` and `output`, and optionally the other price keys.

    `upTo` and `beyond` must both be given: without `beyond` the cost of a longer prompt would be unknown.
    `tiers` has prices without further tiers.
    """
    if not isinstance(value, Mapping):
        return False
    tiers = value.get(_TIERS, {})
    if not isinstance(tiers, Mapping) or not all(
        is_text(name) and is_price(part) and _TIERS not in part for name, part in tiers.items()
    ):
        return False
    price = {name: part for name, part in value.items() if name != _TIERS}
    return (
        _NEEDED <= price.keys() <= _NEEDED | _OTHERS | _LONG
        and len(price.keys() & _LONG) in (0, len(_LONG))
        and all(
            is_price(part) and _TIERS not in part if name == "beyond" else is_amount(part)
            for name, part in price.items()
        )
    )


PRICE = Key("price", "an object with input and output, in US dollars per million tokens", is_price)
"""The config key of a provider's prices."""

# The interface between a suite entry and an open provider, implemented by every family.
#
# A family is a module with a function `read` (a `Reader`), which checks an entry and returns its
# `ProviderSettings`: plain data, nothing open. Settings know their lane and secrets, and open the provider.


class TemplateRenderer(Protocol):
    """Renders templates."""

    def render(self, text: str, variables: Mapping[str, Any], /) -> str:
        """Return the text with its variables filled in.

        Raises:
            TemplateError: The text cannot be rendered.
        """
        ...

    def syntax_error(self, text: str, /) -> str | None:
        """Return the syntax error of a template; None if it is valid."""
        ...


@attrs.frozen(kw_only=True)
class EntryContext:
    """The context in which an entry is read."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """Environment variables, for keys and base URLs."""
    directory: Path
    """Base of relative paths."""
    templates: TemplateRenderer = attrs.field(repr=False)
    withheld: frozenset[str] = frozenset()
    """Variables of `environ` that templates must not use."""
    runs_code: bool = True
    """True if reading an entry may run its code; otherwise the code is only inspected."""
    fence: Fence = attrs.field()
    """Decides which files the entry may name; by default those of `directory`."""

    @fence.default
    def _own_folder(self) -> Fence:
        return Fence((self.directory,))

    def place(self, named: str) -> Path | Refused:
        """Return the path of a named file, with links resolved, or the reason why it may not be opened."""
        return self.fence.admit(self.directory / named, show(named))


class ProviderResources(Protocol):
    """The resources that the providers of one run share while they are open."""

    @property
    def templates(self) -> TemplateRenderer:
        """The template renderer, for providers with templates in their config."""
        ...

    @property
    def runs_code(self) -> bool:
        """True if code in a request may run."""
        ...

    async def http(self, tls: TlsSettings | None = None) -> WebClient:
        """Return the client for connections with these TLS settings, opened on first use."""
        ...


class ProviderSettings(ABC):
    """The settings of a valid entry; nothing is open yet."""

    @property
    @abstractmethod
    def lane_key(self) -> str:
        """Key of the lane: settings with equal keys share one lane. Holds no secret."""

    @property
    def lane(self) -> "LaneSpec | None":
        """The lane that a program chose for it, by whose name it is shared; None for that of `lane_key`."""
        return None

    @property
    def ignores_variables(self) -> bool:
        """True if it reads only the prompt, not the variables."""
        return False

    @property
    def keeps_jobs(self) -> bool:
        """True if its calls create jobs that are recorded; see `KeptJob`."""
        return False

    @property
    def endpoint(self) -> "Endpoint | None":
        """The model of a service that it calls; None for any other provider."""
        return None

    @property
    def own_name(self) -> str:
        """The name with which messages of the open provider begin, in place of a label; "" for none."""
        return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in any output."""
        return ()

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs in the suite; each may be a template."""
        return ()

    @property
    def named_variables(self) -> tuple[str, ...]:
        """Environment variables that the id names."""
        return ()

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Config keys that hold code sent with a request."""
        return ()

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """Config keys that choose among the credentials on the user's machine.

        Each with the environment variable that makes the same choice.
        """
        return {}

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems of its config that are not errors; their paths are relative to the entry."""
        return ()

    @property
    def metering(self) -> Metering:
        """The token counts and prices that are known before a call."""
        return Metering()

    @abstractmethod
    def open(self, shared: ProviderResources, /) -> AbstractAsyncContextManager[Provider]:
        """Open a separate provider; leaving the context closes everything it opened."""


Reader: TypeAlias = Callable[
    [str, str, Mapping[str, Any], EntryContext], ProviderSettings | list[Problem]
]
"""`read(prefix, rest, config, around)`: for the id `exec:date -u` the prefix is `exec`, the rest
`date -u`. Returns all problems, with paths relative to the entry: `.id`, `.config.seed`."""
