"""Where text and elements of an HTML document end up, without building the document.

A browser's parser puts anything into a tree. Only two things are asked of it here: whether text stands
directly in a body that nobody wrote, and whether there is an element that is known. So only the names of
open elements are kept, with the rules that move text: what closes what, raw text, formatting elements that
are opened again, text that is put before its table.

A full parser was not taken: those in C are quadratic for texts that are made to be so, and cannot be
stopped. Here depth is limited as in browsers, and so are tags and what they may cost together.
"""

import re
from collections import Counter
from html import unescape

from trioeval.errors import GradingError
from trioeval.grading.html_words import (
    BARRIERS,
    CLOSE_PARAGRAPH,
    CLOSED_BY,
    FORMATTING,
    HEADINGS,
    IN_HEAD,
    KNOWN,
    MAY_STAND_IN,
    RAW,
    SPACES,
    SPECIAL,
    TABLE_PARENTS,
    VOID,
)

_DEEPEST = 512
_MOST = 200_000
"""Tags of one text."""
_MOST_STEPS = 40_000_000
"""Open elements that are looked at, for all tags together; about a second."""
_TOKEN = re.compile(
    r"""<!--(?:>|->|(?P<comment>))|<(?P<bogus>[!?]|/(?![a-zA-Z]))"""
    r"""|<(?P<closing>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)"""
    r"""(?P<rest>(?:=[\t\n\f\r ]*+(?:"[^"]*+"|'[^']*+')|[^>])*+)(?P<ended>>)?"""
)
_HTML_SPACE = "\t\n\f\r "


class HtmlOutline:
    """What stands in an HTML text."""

    def __init__(self, text: str) -> None:
        """Reads the text.

        Raises:
            GradingError: It has too many tags, or too many within others.
        """
        self.loose_text = False
        """Whether text stands directly in a body that is not written."""
        self.is_known = False
        """Whether there is an element that is known, or one of the user's."""
        self._text = text
        self._in_body = False
        self._body_written = False
        self._stack: list[str] = []
        self._formatting: Counter[str] = Counter()
        """How many formatting elements would be opened again, by their names."""
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
            # An unfinished tag takes the rest with it.
            return len(self._text)
        name = match["name"].lower()
        if match["closing"]:
            self._end(name)
            return place
        self._start(name, empty=match["rest"].endswith("/"))
        if name == "plaintext":
            return len(self._text)
        if name in RAW and not self._is_foreign():
            # The text of such an element is its own, to its closing tag.
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
        """What a start tag closes."""
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
