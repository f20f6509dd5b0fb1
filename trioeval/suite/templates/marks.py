"""Which texts are templates at all."""

import re

_MARK = re.compile(r"\{[{%#]")
_END = r"\n\r\u2028\u2029"
_OPENED = {
    mark: re.compile(
        rf"{re.escape(mark)}[^{close}{{{_END}]*+(?:\{{(?!{close})[^{close}{{{_END}]*+)*+(?=\{{?({close}?))"
    )
    for mark, close in {"{{": "}", "{%": "%", "{#": "#"}.items()
}
"""From a mark to the first sign that may close it, or to the end of its line. One match takes in all marks up
to there, which share their fate, so that many of them are not looked at many times."""
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
    closed = all("" not in opened.findall(text) for mark, opened in _OPENED.items() if mark in text)
    return closed or _RAW.search(text) is not None
