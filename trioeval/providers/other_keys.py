"""Config keys that are not ours: sent in the body, ignored with a warning, or reported as misspelt.

A service has more keys than we check, and adds some every month, so an unknown key is part of the body under
its own name. Two kinds of keys are not: a misspelt one of ours, which would change what is measured, and
those that promptfoo handles itself, which no service knows.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import (
    LIMITS,
    Key,
    config_path,
    did_you_mean,
    is_amount,
    is_flag,
    is_positive,
    nearest,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.secrets import is_secret_name, longest_first, secret_parts

ALIKE = 0.75
"""Likeness from which a key is a misspelt one of ours."""

NOT_MISSPELT = frozenset(
    {
        *("min_tokens", "n_predict", "num_retries", "reasoning", "reasoning_format"),
        *("reasoning_split", "speed", "think", "thinking", "top_a", "top_k", "truncate"),
        "user_id",
    }
)
"""Keys of services that are spelt like one of ours."""

PROMPTFOO_KEYS = (
    Key("timeout", "a number of milliseconds above 0", is_positive),
    Key("apiKeyRequired", "true or false", is_flag),
    Key("cost", "US dollars per token", is_amount),
    Key("inputCost", "US dollars per token", is_amount),
    Key("outputCost", "US dollars per token", is_amount),
    Key("cacheReadCost", "US dollars per token", is_amount),
)
"""Keys of promptfoo with an equivalent of ours."""

_COSTS = ("cost", "input_cost", "output_cost", "cache_read_cost")

_BESIDE = frozenset({"delay", "env", "id", "label", "prompts", "transform"})
"""Keys of an entry, which have no effect in its config."""

IGNORED = frozenset(
    {
        *("audio_cost", "audio_input_cost", "audio_output_cost", "base_path", "env_path"),
        *("function_tool_callbacks", "linked_target_id", "model", "stream", "use_default_api_key"),
        *("deployment_id", "model_name"),
    }
)
"""Keys that promptfoo handles itself, or that have no effect here, by their snake_case names."""

OF_GEMINI = frozenset(
    {
        *("candidateCount", "generationConfig", "maxOutputTokens", "responseMimeType"),
        *("responseModalities", "safetySettings", "stopSequences", "systemInstruction"),
        *("thinkingConfig", "toolConfig", "topK"),
    }
)
"""Keys of Gemini, which suites with several vendors often share."""

_REASONS: Mapping[str, str] = {
    "function_tool_callbacks": "the call of a tool itself is the output",
    "model": "the model is the one in the id",
    "stream": "replies are streamed only to measure the time to the first token: metrics",
}

_SIGN_IN = (
    "signing in to Microsoft Entra is not supported",
    "set apiKey, or headers: authorization",
)
_PROMPT = ("it comes from the prompt", "leave it out")
REFUSED: Mapping[str, tuple[str, str]] = {
    "azure_client_id": _SIGN_IN,
    "azure_client_secret": _SIGN_IN,
    "azure_tenant_id": _SIGN_IN,
    "contents": _PROMPT,
    "input": _PROMPT,
    "messages": _PROMPT,
    "response_schema": (
        "a schema has a format here",
        "write response_format: {type: json_schema, …}",
    ),
    "system_prompt": (
        "system messages are part of the prompt",
        "write a message with the role system",
    ),
}
"""Keys that would change what is measured if they were ignored, with fault and hint."""


@attrs.frozen(kw_only=True)
class OtherKeys:
    """The rules for keys that are not ours, for one API."""

    sends: bool = True
    """False if the API has no key besides ours: then others are ignored with a warning."""
    not_here: AbstractSet[str] = frozenset()
    """Our keys for other kinds of requests, by snake_case names; they are errors."""
    names: Mapping[str, str] = attrs.field(factory=dict)
    """Other names of our keys, both in snake_case."""
    body_names: Mapping[str, str] = attrs.field(factory=dict)
    """Fields of the body for keys that are not ours and have another name there."""
    ignored: Mapping[str, str] = attrs.field(factory=dict)
    """Keys without an effect, by snake_case names, and the reason."""


@attrs.frozen(kw_only=True)
class OpenConfig:
    """A config whose keys are ours or not."""

    values: dict[str, Any]
    """The values of our keys, by snake_case name."""
    passed: dict[str, Any] = attrs.field(repr=False)
    """The values of other keys, by their names in the config."""
    warnings: tuple[Problem, ...]
    problems: list[Problem]

    def folded(self, before: Any = None) -> dict[str, Any]:
        """Return the values with the other keys in `passthrough`, which takes precedence over them.

        Args:
            before: The `passthrough` of an earlier layer, which other keys of this one do not remove.
        """
        if not self.passed:
            return self.values
        given = self.values.get("passthrough") or {}
        return {**self.values, "passthrough": {**(before or {}), **self.passed, **given}}


def read_open_config(
    config: Mapping[str, Any],
    keys: Iterable[Key],
    rules: OtherKeys,
    *,
    entry_keys: Iterable[Key] | None = None,
) -> OpenConfig:
    """Check a config that may have keys of its service besides ours.

    Args:
        config: The config of an entry, or the options of a call.
        keys: Our keys.
        rules: The rules for others.
        entry_keys: For the options of a call, the keys that only an entry may have, such as its address.

    Example:
        >>> keys = [Key("seed", "a number", is_amount)]
        >>> found = read_open_config({"seed": 1, "min_p": 0.1, "stream": True}, keys, OtherKeys())
        >>> found.folded(), found.warnings[0].message
        ({'seed': 1, 'passthrough': {'min_p': 0.1}}, '"stream" has no effect')
        >>> print(read_open_config({"sed": 1}, keys, OtherKeys()).problems[0].hint)
        did you mean "seed"?
    """
    known = {to_snake(key.name): key for key in keys}
    if entry_keys is None:
        known |= {to_snake(key.name): key for key in PROMPTFOO_KEYS}
    for name, ours in rules.names.items():
        if ours in known and name not in known:
            known[name] = attrs.evolve(known[ours], name=name)
    not_here = {*rules.not_here, *(to_snake(key.name) for key in entry_keys or ())}
    sorted_out = _SortedKeys(known, rules, not_here)
    for spelling, value in config.items():
        sorted_out.add(str(spelling), value)
    values, faults = read_config(sorted_out.own, known.values())
    wrong = [*sorted_out.problems, *faults, *_translate(values, rules.names, config)]
    order = [config_path(spelling) for spelling in config]
    return OpenConfig(
        values=values,
        passed=sorted_out.passed,
        warnings=(*sorted_out.warnings, *_add_price(values, config)),
        problems=sorted(wrong, key=lambda one: _place(one.path, order)),
    )


def _place(path: str, order: list[str]) -> int:
    """Return the place of the key that a path begins with."""
    return next(
        place
        for place, start in enumerate(order)
        if path.startswith(start) and path[len(start) :][:1] in ("", ".", "[")
    )


@attrs.frozen
class _SortedKeys:
    """The keys of a config by what happens to them."""

    known: Mapping[str, Key]
    rules: OtherKeys
    not_here: AbstractSet[str]
    own: dict[str, Any] = attrs.field(factory=dict)
    passed: dict[str, Any] = attrs.field(factory=dict)
    warnings: list[Problem] = attrs.field(factory=list)
    problems: list[Problem] = attrs.field(factory=list)

    def add(self, spelling: str, value: Any) -> None:
        """Add a key."""
        name, path = to_snake(spelling), config_path(spelling)
        reason = _why_ignored(spelling, name, self.rules)
        if name in self.known and name not in self.rules.ignored:
            self.own[spelling] = value
        elif reason is not None:
            self.warnings.append(Problem(path, f'"{spelling}" has no effect', reason or None))
        elif (fault := self._fault(spelling, name, value)) is not None:
            self.problems.append(fault)
        elif name == "mcp":
            pass  # it is switched off
        elif self.rules.sends:
            self.problems.extend(json_faults(value, path))
            if value is not None:
                self.passed[self.rules.body_names.get(spelling, spelling)] = value
        else:
            self.warnings.append(Problem(path, f'"{spelling}" is not a key, and is not sent'))

    def _fault(self, spelling: str, name: str, value: Any) -> Problem | None:
        """Return the problem of a key that may be neither sent nor ignored."""
        path = config_path(spelling)
        if name == "mcp" and isinstance(value, Mapping) and value.get("enabled"):
            message = "tools of MCP servers are not supported"
            return Problem(path, message, "leave it out, or set enabled: false")
        if name in REFUSED:
            return Problem(path, *REFUSED[name])
        unknown = Problem(path, f'"{spelling}" is not a key')
        if name in self.not_here:
            return unknown
        plain = {one.replace("_", ""): key.name for one, key in {**LIMITS, **self.known}.items()}
        is_right = name in NOT_MISSPELT
        close = [] if is_right else nearest(name.replace("_", ""), plain, ALIKE)
        if not close:
            return None
        return attrs.evolve(unknown, hint=did_you_mean(dict.fromkeys(plain[one] for one in close)))


def rules_of(service: Service, rules: OtherKeys) -> OtherKeys:
    """Return the rules of an API for one service."""
    missing = [name for name in ("organization", "project") if name not in service.account_headers]
    reason = f"{service.family} has none"
    ignored = {**dict.fromkeys(missing, reason), **rules.ignored}
    names = {**rules.names, **service.config_names}
    return attrs.evolve(rules, names=names, body_names=service.body_names, ignored=ignored)


def _why_ignored(spelling: str, name: str, rules: OtherKeys) -> str | None:
    """Return the reason why a key has no effect, "" if it needs none; None if it may have one."""
    if name in rules.ignored:
        return rules.ignored[name]
    if name in _BESIDE:
        return f"write {spelling} beside config"
    if rules.sends and spelling in OF_GEMINI:
        return "it is a key of Gemini"
    return _REASONS.get(name, "") if name in IGNORED else None


def json_faults(value: Any, path: str) -> Iterator[Problem]:
    """Yield a problem for each part of a value that cannot be written as JSON.

    Example:
        >>> [str(one) for one in json_faults({"a": [1, {2}]}, ".config.x")]
        ['.config.x.a[1]: must be JSON, got {2}']
    """
    match value:
        case None | str() | bool() | int():
            return
        case float() if value - value == 0:  # neither infinite nor NaN
            return
        case Mapping():
            for name, part in value.items():
                if isinstance(name, str):
                    yield from json_faults(part, path + config_path(name).removeprefix(".config"))
                else:
                    yield Problem(path, f"the names in an object must be texts, got {show(name)}")
        case list() | tuple():
            for place, part in enumerate(value):
                yield from json_faults(part, f"{path}[{place}]")
        case _:
            yield Problem(path, f"must be JSON, got {show(value)}")


def secret_texts(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts in a value whose names are those of secrets.

    Example:
        >>> list(secret_texts({"index": "docs", "authentication": {"key": "sk-12345678"}}))
        ['sk-12345678']
    """
    match value:
        case str() if is_secret:
            yield from sorted(secret_parts(value))
        case Mapping():
            for name, part in value.items():
                inside = isinstance(part, str) and is_secret_name(str(name))
                yield from secret_texts(part, is_secret=inside)
        case list() | tuple():
            for part in value:
                yield from secret_texts(part, is_secret=is_secret)
        case _:
            pass


