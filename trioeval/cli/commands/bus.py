# Separate from `cli.commands.agent`: the commands of another group.
"""The commands for the message buses of agents."""

import json as json_module
import math
import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import attrs
import cyclopts
import trio
from cyclopts import Parameter

from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import TYPES, Message, MessageDraft, MessageLink, MessageParent
from trioeval.agent.bus.reading import POLL, BusReading, follow_bus, last_messages, read_parts
from trioeval.agent.bus.settings import BusSettings
from trioeval.cli.flag_types import Count, NotNegative, Switch, Texts, Whole
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, has_reader, say, show, show_in_time
from trioeval.errors import UsageError

# The common parts of the commands: their flags as values, and messages as lines. Pure.


BUS_VARIABLE = "TRIOEVAL_BUS"

_WORD = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_MOST_DIGITS = 18  # of a message number; longer numbers are not valid
_SECONDS = len("2026-01-02T03:04:05")
_INDENT = "    "


@attrs.frozen
class BusFlags:
    """Converts the values of flags, and collects their mistakes.

    Example:
        >>> flags = BusFlags({"TRIOEVAL_BUS": "/runs/bus"})
        >>> flags.folder(None).as_posix(), flags.cursor("12"), flags.types("--type", ["fact"])
        ('/runs/bus', 12, ('fact',))
        >>> flags.mistakes
        ["--type must be a word in capitals, as FACT, got 'fact'"]
    """

    environ: Mapping[str, str]
    mistakes: list[str] = attrs.field(factory=list)

    def folder(self, flag: str | None) -> Path:
        """Return the folder of the bus. A blank flag is a mistake: the variable is not used instead."""
        named = flag if flag is not None else self.environ.get(BUS_VARIABLE)
        if flag is not None and not flag.strip():
            self.mistakes.append("--bus must not be blank")
        elif not (named and named.strip()):
            self.mistakes.append(f"name the bus: --bus FOLDER (or {BUS_VARIABLE})")
        return Path(named or "")

    def text(self, flag: str, value: str) -> str:
        """Return a text value."""
        if not _is_text(value):
            self.mistakes.append(f"{flag} must be UTF-8 text, got {value!a}")
        return value

    def texts(self, flag: str, values: Sequence[str]) -> tuple[str, ...]:
        """Return the values of a repeatable flag; none of them may be blank."""
        if not all(value.strip() for value in values):
            self.mistakes.append(f"{flag} must not be blank")
        return tuple(self.text(flag, value) for value in values)

    def optional(self, flag: str, value: str | None, variable: str | None = None) -> str | None:
        """Return the value of a flag, or else of a variable; None if it is blank."""
        text = value if value is not None or variable is None else self.environ.get(variable)
        return self.text(flag, text) if text and text.strip() else None

    def types(self, flag: str, values: Sequence[str]) -> tuple[str, ...]:
        """Return message types."""
        for value in values:
            if not _WORD.fullmatch(value):
                example = value.upper() if value.upper() in TYPES else TYPES[0]
                self.mistakes.append(
                    f"{flag} must be a word in capitals, as {example}, got {value!a}"
                )
        return tuple(values)

    def pairs(self, flag: str, values: Sequence[str]) -> Mapping[str, str]:
        """Return KEY=VALUE pairs."""
        found: dict[str, str] = {}
        for value in values:
            key, equals, rest = self.text(flag, value).partition("=")
            if not equals or not key.strip():
                self.mistakes.append(f"{flag} must be KEY=VALUE, got {value!a}")
            elif key in found:
                self.mistakes.append(f"{flag} has the key {key!a} twice")
            found[key] = rest
        return found

    def cursor(self, value: str | None) -> int | str | None:
        """Return the number or id of the message to read after; None, the beginning, if it is blank."""
        if value is None or not value.strip():
            return None
        is_number = value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else self.text("--since", value)

    def check(self) -> None:
        """Refuse to continue if there are mistakes.

        Raises:
            UsageError: With all mistakes.
        """
        if self.mistakes:
            raise UsageError("\n".join(self.mistakes))


def is_wanted(message: Message, types: Collection[str]) -> bool:
    """Return whether a message is of one of the types; without types all are."""
    return not types or message.draft.type in types


