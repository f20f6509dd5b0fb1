"""Sanitizing of untrusted text for terminals: no escape sequences, line breaks or other control characters.

Long runs of combining characters are cut as well: terminals draw them over the lines around.
"""

import functools
import re
import unicodedata


def escape_control_characters(text: object, width: int | None = None) -> str:
    r"""Text on one line without control or direction characters, cut to `width` characters.

    Example:
        >>> escape_control_characters("two\nlines \x1b[31mred", 12)
        'two lines […'
    """
    # Text beyond a few times the width is never visible; replies may be megabytes.
    whole = str(text)
    seen = whole if width is None else whole[: 4 * width + 64]
    plain = " ".join((seen if seen.isascii() and seen.isprintable() else _blanked(seen)).split())
    if width is None or (len(plain) <= width and len(seen) == len(whole)):
        return plain
    return plain[: width - 1].rstrip() + "…"


def inert_lines(text: object, most: int) -> str:
    r"""Return text with its line breaks, but without other control or direction characters.

    Example:
        >>> inert_lines("a:\r\n\tb \x1b[31m", 99)
        'a:\n    b  [31m'
        >>> inert_lines("abcdef", 2)
        'ab… (4 more characters)'
    """
    whole = str(text)
    lines = whole[:most].replace("\r\n", "\n").replace("\t", "    ")
    plain = "\n".join(map(_blanked, lines.split("\n")))
    return plain if len(whole) <= most else f"{plain}… ({len(whole) - most} more characters)"


def escaped(text: str) -> str:
    r"""Return text with its line breaks, and with JSON escapes for all invisible characters.

    JSON text stays equivalent JSON: such characters occur only inside of its strings.

    Example:
        >>> print(escaped("red \x1b[31m, \u202edirection\ttab\nnext \U000e0001 line"))
        red \u001b[31m, \u202edirection    tab
        next \udb40\udc01 line
    """
    lines = text.replace("\r\n", "\n").replace("\t", "    ")
    if not lines.replace("\n", "").isprintable():
        lines = "".join(
            _code(char) if char != "\n" and unicodedata.category(char) in _UNSAFE else char
            for char in lines
        )
    if max(lines, default="") < _FIRST_MARK:
        return lines
    for char in map(chr, _FILLERS):
        lines = lines.replace(char, _code(char))
    return _without_floods(lines)


def _code(char: str) -> str:
    coded = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{coded[at : at + 4]}" for at in range(0, len(coded), 4))


def _blanked(text: str) -> str:
    """Return the text with a space for each invisible character, and without long runs of marks."""
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(char) in _UNSAFE else char for char in text)
    if max(text, default="") < _FIRST_MARK:
        return text
    return _without_floods(text.translate(_FILLERS))


_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_FILLERS = dict.fromkeys((0x115F, 0x1160, 0x3164, 0xFFA0), " ")
"""Invisible letters, for which terminals use different widths."""
_MARKS = {"Mn", "Me"}
_FIRST_MARK, _LAST_MARK = "\u0300", "\uffff"  # the few rare ones beyond would cost much time
_MOST_MARKS = 6  # on one character; languages need four


def _without_floods(text: str) -> str:
    """Return text without more combining characters in a row than any language has."""
    marks = sum(
        unicodedata.category(char) in _MARKS for char in text if _FIRST_MARK <= char <= _LAST_MARK
    )
    return text if marks <= _MOST_MARKS else _floods().sub(r"\1", text)


@functools.cache
def _floods() -> re.Pattern[str]:
    """Return a pattern of more combining characters in a row than any language has. Takes 10 ms, once."""
    codes = range(ord(_FIRST_MARK), ord(_LAST_MARK) + 1)
    marks = "".join(char for char in map(chr, codes) if unicodedata.category(char) in _MARKS)
    return re.compile(f"([{marks}]{{{_MOST_MARKS}}})[{marks}]+")
