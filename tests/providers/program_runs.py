"""Shared parts of the program tests: real processes, and checks whether they are alive."""

import os
import select
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import outcome
import trio
import trio.testing

from trioeval.providers import Reply, Request
from trioeval.providers.config import EntryContext, ProviderSettings
from trioeval.providers.http.wire import TlsSettings, WebClient
from trioeval.templates import Templates

T = TypeVar("T")


class NothingShared:
    """Programs share no resources."""

    templates = Templates()
    runs_code = True

    async def http(self, tls: TlsSettings | None = None) -> WebClient:
        """Not used."""
        raise NotImplementedError


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a function on Trio, with a time limit."""

    async def bounded() -> T:
        with trio.fail_after(60):
            return await main()

    return trio.run(bounded)


def run_when_ready(pipe: Path, main: Callable[[], Awaitable[T]]) -> T:
    """Run a function on a clock that stops until a program has opened this named pipe, and closed it.

    A late program was ready before that, however slow the machine is.
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


def context(directory: Path, **environ: str) -> EntryContext:
    """Return a suite's context for this directory, with the environment of the tests and more variables."""
    return EntryContext(
        environ={**os.environ, **environ}, directory=directory, templates=Templates()
    )


async def ask(settings: ProviderSettings, prompt: str = "Hi", **request: Any) -> Reply:
    """Open a provider and send one request."""
    async with settings.open(NothingShared()) as provider:
        reply = await provider(Request(prompt=prompt, **request))
    assert isinstance(reply, Reply)
    return reply


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended but was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def carriers(text: str) -> list[int]:
    """Return the live processes with a text in their environment."""
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
    """Return the environment of a process; a child of this one is read again until it has one.

    `exec` closes the pipe that reports its success a moment before the new program has its environment,
    so a child that was just started may have none.
    """
    pid = int(process.name)
    while not (environment := (process / "environ").read_bytes()):
        parent = (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
        if int(parent) != os.getpid() or not is_alive(pid):
            break
    return environment


def wait_gone(pid: int, limit: float) -> bool:
    """Return whether another program's process ends within `limit` seconds."""
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
