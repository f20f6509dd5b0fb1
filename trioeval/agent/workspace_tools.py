"""The tools that a model works with in the workspace of its case.

A tool that fails is no failure of the attempt: the model is told what went wrong, and goes on. None holds
a slot of a lane while it runs.
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
from trioeval.evaluation.commands import keys_to_hide, run_command, without_keys
from trioeval.evaluation.tools import ToolCall, ToolResult, arguments_of, tool_offers
from trioeval.grading.kinds.tools import Function
from trioeval.grading.kinds.workspace_files import (
    LARGEST,
    NoFileError,
    check_file,
    place_of,
    read_file,
)
from trioeval.providers.programs.exec import Tail
from trioeval.providers.programs.processes import describe_end
from trioeval.text import quote

# What a model may do to the files of its workspace. Blocks on files; nothing outside is touched.
#
# What is given back is text for a model, bounded, and says how to go on where it is not all. What cannot be
# done is raised with what the model is told: `ActionError`, `NoFileError`, or `GradingError` for a path that
# is none of a workspace.


LONGEST = 50_000
"""Characters of a file that are given back at once."""
ENTRIES = 500
"""Of a folder that are given back at once."""


class ActionError(Exception):
    """Something was not done; the message says why."""


def list_files(workspace: Path, path: str = ".", offset: float = 1) -> str:
    """What is in a folder, by name; folders end with `/`."""
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
        return "\n".join(names) or "(nothing is there)"
    return "\n".join([*part, _rest("entries", first, len(part), len(names))])


def _shown(entry: os.DirEntry[str]) -> str:
    name = "".join(one if one.isprintable() else _escaped(one) for one in entry.name)
    if entry.is_symlink():
        return f"{name} (a link)"
    return f"{name}/" if entry.is_dir() else name


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _rest(what: str, first: int, size: int, whole: int) -> str:
    if not size:
        return f"[there are {whole} {what}]"
    last = first + size
    onward = f"; go on with offset {last + 1}" if last < whole else ""
    return f"[{what} {first + 1} to {last} of {whole}{onward}]"


def read_text(workspace: Path, path: str, offset: float = 1, limit: float | None = None) -> str:
    """The lines of a file."""
    data = read_file(workspace, path)
    if b"\0" in data:
        msg = f"{quote(path)} is no text; it has {len(data):,} bytes"
        raise ActionError(msg)
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(int(offset), 1) - 1
    wanted = lines[first:] if limit is None else lines[first : first + max(int(limit), 1)]
    part: list[str] = []
    room = LONGEST
    for line in wanted:
        if len(line) > room:
            break
        part.append(line)
        room -= len(line) + 1
    if wanted and not part:
        cut = f"{wanted[0][:LONGEST]}\n[line {first + 1} has {len(wanted[0]):,} characters, and is cut]"
        return "\n".join([cut, _rest("lines", first, 1, len(lines))])
    if len(part) == len(lines):
        return "\n".join(part)
    return "\n".join([*part, _rest("lines", first, len(part), len(lines))])


def write_text(workspace: Path, path: str, content: str) -> str:
    """Make a file what is given, and the folders that it is in."""
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
    return f"{quote(path)} has {len(data):,} bytes now"


def edit_text(
    workspace: Path,
    path: str,
    old: str,
    new: str,
    *,
    all: bool = False,  # noqa: A002 - as models call it
) -> str:
    """Put a text in place of another that occurs once in a file, or everywhere."""
    try:
        text = read_file(workspace, path).decode()
    except UnicodeDecodeError:
        msg = f"{quote(path)} is not UTF-8, and cannot be edited as text"
        raise ActionError(msg) from None
    count = text.count(old) if old else 0
    if not count:
        msg = f"the old text does not occur in {quote(path)}; it has to be there exactly as it is given"
        raise ActionError(msg)
    if count > 1 and not all:
        msg = f"the old text occurs {count} times in {quote(path)}; give more of it, or set all"
        raise ActionError(msg)
    # Every place of a large file with a long text would be more than any machine has.
    sizes = [len(part.encode("utf-8", "replace")) for part in (text, old, new)]
    size = sizes[0] + count * (sizes[2] - sizes[1])
    if size > LARGEST:
        msg = (
            f"{quote(path)} would have {size:,} bytes, and {LARGEST:,} are the most that is edited"
        )
        raise ActionError(msg)
    write_text(workspace, path, text.replace(old, new))
    return f"{count} {'place' if count == 1 else 'places'} in {quote(path)} changed"


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
_FILE_ACTIONS: Mapping[str, Callable[..., str]] = {
    "list_files": list_files,
    "read_file": read_text,
    "write_file": write_text,
    "edit_file": edit_text,
}
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
    settings: AgentSettings
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Of commands; what looks like a key by its name is left out."""

    @property
    def _tools(self) -> Sequence[_Tool]:
        return (*_FILES, *((_COMMAND,) if self.settings.allow_commands else ()), *_LAST)

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
        if act := _FILE_ACTIONS.get(name):
            return await _aside(partial(act, self.files.workspace, **given))
        match name:
            case "run_command":
                return await self._command(given["command"], given.get("timeout", COMMAND_LIMIT))
            case "post_message":
                await self.post(given.get("type", "INFO"), given["text"])
                return "posted"
            case _:
                said: str = given.get("summary", "")
                workspace, place = self.files.workspace, self.files.done_file
                await _aside(partial(write_text, workspace, place, f"{said}\n"))
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
                grace=self.settings.grace,
                max_processes=self.settings.max_processes,
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
