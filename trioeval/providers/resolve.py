"""Resolution of a suite entry: its id and config become settings that can be opened."""

import importlib
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import Problem, SuiteError, TemplateError
from trioeval.paths import Fence
from trioeval.providers.base import ModelIdentity, Provider
from trioeval.providers.config import (
    LIMITS,
    THIS_PROVIDER,
    EntryContext,
    ProviderSettings,
    Reader,
    TemplateRenderer,
    config_path,
    did_you_mean,
    nearest,
    show,
    to_snake,
)
from trioeval.providers.http.endpoint import digest
from trioeval.providers.local.echo import EchoSettings
from trioeval.providers.metering import Metering
from trioeval.providers.secrets import (
    SHORTEST,
    hide,
    hide_in_problem,
    is_secret_name,
    longest_first,
    secret_parts,
)
from trioeval.providers.vendors.services import ALIASES, ANY_SERVICE, GATEWAY, SERVICES
from trioeval.scripting import names_script

# `{{env.NAME}}` in a provider's config, so that a suite need not contain keys.


_NAME = r"""env(?:\.([A-Za-z_]\w*)|\[(?:'([^']+)'|"([^"]+)")\])"""
_REFERENCE = re.compile(rf"\{{\{{-?\s*{_NAME}\s*-?\}}\}}")
_NAMES = re.compile(rf"\b{_NAME}")
_PART = re.compile(r"\{\{.*?\}\}", re.DOTALL)


@attrs.define(eq=False, repr=False)
class ExpandedConfig:
    """A config with its environment variables filled in."""

    value: Any
    names: list[str] = attrs.field(factory=list)
    """The variables that were used."""
    secrets: list[str] = attrs.field(factory=list, repr=False)
    """Values of variables with secret names, and their parts."""
    problems: list[Problem] = attrs.field(factory=list)


def expand_env(
    config: Mapping[str, Any],
    environ: Mapping[str, str],
    templates: TemplateRenderer,
    withheld: AbstractSet[str] = frozenset(),
) -> ExpandedConfig:
    """Fill in every `{{env.NAME}}` in the texts of a config; other templates stay unchanged.

    A plain name must be set. With a filter, as in `{{ env.NAME | default('x') }}`, it need not be.

    Args:
        config: The config of an entry.
        environ: The environment variables.
        templates: Renders templates that are more than a name.
        withheld: Names that templates must not use.

    Example:
        >>> from trioeval.templates import Templates
        >>> environ = {"TEAM": "blue"}
        >>> config = {"headers": {"x-team": "{{env.TEAM}}", "x-a": "{{ env.TEAM | upper }} {{x}}"}}
        >>> expand_env(config, environ, Templates(env=environ)).value
        {'headers': {'x-team': 'blue', 'x-a': 'BLUE {{x}}'}}
    """
    expander = _Expander(environ, templates, withheld, ExpandedConfig(None))
    expander.into.value = expander.expand(config, ".config")
    return expander.into


@attrs.frozen(eq=False, repr=False)
class _Expander:
    environ: Mapping[str, str] = attrs.field(repr=False)
    templates: TemplateRenderer
    withheld: AbstractSet[str]
    into: ExpandedConfig

    def expand(self, value: Any, path: str) -> Any:
        """Return the value at a path, with its variables filled in."""
        match value:
            case str() if "{{" in value and "env" in value:
                return _PART.sub(lambda part: self._part(part[0], path), value)
            case Mapping():
                return {key: self.expand(part, f"{path}.{key}") for key, part in value.items()}
            case list() | tuple():
                return [self.expand(part, f"{path}[{place}]") for place, part in enumerate(value)]
            case _:
                return value

    def _part(self, part: str, path: str) -> str:
        names = ["".join(found) for found in _NAMES.findall(part)]
        if not names:
            return part
        if hidden := [name for name in names if name in self.withheld]:
            self.into.problems += (
                Problem(
                    path,
                    f"an untrusted suite cannot read the environment variable {name}",
                    f"allow it with --allow-env {name}",
                )
                for name in dict.fromkeys(hidden)
            )
            return ""
        self.into.names += names
        if _REFERENCE.fullmatch(part):
            text = self.environ.get(names[0], "")
            if not text:
                message = f"the environment variable {names[0]} is not set"
                self.into.problems.append(Problem(path, message, f"set {names[0]}"))
        else:
            text = self._rendered(part, path)
        for name in names:
            if is_secret_name(name):
                parts = {*secret_parts(self.environ.get(name, "")), *secret_parts(text)}
                self.into.secrets += sorted(parts)
        return text

    def _rendered(self, part: str, path: str) -> str:
        try:
            return self.templates.render(part, {})
        except TemplateError as error:
            self.into.problems.append(Problem(path, str(error)))
            return ""


