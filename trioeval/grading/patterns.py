r"""JavaScript regular expressions, as a JavaScript engine matches them: QuickJS, in this process.

Patterns have no flags, as in promptfoo. Therefore texts are UTF-16 units (`^.$` does not match an emoji), and
`\p{L}` is the text "p{L}". An engine is created on the first use of a pattern, one for each thread, because
an engine must not be used by two. It runs no code of a suite: it compiles patterns and matches texts.

Some patterns take very long on unforeseen outputs: the time of `(a+)+$` doubles with each `a`. A search first
gets a time that is short enough for the event loop, and then, in a thread, the time after which it is
aborted. The engine counts the processor time of all threads together; therefore long searches run one after
another. Other threads run during a search.
"""

import functools
import json
import threading
from collections.abc import Callable

import attrs

from trioeval.errors import GradingError
from trioeval.text import quote

LONGEST = 20_000
"""Most characters of a pattern; compiling a set of that many takes two seconds."""

AT_ONCE = 0.01  # seconds
LONGEST_SEARCH = 2.0  # seconds
_MEMORY_BYTES = 256 * 2**20
_STACK_BYTES = 256 * 2**10
"""Less than the smallest stack that a thread may have."""

_COMPILE = """(function (written, isJson) {
  const compiled = new RegExp(isJson ? JSON.parse(written) : written);
  return (text, isJson) => compiled.test(isJson ? JSON.parse(text) : text);
})"""

_ALONE = threading.Lock()
_THREAD = threading.local()


@attrs.frozen
class Pattern:
    """A valid pattern."""

    written: str


def compile_javascript(written: str) -> Pattern:
    r"""Check a pattern.

    Raises:
        ValueError: It is not valid; the message contains the reason.

    Example:
        >>> found_in_time(compile_javascript(r"(?<year>\d{4})$"), "in 1999")
        True
        >>> found_in_time(compile_javascript("c$"), "abc\n")
        False
    """
    if len(written) > LONGEST:
        msg = f"it is longer than {LONGEST:,} characters"
        raise ValueError(msg)
    _engine().compiled(written)
    return Pattern(written)


def found_at_once(pattern: Pattern, text: str) -> bool | None:
    """Return whether a pattern is found in a text; None if that takes longer than `AT_ONCE`."""
    try:
        return _engine().search(pattern.written, text, AT_ONCE)
    except TimeoutError:
        return None
    except MemoryError:
        raise _too_much(pattern, "took too much memory") from None


def found_in_time(pattern: Pattern, text: str) -> bool:
    """Return whether a pattern is found in a text. Blocks, while other threads run.

    Raises:
        GradingError: It takes longer than `LONGEST_SEARCH`, or too much memory.
    """
    try:
        with _ALONE:
            return _engine().search(pattern.written, text, LONGEST_SEARCH)
    except TimeoutError:
        raise _too_much(pattern, f"took longer than {LONGEST_SEARCH:g} seconds") from None
    except MemoryError:
        raise _too_much(pattern, "took too much memory") from None


def _too_much(pattern: Pattern, what: str) -> GradingError:
    return GradingError(f"the search for {quote(pattern.written)} {what} on this text")


class _PatternEngine:
    """The engine of one thread."""

    def __init__(self) -> None:
        # The package's public module also starts a thread, which takes 50 ms, a hundred times as long.
        import _quickjs

        self._context = _quickjs.Context()
        self._context.set_memory_limit(_MEMORY_BYTES)
        self._context.set_max_stack_size(_STACK_BYTES)
        self._compile = self._context.eval(_COMPILE)
        # A suite has few patterns, each used on every output.
        self.compiled = functools.lru_cache(512)(self._compiled)

    def search(self, written: str, text: str, limit: float) -> bool:
        """Return whether a pattern is found in a text.

        Raises:
            TimeoutError: It takes more processor time than the limit.
            MemoryError: It takes too much memory.
        """
        search = self.compiled(written)
        self._context.set_time_limit(limit)
        try:
            return search(*_carried(text))
        except Exception as error:  # noqa: BLE001 - the engine's own types, imported late
            if str(error).startswith("InternalError: interrupted"):
                raise TimeoutError from None
            _THREAD.engine = None  # of one without memory nothing more is expected
            raise MemoryError from None

    def _compiled(self, written: str) -> Callable[[str, bool], bool]:
        self._context.set_time_limit(LONGEST_SEARCH)
        try:
            return self._compile(*_carried(written))  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001 - as above
            kind, _, reason = str(error).partition("\n")[0].partition(": ")
            if reason == "stack overflow":
                reason = "it is nested too deeply"
            raise ValueError(reason or kind) from None


def _engine() -> _PatternEngine:
    """Return the engine of this thread."""
    engine: _PatternEngine | None = getattr(_THREAD, "engine", None)
    if engine is None:
        engine = _THREAD.engine = _PatternEngine()
    return engine


def _carried(text: str) -> tuple[str, bool]:
    """Return a text for the engine, and True if it is JSON, because it cannot be UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text), True
    return text, False
