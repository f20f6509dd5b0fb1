"""From the id and config of a suite's entry to a provider that can be opened."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, assert_never

import attrs

from trioeval.errors import Problem, SuiteError, UsageError
from trioeval.providers.base import Provider
from trioeval.providers.config import read_config
from trioeval.providers.custom import CustomProvider
from trioeval.providers.echo import EchoProvider
from trioeval.providers.openai import OpenAIProvider
from trioeval.providers.openai_settings import OpenAISettings, read_openai
from trioeval.providers.replay import ReplayProvider, ReplaySettings, read_replay
from trioeval.providers.wire import HttpClient

KNOWN_IDS = ("echo", "openai:<model>", "openai:chat:<model>", "replay:<file>")
"""What an id can look like, besides the names of callables."""

NOT_YET = ("responses", "embedding", "embeddings", "moderation")
"""Kinds of OpenAI endpoints that have an id and cannot be used yet."""

OpenProvider: TypeAlias = EchoProvider | ReplayProvider | CustomProvider | OpenAIProvider
"""A provider that is ready to be called, and always answers with a `Reply`."""


@attrs.frozen
class EchoSettings:
    """There is nothing to say of an echo."""

    @property
    def lane_key(self) -> str:
        """All echoes share one lane."""
        return "echo"


@attrs.frozen
class CustomSettings:
    """A callable of the caller, under the name that the suite uses."""

    name: str
    function: Provider = attrs.field(repr=False)

    @property
    def lane_key(self) -> str:
        """One lane for each name."""
        return self.name


@attrs.frozen
class ProviderSpec:
    """A provider whose entry is known to be right; nothing is open yet."""

    settings: EchoSettings | CustomSettings | ReplaySettings | OpenAISettings

    @property
    def lane_key(self) -> str:
        """Specs with equal keys share one rate-limit scope, and so one lane. Holds no secret."""
        return self.settings.lane_key

    @property
    def needs_http(self) -> bool:
        """Whether `open` wants a client."""
        return isinstance(self.settings, OpenAISettings)

    def open(self, client: HttpClient | None = None) -> OpenProvider:
        """A provider of its own: a replay starts from the first recordings again.

        Args:
            client: Shared by all providers of a run; None where `needs_http` is False.

        Raises:
            UsageError: A client is needed and there is none.
        """
        match self.settings:
            case EchoSettings():
                return EchoProvider()
            case CustomSettings(name, function):
                return CustomProvider(name, function)
            case ReplaySettings():
                return ReplayProvider(self.settings)
            case OpenAISettings():
                if client is None:
                    raise UsageError(f"provider openai:{self.settings.model} needs an HTTP client")
                return OpenAIProvider(self.settings, client)
            case _:
                assert_never(self.settings)


def resolve(
    entry_id: str,
    config: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    directory: Path,
    custom: Mapping[str, Provider],
) -> ProviderSpec:
    """Find out which provider an entry means, and check all of its config.

    Reads the file of a `replay:`, and nothing else.

    Args:
        entry_id: As in the suite: `echo`, `openai:gpt-4.1-mini`, `replay:replies.jsonl`, or a name
            in `custom`.
        config: The entry's config.
        environ: Where keys and base URLs are looked for.
        directory: What relative paths are relative to.
        custom: Async callables by the id that means them; they win over everything else.

    Raises:
        SuiteError: All that is wrong with the entry. Paths are relative to it: `.id`,
            `.config.seed`.

    Example:
        >>> resolve("echo", {}, environ={}, directory=Path(), custom={}).lane_key
        'echo'
    """
    family, _, rest = entry_id.partition(":")
    found: EchoSettings | CustomSettings | ReplaySettings | OpenAISettings | list[Problem]
    if entry_id in custom:
        found = read_config(config, ())[1] or CustomSettings(entry_id, custom[entry_id])
    elif entry_id == "echo":
        found = read_config(config, ())[1] or EchoSettings()
    elif family == "replay":
        found = read_replay(rest, config, directory)
    elif family == "openai":
        model, problems = _openai_model(entry_id)
        read = read_openai(model, config, environ)
        found = [*problems, *read] if isinstance(read, list) else problems or read
    else:
        found = [_unknown(entry_id, custom)]
    if isinstance(found, list):
        raise SuiteError(found)
    return ProviderSpec(found)


def _openai_model(entry_id: str) -> tuple[str, list[Problem]]:
    """The model, which may itself contain colons."""
    kind, colon, model = entry_id.removeprefix("openai").removeprefix(":").partition(":")
    if kind in NOT_YET:
        hint = "use openai:chat:<model>"
        return "", [Problem(".id", f'"openai:{kind}:" is not supported yet', hint)]
    model = model if kind == "chat" else f"{kind}{colon}{model}"
    if not model.strip():
        return "", [Problem(".id", f'"{entry_id}" names no model', "write openai:<model>")]
    return model, []


def _unknown(entry_id: str, custom: Iterable[str]) -> Problem:
    known = (*KNOWN_IDS, *sorted(custom))
    family, colon, rest = entry_id.partition(":")
    names = {name.partition(":")[0] if name in KNOWN_IDS else name for name in known}
    hints = [f"known are {', '.join(known)}"]
    if close := difflib.get_close_matches(entry_id, names, n=1):
        hints.insert(0, f'did you mean "{close[0]}"?')
    elif close := difflib.get_close_matches(family, {"openai", "replay"}, n=1):
        hints.insert(0, f'did you mean "{close[0]}{colon}{rest}"?')
    return Problem(".id", f'"{entry_id}" is not a provider', " ".join(hints))
