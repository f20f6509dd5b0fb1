# Separate from `providers.fake.replies`: together they exceed 600 lines.
"""The media of the fake provider: small pictures, tones and videos that follow from the reply's text."""

import hashlib
import math
import struct
import zlib
from binascii import b2a_base64
from typing import Any

import attrs

from trioeval.providers.fake.requests import ModelRequest
from trioeval.providers.media import PCM_RATE, pcm_to_wav

SIDE = 32
"""Width and height in pixels."""


def picture(text: str) -> bytes:
    r"""Return a PNG of two colours; equal texts have equal pictures.

    Example:
        >>> picture("a cat")[:8], picture("a cat") == picture("a dog")
        (b'\x89PNG\r\n\x1a\n', False)
    """
    digest = _digest(text)
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


# Speech: a short tone.


_TONE_SECONDS = 0.1
_LOWEST, _TONES = 220, 660
_LOUDNESS = 8000


def speech(text: str, form: str | None = None) -> tuple[bytes, str]:
    """Return a tone whose pitch follows from a text, and its media type: WAV, or samples for `pcm`.

    Example:
        >>> speech("a cat")[0][:4], speech("a cat", "pcm")[1]
        (b'RIFF', 'audio/pcm')
    """
    pitch = _LOWEST + int.from_bytes(_digest(text)[:2], "big") % _TONES
    steps = range(int(_TONE_SECONDS * PCM_RATE))
    heights = [round(_LOUDNESS * math.sin(math.tau * pitch * step / PCM_RATE)) for step in steps]
    samples = struct.pack(f"<{len(heights)}h", *heights)
    return (samples, "audio/pcm") if form == "pcm" else (pcm_to_wav(samples, PCM_RATE), "audio/wav")


# Videos: jobs that are in progress at the first look, and completed at the second.


MOST_VIDEOS = 1000
"""Maximum number of stored jobs; older ones are forgotten."""


def video(text: str) -> bytes:
    """Return the beginning of an MP4 file, without frames, whose bytes follow from a text.

    Example:
        >>> video("a cat")[4:12], video("a cat") == video("a dog")
        (b'ftypisom', False)
    """
    kind = struct.pack(">I4s4sI4s", 20, b"ftyp", b"isom", 512, b"isom")
    digest = _digest(text)
    return kind + struct.pack(">I4s", 8 + len(digest), b"free") + digest


@attrs.define(eq=False, repr=False)
class _VideoJob:
    ask: ModelRequest
    text: str
    looks: int = 0


@attrs.define(eq=False, repr=False)
class Videos:
    """The jobs of a fake provider, in the forms of OpenAI and Google."""

    _jobs: dict[str, _VideoJob] = attrs.field(init=False, factory=dict)

    def create(self, ask: ModelRequest, text: str, number: int) -> dict[str, Any]:
        """Return the body of the reply that creates a job.

        Args:
            ask: The request.
            text: The text from which the video follows.
            number: The number of the request, for the id.
        """
        name = f"video_fake{number:08d}"
        self._jobs[name] = job = _VideoJob(ask, text)
        if len(self._jobs) > MOST_VIDEOS:
            del self._jobs[next(iter(self._jobs))]
        return self._status(name, job)

    def look(self, name: str, *, with_bytes: bool = False) -> dict[str, Any] | None:
        """Return the body of a poll; None without such a job.

        Args:
            name: The id, or the name of an operation, of which it is the end.
            with_bytes: Whether a finished operation has the video itself, as at Vertex.
        """
        name = name.rpartition("/")[2]
        job = self._jobs.get(name)
        if job is None:
            return None
        job.looks += 1
        return self._status(name, job, with_bytes=with_bytes)

    def content(self, name: str) -> bytes | None:
        """Return a finished video; None without one."""
        job = self._jobs.get(name)
        return video(job.text) if job is not None and job.looks > 1 else None

    def _status(self, name: str, job: _VideoJob, *, with_bytes: bool = False) -> dict[str, Any]:
        is_done = job.looks > 1
        if job.ask.kind == "video":
            status = "completed" if is_done else "in_progress" if job.looks else "queued"
            kept = {"size": "1280x720", "seconds": "8", **job.ask.fields}
            return {"id": name, "object": "video", "model": job.ask.model, "status": status, **kept}
        operation = {"name": f"models/{job.ask.model}/operations/{name}"}
        if not is_done:
            return operation
        if with_bytes:
            encoded = b2a_base64(video(job.text), newline=False).decode()
            found = {"bytesBase64Encoded": encoded, "mimeType": "video/mp4"}
            return {**operation, "done": True, "response": {"videos": [found]}}
        uri = f"https://fake.invalid/v1beta/files/{name}:download?alt=media"
        samples = {"generatedSamples": [{"video": {"uri": uri}}]}
        return {**operation, "done": True, "response": {"generateVideoResponse": samples}}


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
