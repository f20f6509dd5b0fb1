"""The marks that distinguish templates from other texts."""

import re
from collections.abc import Iterator

_MARKS_MARK = re.compile(r"\{[{%#]")
_END = r"\n\r\u2028\u2029"
_OPENED = {
    mark: re.compile(
        rf"{re.escape(mark)}[^{close}{{{_END}]*+(?:\{{(?!{close})[^{close}{{{_END}]*+)*+(?=\{{?({close}?))"
    )
    for mark, close in {"{{": "}", "{%": "%", "{#": "#"}.items()
}
"""Matches from a mark to the first character that may close it, or to the end of its line. One match includes
all marks up to there, which have the same result, so that a text with many of them is scanned only once."""
_RAW = re.compile(r"\{%-?\s*raw\s*-?%\}")


def has_marks(text: str) -> bool:
    """Return whether a text contains an opening mark of a template."""
    return "{" in text and _MARKS_MARK.search(text) is not None


def is_template(text: str) -> bool:
    """Return whether a text has anything to render: marks closed on their lines, or a `raw` block.

    Example:
        >>> is_template("{{ a }}"), is_template("{ a }"), is_template("{{ a }} and {{ b")
        (True, False, False)
    """
    return has_marks(text) and (not _has_unclosed(text) or _RAW.search(text) is not None)


def unclosed_tag(text: str) -> str | None:
    """Return the mistake of a tag that is not closed on its line; None without one, or with a `raw` block.

    Example:
        >>> unclosed_tag("{{ a }}"), unclosed_tag("Hi {% if a").partition(";")[0]
        (None, 'not a template: line 1, column 4: "{%" is not closed on its line')
    """
    if not has_marks(text) or not _has_unclosed(text) or _RAW.search(text):
        return None
    found = (one for opened in _OPENED.values() for one in opened.finditer(text) if not one[1])
    first = min(found, key=lambda one: one.start())
    before = text[: first.start()]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    how = "close it, or write literal text between {% raw %} and {% endraw %}"
    return f'not a template: line {line}, column {column}: "{first[0][:2]}" is not closed on its line; {how}'


def _has_unclosed(text: str) -> bool:
    return any("" in opened.findall(text) for mark, opened in _OPENED.items() if mark in text)


_CODE = r"""(?:"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'|(?!END)[^"'])*+"""
_TAG = re.compile(
    r"\{%-?\s*(?P<raw>raw|verbatim)\s*-?%\}.*?\{%-?\s*end(?P=raw)\s*-?%\}"
    r"|\{#.*?#\}"
    rf"|\{{%{_CODE.replace('END', '-?%}')}-?%\}}"
    rf"|(?P<opened>\{{\{{-?)(?P<value>{_CODE.replace('END', '-?}}')})(?P<closed>-?\}}\}})",
    re.DOTALL,
)


_RAW_WITHOUT_END = re.compile(r"\{%-?\s*(?:raw|verbatim)\s*-?%\}")


def tags(text: str) -> Iterator[re.Match[str]]:
    """Yield the tags, comments and raw blocks of a text, up to one that does not end.

    One that prints has a `value`.

    Example:
        >>> [found["value"] for found in tags("{# {{ a }} #}{{ '}}' }}{{- b -}}")]
        [None, " '}}' ", ' b ']
    """
    begin = 0
    while mark := _MARKS_MARK.search(text, begin):
        tag = _TAG.match(text, mark.start())
        if tag is None or (tag["raw"] is None and _RAW_WITHOUT_END.match(text, mark.start())):
            return
        yield tag
        begin = tag.end()
