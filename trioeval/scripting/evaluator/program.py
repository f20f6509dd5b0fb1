"""Python code inside a suite: an expression, or statements with a `return`.

Run by path in a worker process, with any Python from 3.9 on, so it uses the standard library only.
"""

from __future__ import annotations

import ast
import functools
import json
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = "<the suite>"
_SHOWN = 200  # characters of an error


def run(code: str, values: dict[str, Any]) -> Any:
    r"""Return the result of the code, with the values under their names.

    Example:
        >>> run("output.upper()", {"output": "hi"})
        'HI'
        >>> run("for word in output.split():\n    return word", {"output": "a b"})
        'a'
    """
    return make_function(code, tuple(values))(**values)


def run_each(code: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the result of the code for each of several rows with the same names: `value`, or an `error`.

    Example:
        >>> run_each("10 // a", [{"a": 5}, {"a": 0}])
        [{'value': 2}, {'error': 'ZeroDivisionError: integer division or modulo by zero'}]
    """
    return [_answer(code, row) for row in rows]


def _answer(code: str, row: dict[str, Any]) -> dict[str, Any]:
    try:
        value = run(code, row)
        json.dumps(value, allow_nan=False)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]}
    return {"value": value}


def judge(code: str, output: Any, context: dict[str, Any]) -> Any:
    r"""Return the result of an assertion's code: an expression on one line, or several lines with a `return`.

    Example:
        >>> judge("len(output) > 3", "abc", {})
        False
        >>> judge("  size = len(output)\n  return size / 10", "abc", {})
        0.3
        >>> judge("len(output)\n", "abc", {})
    """
    return make_judge(code)(output, context)


@functools.lru_cache(maxsize=256)
def make_judge(code: str) -> Callable[[Any, dict[str, Any]], Any]:
    """Return a function of output and context. Runs none of the code.

    Raises:
        SyntaxError: It is not valid Python.
        ValueError: It contains a NUL character.
    """
    text = textwrap.dedent(code) if "\n" in code else f"return {code}"
    module = ast.parse("def main(output, context): pass")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - the line above says so
    function.body = ast.parse(text, _NAME).body or function.body
    found: dict[str, Any] = {"json": json}
    exec(compile(ast.fix_missing_locations(module), _NAME, "exec"), found)  # noqa: S102 - it is made for that
    return found["main"]  # type: ignore[no-any-return] # a function


@functools.lru_cache(maxsize=256)
def make_function(code: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function of the names whose result is that of the code. Runs none of it.

    Raises:
        SyntaxError: It is neither an expression nor statements.
        ValueError: It contains a NUL character.
    """
    module = ast.parse(f"def run({', '.join(names)}): pass")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - the line above says so
    try:
        value = ast.parse(code.strip(), _NAME, "eval").body
        function.body = [ast.copy_location(ast.Return(value), value)]
    except SyntaxError:
        function.body = ast.parse(code, _NAME).body or function.body
    found: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(module), _NAME, "exec"), found)  # noqa: S102 - it is made for that
    return found["run"]  # type: ignore[no-any-return] # a function
