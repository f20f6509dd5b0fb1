"""The data of the page of a run, read as its own script reads it."""

import base64
import json
import zlib
from html.parser import HTMLParser
from typing import Any

import attrs

from trioeval.report.html_report.run_page import CELL_FIELDS


@attrs.define
class Pack:
    """An element with packed rows."""

    part: int
    kind: str
    first: int
    count: int
    rows: list[Any]


class PageData(HTMLParser):
    """A page: its elements, its text and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.lines: list[list[str]] = []
        """The cells of tables that are visible without scripts."""
        self.words: list[str] = []
        self.data: dict[str, Any] = {}
        self.packs: list[Pack] = []
        self._script: dict[str, str | None] | None = None
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        """The text that is visible without scripts."""
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs) if tag in {"script", "style"} else None
        if tag == "tr":
            self.lines.append([])
        if tag in {"td", "th"}:
            self.lines[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.words.append(data)
            if self.lines and self.lines[-1]:
                self.lines[-1][-1] += data
        elif self._script.get("id") == "data":
            self.data = json.loads(data)
        elif "data-kind" in self._script:
            attributes = {name: str(value) for name, value in self._script.items()}
            rows = json.loads(zlib.decompress(base64.b64decode(data)))
            pack = Pack(
                part=int(attributes["data-part"]),
                kind=attributes["data-kind"],
                first=int(attributes["data-first"]),
                count=int(attributes["data-count"]),
                rows=rows,
            )
            assert pack.count == len(rows)
            assert pack.first == len(self.rows(pack.kind, pack.part))
            self.packs.append(pack)

    def rows(self, kind: str, part: int = 0) -> list[Any]:
        """Return all packed data of a kind, in order."""
        packs = (pack for pack in self.packs if (pack.part, pack.kind) == (part, kind))
        return [row for pack in packs for row in pack.rows]

    def cells(self, part: int = 0) -> list[list[dict[str, Any] | None]]:
        """The table, by test and column."""
        return [list(map(cell_of, row[2])) for row in self.rows("index", part)]

    def details(self, part: int = 0) -> list[dict[str, Any]]:
        """The details of each row."""
        return self.rows("details", part)

    def block(self, row: int, title: str, part: int = 0) -> Any:
        """Return a block of a row; None without a block of that title."""
        blocks = self.details(part)[row]["blocks"]
        return next((body for _, name, body in blocks if name == title), None)


def cell_of(cell: list[Any] | None) -> dict[str, Any] | None:
    """Return a cell with the names of its fields."""
    return None if cell is None else dict(zip(CELL_FIELDS, cell, strict=True))
