"""The journal in Redis: what a worker adds is there at once, without secrets, until the store has it."""

import pickle
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE
from redis_server import RedisServer, needs_redis, open_server

import trioeval
from trioeval.agent.journal import ProcessIdentity, RunningAttempt
from trioeval.columns.journal import MadeRecord
from trioeval.columns.result import DroppedRow
from trioeval.errors import LimitError, ProviderError, UsageError
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.limits import LimitState, SharedLimit
from trioeval.limits.redis import RedisLimits, RedisLink, open_link
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply
from trioeval.run import Row, collect, prepare
from trioeval.scaleout import run_redis, stream_journal
from trioeval.scaleout.dataset_messages import DatasetMessage, JobCost
from trioeval.scaleout.forwarding import MessageBatch
from trioeval.scaleout.messages import (
    AttemptGone,
    AttemptProcess,
    CreatedJob,
    JournalPosition,
    Message,
    RejectedReply,
    StepFinder,
    WorkerWarning,
    pack,
    unpack,
)
from trioeval.scaleout.private_files import Location
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.run_redis import JournalledEvents, open_run_redis, recover, recover_run
from trioeval.scaleout.stream_journal import (
    JournalEntry,
    JournalKeys,
    JournalReader,
    WorkerJournal,
    is_journalled,
    journal_format,
    read_entry,
    read_safely,
)
from trioeval.usage import Usage

pytestmark = [needs_redis, pytest.mark.network, pytest.mark.slow]

API_KEY = "sk-0123456789abcdef"
PREPARED = prepare(
    parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["say {{word}}"],
            "tests": [
                {"vars": {"word": word}, "assert": [{"type": "contains", "value": "a"}]}
                for word in "abc"
            ],
        }
    )
)
KEYS = JournalKeys("n", "run-1")
NO_SESSIONS: dict[str, str] = {}


@pytest.fixture(scope="module")
def _server() -> Iterator[RedisServer]:
    with open_server() as server:
        yield server


@pytest.fixture
def server(_server: RedisServer) -> RedisServer:
    """An empty server."""
    _server.command("FLUSHALL")
    return _server


def key_of(index: int) -> CallKey:
    return CallKey(None, index, "provider", bytes([index]) * 16, f"row {index}")


def call(index: int, output: str = "x") -> CallRecord:
    reply = Reply(output=output, usage=Usage(total=3), metadata={"a": [1]})
    return CallRecord(key=key_of(index), provider="p", prompt="q", answer=reply, latency_ms=1.5)


def failure(index: int) -> CallRecord:
    error = ProviderError("server", "no", status=500, retry_after=2.0)
    return CallRecord(key=key_of(index), provider="p", prompt="q", answer=error, latency_ms=1.5)


ATTEMPT = RunningAttempt(
    run_id="a-1",
    index=3,
    row="row 3",
    number=0,
    agent="codex",
    process=ProcessIdentity(pid=7, started=1, host="h", mark="m"),
)
MADE = MadeRecord(producer="name", unit=4, digest="d", values={4: {"name": "x"}})
OTHERS: list[Message] = [
    CreatedJob(key_of(1), "video-1"),
    CreatedJob(key_of(2), None),
    AttemptProcess("agents", ATTEMPT),
    AttemptGone("agents", 3, "a-1"),
    DatasetMessage(1, "data", MADE),
    DatasetMessage(1, "data", JobCost(0, {"calls": 1})),
    DatasetMessage(1, "data", DroppedRow(row=4, cause="failed", error="e", kind="server")),
]


def ignored(_data: bytes) -> None:
    """Messages over Dask are of no interest here."""


@asynccontextmanager
async def opened(
    server: RedisServer, session: str = "s", *, warnings: list[str] | None = None
) -> AsyncGenerator[tuple[RedisLink, WorkerJournal, JournalReader]]:
    async with open_link(server.url, PATIENCE) as link, trio.open_nursery() as nursery:
        warn = ([] if warnings is None else warnings).append
        batch = MessageBatch(ignored)
        batch.keys = RunKeys((API_KEY,))
        journal = WorkerJournal(link, KEYS, session, warn, batch.packed)
        reader = JournalReader(link, KEYS, StepFinder.of(PREPARED))
        await reader.begin()
        await journal.open()
        nursery.start_soon(journal.serve)
        yield link, journal, reader
        nursery.cancel_scope.cancel()


