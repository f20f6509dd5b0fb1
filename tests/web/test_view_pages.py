"""Pages of the live view over a real socket, for stores of every kind and for a run."""

import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hostile import assert_inert_html, write_hostile_suite
from live_runs import watched_run
from starlette.types import Message, Receive, Scope, Send
from stored_things import call_at, row_at, start_of
from view_server import NOW, Server, in_trio, make_store, serving

import trioeval
from trioeval.cli.app import run_command_line
from trioeval.providers import Reply
from trioeval.report.head import Head, HeadColumn
from trioeval.serving.conversation import Bounds, HttpConnection
from trioeval.store.reader import StoreReader, read_store
from trioeval.store.run import StoredRun
from trioeval.store.store import open_store
from trioeval.testing import run_virtual
from trioeval.web.app import WhilePresent
from trioeval.web.live import serve_live
from trioeval.web.pages import StoreReading
from trioeval.web.run_page import line_of

pytestmark = pytest.mark.network

WORDS = ", ".join(f"w{number}" for number in range(60))
SUITE = f"""
description: numbers & words
providers: [echo, {{id: echo, label: other}}]
prompts: ["say {{{{word}}}}"]
tests:
  - vars: {{word: [{WORDS}]}}
    assert: [{{type: not-contains, value: w9}}]
"""
ROWS = re.compile(r'<a href="/row/0/(\d+)/')


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("pages"), SUITE)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="te-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


async def only_run(server: Server) -> str:
    """Return the id of the only run of a store."""
    (found,) = set(re.findall(r'href="/run/([^"?]+)"', (await server.ask("/")).body))
    return str(found)


def test_runs_rows_and_one_row_are_shown(database: Path) -> None:
    """Every link from the list to a row and its neighbours works."""

    async def main() -> None:
        async with serving(database) as server:
            listed = await server.ask("/")
            for text in ("suite.yaml: numbers &amp; words", ">finished<", ">120<", "98.3 %"):
                assert text in listed.body
            run = await only_run(server)
            page = (await server.ask(f"/run/{run}")).body
            assert "120 rows" in page
            assert "hx-sse:connect" not in page  # the run has ended
            assert ">ended<" in page  # so has its lane
            assert '<option value="0:1">[other] say {{word}}</option>' in page
            (link,) = set(re.findall(r'"(/row/0/4/[^"]+)"', page))
            row = (await server.ask(link)).body
            for text in (
                ">PASS<",
                "say w2",
                "<h2>Verdict</h2>",
                "not-contains w9",
            ):
                assert text in row
            for other in re.findall(r'<a href="(/row/[^"]+)"', row):
                assert (await server.ask(other)).status == 200
            assert (await server.ask(link.replace("/4/", "/120/"))).status == 404

    in_trio(main)


def test_rows_that_nothing_graded_are_counted_apart(tmp_path: Path) -> None:
    """In the list, in the head of the run, among its rows, and on the page of the row."""
    graded = "{vars: {word: a}, assert: [{type: contains, value: a}]}"
    suite = (
        f"providers: [echo]\nprompts: ['{{{{word}}}}']\ntests: [{graded}, {{vars: {{word: b}}}}]\n"
    )

    database = make_store(tmp_path, suite)

    async def main() -> None:
        async with serving(database) as server:
            listed = (await server.ask("/")).body
            assert 'aria-label="1 passed, 0 failed, 0 errors, 1 not graded"' in listed
            assert "100.0 % of 1 graded" in listed
            run = await only_run(server)
            page = (await server.ask(f"/run/{run}?status=not_graded")).body
            assert '<dt>Not graded</dt><dd class="not_graded">1</dd>' in page
            assert '<option value="not_graded" selected>not graded</option>' in page
            assert ROWS.findall(page) == ["1"]
            assert '<td class="not_graded">NOT GRADED</td>' in page
            row = (await server.ask(f"/row/0/1/{run}")).body
            assert '<b class="not_graded" id="status">NOT GRADED</b> <span' in row

    in_trio(main)


