# Separate from `providers.sdk.bedrock`: together they exceed 600 lines.
"""The arguments of Converse, from config keys of any model family.

Pure. Converse has one name for what each family of models calls differently: `max_gen_len` of Llama and
`max_new_tokens` of Nova are its `maxTokens`. What only one family has goes into
`additionalModelRequestFields`.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import (
    Key,
    is_count,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_texts,
    read_config,
    to_snake,
)
from trioeval.providers.http.endpoint import ENDPOINT_KEYS
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.vendors.chat import read_function

INFERENCE = (
    Key("maxTokens", "a whole number of at least 1", is_count),
    Key("temperature", "a number", is_number),
    Key("topP", "a number", is_number),
    Key("stopSequences", "a list of texts", is_texts),
)
"""Keys that go into `inferenceConfig`."""

TOP_K = Key("topK", "a whole number of at least 0", lambda value: value == 0 or is_count(value))

ARGUMENTS = (
    Key("toolConfig", "an object", is_json_object),
    Key("guardrailConfig", "an object", is_json_object),
    Key("additionalModelRequestFields", "an object", is_json_object),
    Key("additionalModelResponseFieldPaths", "a list of texts", is_texts),
    Key("performanceConfig", "an object", is_json_object),
    Key("requestMetadata", "an object", is_json_object),
    Key("serviceTier", "an object", is_json_object),
    Key("outputConfig", "an object", is_json_object),
)
"""Keys that are arguments of Converse under their own names."""


def _is_tools(value: Any) -> bool:
    return is_json_list(value) and all(isinstance(tool, Mapping) for tool in value)


def _is_choice(value: Any) -> bool:
    return is_json_object(value) or (isinstance(value, str) and value in _CHOICES)


OTHERS = (
    Key("stop", "text or a list of texts", lambda value: is_text(value) or is_texts(value)),
    TOP_K,
    Key("inferenceConfig", "an object", is_json_object),
    Key("interfaceConfig", "an object", is_json_object),
    Key("textGenerationConfig", "an object", is_json_object),
    Key("tools", "a list of objects", _is_tools),
    Key("tool_choice", "auto, any, required, none or an object", _is_choice),
    Key("guardrailIdentifier", "text", is_text),
    Key("guardrailVersion", "text or a number", lambda value: is_text(value) or is_count(value)),
    Key("trace", "text", is_text),
    Key("inferenceModelType", "text", is_text),
)
"""Keys of the InvokeModel API and of promptfoo, which are converted."""

CALL_KEYS = (*INFERENCE, *ARGUMENTS, *OTHERS)

NAMES: Mapping[str, str] = {
    "max_gen_len": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_token_count": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "p": "top_p",
    "k": "top_k",
}
"""Names of single families of models for keys of all."""

RULES = OtherKeys(
    names={**NAMES, "endpoint": "endpoint_url"},
    ignored={"anthropic_version": "Converse sets it"},
    not_here=frozenset({"passthrough", "metrics", *(to_snake(key.name) for key in ENDPOINT_KEYS)}),
)
"""Other keys are fields of the model: `thinking`, `reasoningConfig`, `anthropic_beta`, `seed`."""

_OBJECTS = ("text_generation_config", "interface_config", "inference_config")
"""Objects with the keys of `INFERENCE`, by the names of several APIs; the last one takes precedence."""

_CHOICES = {"auto": "auto", "any": "any", "required": "any", "none": "none"}

_FAMILIES = re.compile(r"\b(nova|cohere)")
"""The families of models whose `top_k` is elsewhere than in that of all others."""


def find_conflicts(values: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of values in one layer that are valid on their own."""
    problems: list[Problem] = []
    for name in _OBJECTS:
        _, faults = _read_inside(values.get(name) or {})
        written = _CAMEL[name]
        problems += (
            attrs.evolve(one, path=one.path.replace(".config", f".config.{written}", 1))
            for one in faults
        )
    if values.get("tools") and values.get("tool_config"):
        problems.append(Problem(".config.tools", "toolConfig has them already", "keep one of them"))
    if values.get("guardrail_identifier") and values.get("guardrail_config"):
        message = "guardrailConfig has it already"
        problems.append(Problem(".config.guardrailIdentifier", message, "keep one of them"))
    return problems


