"""The bodies of the fake provider: what is asked of it, and what it answers. Pure."""

import json
from typing import Any

import attrs

from trioeval.usage import Usage

CHARACTERS_PER_TOKEN = 4


@attrs.frozen
class Ask:
    """What the fake needs to know of a request."""

    model: str
    prompt: str
    """The text of the last user message."""
    tokens: int
    """Of all messages."""
    streams: bool = False
    """Whether the reply is to come as a stream."""
    with_usage: bool = False
    """Whether the stream is to end with the usage."""


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
    texts = [_text(item.get("content")) for item in messages]
    asked = [text for text, item in zip(texts, messages, strict=True) if item["role"] == "user"]
    options = data.get("stream_options")
    return Ask(
        model,
        asked[-1] if asked else texts[-1],
        sum(map(count_tokens, texts)),
        streams=bool(data.get("stream")),
        with_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


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
    head = _head("chat.completion", ask, number=number, now=now)
    return to_json({**head, "choices": [choice], "usage": _usage(draft)})


def completion_events(ask: Ask, draft: Draft, *, number: int, now: float) -> tuple[bytes, ...]:
    """The same as a stream: one event for each token of the text, and those that end it.

    Args:
        ask: What is answered.
        draft: With what.
        number: Of the request, for the id.
        now: Seconds, for `created`.
    """
    head = _head("chat.completion.chunk", ask, number=number, now=now)
    texts = [
        draft.text[start : start + CHARACTERS_PER_TOKEN]
        for start in range(0, len(draft.text), CHARACTERS_PER_TOKEN)
    ]
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    ending = {"index": 0, "delta": {}, "finish_reason": draft.finish_reason}
    chunks.append({**head, "choices": [ending]})
    if ask.with_usage:
        chunks.append({**head, "choices": [], "usage": _usage(draft)})
    return (*(b"data: " + to_json(chunk) + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n")


def error_body(message: str, kind: str, code: str | None = None) -> bytes:
    """An error as the chat completions endpoint words it."""
    return to_json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def to_json(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _head(kind: str, ask: Ask, *, number: int, now: float) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-fake{number:08d}",
        "object": kind,
        "created": int(now),
        "model": ask.model,
    }


def _usage(draft: Draft) -> dict[str, Any]:
    return {
        "prompt_tokens": draft.prompt_tokens,
        "completion_tokens": draft.completion_tokens,
        "total_tokens": draft.tokens,
        "prompt_tokens_details": {"cached_tokens": draft.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": draft.reasoning_tokens},
    }


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
