r"""JavaScript regular expressions, without flags, as Python's.

The two dialects differ in what `$`, `.`, `\s` and unknown escapes mean, in the spelling of named groups,
and in what may stand in `[…]`; Python also has constructs that JavaScript refuses. A pattern is read
once from left to right and every construct is written down again in Python's dialect, so that nothing
passes that was not looked at. What has no counterpart is refused: look-behinds of variable width, `\p{…}`,
references to groups that come later. Characters are code points here, and UTF-16 units there.
"""

import re
from collections.abc import Iterator

import attrs

_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACES = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
_NOT_LINE_END = r"[^\n\r\u2028\u2029]"
_ANYTHING = "(?s:.)"
_NOTHING = "(?!)"

_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|<(?P<name>[^>]*)>)|(?!\?))")
_CODE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\})")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_NAMED_REFERENCE = re.compile(r"\\k<([^>]*)>")
_NUMBERED_REFERENCE = re.compile(r"\\([1-9][0-9]*)")
_CONTROL = re.compile(r"\\c([A-Za-z])")

_LAST_CODE = 0x10FFFF


def compile_javascript(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern that means what JavaScript means by it.

    Raises:
        ValueError: It is invalid, or Python has no equal; the message says why.

    Example:
        >>> compile_javascript(r"(?<year>\d{4})$").search("in 1999")["year"]
        '1999'
        >>> compile_javascript("c$").search("abc\n") is None
        True
    """
    try:
        return re.compile("".join(_pieces(pattern)), re.ASCII)
    except re.error as error:
        raise ValueError(error.msg) from None
    except OverflowError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                atom, at = _escape(pattern, at)
                yield atom.outside
            case "[":
                piece, at = _character_class(pattern, at)
                yield piece
            case "(":
                piece, at = _group(pattern, at)
                yield piece
            case "*" | "+" | "?" | "{":
                piece, at = _quantifier(pattern, at)
                yield piece
            case "$":
                yield r"\Z"
                at += 1
            case ".":
                yield _NOT_LINE_END
                at += 1
            case character:
                yield character if character in "^|)" else re.escape(character)
                at += 1


def _group(pattern: str, at: int) -> tuple[str, int]:
    found = _GROUP.match(pattern, at)
    if found is None:
        msg = f'there is no group that begins with "{pattern[at : at + 3]}"'
        raise ValueError(msg)
    name = found["name"]
    if name is None:
        return found[0], found.end()
    return f"(?P<{_checked_name(name)}>", found.end()


def _checked_name(name: str) -> str:
    if not name.isidentifier():
        msg = f'"{name}" cannot be the name of a group'
        raise ValueError(msg)
    return name


def _quantifier(pattern: str, at: int) -> tuple[str, int]:
    found = _QUANTIFIER.match(pattern, at)
    if found is None:
        return r"\{", at + 1
    if pattern[found.end() : found.end() + 1] == "+":
        # Python would take it for a possessive quantifier.
        msg = "nothing to repeat before +"
        raise ValueError(msg)
    return found[0], found.end()


@attrs.frozen
class _Atom:
    """One character or one set of characters."""

    inside: str
    """How it is written within brackets."""
    outside: str
    """How it is written elsewhere."""
    single: bool = True
    """Whether it can be the end of a range."""


def _literal(character: str) -> _Atom:
    return _Atom(re.escape(character), re.escape(character))


_CLASSES = {
    "d": _Atom(r"\d", r"\d", single=False),
    "D": _Atom(r"\D", r"\D", single=False),
    "w": _Atom(r"\w", r"\w", single=False),
    "W": _Atom(r"\W", r"\W", single=False),
    "s": _Atom(_SPACES, f"[{_SPACES}]", single=False),
    "S": _Atom(_NO_SPACES, f"[{_NO_SPACES}]", single=False),
    "b": _Atom(r"\x08", r"\b"),
    "B": _Atom("B", r"\B"),
    **{letter: _Atom(rf"\{letter}", rf"\{letter}") for letter in "nrtvf"},
}


def _escape(pattern: str, at: int) -> tuple[_Atom, int]:
    letter = pattern[at + 1 : at + 2]
    if not letter:
        msg = "there is nothing after the last \\"
        raise ValueError(msg)
    if letter in _CLASSES:
        return _CLASSES[letter], at + 2
    if found := _CODE.match(pattern, at):
        return _coded(pattern, found)
    if found := _NAMED_REFERENCE.match(pattern, at):
        return _reference(f"(?P={_checked_name(found[1])})"), found.end()
    if found := _NUMBERED_REFERENCE.match(pattern, at):
        return _reference(f"(?:{found[0]})"), found.end()
    if found := _CONTROL.match(pattern, at):
        return _literal(chr(ord(found[1]) % 32)), found.end()
    if letter == "0" and not pattern[at + 2 : at + 3].isdecimal():
        return _literal("\0"), at + 2
    if letter in "0cpP":
        # An octal number, a control character that is none, a property: without flags these are accidents.
        msg = f"\\{letter} is not supported here"
        raise ValueError(msg)
    return _literal(letter), at + 2


def _reference(text: str) -> _Atom:
    return _Atom("", text, single=False)


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
            atom, at = _escape(pattern, at)
            if not atom.inside:
                msg = "a reference cannot stand between [ and ]"
                raise ValueError(msg)
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
        if len(rest) == 2 and rest[0] is _DASH and first.single and rest[1].single:  # noqa: PLR2004
            yield f"{first.inside}-{rest[1].inside}"
            at += 3
        else:
            yield first.inside
            at += 1
