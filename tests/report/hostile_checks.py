"""Checks that no hostile text breaks out of the place where it is shown; the texts are in `hostile`.

They are independent of the program's escaping: they read its output as a terminal, a browser, a parser of
XML or a spreadsheet does.
"""

import csv
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Collection
from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt

MARKER = "hostile"
"""A word in every part of a hostile text that would run or be followed, in any case."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MOST_MARKS = 8  # combining characters in a row


def assert_inert_terminal(text: str, *, colours: bool = False, longest: int | None = None) -> None:
    """Check that a text has no sequences, controls, direction marks, invisible characters or floods of marks.

    Args:
        text: The output for a terminal.
        colours: Whether it has colours of the program.
        longest: The most characters of a line; None for any.
    """
    plain = _COLOURS.sub("", text) if colours else text
    plain = plain.replace("\r\n", "\n")
    odd = {char for char in plain if char != "\n" and unicodedata.category(char) in _UNSEEN}
    odd |= set("\u115f\u1160\u3164\uffa0") & set(plain)
    assert not odd, f"a terminal got {sorted(map(ascii, odd))}"
    marks = 0
    for char in plain:
        marks = marks + 1 if unicodedata.category(char) in {"Mn", "Me"} else 0
        assert marks <= _MOST_MARKS, "a flood of combining characters"
    if longest is not None:
        seen = "".join(char for char in plain if unicodedata.category(char) not in {"Mn", "Me"})
        found = max(map(len, seen.split("\n")))
        assert found <= longest, f"a line of {found} characters"


_URLS = {"href", "src", "action", "formaction", "xlink:href", "data", "poster", "srcdoc", "srcset"}
_FOREIGN = {"iframe", "object", "embed", "base", "math", "foreignobject", "frame", "img"}
_SAFE_SCHEME = re.compile(r"(?:#|\.{0,2}/|\?|https?:|data:(?:image|font)/|[\w.-]+(?:[/?#]|$)|$)")


class _Page(HTMLParser):
    """A page as a browser reads it, as far as it matters here."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.texts: list[str] = []
        self.data: list[str] = []
        """The contents of scripts that hold data."""
        self._script: str | None = None
        """The type of the script that is open, or `style`."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag in _FOREIGN or MARKER in tag.lower():
            self.wrong.append(f"an element <{tag}>")
        for name, value in found.items():
            if name.startswith("on") or MARKER in name.lower():
                self.wrong.append(f"an attribute {name}={value[:60]!r} of <{tag}>")
            elif name in _URLS:
                address = "".join(char for char in value if char > " ")
                if not _SAFE_SCHEME.match(address) or f"//{MARKER}" in address.lower():
                    self.wrong.append(f"a link {value[:60]!r} of <{tag}>")
            elif name not in {"content", "style"}:
                self.texts.append(value)
            elif MARKER in value.lower():
                self.wrong.append(f"{name}={value[:60]!r} of <{tag}>")
        if tag == "script":
            self._script = found.get("type", "")
        elif tag == "style":
            self._script = "style"

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.texts.append(data)
        elif "json" in self._script:
            self.data.append(data)
        elif MARKER in data.lower():
            self.wrong.append(f"code {data[:60]!r}")

    def handle_comment(self, data: str) -> None:
        if MARKER in data.lower():
            self.wrong.append(f"a comment {data[:60]!r}")


def assert_inert_html(page: str) -> list[Any]:
    """Check that a page has no element, handler, link, script or style of a payload, and no direction marks.

    Data of a page must be in `<script type="application/json">`, and scripts in files of the program.

    Returns:
        The contents of those elements of data.
    """
    seen = _Page()
    seen.feed(page)
    seen.close()
    assert not seen.wrong, f"a page has {seen.wrong[:5]}"
    hidden = {
        char
        for text in seen.texts
        for char in text
        if char not in "\n\t\r" and unicodedata.category(char) in _UNSEEN - {"Co", "Cn"}
    }
    assert not hidden, f"a page shows {sorted(map(ascii, hidden))}"
    for text in seen.data:
        assert "<!--" not in text, "data may open a comment in a script"
    return [json.loads(text) for text in seen.data if text.strip()]


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def assert_inert_xml(text: str) -> ET.Element:
    """Check that a document is XML 1.0 without any element, entity or instruction of a payload.

    Returns:
        The root.
    """
    odd = set(_ILLEGAL.findall(text))
    assert not odd, f"no XML: {sorted(map(ascii, odd))}"
    assert "<!" not in text, "a declaration, or CDATA"
    assert text.count("<?") <= 1, "an instruction"
    assert "]]>" not in text, "what ends CDATA may not stand in text"
    root = ET.fromstring(text.encode())  # noqa: S314 - what it must withstand
    for element in root.iter():
        names = [element.tag, *element.attrib]
        assert not any(MARKER in name.lower() for name in names), f"an element {names}"
    return root


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_STARTS = "=+-@＝＋－＠"


def assert_inert_csv(text: str, *, delimiter: str = ",") -> list[list[str]]:
    """Check that no cell is a formula for a spreadsheet, and that all lines have equally many cells.

    Returns:
        The cells.
    """
    before = csv.field_size_limit(10_000_000)  # of the process: other tests rely on it
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    finally:
        csv.field_size_limit(before)
    assert len({len(cells) for cells in lines}) <= 1, "lines of different lengths"
    for cells in lines:
        for cell in cells:
            seen = "".join(
                char for char in cell if not char.isspace() and unicodedata.category(char)[0] != "C"
            )
            is_formula = seen[:1] in tuple(_STARTS) and not _NUMBER.match(cell)
            assert not is_formula, f"a formula {cell[:60]!r}"
            assert cell[:1] not in tuple("\t\r\n"), f"a cell begins with {cell[:1]!r}"
    return lines


_COMMAND = re.compile(r"::([\w-]+)")


def assert_inert_log(text: str, *, own: Collection[str] = ()) -> None:
    """Check that a log has no workflow command of GitHub Actions except those of the program.

    Args:
        text: The log.
        own: Names of commands that the program writes.
    """
    assert "##[" not in text, "a command of the old kind"
    for line in re.split(r"[\r\n]", text):
        if (command := _COMMAND.match(line.lstrip())) is not None:
            assert command[1] in own, f"a command {line[:80]!r}"
            head = line.lstrip()[2:].partition("::")[0]
            assert "file=hostile" not in head, f"a command {line[:80]!r}"


def assert_inert_markdown(text: str) -> None:
    """Check that a page has no markup, link, image, heading or HTML of a payload, read as CommonMark."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        for part in (token, *(token.children or ())):
            if part.type in {"html_block", "html_inline"}:
                assert MARKER not in part.content.lower(), f"HTML {part.content[:80]!r}"
                assert part.content.strip().lower() not in {"</td>", "</table>"}, part.content
            links = [str(part.attrs.get(name, "")) for name in ("href", "src")]
            assert not any(MARKER in link.lower() for link in links), f"a link {links}"
        if token.type == "inline" and token.level == 1 and token.map is not None:
            first = text.split("\n")[token.map[0]].lstrip()
            assert not first.lower().startswith("# hostile"), f"a heading {first[:80]!r}"
