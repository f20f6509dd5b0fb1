# Separate from `providers.vendors.openai_realtime`: together they exceed 600 lines.
"""OpenAI Realtime: its prices, and the events of a response, joined to one object. Pure."""

import binascii
import json
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.providers.http.replies import count, field, objects, read_number, text
from trioeval.providers.prices import Price
from trioeval.usage import Usage

# Prices.


@attrs.frozen
class RealtimePrice:
    """US dollars for a million tokens of texts, of audio, and of images in prompts."""

    text: Price
    audio: Price
    image: Price | None = None
    """None if the model takes none."""

    def cost(self, usage: Mapping[str, Any]) -> float | None:
        """Return the cost of the usage in a response; None if it does not separate texts and audio."""
        asked, given = field(usage, "input_token_details"), field(usage, "output_token_details")
        spoken, heard = count(asked, "audio_tokens"), count(given, "audio_tokens")
        prompt, completion = count(usage, "input_tokens"), count(usage, "output_tokens")
        if prompt is None or completion is None or spoken is None or heard is None:
            return None
        seen = count(asked, "image_tokens") or 0
        cached, kinds = count(asked, "cached_tokens") or 0, field(asked, "cached_tokens_details")
        cached_audio = count(kinds, "audio_tokens") or 0
        cached_seen = count(kinds, "image_tokens") or 0
        parts = (
            (
                self.text,
                Usage(
                    prompt=max(0, prompt - spoken - seen),
                    completion=max(0, completion - heard),
                    cached=max(0, cached - cached_audio - cached_seen),
                ),
            ),
            (self.audio, Usage(prompt=spoken, completion=heard, cached=cached_audio)),
            (self.image or self.text, Usage(prompt=seen, completion=0, cached=cached_seen)),
        )
        # Each is known: the prices have no limits, and all counts are given.
        return sum(price.cost(part) or 0.0 for price, part in parts)


_MINI = RealtimePrice(
    Price(input=0.6, output=2.4, cached_input=0.06),
    Price(input=10, output=20, cached_input=0.3),
    Price(input=0.8, output=0, cached_input=0.08),
)
_FULL = RealtimePrice(
    Price(input=4, output=16, cached_input=0.4),
    Price(input=32, output=64, cached_input=0.4),
    Price(input=5, output=0, cached_input=0.5),
)
_SECOND = attrs.evolve(_FULL, text=Price(input=4, output=24, cached_input=0.4))
_PREVIEW = RealtimePrice(
    Price(input=5, output=20, cached_input=2.5),
    Price(input=40, output=80, cached_input=2.5),
)
_FIRST_PREVIEW = attrs.evolve(_PREVIEW, audio=Price(input=100, output=200, cached_input=20))
_MINI_PREVIEW = RealtimePrice(
    Price(input=0.6, output=2.4, cached_input=0.3),
    Price(input=10, output=20, cached_input=0.3),
)
REALTIME_PRICES: Mapping[str, RealtimePrice] = {
    "gpt-realtime": _FULL,
    "gpt-realtime-1.5": _FULL,
    "gpt-realtime-2": _SECOND,
    "gpt-realtime-2.1": _SECOND,
    "gpt-realtime-2.1-mini": _MINI,
    "gpt-realtime-mini": _MINI,
    "gpt-4o-realtime-preview": _PREVIEW,
    "gpt-4o-realtime-preview-2024-10-01": _FIRST_PREVIEW,
    "gpt-4o-mini-realtime-preview": _MINI_PREVIEW,
}
"""List prices by model; a name also covers its dated versions."""


def realtime_price(model: str) -> RealtimePrice | None:
    """Return the list price of a model; None if it is unknown.

    Example:
        >>> realtime_price("gpt-realtime-mini-2025-10-06").text.input, realtime_price("m-1")
        (0.6, None)
    """
    return REALTIME_PRICES.get(model) or REALTIME_PRICES.get(model.partition("-20")[0])


def read_limits(reported: Any) -> dict[str, str]:
    """Return the limits that a session reports, as the headers of other APIs.

    Example:
        >>> read_limits([{"name": "requests", "remaining": 0, "reset_seconds": 1.5}])
        {'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '1.5s'}
    """
    headers: dict[str, str] = {}
    for one in objects({"all": reported}, "all"):
        name, reset = one.get("name"), read_number(one.get("reset_seconds"))
        if name not in ("requests", "tokens"):
            continue
        for fact in ("limit", "remaining"):
            if (amount := count(one, fact)) is not None:
                headers[f"x-ratelimit-{fact}-{name}"] = str(amount)
        if reset is not None and reset >= 0:
            headers[f"x-ratelimit-reset-{name}"] = f"{reset:g}s"
    return headers


# The events of one response.


_TEXTS = frozenset(
    f"response.{what}.delta"
    for what in ("text", "output_text", "audio_transcript", "output_audio_transcript")
)
_AUDIO = frozenset({"response.audio.delta", "response.output_audio.delta"})


@attrs.define(eq=False)
class RealtimeEvents:
    """The events of a session up to the end of its first response, joined to one object."""

    has_begun: bool = False
    """True if a part of the response has arrived."""
    _words: list[str] = attrs.field(factory=list)
    _audio: bytearray = attrs.field(factory=bytearray)
    _items: list[dict[str, Any]] = attrs.field(factory=list)
    _limits: Any = None
    _response: dict[str, Any] | None = None

    def add(self, event: Mapping[str, Any]) -> bool:
        """Take one event; return whether it is the last one.

        Raises:
            ValueError: Its audio is not valid base64.
        """
        kind = text(event, "type") or ""
        if kind in _TEXTS:
            self.has_begun = True
            self._words.append(text(event, "delta") or "")
        elif kind in _AUDIO:
            self.has_begun = True
            part = text(event, "delta") or text(event, "audio") or ""
            self._audio += binascii.a2b_base64(part, strict_mode=bool(part))
        elif kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            self._items.append(event["item"])
        elif kind == "rate_limits.updated":
            self._limits = event.get("rate_limits")
        elif kind == "error":
            self._response = {"error": event.get("error") or event.get("message") or "unknown"}
        elif kind == "response.done":
            response = event.get("response")
            self._response = dict(response) if isinstance(response, dict) else {}
        return self._response is not None

    @property
    def size(self) -> int:
        """Bytes of audio."""
        return len(self._audio)

    def join(self) -> bytes:
        """Return the response as JSON; its items have the audio, and texts of events if they have none."""
        response = self._response or {}
        if "error" in response:
            return json.dumps(response).encode()
        items = objects(response, "output") or self._items
        parts = [part for item in items for part in objects(item, "content")]
        if self._words and not any(map(words_of, parts)):
            parts.append({"type": "output_text", "text": "".join(self._words)})
            items = [*items, {"type": "message", "role": "assistant", "content": parts[-1:]}]
        if self._audio:
            spoken = binascii.b2a_base64(self._audio, newline=False).decode()
            kinds = ("output_audio", "audio")
            place = next((part for part in parts if part.get("type") in kinds), None)
            if place is None:
                place = {"type": "output_audio"}
                items = [*items, {"type": "message", "role": "assistant", "content": [place]}]
            place["audio"] = spoken
        found = {**response, "output": items}
        if self._limits is not None:
            found["rate_limits"] = self._limits
        return json.dumps(found).encode()


def words_of(part: Mapping[str, Any]) -> str | None:
    """Return the text of a part, or the transcript of its audio."""
    return text(part, "text") or text(part, "transcript")
