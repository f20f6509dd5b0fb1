"""A run and its watchers over a real socket: the messages that each receives, and the safety of the run."""

import json
import logging
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from live_runs import RUN, WatchedRun, watched_run

from trioeval.errors import NotLiveError
from trioeval.kernel import LaneSpec
from trioeval.web import live as live_server
from trioeval.web.live import TellRow, serve_live
from trioeval.web.live_client import Live, live_run_ids, open_live
from trioeval.web.sockets import connect_to, listen_for

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="this system does not support sockets in its file system"
)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder whose path is short enough for sockets; other runs of this user are elsewhere."""
    with TemporaryDirectory(prefix="te-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder, "trioeval")


def refuse_warnings(text: str) -> None:
    raise AssertionError(text)


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    """Run in virtual time: data sent over a socket of this process has arrived before the clock jumps."""

    async def bounded() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


@asynccontextmanager
async def served(run: WatchedRun) -> AsyncIterator[TellRow]:
    async with serve_live(run.steering(), refuse_warnings) as tell:
        yield tell


def raw() -> trio.SocketStream:
    """A connection of a client that follows no rule."""
    return trio.SocketStream(trio.socket.from_stdlib_socket(connect_to(RUN)))


async def answers(stream: trio.SocketStream, count: int) -> list[dict[str, Any]]:
    """The next answers on the connection, or those until its end."""
    read, found = b"", list[dict[str, Any]]()
    while len(found) < count and (more := await stream.receive_some()):
        read += more
        *lines, read = read.split(b"\n")
        messages = [json.loads(line) for line in lines]
        found += [one for one in messages if one["type"] == "answer"]
    return found


def test_a_watcher_sees_the_latest_state_and_the_new_rows() -> None:
    """At most four states a second are sent; the last is that of the end, and then the iterators end."""

    async def main() -> None:
        run = watched_run()
        states: list[Any] = []
        rows: list[Any] = []
        first, fourth = trio.Event(), trio.Event()

        async def watch_rows(live: Live) -> None:
            rows.extend([news async for news in live.rows()])

        async def watch() -> None:
            async with open_live(RUN) as live, trio.open_nursery() as nursery:
                nursery.start_soon(watch_rows, live)
                async for state in live.states():
                    states.append(state)
                    first.set()
                    if len(states) == 4:
                        fourth.set()
                with pytest.raises(NotLiveError, match=f"run {RUN}: is over"):
                    await live.ask({"do": "stop"})

        async with trio.open_nursery() as nursery:
            async with served(run) as tell:
                assert live_run_ids() == [RUN]
                tell(0, None)  # before a watcher has connected
                begin = trio.current_time()
                nursery.start_soon(watch)
                await first.wait()
                tell(3, "t")
                tell(4, None)
                await fourth.wait()
                assert len(states) <= 1 + 4 * (trio.current_time() - begin)
                run.done = 9
                tell(5, None)
            assert live_run_ids() == []
        assert states[0]["done"] == 0
        assert states[0].keys() == run.state().json().keys()
        assert [lane["name"] for lane in states[0]["lanes"]] == ["a", "b"]
        assert states[-1]["done"] == 9
        reported = [(row["index"], row["task"]) for news in rows for row in news["rows"]]
        assert reported == [(3, "t"), (4, None), (5, None)]
        assert not any(news["missed"] for news in rows)

    in_trio(main)


def test_a_watcher_controls_the_run_and_gets_an_answer() -> None:
    """It also gets one if the command is refused, or ends the run."""

    async def main() -> None:
        run = watched_run()
        with run.cancelled:
            async with served(run), open_live(RUN) as live, open_live(RUN) as other:
                ask = live.ask
                assert await ask({"do": "pause", "lane": "a"}) == {"ok": True}
                assert run.lanes["a"].statistics().paused
                assert (await other.ask({"do": "resume", "lane": "a"}))["ok"]
                assert not run.lanes["a"].statistics().paused
                assert await ask({"do": "retune", "lane": "a", "maxConcurrency": 7, "rpm": 9}) == {
                    "ok": True
                }
                assert (run.lanes["a"].max_concurrency, run.lanes["a"].statistics().rpm) == (7, 9)
                answer = await ask({"do": "retune", "lane": "b", "maxConcurrency": 0})
                assert not answer["ok"]
                assert answer["error"].startswith("maxConcurrency must be a whole number from 1")
                answer = await ask({"do": "pause", "lane": "\ud800"})  # a lone surrogate
                assert answer["error"].startswith(r"unknown lane '\ud800'")
                assert await ask({"do": "stop"}) == {"ok": True}
                assert run.stops == 1
                with trio.CancelScope(shield=True):
                    assert await ask({"do": "cancel"}) == {"ok": True}
        assert run.cancelled.cancelled_caught
        known = os.getpid() if hasattr(socket, "SO_PEERCRED") else None
        assert run.askers == [known, known]

    in_trio(main)


def test_without_live_no_socket_exists() -> None:
    """With `--no-live` nothing listens, and reports of rows do nothing."""

    async def main() -> None:
        async with serve_live(None, refuse_warnings) as tell:
            tell(1, None)
            assert live_run_ids() == []
            with pytest.raises(NotLiveError, match="run x: not reachable: it is over, or was st"):
                async with open_live("x"):
                    pass

    in_trio(main)


def test_a_run_without_watchers_computes_no_state() -> None:
    """An unwatched run costs nothing."""

    async def main() -> None:
        run = watched_run()
        async with served(run) as tell:
            for index in range(2000):
                tell(index, None)
            await trio.sleep(5)
        assert run.states == 0

    in_trio(main)


def test_an_error_of_the_run_is_raised_unchanged() -> None:
    """The socket is removed."""

    async def main() -> None:
        with pytest.raises(KeyError, match="its own"):
            async with served(watched_run()), open_live(RUN):
                raise KeyError("its own")
        assert live_run_ids() == []

    in_trio(main)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\n", "not JSON"),
        (b"{\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 60_000 + b"\n", "not JSON"),
        (b"[1]\n", "a message is a JSON object"),
        (b'{"do":"stop"}\n', "a command needs an id, a whole number"),
        (b'{"id":true,"do":"stop"}\n', "a command needs an id, a whole number"),
        (b'{"id":1e400,"do":"stop"}\n', "a command needs an id, a whole number"),
        (b'{"id":1,"do":"stop","x":1}\n', "stop does not accept 'x'"),
        (b'{"id":1,"do":"retune","lane":"a","rpm":NaN}\n', "rpm must be a number"),
        (b"9" * 5000 + b"\n", "not JSON"),  # more digits than Python reads
        (b"x" * 70_000, "a line has at most 65536 bytes"),
    ],
)
def test_bad_input_gets_an_answer_and_has_no_effect(sent: bytes, says: str) -> None:
    """The run continues, and so do its other watchers."""

    async def main() -> None:
        run = watched_run()
        async with served(run), open_live(RUN) as live:
            async with raw() as stream:
                await stream.send_all(sent)
                (answer,) = await answers(stream, 1)
                assert not answer["ok"]
                assert answer["error"].startswith(says)
                if sent.endswith(b"\n"):  # the next line is read
                    await stream.send_all(b'{"id":2,"do":"pause","lane":"b"}\n')
                    assert await answers(stream, 1) == [{"type": "answer", "id": 2, "ok": True}]
                else:
                    assert await answers(stream, 1) == []
            assert await live.ask({"do": "pause", "lane": "a"}) == {"ok": True}
        assert run.stops == 0

    in_trio(main)


@settings(max_examples=settings().max_examples // 8)
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"\n", b"{}", b'{"id":1}\n']), max_size=6)
)
def test_the_run_is_served_whatever_is_sent(parts: list[bytes]) -> None:
    """Data may come in pieces and without an end, and the connection may be cut off after it."""

    async def main() -> None:
        run = watched_run()
        async with served(run):
            async with raw() as stream:
                for part in parts:
                    await stream.send_all(part)
            async with open_live(RUN) as live:
                assert await live.ask({"do": "pause", "lane": "a"}) == {"ok": True}

    in_trio(main)


def test_a_client_that_does_not_read_delays_nothing_and_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It delays neither others nor the end of the run, and does not receive the backlog."""
    monkeypatch.setattr(live_server, "_PATIENCE", 0.6)
    monkeypatch.setattr(live_server, "_EVERY", 0.01)
    monkeypatch.setattr(live_server, "_SHARE", 1)

    async def main() -> None:
        # The state is so large that a few of them fill the buffer of the system for a reader.
        run = watched_run(*(LaneSpec(f"{n}-{'x' * 2000}") for n in range(60)))
        async with served(run):
            slow = raw()
            is_dropped = select.poll()
            is_dropped.register(
                slow.socket.fileno(), 0
            )  # the end is reported, with nothing to read
            async with open_live(RUN) as live:
                number = 0
                async for _state in live.states():
                    number += 1
                    if is_dropped.poll(0):
                        break
                assert number > 2
            size = 0
            while more := await slow.receive_some(1_000_000):
                size += len(more)
            assert size < 2_000_000  # the buffer of the system, and no more
            again = raw()
            await trio.sleep(0.1)
            begin = trio.current_time()
        assert trio.current_time() - begin < 1
        await again.aclose()
        await slow.aclose()

    in_trio(main)