_CAMEL = {to_snake(key.name): key.name for key in OTHERS}


def _read_inside(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of an object with inference parameters, by snake_case names."""
    keys = {to_snake(key.name): key for key in (*INFERENCE, TOP_K)}
    others = [attrs.evolve(keys[ours], name=name) for name, ours in NAMES.items()]
    values, problems = read_config(given, (*keys.values(), *others))
    return {NAMES.get(name, name): value for name, value in values.items()}, problems


def fixed_body(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without the messages.

    Args:
        model: The id of the model.
        given: The values of all layers; None counts as absent.

    Example:
        >>> fixed_body(
        ...     "us.amazon.nova-pro-v1:0", {"interface_config": {"max_new_tokens": 9}, "top_k": 3}
        ... )["additionalModelRequestFields"]
        {'inferenceConfig': {'topK': 3}}
    """
    values: dict[str, Any] = {}
    for name in _OBJECTS:
        values |= _read_inside(given.get(name) or {})[0]
    if (stop := given.get("stop")) is not None:
        values["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    values |= {name: value for name, value in given.items() if value is not None}
    body = {"inferenceConfig": _named(INFERENCE, values), **_named(ARGUMENTS, values)}
    fields = {**(given.get("additional_model_request_fields") or {})}
    fields |= _top_k(given.get("inference_model_type") or model, values.get("top_k"))
    fields |= given.get("passthrough") or {}
    body["additionalModelRequestFields"] = fields
    body.setdefault("toolConfig", _tool_config(given))
    body.setdefault("guardrailConfig", _guardrail(given))
    return {name: value for name, value in body.items() if value}


def _named(keys: tuple[Key, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of some keys that are not null, by their names in Converse."""
    names = {to_snake(key.name): key.name for key in keys}
    known = ((name, values.get(snake)) for snake, name in names.items())
    return {name: value for name, value in known if value is not None}


def _top_k(model: str, value: Any) -> dict[str, Any]:
    """Return the field of a model for `top_k`."""
    if value is None:
        return {}
    match found[1] if (found := _FAMILIES.search(model)) else "":
        case "nova":
            return {"inferenceConfig": {"topK": value}}
        case "cohere":
            return {"k": value}
        case _:
            return {"top_k": value}


def _tool_config(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tools in the form of Converse; None without any, and if the model may call none."""
    tools, choice = given.get("tools"), given.get("tool_choice")
    if not tools or choice in ("none", {"type": "none"}):
        return None
    chosen = {} if choice is None else {"toolChoice": _choice(choice)}
    return {"tools": [_tool(tool) for tool in tools], **chosen}


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool in the form of chat completions, of Anthropic or of Converse in that of Converse."""
    function = read_function(tool)
    if function is not None:
        name, about, schema = function.name, function.description, function.parameters
    elif is_text(tool.get("name")) and "input_schema" in tool:
        name, about, schema = tool["name"], tool.get("description"), tool["input_schema"]
    else:
        return tool
    parts = {
        "name": name,
        "description": about,
        "inputSchema": {"json": schema or {"type": "object"}},
    }
    return {"toolSpec": {part: value for part, value in parts.items() if value is not None}}


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return {_CHOICES[choice]: {}}
    function = read_function(choice)
    if function is not None:
        return {"tool": {"name": function.name}}
    match choice:
        case {"type": "tool", "name": name}:
            return {"tool": {"name": name}}
        case {"type": ("auto" | "any") as kind}:
            return {kind: {}}
        case _:
            return choice


def _guardrail(given: Mapping[str, Any]) -> dict[str, Any] | None:
    identifier = given.get("guardrail_identifier")
    if identifier is None:
        return None
    trace = {} if given.get("trace") is None else {"trace": given["trace"]}
    version = str(given.get("guardrail_version") or "DRAFT")
    return {"guardrailIdentifier": identifier, "guardrailVersion": version, **trace}