def test_a_live_run_counts_as_the_store_does(database: Path) -> None:
    """The counts of a connected run replace those of the store when they are ahead."""
    with read_store(database) as reader:
        facts = attrs.evolve(reader.run("latest"), rows=1, passed=1, failed=0, sizes=(4,))
    state: dict[str, Any] = {
        "total": 4,
        "done": 3,
        "passed": 1,
        "failed": 1,
        "errors": 0,
        "notGraded": 1,
        "notRun": 0,
    }
    state |= {"tokens": 0, "cost": 0.0, "elapsedS": 1.0, "etaS": None, "stopping": False}
    line = line_of(facts, NOW, state)
    assert (line.rows, line.passed, line.failed, line.not_graded) == (3, 1, 1, 1)
    assert line.pass_rate == "50.0 % of 2 graded"  # noqa: S105 - a rate
    assert [(name, width) for name, _, width in line.shares] == [
        ("passed", 25.0),
        ("failed", 25.0),
        ("errors", 0.0),
        ("not_graded", 25.0),
    ]


def test_rows_are_filtered_and_paged(database: Path) -> None:
    """Rows are filtered by status, column and text, in both directions; the address holds the filter."""

    async def main() -> None:
        async with serving(database) as server:
            run = await only_run(server)

            async def rows(query: str) -> list[int]:
                page = (await server.ask(f"/rows/{run}?{query}")).body
                whole = (await server.ask(f"/run/{run}?{query}")).body
                found = [int(index) for index in ROWS.findall(page)]
                assert [int(index) for index in ROWS.findall(whole)] == found
                return found

            assert await rows("status=fail") == [18, 19]
            assert await rows("status=error") == []
            assert await rows("in=0:1&status=fail") == [19]
            assert await rows("in=0:1") == [*range(1, 101, 2)]
            assert await rows("text=SAY+W1") == [*range(2, 4), *range(20, 40)]
            assert await rows("text=w9&in=0:0") == [18]
            assert await rows("text=vars") == []  # a word of the record, not of the row
            assert await rows("status=&in=&text=+&after=x&before=-1") == [*range(50)]
            assert await rows("status=odd&in=x:y") == [*range(50)]
            assert await rows("in=9:9") == []
            seen, query = list[int](), ""
            while True:
                page = await server.ask(f"/rows/{run}?{query}")
                seen += [int(index) for index in ROWS.findall(page.body)]
                assert page.headers["hx-replace-url"] == f"/run/{run}" + (
                    f"?{query}" if query else ""
                )
                later = re.search(r'\?([^"]+)" [^>]+>Later rows', page.body)
                if later is None:
                    break
                query = later[1]
            assert seen == [*range(120)]
            earlier = re.search(r'\?([^"]+)" [^>]+>Earlier rows', page.body)
            assert earlier is not None
            assert await rows(earlier[1]) == [*range(50, 100)]

    in_trio(main)


