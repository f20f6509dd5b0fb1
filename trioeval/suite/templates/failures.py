"""What is told of a template that cannot be rendered."""

import difflib
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import attrs
import jinja2
from jinja2.exceptions import SecurityError, UndefinedError

from trioeval.errors import TemplateError
from trioeval.suite.templates.bounds import TooMuchError
from trioeval.suite.templates.undefined import UnknownVariableError
from trioeval.suite.templates.values import NunjucksOnlyError


class RefusedError(TemplateError):
    """What another way of rendering would not help."""


@attrs.frozen
class Words:
    """What messages call things."""

    text: str
    fails: str
    owner: str


TEMPLATE = Words("the template", "cannot be rendered", "the test")
EXPRESSION = Words("the expression", "cannot be evaluated", "the row")
CELL = Words("the template", "cannot be rendered", "the row")


def refused(error: NunjucksOnlyError, line: int | None) -> RefusedError:
    """The error for what nunjucks alone can do."""
    where = "" if line is None else f" at line {line}"
    return RefusedError(f"nunjucks-only: {error.message}{where}; {error.hint}")


def told(
    error: Exception,
    template: jinja2.Template,
    variables: Mapping[str, Any],
    words: Words = TEMPLATE,
) -> TemplateError:
    """What is told of an error that came up while a template was rendered.

    Args:
        error: What was raised.
        template: The template, for the line.
        variables: What it saw.
        words: What to call it.
    """
    what = f"{words.text} {words.fails}"
    match error:
        case NunjucksOnlyError():
            return refused(error, _line(error.__traceback__, template))
        case TooMuchError():
            return RefusedError(str(error))
        case UnknownVariableError():
            return TemplateError(_undefined(str(error), _of_the_test(variables), words.owner))
        case SecurityError():
            return TemplateError(f"{words.text} does what the sandbox refuses: {error}")
        case UndefinedError():
            return TemplateError(str(error))
        case RecursionError():
            return RefusedError(f"{words.text} or its values are nested too deeply")
        case jinja2.TemplateRuntimeError():
            return TemplateError(f"{what}: {error}")
        case _:
            return TemplateError(f"{what}: {type(error).__name__}: {error}")


def _of_the_test(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The variables without those that the run adds to them."""
    return {name: value for name, value in variables.items() if not name.startswith("__")}


def _line(trace: TracebackType | None, template: jinja2.Template) -> int | None:
    """The line of the template at which an error came up: that of its innermost part."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _undefined(name: str, variables: Mapping[str, Any], owner: str) -> str:
    known = sorted(variables)
    if not known:
        return f"{{{{ {name} }}}} is not defined; {owner} has no variables"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{{{{ {name} }}}} is not defined; {owner} has {', '.join(known)}{hint}"
