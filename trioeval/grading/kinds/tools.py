"""Types that check the tools, functions and skills that a model used."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import SLOW_AT_ONCE, Finding, Kind, Kinds, is_text_or_texts
from trioeval.grading.kinds.tool_names import UnreadableError, tool_names
from trioeval.grading.kinds.traces import BoundedCount, read_counted
from trioeval.grading.kinds.workspace_files import matches
from trioeval.grading.model import Assertion
from trioeval.grading.schemas import document_faults
from trioeval.grading.subject import FunctionCall, Subject
from trioeval.text import number_text, output_text, parse_json, quote

# Whether a call by a model is valid: a known name, and arguments that match the function's schema.
#
# Chat completions write the arguments as the text of a JSON object, and their schemas are JSON schemas.
# Google's calls have them as data, and its schemas may write the names of types in capitals.


class UndeclaredError(Exception):
    """The schema of a function is invalid, so its calls cannot be checked."""


@attrs.frozen
class OfferedFunction:
    """A function that a model was offered."""

    name: str
    parameters: Any
    """JSON schema; None for a function without arguments."""


def chat_call(value: Any) -> FunctionCall | None:
    """Return a call in the format of chat completions; None for anything else.

    Example:
        >>> chat_call({"name": "add", "arguments": "{}"})
        FunctionCall(name='add', arguments='{}')
    """
    match value:
        case {"name": str(name), "arguments": str(arguments)}:
            return FunctionCall(name, arguments)
        case _:
            return None


def google_calls(output: Any) -> Sequence[FunctionCall] | None:
    """Return the calls in an answer of Google's; None for another format, or without calls."""
    match output:
        case {"toolCall": {"functionCalls": list(found)}}:
            parts = found
        case list():
            parts = [part["functionCall"] for part in output if _has(part, "functionCall")]
        case _:
            return None
    calls = [
        FunctionCall(part["name"], part.get("args") or {})
        for part in parts
        if _has(part, "name") and isinstance(part["name"], str)
    ]
    return calls if calls and len(calls) == len(parts) else None


def own_functions(entries: Sequence[Any]) -> Iterator[OfferedFunction]:
    """Yield functions that are listed directly: objects with a name and parameters."""
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            yield OfferedFunction(entry["name"], entry.get("parameters"))


def functions_of_tools(tools: Sequence[Any]) -> Iterator[OfferedFunction]:
    """Yield the functions among tools, which are in the format of any provider.

    Example:
        >>> own = {"name": "now", "input_schema": {"type": "object"}}
        >>> chat = {"type": "function", "function": {"name": "add"}}
        >>> [function.name for function in functions_of_tools([own, chat, {"type": "web_search"}])]
        ['now', 'add']
    """
    for tool in tools:
        match tool:
            case {"type": "function", "function": function}:
                yield from own_functions([function])
            case {"type": "function", "name": _}:
                yield from own_functions([tool])
            case {"name": str(name), "input_schema": schema}:
                yield OfferedFunction(name, schema)
            case {"toolSpec": {"name": str(name), "inputSchema": {"json": schema}}}:
                yield OfferedFunction(name, schema)
            case {"functionDeclarations": list(found)} | {"function_declarations": list(found)}:
                for function in own_functions(found):
                    yield attrs.evolve(function, parameters=_lower_types(function.parameters))
            case _:
                pass


def call_fault(call: FunctionCall, functions: Sequence[OfferedFunction]) -> str | None:
    """Return the fault of a call of an offered function, for "the call of x …"; None for a valid one.

    Raises:
        UndeclaredError: The schema of its function is invalid.

    Example:
        >>> clock = OfferedFunction("clock", {"type": "object", "required": ["zone"]})
        >>> call_fault(FunctionCall("watch", "{}"), [clock])
        'names an unknown function; offered functions are: "clock"'
        >>> call_fault(FunctionCall("clock", '{"zone": "UTC"}'), [clock]) is None
        True
    """
    function = next((one for one in functions if one.name == call.name), None)
    if function is None:
        known = ", ".join(sorted(quote(one.name) for one in functions)) or "none"
        return f"names an unknown function; offered functions are: {known}"
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except ValueError as error:
            return f"has arguments that are not JSON: {error}"
    if function.parameters is None:
        return None if arguments == {} else "has arguments, but its function takes none"
    fault = _schema_fault(function, arguments)
    return None if fault is None else f"has arguments that do not match: {fault}"


