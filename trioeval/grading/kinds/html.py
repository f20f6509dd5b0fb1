"""Types that check whether an output is HTML, or contains some."""

import re
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from html import unescape
from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.kind import LONGEST_SEARCHED, SLOW_AT_ONCE, Finding, Kind, Kinds, is_anything
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject

# The elements of HTML, by what a parser does with them.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _words("""
    html head title base link meta style body article section nav aside h1 h2 h3 h4 h5 h6 header footer
    address p hr pre blockquote ol ul li dl dt dd figure figcaption main div a em strong small s cite q
    dfn abbr ruby rt rp data time code var samp kbd sub sup i b u mark bdi bdo span br wbr img iframe
    embed object param picture source video audio track map area svg math script noscript canvas ins del
    table caption colgroup col tbody thead tfoot tr td th form label input button select datalist
    optgroup option textarea output progress meter fieldset legend details summary dialog menu slot
    template
""")
"""Elements that are current."""

VOID = _words("""
    area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr
""")
RAW = _words("iframe noembed noframes noscript script style textarea title xmp")
"""Elements without tags in them."""
IN_HEAD = _words("base basefont bgsound link meta noframes noscript script style template title")
"""Elements that do not open the body."""
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
FORMATTING = _words("a b big code em font i nobr s small strike strong tt u")
"""Elements that are reopened after another element closed them."""
BARRIERS = _words("applet caption marquee object table td template th")
"""Elements whose content cannot close elements outside of them."""
CLOSE_PARAGRAPH = _words("""
    address article aside blockquote center details dialog dir div dl dd dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search
    section summary table ul xmp
""")
SPECIAL = (
    CLOSE_PARAGRAPH
    | BARRIERS
    | VOID
    | RAW
    | _words("button col colgroup frameset select tbody tfoot thead tr")
)
"""Elements that an unknown closing tag does not cross."""

MAY_STAND_IN: Mapping[str, AbstractSet[str]] = {
    "caption": {"table"},
    "col": {"table", "colgroup"},
    "colgroup": {"table"},
    "tbody": {"table"},
    "td": {"table", "tbody", "tfoot", "thead", "tr"},
    "tfoot": {"table"},
    "th": {"table", "tbody", "tfoot", "thead", "tr"},
    "thead": {"table"},
    "tr": {"table", "tbody", "tfoot", "thead"},
}
"""Parts of tables, and the open elements that may contain them."""
TABLE_PARENTS = _words("colgroup table tbody tfoot thead tr")
"""Elements that text is moved out of."""
CLOSED_BY: Mapping[str, AbstractSet[str]] = {
    "dd": {"dd", "dt"},
    "dt": {"dd", "dt"},
    "li": {"li"},
    "optgroup": {"optgroup", "option"},
    "option": {"option"},
}
SPACES = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""Characters that do not count as text."""


# The position of text and elements in an HTML document, without building the document.
#
# A browser's parser puts any text into a tree. Only two things are needed here: whether text is directly in
# an implicit body, and whether there is a known element. So only the names of open elements are kept, with
# the rules that move text: implied end tags, raw text, reopened formatting elements, and text moved in front
# of its table.
#
# Rejected: a full parser, because those in C are quadratic for adversarial texts and cannot be interrupted.
# Here depth is limited as in browsers, and so are the number of tags and their total cost.


_DEEPEST = 512
_MOST = 200_000
"""Most tags of one text."""
_MOST_STEPS = 40_000_000
"""Most open elements visited for all tags together; about a second."""
_TOKEN = re.compile(
    r"""<!--(?:>|->|(?P<comment>))|<(?P<bogus>[!?]|/(?![a-zA-Z]))"""
    r"""|<(?P<closing>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)"""
    r"""(?P<rest>(?:=[\t\n\f\r ]*+(?:"[^"]*+"|'[^']*+')|[^>])*+)(?P<ended>>)?"""
)
_HTML_SPACE = "\t\n\f\r "