def message_text(message: Message, *, as_json: bool) -> str:
    """Return a message as it is printed, without a final line end.

    JSON is one line of ASCII, whatever the terminal. Otherwise the first line starts with number, time, type
    and task, and each further one with blanks, so that no body looks like another message; control characters
    are replaced by blanks.
    """
    if as_json:
        return json_module.dumps(message.json())
    draft = message.draft
    task = _plain(draft.task_id or "").strip() or "-"
    head = f"{message.seq} {_plain(message.utc[:_SECONDS])}Z {draft.type} {task}"
    body = draft.body.replace("\r\n", "\n").removesuffix("\n").replace("\t", _INDENT)
    first, *others = map(_plain, body.split("\n"))
    return f"\n{_INDENT}".join([f"{head} {first}" if first else head, *others])


def _plain(text: str) -> str:
    # Like `report.inert`, whose import would load all reports: half a second.
    return "".join(char if char.isprintable() else " " for char in text)


def _is_text(value: str) -> bool:
    # Bytes of the shell that are not UTF-8 are represented by lone surrogates.
    return not any("\ud800" <= char <= "\udfff" for char in value)


# `trioeval bus post`: posts a message from any program.


PROJECT_VARIABLE = "TRIOEVAL_PROJECT"
CASE_VARIABLE = "TRIOEVAL_CASE"
RUN_VARIABLE = "TRIOEVAL_RUN"

_STDIN = "-"


bus = cyclopts.App(name="bus")

_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Types = Annotated[Texts, Parameter(name="--type")]


@bus.command(name="post")
def post(
    text: str | None = None,
    /,
    *,
    kind: Annotated[str, Parameter(name="--type")] = "INFO",
    bus: str | None = None,
    project: str | None = None,
    task: str | None = None,
    run: str | None = None,
    issue: str | None = None,
    parent: Texts = (),
    link: Texts = (),
    meta: Texts = (),
    fsync: Switch = False,
    rotate_bytes: Count | None = None,
    keep_segments: Count | None = None,
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Post a message, and print its id.

    Parameters
    ----------
    text
        The body; `-`, or nothing, reads it from standard input. Write `--` before a text like a flag.
    kind
        The message type: INFO, WARNING, ERROR, PROGRESS, FACT, DECISION, QUESTION, ISSUE, or other capitals.
    bus
        The folder of the bus; default: TRIOEVAL_BUS. It is created if it does not exist.
    project
        The id of the run; default: TRIOEVAL_PROJECT.
    task
        The case of the message; default: TRIOEVAL_CASE.
    run
        The attempt that posts it; default: TRIOEVAL_RUN.
    issue
        The issue that it is about.
    parent
        The id of a message that it replies to; repeatable.
    link
        A URL; repeatable.
    meta
        KEY=VALUE; repeatable.
    fsync
        Flush the message to the disk, whatever its type.
    rotate_bytes
        Start the next file of the bus when this one reaches this size.
    keep_segments
        Keep only this number of newest files of the bus, when the next one is started.
    json
        Print the message as JSON.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    project = flags.optional("--project", project, PROJECT_VARIABLE)
    if project is None:
        flags.mistakes.append(f"name the run of the message: --project ID (or {PROJECT_VARIABLE})")
    is_typed = text is not None and text != _STDIN
    drafted = partial(
        MessageDraft,
        type=flags.types("--type", [kind])[0],
        project_id=project or "",
        task_id=flags.optional("--task", task, CASE_VARIABLE),
        run_id=flags.optional("--run", run, RUN_VARIABLE),
        body=flags.text("TEXT", text or "") if is_typed else "",
        issue_id=flags.optional("--issue", issue),
        parents=tuple(MessageParent(msg_id=name) for name in flags.texts("--parent", parent)),
        links=tuple(MessageLink(url=url) for url in flags.texts("--link", link)),
        meta=flags.pairs("--meta", meta),
    )
    flags.check()
    draft = drafted() if is_typed else drafted(body=_read_stdin())
    settings = BusSettings(
        fsync="always" if fsync else None, rotate_bytes=rotate_bytes, keep_segments=keep_segments
    )
    posted: list[Message] = []

    async def append() -> None:
        async with open_bus(folder, settings, rng=Random().random) as opened:  # noqa: S311 - no secret
            posted.append(await opened.append(draft))

    interrupts.run(append)
    if not posted:
        say(f"nothing was posted; exit {interrupts.code}")
        return interrupts.code
    show(message_text(posted[0], as_json=True) if json else posted[0].msg_id)
    return Exit.OK


def _read_stdin() -> str:
    """Read all of standard input; bytes that are not text are replaced, since a bus contains text.

    Raises:
        UsageError: It is closed, or cannot be read.
    """
    if getattr(sys.stdin, "buffer", None) is None:
        raise UsageError("no TEXT is given, and standard input is closed")
    try:
        data = sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror or error}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        say("standard input is not UTF-8: invalid bytes are replaced by \N{REPLACEMENT CHARACTER}")
        return data.decode(errors="replace")


