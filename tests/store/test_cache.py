"""The cache of replies: stored and found entries, their lifetime, and faults that end no run."""

import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from trioeval.errors import BudgetError, ProviderError, StoreError
from trioeval.evaluation.journal import RecordedReply
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Plan, collect
from trioeval.providers import Guardrails, Reply, ToolCall, Usage
from trioeval.store.cache.backends import FileBackend
from trioeval.store.cache.cache import Cache, open_cache
from trioeval.store.cache.file import CACHE, Owners
from trioeval.store.cache.writer import CacheWriter, ReleaseLease
from trioeval.store.database import open_database
from trioeval.testing import run_virtual

KEY = bytes(32) + b"openai:m"
DAY = 86_400.0


@contextmanager
def nothing() -> Iterator[None]:
    yield


@attrs.define
class Fetcher:
    """A call that counts itself."""

    reply: Reply = attrs.field(
        factory=partial(Reply, output="yes", usage=Usage(total=7), cost=0.25)
    )
    error: Exception | None = None
    takes: float = 0.0
    calls: int = 0

    async def __call__(self) -> RecordedReply:
        self.calls += 1
        await trio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return RecordedReply(self.reply, 125.0, cached=False)


@attrs.define
class Wall:
    now: float = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def run(path: Path | None, use: Callable[[Cache], Awaitable[Any]], **how: Any) -> Any:
    """Open a cache, use it, and close it."""

    async def main() -> Any:
        with trio.fail_after(60):
            async with open_cache(path, **how) as cache:
                return await use(cache)

    return trio.run(main)


def ask(
    path: Path | None, fetch: Fetcher, *, key: bytes = KEY, refresh: bool = False, **how: Any
) -> RecordedReply:
    async def use(cache: Cache) -> RecordedReply:
        return await cache.reply(key, fetch, nothing, refresh=refresh)

    paid: RecordedReply = run(path, use, **how)
    return paid


WHOLE = Reply(
    output={"texts": ["a\ud800\0", 1.5], "n": 2**70},
    usage=Usage(prompt=3, completion=4, total=7, reasoning=2),
    cost=0.25,
    finish_reason="stop",
    text="a",
    tool_calls=(ToolCall("add", {"a": 1}, "c1"), ToolCall("add", '{"a": ')),
    reasoning="1 + 1",
    refusal="no",
    guardrails=Guardrails(flagged=True, flagged_input=True, reason="why"),
    log_probs=(-0.5, float("-inf")),
    first_token=0.25,
    raw={"choices": [{"index": 0}]},
    metadata={"http": {"status": 200, "headers": {"x": "y"}}, "model": "m"},
)


@pytest.mark.parametrize("output", [WHOLE.output, "x" * 3_000_000])
def test_a_cached_reply_is_restored_in_another_process(tmp_path: Path, output: Any) -> None:
    """A cached reply keeps its latency, usage and cost, and a second run makes no call."""
    path, reply = tmp_path / "c.db", attrs.evolve(WHOLE, output=output)
    first = ask(path, Fetcher(reply))
    again = Fetcher()
    second = ask(path, again)
    assert (first.cached, second.cached, again.calls) == (False, True, 0)
    assert second.reply == reply
    assert second.latency_ms == 125.0


def test_has_is_true_for_stored_replies_and_calls_in_progress(tmp_path: Path) -> None:
    """`has` is true for stored replies and for calls in progress."""

    async def use(cache: Cache) -> list[bool]:
        seen = [cache.has(KEY)]
        fetch = Fetcher(takes=0.05)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cache.reply, KEY, fetch, nothing)
            await trio.testing.wait_all_tasks_blocked(0.001)
            seen.append(cache.has(KEY))
        return [*seen, cache.has(KEY), cache.has(b"other")]

    for path in (None, tmp_path / "c.db"):
        assert run(path, use) == [False, True, True, False]


@pytest.mark.parametrize("where", ["memory", "file"])
def test_equal_concurrent_calls_are_one(tmp_path: Path, where: str) -> None:
    """Concurrent equal calls are one, and the shared replies are marked as cached."""

    async def use(cache: Cache) -> Any:
        fetch, got = Fetcher(takes=0.02), list[RecordedReply]()

        async def one() -> None:
            got.append(await cache.reply(KEY, fetch, nothing))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(one)
        await one()
        return fetch.calls, sum(paid.cached for paid in got), cache.statistics()

    calls, cached, warnings = run(None if where == "memory" else tmp_path / "c.db", use)
    assert (calls, cached) == (1, 100)
    assert (warnings.hits, warnings.shared, warnings.calls) == (1, 99, 1)


