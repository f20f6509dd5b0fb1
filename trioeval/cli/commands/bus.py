"""The commands for message buses of agents; `bus_read` and `bus_follow` carry out the longer ones."""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import attrs
import cyclopts
import trio
from cyclopts import Parameter

from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import TYPES, Draft, Link, Message, Parent
from trioeval.agent.bus.settings import BusSettings
from trioeval.cli.flags import Count, NotNegative, Switch, Texts, Whole
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import BusError, UsageError

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
        return json.dumps(message.json())
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


@attrs.frozen(kw_only=True)
class Posting:
    """What the command line says of a message."""

    text: str | None = None
    """None and `-` are what standard input says."""
    type: str = "INFO"
    bus: str | None = None
    project: str | None = None
    task: str | None = None
    run: str | None = None
    issue: str | None = None
    parents: Sequence[str] = ()
    links: Sequence[str] = ()
    meta: Sequence[str] = ()

    def drafted(self, environ: Mapping[str, str]) -> tuple[Path, Draft]:
        """The folder of the bus, and the message without what standard input says.

        Raises:
            UsageError: With everything that is wrong.
        """
        flags = BusFlags(environ)
        folder = flags.folder(self.bus)
        project = flags.optional("--project", self.project, PROJECT_VARIABLE)
        if project is None:
            flags.mistakes.append(
                f"say which run it belongs to: --project ID (or {PROJECT_VARIABLE})"
            )
        (kind,) = flags.types("--type", [self.type])
        task = flags.optional("--task", self.task, CASE_VARIABLE)
        run = flags.optional("--run", self.run, RUN_VARIABLE)
        body = "" if self.is_from_stdin else flags.text("TEXT", self.text or "")
        issue = flags.optional("--issue", self.issue)
        parents = tuple(Parent(msg_id=name) for name in flags.texts("--parent", self.parents))
        links = tuple(Link(url=url) for url in flags.texts("--link", self.links))
        meta = flags.pairs("--meta", self.meta)
        flags.check()
        return folder, Draft(
            type=kind,
            project_id=project or "",
            task_id=task,
            run_id=run,
            body=body,
            issue_id=issue,
            parents=parents,
            links=links,
            meta=meta,
        )

    @property
    def is_from_stdin(self) -> bool:
        """Whether standard input says what it says."""
        return self.text is None or self.text == _STDIN


def post_message(
    posting: Posting, interrupts: Interrupts, *, settings: BusSettings, as_json: bool
) -> int:
    """Post a message, and print its id, or all of it.

    Raises:
        UsageError: A flag says what cannot be, or there is no standard input.
        BusError: It cannot be written.
        OutputError: It is posted, and cannot be printed.
    """
    folder, draft = posting.drafted(os.environ)
    if posting.is_from_stdin:
        draft = attrs.evolve(draft, body=_read_stdin())
    interrupts.begin_run()
    posted = trio.run(_post, folder, settings, draft, interrupts)
    if posted is None:
        say(f"nothing was posted; exit {interrupts.code}")
        return interrupts.code
    if isinstance(posted, BusError):
        raise posted
    show(message_text(posted, as_json=True) if as_json else posted.msg_id)
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


async def _post(
    folder: Path, settings: BusSettings, draft: Draft, interrupts: Interrupts
) -> Message | BusError | None:
    """The message; or why it is not there; None if a signal came first."""
    posted: Message | BusError | None = None
    with trio.CancelScope() as scope, interrupts.told_to(lambda number: scope.cancel(number.name)):
        async with open_bus(folder, settings, rng=Random().random) as bus:  # noqa: S311 - no secret
            try:
                posted = await bus.append(draft)
            except BusError as error:
                posted = error  # raised where no nursery of the bus wraps it
    return posted


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
    # Imports wait until they are needed.
    from trioeval.agent.bus.settings import BusSettings  # noqa: PLC0415

    return post_message(
        Posting(
            text=text,
            type=kind,
            bus=bus,
            project=project,
            task=task,
            run=run,
            issue=issue,
            parents=parent,
            links=link,
            meta=meta,
        ),
        interrupts,
        settings=BusSettings(
            fsync="always" if fsync else None,
            rotate_bytes=rotate_bytes,
            keep_segments=keep_segments,
        ),
        as_json=json,
    )


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
    from trioeval.cli.commands.bus_read import read_messages  # noqa: PLC0415 - see above

    return read_messages(bus, since=since, last=last, types=kind, as_json=json)


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
    from trioeval.cli.commands.bus_follow import Following, follow_messages  # noqa: PLC0415 - see above

    return follow_messages(
        Following(bus=bus, since=since, types=kind, until=until, timeout=timeout, as_json=json),
        interrupts,
    )
