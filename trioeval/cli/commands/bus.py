# Apart from `cli.commands.agent`: the commands of another group.
"""The commands for message buses of agents."""

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
from trioeval.agent.bus.messages import TYPES, Draft, Link, Message, Parent
from trioeval.agent.bus.reading import POLL, Reading, follow_bus, last_messages, read_parts
from trioeval.agent.bus.settings import BusSettings
from trioeval.cli.flags import Count, NotNegative, Switch, Texts, Whole
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, has_reader, say, show, show_in_time
from trioeval.errors import UsageError

# What the commands for message buses have in common: their flags as values, and messages as lines. Pure.


BUS_VARIABLE = "TRIOEVAL_BUS"

_WORD = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_MOST_DIGITS = 18  # of a number of a message; what is longer is no number of one
_SECONDS = len("2026-01-02T03:04:05")
_INDENT = "    "


@attrs.frozen
class BusFlags:
    """Reads what flags say, and gathers what is wrong with it.

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
        """The folder of the bus. A flag that is blank is a mistake: it means no other bus."""
        named = flag if flag is not None else self.environ.get(BUS_VARIABLE)
        if flag is not None and not flag.strip():
            self.mistakes.append("--bus must not be blank")
        elif not (named and named.strip()):
            self.mistakes.append(f"say which bus: --bus FOLDER (or {BUS_VARIABLE})")
        return Path(named or "")

    def text(self, flag: str, value: str) -> str:
        """What a flag says in words."""
        if not _is_text(value):
            self.mistakes.append(f"{flag} must be text in UTF-8, got {value!a}")
        return value

    def texts(self, flag: str, values: Sequence[str]) -> tuple[str, ...]:
        """What a flag says that may be given several times; none of it blank."""
        if not all(value.strip() for value in values):
            self.mistakes.append(f"{flag} must not be blank")
        return tuple(self.text(flag, value) for value in values)

    def optional(self, flag: str, value: str | None, variable: str | None = None) -> str | None:
        """What a flag, or else a variable, says; None where it is blank."""
        said = value if value is not None or variable is None else self.environ.get(variable)
        return self.text(flag, said) if said and said.strip() else None

    def types(self, flag: str, values: Sequence[str]) -> tuple[str, ...]:
        """Types of messages."""
        for value in values:
            if not _WORD.fullmatch(value):
                example = value.upper() if value.upper() in TYPES else TYPES[0]
                self.mistakes.append(
                    f"{flag} must be a word in capitals, as {example}, got {value!a}"
                )
        return tuple(values)

    def pairs(self, flag: str, values: Sequence[str]) -> Mapping[str, str]:
        """What is said as KEY=VALUE."""
        found: dict[str, str] = {}
        for value in values:
            key, equals, rest = self.text(flag, value).partition("=")
            if not equals or not key.strip():
                self.mistakes.append(f"{flag} must be KEY=VALUE, got {value!a}")
            elif key in found:
                self.mistakes.append(f"{flag} says {key!a} twice")
            found[key] = rest
        return found

    def cursor(self, value: str | None) -> int | str | None:
        """After which message to read: its number or id; None, the beginning, where it is blank."""
        if value is None or not value.strip():
            return None
        is_number = value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else self.text("--since", value)

    def check(self) -> None:
        """Go on only where nothing is wrong.

        Raises:
            UsageError: With everything that is.
        """
        if self.mistakes:
            raise UsageError("\n".join(self.mistakes))


def is_wanted(message: Message, types: Collection[str]) -> bool:
    """Whether a message is of one of the types; all are where none is named."""
    return not types or message.draft.type in types


def message_text(message: Message, *, as_json: bool) -> str:
    """A message as it is printed, without a line end behind it.

    JSON is one line of ASCII, whatever the terminal. Else the first line begins with number, time, type and
    task, and each further one with blanks, so that no body looks like another message; characters that a
    terminal might obey are blanks.
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
    # As `report.inert` does, which would import all of the reports: half a second for a line.
    return "".join(char if char.isprintable() else " " for char in text)


def _is_text(value: str) -> bool:
    # What the shell gave as other bytes has halves of characters in their place.
    return not any("\ud800" <= char <= "\udfff" for char in value)