def test_hostile_texts_are_inert_on_every_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No text is markup or hidden, on the list, the run, its rows, and each row."""
    suite, database = write_hostile_suite(tmp_path), tmp_path / "runs.db"
    run_command_line([str(suite), "--no-table", "--quiet", "--no-cache", "--db", str(database)])
    capfd.readouterr()

    async def main() -> None:
        async with serving(database) as server:
            run = await only_run(server)
            links, query = list[str](), ""
            assert_inert_html((await server.ask("/")).body)
            while True:
                page = (await server.ask(f"/run/{run}?{query}")).body
                assert_inert_html(page)
                links += re.findall(r'"(/row/\d+/\d+/[^"]+)"', page)
                later = re.search(r'\?([^"]+)" [^>]+>Later rows', page)
                if later is None:
                    break
                query = later[1]
            assert len(links) > 100
            for link in links[::3]:
                reply = await server.ask(link)
                assert reply.status == 200
                assert_inert_html(reply.body)

    in_trio(main)


def test_a_store_may_be_empty_damaged_or_gone(database: Path, tmp_path: Path) -> None:
    """Each problem is shown; after a repair the next request works."""
    empty, damaged = tmp_path / "empty.db", tmp_path / "damaged.db"

    async def main() -> None:
        async with open_store(empty):
            pass
        async with serving(empty) as server:
            assert "No run yet" in (await server.ask("/")).body
        copy(database, damaged)
        async with serving(damaged) as server:
            run = await only_run(server)
            with sqlite3.connect(damaged) as connection:
                connection.execute("UPDATE record SET body = '{' WHERE key & 2147483647 = 3")
            connection.close()
            page = (await server.ask(f"/run/{run}")).body
            assert page.count("The record of this row is damaged") == 1
            assert "120 rows" in page
            row = await server.ask(f"/row/0/3/{run}")
            assert (row.status, "row 3 is damaged" in row.body) == (500, True)
            whole = damaged.read_bytes()
            damaged.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
            for path in ("/", f"/run/{run}", f"/rows/{run}", f"/row/0/1/{run}"):
                reply = await server.ask(path)
                assert (reply.status, "damaged" in reply.body) == (500, True), path
                assert "Traceback" not in reply.body
                part = await server.ask(path, {"hx-request": "true"})
                assert (part.status, part.headers["hx-retarget"]) == (500, "#message")
                assert "damaged" in part.body
            damaged.unlink()
            assert "No run yet" in (await server.ask("/")).body
            assert "store of runs not found" in (await server.ask(f"/run/{run}")).body
            damaged.write_bytes(whole)
            assert (await server.ask(f"/run/{run}")).status == 200

    in_trio(main)


@attrs.define
class Listener:
    """A browser that receives events of a run."""

    stream: trio.SocketStream
    received: str = ""

    async def until(self, text: str, since: int = 0) -> None:
        while text not in self.received[since:]:
            chunk = await self.stream.receive_some()
            assert chunk, f"the stream ended without {text}: {self.received[-2000:]}"
            self.received += chunk.decode()


@asynccontextmanager
async def listening(server: Server, run: str) -> AsyncIterator[Listener]:
    stream = await server.connect()
    async with stream:
        await stream.send_all(f"GET /events/{run} HTTP/1.1\r\nhost: {server.host}\r\n\r\n".encode())
        yield Listener(stream)


@asynccontextmanager
async def begun(database: Path) -> AsyncIterator[StoredRun]:
    async with open_store(database) as store:
        head = Head(
            eval_id="eval-9",
            utc_created="2026-01-01T00:00:00.000Z",
            columns=[HeadColumn(id="p", raw="{{x}}", label="x", provider="echo")],
            config={},
            runtime_options={},
            versions={},
        )
        run = store.begin(start_of("eval-9", rows={None: 3}, heads=[head.json()]))
        await run.durable()
        yield run


def test_a_run_is_watched_and_controlled_to_its_end(tmp_path: Path) -> None:
    """Two browsers see lanes and rows; buttons work; a third browser that does not read harms none."""

    async def main() -> None:
        path = tmp_path / "runs.db"
        async with begun(path) as run, serving(path) as server:
            watched = watched_run(run_id="eval-9")
            async with (
                listening(server, "eval-9") as one,
                listening(server, "eval-9") as two,
                listening(server, "eval-9"),
            ):
                async with serve_live(watched.steering(), lambda _text: None):
                    await one.until('aria-label="Lane a"')
                    await two.until("event: points")
                    assert "hx-sse:connect" in (await server.ask("/run/eval-9")).body
                    seen = len(one.received)
                    run.row(row_at(0))
                    run.call(call_at(0, Reply(output="<i>")))
                    await run.durable()
                    await one.until("event: rows", seen)
                    assert "1 row<" in (await server.ask("/rows/eval-9")).body
                    row = (await server.ask("/row/0/0/eval-9")).body
                    assert "<h2>Calls</h2>" in row
                    assert_inert_html(row)
                    reply = await server.steer("eval-9", do="pause", lane="a")
                    assert "lane paused" in reply.body
                    assert watched.lanes["a"].statistics().paused
                    await two.until(">paused<")
                    reply = await server.steer(
                        "eval-9", do="retune", lane="a", maxConcurrency="7", rpm="90.5"
                    )
                    assert "lane retuned" in reply.body
                    assert watched.lanes["a"].max_concurrency == 7
                    await one.until("max concurrency 7")
                    for form, says in (
                        (
                            {"do": "retune", "lane": "b", "tpm": "9"},
                            "tpm cannot be changed on a lane without one",
                        ),
                        ({"do": "retune", "lane": "a"}, "set maxConcurrency, rpm or tpm"),
                        ({"do": "retune", "lane": "a", "rpm": "nan"}, "rpm must be a number"),
                        (
                            {"do": "retune", "lane": "a", "maxConcurrency": "1.5"},
                            "must be a whole number",
                        ),
                        ({"do": "pause", "lane": "%3Cb%3E"}, "unknown lane"),
                        ({"do": "pause"}, "lane is missing"),
                        ({"do": "%00halt"}, "do must be one of"),
                        ({}, "do must be one of"),
                        ({"do": "%ff"}, "do must be one of"),
                    ):
                        refused = await server.steer("eval-9", **form)
                        assert 'class="wrong' in refused.body
                        assert says in refused.body
                        assert_inert_html(refused.body)
                    assert "stopping" in (await server.steer("eval-9", do="stop")).body
                    assert watched.stops == 1
                    await two.until(">stopping<")
                run.finish("interrupted", duration_ms=1500.0, derived={})
                await run.durable()
                for browser in (one, two):
                    await browser.until("event: over")
                    assert ">interrupted<" in browser.received
                    assert "2 rows not run; continue with" in browser.received
                    assert "<code>trioeval resume eval-9</code>" in browser.received
                reply = await server.steer("eval-9", do="stop")
                assert "does not accept commands" in reply.body

    in_trio(main)


def test_a_run_of_a_session_is_shown_and_its_page_says_how_the_program_continues_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it goes on, after it was cancelled, and when it is finished; `show` says the same."""
    asked, answered = trio.Event(), trio.Event()
    tests = [{"vars": {"word": word}} for word in "ab"]
    data = {"providers": ["model"], "prompts": ["say {{word}}"], "tests": tests}
    path = tmp_path / "runs.db"

    async def model(request: trioeval.Request) -> str:
        if request.vars["word"] == "b":
            asked.set()
            await answered.wait()
        return f"reply to {request.prompt}"

    async def main() -> None:
        suite = trioeval.parse_suite(data)
        async with (
            trioeval.open_session(store=path, providers={"model": model}) as session,
            serving(path) as server,
        ):
            async with session.run(suite, id="mine") as run:
                await asked.wait()
                await anext(run.rows())
                page = (await server.ask("/run/mine")).body
                assert ">running<" in page
                assert "reply to say a" in page
                assert "continue with" not in page
                run.cancel()
            page = (await server.ask("/run/mine")).body
            assert ">interrupted<" in page
            call = "session.run(suite, id=&#34;mine&#34;, resume=True) in "
            assert f"1 row not run; continue with <code>{call}" in page
            assert "reply to say a" in (await server.ask("/row/0/0/mine")).body
            await trio.to_thread.run_sync(run_command_line, ["show", "mine", "--db", str(path)])
            call = 'session.run(suite, id="mine", resume=True) in '
            assert call in capsys.readouterr().out.replace("\n", " ")
            answered.set()
            async with session.run(suite, id="mine", resume=True):
                pass
            page = (await server.ask("/run/mine")).body
            assert ">finished<" in page
            assert "reply to say b" in page
            assert "continue with" not in page

    in_trio(main)


