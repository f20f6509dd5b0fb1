"""What the tests of programs share: real processes, and whether they are alive."""

import os
import select
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import outcome
import trio
import trio.testing

from trioeval.providers import Reply, Request
from trioeval.providers.config import Settings, Surroundings
from trioeval.providers.http.wire import HttpClient, TlsSettings
from trioeval.templates import Templates

T = TypeVar("T")


class NothingShared:
    """Programs share nothing."""

    templates = Templates()
    runs_code = True

    async def http(self, tls: TlsSettings | None = None) -> HttpClient:
        """Not used."""
        raise NotImplementedError


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run it on Trio; what takes too long fails."""

    async def bounded() -> T:
        with trio.fail_after(60):
            return await main()

    return trio.run(bounded)


def run_when_ready(pipe: Path, main: Callable[[], Awaitable[T]]) -> T:
    """Run it on a clock that stands still until a program has opened this named pipe to write, and closed it.

    So whatever is late was ready before that, however slow the machine is.
    """
    os.mkfifo(pipe)
    clock = trio.testing.MockClock()

    async def wait_ready() -> None:
        await trio.to_thread.run_sync(pipe.read_text, abandon_on_cancel=True)
        clock.rate = 1.0

    async def both() -> T:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_ready)
            found = await outcome.acapture(main)
            nursery.cancel_scope.cancel("done")
        return found.unwrap()

    return trio.run(both, clock=clock)


def around(directory: Path, **environ: str) -> Surroundings:
    """A suite in this directory; the environment is that of the tests, and more."""
    return Surroundings(
        environ={**os.environ, **environ}, directory=directory, templates=Templates()
    )


async def ask(settings: Settings, prompt: str = "Hi", **request: Any) -> Reply:
    """One call to a provider that is opened for it."""
    async with settings.open(NothingShared()) as provider:
        reply = await provider(Request(prompt=prompt, **request))
    assert isinstance(reply, Reply)
    return reply


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody looked at yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def carriers(text: str) -> list[int]:
    """The live processes that have a text in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            holds = folder.name.isdigit() and text.encode() in environment_of(folder)
        except OSError:
            continue
        if holds and is_alive(int(folder.name)):
            found.append(int(folder.name))
    return found


def environment_of(process: Path) -> bytes:
    """What a process was started with; a child of ours is read again until it has one.

    `exec` closes what tells the parent that it worked a moment before the new
    program has its environment, so a child that was just started can be without.
    """
    pid = int(process.name)
    while not (environment := (process / "environ").read_bytes()):
        parent = (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
        if int(parent) != os.getpid() or not is_alive(pid):
            break
    return environment


def wait_gone(pid: int, limit: float) -> bool:
    """Whether a process of somebody else ends within `limit` seconds."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        return bool(poll.poll(limit * 1000))
    finally:
        os.close(handle)
