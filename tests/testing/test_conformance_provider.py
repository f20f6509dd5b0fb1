"""The check of foreign providers finds their defects, and passes correct ones."""

import json
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault
from trioeval.providers import HttpClient, Provider, Reply, Request, resolve
from trioeval.providers.fake import FakeAddress, FakeSettings, serve_fake
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider
from trioeval.providers.http.client import open_http
from trioeval.providers.local.echo import EchoProvider
from trioeval.templates import Templates
from trioeval.testing import run_virtual
from trioeval.testing.conformance_provider import broken_promises, check_provider, echoes

Defect: TypeAlias = Literal[
    "swallows the cancellation",
    "makes an error of the cancellation",
    "hides from the cancellation",
    "has no checkpoint",
    "repeats what failed",
    "sends twice",
    "leaves a task behind",
    "mixes up replies",
    "loses its connections",
    "raises bare errors",
    "says that a failure is a reply",
]

_TURNS_CANCELLATION = ("swallows the cancellation", "makes an error of the cancellation")


@attrs.define(eq=False)
class Slow:
    """A provider that takes a second, correct except for a given defect."""

    defect: Defect | None = None
    fails: bool = False
    sent: int = 0
    connections: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(20))
    last: str = ""

    async def __call__(self, request: Request, /) -> Reply:
        if self.defect == "has no checkpoint":
            return Reply(output=request.prompt)
        if self.defect == "leaves a task behind":
            trio.lowlevel.spawn_system_task(trio.sleep, 100, name="pinger")
        self.last = request.prompt
        failure = None
        with suppress(trio.Cancelled) if self.defect in _TURNS_CANCELLATION else nullcontext():
            try:
                return await self._ask(request)
            except CallError as error:
                failure = error
        return await self._go_on(request, failure)

    async def _go_on(self, request: Request, failure: CallError | None) -> Reply:
        match self.defect:
            case "swallows the cancellation" if failure is None:
                return Reply(output="")
            case "makes an error of the cancellation" if failure is None:
                raise CallError(Fault.TRANSIENT, "the connection broke")
            case "repeats what failed":
                return await self._ask(request)
            case "raises bare errors":
                raise OSError("broken pipe") from failure
            case "says that a failure is a reply":
                return Reply(output="error: 500")
            case _:
                assert failure is not None
                raise failure

    async def _ask(self, request: Request) -> Reply:
        if self.defect == "loses its connections":
            await self.connections.acquire()
        else:
            await trio.lowlevel.checkpoint()
        self.sent += 1 + (self.defect == "sends twice")
        with trio.CancelScope(shield=self.defect == "hides from the cancellation"):
            await trio.sleep(4)
        if self.defect == "loses its connections":
            self.connections.release()  # not when the call is cancelled
        if self.fails:
            raise CallError(Fault.TRANSIENT, "the server is down")
        return Reply(output=self.last if self.defect == "mixes up replies" else request.prompt)


def broken(defect: Defect | None) -> str:
    """Return the promises that are found broken, on a virtual clock."""

    async def main() -> str:
        provider, failing = Slow(defect), Slow(defect, fails=True)

        async def sent() -> int:  # noqa: ASYNC124 - of a given shape
            return provider.sent + failing.sent

        found = await broken_promises(
            lambda: provider, belongs=echoes, failing=lambda: failing, count=sent
        )
        return " ".join(found)

    return run_virtual(main)


@pytest.mark.parametrize(
    ("defect", "promises"),
    [
        (None, ""),
        ("swallows the cancellation", "CANCEL"),
        ("makes an error of the cancellation", "CANCEL"),
        ("hides from the cancellation", "CANCEL DEADLINE"),
        ("has no checkpoint", "ONE_REQUEST CANCEL FAULT"),
        ("repeats what failed", "ONE_REQUEST"),
        ("sends twice", "ONE_REQUEST"),
        ("leaves a task behind", "LEAK"),
        ("mixes up replies", "APART"),
        ("loses its connections", "AGAIN"),
        ("raises bare errors", "FAULT"),
        ("says that a failure is a reply", "FAULT"),
    ],
)
def test_a_provider_breaks_exactly_these_promises(defect: Defect | None, promises: str) -> None:
    """Each promise that it breaks is found, and none that it keeps."""
    assert broken(defect) == promises


def test_all_broken_promises_are_reported_with_their_violation() -> None:
    """The first violation of each is reported."""

    async def main() -> None:
        await check_provider(lambda: Slow("hides from the cancellation"))

    with pytest.raises(AssertionError) as caught:
        run_virtual(main)
    assert str(caught.value).splitlines() == [
        "broken promises: CANCEL, DEADLINE",
        "",
        "CANCEL is broken: a call cancelled after 1 steps ended 4 s later",
        "DEADLINE is broken: a call with 1 s ended 3 s too late",
    ]


def test_a_provider_that_does_not_respond_is_not_checked_further() -> None:
    """No other promise can be checked."""

    async def silent(_request: Request, /) -> Any:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        assert await broken_promises(lambda: silent) == {
            "ANSWERS": "a call returned None, which is neither Reply nor text"
        }

    run_virtual(main)


def test_the_echo_provider_keeps_its_promises() -> None:
    """Calls that take no time can be checked too."""

    async def main() -> None:
        await check_provider(EchoProvider, belongs=echoes)

    run_virtual(main)


@pytest.mark.slow
@pytest.mark.network
def test_the_openai_provider_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check uses real sockets: one server that responds after a delay, and one that fails."""
    monkeypatch.setenv("NO_PROXY", "*")

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                good = await nursery.start(serve_fake, FakeSettings(latency_s=0.05))
                bad = await nursery.start(serve_fake, FakeSettings(failure_rate=1.0))
                async with open_http() as client:
                    await check_openai(client, good, bad)
                nursery.cancel_scope.cancel("the check is over")

    trio.run(main)


async def check_openai(client: HttpClient, good: FakeAddress, bad: FakeAddress) -> None:
    def at(address: FakeAddress) -> Provider:
        config = {"apiBaseUrl": address.base_url}
        spec = resolve(
            "openai:m-1", config, environ={}, directory=Path(), templates=Templates(), custom={}
        )
        assert isinstance(spec.settings, AdapterSettings)
        return HttpProvider(spec.settings.adapter, client)

    async def seen() -> int:
        return sum([await requests(address) for address in (good, bad)])

    await check_provider(
        lambda: at(good), belongs=echoes, failing=lambda: at(bad), count=seen, grace=20.0
    )


async def requests(address: FakeAddress) -> int:
    """Return the number of requests that a fake provider has received."""
    stream = await trio.open_tcp_stream(address.host, address.port)
    async with stream:
        await stream.send_all(b"GET /stats HTTP/1.1\r\nhost: fake\r\nconnection: close\r\n\r\n")
        reply = b"".join([chunk async for chunk in stream])
    return int(json.loads(reply.partition(b"\r\n\r\n")[2])["requests"])
