"""From the id and config of a suite's entry to settings that can be opened."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.fence import Fence
from trioeval.providers.adapter import HasAdapter
from trioeval.providers.asked import Asked
from trioeval.providers.base import Provider
from trioeval.providers.command_secrets import hide_in_command
from trioeval.providers.config import (
    Key,
    config_path,
    is_integer,
    is_number,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.endpoint import digest
from trioeval.providers.env_references import expand_env
from trioeval.providers.families import FORMS, MODULES, find_reader, not_supported
from trioeval.providers.local.custom import CustomSettings
from trioeval.providers.local.echo import EchoSettings
from trioeval.providers.local.replay import ReplaySettings
from trioeval.providers.local.sequence import SequenceSettings
from trioeval.providers.metering import Metering, read_metering
from trioeval.providers.secrets import SHORTEST, hide, hide_in_problem, longest_first
from trioeval.providers.settings import Reader, Settings, Surroundings, Templates

_LIMITS = {
    "max_retries": Key(
        "maxRetries", "a whole number of at least 0", lambda value: is_integer(value) and value >= 0
    ),
    "max_cost": Key(
        "maxCost",
        "a number of US dollars of at least 0",
        lambda value: is_number(value) and value >= 0,
    ),
}
"""What every config may say, and no provider reads itself."""


_COMMAND = "exec:"


@attrs.frozen(repr=False)
class ProviderSpec:
    """A provider whose entry is known to be right; nothing is open yet."""

    id: str
    """As the suite says it."""
    name: str
    """The entry's label, or its id."""
    settings: Settings
    metering: Metering
    """What is known of its tokens and prices."""
    overload_statuses: frozenset[int] = frozenset()
    """HTTP statuses of server errors that mean "too many calls" here."""
    max_retries: int | None = None
    """What the entry's config says of its lane, ≥ 0; None if it says nothing."""
    _filled_in: tuple[str, ...] = ()
    named_variables: tuple[str, ...] = ()
    """Environment variables that its templates name."""

    def __repr__(self) -> str:
        return f"<ProviderSpec {hide(self.name, self.secrets)!r}>"

    @property
    def lane_key(self) -> str:
        """Specs with equal keys share one rate-limit scope, and so one lane. Holds no secret."""
        key = self.settings.lane_key
        for secret in self.secrets:
            if len(secret) >= SHORTEST:
                key = key.replace(secret, digest(secret))  # two that differ in it stay two
        return key

    @property
    def answers_for_nothing(self) -> bool:
        """Whether it always answers the same to the same, at once and at no price."""
        return isinstance(self.settings, EchoSettings)

    @property
    def ignores_variables(self) -> bool:
        """Whether it looks at the prompt alone, not at the variables that it was made of."""
        known = EchoSettings | ReplaySettings | SequenceSettings | HasAdapter
        return isinstance(self.settings, known)

    @property
    def asked(self) -> Asked:
        """Who it asks."""
        shown = self.shown(self.id)
        if not isinstance(self.settings, HasAdapter):
            return Asked(id=shown)
        endpoint = self.settings.adapter.endpoint
        return Asked(
            id=shown,
            family=endpoint.service.family,
            model=hide(endpoint.model, self.secrets),
            host=hide(endpoint.host, self.secrets) or None,
            port=endpoint.port,
        )

    def shown(self, text: str) -> str:
        """Its id or label without secrets; those of a command line are blanked where they stand."""
        return hide(_without_command_secrets(text), self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that nothing that is written may contain, longest first."""
        return longest_first((*self.settings.secrets, *self._filled_in))


def resolve(
    entry_id: str,
    config: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    directory: Path,
    templates: Templates,
    custom: Mapping[str, Provider],
    label: str | None = None,
    overload_statuses: frozenset[int] = frozenset(),
    readers: Mapping[str, Reader] = MappingProxyType({}),
    fence: Fence | None = None,
    withheld: frozenset[str] = frozenset(),
    runs_code: bool = True,
) -> ProviderSpec:
    """Find out which provider an entry means, and check all of its config.

    Reads the files that the entry names, and nothing else.

    Args:
        entry_id: As in the suite: `echo`, `openai:gpt-4.1-mini`, `replay:replies.jsonl`, or a name
            in `custom`.
        config: The entry's config. `{{env.NAME}}` in its texts is the environment's NAME.
        environ: Where keys and base URLs are looked for.
        directory: What relative paths are relative to.
        templates: What renders the texts of those configs that are templates.
        custom: Async callables by the id that means them; they win over everything else.
        label: What the suite calls the entry.
        overload_statuses: HTTP statuses of server errors that mean "too many calls" here.
        readers: Who reads the entries of a prefix here, in place of who usually does.
        fence: Decides which files the entry may name; those of `directory` if None.
        withheld: Variables of the environment that no template may name.
        runs_code: Whether a file of the entry may be run to check it.

    Raises:
        SuiteError: All that is wrong with the entry. Paths are relative to it: `.id`,
            `.config.seed`.

    Example:
        >>> from trioeval.suite import Templates
        >>> spec = resolve(
        ...     "echo", {}, environ={}, directory=Path(), templates=Templates(), custom={}
        ... )
        >>> spec.lane_key
        'echo'
    """
    filled = expand_env(config, environ, templates, withheld)
    if filled.problems:  # alone: what else would be wrong follows from what is missing
        raise SuiteError(filled.problems)
    own, limits, problems = _split(filled.value)
    found: Settings | list[Problem]
    if entry_id in custom:
        found = read_config(own, ())[1] or CustomSettings(entry_id, custom[entry_id])
    else:
        prefix, rest = split_id(entry_id)
        read = readers.get(prefix) or find_reader(prefix)
        if foreign := not_supported(prefix, rest):
            found = [foreign]
        elif read is None:
            found = [_unknown(entry_id, custom)]
        else:
            around = Surroundings(
                environ=environ,
                directory=directory,
                templates=templates,
                fence=Fence((directory,)) if fence is None else fence,
                withheld=withheld,
                runs_code=runs_code,
            )
            found = read(prefix, rest, own, around)
    if isinstance(found, list) or problems:
        told = [*problems, *(found if isinstance(found, list) else ())]
        hidden = longest_first(filled.secrets)
        raise SuiteError(hide_in_problem(problem, hidden) for problem in told)
    metering, most_cost = read_metering(found), limits.get("max_cost")
    return ProviderSpec(
        entry_id,
        label or _without_command_secrets(entry_id),
        found,
        metering=metering if most_cost is None else attrs.evolve(metering, most_cost=most_cost),
        overload_statuses=overload_statuses,
        max_retries=limits.get("max_retries"),
        filled_in=tuple(filled.secrets),
        named_variables=tuple(filled.names),
    )


def _without_command_secrets(text: str) -> str:
    return hide_in_command(text) if text.startswith(_COMMAND) else text


def split_id(entry_id: str) -> tuple[str, str]:
    """Prefix and rest of an id.

    Example:
        >>> split_id("openai:chat:gpt-4.1"), split_id("file://answer.py:ask"), split_id("echo")
        (('openai', 'chat:gpt-4.1'), ('python', 'answer.py:ask'), ('echo', ''))
    """
    if entry_id.startswith("file://"):
        return "python", entry_id.removeprefix("file://")
    prefix, _, rest = entry_id.partition(":")
    return prefix, rest


def _split(
    config: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], list[Problem]]:
    """The config without what it says of the lane and of costs, that, and what is wrong with that."""
    own: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in config.items():
        name = to_snake(str(key))
        if name not in _LIMITS:
            own[key] = value
        elif _LIMITS[name].check(value):
            limits[name] = value
        else:
            fault = f"must be {_LIMITS[name].right}, got {show(value)}"
            problems.append(Problem(config_path(key), fault))
    return own, limits, problems


def _unknown(entry_id: str, custom: Iterable[str]) -> Problem:
    prefix, colon, rest = entry_id.partition(":")
    hints = [f"known are {', '.join((*FORMS, *sorted(custom)))}"]
    if close := difflib.get_close_matches(entry_id, {"echo", *custom}, n=1):
        hints.insert(0, f'did you mean "{close[0]}"?')
    elif close := difflib.get_close_matches(prefix, MODULES, n=1):
        hints.insert(0, f'did you mean "{close[0]}{colon}{rest}"?')
    return Problem(".id", f'"{entry_id}" is not a provider', " ".join(hints))
