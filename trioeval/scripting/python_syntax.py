"""Explanations of why a text is not valid Python for the version that runs it."""

import re
import sys

_NEWER = (
    ((3, 12), re.compile(r"\s*type\s+\w+\s*(?:\[.*\])?\s*=")),
    ((3, 12), re.compile(r"\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[")),
    (
        (3, 12),
        re.compile(r"""(?i).*(?<!\w)(?:fr?|rf)(["'])(?:(?!\1).)*\{[^}]*?(?:\1|\\)[^}]*\}"""),
    ),
    ((3, 14), re.compile(r"\s*except\s+[\w.]+\s*,")),
    ((3, 14), re.compile(r"""(?i).*(?<!\w)(?:tr?|rt)["']""")),
)
"""Lines that only newer versions accept: `type` statements, type parameters, quotes and backslashes inside
f-strings, several exceptions without parentheses, t-strings."""


def python_fault(error: Exception, source: str) -> str:
    """Return what is wrong with a text that could not be parsed, as the end of a sentence.

    Args:
        error: The exception of the parser.
        source: The text.

    Example:
        >>> try:
        ...     compile("1 +", "x", "exec")
        ... except SyntaxError as error:
        ...     python_fault(error, "1 +")
        'is not Python: invalid syntax'
    """
    if not isinstance(error, SyntaxError):
        return f"is not Python: {error}"
    lines, number = source.splitlines(), error.lineno or 0
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    for version, pattern in _NEWER:
        if sys.version_info < version and pattern.match(line):
            newer = ".".join(map(str, version))
            running = ".".join(map(str, sys.version_info[:3]))
            return f"uses syntax of Python {newer} in line {number}, but Python {running} runs it"
    return f"is not Python: {error.msg}"
