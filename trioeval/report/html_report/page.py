"""A page as text: the template filled in, with its own scripts and styles, and a policy for them alone."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from trioeval.report.html_report.inert_text import inert_html
from trioeval.report.json_text import compact

NAME = 500
"""Characters of a name, a heading or a sentence."""

_SCRIPTS = ("vendor/tabulator/tabulator.min.js", "vendor/uplot/uPlot.iife.min.js")
_STYLES = ("vendor/tabulator/tabulator_simple.min.css", "vendor/uplot/uPlot.min.css")
_OWN = ("data.js", "diff.js", "charts.js", "table.js", "report.js")
_MAPS = ("//# sourceMappingURL=", "/*# sourceMappingURL=")


@attrs.frozen
class Assets:
    """The scripts and styles of a page."""

    scripts: Sequence[str]
    styles: Sequence[str]

    @property
    def policy(self) -> str:
        """What a browser may run and load: these and nothing else, and nothing from anywhere."""
        scripts, styles = (" ".join(map(_digest, texts)) for texts in (self.scripts, self.styles))
        return (
            f"default-src 'none'; script-src {scripts}; style-src {styles}; base-uri 'none'; "
            "form-action 'none'; require-trusted-types-for 'script'; trusted-types default"
        )


def page_chunks(found: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    """The text of a page piece by piece.

    Args:
        found: What the template asks for; iterators in it are read as the text is.
        data: What the scripts of the page know of it, besides its rows; foreign text in it is `plain`.
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
    """JSON that ends no script and begins no comment in one."""
    return Markup(compact(data).replace("<", "\\u003c"))  # noqa: S704 - no markup is left


@cache
def _assets() -> Assets:
    report = files("trioeval.report")
    own = [_text(report / "html_report" / name) for name in _OWN]
    return Assets(
        scripts=[*(_text(report / path) for path in _SCRIPTS), "".join(own)],
        styles=[
            *(_text(report / path) for path in _STYLES),
            _text(report / "html_report/report.css"),
        ],
    )


def _text(path: Any) -> str:
    """A file, without the line that names another one, which a page on its own has not."""
    text: str = path.read_text("utf-8")
    for mark in _MAPS:
        text = text.partition(mark)[0]
    return text


def _digest(text: str) -> str:
    """As a policy names a script."""
    found = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(found).decode()}'"
