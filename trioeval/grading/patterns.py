r"""JavaScript regular expressions, without flags, translated to those of the package `regex`.

The two dialects differ in the meaning of `$`, `.`, `\s` and unknown escapes, in the spelling of named groups,
in what `[…]` may contain and in what may be repeated; each has constructs that the other rejects. A pattern
is read once from left to right and every construct is rewritten, so nothing passes unchecked. A reference to
a group that took no part matches nothing in JavaScript, but fails here: it is rewritten as a condition.
Constructs without a counterpart are rejected, such as `\p{…}`, which needs a flag there. Characters are code
points here, and UTF-16 units there.

The package matches as `re` does, but a search can have a time limit, other threads run meanwhile, and
look-behinds may have any width.
"""

import functools
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import attrs

from trioeval.errors import GradingError
from trioeval.text import quote

if TYPE_CHECKING:
    import regex

LONGEST = 50_000
"""Most characters of a pattern."""
LARGEST = 20_000
"""Most characters of a pattern with all {n} repetitions written out."""

_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACES = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
_NOT_LINE_END = r"[^\n\r\u2028\u2029]"
_ANYTHING = "(?s:.)"
_NOTHING = "(?!)"

_QUANTIFIER = re.compile(r"(?:[*+?]|\{(?P<least>[0-9]+)(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\((?:\?(?::|=|!|(?P<behind><[=!])|<(?P<name>[^>]*)>)|(?!\?))")
_CODE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\})")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_REFERENCE = re.compile(r"\\(?:k<(?P<name>[^>]*)>|(?P<number>[1-9][0-9]*))")
_CONTROL = re.compile(r"\\c([A-Za-z])")

_LAST_CODE = 0x10FFFF
_NUMBER_DIGITS = 9
"""A repetition or group number with more digits is invalid."""


class Pattern(Protocol):
    """A compiled pattern of the package."""

    def search(
        self, string: str, *, concurrent: bool | None = None, timeout: float | None = None
    ) -> "regex.Match[str] | None":
        """Search a text; TimeoutError after that many seconds of processor time."""
        ...


@functools.lru_cache(512)  # a suite has few patterns, each used on every output
def compile_javascript(pattern: str) -> Pattern:
    r"""Compile a pattern with its meaning in JavaScript.

    Raises:
        ValueError: It is invalid, or has no counterpart here; the message says why.

    Example:
        >>> compile_javascript(r"(?<year>\d{4})$").search("in 1999")["year"]
        '1999'
        >>> compile_javascript("c$").search("abc\n") is None
        True
    """
    import regex

    if len(pattern) > LONGEST:
        msg = f"it is longer than {LONGEST:,} characters"
        raise ValueError(msg)
    try:
        return regex.compile(_PatternTranslator(pattern).read(), regex.ASCII | regex.VERSION0)
    except regex.error as error:
        # The position in the message is one in the translated text.
        raise ValueError(str(error).partition(" at position")[0]) from None
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


@attrs.define(eq=False, repr=False)
class _PatternGroup:
    """A group that is not closed yet."""

    number: int | None = None
    """None for one that captures nothing."""
    behind: bool = False
    """True for a look-behind, which is read from right to left."""
    size: int = 1
    """The size of its content so far, repetitions written out."""


