"""The tools of a model in the workspace of its case.

A tool that fails is not a failure of the attempt: the model gets the error, and continues. A running tool
holds no slot of a lane.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.agent.bus.messages import MessageType
from trioeval.agent.case_folder import CaseFiles
from trioeval.agent.model import AgentSettings
from trioeval.errors import GradingError
from trioeval.evaluation.commands import run_command, secrets_to_hide, without_key_variables
from trioeval.evaluation.tools import ToolResult, arguments_of, tool_offers
from trioeval.grading.kinds.tools import OfferedFunction
from trioeval.grading.kinds.workspace_files import (
    LARGEST,
    NoFileError,
    check_file,
    place_of,
    read_file,
)
from trioeval.providers import ToolCall
from trioeval.providers.programs.exec import OutputTail
from trioeval.providers.programs.processes import describe_end
from trioeval.text import quote

# The actions of a model on the files of its workspace. Blocks on files; nothing outside is changed.
#
# The result is text for a model, of limited length, and states how to continue if it is incomplete. A failed
# action raises an error with a message for the model: `ActionError`, `NoFileError`, or `GradingError` for a
# path outside of the workspace.


LONGEST = 50_000
"""Maximum characters of a file in one result."""
ENTRIES = 500
"""Maximum entries of a folder in one result."""


class ActionError(Exception):
    """A failed action, with a message for the model."""


def list_files(workspace: Path, path: str = ".", offset: float = 1) -> str:
    """Return the contents of a folder, by name; folders end with `/`."""
    path = path or "."
    try:
        with os.scandir(place_of(workspace, path)) as found:
            names = sorted(_shown(entry) for entry in found)
    except OSError as error:
        msg = f"{quote(path)} cannot be listed: {error.strerror}"
        raise ActionError(msg) from None
    first = max(int(offset), 1) - 1  # 1.0 is an integer in JSON
    part = names[first : first + ENTRIES]
    if len(part) == len(names):
        return "\n".join(names) or "(empty)"
    return "\n".join([*part, _rest("entries", first, len(part), len(names))])


def _shown(entry: os.DirEntry[str]) -> str:
    name = "".join(one if one.isprintable() else _escaped(one) for one in entry.name)
    if entry.is_symlink():
        return f"{name} (a link)"
    return f"{name}/" if entry.is_dir() else name


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _rest(units: str, first: int, size: int, whole: int) -> str:
    if not size:
        return f"[there are {whole} {units}]"
    last = first + size
    onward = f"; continue with offset {last + 1}" if last < whole else ""
    return f"[{units} {first + 1} to {last} of {whole}{onward}]"


def read_text(workspace: Path, path: str, offset: float = 1, limit: float | None = None) -> str:
    """Return the lines of a file."""
    data = read_file(workspace, path)
    if b"\0" in data:
        msg = f"{quote(path)} is not text; it has {len(data):,} bytes"
        raise ActionError(msg)
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(int(offset), 1) - 1
    selected = lines[first:] if limit is None else lines[first : first + max(int(limit), 1)]
    part: list[str] = []
    room = LONGEST
    for line in selected:
        if len(line) > room:
            break
        part.append(line)
        room -= len(line) + 1
    if selected and not part:
        cut = f"{selected[0][:LONGEST]}\n[line {first + 1} has {len(selected[0]):,} characters, and is cut]"
        return "\n".join([cut, _rest("lines", first, 1, len(lines))])
    if len(part) == len(lines):
        return "\n".join(part)
    return "\n".join([*part, _rest("lines", first, len(part), len(lines))])


def write_text(workspace: Path, path: str, content: str) -> str:
    """Write a file, creating its folders as needed."""
    place = place_of(workspace, path)
    data = content.encode("utf-8", "replace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, flags, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            check_file(path, descriptor)
            file.truncate(0)
            file.write(data)
    except OSError as error:
        msg = f"{quote(path)} cannot be written: {error.strerror}"
        raise ActionError(msg) from None
    return f"{quote(path)} now has {len(data):,} bytes"


def edit_text(
    workspace: Path,
    path: str,
    old: str,
    new: str,
    *,
    all: bool = False,  # noqa: A002 - the name of the tool's parameter
) -> str:
    """Replace a text that occurs once in a file, or all its occurrences."""
    try:
        text = read_file(workspace, path).decode()
    except UnicodeDecodeError:
        msg = f"{quote(path)} is not UTF-8, and cannot be edited as text"
        raise ActionError(msg) from None
    count = text.count(old) if old else 0
    if not count:
        msg = f"the old text does not occur in {quote(path)}; it must match exactly"
        raise ActionError(msg)
    if count > 1 and not all:
        msg = f"the old text occurs {count} times in {quote(path)}; make it longer, or set all"
        raise ActionError(msg)
    # Replacing many occurrences by a long text could exceed the memory.
    sizes = [len(part.encode("utf-8", "replace")) for part in (text, old, new)]
    size = sizes[0] + count * (sizes[2] - sizes[1])
    if size > LARGEST:
        msg = f"{quote(path)} would have {size:,} bytes; at most {LARGEST:,} are allowed"
        raise ActionError(msg)
    write_text(workspace, path, text.replace(old, new))
    return f"{count} {'occurrence' if count == 1 else 'occurrences'} in {quote(path)} replaced"


DONE = "done"
"""The tool by which a model reports that its task is done."""

COMMAND_LIMIT = 120.0
"""Default timeout of a command in seconds."""
LONGEST_COMMAND = 600.0
"""Maximum timeout of a command in seconds."""
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
"""Posts on the bus of a case; raises only when cancelled."""


@attrs.frozen
class _WorkspaceTool:
    name: str
    description: str
    parameters: Mapping[str, Any]


def _tool(
    name: str, description: str, required: Sequence[str] = (), **given: Any
) -> _WorkspaceTool:
    parameters = {
        "type": "object",
        "properties": given,
        "required": list(required),
        "additionalProperties": False,
    }
    return _WorkspaceTool(name, description, parameters)


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


def _whole(description: str) -> dict[str, str]:
    return {"type": "integer", "description": description}


_PATH = _text("The path of the file, relative to the workspace.")
_FILES = (
    _tool(
        "list_files",
        "List the contents of a folder of the workspace. Names of folders end with a slash.",
        path=_text(
            "The path of the folder, relative to the workspace. Default: the workspace itself."
        ),
        offset=_whole("The first entry, from 1."),
    ),
    _tool(
        "read_file",
        "Read a text file of the workspace. A long file is returned in parts.",
        ("path",),
        path=_PATH,
        offset=_whole("The first line, from 1."),
        limit=_whole("The maximum number of lines."),
    ),
    _tool(
        "write_file",
        "Create a file in the workspace, or replace its contents. Folders are created as needed.",
        ("path", "content"),
        path=_PATH,
        content=_text("The complete new contents of the file."),
    ),
    _tool(
        "edit_file",
        "Replace a text in a file of the workspace. The text must occur exactly once.",
        ("path", "old", "new"),
        path=_PATH,
        old=_text("The exact text to replace."),
        new=_text("The new text."),
        all={"type": "boolean", "description": "Replace all occurrences of the text."},
    ),
)
_FILE_ACTIONS: Mapping[str, Callable[..., str]] = {
    "list_files": list_files,
    "read_file": read_text,
    "write_file": write_text,
    "edit_file": edit_text,
}
_COMMAND = _tool(
    "run_command",
    "Run a shell command in the workspace. Returns how it ended and the end of its output.",
    ("command",),
    command=_text("The command line for /bin/sh."),
    timeout=_whole(
        f"The timeout in seconds. Default: {COMMAND_LIMIT:g}, maximum: {LONGEST_COMMAND:g}."
    ),
)
_LAST = (
    _tool(
        "post_message",
        "Post a message for everyone who follows this task: a fact that was found, a decision, a problem.",
        ("text",),
        text=_text("The message."),
        type={"type": "string", "enum": list(_TYPES), "description": "Default: INFO."},
    ),
    _tool(
        DONE,
        "Report that the task is done. No other tool can be called after that.",
        summary=_text("A summary of the work in a few sentences."),
    ),
)


@attrs.frozen(kw_only=True)
class WorkspaceTools:
    """The tools of the model of one case."""

    files: CaseFiles
    post: Post
    settings: AgentSettings
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The environment of commands; variables whose names suggest a key are left out."""

    @property
    def _tools(self) -> Sequence[_WorkspaceTool]:
        return (*_FILES, *((_COMMAND,) if self.settings.allow_commands else ()), *_LAST)

    @property
    def offers(self) -> Sequence[Mapping[str, Any]]:
        """The tools in the form of chat completions."""
        return tool_offers(self._tools)

    async def run(self, call: ToolCall) -> ToolResult:
        """Return the result of a call. A checkpoint, unless the call is invalid."""
        functions = [OfferedFunction(tool.name, tool.parameters) for tool in self._tools]
        arguments = arguments_of(call, functions)
        if isinstance(arguments, ToolResult):
            return arguments
        try:
            result = await self._run(call.name, arguments)
        except (ActionError, NoFileError, GradingError) as error:
            return ToolResult(_encodable(str(error)), failed=True)
        return ToolResult(_encodable(result))

    async def _run(self, name: str, given: Mapping[str, Any]) -> str:
        if act := _FILE_ACTIONS.get(name):
            return await _in_thread(partial(act, self.files.workspace, **given))
        match name:
            case "run_command":
                return await self._command(given["command"], given.get("timeout", COMMAND_LIMIT))
            case "post_message":
                await self.post(given.get("type", "INFO"), given["text"])
                return "posted"
            case _:
                summary: str = given.get("summary", "")
                workspace, place = self.files.workspace, self.files.done_file
                await _in_thread(partial(write_text, workspace, place, f"{summary}\n"))
                return summary

    async def _command(self, command: str, seconds: float) -> str:
        limit = min(max(seconds, 1.0), LONGEST_COMMAND)
        open_ones = without_key_variables(self.environ)
        # A command is not confined, and may find keys elsewhere.
        written = OutputTail(_OUTPUT, secrets_to_hide(self.environ))
        words = ["/bin/sh", "-c", command]
        try:
            code = await run_command(
                words,
                self.files.workspace,
                open_ones,
                limit,
                written,
                grace=self.settings.grace,
                max_processes=self.settings.max_processes,
            )
        except (OSError, ValueError) as error:
            msg = f"the command cannot be started: {error}"
            raise ActionError(msg) from None
        late = f"did not end within {limit:g} seconds, and was killed"
        how = late if code is None else describe_end(code)
        cut = "[only the end of its output:]\n" if written.is_cut else ""
        return f"the command {how}\n{cut}{written.text or ''}".rstrip()


async def _in_thread(act: Callable[[], str]) -> str:
    """Run an action on files in a thread. Not abandoned when cancelled: it ends by itself."""
    return await trio.to_thread.run_sync(act)


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which names of files may contain."""
    return text.encode("utf-8", "replace").decode()
