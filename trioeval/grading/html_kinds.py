"""Types that say whether an output is HTML, or looks as if there were some in it."""

import re
from typing import Any

from trioeval.grading.html_tree import HtmlOutline
from trioeval.grading.html_words import SPACES
from trioeval.grading.kind import LONGEST_SEARCHED, SLOW_AT_ONCE, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject

ENOUGH = 2
"""Points from which on an output contains HTML."""

_NAME = "[a-zA-Z][a-zA-Z0-9-]*+"
_OPENING = re.compile(rf"<{_NAME}(?:\s[^>]*+)?>")
_CLOSING = re.compile(rf"</{_NAME}\s*+>")
_OPEN = re.compile(rf"<{_NAME}(?:\s|\Z)")
_ENTITY = re.compile(r"&(?:[a-zA-Z]++|#[0-9]++|#x[0-9a-fA-F]++);")
_DOCTYPE = re.compile(r"<!DOCTYPE\s+html", re.IGNORECASE)
_COMMENT = re.compile(r"<!--[^-]*+(?:-[^-]++)*+-->")
_ATTRIBUTE = re.compile(r"""\s[a-zA-Z-]++=\s*+["'][^"']*+["']""")
_COMMON = re.compile(
    r"<(?:html|head|body|div|span|p|a|img|h[1-6]|ul|ol|li|table|tr|td|th|form|input|button|script|style"
    r"|link|meta|br|hr)\b",
    re.IGNORECASE | re.ASCII,
)


def _is_html(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    fault = html_fault(subject.text)
    reason = "the output is HTML" if fault is None else f"the output is not HTML: {fault}"
    return Finding(holds=fault is None, reason=reason)


def html_fault(text: str) -> str | None:
    """What keeps a text from being HTML; None if nothing does.

    Raises:
        GradingError: It has too many tags, or too many within others.

    Example:
        >>> html_fault("<p>x</p>") is None, html_fault("so: <p>x</p>")
        (True, 'text stands outside of all elements')
    """
    text = text.strip(SPACES)
    if not text:
        return "it is blank"
    if text[:5].lower() == "<?xml":
        return "it declares that it is XML"
    outline = HtmlOutline(text)
    if outline.loose_text:
        return "text stands outside of all elements"
    return None if outline.is_known else "it has no element that is known"


def _contains_html(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    points = html_points(subject.text)
    reason = f"the output has {points} of {ENOUGH} signs of HTML that are needed"
    return Finding(holds=points >= ENOUGH, reason=reason)


def html_points(text: str) -> int:
    """How much in a text looks like HTML.

    Example:
        >>> html_points("hi <b>x</b>"), html_points("x < y"), html_points("List<String>")
        (2, 0, 1)
    """
    # Up to the last one, every "<…" is ended by some ">": no search runs to the end in vain.
    tags = text[: text.rfind(">") + 1]
    tag = bool(_OPENING.search(tags)) + bool(_CLOSING.search(tags))
    return (
        tag
        + _has_empty_tag(tags)
        + bool(_ENTITY.search(text))
        + 2 * bool(_DOCTYPE.search(text))
        + bool(_COMMENT.search(text))
        + bool(_ATTRIBUTE.search(text))
        + 2 * bool(_COMMON.search(text))
    )


def _has_empty_tag(text: str) -> bool:
    behind = 0
    while (end := text.find("/>", behind)) >= 0:
        start = max(behind, text.rfind(">", behind, end) + 1)
        if _OPEN.search(text, start, end):
            return True
        behind = end + 2
    return False


def _anything(_value: Any) -> bool:
    return True


KINDS: Kinds = {
    "contains-html": Kind(
        "left out", _anything, _contains_html, bare=True, longest=LONGEST_SEARCHED
    ),
    "is-html": Kind(
        "left out",
        _anything,
        _is_html,
        bare=True,
        at_once=SLOW_AT_ONCE,
        longest=LONGEST_SEARCHED,
    ),
}
