"""JavaScript regular expressions, without flags, in terms of Python's.

The two differ where it hurts silently: `$` matches before a final newline in Python, `\\d` and `\\w` match
far more than ASCII, and named groups are written differently. What has no counterpart is refused.
"""

import re
from collections.abc import Iterator

_HEX = re.compile(r"\\u\{([0-9a-fA-F]+)\}|\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_LARGEST_CODE_POINT = 0x10FFFF


def compile_javascript(pattern: str) -> "re.Pattern[str]":
    """Compile a JavaScript pattern; use `search` on the result.

    Raises:
        re.PatternError: The pattern is not valid, or has no counterpart in Python.

    Example:
        >>> bool(compile_javascript("b$").search("ab")), bool(compile_javascript("b$").search("ab\\\\n"))
        (True, False)
    """
    return re.compile("".join(_translate(pattern)), re.ASCII)


def _translate(pattern: str) -> Iterator[str]:
    position, in_class = 0, False
    while position < len(pattern):
        rest = pattern[position:]
        if code := _HEX.match(rest):
            yield re.escape(_character(next(part for part in code.groups() if part)))
            position += code.end()
            continue
        found, length = _escape(rest) if rest[0] == "\\" else _plain(rest, in_class=in_class)
        if not in_class and rest[0] == "[":
            in_class = length == 1
        elif in_class and rest[0] == "]":
            in_class = False
        yield found
        position += length


def _escape(rest: str) -> tuple[str, int]:
    """What stands for an escape at the beginning of `rest`, and its length there."""
    if named := re.match(r"\\k<(\w+)>", rest):
        return f"(?P={named[1]})", named.end()
    two = rest[:2]
    # In JavaScript any other character may be escaped and means itself; Python refuses letters.
    known = two[1:] in set("dDwWsSbBnrtfv0123456789")
    return (two if known or len(two) == 1 else re.escape(two[1:])), 2


def _plain(rest: str, *, in_class: bool) -> tuple[str, int]:
    if in_class:
        # Python warns of, and will one day read, sets of sets.
        return ("\\[", 1) if rest[0] == "[" else (rest[0], 1)
    if rest.startswith("[^]"):
        return r"[\s\S]", 3
    if rest.startswith("[]"):
        return r"(?!)", 2
    if rest[0] == "$":
        return r"\Z", 1
    if rest.startswith("(?<") and rest[3:4] not in {"=", "!"}:
        return "(?P<", 3
    return rest[0], 1


def _character(digits: str) -> str:
    code = int(digits, 16)
    if code > _LARGEST_CODE_POINT:
        msg = f"\\u{{{digits}}} is beyond the last character"
        raise re.error(msg)
    return chr(code)
