"""`transformVars`: code that may add variables to those of a test, or replace them, before it is expanded."""

import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.scripting.engine import program as engine
from trioeval.scripting.evaluator import program as evaluator
from trioeval.scripting.javascript import Script, transform_script
from trioeval.scripting.python_syntax import python_fault
from trioeval.suite.anchors import FILE
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.functions import LIMIT, call_for_each
from trioeval.suite.sources.prompt_files import read_python, read_text

FUNCTION = "get_transform"
"""The function of a Python file that names none."""

PYTHON = "python:"
"""What Python code begins with."""

NAMES = ("vars", "context")
"""What the code sees: the variables, and `{"prompt": {}, "uuid": …}`."""

_EACH = 0.1
"""Seconds that each test adds to the time of all."""

_CODE_FILE = re.compile(r"(.+\.(?:py|[cm]?js))(?::(\w+(?:\.\w+)*))?")


def transform_vars(text: str, variables: Mapping[str, Any], around: Around) -> dict[str, Any]:
    """The variables of a test after its `transformVars`: what that gives, over what they were.

    Args:
        text: The code, or the file with it.
        variables: JSON.
        around: What paths are relative to.

    Raises:
        MistakenError: It cannot be run, fails, or gives no object.
    """
    return transform_vars_of_each(text, [variables], around)[0]


def transform_vars_of_each(
    text: str, tests: Sequence[Mapping[str, Any]], around: Around
) -> list[dict[str, Any]]:
    """The same for many tests, in one process.

    Raises:
        MistakenError: The same; its path begins with the position of the test, if there are several.
    """
    found = _run(text, [[dict(test), _context()] for test in tests], around)
    mistakes = []
    for position, value in enumerate(found):
        if not isinstance(value, dict):
            message = f"transformVars must give an object of variables, got {kind(value)}"
            hint = (
                "code on several lines needs a return" if value is None and "\n" in text else None
            )
            mistakes.append(Mistake(message, hint, at=(position,) if len(tests) > 1 else ()))
    if mistakes:
        raise MistakenError(*mistakes)
    return [{**test, **value} for test, value in zip(tests, found, strict=True)]


def code_file(text: str, around: Around) -> tuple[Path, str | None]:
    """The file, and the function in it, that `file://<file>[:<function>]` names.

    Raises:
        MistakenError: There is none, or it is neither Python nor JavaScript.
    """
    parts = _CODE_FILE.fullmatch(text.removeprefix(FILE))
    if parts is None:
        message = f"{quote(text)} is no code that can be run"
        raise MistakenError(Mistake(message, "write file://<file>.py[:<function>], or a .js file"))
    around.check_code(quote(text))
    file = around.file(parts[1])
    if file.suffix == ".py":
        read_python(file, parts[1], parts[2])
    return file, parts[2]


def checked_script(script: Script) -> Script:
    """The same script.

    Raises:
        MistakenError: It is wrong as it is written, or there is no engine.
    """
    if fault := script.fault():
        raise MistakenError(Mistake(f"{quote(script.code)} {fault}"))
    return script


def checked_python(code: str, names: tuple[str, ...]) -> str:
    """The same Python code.

    Raises:
        MistakenError: It is no Python.
    """
    try:
        evaluator.make_function(code, names)
    except (SyntaxError, ValueError) as error:
        raise MistakenError(Mistake(f"{quote(code)} {python_fault(error, code)}")) from None
    return code


def _context() -> dict[str, Any]:
    return {"prompt": {}, "uuid": str(uuid.uuid4())}


def _run(text: str, calls: list[list[Any]], around: Around) -> list[Any]:
    limit = LIMIT + len(calls) * _EACH
    if text.startswith(PYTHON):
        code = checked_python(text.removeprefix(PYTHON).strip(), NAMES)
        seen = [[code, dict(zip(NAMES, values, strict=True))] for values in calls]
        program = Path(evaluator.__file__)
        return call_for_each(program, "run", seen, around, limit=limit, shown=quote(code))
    if not text.startswith(FILE):
        return _run_script(transform_script(text, NAMES), calls, around, limit)
    file, function = code_file(text, around)
    if file.suffix == ".py":
        return call_for_each(file, function or FUNCTION, calls, around, limit=limit)
    return _run_script(Script(read_text(file), NAMES, "module", function), calls, around, limit)


def _run_script(script: Script, calls: list[list[Any]], around: Around, limit: float) -> list[Any]:
    asked = [[checked_script(script).source, values] for values in calls]
    # With this interpreter: the engine is installed for it.
    told = call_for_each(
        Path(engine.__file__),
        "run",
        asked,
        around,
        limit=limit,
        executable=sys.executable,
        shown="transformVars",
    )
    for position, answer in enumerate(told):
        if "error" in answer:
            at = (position,) if len(calls) > 1 else ()
            raise MistakenError(Mistake(f"transformVars fails: {answer['error']}", at=at))
    return [answer["value"] for answer in told]