@bus.command(name="read")
def read(
    *,
    bus: str | None = None,
    since: str | None = None,
    last: Whole | None = None,
    kind: _Types = (),
    json: Switch = False,
) -> int:
    """Print the existing messages.

    Parameters
    ----------
    bus
        The folder of the bus; default: TRIOEVAL_BUS.
    since
        Only messages after this number or id.
    last
        Only this number of newest messages.
    kind
        Only messages of this type; repeatable.
    json
        Print one line of JSON per message.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    cursor = flags.cursor(since)
    types = flags.types("--type", kind)
    # The folder of the environment need not exist yet: then nothing was posted.
    if bus is not None and bus.strip() and not folder.is_dir():
        flags.mistakes.append(f"--bus {bus}: the folder does not exist")
    flags.check()
    if last is not None and cursor is None and not types:
        parts: Iterable[BusReading] = [last_messages(folder, last)]
    else:
        parts = read_parts(folder, since=cursor)
    found = (message for message in _messages(parts) if is_wanted(message, types))
    for message in found if last is None else deque(found, maxlen=last):
        if not show(message_text(message, as_json=json)):
            break  # the reader has closed the pipe
    return Exit.OK


def _messages(parts: Iterable[BusReading]) -> Iterator[Message]:
    """Yield all messages; report corrupt parts."""
    for part in parts:
        for damage in part.corrupt:
            say(f"{damage.file}: bytes {damage.start} to {damage.end} are not a message; skipped")
        yield from part.messages


@bus.command(name="follow")
def follow(
    *,
    bus: str | None = None,
    since: str | None = None,
    kind: _Types = (),
    until: Texts = (),
    timeout: NotNegative = 0.0,
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Print the existing messages, and then each new one, until interrupted.

    Parameters
    ----------
    bus
        The folder of the bus, which need not exist yet; default: TRIOEVAL_BUS.
    since
        Only messages after this number or id.
    kind
        Only messages of this type; repeatable.
    until
        Exit after the first message of this type; repeatable.
    timeout
        Exit after this number of seconds; 0 for no limit.
    json
        Print one line of JSON per message.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    cursor = flags.cursor(since)
    flags.types("--type", kind)
    flags.types("--until", until)
    flags.check()

    async def print_messages() -> None:
        """Print messages until the last one, or until the reader has closed the pipe."""
        async for message in follow_bus(folder, since=cursor):
            is_read = not is_wanted(message, kind) or await show_in_time(
                message_text(message, as_json=json)
            )
            if not is_read or message.draft.type in until:
                return

    async def print_in_time() -> int | None:
        with trio.move_on_after(timeout or math.inf):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_notice_leaving, nursery.cancel_scope)
                await print_messages()
                nursery.cancel_scope.cancel("the last message is printed")
            return Exit.OK
        return None

    ended = interrupts.run(print_in_time)
    if ended is not None:
        return ended
    if interrupts.received:
        return interrupts.code
    if not until:
        return Exit.OK
    say(f"no {' or '.join(until)} within {timeout:g} s")
    return Exit.FAILED


async def _notice_leaving(scope: trio.CancelScope) -> None:
    """Cancel a scope when the reader has closed the pipe, also if there is nothing to print."""
    while has_reader(sys.stdout):  # noqa: ASYNC110 - the closing of a pipe sends no notification
        await trio.sleep(POLL)
    scope.cancel("the reader has closed the pipe")
