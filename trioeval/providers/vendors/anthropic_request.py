"""Anthropic messages: the fixed part of a body and its beta features, from the config of an entry.

Pure. A parameter without a config value has a default only if the service requires one, or if replies would
not be repeatable without it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.config import (
    Key,
    is_count,
    is_flag,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_texts,
)
from trioeval.providers.http.replies import objects, text
from trioeval.providers.messages import read_data_uri, read_image_url, to_messages
from trioeval.providers.vendors.chat import is_schema_format, read_function, read_schema

# From the text of a prompt to Anthropic's messages, which have separate system texts.
#
# A text whose first line begins with `system:`, `user:` or `assistant:` is a transcript; each such line
# starts a message. Everything else is read as for chat completions, and images in that form, or in `data:`
# URIs, are converted to Anthropic's.


_SPEAKER = re.compile(r"^(system|user|assistant):", re.MULTILINE)
_ABOVE = frozenset({"system", "developer"})

System = str | list[Any] | None


@attrs.frozen
class AnthropicPrompt:
    """A prompt in the form of the Messages API."""

    messages: list[Any]
    """At least one message."""
    system: System = None


def read_conversation(prompt: str, system: System = None) -> AnthropicPrompt:
    r"""Return the messages and the system text of a rendered prompt.

    Args:
        prompt: Text, a transcript, or messages as JSON or YAML.
        system: The system text in the config; it comes first.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is invalid, or if it has
            only system messages.

    Example:
        >>> read_conversation("system: Be brief.\nuser: Hi")
        AnthropicPrompt(messages=[{'role': 'user', 'content': 'Hi'}], system='Be brief.')
    """
    turns = _transcript(prompt) or to_messages(prompt)
    messages = [_message(one) for one in turns if one["role"] not in _ABOVE]
    if not messages:
        raise ProviderError("bad_request", "invalid prompt: it has only system messages")
    above = [one.get("content") for one in turns if one["role"] in _ABOVE]
    return AnthropicPrompt(messages, _join([system, *above]))


def _transcript(prompt: str) -> list[dict[str, Any]]:
    """Return the messages of a transcript, without empty ones; none if it is not a transcript."""
    text = prompt.strip()
    if _SPEAKER.match(text) is None:
        return []
    _, *pieces = _SPEAKER.split(text)
    turns = zip(pieces[::2], (piece.strip() for piece in pieces[1::2]), strict=True)
    return [{"role": role, "content": content} for role, content in turns if content]


def _join(parts: Sequence[Any]) -> System:
    """Join system texts to one text, or to blocks if one of them is a list of blocks."""
    given = [part for part in parts if part]
    if not all(isinstance(part, str | list) for part in given):
        raise ProviderError(
            "bad_request",
            "invalid prompt: the content of a system message must be text or a list",
        )
    if all(isinstance(part, str) for part in given):
        return "\n\n".join(given) or None
    return [block for part in given for block in _blocks(part)]


def _blocks(content: str | list[Any]) -> Iterable[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_block(block) for block in content]}


def _block(block: Any) -> Any:
    """Return a block of content, with an image's data or URL in Anthropic's place."""
    if (url := read_image_url(block)) is not None:
        rest = {name: part for name, part in block.items() if name != "image_url"}
        return {**rest, "type": "image", "source": _source(url) or {"type": "url", "url": url}}
    source = block.get("source") if isinstance(block, dict) else None
    if not isinstance(source, dict):
        return block
    found = _source(source.get("data")) or _source(source.get("url"))
    return block if found is None else {**block, "source": found}


def _source(text: Any) -> dict[str, str] | None:
    uri = read_data_uri(text)
    if uri is None:
        return None
    return {"type": "base64", "media_type": uri.media_type, "data": uri.data}


MAX_TOKENS = 1024
MAX_TOKENS_THINKING = 2048
TEMPERATURE = 0

HAS_TEMPERATURE = re.compile(
    r"claude-(instant|[23](?!\d)|(opus|sonnet|haiku)-4(?![-.]?([7-9]|\d\d)(?!\d)))"
)
"""Anthropic models that accept a temperature; later ones refuse it."""

BETA_BY_TOOL: Mapping[str, str] = {
    "advisor_20260301": "advisor-tool-2026-03-01",
    "code_execution_20250522": "code-execution-2025-05-22",
    "code_execution_20250825": "code-execution-2025-08-25",
    "computer_20241022": "computer-use-2024-10-22",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
    "memory_20250818": "context-management-2025-06-27",
    "web_fetch_20250910": "web-fetch-2025-09-10",
}
"""Beta features that must be requested, by the type of the tool that needs them."""

BETA_OF_FORMAT = "structured-outputs-2025-11-13"

CHOICES: Mapping[str, str] = {"auto": "auto", "any": "any", "none": "none", "required": "any"}
"""Types of a tool choice, by their names in configs."""


def _is_tools(value: Any) -> bool:
    return is_json_list(value) and all(isinstance(tool, Mapping) for tool in value)


def _is_choice(value: Any) -> bool:
    typed = is_json_object(value) and is_text(value.get("type"))
    return typed or (isinstance(value, str) and value in CHOICES)


def _is_thinking(value: Any) -> bool:
    if not is_json_object(value) or not is_text(value.get("type")):
        return False
    return is_count(value["budget_tokens"]) if "budget_tokens" in value else True


def _is_system(value: Any) -> bool:
    return is_text(value) or is_json_list(value)


PARAMETERS = (
    Key("max_tokens", "a whole number of at least 1", is_count),
    Key("temperature", "a number", is_number),
    Key("top_p", "a number", is_number),
    Key("top_k", "a whole number of at least 1", is_count),
    Key("stop_sequences", "a list of texts", is_texts),
    Key("tools", "a list of objects", _is_tools),
    Key("tool_choice", "auto, any, none, required or an object with a type", _is_choice),
    Key("thinking", "an object with a type, and budget_tokens of at least 1", _is_thinking),
    Key("metadata", "an object", is_json_object),
    Key("service_tier", "text", is_text),
    Key("cache_control", "an object", is_json_object),
    Key("output_config", "an object", is_json_object),
)
"""Keys that go into the body under their own names."""

CALL_KEYS = (
    *PARAMETERS,
    Key("effort", "text", is_text),
    Key("output_format", "an object of type json_schema with a schema", is_schema_format),
    Key("response_format", "an object of type json_schema with a schema", is_schema_format),
    Key("system", "text or a list of blocks", _is_system),
    Key("beta", "a list of texts", is_texts),
    Key("extra_body", "an object", is_json_object),
    Key("passthrough", "an object", is_json_object),
    Key("omitDefaults", "true or false", is_flag),
    Key("showThinking", "true or false", is_flag),
)
"""Keys that may differ from call to call."""

_WHOLE = ("extra_body", "passthrough")
"""Keys that are merged over everything, the last one last."""

_NOT_WHOLE: Mapping[str, tuple[str, str]] = {
    "messages": ("messages come from the prompt", "leave it out"),
    "system": ("there is a separate key for it", "write it as system, beside this key"),
    "stream": (
        "streaming is decided by metrics",
        'leave it out; metrics: ["ttft"] streams, and measures the time to the first token',
    ),
}
"""Members that cannot be merged, with fault and hint."""

_OUTPUT_MEMBERS: Mapping[str, str] = {
    "output_format": "format",
    "response_format": "format",
    "effort": "effort",
}
"""Keys for members of `output_config`."""


def find_conflicts(values: Mapping[str, Any]) -> list[Problem]:
    """Return problems of values in one layer that are valid on their own."""
    inside = values.get("output_config") or {}
    problems = [
        Problem(f".config.{key}", f"{name} is in output_config already", "keep one of them")
        for key, name in _OUTPUT_MEMBERS.items()
        if values.get(key) and inside.get(name)
    ]
    if values.get("output_format") and values.get("response_format"):
        fault = "means the same as output_format"
        problems.append(Problem(".config.response_format", fault, "keep one of them"))
    problems += [
        Problem(f".config.{whole}.{name}", *fault)
        for whole in _WHOLE
        for name, fault in _NOT_WHOLE.items()
        if name in (values.get(whole) or {})
    ]
    return problems


def check_budget(given: Mapping[str, Any]) -> list[Problem]:
    """Return the problem of a thinking budget that may use up the whole reply."""
    most, budget = given.get("max_tokens"), _budget(given)
    if most is None or most > budget:
        return []
    fault = f"must be above the budget_tokens of thinking ({budget}), got {most}"
    return [Problem(".config.max_tokens", fault, "the rest is for the reply's text")]


def gather(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return one layer with the keys for `output_config` inside it.

    Example:
        >>> gather({"effort": "low", "top_k": 4})
        {'top_k': 4, 'output_config': {'effort': 'low'}}
    """
    config = dict(values.get("output_config") or {})
    for key, name in _OUTPUT_MEMBERS.items():
        if key in values:
            schema = read_schema(values[key])
            is_format = schema is not None
            config[name] = {"type": "json_schema", "schema": schema} if is_format else values[key]
    moved = {*_OUTPUT_MEMBERS, "output_config"}
    layer = {name: value for name, value in values.items() if name not in moved}
    return {**layer, "output_config": config}


