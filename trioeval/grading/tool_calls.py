"""Whether a call that a model wrote is one that its provider offered: a known name, and arguments that fit.

Chat completions write the arguments as the text of a JSON object, and their schemas are JSON schemas.
Google's calls have them as data, and its schemas may write the names of types in capitals.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading.schemas import document_faults
from trioeval.grading.text import parse_json, quote


class UndeclaredError(Exception):
    """A call cannot be checked with the schema of its function, so nobody can say whether it fits."""


@attrs.frozen
class Function:
    """A function that a model was offered."""

    name: str
    parameters: Any
    """JSON schema; None for a function that takes no arguments."""


@attrs.frozen
class Call:
    """A call of a function."""

    name: str
    arguments: Any
    """JSON data, or the text of it."""


def chat_call(value: Any) -> Call | None:
    """A call as chat completions write it, or None if it is none.

    Example:
        >>> chat_call({"name": "add", "arguments": "{}"})
        Call(name='add', arguments='{}')
    """
    match value:
        case {"name": str(name), "arguments": str(arguments)}:
            return Call(name, arguments)
        case _:
            return None


def google_calls(output: Any) -> Sequence[Call] | None:
    """The calls in an answer of Google's, or None if it is none or has no calls."""
    match output:
        case {"toolCall": {"functionCalls": list(found)}}:
            parts = found
        case list():
            parts = [part["functionCall"] for part in output if _has(part, "functionCall")]
        case _:
            return None
    calls = [
        Call(part["name"], part.get("args") or {})
        for part in parts
        if _has(part, "name") and isinstance(part["name"], str)
    ]
    return calls if calls and len(calls) == len(parts) else None


def own_functions(entries: Sequence[Any]) -> Iterator[Function]:
    """Functions that are listed as they are: objects with a name and parameters."""
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            yield Function(entry["name"], entry.get("parameters"))


def functions_of_tools(tools: Sequence[Any]) -> Iterator[Function]:
    """The functions among the tools of chat completions."""
    for tool in tools:
        if isinstance(tool, Mapping) and tool.get("type") == "function":
            yield from own_functions([tool.get("function")])


def google_functions(tools: Sequence[Any]) -> Iterator[Function]:
    """The functions that tools declare in Google's way."""
    for tool in tools:
        for key in ("functionDeclarations", "function_declarations"):
            if _has(tool, key) and isinstance(tool[key], list):
                for function in own_functions(tool[key]):
                    yield attrs.evolve(function, parameters=_lower_types(function.parameters))


def call_fault(call: Call, functions: Sequence[Function]) -> str | None:
    """Why a call is not one of those that were offered, for "the call of x …"; None if it is.

    Raises:
        UndeclaredError: It cannot be checked with the schema of its function.

    Example:
        >>> clock = Function("clock", {"type": "object", "required": ["zone"]})
        >>> call_fault(Call("watch", "{}"), [clock])
        'names no function that was offered; those are: "clock"'
        >>> call_fault(Call("clock", '{"zone": "UTC"}'), [clock]) is None
        True
    """
    function = next((one for one in functions if one.name == call.name), None)
    if function is None:
        known = ", ".join(sorted(quote(one.name) for one in functions)) or "none"
        return f"names no function that was offered; those are: {known}"
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except ValueError as error:
            return f"has arguments that are not JSON: {error}"
    if function.parameters is None:
        return None if arguments == {} else "has arguments, and its function takes none"
    fault = _schema_fault(function, arguments)
    return None if fault is None else f"has arguments that do not fit: {fault}"


def _schema_fault(function: Function, arguments: Any) -> str | None:
    try:
        faults = document_faults(arguments, function.parameters)
    except (TypeError, ValueError, RecursionError) as error:
        name = quote(function.name)
        msg = f"the arguments of {name} cannot be checked with its schema: {error}"
        raise UndeclaredError(msg) from error
    return "; ".join(faults) or None


def _has(value: Any, key: str) -> bool:
    return isinstance(value, Mapping) and key in value


def _lower_types(schema: Any, levels: int = 64) -> Any:
    """A schema with names of types as JSON schema writes them."""
    if isinstance(schema, list) and levels:
        return [_lower_types(member, levels - 1) for member in schema]
    if not isinstance(schema, Mapping) or not levels:
        return schema
    return {
        key: member.lower()
        if key == "type" and isinstance(member, str)
        else _lower_types(member, levels - 1)
        for key, member in schema.items()
    }
