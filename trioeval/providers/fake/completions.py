"""The bodies of the fake provider: what is asked of it, and what it answers. Pure."""

import json
from typing import Any

import attrs

from trioeval.providers.base import Usage

CHARACTERS_PER_TOKEN = 4


@attrs.frozen
class Ask:
    """What the fake needs to know of a request."""

    model: str
    prompt: str
    """The text of the last user message."""
    tokens: int
    """Of all messages."""


@attrs.frozen(kw_only=True)
class Draft:
    """A completion whose cost is known and whose body is not written yet."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str = "stop"

    @property
    def tokens(self) -> int:
        """What it costs."""
        return self.prompt_tokens + self.completion_tokens


def read_ask(body: bytes) -> Ask | str:
    """The request in a body, or what is wrong with it."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return "the body is not JSON"
    if not isinstance(data, dict):
        return "the body is not an object"
    model, messages = data.get("model"), data.get("messages")
    if not isinstance(model, str) or not model:
        return "model must be text"
    if not isinstance(messages, list) or not messages:
        return "messages must be a list that is not empty"
    if not all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in messages):
        return "messages must be objects with a role"
    if data.get("stream"):
        return "stream is not supported"
    texts = [_text(item.get("content")) for item in messages]
    asked = [text for text, item in zip(texts, messages, strict=True) if item["role"] == "user"]
    return Ask(model, asked[-1] if asked else texts[-1], sum(map(count_tokens, texts)))


def count_tokens(text: str) -> int:
    """Characters by four, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def draft(
    ask: Ask, content: Any, usage: Usage | None = None, finish_reason: str | None = None
) -> Draft:
    """A completion, with its tokens.

    Args:
        ask: What is answered.
        content: Text; any other JSON value is sent as its JSON text.
        usage: Counts that are known; the others are estimated from the characters.
        finish_reason: `stop` if None.
    """
    text = content if isinstance(content, str) else json.dumps(content)
    known = Usage() if usage is None else usage
    return Draft(
        text=text,
        prompt_tokens=ask.tokens if known.prompt is None else known.prompt,
        completion_tokens=count_tokens(text) if known.completion is None else known.completion,
        cached_tokens=known.cached or 0,
        reasoning_tokens=known.reasoning or 0,
        finish_reason=finish_reason or "stop",
    )


def completion_body(ask: Ask, draft: Draft, *, number: int, now: float) -> bytes:
    """A chat completion like a real one.

    Args:
        ask: What is answered.
        draft: With what.
        number: Of the request, for the id.
        now: Seconds, for `created`.
    """
    message = {"role": "assistant", "content": draft.text, "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": draft.finish_reason,
    }
    usage = {
        "prompt_tokens": draft.prompt_tokens,
        "completion_tokens": draft.completion_tokens,
        "total_tokens": draft.tokens,
        "prompt_tokens_details": {"cached_tokens": draft.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": draft.reasoning_tokens},
    }
    return to_json(
        {
            "id": f"chatcmpl-fake{number:08d}",
            "object": "chat.completion",
            "created": int(now),
            "model": ask.model,
            "choices": [choice],
            "usage": usage,
        }
    )


def error_body(message: str, kind: str, code: str | None = None) -> bytes:
    """An error as the chat completions endpoint words it."""
    return to_json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def to_json(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
