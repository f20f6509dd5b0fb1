"""What chat completions write in one way and other services in another: tools, choices, schemas.

A suite that asks several vendors says these things once, in the form of chat completions. What is in a
vendor's own form already passes untouched.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.providers.config import is_json_object, is_text


@attrs.frozen(kw_only=True)
class Function:
    """A function that a model may call."""

    name: str
    description: Any = None
    parameters: Any = None
    """Their JSON schema."""


def read_function(tool: Any) -> Function | None:
    """The function of a tool in the form of chat completions; None for any other tool.

    Example:
        >>> read_function({"type": "function", "function": {"name": "clock"}}).name
        'clock'
    """
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not is_text(function.get("name")):
        return None
    return Function(
        name=function["name"],
        description=function.get("description"),
        parameters=function.get("parameters"),
    )


def read_schema(form: Any) -> Mapping[str, Any] | None:
    """The schema of a `json_schema` format, beside the type or inside as chat completions have it.

    Example:
        >>> read_schema({"type": "json_schema", "json_schema": {"schema": {"type": "object"}}})
        {'type': 'object'}
    """
    if not is_json_object(form) or form.get("type") != "json_schema":
        return None
    inner = form.get("json_schema")
    schema = (inner if isinstance(inner, Mapping) else form).get("schema")
    return schema if isinstance(schema, Mapping) else None


def is_schema_format(value: Any) -> bool:
    """Whether it is a format with a schema."""
    return read_schema(value) is not None