# The module that reads the entries of each prefix.
#
# Modules are only named here, and imported when an entry needs them: a suite of echoes loads no vendor.


MODULES: Mapping[str, str] = {
    "echo": "local.echo",
    "sequence": "local.sequence",
    "replay": "local.replay",
    "sim": "local.sim",
    "local": "local.embedding",
    **dict.fromkeys((*SERVICES, ANY_SERVICE, GATEWAY), "vendors.openai"),
    "anthropic": "vendors.anthropic",
    "google": "vendors.gemini",
    "gemini": "vendors.gemini",
    "vertex": "vendors.vertex",
    "huggingface": "vendors.huggingface",
    "hf": "vendors.huggingface",
    "replicate": "vendors.replicate",
    "http": "generic.entry",
    "https": "generic.entry",
    **dict.fromkeys(("websocket", "ws", "wss"), "generic.websocket"),
    "exec": "programs.exec",
    "python": "programs.python",
    "javascript": "programs.javascript",
    "mcp": "mcp.entry",
    "openai-sdk": "sdk.entries",
    "anthropic-sdk": "sdk.entries",
    "google-sdk": "sdk.entries",
    "bedrock": "sdk.bedrock",
    "sagemaker": "sdk.sagemaker",
}
"""Module by prefix; each has a function `read`."""

LOCAL = frozenset({"echo", "local", "replay", "sequence", "sim"})
"""Prefixes of entries that call no server."""

CODE = frozenset({"exec", "javascript", "python"})
"""Prefixes of entries that run code on this machine; all others call a server."""

FORMS = (
    "echo",
    "sequence",
    "replay:<file>",
    "sim:<name>",
    "local:embedding",
    "local:embedding:<folder>",
    "openai:<model>",
    "openai:<kind>:<model>",
    "<service>:<model>",
    f"{ANY_SERVICE}:<service>:<model>",
    f"{GATEWAY}:<service>:<model>",
    "anthropic:<model>",
    "google:<model>",
    "vertex:<model>",
    "huggingface:<task>:<model>",
    "replicate:<owner>/<model>",
    "bedrock:<model>",
    "sagemaker:<type>:<endpoint>",
    "openai-sdk:<model>",
    "anthropic-sdk:<model>",
    "google-sdk:<model>",
    "https://<url>",
    "wss://<url>",
    "exec:<command>",
    "python:<file>",
    "file://<file.js>",
    "mcp",
)
"""The forms of ids, for the reference page; services are those of `SERVICES`."""


def find_reader(prefix: str) -> Reader | None:
    """Return the function that reads the entries of a prefix; None for an unknown prefix."""
    module = MODULES.get(prefix)
    if module is None:
        return None
    reader: Reader = importlib.import_module(f"trioeval.providers.{module}").read
    return reader


_COMMAND = "exec:"


