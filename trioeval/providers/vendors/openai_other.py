# Separate from `providers.vendors.openai`: one module for each API of the vendor.
"""OpenAI embeddings, moderation and completions: requests to bodies, replies to vectors, flags and texts."""

import math
import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.config import (
    Key,
    is_count,
    is_flag,
    is_json_object,
    is_number,
    is_text,
    to_snake,
)
from trioeval.providers.http.adapter import Adapter
from trioeval.providers.http.replies import FILTERED, count, field
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.vendors.chat import (
    CALL_KEYS,
    DEFAULTS,
    ENTRY_KEYS,
    read_finish_reason,
    read_guardrails,
    read_log_probs,
    read_usage,
)
from trioeval.usage import Usage

FLOAT_BYTES = 4
"""Size of a number in a base64 vector."""

PASSTHROUGH = Key(
    "passthrough",
    "an object without input",
    lambda value: is_json_object(value) and "input" not in value,
)
"""Additional fields of the body; the input is the prompt."""


_BY_NAME = {key.name: key for key in CALL_KEYS}
_OF_TEXTS = (
    *("temperature", "max_tokens", "top_p", "presence_penalty", "frequency_penalty", "seed"),
    *("stop", "n", "user"),
)
"""Keys of chat completions that completions have too."""


def _is_number_of_alternatives(value: Any) -> bool:
    return value == 0 or is_count(value)


def _is_text_passthrough(value: Any) -> bool:
    return is_json_object(value) and not value.get("stream") and "prompt" not in value


_OF_CHATS = OtherKeys(not_here=frozenset(to_snake(key.name) for key in (*CALL_KEYS, *ENTRY_KEYS)))
"""Keys of chat completions would have no effect on a vector or on flags."""


class EmbeddingAdapter(Adapter):
    """Embeddings of texts. A request has one text; waiting requests are not combined."""

    call_keys = (
        Key("dimensions", "a whole number of at least 1", is_count),
        Key("encoding_format", '"float" or "base64"', lambda value: value in ("float", "base64")),
        Key("user", "text", is_text),
        PASSTHROUGH,
    )
    other_keys = _OF_CHATS
    path = "embeddings"
    returns = "embedding"
    show_thinking = False

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without its input."""
        named = {name: value for name, value in self.given.items() if value is not None}
        passthrough = named.pop("passthrough", {})
        return {"model": self.endpoint.model, **named, **passthrough}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the input."""
        return {"input": prompt}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the vector as a list of numbers."""
        found = data.get("data")
        if found == []:
            raise self.failure("empty_reply", "the reply has no vector", reply)
        vector = read_vector(field(found[0] if isinstance(found, list) else None, "embedding"))
        if vector is None:
            raise self.failure("malformed_reply", "the reply has no vector", reply)
        return Reply(output=vector, usage=self.usage(data))

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        prompt, total = count(data, "usage", "prompt_tokens"), count(data, "usage", "total_tokens")
        return Usage(prompt=prompt, total=total)

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the prompt: a vector has no tokens."""
        prompt = usage.total if usage.prompt is None else usage.prompt
        return super().cost(Usage(prompt=prompt, completion=0), data)


def read_vector(value: Any) -> list[float] | None:
    """Return the numbers of a vector in either form; None if it is invalid.

    Args:
        value: A list of numbers, or the base64 text of little-endian 32-bit floats.

    Example:
        >>> read_vector([1, 0.5]), read_vector("AACAPwAAAD8="), read_vector("AACA")
        ([1.0, 0.5], [1.0, 0.5], None)
    """
    numbers: Sequence[float]
    if isinstance(value, str):
        numbers = _decode(value)
    elif isinstance(value, list) and all(type(one) in (float, int) for one in value):
        numbers = value
    else:
        return None
    try:
        vector = list(map(float, numbers))
    except OverflowError:
        return None
    return vector if vector and all(map(math.isfinite, vector)) else None


def _decode(text: str) -> tuple[float, ...]:
    try:
        packed = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return ()
    size, rest = divmod(len(packed), FLOAT_BYTES)
    return () if rest else struct.unpack(f"<{size}f", packed)


