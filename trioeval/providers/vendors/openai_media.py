# Separate from `providers.vendors.openai`: one module for each API of the vendor.
"""OpenAI images, speech and video: requests to bodies, replies to media.

A reply is bytes: images in base64, speech as the body, a video as a job that is polled and downloaded. URLs
of other hosts are never fetched: images are requested in base64.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import attrs

from trioeval.errors import Problem, ProviderError, UsageError
from trioeval.providers.base import Media, Reply, Request
from trioeval.providers.config import (
    Key,
    config_path,
    is_count,
    is_integer,
    is_json_object,
    is_number,
    is_text,
    show,
)
from trioeval.providers.http.adapter import HttpProvider
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.http.polling import KEPT_KEYS, Polling, PollingProvider, get
from trioeval.providers.http.replies import count, field, is_success, objects, text
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.providers.media import PCM_RATE, pcm_to_wav, read_media, take_media
from trioeval.providers.vendors.media_adapter import MediaAdapter
from trioeval.usage import Usage

# Images. Prices of one image in US dollars, for services that report no tokens or whose tokens have no price:
# by the beginning of the model's name, then by quality and size.

_SQUARE, _TALL, _WIDE = "1024x1024", "1024x1536", "1536x1024"


def _by_quality(**prices: tuple[float, float]) -> dict[tuple[str, str], float]:
    """Return prices by quality and size, from those of a square and of a longer image."""
    return {
        (quality, size): price
        for quality, (square, long) in prices.items()
        for size, price in ((_SQUARE, square), (_TALL, long), (_WIDE, long))
    }


IMAGE_PRICES: Mapping[str, Mapping[tuple[str, str], float]] = {
    "dall-e-2": {("", "256x256"): 0.016, ("", "512x512"): 0.018, ("", _SQUARE): 0.02},
    "dall-e-3": {
        ("standard", _SQUARE): 0.04,
        ("standard", "1024x1792"): 0.08,
        ("standard", "1792x1024"): 0.08,
        ("hd", _SQUARE): 0.08,
        ("hd", "1024x1792"): 0.12,
        ("hd", "1792x1024"): 0.12,
    },
    "gpt-image-1-mini": _by_quality(low=(0.005, 0.006), medium=(0.011, 0.015), high=(0.036, 0.052)),
    "gpt-image-1.5": _by_quality(low=(0.009, 0.013), medium=(0.034, 0.05), high=(0.133, 0.2)),
    "chatgpt-image-latest": _by_quality(
        low=(0.009, 0.013), medium=(0.034, 0.05), high=(0.133, 0.2)
    ),
    "gpt-image-1": _by_quality(low=(0.011, 0.016), medium=(0.042, 0.063), high=(0.167, 0.25)),
    "gpt-image-2": _by_quality(low=(0.006, 0.005), medium=(0.053, 0.041), high=(0.211, 0.165)),
}
"""Prices of one image, in the order in which names are compared."""

_GPT_IMAGE = ("gpt-image-", "chatgpt-image-")
_ONE_ONLY = "dall-e-3"
_MOST_IMAGES = 10
_DEFAULT_QUALITY = {"dall-e-2": "", "dall-e-3": "standard"}


def image_price(model: str, quality: str | None, size: str) -> float | None:
    """Return the price of one image; None if it is unknown.

    Example:
        >>> image_price("dall-e-3", "hd", "1792x1024"), image_price("gpt-image-1", "auto", "auto")
        (0.12, None)
    """
    for name, prices in IMAGE_PRICES.items():
        if model == name or model.startswith(f"{name}-20"):
            return prices.get((quality or _DEFAULT_QUALITY.get(name, "auto"), size))
    return None


class ImageAdapter(MediaAdapter):
    """The images API: one prompt, one or several images."""

    call_keys = (
        Key("n", f"a whole number from 1 to {_MOST_IMAGES}", is_count),
        Key("size", "text, such as 1024x1024", is_text),
        Key("quality", "text", is_text),
        Key("style", "text", is_text),
        Key("background", "text", is_text),
        Key("output_format", '"png", "jpeg" or "webp"', lambda one: one in ("png", "jpeg", "webp")),
        Key(
            "output_compression",
            "a whole number from 0 to 100",
            lambda one: is_integer(one) and 0 <= one <= 100,  # noqa: PLR2004
        ),
        Key("moderation", "text", is_text),
        Key("response_format", '"url" or "b64_json"', lambda one: one in ("url", "b64_json")),
        Key("operation", '"generation"', lambda one: one == "generation"),
        Key("user", "text", is_text),
        Key("passthrough", "an object without prompt", lambda one: _has_no(one, "prompt")),
    )
    path = "images/generations"

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - the same for every service
        layers: Sequence[Mapping[str, Any]],
    ) -> list[Problem]:
        """Return a problem of the number of images."""
        number = layers[-1].get("n")
        if number is None or number <= _MOST_IMAGES:
            return []
        fault = f"must be a whole number from 1 to {_MOST_IMAGES}, got {show(number)}"
        return [Problem(config_path("n"), fault)]

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without its prompt."""
        named, model = self.named, self.endpoint.model
        named.pop("operation", None)
        named.pop("response_format", None)
        if not model.startswith(_GPT_IMAGE):  # those always return base64, and refuse the key
            named["response_format"] = "b64_json"
        return {"model": model, "n": 1, "size": _SQUARE, **named, **self.passthrough}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the prompt."""
        return {"prompt": prompt}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the URIs of the images as the output, one a line."""
        found = objects(data, "data")
        if data.get("data") == []:
            raise self.failure("empty_reply", "the reply has no image", reply)
        media = tuple(self._image(one, reply) for one in found)
        if not media:
            raise self.failure("malformed_reply", "the reply has no image", reply)
        revised = [one["revised_prompt"] for one in found if text(one, "revised_prompt")]
        return Reply(
            output="\n".join(one.uri for one in media),
            media=media,
            usage=self.usage(data),
            metadata={"revisedPrompts": revised} if revised else {},
        )

    def _image(self, one: dict[str, Any], reply: HttpReply) -> Media:
        if text(one, "b64_json") is None:
            if text(one, "url") is None:
                raise self.failure("malformed_reply", "the reply has no image", reply)
            fault = "the service returned a URL instead of the requested base64 data"
            raise self.failure("malformed_reply", fault, reply, advice="URLs are not fetched")
        try:
            return take_media(one, "b64_json")
        except ValueError as error:
            raise self.unusable(error, reply) from None

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return _usage(data)

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the tokens if their price is known, else that of the images."""
        by_tokens = super().cost(usage, data)
        if by_tokens is not None:
            return by_tokens
        body = self.body
        price = image_price(self.endpoint.model, body.get("quality"), str(body["size"]))
        return None if price is None else price * len(objects(data, "data"))


def _usage(data: Mapping[str, Any]) -> Usage:
    reported = field(data, "usage")
    prompt = count(reported, "input_tokens")
    completion = count(reported, "output_tokens")
    return Usage(
        prompt=count(reported, "prompt_tokens") if prompt is None else prompt,
        completion=count(reported, "completion_tokens") if completion is None else completion,
        total=count(reported, "total_tokens"),
    )


def _has_no(value: Any, name: str) -> bool:
    return is_json_object(value) and name not in value


# Speech.

_SPEEDS = (0.25, 4.0)
SPEECH_PRICES: Mapping[str, float] = {"tts-1": 15e-6, "tts-1-hd": 30e-6}
"""US dollars for each character."""
_FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
LONGEST_SPEECH = 4096
"""Maximum number of characters of a prompt."""


def _is_voice(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


class SpeechAdapter(MediaAdapter):
    """The speech API: the prompt, spoken."""

    call_keys = (
        Key("voice", "text or an object", _is_voice),
        Key("instructions", "text", is_text),
        Key("language", "text", is_text),
        Key("response_format", " or ".join(_FORMATS), lambda one: one in _FORMATS),
        Key("format", " or ".join(_FORMATS), lambda one: one in _FORMATS),
        Key(
            "speed",
            "a number from {} to {}".format(*_SPEEDS),
            lambda one: is_number(one) and _SPEEDS[0] <= one <= _SPEEDS[1],
        ),
        Key("passthrough", "an object without input", lambda one: _has_no(one, "input")),
    )
    path = "audio/speech"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without its input."""
        named = self.named
        form = named.pop("format", None)
        if form is not None:
            named.setdefault("response_format", form)
        return {"model": self.endpoint.model, "voice": "alloy", **named, **self.passthrough}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the input."""
        if len(prompt) > LONGEST_SPEECH:
            raise ProviderError(
                "bad_request",
                f"the prompt has {len(prompt)} characters, speech at most {LONGEST_SPEECH}",
            )
        return {"input": prompt}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:  # noqa: ARG002 - no data
        """Return the URI of the audio as the output."""
        body = reply.body
        if not body:
            raise self.failure("empty_reply", "the reply has no audio", reply)
        if self.body.get("response_format") == "pcm":
            body = pcm_to_wav(body, PCM_RATE)
        try:
            media = read_media(body)
        except UsageError as error:
            raise self.unusable(error, reply) from None
        return Reply(output=media.uri, media=(media,))

    def _parse(self, reply: HttpReply) -> Reply:
        if not is_success(reply):
            return self.fail(reply, {})
        return self._completed(self.read({}, reply), reply, {})

    def connect(self, client: HttpClient) -> HttpProvider:
        """Return a provider that also knows the price of characters."""
        return SpeechProvider(self, client)


class SpeechProvider(HttpProvider):
    """A provider of speech; the service charges for the characters of the prompt."""

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request; see `HttpProvider`."""
        reply = await super().__call__(request)
        price = SPEECH_PRICES.get(self.adapter.endpoint.model.removesuffix("-1106"))
        if price is None or reply.cost is not None or reply.is_refusal:
            return reply
        return attrs.evolve(reply, cost=len(request.prompt) * price)