@attrs.frozen(repr=False)
class ProviderSpec:
    """A provider with a valid entry; nothing is open yet."""

    id: str
    """The id in the suite."""
    name: str
    """The entry's label, or its id."""
    settings: ProviderSettings
    metering: Metering
    """The token counts and prices that are known before a call."""
    overload_statuses: frozenset[int] = frozenset()
    """HTTP statuses of server errors that mean "too many calls" for this provider."""
    max_retries: int | None = None
    """Maximum number of retries in the entry's config, ≥ 0; None if not set."""
    _filled_in: tuple[str, ...] = ()
    named_variables: tuple[str, ...] = ()
    """Environment variables in its templates."""
    label: str | None = None
    """The entry's label; None if it has none."""

    def __repr__(self) -> str:
        return f"<ProviderSpec {hide(self.name, self.secrets)!r}>"

    @property
    def lane_key(self) -> str:
        """Key of the lane: specs with equal keys share one lane. Holds no secret."""
        key = self.settings.lane_key
        for secret in self.secrets:
            if len(secret) >= SHORTEST:
                key = key.replace(
                    secret, digest(secret)
                )  # keys that differ in a secret stay different
        return key

    @property
    def is_instant_and_free(self) -> bool:
        """True if it returns equal replies to equal requests, immediately and at no cost."""
        return isinstance(self.settings, EchoSettings)

    @property
    def keeps_jobs(self) -> bool:
        """True if its calls create jobs that are recorded; see `KeptJob`."""
        return self.settings.keeps_jobs

    @property
    def ignores_variables(self) -> bool:
        """True if it reads only the prompt, not the variables."""
        return self.settings.ignores_variables

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the model that it calls."""
        shown, endpoint = self.shown(self.id), self.settings.endpoint
        if endpoint is None:
            return ModelIdentity(id=shown)
        return ModelIdentity(
            id=shown,
            family=endpoint.service.family,
            model=hide(endpoint.model, self.secrets),
            host=hide(endpoint.host, self.secrets) or None,
            port=endpoint.port,
        )

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems of its entry that are not errors; their paths are relative to the entry."""
        hidden = self.secrets
        return tuple(hide_in_problem(one, hidden) for one in self.settings.warnings)

    def shown(self, text: str) -> str:
        """Return its id or label without secrets; those of a command line are hidden in place."""
        return hide(_without_command_secrets(text), self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in any output, longest first."""
        return longest_first((*self.settings.secrets, *self._filled_in))


def resolve(
    entry_id: str,
    config: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    directory: Path,
    templates: TemplateRenderer,
    custom: Mapping[str, Provider],
    label: str | None = None,
    overload_statuses: frozenset[int] = frozenset(),
    readers: Mapping[str, Reader] = MappingProxyType({}),
    fence: Fence | None = None,
    withheld: frozenset[str] = frozenset(),
    runs_code: bool = True,
) -> ProviderSpec:
    """Return the provider that an entry means, after checking all of its config.

    Reads the files that the entry names, and nothing else.

    Args:
        entry_id: As in the suite: `echo`, `openai:gpt-4.1-mini`, `replay:replies.jsonl`, or a name
            in `custom`.
        config: The entry's config. `{{env.NAME}}` in its texts is the environment variable NAME.
        environ: Environment variables, for keys and base URLs.
        directory: Base of relative paths.
        templates: Renders the configs that are templates.
        custom: Async callables by id, plain or as `own_provider` returns them; they take precedence over
            everything else.
        label: The entry's label.
        overload_statuses: HTTP statuses of server errors that mean "too many calls" for this provider.
        readers: Functions that read the entries of a prefix, instead of the default ones.
        fence: Decides which files the entry may name; those of `directory` if None.
        withheld: Environment variables that templates must not use.
        runs_code: Whether a file of the entry may be run to check it.

    Raises:
        SuiteError: All problems of the entry. Paths are relative to it: `.id`,
            `.config.seed`.

    Example:
        >>> from trioeval.templates import Templates
        >>> spec = resolve(
        ...     "echo", {}, environ={}, directory=Path(), templates=Templates(), custom={}
        ... )
        >>> spec.lane_key
        'echo'
    """
    filled = expand_env(config, environ, templates, withheld)
    if filled.problems:  # reported alone: other problems would only follow from a missing variable
        raise SuiteError(filled.problems)
    own, limits, problems = _split(filled.value)
    found: ProviderSettings | list[Problem]
    if entry_id in custom:
        from trioeval.providers.local.custom import read_own

        found = read_own(entry_id, custom[entry_id], own)
    else:
        prefix, rest = split_id(entry_id)
        read = readers.get(prefix) or find_reader(prefix)
        if foreign := _not_supported(prefix, rest):
            found = [foreign]
        elif read is None:
            found = [_unknown(entry_id, custom)]
        else:
            context = EntryContext(
                environ=environ,
                directory=directory,
                templates=templates,
                fence=Fence((directory,)) if fence is None else fence,
                withheld=withheld,
                runs_code=runs_code,
            )
            found = _read(read, prefix, rest, own, context)
    name = label or _without_command_secrets(entry_id)
    if isinstance(found, list) or problems:
        everything = [*problems, *(found if isinstance(found, list) else ())]
        hidden = longest_first(filled.secrets)
        raise SuiteError(hide_in_problem(_named(one, name), hidden) for one in everything)
    metering, most_cost = found.metering, limits.get("max_cost")
    return ProviderSpec(
        entry_id,
        name,
        found,
        metering=metering if most_cost is None else attrs.evolve(metering, most_cost=most_cost),
        overload_statuses=overload_statuses,
        max_retries=limits.get("max_retries"),
        filled_in=tuple(filled.secrets),
        named_variables=tuple(filled.names),
        label=label,
    )


def _read(
    read: Reader, prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry, with the tools of its servers if it has some."""
    servers = config.get("mcp")
    if not isinstance(servers, Mapping) or not servers.get("enabled"):
        return read(prefix, rest, config, context)
    from trioeval.providers.mcp.tools import read_with_tools

    return read_with_tools(read, prefix, rest, config, context)


def _not_supported(prefix: str, rest: str) -> Problem | None:
    if prefix in LOCAL:
        return None
    from trioeval.providers.kinds import not_supported

    return not_supported(prefix, rest)


def _without_command_secrets(text: str) -> str:
    from trioeval.providers.command_secrets import hide_in_command

    return hide_in_command(text) if text.startswith(_COMMAND) else text


def split_id(entry_id: str) -> tuple[str, str]:
    """Return prefix and rest of an id.

    Example:
        >>> split_id("openai:chat:gpt-4.1"), split_id("file://answer.py:ask"), split_id("echo")
        (('openai', 'chat:gpt-4.1'), ('python', 'answer.py:ask'), ('echo', ''))
        >>> split_id("file://answer.ts"), split_id("answer.mjs")
        (('javascript', 'answer.ts'), ('javascript', 'answer.mjs'))
        >>> split_id("togetherai:m")
        ('together', 'm')
    """
    if names_script(entry_id):
        return "javascript", entry_id.removeprefix("file://")
    if entry_id.startswith("file://"):
        return "python", entry_id.removeprefix("file://")
    prefix, _, rest = entry_id.partition(":")
    return ALIASES.get(prefix, prefix), rest


def _split(
    config: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], list[Problem]]:
    """Split a config into the provider's own keys and the common ones, with the latter's problems."""
    own: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in config.items():
        name = to_snake(str(key))
        if name not in LIMITS:
            own[key] = value
        elif LIMITS[name].check(value):
            limits[name] = value
        else:
            fault = f"must be {LIMITS[name].right}, got {show(value)}"
            problems.append(Problem(config_path(key), fault))
    return own, limits, problems