def with_secrets(endpoint: Endpoint, sent: Any) -> Endpoint:
    """Return the endpoint that also knows the secrets in a part of the body."""
    found = longest_first({*secret_texts(sent), *endpoint.other_secrets})
    return attrs.evolve(endpoint, other_secrets=found) if found else endpoint


def _translate(
    values: dict[str, Any], names: Mapping[str, str], config: Mapping[str, Any]
) -> Iterator[Problem]:
    """Move the values of other names to our keys; yield the problem of a key with two values."""
    spellings = {to_snake(str(spelling)): spelling for spelling in config}
    for name, ours in {"timeout": "timeout_ms", **names}.items():
        if name not in values:
            continue
        value = values.pop(name)
        if ours in values:
            both = f'"{spellings.get(ours, ours)}" and "{spellings[name]}"'
            yield Problem(config_path(spellings[name]), f"{both} mean the same", "keep one of them")
        else:
            values[ours] = value


def _add_price(values: dict[str, Any], config: Mapping[str, Any]) -> Iterator[Problem]:
    """Replace costs per token by our `price` per million; yield a warning about an incomplete one."""
    costs = {name: values.pop(name) for name in _COSTS if name in values}
    if not costs or values.get("price") is not None:
        return
    both = costs.get("cost")
    parts = {
        "input": costs.get("input_cost", both),
        "output": costs.get("output_cost", both),
        "cachedInput": costs.get("cache_read_cost"),
    }
    if parts["input"] is None or parts["output"] is None:
        spelling = next(one for one in config if to_snake(str(one)) in costs)
        hint = "write inputCost and outputCost, or price"
        yield Problem(config_path(spelling), f'"{spelling}" alone has no effect', hint)
    else:
        values["price"] = {
            name: round(cost * 1e6, 9) for name, cost in parts.items() if cost is not None
        }
