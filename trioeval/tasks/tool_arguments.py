"""The arguments of a call that a model wrote, held against what the tool takes."""

from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.text import parse_json
from trioeval.grading.tool_calls import Call, Function, UndeclaredError, call_fault
from trioeval.tasks.tool_turns import ToolCall, ToolResult


def arguments_of(call: ToolCall, functions: Sequence[Function]) -> Mapping[str, Any] | ToolResult:
    """The arguments of a call; or, where it cannot be made, what its model is told.

    Args:
        call: As it was written.
        functions: Those that were offered.

    Example:
        >>> clock = Function("clock", {"type": "object"})
        >>> arguments_of(ToolCall("clock", '{"zone": "UTC"}'), [clock])
        {'zone': 'UTC'}
        >>> arguments_of(ToolCall("watch", "{}"), [clock]).failed
        True
    """
    # Of a function without arguments some services write nothing.
    arguments = call.arguments if call.arguments not in (None, "") else {}
    try:
        fault = call_fault(Call(call.name, arguments), functions)
        if isinstance(arguments, str) and fault is None:
            arguments = parse_json(arguments)
    except (UndeclaredError, GradingError) as error:
        fault = str(error)
    if fault is None and isinstance(arguments, Mapping):
        return arguments
    fault = fault or "has arguments that are no object"
    return ToolResult(f"the call of {call.name} {fault}", failed=True)