class ModerationAdapter(Adapter):
    """Moderation of texts."""

    call_keys = (PASSTHROUGH,)
    other_keys = _OF_CHATS
    path = "moderations"
    returns = "moderation"
    show_thinking = False

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the model and the passthrough of all layers."""
        body = {"model": self.endpoint.model}
        for layer in self.layers:
            body |= layer.get("passthrough") or {}
        return body

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the input."""
        return {"input": prompt}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return `flagged`, `categories` and `category_scores`.

        The categories that apply are in `metadata["flags"]`, the most confident first.
        """
        results = data.get("results")
        if results == []:
            raise self.failure("empty_reply", "the reply has no result", reply)
        result = results[0] if isinstance(results, list) else None
        flagged = field(result, "flagged")
        if not isinstance(flagged, bool):
            raise self.failure("malformed_reply", "the reply has no result", reply)
        categories = _members(result, "categories", is_flag)
        scores = _members(result, "category_scores", is_number)
        flags = read_flags(categories, scores)
        reason = ", ".join(flag["code"] for flag in flags) or None
        return Reply(
            output={"flagged": flagged, "categories": categories, "category_scores": scores},
            guardrails=Guardrails(flagged=flagged, flagged_input=flagged, reason=reason),
            metadata={"flags": flags},
        )


def read_flags(categories: Mapping[str, bool], scores: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the categories that apply, each with the service's confidence, the most confident first.

    Example:
        >>> read_flags({"hate": False, "self-harm/intent": True}, {"self-harm/intent": 0.9})
        [{'code': 'self-harm/intent', 'description': 'self-harm: intent', 'confidence': 0.9}]
    """
    flags = [
        {"code": code, "description": code.replace("/", ": "), "confidence": scores.get(code)}
        for code, holds in categories.items()
        if holds
    ]
    return sorted(flags, key=lambda flag: -(flag["confidence"] or 0))


class CompletionAdapter(Adapter):
    """Completions of a text: the API before chat completions, which has no messages."""

    call_keys = (
        *(_BY_NAME[name] for name in _OF_TEXTS),
        Key("logprobs", "a whole number of at least 0", _is_number_of_alternatives),
        Key("passthrough", "an object without prompt or stream", _is_text_passthrough),
        _BY_NAME["omitDefaults"],
    )
    default_keys = tuple(_BY_NAME[name] for name in _OF_TEXTS)
    other_keys = OtherKeys(not_here=frozenset({"metrics"}))
    path = "completions"
    holder = "the choice"
    show_thinking = False

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without its prompt."""
        values = {**({} if self.given.get("omit_defaults") else DEFAULTS), **self.defaults}
        values |= {
            name: self.given[name] for name in (*_OF_TEXTS, "logprobs") if name in self.given
        }
        renames = self.endpoint.service.renames
        sent = {renames.get(name, name): one for name, one in values.items() if one is not None}
        return {"model": self.endpoint.model, **sent, **(self.given.get("passthrough") or {})}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the prompt."""
        return {"prompt": prompt}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the text of the first choice."""
        choices = data.get("choices")
        if choices == []:
            raise self.failure("empty_reply", "the reply has no choice", reply)
        choice = choices[0] if isinstance(choices, list) else None
        text = field(choice, "text")
        if not isinstance(text, str):
            raise self.failure("malformed_reply", "the reply is not a completion", reply)
        reason = read_finish_reason(choice)
        return Reply(
            output=text,
            text=text,
            refusal=FILTERED if reason == "content_filter" else None,
            usage=read_usage(data),
            finish_reason=reason,
            guardrails=read_guardrails(data, choice, reason),
            log_probs=read_log_probs(choice),
        )

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return read_usage(data)


def _members(result: Any, name: str, check: Callable[[Any], bool]) -> dict[str, Any]:
    """Return an object's members of the right type; older models leave some null."""
    found = field(result, name)
    if not isinstance(found, dict):
        return {}
    return {member: value for member, value in found.items() if check(value)}
