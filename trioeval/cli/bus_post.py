"""`trioeval bus post`: a message from whatever can start a process."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from trioeval.agents.bus.bus import open_bus
from trioeval.agents.bus.messages import Draft, Link, Message, Parent
from trioeval.agents.bus.settings import BusSettings
from trioeval.cli.bus import BusFlags, message_text
from trioeval.cli.exits import Exit
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import say, show
from trioeval.errors import BusError, UsageError

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
