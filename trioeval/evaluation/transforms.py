r"""`transform`: changes an output before assertions see it; parsed once, then applied to many outputs.

The form determines the language:

* JSONPath, which starts with `$`, and JMESPath, which starts with `jmespath:`, query the output, or its
  parsed value if it is a text of JSON;
* `python:` is followed by an expression, or by statements of which one returns;
* `file://` names a function in a Python or JavaScript file;
* anything else is JavaScript, as promptfoo reads it.

Code runs in other processes, and so do expensive queries. Cheap queries, and member paths of the output
(`output.answer.text`), which are JavaScript as well, are evaluated in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from trioeval.documents.files import FILE, FileContext
from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.errors import ScriptError
from trioeval.evaluation.scripts import LIMIT, Scripts
from trioeval.grading import output_text, quote
from trioeval.suite.sources.output_paths import is_query, names_members
from trioeval.suite.sources.prompts import read_text
from trioeval.text import parse_json

if TYPE_CHECKING:
    from trioeval.providers.generic.reply import MemberPath, ReplyQuery, Transform, TransformInput
    from trioeval.scripting.javascript import Script

NAMES = ("output", "context")
"""The names in the code: the output, and `{"vars", "prompt", "metadata"}`."""


@attrs.frozen
class PythonCode:
    """An expression, or statements with a return."""

    code: str


@attrs.frozen
class PythonFunction:
    """A function of a file."""

    file: Path
    name: str


OutputTransform: TypeAlias = "ReplyQuery | MemberPath | PythonCode | PythonFunction | Script"
"""A query applies to the output, or to the JSON that its text contains; a member path to the output."""


def read_output_transform(text: str, context: FileContext) -> OutputTransform:
    """Parse the text of a transform.

    Args:
        text: As in the suite.
        context: The context of its paths.

    Raises:
        MistakenError: It is invalid, names no existing file, or needs an engine that is not installed.
    """
    from trioeval.scripting.javascript import Script, transform_script
    from trioeval.suite.sources.code import (
        FUNCTION,
        PYTHON,
        checked_python,
        checked_script,
        code_file,
    )

    code = text.strip()
    if not code:
        raise MistakenError(Mistake("a transform must not be empty", "remove the key"))
    if is_query(code):
        return _query(code)
    if names_members(code):
        return _members(code)
    context.check_code(quote(code))
    if code.startswith(PYTHON):
        return PythonCode(checked_python(code.removeprefix(PYTHON).strip(), NAMES))
    if code.startswith(FILE):
        file, function = code_file(code, context)
        if file.suffix == ".py":
            return PythonFunction(file, function or FUNCTION)
        script = Script(read_text(file), NAMES, "module", function, file=file)
        return checked_script(script, context)
    return checked_script(transform_script(text, NAMES), context)


async def apply_transform(
    transform: OutputTransform,
    output: Any,
    context: Mapping[str, Any],
    scripts: Scripts,
    limit: float = LIMIT,
) -> Any:
    """Apply a transform to an output and return the result. A checkpoint only if it may take long.

    Args:
        transform: The transform.
        output: A text, or JSON data.
        context: The context of code: `vars`, `prompt` and `metadata`.
        scripts: Runs code.
        limit: Timeout of code in seconds, > 0.

    Raises:
        ScriptError: It fails, or returns nothing.
    """
    from trioeval.providers.generic.reply import (
        NOTHING,
        MemberPath,
        ReplyQuery,
        TransformError,
        plain,
    )
    from trioeval.scripting.javascript import Script

    try:
        match transform:
            case ReplyQuery():
                answer = _answer(_parsed(output), output)
                return await scripts.query(transform, answer, len(answer.text))
            case MemberPath():
                return transform.apply(
                    _answer(NOTHING if isinstance(output, str) else output, output)
                )
            case PythonCode(code):
                seen = {"output": output, "context": plain(context)}
                value, shown = await scripts.python(code, seen, limit), code
            case PythonFunction(file, name):
                value = await scripts.call(file, name, [output, plain(context)], limit)
                shown = f"{file.name}:{name}"
            case Script():
                value = await scripts.javascript(transform, [output, plain(context)], limit)
                shown = transform.code
    except ScriptError as error:
        raise ScriptError(f"the transform failed: {error.message}", trace=error.trace) from error
    except TransformError as error:
        raise ScriptError(f"the transform failed: {error}") from error
    if value is None:
        why = "; code on several lines needs a return" if "\n" in shown else ""
        raise ScriptError(f"the transform returned nothing{why}: {_one_line(shown)}")
    return value


def _members(code: str) -> MemberPath:
    from trioeval.providers.generic.reply import MemberPath

    path = _read(f"json{code.removeprefix('output')}", code)
    if not isinstance(path, MemberPath):
        raise _misread(code)
    return attrs.evolve(path, written=code)


def _query(code: str) -> ReplyQuery:
    from trioeval.providers.generic.reply import ReplyQuery

    query = _read(code, code)
    if not isinstance(query, ReplyQuery):
        raise _misread(code)
    return query


def _read(path: str, code: str) -> Transform | Script:
    from trioeval.providers.generic.reply import read_transform

    found = read_transform(path)
    if isinstance(found, str):
        raise MistakenError(Mistake(f"{_one_line(code)} {found}"))
    return found


def _misread(code: str) -> Exception:
    return RuntimeError(f"{code} is not a valid path; please report this")


def _parsed(output: Any) -> Any:
    from trioeval.providers.generic.reply import NOTHING

    if not isinstance(output, str):
        return output
    try:
        return parse_json(output)
    except ValueError:
        return NOTHING


def _answer(data: Any, output: Any) -> TransformInput:
    from trioeval.providers.generic.reply import TransformInput

    return TransformInput(json=data, text=output_text(output), context={})


def _one_line(code: str) -> str:
    return " ".join(code.split())[:80]
