"""JavaScript of a suite, run in an embedded engine that has nothing but the language.

Needs the extra `js`. Every call gets an engine of its own, with a bound on memory and on time: making one
costs less than half a millisecond, and no call can leave anything behind for the next. The engine's values
never leave it: arguments go in, and the result comes out, as JSON.
"""

import importlib.util
import json
import re
from typing import Any

import attrs

MEMORY_BYTES = 256 * 1024 * 1024
"""Most memory that a call may take."""

TIME_LIMIT = 2.0
"""Seconds of computing that a call may take."""

INSTALL = "pip install 'trioeval[js]'"
"""What brings the engine."""

_FUNCTION = re.compile(r"\s*(?:async\s+)?(?:function\b|\(?[\w\s,{}\[\]=.]*\)?\s*=>)")

_PROGRAM = """(function (written) {{
  const [{names}] = JSON.parse(written);
  const it = (
{code}
  );
  const value = typeof it === "function" ? it({names}) : it;
  if (value instanceof Promise) throw new TypeError("it is async; a result is needed at once");
  return JSON.stringify(value);
}})"""


class JavaScriptError(Exception):
    """The code is not JavaScript, or it failed; the message says how."""


@attrs.frozen
class Script:
    """An expression of JavaScript, or a function that is called.

    Example:
        >>> Script("(json) => json.answer", ("json", "text")).run({"answer": 42}, "…")
        42
    """

    code: str
    names: tuple[str, ...]
    """What the arguments are called, in their order."""

    def fault(self) -> str | None:
        """What is wrong with the code as it is written; None if nothing is, as far as can be seen."""
        if importlib.util.find_spec("quickjs") is None:
            return f"is JavaScript, for which an engine is needed: {INSTALL}"
        try:
            _engine().eval(self._program())
        except Exception as error:  # noqa: BLE001 - the engine's own types, imported late
            return f"is not JavaScript: {_first_line(error)}"
        return None

    def run(self, *values: Any) -> Any:
        """The result, as data of JSON; None where there is none.

        Blocks, for `TIME_LIMIT` at most.

        Raises:
            JavaScriptError: It failed, or took too much memory or time.
        """
        try:
            call = _engine().eval(self._program())
            written = call(json.dumps(values))
            return None if written is None else json.loads(written)
        except Exception as error:
            raise JavaScriptError(_first_line(error)) from error

    def _program(self) -> str:
        return _PROGRAM.format(names=", ".join(self.names), code=self.code)


def is_function(code: str) -> bool:
    """Whether a text is written as a function, rather than as an expression or a template.

    Example:
        >>> is_function("(prompt) => prompt.trim()"), is_function("question => {{prompt}}")
        (True, False)
    """
    return "{{" not in code and _FUNCTION.match(code) is not None


def _engine() -> Any:
    import quickjs  # noqa: PLC0415 - an extra

    engine = quickjs.Context()
    engine.set_memory_limit(MEMORY_BYTES)
    engine.set_time_limit(TIME_LIMIT)
    return engine


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    if text == "InternalError: interrupted":
        return f"it took longer than {TIME_LIMIT:g} seconds"
    return text or type(error).__name__
