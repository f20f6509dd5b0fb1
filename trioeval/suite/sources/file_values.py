"""What a variable `file://…` becomes in a row: the file as text, by its suffix."""

import base64
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.grading.lists import SPACES
from trioeval.grading.text import json_text
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.placing import read_placed
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.prompt_files import read_text

_IMAGES: Mapping[str, str] = {
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".webp": "image/webp",
}
_SOUND_OR_MOTION = frozenset(
    """
    .3gp .3gpp .aac .aif .aifc .aiff .avi .flac .flv .m4a .m4v .mkv .mov .mp3 .mp4 .mpeg .mpg .ogg .opus
    .wav .webm .wma .wmv
    """.split()  # noqa: SIM905 - a list would be twenty lines
)
_BEGINNINGS: Mapping[bytes, str] = {
    b"BM": "image/bmp",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"II*": "image/tiff",
    b"MM\0*": "image/tiff",
    b"\0\0\1\0": "image/x-icon",
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
}


def load_file_value(file: Path, around: Around) -> str:
    """The text that a file is to a template.

    YAML becomes compact JSON, PDF its text, an image a data URI, sound and motion base64, and everything else
    its text without space around it.

    Args:
        file: Absolute.
        around: Its `DISABLE_PDF_AS_TEXT` and `DISABLE_MULTIMEDIA_AS_BASE64` make text of such files as well.

    Raises:
        MistakenError: It cannot be read, or not without something that is not installed.
    """
    suffix = file.suffix.lower()
    if suffix in {".yaml", ".yml"}:
        return json_text(read_placed(file, read_document).data)
    if suffix == ".pdf" and not around.switch("DISABLE_PDF_AS_TEXT"):
        return _pdf_text(file)
    if not around.switch("DISABLE_MULTIMEDIA_AS_BASE64"):
        if suffix in _IMAGES:
            content = _content(file)
            return f"data:{_media_type(content, suffix)};base64,{_base64(content)}"
        if suffix in _SOUND_OR_MOTION:
            return _base64(_content(file))
    return read_text(file).strip(SPACES)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise MistakenError(Mistake(f"cannot be read: {error.strerror}", file=file)) from None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _media_type(content: bytes, suffix: str) -> str:
    """What an image is, by how it begins and else by its suffix, which is often wrong."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    found = (kind for begin, kind in _BEGINNINGS.items() if content.startswith(begin))
    return next(found, _IMAGES[suffix])


def _pdf_text(file: Path) -> str:
    try:
        pypdf: Any = importlib.import_module("pypdf")
    except ModuleNotFoundError:
        message = f"{quote(file.name)} needs the extra pdf"
        hint = "pip install trioeval[pdf], or set TRIOEVAL_DISABLE_PDF_AS_TEXT=1"
        raise MistakenError(Mistake(message, hint, file=file)) from None
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(file).pages]
    except (pypdf.errors.PyPdfError, OSError, ValueError) as error:
        raise MistakenError(Mistake(f"cannot be read as PDF: {error}", file=file)) from None
    return "\n\n".join(pages).strip(SPACES)