@attrs.define(eq=False, repr=False)
class _PatternTranslator:
    """The translator of one pattern."""

    pattern: str
    at: int = 0
    last: int | None = None
    """The size of the preceding element, if it can be repeated."""
    open: list[_PatternGroup] = attrs.field(factory=lambda: [_PatternGroup()])
    numbers: dict[str, int] = attrs.field(factory=dict)
    """The numbers of named groups."""
    groups: int = 0
    """The number of capturing groups so far."""
    referred: list[int | str] = attrs.field(factory=list)

    def read(self) -> str:
        """Return the pattern in the other dialect."""
        text = "".join(self._pieces())
        if len(self.open) > 1:
            msg = "( is never closed"
            raise ValueError(msg)
        for group in self.referred:
            if isinstance(group, str) and group not in self.numbers:
                msg = f'unknown group "{group}"'
                raise ValueError(msg)
            if isinstance(group, int) and group > self.groups:
                msg = f"unknown group {group}"
                raise ValueError(msg)
        return text

    def _pieces(self) -> Iterator[str]:
        pattern = self.pattern
        while self.at < len(pattern):
            match pattern[self.at]:
                case "\\":
                    yield self._escaped()
                case "[":
                    piece, self.at = _character_class(pattern, self.at)
                    yield self._repeatable(piece)
                case "(":
                    yield self._begin_group()
                case ")":
                    yield self._end_group()
                case "*" | "+" | "?" | "{":
                    yield self._quantifier()
                case "$":
                    yield self._step(r"\Z")
                case ".":
                    yield self._repeatable(self._step(_NOT_LINE_END))
                case "^" | "|" as character:
                    yield self._step(character)
                case character:
                    yield self._repeatable(self._step(re.escape(character)))

    def _step(self, piece: str) -> str:
        """Return one piece that cannot be repeated."""
        self.at += 1
        self.last = None
        return piece

    def _repeatable(self, piece: str, size: int = 1) -> str:
        self.last = size
        self._grow(size)
        return piece

    def _grow(self, size: int) -> None:
        self.open[-1].size += size
        if self.open[-1].size > LARGEST:
            msg = f"its repetitions expand to more than {LARGEST:,} characters"
            raise ValueError(msg)

    def _escaped(self) -> str:
        found = _REFERENCE.match(self.pattern, self.at)
        if found is not None:
            self.at = found.end()
            return self._repeatable(self._reference(found["name"], found["number"]))
        atom, self.at = _escape(self.pattern, self.at)
        if atom.width:
            return self._repeatable(atom.outside)
        self.last = None
        return atom.outside

    def _reference(self, name: str | None, digits: str | None) -> str:
        if name is not None:
            self.referred.append(_checked_name(name))
            number = self.numbers.get(name)
            written, group = name, f"(?P={name})"
        else:
            number = _number(digits or "")
            self.referred.append(number)
            written, group = str(number), f"\\{number}"
        still_open = number is None or number > self.groups or self._is_open(number)
        if still_open and not any(outer.behind for outer in self.open):
            return "(?:)"  # the group has captured nothing yet
        return f"(?({written}){group})"

    def _is_open(self, number: int) -> bool:
        return any(group.number == number for group in self.open)

    def _begin_group(self) -> str:
        found = _GROUP.match(self.pattern, self.at)
        if found is None:
            msg = f'"{self.pattern[self.at : self.at + 3]}" does not start a group'
            raise ValueError(msg)
        self.at, self.last = found.end(), None
        name, catches = found["name"], found[0] == "(" or found["name"] is not None
        self.groups += catches
        self.open.append(
            _PatternGroup(self.groups if catches else None, behind=found["behind"] is not None)
        )
        if name is None:
            return found[0]
        if name in self.numbers:
            msg = f'there are two groups with the name "{name}"'
            raise ValueError(msg)
        self.numbers[_checked_name(name)] = self.groups
        return f"(?P<{name}>"

    def _end_group(self) -> str:
        if len(self.open) == 1:
            msg = "unmatched )"
            raise ValueError(msg)
        group = self.open.pop()
        self.at += 1
        if not group.behind:
            return self._repeatable(")", group.size)
        self._grow(group.size)
        self.last = None
        return ")"

    def _quantifier(self) -> str:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None:
            return self._repeatable(self._step(r"\{"))
        if self.last is None:
            msg = f"nothing to repeat before {found[0]}"
            raise ValueError(msg)
        self._grow(self.last * max(0, _number(found["least"] or "0") - 1))
        self.at, self.last = found.end(), None
        return found[0]


def _number(digits: str) -> int:
    if len(digits) > _NUMBER_DIGITS:
        msg = f"the number {digits} is too large"
        raise ValueError(msg)
    return int(digits)


def _checked_name(name: str) -> str:
    if not name.isidentifier():
        msg = f'"{name}" is not a valid name of a group'
        raise ValueError(msg)
    return name


@attrs.frozen
class _Atom:
    """One character or one set of characters."""

    inside: str
    """Its form within brackets."""
    outside: str
    """Its form elsewhere."""
    single: bool = True
    """True if it can be the end of a range."""
    width: int = 1
    """Its number of characters in the pattern."""


def _literal(character: str) -> _Atom:
    return _Atom(re.escape(character), re.escape(character))


_CLASSES = {
    "d": _Atom(r"\d", r"\d", single=False),
    "D": _Atom(r"\D", r"\D", single=False),
    "w": _Atom(r"\w", r"\w", single=False),
    "W": _Atom(r"\W", r"\W", single=False),
    "s": _Atom(_SPACES, f"[{_SPACES}]", single=False),
    "S": _Atom(_NO_SPACES, f"[{_NO_SPACES}]", single=False),
    "b": _Atom(r"\x08", r"\b", width=0),
    "B": _Atom("B", r"\B", width=0),
    **{letter: _Atom(rf"\{letter}", rf"\{letter}") for letter in "nrtvf"},
}