def test_the_cache_in_memory_uses_no_thread() -> None:
    """The cache in memory uses no thread, so it works on a virtual clock."""

    async def main() -> float:
        async with open_cache(None) as cache, trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(cache.reply, KEY, Fetcher(takes=3600), nothing)
        return trio.current_time()

    assert run_virtual(main) == 3600


@pytest.mark.parametrize(
    ("passed", "ttl", "calls"),
    [
        (13.9 * DAY, None, 0),
        (14 * DAY, None, 1),
        (-5.0, None, 0),
        (-15 * DAY, None, 1),
        (59, 60, 0),
        (61, 60, 1),
        (0, 0, 1),
    ],
)
def test_a_reply_is_used_for_its_lifetime(
    tmp_path: Path, passed: float, ttl: float | None, calls: int
) -> None:
    """A reply is used for 14 days by default, even if the clock was set back a little."""
    wall, again = Wall(), Fetcher()
    ask(tmp_path / "c.db", Fetcher(), wall=wall)
    wall.now += passed
    how: dict[str, Any] = {} if ttl is None else {"ttl_s": ttl}
    ask(tmp_path / "c.db", again, wall=wall, **how)
    assert again.calls == calls


def test_expired_entries_are_removed_at_opening(tmp_path: Path) -> None:
    """Expired entries are removed at opening, but a short lifetime of one run removes none for others."""
    path, wall = tmp_path / "c.db", Wall()
    ask(path, Fetcher(), wall=wall)

    async def no_caller(_cache: Cache) -> None:
        pass

    def count() -> int:
        with sqlite3.connect(path) as file:
            return int(file.execute("SELECT count(*) FROM entry").fetchone()[0])

    wall.now += DAY
    run(path, no_caller, wall=wall, ttl_s=60)
    assert count() == 1
    wall.now += 14 * DAY
    run(path, no_caller, wall=wall)
    assert count() == 0


def test_a_refresh_calls_again_and_stores_the_new_reply(tmp_path: Path) -> None:
    """A refresh makes a new call and replaces the entry."""
    path, other = tmp_path / "c.db", Fetcher(Reply(output="no"))
    ask(path, Fetcher())
    assert ask(path, other, refresh=True).reply.output == "no"
    assert other.calls == 1
    assert ask(path, Fetcher()).reply.output == "no"


def test_a_refresh_makes_each_call_once(tmp_path: Path) -> None:
    """A refresh makes as many calls as an empty cache, concurrent or sequential."""
    path = tmp_path / "c.db"
    ask(path, Fetcher(Reply(output="old")))

    async def use(cache: Cache) -> Any:
        fetch = Fetcher()
        got = [(await cache.reply(KEY, fetch, nothing, refresh=True)) for _ in range(3)]
        return fetch.calls, [(paid.reply.output, paid.cached) for paid in got]

    assert run(path, use) == (1, [("yes", False), ("yes", True), ("yes", True)])


NO_ANSWERS = pytest.mark.parametrize(
    "reply",
    [
        Reply(output=""),
        Reply(output=None),
        Reply(output=object()),
        Reply(refusal="blocked", metadata={"http": {"status": 400}}),
    ],
    ids=["empty", "nothing", "no JSON", "not taken"],
)


@NO_ANSWERS
def test_a_reply_that_is_not_cacheable_is_not_stored(tmp_path: Path, reply: Reply) -> None:
    """A reply that is not cacheable is returned, and the next call is made again."""
    again = Fetcher()
    assert ask(tmp_path / "c.db", Fetcher(reply)).reply is reply
    ask(tmp_path / "c.db", again)
    assert again.calls == 1


