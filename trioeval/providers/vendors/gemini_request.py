# Separate from `providers.vendors.gemini`: together they exceed 600 lines.
"""Gemini generateContent: the fixed part of a body, from the config of an entry.

Pure. `generationConfig` may be given as an object or as single keys; each layer (config, options of a call)
is converted to the form of the object on its own, before it is merged over the previous one. Nothing has a
default: the service's own defaults depend on the model.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.config import (
    Key,
    is_count,
    is_flag,
    is_integer,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_texts,
    to_snake,
)
from trioeval.providers.messages import read_data_uri, read_image_url, to_messages
from trioeval.providers.vendors.chat import (
    ToolFunction,
    is_schema_format,
    read_function,
    read_schema,
)

# From the text of a prompt to Gemini's contents: roles, parts, and a separate instruction.
#
# Messages in the form of chat completions, their images and `data:` URIs are converted to Gemini's form; a
# message with `parts` already has that form.


_ABOVE = frozenset({"system", "developer"})
_ROLES = {"assistant": "model"}


@attrs.frozen
class Contents:
    """A prompt in the form of generateContent."""

    contents: list[Any]
    """At least one content."""
    instruction: dict[str, Any] | None = None


def read_contents(prompt: str, instruction: str | dict[str, Any] | None = None) -> Contents:
    """Return the contents and the instruction of a rendered prompt.

    Args:
        prompt: Text, or messages as JSON or YAML.
        instruction: The system text in the config; it comes first.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is invalid, or if it has
            only system messages, or something that Gemini does not support.

    Example:
        >>> read_contents("Hi", "Be brief.").instruction
        {'parts': [{'text': 'Be brief.'}]}
    """
    messages = to_messages(prompt)
    contents = [
        {"role": _ROLES.get(one["role"], one["role"]), "parts": _parts(one)}
        for one in messages
        if one["role"] not in _ABOVE
    ]
    if not contents:
        _refuse("it has only system messages")
    above = _instruction(instruction)
    above += [part for one in messages if one["role"] in _ABOVE for part in _parts(one)]
    return Contents(contents, {"parts": above} if above else None)


def _instruction(given: str | dict[str, Any] | None) -> list[Any]:
    if given is None:
        return []
    return [{"text": given}] if isinstance(given, str) else list(given["parts"])


def _parts(message: dict[str, Any]) -> list[Any]:
    parts, content = message.get("parts"), message.get("content")
    if isinstance(parts, list):
        return [_own(part) for part in parts]
    if isinstance(content, str):
        return _texts(content)
    if not isinstance(content, list):
        _refuse("a message has neither parts nor content that is text or a list")
    return [part for block in content for part in _block(block)]


def _texts(text: str) -> list[Any]:
    """Return the parts of a text: each line that is a `data:` URI is a separate part."""
    if ";base64," not in text:
        return [{"text": text}]
    parts: list[Any] = []
    for is_data, lines in groupby(text.split("\n"), lambda line: _inline(line) is not None):
        if is_data:
            parts += map(_inline, lines)
        elif (joined := "\n".join(lines)).strip():
            parts.append({"text": joined})
    return parts


def _block(block: Any) -> Sequence[Any]:
    """Return the parts for a block of a message's content."""
    if isinstance(block, str):
        return _texts(block)
    if not isinstance(block, dict):
        _refuse("a content has a block that is neither text nor an object")
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return _texts(block["text"])
    if (audio := _audio(block)) is not None:
        return [audio]
    url = read_image_url(block)
    source = block.get("source")
    if url is not None:
        found = _inline(url)
    elif isinstance(source, dict):
        found = _inline(source.get("data")) or _inline_source(source)
    else:
        return [_own(block)]
    if found is None:
        _refuse("an image must be a data: URI; Gemini accepts others only as fileData")
    return [found]


