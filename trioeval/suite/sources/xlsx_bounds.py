# Separate from `suite.sources.csv_tests`: together they exceed 600 lines.
"""Bounds on the unpacked size of a spreadsheet, checked before any other reader opens the file.

A spreadsheet is a packed folder of XML documents. A few kilobytes may unpack to gigabytes, and a document may
define entities that multiply as they are expanded. Excel writes neither.
"""

import zipfile
from pathlib import Path
from xml.parsers import expat

from trioeval.documents.mistakes import Mistake, MistakenError

LARGEST = 256 * 2**20
"""The maximum number of bytes of all documents of a spreadsheet together."""
MOST_PARTS = 2_000
"""The maximum number of documents of a spreadsheet."""
_ANY_RATIO = 16 * 2**20
"""The number of bytes up to which any compression ratio is accepted."""
_RATIO = 200
"""The maximum ratio of unpacked to packed bytes beyond that."""
_CHUNK = 64 * 1024
_MIB = 2**20


class _Stop(Exception):  # noqa: N818 - not an error: everything that matters has been read
    """The first element of a document begins."""


def check_workbook(file: Path) -> None:
    """Check that a spreadsheet can be unpacked.

    Raises:
        MistakenError: It is too large, or its documents define entities.
        zipfile.BadZipFile: It is not a packed folder.
        OSError: It cannot be read.
    """
    with zipfile.ZipFile(file) as book:
        parts = book.infolist()
        # No more than this is unpacked of a part, whatever its contents.
        size = sum(part.file_size for part in parts)
        most = min(LARGEST, max(_ANY_RATIO, _RATIO * file.stat().st_size))
        if size > most or len(parts) > MOST_PARTS:
            message = (
                f"the spreadsheet unpacks to {len(parts)} parts of {size / _MIB:,.0f} MiB in all; "
                f"{MOST_PARTS:,} and {most / _MIB:,.0f} are the most that are read"
            )
            raise MistakenError(Mistake(message, "save it as CSV", file=file))
        for part in parts:
            if _has_doctype(book, part):  # whatever its name: readers do not go by that
                message = f"the part {part.filename} of the spreadsheet has a DOCTYPE"
                raise MistakenError(Mistake(message, "save it again as .xlsx", file=file))


def _has_doctype(book: zipfile.ZipFile, part: zipfile.ZipInfo) -> bool:
    """Return whether a document declares a type before its first element; one that is not XML does not."""
    found = False

    def declares(*_details: object) -> None:
        nonlocal found
        found = True
        raise _Stop

    def begins(*_details: object) -> None:
        raise _Stop

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = declares
    parser.StartElementHandler = begins
    try:
        with book.open(part) as document:
            while chunk := document.read(_CHUNK):
                parser.Parse(chunk)
    except (_Stop, expat.ExpatError):
        pass
    return found
