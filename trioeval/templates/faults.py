"""Errors of templates that need no template engine."""

from trioeval.errors import TemplateError


class RefusedError(TemplateError):
    """Another way of rendering would fail as well."""


class RenderError(Exception):
    """A template cannot be rendered, raised while it is; in place of jinja2's error for this."""