def test_a_run_is_controlled_from_a_page_that_was_idle(tmp_path: Path) -> None:
    """Commands work although the view has to find the run again first."""

    async def main() -> None:
        path, watched = tmp_path / "runs.db", watched_run(run_id="eval-9")
        async with (
            begun(path),
            serving(path) as server,
            serve_live(watched.steering(), lambda _text: None),
        ):
            assert "lane paused" in (await server.steer("eval-9", do="pause", lane="a")).body
            assert watched.lanes["a"].statistics().paused
            assert "cancelling" in (await server.steer("eval-9", do="cancel")).body
            assert watched.cancelled.cancel_called
            assert "does not accept commands" in (await server.steer("eval-8", do="stop")).body

    in_trio(main)


def test_a_run_that_is_deleted_while_it_is_watched_is_gone(tmp_path: Path) -> None:
    """The page of a deleted run reports this and ends, as does one of a run without a connection."""

    async def main() -> None:
        path = tmp_path / "runs.db"
        async with (
            begun(path) as run,
            serving(path) as server,
            listening(server, "eval-9") as browser,
        ):
            run.row(row_at(0))
            await run.durable()
            await browser.until("is not connected")
            await browser.until("event: rows")
            seen = len(browser.received)
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE result SET status = 'error'")  # it was run again
            await browser.until("event: rows", seen)
            with sqlite3.connect(path) as connection:
                connection.execute("DELETE FROM run")
            connection.close()
            await browser.until("This run was deleted")
            await browser.until("event: over")
            assert (await server.ask("/run/eval-9")).status == 404
            assert "event: over" in (await server.ask("/events/eval-9")).body

    in_trio(main)


