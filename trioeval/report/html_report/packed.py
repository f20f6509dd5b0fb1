"""Rows as data in a page: packed a few hundred at a time, and unpacked by the page when they are needed.

Each pack is the text of a JSON list, deflated, as base64 in an element that no browser runs. What tables
need is unpacked when a page opens; of what is told of single rows only the pack that somebody looks at.
"""

import binascii
import zlib
from collections.abc import Iterator
from typing import Any, Literal

import attrs

from trioeval.report.html_report.details import LONG, SHORT
from trioeval.report.json_text import compact

_PACK = 400_000  # bytes of JSON in a pack
_LARGE = 40_000_000  # characters of a page from which on long texts are cut short
_LEVEL = 5  # of zlib; beyond it little is won


@attrs.define
class Packs:
    """Collects what is told of rows, and gives it out as elements of a page."""

    part: int
    """Number of the part of the page to which the rows belong."""
    kind: Literal["index", "details", "index-before", "before"]
    """What is told: what tables need, or all of a row; in a comparison also both of the old run."""
    characters: int = 0
    """Written up to now."""
    _texts: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)
    _first: int = attrs.field(default=0, init=False)

    @property
    def most(self) -> int:
        """Characters of a text that the next row may have: a page must not grow beyond all browsers."""
        return LONG if self.characters < _LARGE else SHORT

    def add(self, told: Any) -> Iterator[str]:
        """One more; gives an element when there is enough for it.

        Args:
            told: JSON data without half characters.
        """
        text = compact(told).encode("utf-8", "replace")
        self._texts.append(text)
        self._size += len(text)
        if self._size >= _PACK:
            yield self._element()

    def rest(self) -> Iterator[str]:
        """What was not yet given out."""
        if self._texts:
            yield self._element()

    def _element(self) -> str:
        packed = zlib.compress(b"[" + b",".join(self._texts) + b"]", _LEVEL)
        data = binascii.b2a_base64(packed, newline=False).decode("ascii")
        count = len(self._texts)
        element = (
            f'<script type="application/octet-stream" data-part="{self.part}" data-kind="{self.kind}"'
            f' data-first="{self._first}" data-count="{count}">{data}</script>\n'
        )
        self._first += count
        self._texts, self._size = [], 0
        self.characters += len(element)
        return element