def test_a_watcher_that_misses_rows_is_notified() -> None:
    """No backlog accumulates: the last rows are named."""

    async def main() -> None:
        run = watched_run()
        async with served(run) as tell, open_live(RUN) as live:
            async for _state in live.states():
                break
            for index in range(5000):
                tell(index, None)
            async for news in live.rows():
                assert news["missed"]
                assert [row["index"] for row in news["rows"]] == list(range(4000, 5000))
                break

    in_trio(main)


def test_excess_watchers_are_refused() -> None:
    """The run serves 64; a new watcher is served when one of them has left."""

    async def main() -> None:
        async with served(watched_run()), trio.open_nursery() as nursery:
            streams = [raw() for _ in range(64)]
            for stream in streams:
                assert await stream.receive_some()
            with pytest.raises(NotLiveError, match="the live server does not respond"):
                async with open_live(RUN):
                    pass
            await streams.pop().aclose()
            await trio.sleep(0.05)
            async with open_live(RUN) as live:
                assert (await live.ask({"do": "pause", "lane": "a"}))["ok"]
            for stream in streams:
                nursery.start_soon(stream.aclose)

    in_trio(main)


def test_an_error_while_computing_the_state_is_logged_and_ends_only_the_watching(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run itself continues."""

    async def main() -> None:
        def broken() -> Any:
            raise ZeroDivisionError("a fault of ours")

        run = watched_run()
        steering = attrs.evolve(run.steering(), state=broken)
        async with serve_live(steering, refuse_warnings), open_live(RUN) as live:
            assert [state async for state in live.states()] == []
            assert live_run_ids() == [RUN]

    with caplog.at_level(logging.ERROR, "trioeval.web"):
        in_trio(main)
    assert "cannot be served; the run continues" in caplog.text


def test_other_versions_and_foreign_runs_are_refused() -> None:
    """The message names which of the two it is."""

    async def answered_with(first: bytes) -> str:
        # Trio's own `bind` uses a thread, which the virtual clock does not wait for.
        listening = trio.socket.from_stdlib_socket(listen_for(RUN)[0])

        async def serve() -> None:
            connected, _ = await listening.accept()
            with connected:
                await connected.send(first)

        with listening:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                with pytest.raises(NotLiveError) as raised:
                    async with open_live(RUN):
                        pass
        return str(raised.value)

    async def main() -> None:
        hello = {"type": "hello", "version": 1, "run": RUN}
        newer = json.dumps({**hello, "version": 2}).encode() + b"\n"
        assert "with another version of trioeval" in await answered_with(newer)
        other = json.dumps({**hello, "run": "another"}).encode() + b"\n"
        assert "the live server does not respond" in await answered_with(other)
        assert "the live server does not respond" in await answered_with(b"HTTP/1.1 400\r\n\r\n")
        assert "the live server does not respond" in await answered_with(b"")

    in_trio(main)


def test_a_cancelled_run_ends_at_once_and_leaves_no_socket(place: Path) -> None:
    """This holds for any watcher and any state of it."""

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with served(watched_run()), open_live(RUN):
                stream = raw()
                await stream.send_all(b'{"id":1,')
                begin = trio.current_time()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() - begin < 1
        await stream.aclose()

    in_trio(main)
    assert list(place.iterdir()) == []
