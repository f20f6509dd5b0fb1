"""From the text of a prompt to what Gemini calls contents: roles, parts, and an instruction beside them.

Messages in the form of chat completions, their images and `data:` URIs are brought into Gemini's form; a
message that has `parts` is in that form already.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.messages import to_messages
from trioeval.providers.vendors.data_uris import read_data_uri, read_image_url

_ABOVE = frozenset({"system", "developer"})
_ROLES = {"assistant": "model"}


@attrs.frozen
class Contents:
    """A prompt in the form of generateContent."""

    contents: list[Any]
    """At least one."""
    instruction: dict[str, Any] | None = None


def read_contents(prompt: str, instruction: str | dict[str, Any] | None = None) -> Contents:
    """What a rendered prompt says, and to whom.

    Args:
        prompt: Text, or messages as JSON or YAML.
        instruction: What the config says to the system; it goes first.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is not, or if there is
            nothing but a system message, or something that Gemini does not take.

    Example:
        >>> read_contents("Hi", "Be brief.").instruction
        {'parts': [{'text': 'Be brief.'}]}
    """
    said = to_messages(prompt)
    contents = [
        {"role": _ROLES.get(one["role"], one["role"]), "parts": _parts(one)}
        for one in said
        if one["role"] not in _ABOVE
    ]
    if not contents:
        _refuse("it holds nothing but a system message")
    above = _instruction(instruction)
    above += [part for one in said if one["role"] in _ABOVE for part in _parts(one)]
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
    """The text; each of its lines that is a `data:` URI is a part of its own."""
    if ";base64," not in text:
        return [{"text": text}]
    parts: list[Any] = []
    for is_data, lines in groupby(text.split("\n"), lambda line: _inline(line) is not None):
        if is_data:
            parts += map(_inline, lines)
        elif (said := "\n".join(lines)).strip():
            parts.append({"text": said})
    return parts


def _block(block: Any) -> Sequence[Any]:
    """The parts that a block of a message's content is."""
    if isinstance(block, str):
        return _texts(block)
    if not isinstance(block, dict):
        _refuse("a content holds something that is neither text nor an object")
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return _texts(block["text"])
    url = read_image_url(block)
    source = block.get("source")
    if url is not None:
        found = _inline(url)
    elif isinstance(source, dict):
        found = _inline(source.get("data")) or _inline_source(source)
    else:
        return [_own(block)]
    if found is None:
        _refuse("an image is not a data: URI; of others Gemini takes fileData alone")
    return [found]


def _own(part: Any) -> Any:
    """A part in Gemini's own form; a `data:` URI that it holds is split."""
    inline = (part.get("inlineData") or part.get("inline_data")) if isinstance(part, dict) else None
    return (_inline(inline.get("data")) if isinstance(inline, dict) else None) or part


def _inline(text: Any) -> dict[str, Any] | None:
    uri = read_data_uri(text)
    if uri is None:
        return None
    return {"inlineData": {"mimeType": uri.media_type, "data": uri.data}}


def _inline_source(source: dict[str, Any]) -> dict[str, Any] | None:
    """An image as Anthropic has it."""
    media_type, data = source.get("media_type"), source.get("data")
    if not isinstance(media_type, str) or not isinstance(data, str):
        return None
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _refuse(reason: str) -> NoReturn:
    raise ProviderError("bad_request", f"the prompt cannot be sent: {reason}")