@NO_ANSWERS
@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_refresh_without_a_cacheable_reply_removes_the_old_one(
    tmp_path: Path, reply: Reply, where: str
) -> None:
    """A refresh with a reply that is not cacheable removes the old entry."""
    path = None if where == "memory" else tmp_path / "c.db"

    async def use(cache: Cache) -> list[RecordedReply]:
        await cache.reply(KEY, Fetcher(Reply(output="old")), nothing)
        return [await cache.reply(KEY, Fetcher(reply), nothing, refresh=True) for _ in range(2)]

    assert [(paid.reply, paid.cached) for paid in run(path, use)] == [(reply, False)] * 2
    assert ask(path, Fetcher()).reply.output == "yes"


def test_a_dropped_entry_is_removed_at_once(tmp_path: Path) -> None:
    """A dropped entry is gone at once, and a later one is found."""
    path = tmp_path / "c.db"

    async def use(cache: Cache) -> list[bool]:
        seen = [cache.has(KEY)]
        cache.drop(KEY)
        seen.append(cache.has(KEY))
        seen.append((await cache.reply(KEY, Fetcher(), nothing)).cached)
        return [*seen, cache.has(KEY)]

    for here in (None, path):
        ask(here, Fetcher(Reply(output="old")))
        assert run(here, use)[1:] == [False, False, True]
    assert ask(path, Fetcher(Reply(output="no"))).reply.output == "yes"


def test_a_failed_refresh_leaves_the_entry(tmp_path: Path) -> None:
    """A failed refresh leaves the entry."""
    path = tmp_path / "c.db"
    ask(path, Fetcher())
    with pytest.raises(ProviderError):
        ask(path, Fetcher(error=ProviderError("server", "down")), refresh=True)
    assert ask(path, Fetcher(Reply(output="no"))).reply.output == "yes"


def test_a_refusal_of_the_model_is_cached(tmp_path: Path) -> None:
    """A refusal of the model is cached."""
    refusal = Reply(refusal="I cannot", metadata={"http": {"status": 200}})
    ask(tmp_path / "c.db", Fetcher(refusal))
    again = Fetcher()
    assert ask(tmp_path / "c.db", again).reply.is_refusal
    assert again.calls == 0


def test_a_failure_is_not_cached(tmp_path: Path) -> None:
    """A failure is not cached."""
    for error in (
        ProviderError("server", "down"),
        BudgetError("tokens", limit=1, used=1, wanted=1),
    ):
        with pytest.raises(type(error)):
            ask(tmp_path / "c.db", Fetcher(error=error))
    again = Fetcher()
    ask(tmp_path / "c.db", again)
    assert again.calls == 1


def test_each_hit_has_a_separate_reply(tmp_path: Path) -> None:
    """Each hit returns a separate reply object."""
    path = tmp_path / "c.db"
    ask(path, Fetcher(Reply(output={"a": [1]})))

    async def use(cache: Cache) -> Any:
        first = await cache.reply(KEY, Fetcher(), nothing)
        first.reply.output["a"].append(2)
        return (await cache.reply(KEY, Fetcher(), nothing)).reply.output

    assert run(path, use) == {"a": [1]}


def test_entries_in_the_file_are_not_held_in_memory(tmp_path: Path) -> None:
    """Entries in the file are not held in memory."""

    async def use(cache: Cache) -> None:
        assert isinstance(cache._shelf, FileBackend)
        await cache.reply(KEY, Fetcher(), nothing)
        while cache._shelf._pending:  # noqa: ASYNC110 - another thread writes
            await trio.sleep(0.001)
        assert cache._shelf._memory is None
        assert (await cache.reply(KEY, Fetcher(), nothing)).cached

    run(tmp_path / "c.db", use)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache in memory is bounded and drops the oldest replies first."""
    monkeypatch.setattr("trioeval.store.cache.backends.MEMORY", 30_000)

    async def use(cache: Cache) -> list[bool]:
        keys = [number.to_bytes(32, "big") for number in range(5)]
        for key in keys:
            await cache.reply(key, Fetcher(Reply(output="x" * 4000)), nothing)
        return [cache.has(key) for key in keys]

    assert run(None, use) == [False, False, False, True, True]


def test_a_reply_that_memory_cannot_hold_is_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reply too large for memory or database causes no failure."""

    def too_large(*_: Any) -> None:
        raise sqlite3.DataError("string or blob too big")

    async def use(cache: Cache) -> int:
        fetch = Fetcher()
        for _ in range(2):
            assert not (await cache.reply(KEY, fetch, nothing)).cached
        return fetch.calls

    with monkeypatch.context() as patch:
        patch.setattr("trioeval.store.cache.backends.MEMORY", 0)
        assert run(None, use) == 2
    monkeypatch.setattr("trioeval.store.cache.backends.keep_entry", too_large)
    assert run(None, use) == 2


