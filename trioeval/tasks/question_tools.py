"""The tools that a suite gives to models while they answer questions: functions of its own, in processes.

A tool that fails is no failure of the question: the model is told what went wrong, and goes on. It holds
no slot of a lane while it runs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from trioeval.errors import GradingError, ScriptError
from trioeval.grading.text import parse_json
from trioeval.grading.tool_calls import Call, Function, UndeclaredError, call_fault
from trioeval.suite.anchors import FILE
from trioeval.suite.question_models import Tool
from trioeval.tasks.tool_turns import ToolCall, ToolResult, tool_offers


class Runs(Protocol):
    """Who calls functions of files; `Scripts` is one."""

    async def call(self, file: Path, function: str, arguments: Sequence[Any], /) -> Any:
        """What a function returns, as JSON.

        Raises:
            ScriptError: It failed, took too long, or returned what is not JSON.
        """
        ...


@attrs.frozen
class ToolBox:
    """What a model may call."""

    offers: Sequence[Mapping[str, Any]]
    """As chat completions have them."""
    _functions: Sequence[Function] = attrs.field(repr=False)
    _places: Mapping[str, tuple[Path, str]] = attrs.field(repr=False)
    _runs: Runs = attrs.field(repr=False)

    @classmethod
    def of(cls, tools: Sequence[Tool], runs: Runs) -> "ToolBox":
        """With the tools of a task."""
        places = {}
        for tool in tools:
            file, _, function = tool.target.removeprefix(FILE).rpartition(":")
            places[tool.name] = Path(file), function
        functions = [Function(tool.name, dict(tool.parameters)) for tool in tools]
        return cls(tool_offers(tools), functions, places, runs)

    async def run(self, call: ToolCall) -> ToolResult:
        """What a call gives. A checkpoint, unless it cannot be made."""
        # Of a function without arguments some services write nothing.
        arguments = call.arguments if call.arguments not in (None, "") else {}
        try:
            fault = call_fault(Call(call.name, arguments), self._functions)
            if isinstance(arguments, str) and fault is None:
                arguments = parse_json(arguments)
        except (UndeclaredError, GradingError) as error:
            fault = str(error)
        if fault is None and not isinstance(arguments, Mapping):
            fault = "has arguments that are no object"
        if fault is not None:
            return ToolResult(f"the call of {call.name} {fault}", failed=True)
        file, function = self._places[call.name]
        try:
            return ToolResult(await self._runs.call(file, function, [arguments]))
        except ScriptError as error:
            return ToolResult(error.message, failed=True)
