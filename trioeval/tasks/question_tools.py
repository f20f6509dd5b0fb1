"""The tools that a suite gives to models while they answer questions: functions of its own, in processes.

A tool that fails is no failure of the question: the model is told what went wrong, and goes on. It holds
no slot of a lane while it runs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from trioeval.errors import ScriptError
from trioeval.grading.tool_calls import Function
from trioeval.suite.anchors import FILE
from trioeval.suite.question_models import Tool
from trioeval.tasks.tool_arguments import arguments_of
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
        arguments = arguments_of(call, self._functions)
        if isinstance(arguments, ToolResult):
            return arguments
        file, function = self._places[call.name]
        try:
            return ToolResult(await self._runs.call(file, function, [arguments]))
        except ScriptError as error:
            return ToolResult(error.message, failed=True)
