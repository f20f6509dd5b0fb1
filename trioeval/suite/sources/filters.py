"""`nunjucksFilters`: filters of templates that are functions in the user's Python files.

They run in this process, where templates are rendered, because a call to another one would take longer than
all of the rendering. So a suite with filters is code, like a script, and not only data.
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from trioeval.grading import quote
from trioeval.suite.anchors import FILE
from trioeval.suite.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.prompt_files import read_python


def load_filters(mapping: Mapping[str, Any], around: Around) -> dict[str, Callable[..., Any]]:
    """The filters that a suite names. Runs their files.

    Args:
        mapping: Files by the names of the filters. The function is the one that is called like the
            filter, or the only one that the file defines.
        around: What the paths are relative to.

    Raises:
        MistakenError: Everything that is wrong, relative to the mapping.
    """
    found: dict[str, Callable[..., Any]] = {}
    mistakes: list[Mistake] = []
    for name, named in mapping.items():
        try:
            found[name] = _load(name, named, around)
        except MistakenError as error:
            mistakes += [mistake.below(name) for mistake in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    return found


def _load(name: str, named: Any, around: Around) -> Callable[..., Any]:
    if not isinstance(named, str):
        raise MistakenError(Mistake(f"must be the path of a Python file, got {kind(named)}"))
    if not named.endswith(".py"):
        message = f"filters are functions in Python files, and {quote(named)} is none"
        raise MistakenError(Mistake(message, f"write a file that has def {name}(value)"))
    around.check_code(quote(named))
    file = around.file(named)
    read_python(file, named.removeprefix(FILE), None)
    if not around.may_run(quote(named), f"what the filter {quote(name)} makes of texts"):
        return str
    module = _run(file)
    functions = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    if name in functions:
        return functions[name]
    if len(functions) == 1:
        return next(iter(functions.values()))
    message = f"there is no function {quote(name)} in {quote(named)}"
    raise MistakenError(Mistake(message, nearest(name, functions)))


def _run(file: Path) -> ModuleType:
    name = f"trioeval_filters_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise MistakenError(Mistake(f"{file} is not a Python file"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: classes look for their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - whatever the user's file raises
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise MistakenError(Mistake(f"{quote(file.name)} cannot be loaded: {what}")) from None
    return module
