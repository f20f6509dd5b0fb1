"""Errors of templates that need no template engine."""

from trioeval.errors import TemplateError


class RefusedError(TemplateError):
    """Another way of rendering would fail as well."""


class RenderError(Exception):
    """A template cannot be rendered, raised while it is."""


_INSTEAD = {
    "got &&": "write `and`",
    "got ||": "write `or`",
    "got |": "write `or` for `||`",
    "got !": "write `not`",
    "unexpected token: !": "write `not`",
    "got ?": "write `a if condition else b`",
}


def not_a_template(line: int | None, message: str) -> str:
    """Return the message about a mistake of a text.

    Example:
        >>> not_a_template(2, "expected variable end, got &&")
        'not a template: line 2: expected variable end, got &&; write `and`'
    """
    where = "" if line is None else f"line {line}: "
    return f"not a template: {where}{with_hint(message)}"


def with_hint(message: str) -> str:
    """Return a message of the engine with a correction, if one is known."""
    hint = next((one for sign, one in _INSTEAD.items() if message.endswith(sign)), None)
    return message if hint is None else f"{message}; {hint}"
