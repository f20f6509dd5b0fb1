"""Templates and what they are given. Whatever stands in a page is foreign until the contrary is known.

Every value that a template writes is escaped, and freed of what would reverse or hide text, without being
asked for it. Only what our own macros made is left as it is.
"""

from pathlib import Path
from typing import Any

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trioeval.report.inert import inert, inert_lines
from trioeval.web.figures import count_text, money_text, seconds_text

_FOLDER = Path(__file__).parent / "templates"
_LONG = 100_000
"""Characters of a text in a page; who needs more exports the run."""


def harmless(value: Any) -> Any:
    r"""What a template writes: markup of ours as it is, and text that cannot pretend to be anything else.

    Example:
        >>> harmless("a\u202eb\x1b[1m"), harmless(None), harmless(3)
        ('a b [1m', '', 3)
    """
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return value if value.isprintable() and len(value) <= _LONG else inert_lines(value, _LONG)


def short(text: object, width: int) -> str:
    """A foreign text on one line of so many characters."""
    return inert(text, width)


@attrs.frozen
class Pages:
    """Makes pages and parts of them."""

    _templates: Environment

    @classmethod
    def load(cls) -> "Pages":
        """Read nothing yet; templates are read when they are first used."""
        templates = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=harmless,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        templates.filters |= {
            "count": count_text,
            "seconds": seconds_text,
            "money": money_text,
            "short": short,
        }
        return cls(templates)

    def render(self, name: str, **given: Any) -> str:
        """A page or a part of one.

        Args:
            name: Of its template, without its suffix.
            given: What stands in it.
        """
        return self._templates.get_template(f"{name}.html.j2").render(**given)
