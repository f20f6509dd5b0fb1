"""Replies that would block every lane, or exhaust memory, by their size or their contents."""

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from pace import slowness

from trioeval.errors import ProviderError
from trioeval.providers import open_providers, resolve
from trioeval.providers.base import Request
from trioeval.providers.bounds import MOST_BYTES
from trioeval.templates import Templates

pytestmark = [pytest.mark.attack("hang"), pytest.mark.slow, pytest.mark.network]

GAP = 0.3
"""Seconds that the process may compute between two steps of another lane, on a machine that is not slow."""

ALLOWED = MOST_BYTES - 1000


@attrs.frozen
class Hostile:
    """A reply of a server."""

    body: Callable[[], bytes]
    head: str = "content-type: application/json"
    is_declared: bool = True


def filled(piece: bytes, size: int = ALLOWED, *, begin: bytes = b"[", end: bytes = b"]") -> bytes:
    return begin + piece * (size // len(piece)) + end


REPLIES = {
    "more than is allowed": Hostile(lambda: filled(b'{"a":1},', 2 * MOST_BYTES)),
    "more, and not declared": Hostile(lambda: filled(b"{},", 2 * MOST_BYTES), is_declared=False),
    "objects": Hostile(lambda: filled(b"{},", end=b"{}]")),
    "lists": Hostile(lambda: filled(b"[],", end=b"[]]")),
    "numbers": Hostile(lambda: filled(b"1,", end=b"1]")),
    "texts": Hostile(lambda: filled(b'"",', end=b'""]')),
    "members": Hostile(lambda: filled(b'{"a":1,"b":[{}]},', end=b"{}]")),
    "brackets": Hostile(lambda: filled(b"[", begin=b"", end=b"")),
    "quotes": Hostile(lambda: filled(b'"', end=b"")),
    "escaped quotes": Hostile(lambda: filled(b'\\"', begin=b'["', end=b'"]')),
    "a text of commas": Hostile(lambda: filled(b",", begin=b'{"a":"', end=b'"}')),
    "space": Hostile(lambda: filled(b" ")),
    "halves of pairs": Hostile(lambda: filled(b"\\ud800", begin=b'["', end=b'"]')),
    "digits": Hostile(lambda: filled(b"9")),
    "packed": Hostile(
        lambda: gzip.compress(filled(b"{},", 3 * MOST_BYTES), 1),
        "content-type: application/json\r\ncontent-encoding: gzip",
    ),
    "events": Hostile(
        lambda: filled(b"data: {}\n\n", begin=b"", end=b""), "content-type: text/event-stream"
    ),
    "lines": Hostile(lambda: filled(b"\n", begin=b"", end=b""), "content-type: text/event-stream"),
    "one event": Hostile(
        lambda: filled(b"{},", begin=b"data: [", end=b"{}]\n\n"), "content-type: text/event-stream"
    ),
    "one event of lines": Hostile(
        lambda: filled(b"data: {},\n", begin=b"data: [\n", end=b"data: {}]\n\n"),
        "content-type: text/event-stream",
    ),
}

PROVIDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "http": ("{url}", {"body": {"p": "{{prompt}}"}}),
    "stream": ("openai:chat:m", {"apiBaseUrl": "{url}", "apiKey": "k", "metrics": ["ttft"]}),
}


async def answer_all(hostile: Hostile, body: bytes, stream: trio.SocketStream) -> None:
    length = f"content-length: {len(body)}\r\n" if hostile.is_declared else ""
    head = f"HTTP/1.1 200 OK\r\n{hostile.head}\r\nconnection: close\r\n{length}\r\n"
    try:
        await stream.receive_some()
        await stream.send_all(head.encode())
        for at in range(0, len(body), 1 << 16):
            await stream.send_all(body[at : at + (1 << 16)])
        await stream.aclose()
    except trio.BrokenResourceError:
        pass  # the client has read enough


async def ask(provider: str, url: str) -> str:
    name, config = PROVIDERS[provider]
    written = {
        key: value.replace("{url}", url) if isinstance(value, str) else value
        for key, value in config.items()
    }
    spec = resolve(
        name.replace("{url}", url),
        written,
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    async with open_providers([spec], Templates()) as (opened,):
        try:
            reply = await opened(Request(prompt="hi"))
        except ProviderError as error:
            return str(error)
    return f"output of {len(json.dumps(reply.output))}"


async def beat(gaps: list[float], cancelled: trio.CancelScope) -> None:
    """Measure another lane: the computing time of the whole process between two of its steps."""
    with cancelled:
        while True:
            began = time.process_time()
            await trio.sleep(0.005)
            gaps.append(time.process_time() - began)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", REPLIES)
def test_a_hostile_reply_does_not_delay_other_lanes(name: str, provider: str) -> None:
    """It is refused, or read without delaying others."""
    hostile = REPLIES[name]
    body = hostile.body()
    gaps: list[float] = []

    async def main() -> str:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                port = listeners[0].socket.getsockname()[1]

                async def answer(stream: trio.SocketStream) -> None:
                    await answer_all(hostile, body, stream)

                nursery.start_soon(trio.serve_listeners, answer, listeners)
                beating = trio.CancelScope()
                nursery.start_soon(beat, gaps, beating)
                reply = await ask(provider, f"http://127.0.0.1:{port}/")
                beating.cancel()
                nursery.cancel_scope.cancel()
                return reply

    for _ in range(3):  # the least of three: other programs make caches cold and processors slow
        gaps.clear()
        reply = trio.run(main)
        if max(gaps, default=0.0) < GAP * slowness():
            return
    pytest.fail(f"{max(gaps):.3f} s: {reply}")