def merge(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers in the form of `gather`, each over the previous one; a None removes a value."""
    given = gather({})
    for values in layers:
        layer = gather(values)
        old = {} if values.get("output_config", {}) is None else given["output_config"]
        given |= {**layer, "output_config": {**old, **layer["output_config"]}}
    return given


def fixed_body(model: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the body that does not come from the prompt.

    Args:
        model: The model's name.
        given: From `merge`; None removes a default.
        defaults: `max_tokens` and `temperature` from the environment.

    Example:
        >>> fixed_body("claude-haiku-4-5", gather({"thinking": {"type": "adaptive"}}), {})
        {'model': 'claude-haiku-4-5', 'max_tokens': 2048, 'thinking': {'type': 'adaptive'}}
    """
    body = {"model": model, "max_tokens": _max_tokens(given, defaults)}
    body["temperature"] = _temperature(model, given, defaults)
    rest = [key.name for key in PARAMETERS[2:]]
    body |= {name: given[name] for name in rest if name in given}
    body["tools"] = [_tool(tool) for tool in given.get("tools") or ()] or None
    body["tool_choice"] = _choice(given.get("tool_choice"))
    config = given["output_config"]
    body["output_config"] = {k: v for k, v in config.items() if v is not None} or None
    body = {name: value for name, value in body.items() if value is not None}
    for name in _WHOLE:
        body |= given.get(name) or {}
    return body


def list_betas(given: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    """Return the beta features that are requested or that the body needs, each once."""
    types = {text(tool, "type") for tool in objects(body, "tools")}
    needed = [beta for kind, beta in BETA_BY_TOOL.items() if kind in types]
    if wants_json(body):
        needed.append(BETA_OF_FORMAT)
    return list(dict.fromkeys((*(given.get("beta") or ()), *needed)))


def wants_json(body: Mapping[str, Any]) -> bool:
    """Return whether a body requests output in a JSON schema."""
    config = body.get("output_config")
    return isinstance(config, Mapping) and read_schema(config.get("format")) is not None


def thinks(thinking: Mapping[str, Any] | None) -> bool:
    """Return whether thinking is requested."""
    return thinking is not None and thinking["type"] != "disabled"


def has_temperature(model: str) -> bool:
    """Return whether a model accepts a temperature, by its name; models of other vendors do.

    Example:
        >>> [has_temperature(f"claude-{model}") for model in ("opus-4-6", "opus-4-7", "sonnet-5")]
        [True, False, False]
    """
    return "claude-" not in model or HAS_TEMPERATURE.search(model) is not None


def _budget(given: Mapping[str, Any]) -> int:
    """Return the tokens of the reply that thinking may use."""
    thinking = given.get("thinking")
    budget: int = thinking.get("budget_tokens", 0) if thinking and thinks(thinking) else 0
    return budget


def _max_tokens(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    usual = MAX_TOKENS_THINKING if thinks(given.get("thinking")) else MAX_TOKENS
    most: int = given.get("max_tokens") or defaults.get("max_tokens", usual)
    budget = _budget(given)
    return most if most > budget else budget + MAX_TOKENS


def _temperature(model: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> float | None:
    samples = given.get("top_p") is None and not thinks(given.get("thinking"))
    if not (samples and has_temperature(model)):
        return None
    usual = None if given.get("omit_defaults") else defaults.get("temperature", TEMPERATURE)
    temperature: float | None = given.get("temperature", usual)
    return temperature


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = read_function(tool)
    if function is None:
        return tool
    own = {
        "name": function.name,
        "description": function.description,
        "input_schema": function.parameters or {"type": "object"},
    }
    return {name: value for name, value in own.items() if value is not None}


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return {"type": CHOICES[choice]}
    function = read_function(choice)
    return choice if function is None else {"type": "tool", "name": function.name}