# Video: a job that is created, polled until it has ended, and downloaded from the same host.


@attrs.frozen
class VideoPolling(Polling):
    """Jobs of the videos API, whose videos have their own address."""

    def downloads(self, endpoint: Endpoint, answer: Reply) -> Sequence[HttpRequest]:
        """Return the request for the video."""
        return (get(endpoint, f"{self.path}/{quote(str(answer.raw['id']), safe='')}/content"),)


JOBS = VideoPolling("video", "videos", frozenset({"queued", "in_progress"}), is_kept=True)
_SECONDS = (4, 8, 12, 16, 20)
_SECOND_PRICES: Mapping[str, Mapping[str, float]] = {
    "sora-2-pro": {
        "1280x720": 0.3,
        "720x1280": 0.3,
        "1792x1024": 0.5,
        "1024x1792": 0.5,
        "1920x1080": 0.7,
        "1080x1920": 0.7,
    },
    "sora-2": {"1280x720": 0.1, "720x1280": 0.1},
}


class VideoAdapter(MediaAdapter):
    """The videos API: one prompt, one job, one video."""

    call_keys = (
        Key("size", "text, such as 1280x720", is_text),
        Key("seconds", "4, 8, 12, 16 or 20", lambda one: is_integer(one) and one in _SECONDS),
        Key("passthrough", "an object without prompt", lambda one: _has_no(one, "prompt")),
    )
    entry_keys = KEPT_KEYS
    keeps_jobs = True
    path = "videos"

    def connect(self, client: HttpClient) -> HttpProvider:
        """Return a provider that polls jobs."""
        return PollingProvider(self, client, JOBS)

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without its prompt."""
        given = self.named
        body = {
            "model": self.endpoint.model,
            "size": given.get("size", "1280x720"),
            "seconds": str(given.get("seconds", 8)),
        }
        return {**body, **self.passthrough}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text unchanged as the prompt."""
        return {"prompt": prompt}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the finished job without its video; the provider adds that."""
        if text(data, "id") is None:
            raise self.failure("malformed_reply", "the reply is not a video job", reply)
        if text(data, "status") != "completed":
            raise self.failure("server", f"the video ended as {text(data, 'status')}", reply)
        kept = {name: data.get(name) for name in ("size", "seconds")}
        return Reply(output="", metadata={name: one for name, one in kept.items() if one})

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:  # noqa: ARG002 - no tokens
        """Return the cost of the seconds of the video."""
        name = "sora-2-pro" if self.endpoint.model.startswith("sora-2-pro") else "sora-2"
        if not self.endpoint.model.startswith(name):
            return None
        size = text(data, "size") or self.body["size"]
        price = _SECOND_PRICES[name].get(size)
        seconds = str(data.get("seconds") or self.body["seconds"])
        return price * int(seconds) if price is not None and seconds.isdecimal() else None