def test_a_cancelled_run_keeps_its_paid_replies(tmp_path: Path) -> None:
    """Replies of a cancelled run are written when the cache is closed."""
    path = tmp_path / "c.db"

    async def use(cache: Cache) -> None:
        with trio.CancelScope() as scope:
            await cache.reply(KEY, Fetcher(), nothing)
            scope.cancel()

    run(path, use)
    again = Fetcher()
    ask(path, again)
    assert again.calls == 0
    assert not Path(f"{path}-wal").exists()


# --- problems of the file ------------------------------------------------------------------------


def check_goes_on(path: Path) -> list[str]:
    """Check that a cache with a bad file works in memory, and reports the problem once."""
    warnings: list[StoreError] = []

    async def use(cache: Cache) -> None:
        fetch = Fetcher()
        for _ in range(3):
            assert (await cache.reply(KEY, fetch, nothing)).reply.output == "yes"
        assert fetch.calls == 1
        assert cache.error is warnings[0]

    run(path, use, on_problem=warnings.append)
    assert len(warnings) == 1
    return [str(error) for error in warnings]


def test_a_file_that_is_not_a_cache_is_unchanged(tmp_path: Path) -> None:
    """A file that is not a cache is reported and left unchanged."""
    text, foreign, newer = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("these are notes, and not a database")
    with sqlite3.connect(foreign) as file:
        file.execute("CREATE TABLE notes (text)")
    open_database(newer, CACHE).close()
    with sqlite3.connect(newer) as file:
        file.execute("PRAGMA user_version = 99")
    for path in (text, foreign, newer):
        before = path.read_bytes()
        [message] = check_goes_on(path)
        assert message.startswith(f"{path}: ")
        assert "CACHE_PATH" in message
        assert path.read_bytes() == before
    assert "folder" in check_goes_on(tmp_path)[0]


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a folder without write permission")
def test_a_read_only_folder_is_a_warning() -> None:
    """A read-only folder causes a warning, and the run continues."""
    check_goes_on(Path("/sys/kernel/c.db"))


def test_a_path_below_a_file_is_a_warning(tmp_path: Path) -> None:
    """A path below a file causes a warning."""
    (tmp_path / "file").write_text("")
    check_goes_on(tmp_path / "file" / "c.db")


def test_a_damaged_entry_is_requested_again(tmp_path: Path) -> None:
    """A damaged entry is reported once and replaced."""
    path, warnings = tmp_path / "c.db", list[StoreError]()
    ask(path, Fetcher())
    with sqlite3.connect(path) as file:
        file.execute("UPDATE entry SET reply = replace(reply, 'yes', 'not')")
    again = Fetcher()
    assert ask(path, again, on_problem=warnings.append).reply.output == "yes"
    assert again.calls == 1
    [error] = warnings
    message = (
        "an entry of the cache of replies is damaged; its call is made again: "
        "its checksum does not match"
    )
    assert str(error) == f"{path}: {message}"
    assert ask(path, again).cached


@pytest.mark.parametrize("wrong", [b"\xff\x00", "{}", "[1", 7, None])
def test_an_entry_with_foreign_contents_is_requested_again(tmp_path: Path, wrong: Any) -> None:
    """An entry with foreign contents is replaced."""
    path = tmp_path / "c.db"
    ask(path, Fetcher())
    with sqlite3.connect(path) as file:
        file.execute("UPDATE entry SET reply = ?, checksum = 0", (b"" if wrong is None else wrong,))
    again = Fetcher()
    assert ask(path, again).reply.output == "yes"
    assert again.calls == 1


