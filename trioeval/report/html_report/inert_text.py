"""The escaping of foreign text in a page."""

import html
import re

_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters, direction marks, invisible characters and lone surrogates."""
_JOINERS = re.compile("[\u200c\u200d]")
"""Invisible characters that scripts and emoji need, but names do not."""


def plain(text: object, most: int) -> str:
    r"""Return foreign text in which every character is visible.

    Text that a script inserts as text needs nothing more; text in markup needs `inert_html`.

    Example:
        >>> plain("a\r\nb\x1b[1m \u202e" + "x" * 9, 9)
        'a\nb\ufffd[1m … (19 characters)'
    """
    whole = str(text)
    shown = whole[:most]
    if not shown.isprintable():  # a quick test that holds for many texts
        shown = _FORBIDDEN.sub("\ufffd", shown.replace("\r\n", "\n"))
    return shown if len(whole) <= most else f"{shown}… ({len(whole)} characters)"


def inert_html(text: object, most: int) -> str:
    r"""Return foreign text that is safe in the markup of a page.

    Example:
        >>> inert_html("<b>\x1b[1m" + "x" * 9, 8), inert_html('a "b"', 9)
        ('&lt;b&gt;\ufffd[1mx… (16 characters)', 'a &quot;b&quot;')
    """
    return html.escape(_JOINERS.sub("\ufffd", plain(text, most)))
