# Separate from `providers.fake.replies`: together they exceed 600 lines.
"""The images API of the fake provider: a small picture whose colours follow from the reply's text."""

import hashlib
import struct
import zlib
from binascii import b2a_base64
from typing import Any

SIDE = 32
"""Width and height in pixels."""


def picture(text: str) -> bytes:
    r"""Return a PNG of two colours; equal texts have equal pictures.

    Example:
        >>> picture("a cat")[:8], picture("a cat") == picture("a dog")
        (b'\x89PNG\r\n\x1a\n', False)
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    upper, lower = (b"\0" + SIDE * digest[start : start + 3] for start in (0, 3))
    lines = (SIDE // 2) * upper + (SIDE - SIDE // 2) * lower
    form = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = (b"IHDR", form), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def images_json(text: str, count: int, usage: dict[str, Any], *, now: float) -> dict[str, Any]:
    """Return the body of a reply of the images API.

    Args:
        text: The text whose picture is sent; each further picture has its number.
        count: The number of pictures.
        usage: The usage of a chat completion.
        now: Seconds, for `created`.
    """
    texts = [text, *(f"{text} {number}" for number in range(2, count + 1))]
    images = [{"b64_json": b2a_base64(picture(one), newline=False).decode()} for one in texts]
    tokens = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}
    return {
        "created": int(now),
        "data": images,
        "usage": {**tokens, "total_tokens": usage["total_tokens"]},
    }


def _chunk(name: bytes, data: bytes) -> bytes:
    checked = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checked
