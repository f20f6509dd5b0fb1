"""A page as text: the filled template with its scripts and styles, and a policy that allows only these."""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, Literal

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from trioeval.report.formats.json import compact
from trioeval.report.html_report.details import LONG, SHORT
from trioeval.report.html_report.inert_text import inert_html

# Rows as data in a page: packed a few hundred at a time, and unpacked by the page on demand.
#
# Each pack is the text of a JSON list, deflated, as base64 in an element that browsers do not run. The data
# of tables is unpacked when a page opens; the details of rows are unpacked one pack at a time.


_PACK = 400_000  # bytes of JSON in a pack
_LARGE = 40_000_000  # characters of a page from which on long texts are cut short
_LEVEL = 5  # of zlib; higher levels gain little


@attrs.define
class Packs:
    """A collector of row data that yields it as elements of a page."""

    part: int
    """The number of the part of the page that the rows belong to."""
    kind: Literal["index", "details", "index-before", "before"]
    """The kind of data: `index` for tables, `details` for rows; in a comparison also both for the old run."""
    characters: int = 0
    """Characters written so far."""
    _texts: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)
    _first: int = attrs.field(default=0, init=False)

    @property
    def most(self) -> int:
        """The most characters of a text of the next row: a page must stay small enough for browsers."""
        return LONG if self.characters < _LARGE else SHORT

    def add(self, data: Any) -> Iterator[str]:
        """Add the data of a row, and yield an element when a pack is full.

        Args:
            data: JSON data without lone surrogates.
        """
        text = compact(data).encode("utf-8", "replace")
        self._texts.append(text)
        self._size += len(text)
        if self._size >= _PACK:
            yield self._element()

    def rest(self) -> Iterator[str]:
        """Yield the last pack."""
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


NAME = 500
"""Characters of a name, a heading or a sentence."""

_SCRIPTS = ("vendor/tabulator/tabulator.min.js", "vendor/uplot/uPlot.iife.min.js")
_STYLES = ("vendor/tabulator/tabulator_simple.min.css", "vendor/uplot/uPlot.min.css")
_OWN = ("data.js", "diff.js", "charts.js", "table.js", "report.js")
_MAPS = ("//# sourceMappingURL=", "/*# sourceMappingURL=")


@attrs.frozen
class PageAssets:
    """The scripts and styles of a page."""

    scripts: Sequence[str]
    styles: Sequence[str]

    @property
    def policy(self) -> str:
        """The content security policy: only these scripts and styles may run and load."""
        scripts, styles = (" ".join(map(_digest, texts)) for texts in (self.scripts, self.styles))
        return (
            f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; base-uri 'none'; "
            "form-action 'none'; require-trusted-types-for 'script'; trusted-types default"
        )


def page_chunks(found: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of a page piece by piece.

    Args:
        found: The variables of the template; iterators in them are read on demand.
        data: The data of the page's scripts except rows; foreign text in it is `plain`.
    """
    assets = _assets()
    return _template().generate(
        **found,
        policy=Markup(assets.policy),  # noqa: S704 - digests of our own
        scripts=[*map(Markup, assets.scripts)],
        styles=[*map(Markup, assets.styles)],
        data=_script_json(data),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("trioeval.report", "html_report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inert"] = partial(_inert, most=NAME)
    return environment.get_template("page.html.j2")


def _inert(text: object, most: int) -> Markup:
    return Markup(inert_html(text, most))  # noqa: S704 - which is what makes it so


def _script_json(data: Mapping[str, Any]) -> Markup:
    """Return JSON that cannot end a script or start a comment in one."""
    return Markup(compact(data).replace("<", "\\u003c"))  # noqa: S704 - no markup is left


@cache
def _assets() -> PageAssets:
    report = files("trioeval.report")
    own = [_text(report / "html_report" / name) for name in _OWN]
    return PageAssets(
        scripts=[*(_text(report / path) for path in _SCRIPTS), "".join(own)],
        styles=[
            *(_text(report / path) for path in _STYLES),
            _text(report / "html_report/report.css"),
        ],
    )


def _text(path: Any) -> str:
    """Return the text of a file without its source map line: the map is not in the page."""
    text: str = path.read_text("utf-8")
    for mark in _MAPS:
        text = text.partition(mark)[0]
    return text


def _digest(text: str) -> str:
    """Return the digest of a script in the format of policies."""
    found = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(found).decode()}'"