def _audio(block: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part for audio in the form of chat completions; None for any other block."""
    match block:
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return {"inlineData": {"mimeType": f"audio/{form}", "data": data}}
        case _:
            return None


def _own(part: Any) -> Any:
    """Return a part in Gemini's own form, with a `data:` URI in it split."""
    inline = (part.get("inlineData") or part.get("inline_data")) if isinstance(part, dict) else None
    return (_inline(inline.get("data")) if isinstance(inline, dict) else None) or part


def _inline(text: Any) -> dict[str, Any] | None:
    uri = read_data_uri(text)
    if uri is None:
        return None
    return {"inlineData": {"mimeType": uri.media_type, "data": uri.data}}


def _inline_source(source: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part for an image in Anthropic's form."""
    media_type, data = source.get("media_type"), source.get("data")
    if not isinstance(media_type, str) or not isinstance(data, str):
        return None
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _refuse(reason: str) -> NoReturn:
    raise ProviderError("bad_request", f"invalid prompt: {reason}")


MODES: Mapping[str, str] = {"auto": "AUTO", "any": "ANY", "required": "ANY", "none": "NONE"}
"""Modes of function calling, by their names in configs."""

JSON = "application/json"

MOST_LOG_PROBS = 20
"""Maximum number of alternatives for a token."""


def _is_alternatives(value: Any) -> bool:
    return is_integer(value) and 0 <= value <= MOST_LOG_PROBS


def _is_objects(value: Any) -> bool:
    return is_json_list(value) and all(isinstance(one, Mapping) for one in value)


def _is_choice(value: Any) -> bool:
    return read_function(value) is not None or (isinstance(value, str) and value in MODES)


def _is_format(value: Any) -> bool:
    return is_schema_format(value) or (is_json_object(value) and value.get("type") == "json_object")


def _is_instruction(value: Any) -> bool:
    parts = value.get("parts") if is_json_object(value) else None
    return is_text(value) or isinstance(parts, list)


GENERATION = (
    Key("temperature", "a number", is_number),
    Key("topP", "a number", is_number),
    Key("topK", "a whole number of at least 1", is_count),
    Key("maxOutputTokens", "a whole number of at least 1", is_count),
    Key("stopSequences", "a list of texts", is_texts),
    Key("candidateCount", "a whole number of at least 1", is_count),
    Key("seed", "a whole number", is_integer),
    Key("presencePenalty", "a number", is_number),
    Key("frequencyPenalty", "a number", is_number),
    Key("responseMimeType", "text", is_text),
    Key("responseSchema", "an object", is_json_object),
    Key("responseJsonSchema", "an object", is_json_object),
    Key("responseModalities", "a list of texts", is_texts),
    Key("responseLogprobs", "true or false", is_flag),
    Key("logprobs", f"a whole number from 0 to {MOST_LOG_PROBS}", _is_alternatives),
    Key("speechConfig", "an object", is_json_object),
    Key("mediaResolution", "text", is_text),
    Key("thinkingConfig", "an object", is_json_object),
    Key("imageConfig", "an object", is_json_object),
)
"""Keys that go into `generationConfig` under their own names."""

CALL_KEYS = (
    *GENERATION,
    Key("generationConfig", "an object", is_json_object),
    Key(
        "response_format", "an object of type json_object, or json_schema with a schema", _is_format
    ),
    Key("systemInstruction", "text, or an object with a list of parts", _is_instruction),
    Key("safetySettings", "a list of objects", _is_objects),
    Key("tools", "a list of objects", _is_objects),
    Key("toolConfig", "an object", is_json_object),
    Key("tool_choice", "auto, any, required, none or a function", _is_choice),
    Key("cachedContent", "text", is_text),
    Key("passthrough", "an object", is_json_object),
    Key("showThinking", "true or false", is_flag),
    Key("imageAspectRatio", "text, such as 16:9", is_text),
    Key("imageSize", "text, such as 2K", is_text),
)
"""Keys that may differ from call to call. The keys of images are sent to models that make images."""

_SCHEMAS = ("responseSchema", "responseJsonSchema")
"""The schema in two dialects; the service accepts only one of them."""

_WIRE_NAMES = {to_snake(key.name): key.name for key in GENERATION}

_NOT_PASSED: Mapping[str, tuple[str, str]] = {
    "contents": ("contents come from the prompt", "leave it out"),
    "systemInstruction": (
        "there is a separate key for it",
        "write it as systemInstruction, beside this key",
    ),
}
"""Members that cannot be passed through, with fault and hint."""


def find_conflicts(values: Mapping[str, Any]) -> list[Problem]:
    """Return problems of values in one layer that are valid on their own."""
    inside = _by_wire_name(values.get("generation_config") or {})
    problems = [
        Problem(f".config.{name}", "is in generationConfig already", "keep one of them")
        for snake, name in _WIRE_NAMES.items()
        if values.get(snake) is not None and name in inside
    ]
    if values.get("tool_config") and values.get("tool_choice"):
        fault = "toolConfig sets it already"
        problems.append(Problem(".config.tool_choice", fault, "keep one of them"))
    problems += [
        Problem(f".config.passthrough.{name}", *fault)
        for name, fault in _NOT_PASSED.items()
        if name in (values.get("passthrough") or {})
    ]
    return problems


def gather(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return one layer with the keys for `generationConfig` and `toolConfig` inside them.

    Example:
        >>> gather(
        ...     {"top_k": 4, "generation_config": {"max_output_tokens": 9}, "show_thinking": True}
        ... )
        {'show_thinking': True, 'generation_config': {'maxOutputTokens': 9, 'topK': 4}}
    """
    generation = _by_wire_name(values.get("generation_config") or {})
    generation |= {name: values[snake] for snake, name in _WIRE_NAMES.items() if snake in values}
    form = values.get("response_format")
    if form is not None:
        generation["responseMimeType"] = JSON
        if (schema := read_schema(form)) is not None:
            generation["responseJsonSchema"] = schema
    moved = {*_WIRE_NAMES, "response_format", "generation_config", "tool_choice"}
    layer = {name: value for name, value in values.items() if name not in moved}
    if "tool_choice" in values:
        layer["tool_config"] = _tool_config(values["tool_choice"])
    return {**layer, "generation_config": generation}


def merge(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers in the form of `gather`, each over the previous one; a None removes a value."""
    given = gather({})
    for values in layers:
        layer = gather(values)
        old, new = given["generation_config"], layer["generation_config"]
        if values.get("generation_config", {}) is None:
            old = {}
        if _has_schema(new):
            old = {name: value for name, value in old.items() if name not in _SCHEMAS}
        given |= {**layer, "generation_config": {**old, **new}}
    return given


def fixed_body(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the body that does not come from the prompt.

    Args:
        given: From `merge`; None removes an earlier value.

    Example:
        >>> fixed_body(gather({"response_schema": {"type": "OBJECT"}}))
        {'generationConfig': {'responseSchema': {'type': 'OBJECT'}, 'responseMimeType': 'application/json'}}
    """
    generation = {
        name: value for name, value in given["generation_config"].items() if value is not None
    }
    if _has_schema(generation):
        generation.setdefault("responseMimeType", JSON)
    body = {
        "generationConfig": generation,
        "safetySettings": given.get("safety_settings"),
        "tools": _tools(given.get("tools") or ()),
        "toolConfig": given.get("tool_config"),
        "cachedContent": given.get("cached_content"),
    }
    return {name: value for name, value in body.items() if value} | (given.get("passthrough") or {})


def wants_json(body: Mapping[str, Any]) -> bool:
    """Return whether a body requests output in a JSON schema."""
    generation = body.get("generationConfig")
    return isinstance(generation, Mapping) and _has_schema(generation)


def _has_schema(generation: Mapping[str, Any]) -> bool:
    return any(generation.get(name) for name in _SCHEMAS)


def _by_wire_name(generation: Mapping[str, Any]) -> dict[str, Any]:
    return {_WIRE_NAMES.get(to_snake(name), name): value for name, value in generation.items()}


def _tools(tools: Any) -> list[Any]:
    """Return the tools; functions in the form of chat completions are declared together."""
    functions = [read_function(tool) for tool in tools]
    own = [tool for tool, function in zip(tools, functions, strict=True) if function is None]
    declared = [
        {name: value for name, value in _declaration(one).items() if value is not None}
        for one in functions
        if one is not None
    ]
    return [*own, {"functionDeclarations": declared}] if declared else own


def _declaration(function: ToolFunction) -> dict[str, Any]:
    return {
        "name": function.name,
        "description": function.description,
        "parametersJsonSchema": function.parameters,
    }


def _tool_config(choice: Any) -> dict[str, Any] | None:
    if choice is None:
        return None
    function = read_function(choice)
    if function is not None:
        calling: dict[str, Any] = {"mode": "ANY", "allowedFunctionNames": [function.name]}
    else:
        calling = {"mode": MODES[choice]}
    return {"functionCallingConfig": calling}