def _schema_fault(function: OfferedFunction, arguments: Any) -> str | None:
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
    """Return a schema with type names in lower case, as in JSON Schema."""
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


_LONGEST = 1_000_000
"""Most characters that are searched for tool calls."""
_MCP_RESULT = "MCP Tool Result"
_MCP_ERROR = "MCP Tool Error"
_MCP_NAME = re.compile(r"MCP Tool (?:Result|Error) \(([^)]+)\):")


def _is_valid_function_call(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    output, tools = subject.output, list(functions_of_tools(subject.tools))
    calls = google_calls(output)
    if calls is not None:
        return _fitting(calls, tools)
    call = chat_call(_unwrapped(output, "function_call"))
    if call is not None:
        return _fitting([call], list(own_functions(subject.functions)))
    if subject.calls:
        return _fitting(subject.calls, [*own_functions(subject.functions), *tools])
    return Finding(holds=False, reason="the output is not a function call")


def _is_valid_tools_call(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    text = subject.text
    if _MCP_ERROR in text or _MCP_RESULT in text:
        failed = _MCP_ERROR in text
        found = _MCP_NAME.search(text)
        name = quote(found[1]) if found else "a tool"
        return Finding(
            holds=not failed, reason=f"the MCP call of {name} {'failed' if failed else 'succeeded'}"
        )
    output = _unwrapped(subject.output, "tool_calls")
    entries = output if isinstance(output, list | tuple) else ()
    if subject.calls and not any(_has(entry, "function") for entry in entries):
        return _offered(subject.calls, subject)  # the output has them in its provider's own form
    calls = [chat_call(_unwrapped(entry, "function")) for entry in entries]
    real = [call for call in calls if call is not None]
    if not real or len(real) < len(calls):
        return Finding(holds=False, reason="the output is not a list of tool calls")
    return _offered(real, subject)


def _offered(calls: Sequence[FunctionCall], subject: Subject) -> Finding:
    if not subject.tools:
        return Finding(holds=False, reason="the provider was offered no tools")
    return _fitting(calls, list(functions_of_tools(subject.tools)))


def _unwrapped(value: Any, key: str) -> Any:
    return value[key] if isinstance(value, Mapping) and key in value else value


def _fitting(calls: Sequence[FunctionCall], functions: Sequence[OfferedFunction]) -> Finding:
    for call in calls:
        try:
            fault = call_fault(call, functions)
        except UndeclaredError as error:
            return Finding(holds=False, reason=str(error), invertible=False)
        if fault is not None:
            return Finding(holds=False, reason=f"the call of {quote(call.name)} {fault}")
    named = ", ".join(quote(call.name) for call in calls)
    return Finding(holds=True, reason=f"the output calls offered functions: {named}")


def _tool_call_f1(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    expected = frozenset(_tool_list(value))
    try:
        names = frozenset(call.name for call in subject.calls)
        called = names or tool_names(subject.output)
    except UnreadableError as error:
        reason = f"the output cannot be searched for tool calls: {error}"
        return Finding(holds=False, reason=reason, invertible=False)
    both = len(expected & called)
    precision = both / len(called) if called else 0.0
    recall = both / len(expected)
    score = 2 * precision * recall / (precision + recall) if both else 0.0
    least = 1.0 if assertion.threshold is None else assertion.threshold
    holds = score >= least
    reason = (
        f"F1 of the tool calls is {score:.3f}, {'at least' if holds else 'less than'} "
        f"{number_text(least)}: called {_names(called)}, expected {_names(expected)}"
    )
    return Finding(holds=holds, reason=reason, score=score, negated=score)


def _tool_list(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else map(output_text, value)
    return [part.strip() for part in parts if part.strip()]


def _are_tool_names(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(part, str | int | float) for part in value) and bool(
            _tool_list(value)
        )
    return isinstance(value, str) and bool(_tool_list(value))


def _skill_used(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    used = list(_skills(subject.metadata.get("skillCalls")))
    inverted = assertion.type.startswith("not-")
    counted = _skill_count(value)
    if counted is None:
        names = [value.strip()] if isinstance(value, str) else [name.strip() for name in value]
        there = [name for name in names if name in used]
        # Every one of several skills is required, or forbidden under `not-`.
        holds = bool(there) if inverted else len(there) == len(names)
        reason = f"skills used: {_names(used)}, {'forbidden' if inverted else 'expected'}: {_names(names)}"
        return Finding(holds=holds, reason=reason)
    if inverted and _is_bounded(counted):
        raise GradingError(_BOUNDED)
    count = sum(_fits(name, counted) for name in used)
    if inverted:
        holds, bounds = count > 0, ""
    else:
        if counted.least is None and counted.most is None:
            counted = attrs.evolve(counted, least=1)
        holds, bounds = counted.allows(count), f", expected {counted.bounds}"
    skill = quote(counted.pattern or counted.name)
    times = "1 time" if count == 1 else f"{count} times"
    reason = f"the skill {skill} was used {times}{bounds}; skills used: {_names(used)}"
    return Finding(holds=holds, reason=reason)


def _skills(calls: Any) -> Iterator[str]:
    for call in calls if isinstance(calls, list | tuple) else ():
        match call:
            case {"is_error": True}:
                pass
            case {"name": str(name)}:
                yield name


def _fits(name: str, counted: BoundedCount) -> bool:
    right = counted.name is None or name == counted.name
    return right and (counted.pattern is None or matches(name, counted.pattern))


def _skill_count(value: Any) -> BoundedCount | None:
    """Return the settings of an object; None if it is invalid."""
    counted = read_counted(value, whole=True)
    return counted if counted is not None and (counted.name or counted.pattern) else None


def _is_bounded(counted: BoundedCount) -> bool:
    return counted.least is not None or counted.most not in {None, 0}


def _are_skills(value: Any) -> bool:
    if isinstance(value, Mapping):
        return _skill_count(value) is not None
    return is_text_or_texts(value)


_BOUNDED = "not-skill-used means not at all: it takes no min, and no max but 0"


def _check_skills(assertion: Assertion) -> Iterator[Problem]:
    counted = _skill_count(assertion.value)
    if counted is not None and assertion.type.startswith("not-") and _is_bounded(counted):
        yield Problem(".value", _BOUNDED, 'write "skill-used" with "max" for an upper bound')


def _names(names: Iterator[str] | Sequence[str] | frozenset[str]) -> str:
    return quote(sorted(names))


def _nothing(value: Any) -> bool:
    return value is None


_FUNCTION_CALL = Kind("left out", _nothing, _is_valid_function_call, bare=True)

KINDS: Kinds = {
    "is-valid-function-call": _FUNCTION_CALL,
    "is-valid-openai-function-call": _FUNCTION_CALL,
    "is-valid-openai-tools-call": Kind("left out", _nothing, _is_valid_tools_call, bare=True),
    "skill-used": Kind(
        'the name of a skill, a list of names, or {"name" or "pattern", "min"?, "max"?}',
        _are_skills,
        _skill_used,
        check=_check_skills,
    ),
    "tool-call-f1": Kind(
        "a list of at least one name of a tool, or such names separated by commas",
        _are_tool_names,
        _tool_call_f1,
        at_once=SLOW_AT_ONCE,
        longest=_LONGEST,
    ),
}
