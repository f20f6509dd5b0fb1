"""Images, audio and video in replies: from the bytes of a service to files named by their content.

The type of a file is read from its first bytes: what a service declares may be wrong, and no name or type of
a service reaches a file name. Formats that are not in the table are refused.
"""

import binascii
import contextlib
import hashlib
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import ProviderError, UsageError
from trioeval.providers.base import BASE64_MARK, DATA_MARK, MEDIA_SCHEME, Media, Request

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a reply with media in bytes if the config sets none."""

TYPES: Mapping[str, str] = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "video/mp4": "mp4",
    "video/webm": "webm",
}
"""File endings by media type. None of these formats is a document that a browser runs."""

KINDS = ("image", "audio", "video")

_ANY_FILE = re.compile(r"[0-9a-f]{64}\.(?:" + "|".join(TYPES.values()) + ")")
_URI = re.compile(re.escape(MEDIA_SCHEME) + f"({_ANY_FILE.pattern})")
_STARTS: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
    b"ID3": "audio/mpeg",
    b"\x1aE\xdf\xa3": "video/webm",
}
_FORMATS: Mapping[bytes, str] = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_AUDIO_BRANDS = frozenset({b"M4A ", b"M4B "})
_SYNC_AND_LAYER, _AAC = 0xF6, 0xF0
_MPEG, _MPEG_LAYERS = 0xE6, frozenset({0xE2, 0xE4, 0xE6})
_RATE = re.compile(r"rate=(\d{4,6})")
_G711: Mapping[str, int] = {"g711_alaw": 6, "g711_ulaw": 7}
"""Formats of telephony, and their tags in a WAV file."""
PCM_RATE = 24_000
"""Samples a second of audio without a header, if the service does not state them."""


def media_type(data: bytes) -> str | None:
    r"""Return the media type of a file by its first bytes; None if the format is not supported.

    Example:
        >>> media_type(b"GIF89a..."), media_type(b"<svg xmlns=")
        ('image/gif', None)
    """
    for start, found in _STARTS.items():
        if data.startswith(start):
            return found
    if data[:4] == b"RIFF":
        return _FORMATS.get(data[8:12])
    if data[4:8] == b"ftyp":
        return "audio/mp4" if data[8:12] in _AUDIO_BRANDS else "video/mp4"
    if data[:1] == b"\xff" and len(data) > 1:  # frames without a header of the file
        if data[1] & _SYNC_AND_LAYER == _AAC:
            return "audio/aac"
        if data[1] & _MPEG in _MPEG_LAYERS:
            return "audio/mpeg"
    return None


def read_media(data: bytes) -> Media:
    """Return bytes as media.

    Raises:
        UsageError: The format is not supported.

    Example:
        >>> read_media(b"GIF89a...").mime_type
        'image/gif'
    """
    found = media_type(data)
    if found is None:
        supported = ", ".join(TYPES)
        raise UsageError(
            f"{_beginning(data)}: not an image, audio or video in a supported format ({supported})"
        )
    return Media(found, hashlib.sha256(data).hexdigest(), len(data), data=data)


def decode_media(encoded: str, declared: str = "") -> Media:
    """Return media that a service sends in base64, perhaps as a `data:` URI.

    Args:
        encoded: The text.
        declared: The media type or format that the service states. It matters only for audio without a header
            (`pcm16`, `g711_ulaw`, `audio/L16;rate=24000`), which becomes a WAV file.

    Raises:
        ValueError: It is not base64, or not in a supported format; the text states which.
    """
    if encoded.startswith("data:"):
        declared, _, encoded = encoded.removeprefix("data:").partition(";base64,")
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not valid base64: {error}") from None
    if not data:
        raise ValueError("it is empty")
    declared = declared.lower()
    if declared in _G711:
        data = _with_header(data, 8_000, bits=8, tag=_G711[declared])
    elif "pcm" in declared or declared.startswith("audio/l16"):
        rate = _RATE.search(declared)
        data = pcm_to_wav(data, int(rate[1]) if rate else PCM_RATE)
    try:
        return read_media(data)
    except UsageError as error:
        raise ValueError(str(error)) from None


def take_media(holder: dict[str, Any], key: str, declared: str = "") -> Media:
    """Return the media in a field of a reply, and leave its URI there in place of the bytes.

    Raises:
        ValueError: See `decode_media`; the field is unchanged.
    """
    found = decode_media(holder[key], declared)
    holder[key] = found.uri
    return found


def pcm_to_wav(samples: bytes, rate: int) -> bytes:
    """Return 16-bit samples of one channel with the header of a WAV file."""
    return _with_header(samples[: len(samples) // 2 * 2], rate, bits=16, tag=1)


def _with_header(samples: bytes, rate: int, *, bits: int, tag: int) -> bytes:
    """Return samples of one channel with the header of a WAV file."""
    frame = bits // 8
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, tag, 1, rate, frame * rate, frame, bits)
    padding = b"\0" * (len(samples) % 2)
    body = form + struct.pack("<4sI", b"data", len(samples)) + samples + padding
    return struct.pack("<4sI4s", b"RIFF", 4 + len(body), b"WAVE") + body


def is_file_name(name: str) -> bool:
    """Return whether a text is the name of a file of media: a digest and a known ending."""
    return _ANY_FILE.fullmatch(name) is not None


def file_names(text: str) -> list[str]:
    """Return the names of the files whose URIs a text contains, each once."""
    return list(dict.fromkeys(_URI.findall(text)))


def type_of_file(name: str) -> str:
    """Return the media type of a file with a valid name."""
    ending = name.rpartition(".")[2]
    return next(kind for kind, own in TYPES.items() if own == ending)


def from_json(facts: Mapping[str, Any]) -> Media:
    """Return media from its JSON data; its bytes are elsewhere.

    Raises:
        ValueError: The data is not that of media.
    """
    match facts:
        case {"mimeType": str(mime), "sha256": str(digest), "bytes": int(size)} if (
            mime in TYPES and is_file_name(f"{digest}.{TYPES[mime]}") and size >= 0
        ):
            return Media(mime, digest, size)
        case _:
            raise ValueError("not valid media")


def valid_media(listed: object) -> tuple[Media, ...]:
    """Return the media in JSON data from anywhere; what is not valid is left out."""
    found = []
    for facts in listed if isinstance(listed, list) else ():
        with contextlib.suppress(ValueError):
            found.append(from_json(facts))
    return tuple(found)


def with_bytes(request: Request) -> Request:
    """Return a request whose prompt has the bytes of its media in place of their marked URIs.

    Raises:
        ProviderError: `bad_request`: a file cannot be read, or is not the one that was stored.
    """
    prompt = request.prompt
    for one in request.media:
        try:
            uri = data_uri(one)
        except (OSError, ValueError) as error:
            raise ProviderError("bad_request", f"media cannot be sent: {error}") from error
        prompt = prompt.replace(one.uri + DATA_MARK, uri)
        prompt = prompt.replace(one.uri + BASE64_MARK, uri.partition(",")[2])
    return attrs.evolve(request, prompt=prompt)


def data_uri(media: Media) -> str:
    """Return media as a `data:` URI.

    Raises:
        OSError: Its file cannot be read.
        ValueError: Its file is not the one that was stored.
    """
    encoded = binascii.b2a_base64(media.read(), newline=False).decode("ascii")
    return f"data:{media.mime_type};base64,{encoded}"


def locate(media: Iterable[Media], folder: Path) -> None:
    """Set the files of media whose bytes are in a folder.

    Raises:
        ValueError: A file is missing, or has another size.
    """
    for one in media:
        path = folder / one.file
        try:
            size = path.stat().st_size
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from error
        if size != one.size:
            raise ValueError(f"{path} has {size} bytes, not {one.size}")
        one.path = path


def _beginning(data: bytes) -> str:
    return f"{len(data)} bytes that begin with {data[:16]!r}"
