# Apart from `providers.generic.entry`: code in a configuration is read where nothing else is.
"""Reading `transformRequest` and `transformResponse`: the language of each, and what is wrong with it."""

import ast
import re
import sys
from collections.abc import Iterator

from trioeval.errors import Problem
from trioeval.providers.config import Surroundings, show
from trioeval.providers.generic.parts import find
from trioeval.providers.generic.reply import Transform, read_transform
from trioeval.providers.programs.workers import WorkerSpec
from trioeval.scripting.javascript import Script, is_function
from trioeval.scripting.python_syntax import python_fault

DEFAULT_FUNCTION = "transform"
"""The function of a Python file that names none."""

_PYTHON = re.compile(r"file://(.+\.py)(?::(\w+))?")
_REQUEST = ".config.transformRequest"
_UNSEEN = frozenset({"exec", "globals", "setattr", "vars", "__getattr__"})
"""Names in files whose own names cannot be seen."""


def read_rewrite(text: str, around: Surroundings) -> Script | str | Problem:
    """What the prompt becomes: a script, or a template; or what is wrong with it."""
    if text.startswith("file://"):
        return Problem(_REQUEST, "files are not supported yet", "write the code itself")
    if is_function(text):
        script = Script(text.strip(), ("prompt", "vars", "context"))
        fault = script.fault()
        return script if fault is None else Problem(_REQUEST, fault)
    fault = around.templates.syntax_error(text)
    return text if fault is None else Problem(_REQUEST, fault)


def read_output(text: str, around: Surroundings) -> Transform | Script | WorkerSpec | Problem:
    """What finds the output: a transform, or the workers of a function in a Python file."""
    found = _PYTHON.fullmatch(text.strip())
    transform: Transform | Script | WorkerSpec | str = (
        read_transform(text)
        if found is None
        else _read_function(found[1], found[2] or DEFAULT_FUNCTION, around)
    )
    if isinstance(transform, str):
        return Problem(".config.transformResponse", transform)
    return transform


def _read_function(file: str, name: str, around: Surroundings) -> WorkerSpec | str:
    path = find(around, file)
    if isinstance(path, str):
        return path
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        source = path.read_text(encoding="utf-8", errors="replace")
        return f"{show(file)} {python_fault(error, source)}"
    except (OSError, ValueError) as error:
        return f"{show(file)} cannot be loaded: {error}"
    names = frozenset(_names(tree))
    if name not in names and "*" not in names and _UNSEEN.isdisjoint(_mentioned(tree)):
        return f"there is no function {name} in {show(file)}"
    return WorkerSpec(
        name=f"transformResponse {file}:{name}",
        executable=sys.executable,
        file=path,
        function=name,
        cwd=around.directory.resolve(),
        environ=around.environ,
    )


def _names(node: ast.AST) -> Iterator[str]:
    """The names that a module gives to something; "*" where it takes them from elsewhere."""
    for part in ast.iter_child_nodes(node):
        match part:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Lambda():
                pass  # its names are its own
            case _:
                yield from _names(part)


def _mentioned(tree: ast.AST) -> Iterator[str]:
    for part in ast.walk(tree):
        match part:
            case ast.Name(id=name) | ast.FunctionDef(name=name):
                yield name
            case _:
                pass
