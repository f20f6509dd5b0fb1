"""A program that evaluates JSONPath and JMESPath in a worker process, where evaluation can be terminated.

Both languages have expressions that take for ever on documents of a few characters, such as patterns that
backtrack and projections that double their input. Run by path in a worker process, whose caller terminates it
after `TIME_LIMIT`; its memory and the size of its result are bounded as well. Run as a program it does the
same for callers that block: it reads `[language, query, document]` from its standard input, as JSON, and
writes the result of `run`.
"""

import functools
import itertools
import json
import re
import sys
from typing import Any, Literal, TypeAlias

Language: TypeAlias = Literal["jsonpath", "jmespath"]

TIME_LIMIT = 5.0
"""The most seconds of an evaluation."""

MEMORY_MB = 512
"""The most mebibytes of data of a process."""

MOST_VALUES = 100_000
"""The most values that a JSONPath may find."""

LARGEST = 8 * 1024 * 1024
"""The most bytes of JSON that a query may find."""

LONGEST = 10_000
"""The most characters of a query."""

CHEAP = 8 * 1024
"""The size in bytes of the largest document on which a cheap query is evaluated at once."""

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = rf"""\.{_NAME}|\.\*|\[(?:-?[0-9]{{1,9}}|\*|'[^'\\]*'|"[^"\\]*")\]"""
_CHEAP = {
    "jsonpath": re.compile(rf"\$(?:{_STEP}){{0,64}}"),
    "jmespath": re.compile(
        r"(?:@|[A-Za-z_]\w*)(?:\.[A-Za-z_]\w*|\[(?:-?[0-9]{1,9}|\*)?\]){0,64}", re.ASCII
    ),
}


def is_cheap(language: Language, query: str) -> bool:
    """Return whether a query takes at most as many steps as a document has values, times its own length.

    This is true if each step leads from values to their members: no value is reached twice. Filters,
    functions, descents, and constructors of new values are not of this kind.

    Example:
        >>> is_cheap("jsonpath", "$.choices[*].text"), is_cheap("jsonpath", "$..text")
        (True, False)
        >>> is_cheap("jmespath", "choices[].text"), is_cheap("jmespath", "[@,@][]")
        (True, False)
    """
    return _CHEAP[language].fullmatch(query) is not None


def fault(language: Language, query: str) -> str | None:
    """Return what is wrong with a query; None if nothing is."""
    if len(query) > LONGEST:
        return f"it is longer than {LONGEST:,} characters"
    try:
        _compiled(language, query)
    except Exception as error:  # noqa: BLE001 - the libraries' own types, imported late
        return _first_line(error)
    return None


def run(language: Language, query: str, document: Any) -> dict[str, Any]:
    """Evaluate a query.

    Returns:
        `{"values": […], "singular": …}`: the values, and whether it can find one value only; or
        `{"error": …}`, a line.

    Example:
        >>> run("jsonpath", "$..a", {"a": 1, "b": {"a": 2}})
        {'values': [1, 2], 'singular': False}
        >>> run("jmespath", "length(a)", {"a": 1})["error"][:33]
        'In function length(), invalid typ'
    """
    try:
        compiled = _compiled(language, query)
        if language == "jmespath":
            found = compiled.search(document)
            values, is_singular = [] if found is None else [found], True
        else:
            matches = itertools.islice(compiled.finditer(document), MOST_VALUES + 1)
            values, is_singular = [match.value for match in matches], compiled.singular_query()
    except MemoryError:
        raise  # the process cannot be used any more
    except Exception as error:  # noqa: BLE001 - likewise
        return {"error": _first_line(error)}
    if len(values) > MOST_VALUES:
        return {"error": f"it finds more than {MOST_VALUES:,} values"}
    return {"values": values, "singular": is_singular}


@functools.lru_cache(maxsize=256)
def _compiled(language: Language, query: str) -> Any:
    if language == "jmespath":
        import jmespath

        return jmespath.compile(query)
    return _environment().compile(query)


@functools.cache
def _environment() -> Any:
    import jsonpath

    return jsonpath.JSONPathEnvironment(strict=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def main() -> None:
    """Evaluate one query, with limits that apply even after the caller has gone."""
    import resource

    memory = MEMORY_MB * 1024 * 1024
    for kind, limit in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, int(TIME_LIMIT) + 1)):
        most = resource.getrlimit(kind)[1]
        bound = limit if most < 0 else min(limit, most)  # RLIM_INFINITY may be -1
        resource.setrlimit(kind, (bound, bound))
    try:
        answer = json.dumps(run(*json.load(sys.stdin)))
    except MemoryError:
        answer = json.dumps({"error": f"it needs more than {MEMORY_MB} MiB of memory"})
    if len(answer) > LARGEST:
        answer = json.dumps({"error": f"it finds more than {LARGEST // 1024**2} MiB of JSON"})
    sys.stdout.write(answer)


if __name__ == "__main__":
    main()
