"""Templates: jinja2 in a sandbox, printing values the way nunjucks does.

Printing an undefined variable is an error that names it, because a prompt with a hole in it is nearly
always a mistake; asking about one (`{% if x %}`, `x is defined`, `default(...)`) is not.
"""

import difflib
import json
from collections.abc import Mapping
from typing import Any, NoReturn

import attrs
import jinja2
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trioeval.errors import TemplateError

_PASSES = 5  # how deep variables may refer to variables
_MARKS = ("{{", "{%", "{#")


class _Missing(jinja2.ChainableUndefined):
    """An undefined value: false, empty, with undefined members, and not printable."""

    def __str__(self) -> NoReturn:
        raise UndefinedError(self._undefined_name or "?")


@attrs.define(eq=False)
class Templates:
    """Compiles each text once and renders it for many rows. Belongs to one run.

    Example:
        >>> Templates().render("{{ items }} of {{ total }}", {"items": [1, 2.0, True], "total": None})
        '1,2,true of '
    """

    _environment: jinja2.Environment = attrs.field(init=False)
    _compiled: dict[str, jinja2.Template] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._environment = ImmutableSandboxedEnvironment(
            undefined=_Missing, keep_trailing_newline=True, autoescape=False, finalize=_printed
        )
        self._environment.filters["dump"] = _dump

    def render(self, text: str, variables: Mapping[str, Any]) -> str:
        """The text with its variables filled in; text without marks comes back as it is.

        One trailing newline is taken from text variables, and templates inside them are rendered too.

        Raises:
            TemplateError: The text is no template, a variable is printed that there is not, or the
                sandbox refuses what it does.
        """
        if not is_template(text):
            return text
        return self._render(text, self._resolved(variables))

    def syntax_error(self, text: str) -> str | None:
        """What is wrong with a text as a template, with its line; None if nothing is."""
        if not is_template(text):
            return None
        try:
            self._compile(text)
        except TemplateError as error:
            return str(error)
        return None

    def _resolved(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The variables with the templates inside them rendered, as often as they refer to each other."""
        found = {
            name: value.removesuffix("\n") if isinstance(value, str) else value
            for name, value in variables.items()
        }
        for _ in range(_PASSES):
            open_ = [n for n, value in found.items() if isinstance(value, str) and is_template(value)]
            if not open_:
                break
            rendered = {name: self._render(found[name], found) for name in open_}
            if all(found[name] == rendered[name] for name in open_):
                break
            found |= rendered
        return found

    def _render(self, text: str, variables: Mapping[str, Any]) -> str:
        try:
            return self._compile(text).render(variables)
        except UndefinedError as error:
            raise TemplateError(_undefined(str(error), variables)) from error
        except SecurityError as error:
            msg = f"the template does what the sandbox refuses: {error}"
            raise TemplateError(msg) from error
        except TemplateError:
            raise
        except Exception as error:  # whatever an expression of the user's raises is the template's fault
            msg = f"the template cannot be rendered: {type(error).__name__}: {error}"
            raise TemplateError(msg) from error

    def _compile(self, text: str) -> jinja2.Template:
        template = self._compiled.get(text)
        if template is None:
            try:
                template = self._environment.from_string(text)
            except TemplateSyntaxError as error:
                msg = f"not a template: line {error.lineno}: {error.message}"
                raise TemplateError(msg) from error
            self._compiled[text] = template
        return template


def is_template(text: str) -> bool:
    """Whether a text has anything to render."""
    return any(mark in text for mark in _MARKS)


def _printed(value: Any) -> Any:
    """What nunjucks prints for a value."""
    match value:
        case str() | jinja2.Undefined():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return int(value) if value.is_integer() else value
        case list() | tuple():
            return ",".join(str(_printed(item)) for item in value)
        case Mapping():
            return "[object Object]"
        case _:
            return value


def _dump(value: Any, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=str)


def _undefined(name: str, variables: Mapping[str, Any]) -> str:
    known = sorted(variables)
    if not known:
        return f"{{{{ {name} }}}} is not defined; the test has no variables"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{{{{ {name} }}}} is not defined; the test has {', '.join(known)}{hint}"