def test_a_database_that_is_damaged_during_use_is_a_warning(tmp_path: Path) -> None:
    """A database damaged during use causes a warning, and the run continues in memory."""
    path, warnings = tmp_path / "c.db", list[StoreError]()

    async def fill(cache: Cache) -> None:
        for number in range(200):
            await cache.reply(number.to_bytes(32), Fetcher(Reply(output="x" * 2000)), nothing)

    run(path, fill)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\x77" * (size - 8192))

    async def use(cache: Cache) -> None:
        fetch = Fetcher()
        for number in range(200):
            assert (await cache.reply(number.to_bytes(32), fetch, nothing)).reply.output == "yes"
        assert fetch.calls == 200

    run(path, use, on_problem=warnings.append)
    assert len(warnings) == 1
    assert "is damaged" in str(warnings[0])


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk causes a warning; new entries stay in memory, old ones readable."""
    path, warnings = tmp_path / "c.db", list[StoreError]()

    def small(*args: Any, **how: Any) -> sqlite3.Connection:
        connection = open_database(*args, **how)
        connection.execute("PRAGMA max_page_count = 12")
        return connection

    monkeypatch.setattr("trioeval.store.cache.cache.open_database", small)

    async def use(cache: Cache) -> int:
        fetch = Fetcher(Reply(output=os.urandom(3000).hex()))
        for _ in range(2):
            for number in range(60):
                await cache.reply(number.to_bytes(32), fetch, nothing)
        return fetch.calls

    assert run(path, use, on_problem=warnings.append) == 60
    [error] = warnings
    message = "the cache of replies has no room left on its disk; make room, or name another file"
    assert str(error) == f"{path}: {message} with CACHE_PATH, or disable it with --no-cache"


def test_a_file_that_another_program_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of another program causes a warning after a while, and waiting calls continue."""
    monkeypatch.setattr("trioeval.store.cache.writer.PATIENCE", 0.1)
    path, warnings = tmp_path / "c.db", list[StoreError]()
    open_database(path, CACHE).close()

    async def use(cache: Cache) -> RecordedReply:
        await until_idle(cache, path)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with closing(other):
            return await cache.reply(KEY, Fetcher(), nothing)

    assert run(path, use, on_problem=warnings.append).reply.output == "yes"
    assert "locked by another program" in str(warnings[0])


@pytest.mark.slow
def test_a_file_that_is_locked_at_the_opening_is_awaited(tmp_path: Path) -> None:
    """A short lock at the opening is waited for."""
    path, warnings = tmp_path / "c.db", list[StoreError]()
    open_database(path, CACHE).close()

    async def main() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

            async def let_go() -> None:
                await trio.sleep(0.4)  # longer than one attempt to open it
                other.execute("ROLLBACK")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(let_go)
                async with open_cache(path, on_problem=warnings.append) as cache:
                    assert cache.error is None

    trio.run(main)
    assert warnings == []


@pytest.mark.slow
def test_a_file_that_stays_locked_is_a_warning(tmp_path: Path) -> None:
    """A long lock at the opening causes a warning, and the run continues in memory."""
    path = tmp_path / "c.db"
    open_database(path, CACHE).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        warnings = list[StoreError]()
        assert ask(path, Fetcher(), patience_s=0, on_problem=warnings.append).reply.output == "yes"
    [error] = warnings
    assert "locked by another program" in str(error)


# --- leases -------------------------------------------------------------------------------------


def hold(path: Path, *, expires: float) -> None:
    """Leave a lease behind, as a killed process does."""
    open_database(path, CACHE).close()
    with sqlite3.connect(path) as file:
        file.execute("INSERT INTO lease VALUES (?, 'other', 3, ?)", (KEY, expires))


@pytest.mark.parametrize(("expires", "lease"), [(-1, 600.0), (1e9, 0.2)], ids=["over", "far"])
def test_an_abandoned_lease_delays_no_caller(tmp_path: Path, expires: float, lease: float) -> None:
    """An expired lease is taken at once, or after the lease time if the clock was set back."""
    path, wall = tmp_path / "c.db", Wall()
    hold(path, expires=wall.now + expires)

    async def use(cache: Cache) -> float:
        began = trio.current_time()
        assert not (await cache.reply(KEY, Fetcher(), nothing)).cached
        return trio.current_time() - began

    waited = run(path, use, wall=wall, lease_s=lease)
    assert (waited >= lease) == (expires > 0)
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM lease").fetchone() == (0,)


