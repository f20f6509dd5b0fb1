"""From the id and config of a suite's entry to settings that can be opened."""

import difflib
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
from trioeval.providers.base import Asked, Provider
from trioeval.providers.command_secrets import hide_in_command
from trioeval.providers.config import (
    Key,
    Reader,
    Settings,
    Surroundings,
    Templates,
    config_path,
    is_integer,
    is_number,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.endpoint import digest
from trioeval.providers.local.custom import CustomSettings
from trioeval.providers.local.echo import EchoSettings
from trioeval.providers.local.replay import ReplaySettings
from trioeval.providers.local.sequence import SequenceSettings
from trioeval.providers.metering import Metering
from trioeval.providers.secrets import (
    SHORTEST,
    hide,
    hide_in_problem,
    is_secret_name,
    longest_first,
    secret_parts,
)
from trioeval.providers.vendors.services import ANY_SERVICE, SERVICES

# `{{env.NAME}}` in the config of a provider: how keys come into a suite without standing in it.


_NAME = r"""env(?:\.([A-Za-z_]\w*)|\[(?:'([^']+)'|"([^"]+)")\])"""
_REFERENCE = re.compile(rf"\{{\{{-?\s*{_NAME}\s*-?\}}\}}")
_NAMES = re.compile(rf"\b{_NAME}")
_PART = re.compile(r"\{\{.*?\}\}", re.DOTALL)


@attrs.define
class Expanded:
    """A config with its references filled in."""

    value: Any
    names: list[str] = attrs.field(factory=list)
    """The variables that were filled in."""
    secrets: list[str] = attrs.field(factory=list, repr=False)
    """Values of variables whose names say that they are secret, and what they are made of."""
    problems: list[Problem] = attrs.field(factory=list)


def expand_env(
    config: Mapping[str, Any],
    environ: Mapping[str, str],
    templates: Templates,
    withheld: AbstractSet[str] = frozenset(),
) -> Expanded:
    """Fill in every `{{env.NAME}}` in the texts of a config; other templates stay as they are.

    A name alone must be set. Behind a filter, as in `{{ env.NAME | default('x') }}`, it need not be.

    Args:
        config: The config of an entry.
        environ: What names are looked up in.
        templates: What renders those that are more than a name.
        withheld: Names that templates must not fill in.

    Example:
        >>> from trioeval.templates import Templates
        >>> environ = {"TEAM": "blue"}
        >>> config = {"headers": {"x-team": "{{env.TEAM}}", "x-a": "{{ env.TEAM | upper }} {{x}}"}}
        >>> expand_env(config, environ, Templates(env=environ)).value
        {'headers': {'x-team': 'blue', 'x-a': 'BLUE {{x}}'}}
    """
    expander = _Expander(environ, templates, withheld, Expanded(None))
    expander.into.value = expander.expand(config, ".config")
    return expander.into


@attrs.frozen
class _Expander:
    environ: Mapping[str, str] = attrs.field(repr=False)
    templates: Templates
    withheld: AbstractSet[str]
    into: Expanded

    def expand(self, value: Any, path: str) -> Any:
        """The value at a path, with its references filled in."""
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
                    f"an untrusted suite does not see the environment variable {name}",
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


# Which module reads the entries of a prefix.
#
# Modules are named here and imported when an entry needs them: a suite of echoes loads no vendor.


MODULES: Mapping[str, str] = {
    "echo": "local.echo",
    "sequence": "local.sequence",
    "replay": "local.replay",
    "sim": "local.sim",
    "local": "local.embedding",
    **dict.fromkeys((*SERVICES, ANY_SERVICE), "vendors.openai"),
    "anthropic": "vendors.anthropic",
    "google": "vendors.gemini",
    "gemini": "vendors.gemini",
    "vertex": "vendors.gemini",
    "http": "generic.entry",
    "https": "generic.entry",
    "exec": "programs.exec",
    "python": "programs.python",
    "openai-sdk": "sdk.entries",
    "anthropic-sdk": "sdk.entries",
    "google-sdk": "sdk.entries",
    "bedrock": "sdk.bedrock",
}
"""By prefix; each module has a function `read`."""

LOCAL = frozenset({"echo", "local", "replay", "sequence", "sim"})
"""Prefixes of entries that call no server."""

CODE = frozenset({"exec", "python"})
"""Prefixes of entries that run code on this machine; all others ask a server."""

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
    "anthropic:<model>",
    "google:<model>",
    "bedrock:<model>",
    "openai-sdk:<model>",
    "anthropic-sdk:<model>",
    "google-sdk:<model>",
    "https://<url>",
    "exec:<command>",
    "python:<file>",
)
"""What ids look like, for messages; services are those of `SERVICES`."""


_IMAGES = frozenset({"image", "video"})
_OPENAI = frozenset(
    {
        *_IMAGES,
        *("agents", "assistant", "chatkit", "codex", "codex-app-server", "codex-desktop"),
        *("codex-sdk", "completion", "realtime", "speech", "transcription", "tts"),
    }
)
_CLAUDE = frozenset({"claude-agent-sdk", "claude-code", "completion"})
_GEMINI = frozenset({*_IMAGES, "live"})

