"""Python code that stands in a suite: an expression, or statements of which one returns.

Run by path in a worker process, with any Python from 3.9 on, and so made of the standard library alone.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = "<the suite>"


def run(code: str, values: dict[str, Any]) -> Any:
    r"""What the code gives, with the values under their names.

    Example:
        >>> run("output.upper()", {"output": "hi"})
        'HI'
        >>> run("for word in output.split():\n    return word", {"output": "a b"})
        'a'
    """
    return make_function(code, tuple(values))(**values)


@functools.lru_cache(maxsize=256)
def make_function(code: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function of the names whose result is that of the code. Runs none of it.

    Raises:
        SyntaxError: It is neither an expression nor statements.
        ValueError: It holds a NUL character.
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
