"""From the text of a prompt to what Anthropic calls messages: system texts stand beside them.

A text whose first line begins with `system:`, `user:` or `assistant:` is a transcript; each such line
begins a message. Everything else is read as for chat completions, and images in that form, or in `data:`
URIs, are brought into Anthropic's.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.messages import to_messages
from trioeval.providers.vendors.data_uris import read_data_uri, read_image_url

_SPEAKER = re.compile(r"^(system|user|assistant):", re.MULTILINE)
_ABOVE = frozenset({"system", "developer"})

System = str | list[Any] | None


@attrs.frozen
class Conversation:
    """A prompt in the form of the Messages API."""

    messages: list[Any]
    """At least one."""
    system: System = None


def read_conversation(prompt: str, system: System = None) -> Conversation:
    r"""What a rendered prompt says, and to whom.

    Args:
        prompt: Text, a transcript, or messages as JSON or YAML.
        system: What the config says to the system; it goes first.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is not, or if there is
            nothing but a system message.

    Example:
        >>> read_conversation("system: Be brief.\nuser: Hi")
        Conversation(messages=[{'role': 'user', 'content': 'Hi'}], system='Be brief.')
    """
    said = _transcript(prompt) or to_messages(prompt)
    messages = [_message(one) for one in said if one["role"] not in _ABOVE]
    if not messages:
        raise ProviderError(
            "bad_request", "the prompt cannot be sent: it holds nothing but a system message"
        )
    above = [one.get("content") for one in said if one["role"] in _ABOVE]
    return Conversation(messages, _join([system, *above]))


def _transcript(prompt: str) -> list[dict[str, Any]]:
    """The messages of a transcript, without empty ones; none if it is no transcript."""
    text = prompt.strip()
    if _SPEAKER.match(text) is None:
        return []
    _, *pieces = _SPEAKER.split(text)
    turns = zip(pieces[::2], (piece.strip() for piece in pieces[1::2]), strict=True)
    return [{"role": role, "content": content} for role, content in turns if content]


def _join(parts: Sequence[Any]) -> System:
    """System texts as one text; as blocks, if one of them is a list of blocks."""
    given = [part for part in parts if part]
    if not all(isinstance(part, str | list) for part in given):
        raise ProviderError(
            "bad_request",
            "the prompt cannot be sent: the content of a system message must be text or a list",
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
    """A block of content; of an image, its data or its URL are where they belong."""
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
