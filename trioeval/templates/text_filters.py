"""Filters of nunjucks that return texts, with the same positional arguments."""

import itertools
import json
import math
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.templates.faults import RenderError
from trioeval.templates.limits import LEVELS, check_size, too_deep
from trioeval.templates.values import (
    UndefinedValue,
    is_nothing,
    is_number,
    number_of,
    printed,
    text_of,
    truth,
)
from trioeval.text import number_text, parse_json, quote

_SPACES = (
    " \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The white space of JavaScript."""
_NOT_ENCODED = "-_.!~*'()"
_ESCAPES = str.maketrans(
    {"&": "&amp;", '"': "&quot;", "'": "&#39;", "<": "&lt;", ">": "&gt;", "\\": "&#92;"}
)
_TAG = r"</?[a-z][a-z0-9]*\b[^>]*>"
_TAGS = re.compile(_TAG, re.IGNORECASE | re.ASCII)
_TAGS_AND_COMMENTS = re.compile(rf"{_TAG}|<!--.*?-->", re.IGNORECASE | re.DOTALL | re.ASCII)
_WORD = re.compile(r"\w+", re.ASCII)
_INDENT_UP_TO = 10  # the maximum of JSON.stringify
_PUNCTUATION = re.compile(r"(?:\(|<|&lt;)?(.*?)(?:\.|,|\)|\n|&gt;)?")
_EMAIL = re.compile(
    r"[\w.!#$%&'*+\-/=?^`{|}~]+@[a-z\d\-]+(\.[a-z\d\-]+)+", re.IGNORECASE | re.ASCII
)
_DOMAIN = re.compile(r"\.(?:org|net|com)(?::|/|$)")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Safe(str):
    """A text that `escape` leaves unchanged."""

    __slots__ = ()


def _like(source: Any, text: str) -> str:
    check_size(len(text))
    return Safe(text) if isinstance(source, Safe) else text


def wanted_text(value: Any, name: str) -> str:
    """Return the text that a filter works on: null, undefined and false are an empty one.

    Raises:
        RenderError: It is not a text.
    """
    if isinstance(value, str):
        return value
    if is_nothing(value) or value is False:
        return ""
    msg = f"`{name}` requires a text, got {quote(value)}; `x | string` makes one"
    raise RenderError(msg)


def only_text(value: Any, name: str) -> str:
    """Return the text that a filter works on.

    Raises:
        RenderError: It is not a text.
    """
    if isinstance(value, str):
        return value
    shown = "undefined" if isinstance(value, UndefinedValue) else quote(value)
    msg = f"`{name}` requires a text, got {shown}"
    raise RenderError(msg)


def capitalize(value: Any) -> str:
    """Return the text with the first letter in upper case, all others in lower case."""
    lower = wanted_text(value, "capitalize").lower()
    return _like(value, lower[:1].upper() + lower[1:])


def center(value: Any, width: Any = None) -> str:
    """Center the text with spaces to a width; 80 by default."""
    text = wanted_text(value, "center")
    width = number_of(width) or 80
    if not len(text) < width:
        return text
    check_size(width)
    spaces = width - len(text)
    before, after = math.ceil(spaces / 2 - spaces % 2), math.ceil(spaces / 2)
    return _like(value, " " * before + text + " " * after)


def escape(value: Any) -> Safe:
    """Return the text with characters that are special in HTML escaped."""
    if isinstance(value, Safe):
        return value
    return forceescape(value)


def forceescape(value: Any) -> Safe:
    """Do the same as `escape`, even for escaped text."""
    return Safe("" if is_nothing(value) else str(text_of(value)).translate(_ESCAPES))


def safe(value: Any) -> Safe:
    """Return the text marked so that `escape` leaves it unchanged."""
    return Safe("" if is_nothing(value) else text_of(value))


def indent(value: Any, width: Any = None, first: Any = None) -> str:
    """Indent each line but the first; by 4 spaces by default."""
    text = wanted_text(value, "indent")
    spaces = max(0, math.ceil(number_of(width) or 4))
    lines = text.split("\n")
    check_size(len(text) + spaces * len(lines))
    result = f"\n{' ' * spaces}".join(lines)
    return _like(value, " " * spaces + result if text and truth(first) else result)


def lower(value: Any) -> str:
    """Return the text in lower case."""
    return wanted_text(value, "lower").lower()


def upper(value: Any) -> str:
    """Return the text in upper case."""
    return wanted_text(value, "upper").upper()


def nl2br(value: Any) -> str:
    """Insert `<br />` before each line feed."""
    if is_nothing(value):
        return ""
    return _like(value, re.sub(r"\r\n|\n", "<br />\n", only_text(value, "nl2br")))


def replace(value: Any, old: Any, new: Any = None, most: Any = None) -> Any:
    """Replace each occurrence of a text by another; a value that is not text stays unchanged."""
    if is_number(old):
        old = text_of(old)
    elif not isinstance(old, str):
        return value
    text = text_of(value) if is_number(value) else value
    if not isinstance(text, str):
        return value
    new = text_of(new) if new is not None else "null"
    count = -1 if is_nothing(most) else int(number_of(most))
    times = len(text) + 1 if not old else text.count(old)
    check_size(len(text) + times * len(new))
    if not old:
        return _like(value, new + new.join(text) + new)
    return _like(value, str(text).replace(old, new, count))


def string(value: Any) -> str:
    """Return the value as text."""
    if is_nothing(value):
        msg = "`string` requires a value, got nothing"
        raise RenderError(msg)
    return _like(value, text_of(value))


def striptags(value: Any, keep_lines: Any = None) -> str:
    """Return the text without HTML tags, and with single spaces."""
    text = _without_tags(wanted_text(value, "striptags")).strip(_SPACES)
    if truth(keep_lines):
        text = "\n".join(line.strip(" ") for line in text.split("\n"))
        text = re.sub(r" +", " ", text).replace("\r\n", "\n")
        return _like(value, re.sub(r"\n\n\n+", "\n\n", text))
    return _like(value, re.sub(rf"[{_SPACES}]+", " ", text))


def _without_tags(text: str) -> str:
    """Remove tags in three parts, so that no search runs for an end that does not come."""
    comments = text.rfind("-->") + 3 if "-->" in text else 0
    tags = text.rfind(">") + 1
    first = _TAGS_AND_COMMENTS.sub("", text[:comments])
    return first + _TAGS.sub("", text[comments:tags]) + text[tags:]


def title(value: Any) -> str:
    """Capitalize each word."""
    return _like(value, " ".join(map(capitalize, wanted_text(value, "title").split(" "))))


def trim(value: Any) -> str:
    """Return the text without surrounding white space."""
    return _like(value, str(only_text(value, "trim")).strip(_SPACES))


def truncate(value: Any, length: Any = None, kill_words: Any = None, end: Any = None) -> str:
    """Return the beginning of a text, up to the end of a word, with three dots; 255 characters by default."""
    text = wanted_text(value, "truncate")
    length = int(number_of(length) or 255)
    if len(text) <= length:
        return text
    if not truth(kill_words):
        space = text.rfind(" ", 0, max(0, length) + 1)
        length = length if space == -1 else space
    return _like(value, text[: max(0, length)] + ("..." if is_nothing(end) else text_of(end)))


def urlencode(value: Any) -> str:
    """Return the text, or the pairs of an object, encoded for a URL."""
    if isinstance(value, str):
        return urllib.parse.quote(value, safe=_NOT_ENCODED)
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = [(_at(pair, 0), _at(pair, 1)) for pair in value]
    elif is_nothing(value):
        msg = "`urlencode` requires a text, an object or pairs, got nothing"
        raise RenderError(msg)
    else:
        pairs = []
    return "&".join(f"{urlencode(text_of(key))}={urlencode(text_of(part))}" for key, part in pairs)


def _at(pair: Any, place: int) -> Any:
    if isinstance(pair, str | list | tuple) and place < len(pair):
        return pair[place]
    return "undefined"


def urlize(value: Any, length: Any = None, nofollow: Any = None) -> str:
    """Return the text with links around everything that looks like an address."""
    text = only_text(value, "urlize")
    limit = None if math.isnan(number := number_of(length)) or is_nothing(length) else int(number)
    mark = ' rel="nofollow"' if nofollow is True else ""
    words = re.split(rf"([{_SPACES}]+)", text)
    result = "".join(_linked(word, limit, mark) for word in words if word)
    check_size(len(result))
    return result


def _linked(word: str, limit: int | None, mark: str) -> str:
    found = _PUNCTUATION.fullmatch(word)
    address = found[1] if found else word
    shown = address[:limit]
    if re.match(r"https?://", address):
        return f'<a href="{address}"{mark}>{shown}</a>'
    if address.startswith("www."):
        return f'<a href="http://{address}"{mark}>{shown}</a>'
    if _EMAIL.fullmatch(address):
        return f'<a href="mailto:{address}">{address}</a>'
    if _DOMAIN.search(address):
        return f'<a href="http://{address}"{mark}>{shown}</a>'
    return word


def wordcount(value: Any) -> int | None:
    """Return the number of words of Latin letters, digits and `_`; null for none."""
    return len(_WORD.findall(wanted_text(value, "wordcount"))) or None


def dump(value: Any, spaces: Any = None) -> str:
    """Return the value as JSON, as `JSON.stringify` writes it; an empty text for an undefined value.

    Example:
        >>> dump({"b": 1.0, "2": [None, float("nan")]})
        '{"2":[null,null],"b":1}'
    """
    if isinstance(value, UndefinedValue):
        return str(value)
    if is_number(spaces):
        step = " " * int(min(max(spaces, 0), _INDENT_UP_TO))
    else:
        step = spaces[:_INDENT_UP_TO] if isinstance(spaces, str) else ""
    writer = _JsonWriter(step)
    writer.write(value, "\n", 0)
    return "".join(writer.pieces)


@attrs.define(eq=False, repr=False)
class _JsonWriter:
    """Writes JSON; stops if it becomes too long or is nested too deeply."""

    step: str
    pieces: list[str] = attrs.field(factory=list)
    _size: int = 0

    def _put(self, *pieces: str) -> None:
        self._size += sum(map(len, pieces))
        check_size(self._size)
        self.pieces += pieces

    def write(self, value: Any, line: str, level: int) -> None:
        """Write a value; `line` is a line feed and the indent of the value."""
        if level > LEVELS:
            raise too_deep("a value")
        match value:
            case None:
                self._put("null")
            case UndefinedValue():
                self._put(str(value) or "null")
            case bool():
                self._put("true" if value else "false")
            case int() | float():
                self._put(number_text(value) if math.isfinite(value) else "null")
            case str():
                written = json.dumps(value, ensure_ascii=False)
                self._put(_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", written))
            case Mapping():
                members = [
                    (text_of(key), part)
                    for key, part in value.items()
                    if not (isinstance(part, UndefinedValue) and not str(part))
                ]
                members.sort(key=lambda member: _rank(member[0]))
                colon = ": " if self.step else ":"
                heads = [f"{json.dumps(key, ensure_ascii=False)}{colon}" for key, _ in members]
                self._members("{}", [part for _, part in members], heads, line, level)
            case list() | tuple():
                self._members("[]", value, itertools.repeat(""), line, level)
            case _:
                self._put(json.dumps(str(printed(value)), ensure_ascii=False))

    def _members(
        self, brackets: str, members: Sequence[Any], heads: Iterable[str], line: str, level: int
    ) -> None:
        opened, closed = brackets[0], brackets[1]
        below = line + self.step if self.step else ""
        for place, (head, part) in enumerate(zip(heads, members, strict=False)):
            self._put("," if place else opened, below, head)
            self.write(part, line + self.step, level + 1)
        self._put((line if self.step else "") + closed if members else brackets)


def _rank(key: str) -> tuple[bool, int]:
    """Order keys as JavaScript does: array indices come before all others."""
    is_index = key.isascii() and key.isdigit() and len(key) <= _INDEX_DIGITS
    is_index = is_index and (key == "0" or key[0] != "0") and int(key) < _INDEX_BELOW
    return not is_index, int(key) if is_index else 0


_INDEX_BELOW = 2**32 - 1
_INDEX_DIGITS = 10


def load(value: Any) -> Any:
    """Parse a JSON text.

    Raises:
        RenderError: It is not JSON.
    """
    try:
        return parse_json(text_of(value))
    except ValueError as error:
        msg = f"`load` requires JSON: {error}"
        raise RenderError(msg) from error


TEXT_FILTERS: Mapping[str, Callable[..., Any]] = {
    "capitalize": capitalize,
    "center": center,
    "dump": dump,
    "e": escape,
    "escape": escape,
    "forceescape": forceescape,
    "indent": indent,
    "load": load,
    "lower": lower,
    "nl2br": nl2br,
    "replace": replace,
    "safe": safe,
    "striptags": striptags,
    "title": title,
    "trim": trim,
    "truncate": truncate,
    "upper": upper,
    "urlencode": urlencode,
    "urlize": urlize,
    "wordcount": wordcount,
}
