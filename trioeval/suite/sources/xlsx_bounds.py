# Apart from `suite.sources.csv_tests`: together they exceed 600 lines.
"""What a spreadsheet may unpack to: a file that comes from elsewhere is looked at before anything reads it.

A spreadsheet is a packed folder of XML documents. A few kilobytes may unpack to gigabytes, and a document may
define texts that grow as they are put together. Excel writes neither.
"""

import zipfile
from pathlib import Path
from xml.parsers import expat

from trioeval.documents.mistakes import Mistake, MistakenError

LARGEST = 256 * 2**20
"""Bytes that all documents of a spreadsheet may have together."""
MOST_PARTS = 2_000
"""Documents of a spreadsheet."""
_ANY_RATIO = 16 * 2**20
"""Bytes up to which it does not matter how well they were packed; beyond that:"""
_RATIO = 200
"""How many times larger than the file its documents may be."""
_CHUNK = 64 * 1024
_MIB = 2**20


class _Stop(Exception):  # noqa: N818 - no error: everything that was to be seen has been
    """The first element of a document begins."""


def check_workbook(file: Path) -> None:
    """See that a spreadsheet can be unpacked.

    Raises:
        MistakenError: It is too large for that, or its documents define texts.
        zipfile.BadZipFile: It is not a packed folder.
        OSError: It cannot be read.
    """
    with zipfile.ZipFile(file) as book:
        parts = book.infolist()
        # No more than that is unpacked of a part, whatever is in it.
        size = sum(part.file_size for part in parts)
        most = min(LARGEST, max(_ANY_RATIO, _RATIO * file.stat().st_size))
        if size > most or len(parts) > MOST_PARTS:
            message = (
                f"the spreadsheet unpacks to {len(parts)} parts of {size / _MIB:,.0f} MiB in all; "
                f"{MOST_PARTS:,} and {most / _MIB:,.0f} are the most that are read"
            )
            raise MistakenError(Mistake(message, "save it as CSV", file=file))
        for part in parts:
            if _has_doctype(
                book, part
            ):  # whatever its name: that says nothing of what it is read as
                message = f"the part {part.filename} of the spreadsheet has a DOCTYPE"
                raise MistakenError(Mistake(message, "save it again as .xlsx", file=file))


def _has_doctype(book: zipfile.ZipFile, part: zipfile.ZipInfo) -> bool:
    """Whether a document declares a type before its first element; one that is not XML does not."""
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