async def entries_of(
    reader: JournalReader, count: int, session: str = "s", after: int = 0
) -> list[JournalEntry]:
    """Return the messages of a session once there are so many."""
    while True:
        found = [one async for batch in reader.read(session, after) for one in batch]
        if len(found) >= count:
            return found
        await trio.lowlevel.checkpoint()


def test_messages_are_read_as_they_were_added_and_in_order(server: RedisServer) -> None:
    rows: list[Row] = trio.run(collect, PREPARED)
    messages: list[Message] = [call(0), failure(1), *rows, RejectedReply(key_of(0)), *OTHERS]

    async def main() -> None:
        async with opened(server) as (_link, journal, reader):
            for one in [*messages, WorkerWarning("of no use later")]:
                journal.add(one)
                journal.send()
            found = await entries_of(reader, len(messages))
            assert journal.number == len(messages)
            assert [one.number for one in found] == [*range(1, len(messages) + 1)]
            assert [one.is_masked for one in found] == [False] * len(messages)
            for entry, expected in zip(found, messages, strict=True):
                if isinstance(expected, CallRecord) and isinstance(expected.answer, ProviderError):
                    assert isinstance(entry.message, CallRecord)
                    assert str(entry.message.answer) == str(expected.answer)
                else:
                    assert entry.message == expected
            after = len(messages) - 2
            last = await entries_of(reader, 2, after=after)
            assert [one.number for one in last] == [after + 1, after + 2]

    trio.run(main)


def test_long_journals_are_read_in_parts(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_journal, "_READ", 4)

    async def main() -> None:
        async with opened(server) as (_link, journal, reader):
            for index in range(11):
                journal.add(call(index))
                journal.send()
            await entries_of(reader, 11)
            sizes = [len(batch) async for batch in reader.read("s")]
            assert sizes == [4, 4, 3]

    trio.run(main)


def test_secrets_are_masked_and_masked_replies_are_rejected_when_they_are_recovered(
    server: RedisServer,
) -> None:
    run = ToyRun()

    async def main() -> None:
        async with opened(server) as (link, journal, reader):
            journal.add(call(0, f"the key is {API_KEY}"))
            journal.add(call(1))
            masked, plain = await entries_of(reader, 2)
            assert (masked.number, plain.number) == (1, 2)
            assert (masked.is_masked, plain.is_masked) == (True, False)
            raw = await link.request(b"XRANGE", KEYS.stream("s"), "-", "+", decode=False)
            assert API_KEY[3:].encode() not in repr(raw).encode()
            assert await recover(reader, run, print) == 2

    trio.run(main)
    assert [one.key.index for one in run.calls] == [0, 1]
    assert [key.index for key in run.rejected] == [0]


def test_a_message_that_names_a_function_is_not_read(server: RedisServer) -> None:
    """Other programs may write to the server; a pickle could call anything."""

    async def main() -> None:
        async with opened(server) as (link, _journal, reader):
            stream = KEYS.stream("s")
            evil = pickle.dumps([print])
            await link.request(b"XADD", stream, "1-0", b"d", evil)
            (entry,) = await entries_of(reader, 1)
            assert isinstance(entry.message, WorkerWarning)
            assert "builtins.print" in entry.message.text

    trio.run(main)


GOOD = pack([call(0), call(1)])
unreadable = st.one_of(
    st.binary(max_size=60),
    st.integers(0, len(GOOD) - 1).map(lambda size: GOOD[:size]),
    st.tuples(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=4)).map(
        lambda change: GOOD[: change[0]] + change[1] + GOOD[change[0] + len(change[1]) :]
    ),
    st.sampled_from([pickle.dumps(([], [("c", {"key": (1,)})])), pickle.dumps(([], [("o", 5)]))]),
)