KINDS_NOT_SUPPORTED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((*SERVICES, ANY_SERVICE), _OPENAI),
    "anthropic": _CLAUDE,
    "azure": _OPENAI | {"foundry-agent", "moderation"},
    "bedrock": frozenset(
        {
            *("agents", "completion", "converse", "embedding", "embeddings", "kb"),
            *("knowledge-base", "nova-sonic", "video"),
        }
    ),
    "gemini": _GEMINI,
    "google": _GEMINI,
    "mistral": _OPENAI | {"embed"},
    "xai": _OPENAI | {"embedding", "embeddings", "voice"},
}
"""By prefix, what other tools know behind it, which must not be taken for a model's name."""

_MODELS_NOT_SUPPORTED = {
    "bedrock": re.compile(r"amazon\.nova-(?:sonic|reel)|luma\.ray"),
    "openai": re.compile(r"(?:^|-)realtime(?:-|$)"),
}

_PREFIXES_NOT_SUPPORTED = frozenset(
    {
        *("abliteration", "agentic", "ai21", "aimlapi", "alibaba", "alicloud", "aliyun"),
        *("atlascloud", "bam", "bedrock-agent", "browser", "cloudera", "cloudflare-ai"),
        *("cloudflare-gateway", "cohere", "cometapi", "dashscope", "docker", "elevenlabs"),
        *("envoy", "f5", "fal", "github", "golang", "helicone", "hf", "huggingface"),
        *("hyperbolic", "jfrog", "llama", "llamaapi", "mcp", "modelslab", "nscale"),
        *("openclaw", "opencode", "package", "palm", "portkey", "promptfoo", "quiverai"),
        *("qwak", "replicate", "ruby", "sagemaker", "slack", "snowflake", "transformers"),
        *("transformers.js", "truefoundry", "vercel", "voyage", "watsonx", "webhook"),
        *("websocket", "ws", "wss"),
    }
)
"""Prefixes that other tools know."""

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "claude-agent-sdk",
            "claude-code",
            "codex",
            "codex-app-server",
            "codex-desktop",
            "codex-sdk",
        ),
        "write exec:<command> in a task of type agent to run its command line",
    ),
    "converse": "write bedrock:<model>, which uses Converse",
    "embed": "write mistral:embedding:<model>",
}
_PROGRAM = re.compile(r"\.([cm]?[jt]s|go|rb)(?::\w+)?$")
_OWN = "https://<url>, python:<file> or exec:<command> can ask anything else"


def not_supported(prefix: str, rest: str) -> Problem | None:
    r"""The problem of an id of another tool whose kind of provider does not exist here.

    Example:
        >>> str(not_supported("openai", "tts:tts-1")).partition("\n")[0]
        '.id: "openai:tts" is not supported'
        >>> not_supported("openai", "gpt-4.1") is None
        True
    """
    file = rest if prefix == "python" else "" if rest else prefix
    if program := _PROGRAM.search(file):
        runner = {"s": "node", "o": "go run", "b": "ruby"}[program[1][-1]]
        hint = f"write it in Python, or run it with exec:{runner} {file}"
        return Problem(".id", f'"{file}" is not Python: providers are Python files', hint)
    if prefix in _PREFIXES_NOT_SUPPORTED:
        hint = f"if its API is that of OpenAI, write openai:<model> with apiBaseUrl; {_OWN}"
        return Problem(".id", f'"{prefix}:" is not supported', hint)
    plain = prefix.removesuffix("-sdk")
    service, colon, behind = rest.partition(":")
    if plain == ANY_SERVICE and colon:
        prefix, plain, rest = f"{prefix}:{service}", service, behind
    kind = rest.partition(":")[0]
    model = _MODELS_NOT_SUPPORTED.get(plain)
    if kind in KINDS_NOT_SUPPORTED.get(plain, frozenset()):
        named = kind
    elif model is not None and model.search(rest):
        named = rest
    else:
        return None
    hint = _INSTEAD.get(named, f"write {prefix}:<model>; {_OWN}")
    return Problem(".id", f'"{prefix}:{named}" is not supported', hint)


def find_reader(prefix: str) -> Reader | None:
    """Who reads the entries of a prefix; None if nobody does."""
    module = MODULES.get(prefix)
    if module is None:
        return None
    reader: Reader = importlib.import_module(f"trioeval.providers.{module}").read
    return reader


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
        known = EchoSettings | ReplaySettings | SequenceSettings | AdapterSettings
        return isinstance(self.settings, known)

    @property
    def asked(self) -> Asked:
        """Who it asks."""
        shown = self.shown(self.id)
        if not isinstance(self.settings, AdapterSettings):
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
        >>> from trioeval.templates import Templates
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
    metering, most_cost = found.metering, limits.get("max_cost")
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
