"""JavaScript and Python code of suites, and the programs that run it in other processes."""

import re
from pathlib import Path

MOST_WORKERS = 64
"""The most processes that run one file of code, or one function."""

TYPESCRIPT = frozenset({".cts", ".mts", ".ts"})
SCRIPTS = frozenset({".cjs", ".js", ".mjs"}) | TYPESCRIPT
"""Suffixes of files that are run as JavaScript."""

WORKER = Path(__file__).with_name("worker.mjs")
"""The worker that Node runs."""

_FUNCTION = re.compile(r"\w+(?:\.\w+)*")


def names_script(reference: str) -> bool:
    """Return whether the id of a provider names a file of JavaScript, with or without `file://`.

    Example:
        >>> names_script("file://a.ts"), names_script("./a.js"), names_script("openai:a.js")
        (True, True, False)
        >>> names_script("file://suite.js:providers.0"), names_script("file://a.py:f")
        (True, False)
    """
    path = reference.removeprefix("file://")
    if path == reference:
        return ":" not in path and path.lower().endswith(tuple(SCRIPTS))
    return split_function(path)[0].lower().endswith(tuple(SCRIPTS))


def is_script(file: Path) -> bool:
    """Return whether a file is JavaScript or TypeScript, by its suffix.

    Example:
        >>> is_script(Path("a.TS")), is_script(Path("a.py"))
        (True, False)
    """
    return file.suffix.lower() in SCRIPTS


def split_function(path: str) -> tuple[str, str | None]:
    """Return a file, and the function in it that follows a colon.

    Example:
        >>> split_function("a.js:providers.0"), split_function("/b:c/a.js")
        (('a.js', 'providers.0'), ('/b:c/a.js', None))
    """
    file, colon, function = path.rpartition(":")
    return (file, function) if colon and _FUNCTION.fullmatch(function) else (path, None)