def _escape(pattern: str, at: int) -> tuple[_Atom, int]:
    letter = pattern[at + 1 : at + 2]
    if not letter:
        msg = "the last \\ escapes nothing"
        raise ValueError(msg)
    if letter in _CLASSES:
        return _CLASSES[letter], at + 2
    if found := _CODE.match(pattern, at):
        return _coded(pattern, found)
    if found := _CONTROL.match(pattern, at):
        return _literal(chr(ord(found[1]) % 32)), found.end()
    if letter == "0" and not pattern[at + 2 : at + 3].isdecimal():
        return _literal("\0"), at + 2
    if letter in "0cpP":
        # An octal number, an invalid control character, a property: without flags these are mistakes.
        msg = f"\\{letter} is not supported here"
        raise ValueError(msg)
    return _literal(letter), at + 2


def _coded(pattern: str, found: re.Match[str]) -> tuple[_Atom, int]:
    code, end = int(found[1] or found[2] or found[3], 16), found.end()
    if code > _LAST_CODE:
        msg = f"{found[0]} is not a character"
        raise ValueError(msg)
    low = _LOW_SURROGATE.match(pattern, end)
    if found[2] and 0xD800 <= code < 0xDC00 and low is not None:  # noqa: PLR2004 - as Unicode has it
        code, end = 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00, low.end()
    return _literal(chr(code)), end


def _character_class(pattern: str, at: int) -> tuple[str, int]:
    negated = pattern[at + 1 : at + 2] == "^"
    at += 2 if negated else 1
    atoms: list[_Atom] = []
    while pattern[at : at + 1] != "]":
        if at >= len(pattern):
            msg = "[ is never closed"
            raise ValueError(msg)
        if pattern[at] == "\\":
            if _REFERENCE.match(pattern, at):
                msg = "a reference cannot be between [ and ]"
                raise ValueError(msg)
            atom, at = _escape(pattern, at)
        else:
            atom, at = _DASH if pattern[at] == "-" else _literal(pattern[at]), at + 1
        atoms.append(atom)
    if not atoms:
        return _ANYTHING if negated else _NOTHING, at + 1
    return f"[{'^' if negated else ''}{''.join(_members(atoms))}]", at + 1


_DASH = _Atom(r"\-", r"\-")


def _members(atoms: list[_Atom]) -> Iterator[str]:
    at = 0
    while at < len(atoms):
        first, *rest = atoms[at : at + 3]
        if len(rest) == 2 and rest[0] is _DASH:  # noqa: PLR2004
            last = rest[1]
            # With a set at one end it is not a range, and the other end starts none.
            dash = "-" if first.single and last.single else _DASH.inside
            yield f"{first.inside}{dash}{last.inside}"
            at += 3
        else:
            yield first.inside
            at += 1


# A search for a pattern in an output with a time limit.
#
# Some patterns take very long on unforeseen outputs: the time of `(a+)+$` doubles with each `a`. A search
# first gets a time that is short enough for the event loop, and then, in a thread, the time after which it is
# aborted. The package counts the processor time of all threads together; therefore long searches run one
# after another.


AT_ONCE = 0.01  # seconds
LONGEST_PATTERN = 1.0  # seconds
_ALONE = threading.Lock()


def found_at_once(pattern: Pattern, text: str) -> bool | None:
    """Return whether a pattern is found in a text; None if that takes longer than `AT_ONCE`."""
    try:
        return pattern.search(text, timeout=AT_ONCE) is not None
    except TimeoutError:
        return None


def found_in_time(pattern: Pattern, text: str, *, written: str) -> bool:
    """Return whether a pattern is found in a text. Blocks, while other threads run.

    Args:
        pattern: The compiled pattern.
        text: The text.
        written: The pattern as written in the suite.

    Raises:
        GradingError: It takes longer than `LONGEST_PATTERN`.
    """
    try:
        with _ALONE:
            return pattern.search(text, timeout=LONGEST_PATTERN, concurrent=True) is not None
    except TimeoutError:
        msg = f"the search for {quote(written)} took longer than {LONGEST_PATTERN:g} second on this output"
        raise GradingError(msg) from None
    except MemoryError:
        msg = f"the search for {quote(written)} took too much memory on this output"
        raise GradingError(msg) from None