@given(unreadable)
def test_whatever_an_entry_has_it_is_read_or_left_out_with_a_warning(data: bytes) -> None:
    """RESUME: other bytes never end the reading of a stream."""
    for find in (None, StepFinder.of(PREPARED)):
        for entry in read_entry("n:s", (b"7-0", [b"d", data]), find):
            assert is_journalled(entry.message) or (
                isinstance(entry.message, WorkerWarning)
                and entry.message.text.startswith("entry 7-0 of the stream n:s in Redis cannot be")
            )
    assert [one.number for one in read_entry("n:s", (b"7-0", [b"d", GOOD]), None)] == [6, 7]


def test_entries_that_cannot_be_read_are_left_out_and_the_rest_is_recovered(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RESUME: also if one part of the stream has nothing else, or only rows."""
    monkeypatch.setattr(stream_journal, "_READ", 2)
    rows: list[Row] = trio.run(collect, PREPARED)
    run, warnings = ToyRun(), list[str]()

    async def main() -> None:
        async with opened(server) as (link, journal, _reader):
            stream, add = KEYS.stream("s"), journal.add
            await link.request(b"XADD", stream, "1-0", b"d", b"no pickle")
            await link.request(b"XADD", stream, "2-0", b"other", GOOD)
            journal.number = 2
            messages: list[Message] = [*rows, *rows, call(0)]
            for one in messages:
                add(one)
                journal.send()
            while journal._requests:
                await trio.lowlevel.checkpoint()
            await link.request(b"XADD", stream, f"{journal.number + 1}-0", b"d", GOOD[:-5])
            reader = JournalReader(link, KEYS)
            received: dict[str, int] = {}
            assert await recover(reader, run, warnings.append, received) == 1
            assert received == {"s": journal.number + 1}

    trio.run(main)
    assert [one.key.index for one in run.calls] == [0]
    assert [one.partition(" cannot")[0] for one in warnings] == [
        f"entry {number}-0 of the stream {KEYS.stream('s')} in Redis" for number in (1, 2, 10)
    ]


@pytest.mark.parametrize(
    "value",
    [print, pickle.loads, prepare, RedisLink.request, attrs.evolve],
    ids=lambda one: one.__name__,
)
def test_only_data_of_this_package_is_unpickled(value: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="the journal names"):
        read_safely(pickle.dumps(value))


def test_what_is_stored_is_removed_and_the_rest_stays(server: RedisServer) -> None:
    async def main() -> None:
        async with opened(server) as (link, journal, reader):
            for index in range(5):
                journal.add(call(index))
                journal.send()
            await entries_of(reader, 5)
            await reader.trim({"s": 3})
            assert [one.number for one in await entries_of(reader, 2)] == [4, 5]
            assert not await reader.is_empty("s")
            await reader.trim({"s": 5})
            assert await reader.is_empty("s")
            seconds = await link.request(b"TTL", KEYS.stream("s"))
            assert 0 < seconds <= stream_journal.KEPT_SECONDS

    trio.run(main)


def test_nothing_is_added_to_the_journal_of_a_run_that_has_ended(server: RedisServer) -> None:
    async def main() -> None:
        async with opened(server) as (link, journal, reader):
            journal.add(call(0))
            await entries_of(reader, 1)
            await reader.delete()
            journal.add(call(1))
            while journal._requests:
                await trio.lowlevel.checkpoint()
            late = WorkerJournal(link, KEYS, "late", print, MessageBatch(ignored).packed)
            with pytest.raises(UsageError, match="the run has ended"):
                await late.open()
            assert await link.request(b"DBSIZE") == 0

    trio.run(main)


def test_a_lost_server_is_warned_of_once_and_used_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers go on, so that the reader finds what was added later."""
    monkeypatch.setattr(stream_journal, "_RECONNECT", 0.05)
    warnings: list[str] = []

    async def main() -> None:
        with open_server("--appendonly", "yes", "--appendfsync", "always") as server:
            async with opened(server, warnings=warnings) as (_link, journal, reader):
                journal.add(call(0))
                await entries_of(reader, 1)
                server.kill()
                while not warnings:
                    journal.add(call(1))
                    await trio.sleep(0.001)
                journal.add(call(2))
                await trio.to_thread.run_sync(server.start)
                while journal._connection is None:
                    await trio.lowlevel.checkpoint()
                journal.add(call(3))
                *_before, last = await entries_of(reader, 2)
                assert last.number == journal.number
                assert isinstance(last.message, CallRecord)
                assert last.message.key == key_of(3)

    trio.run(main)
    (warning,) = warnings
    assert "the journal in Redis is lost" in warning


# The side of the coordinator.


@attrs.define
class ToyRun:
    """The record of a run, in memory."""

    calls: list[CallRecord] = attrs.field(factory=list)
    rejected: list[CallKey] = attrs.field(factory=list)
    jobs: list[tuple[int, str | None]] = attrs.field(factory=list)
    attempts: list[RunningAttempt | str] = attrs.field(factory=list)
    durables: int = 0

    def recover(self, calls: Sequence[CallRecord], rejected: Sequence[CallKey], /) -> int:
        known = {one.key for one in self.calls}
        new = [one for one in calls if one.key not in known]
        self.calls += new
        self.rejected += rejected
        return len(new)

    def recover_job(self, key: CallKey, name: str | None, /) -> None:
        self.jobs.append((key.index, name))

    def recover_attempt(self, _task: str | None, attempt: RunningAttempt | str, /) -> None:
        self.attempts.append(attempt)

    async def durable(self) -> None:
        self.durables += 1
        await trio.lowlevel.checkpoint()


@attrs.define
class ToyEvents:
    """A coordinator that only records its events."""

    seen: list[object] = attrs.field(factory=list)
    lost: trio.Event = attrs.field(factory=trio.Event)

    def on_worker(self, worker: str) -> None:
        self.seen.append(f"join {worker}")

    def on_loss(self, worker: str) -> None:
        self.seen.append(f"loss {worker}")
        self.lost.set()

    def on_messages(self, messages: Sequence[Message]) -> None:
        self.seen += [one.key.index for one in messages if isinstance(one, CallRecord)]

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        self.seen.append(f"end {number} {error}")


def test_a_loss_is_reported_after_the_messages_that_only_the_journal_has(
    server: RedisServer,
) -> None:
    """RESUME, ONCE: no message is passed on twice, and events after the loss stay after it."""
    events = ToyEvents()

    async def main() -> None:
        async with opened(server) as (_link, journal, reader), trio.open_nursery() as nursery:
            found = JournalledEvents(events, reader, {"w": "s"}.get, ToyRun(), print)
            nursery.start_soon(found.serve)
            for index in range(5):
                journal.add(call(index))
            await entries_of(reader, 5)
            found.on_worker("v")
            found.on_messages([call(0), call(1), JournalPosition("s", 2)])
            found.on_loss("w")
            found.on_worker("w")
            found.on_shard_end(7, None)
            await events.lost.wait()
            await trio.testing.wait_all_tasks_blocked()
            found.on_loss("unknown")
            events.lost = trio.Event()
            await events.lost.wait()
            assert found.received == {"s": 5}
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert events.seen == [
        *("join v", 0, 1, 2, 3, 4, "loss w", "join w", "end 7 None", "loss unknown")
    ]


def test_messages_that_wait_at_the_end_of_a_run_are_passed_on(server: RedisServer) -> None:
    """RESUME: also if the journal of a lost worker is not read to its end."""
    events = ToyEvents()

    async def main() -> None:
        async with opened(server) as (_link, _journal, reader), trio.open_nursery() as nursery:
            found = JournalledEvents(events, reader, {"w": "s"}.get, ToyRun(), print)
            found.on_loss("w")
            found.on_messages([call(3), JournalPosition("t", 1)])
            found.on_shard_end(1, None)
            nursery.start_soon(found.serve)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert events.seen == ["loss w", 3, "end 1 None"]


def test_events_after_the_end_of_a_suite_wait_for_no_journal(server: RedisServer) -> None:
    """ONCE: the coordinator still waits for the reports of workers, and for losses in their place."""
    events = ToyEvents()

    async def main() -> None:
        async with opened(server) as (_link, _journal, reader):
            found = JournalledEvents(events, reader, {"w": "s"}.get, ToyRun(), print)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(found.serve)
                nursery.cancel_scope.cancel()
            found.on_loss("w")
            found.on_messages([call(3), JournalPosition("t", 1)])
            found.on_shard_end(1, None)

    trio.run(main)
    assert events.seen == ["loss w", 3, "end 1 None"]


def test_messages_that_a_journal_lacks_are_taken_from_a_batch_that_waits(
    server: RedisServer,
) -> None:
    """ONCE: a worker whose server was away has numbers without entries; others cannot be read."""
    events = ToyEvents()

    async def main() -> None:
        async with opened(server) as (link, journal, reader), trio.open_nursery() as nursery:
            found = JournalledEvents(events, reader, {"w": "s"}.get, ToyRun(), print)
            journal.add(call(0))
            await entries_of(reader, 1)
            journal.number += 1  # call 1 was dropped
            await link.request(b"XADD", KEYS.stream("s"), "4-0", "d", "of calls 2 and 3")
            journal.number += 2
            journal.add(call(4))
            await entries_of(reader, 3)
            found.on_loss("w")
            nursery.start_soon(found.serve)
            found.on_messages([call(0), call(1), JournalPosition("s", 2)])
            batch: list[Message] = [call(2), call(3), JournalPosition("s", 4)]
            found.on_messages([*batch, call(4), call(5), JournalPosition("s", 6)])
            await events.lost.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert found.received == {"s": 6}
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert events.seen == [0, 4, "loss w", 1, 2, 3, 5]


def test_what_is_durable_is_trimmed_while_the_run_runs(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_redis, "_TRIM_EVERY", 0.01)
    run = ToyRun()

    async def main() -> None:
        async with opened(server) as (_link, journal, reader), trio.open_nursery() as nursery:
            found = JournalledEvents(ToyEvents(), reader, NO_SESSIONS.get, run, print)
            nursery.start_soon(found.serve)
            for index in range(3):
                journal.add(call(index))
                journal.send()
            await entries_of(reader, 3)
            found.on_messages([call(0), JournalPosition("s", 2)])
            while len(await entries_of(reader, 1)) > 1:
                await trio.lowlevel.checkpoint()
            assert run.durables
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_an_unreadable_journal_is_warned_of_and_the_loss_is_reported(server: RedisServer) -> None:
    events, warnings = ToyEvents(), list[str]()

    async def main() -> None:
        async with opened(server) as (link, _journal, reader), trio.open_nursery() as nursery:
            found = JournalledEvents(events, reader, {"w": "s"}.get, ToyRun(), warnings.append)
            nursery.start_soon(found.serve)
            await link.request(b"SET", KEYS.stream("s"), "no stream")
            found.on_loss("w")
            await events.lost.wait()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert events.seen == ["loss w"]
    assert len(warnings) == 1
    assert "the journal of a lost worker cannot be read" in warnings[0]


def with_redis(url: str) -> dict[str, object]:
    limits = {"backend": "redis", "url": url, "namespace": "n", "requestTimeoutMs": 1000}
    return {"providers": ["echo"], "prompts": ["a"], "limits": limits}


def test_a_run_that_continues_records_the_replies_that_only_the_journal_has(
    server: RedisServer,
) -> None:
    """RESUME: replies of several workers, once; the second time there are none."""
    prepared, run, warnings = prepare(parse_suite(with_redis(server.url))), ToyRun(), list[str]()

    async def main() -> None:
        async with (
            opened(server, "s") as (_link, first, reader),
            opened(server, "t") as (_link2, second, _reader2),
        ):
            for index in range(3):
                first.add(call(index))
            first.add(failure(3))
            second.add(call(4))
            second.add(RejectedReply(key_of(1)))
            for one in OTHERS:
                second.add(one)
            await entries_of(reader, 4, "s")
            await entries_of(reader, 2 + len(OTHERS), "t")
        for _ in range(2):
            await recover_run(prepared, "run-1", run, warnings.append)

    trio.run(main)
    assert sorted(one.key.index for one in run.calls) == [0, 1, 2, 4]
    assert run.rejected == [key_of(1)]
    assert run.jobs == [(1, "video-1"), (2, None)]
    assert run.attempts == [ATTEMPT, "a-1"]
    assert warnings == ["4 replies of lost workers recovered from Redis"]


def test_a_journal_of_another_version_is_refused_unless_it_is_empty(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(parse_suite(with_redis(server.url)))

    async def main() -> None:
        async with opened(server) as (link, journal, reader):
            await link.request(b"HSET", KEYS.sessions, "s", "0: trioeval 0.1, Python 3.8")
            await recover_run(prepared, "run-1", ToyRun(), print)
            journal.add(call(0))
            await entries_of(reader, 1)
            text = r"0: trioeval 0\.1, Python 3\.8; this is 2: trioeval"
            with pytest.raises(UsageError, match=text):
                await recover_run(prepared, "run-1", ToyRun(), print)

    trio.run(main)
    monkeypatch.setattr(stream_journal, "FORMAT", 3)
    assert journal_format().startswith("3: ")


def test_without_its_server_a_run_on_workers_is_refused_and_another_one_warned() -> None:
    prepared, warnings = prepare(parse_suite(with_redis("redis://127.0.0.1:9"))), list[str]()

    async def main() -> None:
        await recover_run(prepared, "r", ToyRun(), warnings.append)
        opening = open_run_redis(prepared, "r", StepFinder.of(prepared), has_shared_lanes=True)
        with pytest.raises(UsageError, match=r"--on: .* need Redis: .*127.0.0.1:9"):
            await opening.__aenter__()

    trio.run(main)
    assert len(warnings) == 1
    assert "requested again" in warnings[0]


def test_the_end_of_a_run_records_the_rest_and_deletes_everything_of_it(
    server: RedisServer,
) -> None:
    """ONCE: nothing of the run stays on the server but the state of the namespace."""
    prepared, run = prepare(parse_suite(with_redis(server.url))), ToyRun()

    async def main() -> None:
        find = StepFinder.of(prepared)
        async with open_run_redis(prepared, "run-1", find, has_shared_lanes=True) as redis:
            assert redis is not None
            events = redis.follow(ToyEvents(), NO_SESSIONS.get, run, print)
            async with opened(server) as (_link, journal, reader):
                for index in range(3):
                    journal.add(call(index))
                await entries_of(reader, 3)
                events.on_messages([call(0), JournalPosition("s", 1)])
        async with open_link(server.url, PATIENCE) as link:
            assert await link.request(b"KEYS", "*:run:*") in ([], set())

    trio.run(main)
    assert [one.key.index for one in run.calls] == [1, 2]


def with_lane(url: str) -> dict[str, object]:
    config = {"apiKey": "k", "apiBaseUrl": "http://127.0.0.1:9/v1"}
    lane = {"key": "a", "maxConcurrency": 4}
    provider = {"id": "openai:chat:m", "config": config, "lane": lane}
    return {**with_redis(url), "providers": [provider]}


def test_an_outage_is_warned_of_once_and_then_commands_are_executed(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_redis, "_TRIM_EVERY", 0.01)
    prepared, define = prepare(parse_suite(with_lane(server.url))), RedisLimits.define
    tries, warnings = list[int](), list[str]()

    async def main() -> None:
        find = StepFinder.of(prepared)
        async with (
            open_run_redis(prepared, "r", find, has_shared_lanes=True) as redis,
            trio.open_nursery() as nursery,
        ):
            assert redis is not None
            redis.follow(ToyEvents(), NO_SESSIONS.get, ToyRun(), warnings.append)

            async def failing(limits: RedisLimits, limit: SharedLimit, /) -> LimitState:
                tries.append(limit.capacity)
                if len(tries) < 4:
                    raise LimitError("limiter_unavailable", "no")
                state = await define(limits, limit)
                nursery.cancel_scope.cancel()
                return state

            monkeypatch.setattr(RedisLimits, "define", failing)
            nursery.start_soon(redis.serve)
            redis.retune({"lane": "a", "maxConcurrency": 9})

    trio.run(main)
    assert tries == [9, 9, 9, 9]
    assert len(warnings) == 1


def test_a_run_that_is_refused_deletes_nothing_of_its_execution_elsewhere(
    server: RedisServer,
) -> None:
    """RESUME: workers of that execution may still join, and its limits hold. Alone, it leaves nothing."""
    prepared = prepare(parse_suite(with_lane(server.url)))

    async def main() -> None:
        find = StepFinder.of(prepared)

        async def names() -> list[str]:
            async with open_link(server.url, PATIENCE) as link:
                limits = await RedisLimits(link, "n").states()
                keys = await link.request(b"KEYS", "*:run:*")
                running = await link.request(b"HEXISTS", KEYS.sessions, "run")
            return [*sorted(keys), *(one.limit.key for one in limits), f"running: {running}"]

        async def refuse() -> None:
            opening = open_run_redis(prepared, "run-1", find, has_shared_lanes=True)
            with pytest.raises(UsageError, match="refused"):
                async with opening:
                    raise UsageError("refused")

        before = await names()
        async with open_run_redis(prepared, "run-1", find, has_shared_lanes=True) as redis:
            assert redis is not None
            redis.follow(ToyEvents(), NO_SESSIONS.get, ToyRun(), print)
            during = await names()
            assert during[-1] == "running: 1"
            await refuse()
            assert await names() == during
        assert await names() == before
        await refuse()
        assert await names() == before

    trio.run(main)


def test_packed_messages_name_only_data_of_this_package() -> None:
    """A new class in a message must be readable from the journal as well."""
    rows: list[Row] = trio.run(collect, PREPARED)
    data = pack([call(0), failure(1), RejectedReply(key_of(0)), *OTHERS, *rows])
    _replies, written = read_safely(data)
    assert len(written) == 3 + len(OTHERS) + len(rows)


def test_entries_show_the_paths_of_the_coordinator(server: RedisServer) -> None:
    """As messages over Dask: the files of a worker may be in a private folder, which is gone later."""
    sent: list[bytes] = []

    async def main() -> None:
        async with open_link(server.url, PATIENCE) as link, trio.open_nursery() as nursery:
            batch = MessageBatch(sent.append)
            batch.location = Location("/private-copy")
            journal = WorkerJournal(link, KEYS, "s", print, batch.packed)
            reader = JournalReader(link, KEYS, StepFinder.of(PREPARED))
            await reader.begin()
            await journal.open()
            nursery.start_soon(journal.serve)
            batch.journal = journal
            batch.add(call(0, "/private-copy/evals/p.txt: not found"))
            batch.flush()
            (entry,) = await entries_of(reader, 1)
            over_dask, position = unpack(sent[0], StepFinder.of(PREPARED))
            assert entry.message == over_dask == call(0, "/evals/p.txt: not found")
            assert position == JournalPosition("s", 1)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_program_that_resumes_a_run_first_reads_its_journal(
    server: RedisServer, tmp_path: Path
) -> None:
    """RESUME: replies that only lost workers have received are not paid again."""
    calls: list[CallRecord] = []
    asked: list[str] = []
    warnings: list[str] = []

    class Watch(trioeval.SessionObserver):
        def on_call(self, _run: trioeval.Run, record: CallRecord, /) -> None:
            calls.append(record)

    async def model(request: trioeval.Request) -> str:
        asked.append(request.prompt)
        return request.prompt

    tests = [{"vars": {"word": word}} for word in "abc"]
    own = {"providers": ["mine"], "prompts": ["say {{word}}"], "tests": tests}
    suite = parse_suite({**with_redis(server.url), **own})

    async def main() -> None:
        async with trioeval.open_session(
            store=tmp_path / "r.db",
            providers={"mine": model},
            observers=[Watch()],
            on_warning=warnings.append,
        ) as session:
            await session.collect(suite)
            paid = [*calls]
            assert len(paid) == len(asked) == 3
            async with session.run(suite, id=KEYS.run_id) as run:
                run.cancel()
            async with opened(server) as (_link, journal, reader):
                for record in paid[:2]:
                    journal.add(record)
                await entries_of(reader, 2)
            asked.clear()
            async with session.run(suite, id=KEYS.run_id, resume=True) as run:
                await run.wait()
            assert run.summary is not None
            assert (run.summary.ended, run.summary.not_graded) == ("finished", 3)

    trio.run(main)
    assert asked == [calls[2].prompt]
    assert warnings == ["2 replies of lost workers recovered from Redis"]
