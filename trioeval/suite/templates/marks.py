"""Which texts are templates at all."""

import re

_MARK = re.compile(r"\{[{%#]")
_UNCLOSED = re.compile(
    r"(?:\{\{[^}\n\r\u2028\u2029]*|\{%[^%\n\r\u2028\u2029]*|\{#[^#\n\r\u2028\u2029]*)"
    r"(?:[\n\r\u2028\u2029]|\Z)"
)
_RAW = re.compile(r"\{%-?\s*raw\s*-?%\}")


def has_marks(text: str) -> bool:
    """Whether a mark of a template opens anywhere in a text."""
    return "{" in text and _MARK.search(text) is not None


def is_template(text: str) -> bool:
    """Whether a text has anything to render: marks that close on their lines, or a `raw` block.

    Example:
        >>> is_template("{{ a }}"), is_template("{ a }"), is_template("{{ a }} and {{ b")
        (True, False, False)
    """
    if not has_marks(text):
        return False
    return _UNCLOSED.search(text) is None or _RAW.search(text) is not None