class HtmlOutline:
    """The outline of an HTML text."""

    def __init__(self, text: str) -> None:
        """Read a text.

        Raises:
            GradingError: It has too many tags, or too deeply nested ones.
        """
        self.loose_text = False
        """True if text is directly in an implicit body."""
        self.is_known = False
        """True if there is a known or a custom element."""
        self._text = text
        self._in_body = False
        self._body_written = False
        self._stack: list[str] = []
        self._formatting: Counter[str] = Counter()
        """The number of formatting elements to reopen, by name."""
        self._steps = 0
        self._read()

    def _read(self) -> None:
        place, count = 0, 0
        while (match := _TOKEN.search(self._text, place)) is not None:
            count += 1
            self._steps += len(self._stack) // 2
            if count > _MOST or self._steps > _MOST_STEPS:
                msg = "the output has too many tags"
                raise GradingError(msg)
            self._take_text(self._text[place : match.start()])
            place = self._take(match)
        self._take_text(self._text[place:])

    def _take(self, match: re.Match[str]) -> int:
        place = match.end()
        if match["name"] is None:
            closing = "-->" if match["comment"] is not None else ">"
            if match["comment"] is None and match["bogus"] is None:
                return place
            return self._behind(closing, place)
        if not match["ended"]:
            # An unfinished tag extends to the end of the text.
            return len(self._text)
        name = match["name"].lower()
        if match["closing"]:
            self._end(name)
            return place
        self._start(name, empty=match["rest"].endswith("/"))
        if name == "plaintext":
            return len(self._text)
        if name in RAW and not self._is_foreign():
            # The content of such an element is raw text up to its closing tag.
            return self._behind_raw(name, place)
        return place

    def _behind(self, mark: str, place: int) -> int:
        found = self._text.find(mark, place)
        return len(self._text) if found < 0 else found + len(mark)

    def _behind_raw(self, name: str, place: int) -> int:
        end = re.compile(rf"</{name}(?=[\s/>])[^>]*>", re.IGNORECASE).search(self._text, place)
        if self._stack and self._stack[-1] == name:
            self._stack.pop()
        return len(self._text) if end is None else end.end()

    def _is_foreign(self) -> bool:
        return "svg" in self._stack or "math" in self._stack

    def _take_text(self, text: str) -> None:
        if not text.strip(_HTML_SPACE):
            return
        self._in_body = True
        if self._body_written or self.loose_text:
            return
        if any(self._formatting.values()) and not (
            self._stack and self._stack[-1] in TABLE_PARENTS
        ):
            return
        below = list(self._stack)
        while below and below[-1] in TABLE_PARENTS:
            below.pop()
        if not below and unescape(text).strip(SPACES):
            self.loose_text = True

    def _start(self, name: str, *, empty: bool) -> None:
        if name in ("html", "head"):
            self.is_known |= not self._in_body
            return
        if name == "body":
            if not self._in_body:
                self._in_body = self._body_written = self.is_known = True
            return
        if not self._in_body and name not in IN_HEAD:
            self._in_body = True
        name = "img" if name == "image" else name
        is_astray = name in MAY_STAND_IN and not {"table", "template", "svg", "math"} & set(
            self._stack
        )
        if is_astray:
            return
        self._close_before(name)
        self.is_known |= name in KNOWN or "-" in name
        if name in VOID or (empty and (self._is_foreign() or name in ("svg", "math"))):
            return
        if name in FORMATTING:
            self._formatting[name] += 1
        if len(self._stack) < _DEEPEST:
            self._stack.append(name)

    def _close_before(self, name: str) -> None:
        """Close the elements that a start tag closes."""
        if name in CLOSE_PARAGRAPH:
            self._close("p", barriers=BARRIERS | {"button"})
        if name in HEADINGS and self._stack and self._stack[-1] in HEADINGS:
            self._stack.pop()
        if name in ("a", "nobr", "button"):
            self._close(name, barriers=BARRIERS)
            if self._formatting[name]:
                self._formatting[name] -= 1
        for other in CLOSED_BY.get(name, ()):
            self._close(other, barriers=BARRIERS | {"ul", "ol", "dl", "select"})
        if name in MAY_STAND_IN and "table" in self._stack:
            while self._stack[-1] not in MAY_STAND_IN[name]:
                self._stack.pop()

    def _close(self, name: str, *, barriers: frozenset[str]) -> bool:
        if name not in self._stack:
            return False
        self._steps += len(self._stack)
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] == name:
                del self._stack[place:]
                return True
            if self._stack[place] in barriers:
                return False
        return False

    def _end(self, name: str) -> None:
        if name in ("html", "head", "body"):
            return
        if name == "br" or (name == "p" and self._in_body):
            self._in_body = True
            self._close("p", barriers=BARRIERS | {"button"})
            self.is_known = True
            return
        if name in FORMATTING:
            self._end_formatting(name)
        elif name in HEADINGS:
            for heading in HEADINGS:
                if self._close(heading, barriers=BARRIERS):
                    return
        elif name in BARRIERS or name in MAY_STAND_IN:
            self._close(name, barriers=frozenset({"template"}))
        elif name in SPECIAL:
            self._close(name, barriers=BARRIERS)
        else:
            self._close(name, barriers=SPECIAL)

    def _end_formatting(self, name: str) -> None:
        if self._formatting[name]:
            self._formatting[name] -= 1
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] == name:
                above = self._stack[place + 1 :]
                self._stack[place:] = above if any(other in SPECIAL for other in above) else []
                return
            if self._stack[place] in BARRIERS:
                return


ENOUGH = 2
"""Points from which an output contains HTML."""

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
    """Return the reason why a text is not HTML; None if it is.

    Raises:
        GradingError: It has too many tags, or too deeply nested ones.

    Example:
        >>> html_fault("<p>x</p>") is None, html_fault("so: <p>x</p>")
        (True, 'text is outside of all elements')
    """
    text = text.strip(SPACES)
    if not text:
        return "it is blank"
    if text[:5].lower() == "<?xml":
        return "it declares that it is XML"
    outline = HtmlOutline(text)
    if outline.loose_text:
        return "text is outside of all elements"
    return None if outline.is_known else "it has no known element"


def _contains_html(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    points = html_points(subject.text)
    reason = f"the output has {points} of {ENOUGH} required signs of HTML"
    return Finding(holds=points >= ENOUGH, reason=reason)


def html_points(text: str) -> int:
    """Return points for how much a text looks like HTML.

    Example:
        >>> html_points("hi <b>x</b>"), html_points("x < y"), html_points("List<String>")
        (2, 0, 1)
    """
    # Up to the last one, every "<…" is followed by some ">": no search reaches the end without a match.
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


KINDS: Kinds = {
    "contains-html": Kind(
        "left out", is_anything, _contains_html, bare=True, longest=LONGEST_SEARCHED
    ),
    "is-html": Kind(
        "left out",
        is_anything,
        _is_html,
        bare=True,
        at_once=SLOW_AT_ONCE,
        longest=LONGEST_SEARCHED,
    ),
}
