"""`trioeval fake-provider`: the fake server in the foreground."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import get_args

import attrs
import trio

from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import OutputError, Problem, SuiteError, UsageError
from trioeval.providers.fake import (
    EchoReplies,
    FakeAddress,
    FakeSettings,
    Hints,
    RecordedReplies,
    Replies,
    ScriptedReplies,
    ServedCompletion,
    serve_fake,
)
from trioeval.providers.local.recordings import Recording, parse_file


def serve_until_interrupted(
    settings: FakeSettings, interrupts: Interrupts, *, log: Path | None = None
) -> int:
    """Serve, print the base URL on stdout, and return when a signal is received.

    Args:
        settings: The behaviour of the server.
        interrupts: The signals of this process.
        log: A file to which a line is appended for each finished completion.

    Raises:
        UsageError: The address cannot be bound, or the log cannot be opened.
        OutputError: Writing the log failed.
    """
    # A full garbage collection would delay replies as much as a slow provider.
    gc.collect()
    gc.freeze()
    with _opened_log(log) as on_served:
        interrupts.run(partial(_serve, settings, on_served))
    return Exit.OK


def choose_replies(replay: Path | None, texts: tuple[str, ...]) -> Replies:
    """Return the replies of the server: recorded replies, given texts, or the prompt.

    Raises:
        UsageError: Both flags are given.
        SuiteError: The recordings cannot be read.
    """
    if replay is not None and texts:
        raise UsageError("--replay and --reply exclude each other")
    if replay is not None:
        return RecordedReplies(_read_recordings(replay))
    return ScriptedReplies(texts) if texts else EchoReplies()


def choose_hints(name: str) -> Hints:
    """Return which headers about limits the replies have.

    Raises:
        UsageError: The name is unknown.
    """
    match name:
        case "all" | "limits" | "retry_after" | "none":
            return name
        case _:
            raise UsageError(f"--hints must be one of {', '.join(get_args(Hints))}, got {name!r}")


def _read_recordings(path: Path) -> tuple[Recording, ...]:
    """Return the recorded replies of a file.

    Raises:
        SuiteError: The file cannot be read, or some of its lines are wrong.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"the recordings cannot be read: {error.strerror}"
        raise SuiteError([Problem("$", message, file=str(path))]) from None
    found = parse_file(content, str(path))
    if found.problems:
        raise SuiteError(attrs.evolve(problem, path="$") for problem in found.problems)
    return found.recordings


@contextmanager
def _opened_log(path: Path | None) -> Iterator[Callable[[ServedCompletion], None] | None]:
    """Give a function that writes the log; each line is written before the next request is read."""
    if path is None:
        yield None
        return
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise UsageError(f"--log {path} cannot be written: {error.strerror or error}") from None

    def write(served: ServedCompletion) -> None:
        try:
            file.write(served.to_line(time.time()).encode())
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"--log {path} cannot be written: {reason}") from error

    with file:
        yield write


async def _serve(
    settings: FakeSettings, on_served: Callable[[ServedCompletion], None] | None
) -> None:
    """Serve until cancelled."""
    async with trio.open_nursery() as nursery:
        try:
            address: FakeAddress = await nursery.start(serve_fake, settings, on_served)
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise UsageError(
                f"cannot listen on {where}: {error.strerror or error}; name another --host or --port"
            ) from None
        show(address.base_url)
        say("serving; interrupt to stop")