def test_a_call_may_take_longer_than_its_lease(tmp_path: Path) -> None:
    """Others wait for a call as long as its process lives, beyond the lease time."""
    path, wall, lease, fetch = tmp_path / "c.db", Wall(), 0.15, Fetcher()
    asks, waits = trio.Event(), trio.Event()

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.set()
        yield

    async def slow() -> RecordedReply:
        asks.set()
        with closing(sqlite3.connect(path)) as file:
            for _ in range(5):
                while _expiry(file) < wall.now + lease:  # noqa: ASYNC110 - a file has no events
                    await trio.sleep(0.005)
                wall.now += 0.7 * lease
            await waits.wait()
        return await at_once()

    async def use(cache: Cache) -> None:
        async with (
            open_cache(path, lease_s=100, wall=wall) as other,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(cache.reply, KEY, slow, nothing)  # the other one may be writing
            await asks.wait()
            assert (await other.reply(KEY, fetch, waiting)).cached

    run(path, use, lease_s=lease, wall=wall)
    assert fetch.calls == 0


def _expiry(file: sqlite3.Connection) -> float:
    """Return when the only lease expires."""
    [(expires,)] = file.execute("SELECT utc_expires FROM lease")
    return float(expires)


def number(index: int) -> bytes:
    """Return a key for a number."""
    return index.to_bytes(32, "big") + b"m"


async def at_once() -> RecordedReply:  # noqa: ASYNC124 - as providers are
    """A call that ends in the step in which it is made."""
    return RecordedReply(Reply(output="yes"), 1.0, cached=False)


def forbidden() -> AbstractContextManager[None]:
    raise AssertionError("a call waited")


async def until_idle(cache: Cache, path: Path) -> None:
    """Wait until the thread has removed old entries and released the file."""
    await cache.reply(number(1000), at_once, nothing)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as file:
        held = "SELECT count(*) FROM lease WHERE key = ?"
        while file.execute(held, (number(1000),)).fetchone() != (0,):  # noqa: ASYNC110 - a file has no events
            await trio.sleep(0.001)
        file.execute("BEGIN IMMEDIATE")  # the commit that returned it has ended, too
        file.execute("ROLLBACK")


def test_a_free_lease_is_taken_in_the_step_of_its_request(tmp_path: Path) -> None:
    """A free lease is taken without a checkpoint; a stored reply has one."""
    path = tmp_path / "c.db"

    async def use(cache: Cache) -> None:
        await until_idle(cache, path)
        with trio.testing.assert_no_checkpoints():
            assert not (await cache.reply(KEY, at_once, forbidden)).cached
        with trio.testing.assert_checkpoints():
            assert (await cache.reply(KEY, at_once, forbidden)).cached

    run(path, use)


@pytest.mark.parametrize("width", [1, 3])
def test_a_lane_admits_no_further_job_while_leases_are_claimed(tmp_path: Path, width: int) -> None:
    """No more jobs are admitted than there are slots while leases are claimed."""
    path = tmp_path / "c.db"
    started: list[int] = []
    surplus: list[int] = []
    stop = trio.Event()

    async def use(cache: Cache) -> int:
        async def perform(job: Job[int], calls: Calls[int]) -> RecordedReply:
            started.append(job.index)

            async def send() -> RecordedReply:
                await trio.testing.wait_all_tasks_blocked(0.02)
                surplus.append(len(started) - width)
                stop.set()
                return await at_once()

            return await cache.reply(number(job.index), partial(calls, "m", send), calls.waiting)

        await until_idle(cache, path)
        plan = Plan.of(Job(index, "m", payload=index) for index in range(40))
        lanes = Lanes([LaneSpec("m", max_concurrency=width)])
        outcomes = await collect(plan, perform, lanes=lanes, stop=stop)
        return sum(isinstance(one, Done) for one in outcomes)

    assert run(path, use) == len(started) == width
    assert surplus == [0] * width


def test_a_lease_that_is_returned_late_returns_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returning a lease late does not return a later one of the same key."""
    path = tmp_path / "c.db"
    may_write, has_written = threading.Event(), threading.Event()
    write = CacheWriter._write

    def late(writer: CacheWriter, batch: list[Any]) -> None:
        gives_back = any(isinstance(item, ReleaseLease) and item.key == KEY for item in batch)
        if gives_back:
            assert may_write.wait(20)
        write(writer, batch)
        if gives_back:
            has_written.set()

    monkeypatch.setattr(CacheWriter, "_write", late)

    async def use(cache: Cache) -> None:
        await until_idle(cache, path)
        with pytest.raises(BudgetError), trio.testing.assert_no_checkpoints():
            await cache.reply(KEY, fails, forbidden)
        await cache.reply(KEY, looks, forbidden)

    async def fails() -> RecordedReply:  # noqa: ASYNC124 - as providers are
        raise BudgetError("tokens", limit=1, used=1, wanted=1)

    async def looks() -> RecordedReply:
        may_write.set()
        assert await trio.to_thread.run_sync(has_written.wait, 20)
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT count(*) FROM lease").fetchone() == (1,)
        return await at_once()

    run(path, use)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM lease").fetchone() == (0,)


def test_remains_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Lock files and leases of killed processes are removed, and no others."""
    path, wall = tmp_path / "c.db", Wall()
    dead, foreign = "0" * 32, "1" * 32
    open_database(path, CACHE).close()
    with closing(sqlite3.connect(path)) as file, file:
        for index, owner in enumerate((dead, foreign)):
            row = (number(index), f"{owner}/1", 0, wall.now + 100)
            file.execute("INSERT INTO lease VALUES (?, ?, ?, ?)", row)
    left = Owners.of(path).enter(dead)
    assert left is not None
    left.leave()
    kept = ["c.db-x.lock", f"c.db-x-{dead}.lock", f"c.db-{dead}.lock.txt"]
    for name in kept:
        (tmp_path / name).touch()

    def is_alive() -> dict[str, bool]:
        names = {one.name for one in tmp_path.glob("c.db-*.lock")} - {*kept, f"c.db-{dead}.lock"}
        owners = [name.removeprefix("c.db-").removesuffix(".lock") for name in names]
        return {owner: not Owners.of(path).is_gone(owner) for owner in owners}

    alive: dict[str, bool] = {}

    async def use(_cache: Cache) -> None:  # noqa: ASYNC124 - see `run`
        alive.update(is_alive())

    run(path, use, wall=wall)
    assert list(alive.values()) == [True]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["c.db", *kept])
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT owner FROM lease").fetchall() == [(f"{foreign}/1",)]


