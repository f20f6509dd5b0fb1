"""Gemini's images and audio: media in the parts of generateContent, and Imagen's predictions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trioeval.providers.base import MEDIA_SCHEME, Media, Reply
from trioeval.providers.config import Key, is_count, is_flag, is_json_object, is_text
from trioeval.providers.http.replies import count, field, objects, text
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.media import KINDS, take_media
from trioeval.providers.vendors.media_adapter import MediaAdapter
from trioeval.usage import Usage

INLINE = ("inlineData", "inline_data")
"""The names of the field of a part with data."""


def take_parts(parts: Sequence[dict[str, Any]]) -> tuple[Media, ...]:
    """Return the media in the parts of a reply; their URIs take the place of their bytes.

    Data of other types, such as documents, stays as it is.

    Raises:
        ValueError: See `trioeval.providers.media.take_media`.
    """
    found = []
    for part in parts:
        for name in INLINE:
            inline = part.get(name)
            declared = text(inline, "mimeType") or text(inline, "mime_type") or ""
            if declared.partition("/")[0] in KINDS and text(inline, "data"):
                found.append(take_media(part[name], "data", declared))
    return tuple(found)


def media_uri(part: Mapping[str, Any]) -> str | None:
    """Return the URI that `take_parts` left in a part; None for any other part."""
    for name in INLINE:
        uri = text(part.get(name), "data") or ""
        if uri.startswith(MEDIA_SCHEME):
            return uri
    return None


# Prices in US dollars: of one image by its size, and of a million tokens of the prompt and of text. The price
# of an image includes its tokens.

_FLASH = {"0.5K": 0.045, "1K": 0.067, "2K": 0.101, "4K": 0.151}
_PRO = {"1K": 0.134, "2K": 0.134, "4K": 0.24}
IMAGE_PRICES: Mapping[str, tuple[Mapping[str, float], float, float]] = {
    "gemini-2.5-flash-image": ({"": 0.039}, 0.3, 0.0),
    "gemini-2.5-flash-preview-image-generation": ({"": 0.039}, 0.3, 0.0),
    "gemini-3.1-flash-lite-image": ({"": 0.0336}, 0.25, 1.5),
    "gemini-3.1-flash-image": (_FLASH, 0.5, 3.0),
    "gemini-3.1-flash-image-preview": (_FLASH, 0.5, 3.0),
    "gemini-3-pro-image": (_PRO, 2.0, 12.0),
    "gemini-3-pro-image-preview": (_PRO, 2.0, 12.0),
}
_PER = 1_000_000


def makes_images(model: str) -> bool:
    """Return whether a model of generateContent returns images."""
    return "-image" in model


def image_cost(
    model: str, images: int, body: Mapping[str, Any], data: Mapping[str, Any]
) -> float | None:
    """Return the cost of a reply of a model that makes images; None if no price is known.

    Args:
        model: The model.
        images: The number of images in the reply.
        body: The body of the request.
        data: The body of the reply.

    Example:
        >>> image_cost("gemini-2.5-flash-image", 1, {}, {"usageMetadata": {"promptTokenCount": 10}})
        0.039003
    """
    if model not in IMAGE_PRICES:
        return None
    prices, prompt_price, text_price = IMAGE_PRICES[model]
    size = text(body, "generationConfig", "imageConfig", "imageSize") or "1K"
    size = {"512PX": "0.5K"}.get(size.upper(), size.upper())
    price = prices.get("", prices.get(size))
    if price is None:
        return None
    usage = field(data, "usageMetadata")
    details = objects(usage, "candidatesTokensDetails")
    words = sum(
        count(one, "tokenCount") or 0 for one in details if one.get("modality") == "TEXT"
    ) + (count(usage, "thoughtsTokenCount") or 0)
    prompt = count(usage, "promptTokenCount") or 0
    return images * price + (prompt * prompt_price + words * text_price) / _PER


IMAGEN_PRICES: Mapping[str, float] = {
    "imagen-4.0-ultra-generate-001": 0.06,
    "imagen-4.0-generate-001": 0.04,
    "imagen-4.0-fast-generate-001": 0.02,
    "imagen-4.0-ultra-generate-preview-06-06": 0.06,
    "imagen-4.0-generate-preview-06-06": 0.04,
    "imagen-4.0-fast-generate-preview-06-06": 0.02,
    "imagen-3.0-generate-002": 0.04,
    "imagen-3.0-generate-001": 0.04,
    "imagen-3.0-fast-generate-001": 0.02,
}
"""US dollars for one image."""


def image_model(model: str) -> str:
    """Return the name of a model after `image:`, where that of Imagen may be short.

    Example:
        >>> image_model("4.0-generate-001"), image_model("gemini-2.5-flash-image")
        ('imagen-4.0-generate-001', 'gemini-2.5-flash-image')
    """
    return model if model.startswith(("imagen-", "gemini-")) else f"imagen-{model}"


class ImagenAdapter(MediaAdapter):
    """Imagen's predictions: one prompt, one or several images."""

    safety: ClassVar[str] = "block_low_and_above"
    """The default of `safetyFilterLevel`."""

    call_keys = (
        Key("n", "a whole number of at least 1", is_count),
        Key("aspectRatio", "text, such as 16:9", is_text),
        Key("personGeneration", "text", is_text),
        Key("safetyFilterLevel", "text", is_text),
        Key("addWatermark", "true or false", is_flag),
        Key("seed", "a whole number of at least 1", is_count),
        Key("passthrough", "an object", is_json_object),
    )

    @property
    def url(self) -> str:
        """The URL of the model's method."""
        return self.endpoint.url(f"models/{self.endpoint.model}:predict")

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the parameters, which are an object of the body."""
        given = self.named
        parameters = {
            "sampleCount": given.get("n", 1),
            "aspectRatio": given.get("aspect_ratio", "1:1"),
            "personGeneration": given.get("person_generation", "allow_all"),
            "safetySetting": given.get("safety_filter_level", self.safety),
        }
        if "add_watermark" in given:
            parameters["addWatermark"] = given["add_watermark"]
        if "seed" in given:
            parameters["seed"] = given["seed"]
        return {"parameters": parameters, **self.passthrough}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the prompt as the only instance."""
        return {"instances": [{"prompt": prompt.strip()}]}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the URIs of the images as the output, one a line."""
        found = [
            inner if isinstance(inner := one.get("image"), dict) else one
            for one in objects(data, "predictions")
        ]
        images = [one for one in found if text(one, "bytesBase64Encoded")]
        if not images:
            reasons = [one["raiFilteredReason"] for one in found if text(one, "raiFilteredReason")]
            if reasons:
                return Reply(refusal=reasons[0], finish_reason="content_filter")
            raise self.failure("empty_reply", "the reply has no image", reply)
        try:
            media = tuple(take_media(one, "bytesBase64Encoded") for one in images)
        except ValueError as error:
            raise self.unusable(error, reply) from None
        return Reply(output="\n".join(one.uri for one in media), media=media)

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the images."""
        if self.endpoint.price is not None:
            return super().cost(usage, data)
        price = IMAGEN_PRICES.get(self.endpoint.model)
        return None if price is None else price * len(objects(data, "predictions"))


class VertexImagenAdapter(ImagenAdapter):
    """Imagen's predictions at Vertex."""

    safety = "block_some"
