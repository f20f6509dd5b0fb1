"""Templates: jinja2 in a sandbox, printing values the way nunjucks does.

Using an undefined variable is an error that names it, because a prompt with a hole in it is nearly always
a mistake; asking about one (`{% if x %}`, `x is defined`, `x == 1`, `x | default(…)`) is not.

What the sandbox bounds is access and the size of ranges, not time: a template is the user's own program.
"""

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import jinja2
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.meta import find_undeclared_variables

from trioeval.errors import TemplateError
from trioeval.suite.nunjucks import UnknownVariableError, make_environment

_PASSES = 5  # how deep variables may refer to variables
_KEPT = 1024  # compiled texts
_MARK = re.compile(r"\{[{%#]")
_UNCLOSED = re.compile(r"\{\{[^}\n]*$|\{%[^%\n]*$|\{#[^#\n]*$", re.MULTILINE)
_RAW = re.compile(r"\{%-?\s*raw\s*-?%\}")


@attrs.define(eq=False)
class Templates:
    """Compiles each text once and renders it for many rows. Belongs to one run.

    Example:
        >>> Templates().render(
        ...     "{{ items }} of {{ total }}", {"items": [1, 2.0, True], "total": None}
        ... )
        '1,2,true of '
    """

    _environment: jinja2.Environment = attrs.field(factory=make_environment, init=False)
    _compile: Callable[[str], jinja2.Template] = attrs.field(init=False)
    _references: Callable[[str], frozenset[str]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._compile = functools.lru_cache(_KEPT)(self._compiled)
        self._references = functools.lru_cache(_KEPT)(self._found_references)

    def render(self, text: str, variables: Mapping[str, Any]) -> str:
        r"""The text with its variables filled in.

        A text without marks comes back as it is; so does one with a line on which a mark opens and does
        not close, unless it has a `raw` block. Line ends of a template are printed as `\n`. One trailing
        newline is taken from text variables, and templates inside them are rendered first. A variable
        that cannot be rendered, because it refers to itself or to what there is not, stays as it is
        written.

        Raises:
            TemplateError: The text is no template, uses a variable that there is not, or does what the
                sandbox refuses.
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
        """The variables with the templates inside them rendered, those first that others refer to."""
        found = {
            name: value.removesuffix("\n") if isinstance(value, str) else value
            for name, value in variables.items()
        }
        waiting = [
            name for name, value in found.items() if isinstance(value, str) and is_template(value)
        ]
        for _ in range(_PASSES):
            if not waiting:
                break
            # What refers to itself, straight or in a circle, is never ready, so nothing can grow for ever.
            ready = [name for name in waiting if self._references(found[name]).isdisjoint(waiting)]
            found |= {name: self._render_or_keep(found[name], found) for name in ready}
            waiting = [name for name in waiting if name not in ready]
        return found

    def _render_or_keep(self, text: str, variables: Mapping[str, Any]) -> str:
        try:
            return self._render(text, variables)
        except TemplateError:
            return text

    def _render(self, text: str, variables: Mapping[str, Any]) -> str:
        template = self._compile(text)
        try:
            return template.render(variables)
        except UnknownVariableError as error:
            raise TemplateError(_undefined(str(error), variables)) from error
        except UndefinedError as error:
            raise TemplateError(str(error)) from error
        except SecurityError as error:
            msg = f"the template does what the sandbox refuses: {error}"
            raise TemplateError(msg) from error
        except (
            Exception
        ) as error:  # whatever an expression of the user's raises is the template's fault
            msg = f"the template cannot be rendered: {type(error).__name__}: {error}"
            raise TemplateError(msg) from error

    def _compiled(self, text: str) -> jinja2.Template:
        try:
            return self._environment.from_string(text)
        except TemplateSyntaxError as error:
            msg = f"not a template: line {error.lineno}: {error.message}"
            raise TemplateError(msg) from error
        except RecursionError as error:
            msg = "not a template: nested too deeply"
            raise TemplateError(msg) from error

    def _found_references(self, text: str) -> frozenset[str]:
        """The variables that a text may look at; none if it is no template."""
        try:
            return frozenset(find_undeclared_variables(self._environment.parse(text)))
        except (TemplateSyntaxError, RecursionError):
            return frozenset()


def is_template(text: str) -> bool:
    """Whether a text has anything to render.

    Example:
        >>> is_template("{{ a }}"), is_template("{ a }"), is_template("{{ a }} and {{ b")
        (True, False, False)
    """
    if "{" not in text or _MARK.search(text) is None:
        return False
    return _UNCLOSED.search(text) is None or _RAW.search(text) is not None


def _undefined(name: str, variables: Mapping[str, Any]) -> str:
    known = sorted(variables)
    if not known:
        return f"{{{{ {name} }}}} is not defined; the test has no variables"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{{{{ {name} }}}} is not defined; the test has {', '.join(known)}{hint}"