_VENDORS_BY_MODEL = (
    (
        re.compile(r"(chat)?gpt|o[134](-|$)|text-embedding-|omni-moderation", re.IGNORECASE),
        ("openai",),
    ),
    (re.compile(r"claude", re.IGNORECASE), ("anthropic",)),
    (re.compile(r"gemini|gemma", re.IGNORECASE), ("google",)),
    (
        re.compile(r"(mi[sx]tral|ministral|magistral|codestral|devstral|pixtral)", re.IGNORECASE),
        ("mistral",),
    ),
    (re.compile(r"deepseek", re.IGNORECASE), ("deepseek",)),
    (re.compile(r"grok", re.IGNORECASE), ("xai",)),
    (re.compile(r"sonar", re.IGNORECASE), ("perplexity",)),
    (re.compile(r"(amazon\.)?nova-", re.IGNORECASE), ("bedrock",)),
    (re.compile(r"(meta-llama|qwen)/", re.IGNORECASE), ("openrouter", "together")),
    (re.compile(r"llama|qwen|phi-?\d", re.IGNORECASE), ("ollama", "groq")),
)
"""Vendors by the beginning of a model's name, the most likely one first."""

_VENDOR_BY_BRAND = {
    "chatgpt": "openai",
    "claude": "anthropic",
    "gpt": "openai",
    "grok": "xai",
    "llama": "llamacpp",
    "llamafile": "llamacpp",
}
"""Vendors by the names of their products, where these are used in place of the vendor's."""

_SURELY = 0.85
"""Likeness from which a prefix is a misspelt vendor, and not the name of a model."""

_WITHOUT_REST = ("echo", "sequence")
_ID_HINT = 'an id is <vendor>:<model>, such as "openai:gpt-4.1-mini"'


def _unknown(entry_id: str, custom: Iterable[str]) -> Problem:
    """Return the problem of an unknown id, with at most three ids that were probably meant."""
    meant = _meant_ids(entry_id, custom)
    hint = did_you_mean(meant) if meant else _ID_HINT
    return Problem(".id", f'unknown provider "{entry_id}"', hint)


def _meant_ids(entry_id: str, custom: Iterable[str]) -> list[str]:
    prefix, colon, rest = entry_id.partition(":")
    if colon and prefix.lower() in _VENDOR_BY_BRAND:
        return [f"{_VENDOR_BY_BRAND[prefix.lower()]}:{rest}"]
    # Only a prefix that is hardly changed is a vendor's: `llama3` is a model, and also close to `ollama`.
    if colon and (close := nearest(prefix, MODULES, _SURELY)):
        return [f"{vendor}:{rest or '<model>'}" for vendor in close]
    # A model's name may hold a colon or a slash: `llama3:8b`, `meta-llama/Llama-3-8b`.
    for pattern, vendors in _VENDORS_BY_MODEL:
        if pattern.match(entry_id):
            return [f"{vendor}:{entry_id}" for vendor in vendors]
    if close := nearest(entry_id, (*_WITHOUT_REST, *custom)):
        return close
    if not colon and "/" in entry_id:
        prefix, colon, rest = (part.replace("/", ":") for part in entry_id.partition("/"))
    if prefix in MODULES:
        return [f"{prefix}{colon}{rest}"]
    # Without a rest only the ids that need none are complete.
    return [f"{close}:{rest or '<model>'}" for close in nearest(prefix, MODULES)]


def _named(problem: Problem, name: str) -> Problem:
    """Return the problem with the provider's name in place of the words "this provider"."""
    message = problem.message
    if message.startswith(THIS_PROVIDER):
        message = f"{name}{message.removeprefix(THIS_PROVIDER)}"
    return attrs.evolve(problem, message=message)