def test_a_lock_file_that_is_deleted_is_not_evidence_of_a_death(tmp_path: Path) -> None:
    """A deleted lock file does not count as a death, whenever it is deleted."""
    owners = Owners.of(tmp_path / "c.db")
    locks = {owners.enter(digit * 32) for digit in "0123"}
    order = [one.name.split("-")[1].removesuffix(".lock") for one in tmp_path.iterdir()]
    last = order[-1]
    for lock in locks:
        assert lock is not None
        if last not in lock.path.name:
            lock.leave()
    forgotten = []

    def forget(owner: str) -> None:
        forgotten.append(owner)
        owners.path(last).unlink(missing_ok=True)  # after the listing of the folder

    owners.bury(forget)
    assert sorted(forgotten) == sorted(order[:-1])
    assert not owners.is_gone(last)
    owners.path(last).touch()  # as the listing creates it just before the deletion
    assert not owners.is_gone(last)
    assert owners.take(last, is_silent=False) is None
    owners.path(last).touch()
    owners.bury(forget)
    assert last not in forgotten
    assert list(tmp_path.iterdir()) == []


def test_a_wait_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    """A wait for another process can be cancelled and leaves nothing behind."""
    path, wall = tmp_path / "c.db", Wall()
    hold(path, expires=wall.now + 100)
    waits: list[str] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append("begins")
        try:
            yield
        finally:
            waits.append("ends")

    async def use(cache: Cache) -> None:
        for _ in range(2):
            with trio.move_on_after(0.05) as scope:
                await cache.reply(KEY, Fetcher(), waiting)
            assert scope.cancelled_caught
            assert not cache.has(KEY)

    run(path, use, wall=wall)
    assert waits == ["begins", "ends"] * 2
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT owner FROM lease").fetchall() == [("other",)]


def test_no_call_waits_for_an_unusable_reply(tmp_path: Path) -> None:
    """With a lifetime of 0 no call waits for another process."""
    path, wall, fetch = tmp_path / "c.db", Wall(), Fetcher()
    hold(path, expires=wall.now + 100)
    ask(path, fetch, wall=wall, ttl_s=0, lease_s=100)
    assert fetch.calls == 1
