"""The tools that a model works with in the workspace of its case.

A tool that fails is no failure of the attempt: the model is told what went wrong, and goes on. None holds
a slot of a lane while it runs.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.agents.bus.messages import MessageType
from trioeval.errors import GradingError
from trioeval.grading.tool_calls import Function
from trioeval.grading.workspace_files import NoFileError
from trioeval.providers.programs.capture import Tail
from trioeval.providers.programs.trees import describe_end
from trioeval.suite.agent_models import MAX_PROCESSES, AgentSettings
from trioeval.tasks.agents.case_files import CaseFiles
from trioeval.tasks.agents.workspace_actions import (
    ActionError,
    edit_text,
    list_files,
    read_text,
    write_text,
)
from trioeval.tasks.commands import keys_to_hide, run_command, without_keys
from trioeval.tasks.tool_arguments import arguments_of
from trioeval.tasks.tool_turns import ToolCall, ToolResult, tool_offers

DONE = "done"
"""The tool by which a model says that its task is done."""

COMMAND_LIMIT = 120.0
"""Seconds that a command may take where the model says nothing."""
LONGEST_COMMAND = 600.0
"""Seconds that it may take at most."""
_OUTPUT = 16_384  # bytes
_TYPES: Sequence[MessageType] = (
    "INFO",
    "PROGRESS",
    "FACT",
    "DECISION",
    "QUESTION",
    "ISSUE",
    "WARNING",
    "ERROR",
)

Post: TypeAlias = Callable[[MessageType, str], Awaitable[None]]
"""Tells the bus of a case; never raises but when cancelled."""


@attrs.frozen
class _Tool:
    name: str
    description: str
    parameters: Mapping[str, Any]


def _tool(name: str, description: str, required: Sequence[str] = (), **given: Any) -> _Tool:
    parameters = {
        "type": "object",
        "properties": given,
        "required": list(required),
        "additionalProperties": False,
    }
    return _Tool(name, description, parameters)


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


def _whole(description: str) -> dict[str, str]:
    return {"type": "integer", "description": description}


_PATH = _text("Relative to the workspace.")
_FILES = (
    _tool(
        "list_files",
        "List what is in a folder of the workspace. Names of folders end with a slash.",
        path=_text("Of the folder, relative to the workspace; left out, the workspace itself."),
        offset=_whole("The first entry, from 1."),
    ),
    _tool(
        "read_file",
        "Read a text file of the workspace. A long one is given in parts.",
        ("path",),
        path=_PATH,
        offset=_whole("The first line, from 1."),
        limit=_whole("Lines at most."),
    ),
    _tool(
        "write_file",
        "Make a file of the workspace, or replace all of it. Folders are made as needed.",
        ("path", "content"),
        path=_PATH,
        content=_text("What the file is to hold, all of it."),
    ),
    _tool(
        "edit_file",
        "Replace a text in a file of the workspace. It has to occur there exactly once.",
        ("path", "old", "new"),
        path=_PATH,
        old=_text("The text as it stands there."),
        new=_text("What takes its place."),
        all={"type": "boolean", "description": "Replace it everywhere, however often it occurs."},
    ),
)
_COMMAND = _tool(
    "run_command",
    "Run a shell command in the workspace, and see how it ended and the end of what it wrote.",
    ("command",),
    command=_text("For /bin/sh."),
    timeout=_whole(
        f"Seconds that it may take: {COMMAND_LIMIT:g} if left out, at most {LONGEST_COMMAND:g}."
    ),
)
_LAST = (
    _tool(
        "post_message",
        "Tell everybody who follows this task something: a fact that was found, a decision, a problem.",
        ("text",),
        text=_text("The message."),
        type={"type": "string", "enum": list(_TYPES), "description": "Left out, INFO."},
    ),
    _tool(
        DONE,
        "Say that the task is done. Nothing can be done after that.",
        summary=_text("What was done, in a few sentences."),
    ),
)


@attrs.frozen(kw_only=True)
class WorkspaceTools:
    """What the model of one case may call."""

    files: CaseFiles
    post: Post
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Of commands; what looks like a key by its name is left out."""
    allow_commands: bool = False
    grace: float = 1.5
    """Seconds between the request to a command to end and the end by force."""
    max_processes: int = MAX_PROCESSES
    """That a command may have at once, above which it is ended; 0 does not bound them."""

    @classmethod
    def of(
        cls, files: CaseFiles, settings: AgentSettings, environ: Mapping[str, str], post: Post
    ) -> "WorkspaceTools":
        """As the settings of a task want them."""
        return cls(
            files=files,
            post=post,
            environ=environ,
            allow_commands=settings.allow_commands,
            grace=settings.grace,
            max_processes=settings.max_processes,
        )

    @property
    def _tools(self) -> Sequence[_Tool]:
        return (*_FILES, *((_COMMAND,) if self.allow_commands else ()), *_LAST)

    @property
    def offers(self) -> Sequence[Mapping[str, Any]]:
        """As chat completions have them."""
        return tool_offers(self._tools)

    async def run(self, call: ToolCall) -> ToolResult:
        """What a call gives. A checkpoint, unless it cannot be made."""
        functions = [Function(tool.name, tool.parameters) for tool in self._tools]
        arguments = arguments_of(call, functions)
        if isinstance(arguments, ToolResult):
            return arguments
        try:
            told = await self._run(call.name, arguments)
        except (ActionError, NoFileError, GradingError) as error:
            return ToolResult(_sendable(str(error)), failed=True)
        return ToolResult(_sendable(told))

    async def _run(self, name: str, given: Mapping[str, Any]) -> str:
        workspace = self.files.workspace
        match name:
            case "list_files":
                path, offset = given.get("path") or ".", int(given.get("offset", 1))
                return await _aside(lambda: list_files(workspace, path, offset))
            case "read_file":
                path, offset = (
                    given["path"],
                    int(given.get("offset", 1)),
                )  # 1.0 is an integer in JSON
                limit = int(given["limit"]) if "limit" in given else None
                return await _aside(lambda: read_text(workspace, path, offset, limit))
            case "write_file":
                return await _aside(lambda: write_text(workspace, given["path"], given["content"]))
            case "edit_file":
                texts, every = (given["old"], given["new"]), given.get("all", False)
                return await _aside(
                    lambda: edit_text(workspace, given["path"], *texts, every=every)
                )
            case "run_command":
                return await self._command(given["command"], given.get("timeout", COMMAND_LIMIT))
            case "post_message":
                await self.post(given.get("type", "INFO"), given["text"])
                return "posted"
            case _:
                said: str = given.get("summary", "")
                place = self.files.done_file
                await _aside(lambda: write_text(workspace, place, f"{said}\n"))
                return said

    async def _command(self, command: str, seconds: float) -> str:
        limit = min(max(seconds, 1.0), LONGEST_COMMAND)
        open_ones = without_keys(self.environ)
        # A command that is no prisoner may find keys elsewhere.
        written = Tail(_OUTPUT, keys_to_hide(self.environ))
        words = ["/bin/sh", "-c", command]
        try:
            code = await run_command(
                words,
                self.files.workspace,
                open_ones,
                limit,
                written,
                grace=self.grace,
                max_processes=self.max_processes,
            )
        except (OSError, ValueError) as error:
            msg = f"the command cannot be started: {error}"
            raise ActionError(msg) from None
        late = f"did not end within {limit:g} seconds, and was ended"
        how = late if code is None else describe_end(code)
        cut = "[only the end of what it wrote:]\n" if written.is_cut else ""
        return f"the command {how}\n{cut}{written.text or ''}".rstrip()


async def _aside(act: Callable[[], str]) -> str:
    """What an action on files gives, which may take long. Not given up when cancelled: it ends by itself."""
    return await trio.to_thread.run_sync(act)


def _sendable(text: str) -> str:
    """A text without halves of characters, as names of files may have them."""
    return text.encode("utf-8", "replace").decode()
