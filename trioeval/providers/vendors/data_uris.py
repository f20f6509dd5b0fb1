"""`data:` URIs, in which prompts carry images and documents."""

import re
from typing import Any

import attrs

_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w-]+=[^;,\s]*)*;base64,([A-Za-z0-9+/=_-]+)")


@attrs.frozen
class DataUri:
    """What a `data:` URI holds."""

    media_type: str
    """As `image/png`."""
    data: str = attrs.field(repr=False)
    """In base64."""


def read_data_uri(value: Any) -> DataUri | None:
    """The parts of a text that is a `data:` URI in base64; None if it is not one.

    Example:
        >>> read_data_uri("data:image/png;base64,iVBORw==").media_type
        'image/png'
    """
    found = _DATA_URI.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else DataUri(found[1], found[2])


def read_image_url(part: Any) -> str | None:
    """The URL of a part of a chat message that is an image; None if it is no such part."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None