def test_a_server_stops_without_waiting_for_clients(tmp_path: Path) -> None:
    """Open event streams, idle clients and partial requests do not delay the end."""

    async def main() -> None:
        path = tmp_path / "runs.db"
        async with begun(path):
            for_ever = Bounds(head=600, body=600, taking=600)
            async with serving(path, bounds=for_ever) as server:
                browsers = [await server.connect() for _ in range(3)]
                for browser in browsers[:2]:
                    await browser.send_all(
                        f"GET /events/eval-9 HTTP/1.1\r\nhost: {server.host}\r\n\r\n".encode()
                    )
                await browsers[2].send_all(b"POST /steer/x HTTP/1.1\r\n")
                await browsers[0].receive_some()
            # The server has ended: `serving` has waited for it, for less time than these may take.
            for browser in browsers:
                await browser.aclose()

    in_trio(main)


def test_a_browser_that_does_not_read_is_disconnected() -> None:
    """Work for a browser never waits for it without a limit."""

    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
            async with client, await listener.accept() as accepted:
                bounds, stop = Bounds(taking=0.05), trio.Event()
                talk = HttpConnection(accepted, _no_app, bounds, stop)
                with pytest.raises(trio.BrokenResourceError, match="the client does not read"):
                    await talk.send(bytes(50_000_000))
                with pytest.raises(trio.ClosedResourceError):
                    await talk.receive_more()

    in_trio(main)


async def _no_app(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError(scope)


def test_a_search_does_not_delay_other_requests(database: Path) -> None:
    """A cancelled search does not delay other requests."""
    gate = threading.Event()

    async def main() -> None:
        store = StoreReading(database)
        async with trio.open_nursery() as nursery:
            for _ in range(9):
                nursery.start_soon(
                    partial(store.read, lambda _reader: gate.wait(20), takes_long=True)
                )
            await trio.testing.wait_all_tasks_blocked()
            assert len(await store.read(StoreReader.runs)) == 1
            nursery.cancel_scope.cancel("typed on")
        gate.set()
        assert len(await store.read(StoreReader.runs, takes_long=True)) == 1

    in_trio(main)


def test_work_for_a_disconnected_browser_is_stopped() -> None:
    """A cancelled read is stopped; a command is completed."""
    done: list[str] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        await trio.sleep(1)
        done.append(scope["method"])
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        await trio.lowlevel.checkpoint()
        return {"type": "http.disconnect"}

    async def send(_message: Message) -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        for method in ("GET", "POST", "HEAD"):
            await WhilePresent(app)({"type": "http", "method": method}, receive, send)

    run_virtual(main)
    assert done == ["POST"]


def test_a_new_client_replaces_the_one_that_was_idle_longest(database: Path) -> None:
    """An idle connection is replaced by a new client."""

    async def main() -> None:
        async with (
            serving(database, bounds=Bounds(connections=2)) as server,
            await server.connect() as one,
            await server.connect() as two,
        ):
            for stream in (one, two):  # they are being served
                await stream.send_all(f"GET / HTTP/1.1\r\nhost: {server.host}\r\n\r\n".encode())
                page = b""
                while b"</html>" not in page:  # one was served before two
                    page += await stream.receive_some()
            assert (await server.ask("/")).status == 200
            while await one.receive_some():
                pass  # the rest, and then its end
            await two.send_all(f"GET / HTTP/1.1\r\nhost: {server.host}\r\n\r\n".encode())
            assert await two.receive_some()

    in_trio(main)