# `trioeval bus post`: a message from whatever can start a process.


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
        What it says; `-`, or nothing, takes all of standard input. `--` before a text that looks like a flag.
    kind
        Its type: INFO, WARNING, ERROR, PROGRESS, FACT, DECISION, QUESTION, ISSUE, or other capitals.
    bus
        The folder of the bus; TRIOEVAL_BUS if not given. It is made if it is not there.
    project
        The run that it belongs to; TRIOEVAL_PROJECT if not given.
    task
        The case that it is about; TRIOEVAL_CASE if not given.
    run
        The attempt that it comes from; TRIOEVAL_RUN if not given.
    issue
        The issue that it is about.
    parent
        The id of a message that it answers; may be given several times.
    link
        A URL that it points at; may be given several times.
    meta
        KEY=VALUE; may be given several times.
    fsync
        Write it through to the disk, whatever its type.
    rotate_bytes
        Begin the next file of the bus when this one has so many bytes.
    keep_segments
        Keep only so many files of the bus, the newest, when a next one is begun.
    json
        Print the message as JSON.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    project = flags.optional("--project", project, PROJECT_VARIABLE)
    if project is None:
        flags.mistakes.append(f"say which run it belongs to: --project ID (or {PROJECT_VARIABLE})")
    is_typed = text is not None and text != _STDIN
    drafted = partial(
        Draft,
        type=flags.types("--type", [kind])[0],
        project_id=project or "",
        task_id=flags.optional("--task", task, CASE_VARIABLE),
        run_id=flags.optional("--run", run, RUN_VARIABLE),
        body=flags.text("TEXT", text or "") if is_typed else "",
        issue_id=flags.optional("--issue", issue),
        parents=tuple(Parent(msg_id=name) for name in flags.texts("--parent", parent)),
        links=tuple(Link(url=url) for url in flags.texts("--link", link)),
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
    """All of it; what is no text is marked, since a bus holds text.

    Raises:
        UsageError: There is none, or it cannot be read.
    """
    if getattr(sys.stdin, "buffer", None) is None:
        raise UsageError("say what to post: standard input is closed, and there is no TEXT")
    try:
        said = sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror or error}") from None
    try:
        return said.decode()
    except UnicodeDecodeError:
        say(
            "standard input is not UTF-8: each part that is no text stands as \N{REPLACEMENT CHARACTER}"
        )
        return said.decode(errors="replace")


@bus.command(name="read")
def read(
    *,
    bus: str | None = None,
    since: str | None = None,
    last: Whole | None = None,
    kind: _Types = (),
    json: Switch = False,
) -> int:
    """Print the messages that are there.

    Parameters
    ----------
    bus
        The folder of the bus; TRIOEVAL_BUS if not given.
    since
        Only messages after this one: its number or id.
    last
        Only the last so many.
    kind
        Only messages of this type; may be given several times.
    json
        A line of JSON for each.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    cursor = flags.cursor(since)
    wanted = flags.types("--type", kind)
    # That of the environment need not be there yet: then nobody has posted anything.
    if bus is not None and bus.strip() and not folder.is_dir():
        flags.mistakes.append(f"--bus {bus}: the folder does not exist")
    flags.check()
    if last is not None and cursor is None and not wanted:
        parts: Iterable[Reading] = [last_messages(folder, last)]
    else:
        parts = read_parts(folder, since=cursor)
    found = (message for message in _messages(parts) if is_wanted(message, wanted))
    for message in found if last is None else deque(found, maxlen=last):
        if not show(message_text(message, as_json=json)):
            break  # nobody reads on
    return Exit.OK


def _messages(parts: Iterable[Reading]) -> Iterator[Message]:
    """All messages, one by one; tells what is none."""
    for part in parts:
        for damage in part.corrupt:
            say(f"{damage.file}: bytes {damage.start} to {damage.end} are no message, and left out")
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
    """Print the messages that are there, and then each as it comes, until interrupted.

    Parameters
    ----------
    bus
        The folder of the bus, which need not be there yet; TRIOEVAL_BUS if not given.
    since
        Only messages after this one: its number or id.
    kind
        Only messages of this type; may be given several times.
    until
        End behind the first message of this type; may be given several times.
    timeout
        End after so many seconds; 0 for no limit.
    json
        A line of JSON for each.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    cursor = flags.cursor(since)
    flags.types("--type", kind)
    flags.types("--until", until)
    flags.check()

    async def print_messages() -> None:
        """Until one is the last, or nobody reads them any more."""
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
                nursery.cancel_scope.cancel("over")
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
    """End it when nobody reads any more, also where nothing comes that could be printed."""
    while has_reader(sys.stdout):  # noqa: ASYNC110 - a pipe wakes nobody for that
        await trio.sleep(POLL)
    scope.cancel("nobody reads")
