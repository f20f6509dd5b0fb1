"""The Redis server of a run on workers, as its coordinator uses it: the limits of lanes, and the journal.

`JournalledEvents` stands between the cluster and the coordinator. It notes up to which message of each worker
the coordinator has everything, and removes from the journal what is durable in the store. If a worker is
lost, it first passes on the messages that only the journal has, and then the loss. All other events wait
for that, in their order, so that nothing of a worker that joins and is lost meanwhile is passed on twice or
too early.

Laws: RESUME, ONCE.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import attrs
import trio
from coredis.exceptions import RedisError

from trioeval.agent.journal import RunningAttempt
from trioeval.errors import LimitError, UsageError
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel import LaneSpec
from trioeval.limits.redis import RedisLimits, RedisLink, open_link
from trioeval.providers import Reply
from trioeval.scaleout.cluster import ClusterEvents
from trioeval.scaleout.lane_news import news_key, rates_key
from trioeval.scaleout.lane_sharing import SharedLane, retuned, shared_lane, shared_lanes
from trioeval.scaleout.messages import (
    AttemptGone,
    AttemptProcess,
    CreatedJob,
    JournalPosition,
    Message,
    RejectedReply,
    WorkerWarning,
)
from trioeval.scaleout.plain_rows import FindStep
from trioeval.scaleout.stream_journal import (
    JournalEntry,
    JournalKeys,
    JournalReader,
    is_journalled,
    journal_format,
)
from trioeval.text import counted

_TRIM_EVERY = 1.0  # seconds
_END_WITHIN = 10.0
_LOST = (LimitError, RedisError)
"""The exceptions of a server that does not answer, or not as it should."""


class RecordedRun(Protocol):
    """The record of a run in its store."""

    def recover(self, calls: Sequence[CallRecord], rejected: Sequence[CallKey], /) -> int:
        """Record replies of an earlier execution that are not recorded yet; return their number."""
        ...

    def recover_job(self, key: CallKey, name: str | None, /) -> None:
        """Record the job of a call of an earlier execution; None is its end."""
        ...

    def recover_attempt(self, task: str | None, attempt: RunningAttempt | str, /) -> None:
        """Record a process of an agent of an earlier execution; a run id is the end of all of an attempt."""
        ...

    async def durable(self) -> None:
        """Return when everything is durable, or has failed."""
        ...


@attrs.frozen
class _Loss:
    """A worker that was lost, and its session at that time; None if it is unknown."""

    worker: str
    session: str | None


@attrs.define(eq=False, repr=False)
class JournalledEvents:
    """The events of a cluster whose workers have a journal; a `ClusterEvents` before another.

    Args:
        events: The coordinator.
        reader: The journal.
        session_of: Returns the session of a worker, also of a lost one; None if it is unknown.
        run: The record of the run.
        warn: Called once if the journal cannot be read.
    """

    _events: ClusterEvents
    _reader: JournalReader
    _session_of: Callable[[str], str | None]
    run: RecordedRun
    warn: Callable[[str], None]
    received: dict[str, int] = attrs.field(init=False, factory=dict)
    """The number of the last message of each session that the coordinator has."""
    _read: dict[str, set[int]] = attrs.field(init=False, factory=dict)
    """The numbers of the messages that were read from the journal of each lost session. It may lack some: the
    server was away, or they cannot be read."""
    _stored: dict[str, int] = attrs.field(init=False, factory=dict)
    _waiting: deque[Callable[[], None] | _Loss] = attrs.field(init=False, factory=deque)
    """A loss whose journal is read, and all events after it, in order."""
    _lost: trio.Event = attrs.field(init=False, factory=trio.Event)
    _has_warned: bool = attrs.field(init=False, default=False)
    _is_over: bool = attrs.field(init=False, default=False)
    """True after the end of the suite, when nothing waits any more: the end of the run reads all journals."""

    def on_worker(self, worker: str) -> None:
        """Pass a new worker on."""
        self._pass(partial(self._events.on_worker, worker))

    def on_loss(self, worker: str) -> None:
        """Read the journal of a lost worker, and pass its loss on after that."""
        if self._is_over:
            self._events.on_loss(worker)
            return
        self._waiting.append(_Loss(worker, self._session_of(worker)))
        self._lost.set()

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Pass messages on, and note their numbers."""
        self._pass(partial(self._take, messages))

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        """Pass the end of a shard on."""
        self._pass(partial(self._events.on_shard_end, number, error))

    async def serve(self) -> None:
        """Handle losses, and trim the journal, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_losses)
                while True:
                    await trio.sleep(_TRIM_EVERY)
                    await self.trim()
        finally:
            self._is_over = True
            self._pass_waiting()

    async def trim(self) -> None:
        """Remove from the journal what is durable in the store. A checkpoint."""
        received = {
            session: number
            for session, number in self.received.items()
            if number > self._stored.get(session, 0)
        }
        if not received:
            return
        await self.run.durable()
        with contextlib.suppress(*_LOST):
            await self._reader.trim(received)
            self._stored |= received

    def _pass(self, event: Callable[[], None]) -> None:
        if self._waiting:
            self._waiting.append(event)
        else:
            event()

    def _pass_waiting(self) -> None:
        """Pass on what waits at the end of a run, which places no rows again and reads all journals then."""
        waiting, self._waiting = self._waiting, deque()
        for event in waiting:
            if isinstance(event, _Loss):
                self._events.on_loss(event.worker)
            else:
                event()

    async def _handle_losses(self) -> None:
        while True:
            await self._lost.wait()
            self._lost = trio.Event()
            while self._waiting:
                event = self._waiting[0]
                if isinstance(event, _Loss):
                    if event.session is not None:
                        await self._take_rest(event.session)
                    self._waiting.popleft()
                    self._events.on_loss(event.worker)
                else:
                    self._waiting.popleft()
                    event()

    def _take(self, messages: Sequence[Message]) -> None:
        """Pass messages on, but those that were read from a journal."""
        taken: list[Message] = []
        batch: list[Message] = []
        for one in messages:
            if not isinstance(one, JournalPosition):
                batch.append(one)
                continue
            if read := self._read.get(one.session):
                numbers = itertools.count(one.number - sum(map(is_journalled, batch)) + 1)
                batch = [m for m in batch if not is_journalled(m) or next(numbers) not in read]
            taken += batch
            batch = []
            self.received[one.session] = max(one.number, self.received.get(one.session, 0))
        self._events.on_messages([*taken, *batch])

    async def _take_rest(self, session: str) -> None:
        """Pass on the messages of a lost worker that did not arrive over Dask."""
        read = self._read.setdefault(session, set())
        try:
            async with contextlib.aclosing(
                self._reader.read(session, self.received.get(session, 0))
            ) as batches:
                async for entries in batches:
                    self._events.on_messages(_messages(entries))
                    read |= {one.number for one in entries if is_journalled(one.message)}
                    self.received[session] = entries[-1].number
        except _LOST as error:
            if not self._has_warned:
                self._has_warned = True
                self.warn(f"the journal of a lost worker cannot be read: {error}")


def _messages(entries: Sequence[JournalEntry]) -> list[Message]:
    """Return the messages of entries; a reply from which a secret was removed is not used again."""
    found: list[Message] = []
    for entry in entries:
        found.append(entry.message)
        if entry.is_masked and isinstance(entry.message, CallRecord):
            found.append(RejectedReply(entry.message.key))
    return found


@attrs.define(eq=False, repr=False)
class RunRedis:
    """The Redis server of a run, for its coordinator. Obtained from `open_run_redis`."""

    _link: RedisLink
    _limits: RedisLimits
    _keys: JournalKeys
    reader: JournalReader
    _lanes: dict[str, SharedLane]
    """The shared limits of lanes as they are defined, by lane."""
    _specs: dict[str, LaneSpec]
    """The lanes as they are now."""
    _cap: int | None
    """The most calls in flight on all lanes together."""
    _tuned: set[str] = attrs.field(init=False, factory=set)
    """The lanes that were changed since their limits were defined."""
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _has_warned: bool = attrs.field(init=False, default=False)
    """True if the server has not changed a limit since the last warning."""
    _is_first: bool = attrs.field(init=False, default=False)
    """True if no other execution of the run had opened it on the server, or its end has been noted."""
    events: JournalledEvents | None = attrs.field(init=False, default=None)
    """The events of the cluster; if they are set, the rest is recorded and the journal deleted at the end."""

    def follow(
        self,
        events: ClusterEvents,
        session_of: Callable[[str], str | None],
        run: RecordedRun,
        warn: Callable[[str], None],
    ) -> JournalledEvents:
        """Return the events of the cluster with the journal; see `JournalledEvents`."""
        self.events = JournalledEvents(events, self.reader, session_of, run, warn)
        return self.events

    async def begin(self) -> None:
        """Check the server, and define the limits of the lanes. A checkpoint.

        Raises:
            UsageError: The server is unreachable, or too old; nothing was started.
        """
        try:
            self._is_first = await self.reader.begin()
            limits = (one for lane in self._lanes.values() for one in lane.limits)
            for limit in {one.key: one for one in limits}.values():
                await self._limits.define(limit)
        except _LOST as error:
            msg = f"--on: the shared limits and the journal of the run need Redis: {error}"
            raise UsageError(msg) from error

    def refusal(self, command: Mapping[str, Any]) -> str | None:
        """Return the reason why the shared limits of a lane cannot follow a command; None if they can."""
        lane = self._lanes.get(command["lane"])
        if lane is None or command.get("rpm") is None:
            return None
        probe = self._shared(attrs.evolve(self._specs[lane.lane], rpm=1.0))
        if {*probe.keys} <= {*lane.keys}:
            return None
        # Running calls count in no window of it.
        return (
            f"lane {lane.lane!r}: rpm cannot be changed on workers if the lane began without a rate; "
            "set rpm in the suite"
        )

    def retune(self, command: Mapping[str, Any]) -> None:
        """Let the shared limits of a lane follow a command that all lanes have executed."""
        name = command["lane"]
        if name in self._lanes:
            self._specs[name] = retuned(self._specs[name], command)
            self._tuned.add(name)
            self._changed.set()

    async def serve(self) -> None:
        """Handle losses of workers and commands for lanes, and trim the journal, until cancelled."""
        async with trio.open_nursery() as nursery:
            if self.events is not None:
                nursery.start_soon(self.events.serve)
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                await self._follow_lanes()

    async def _follow_lanes(self) -> None:
        """Define the limits of changed lanes anew; the reported rate stays that of the server."""
        for name in sorted(self._tuned):
            self._tuned.discard(name)  # a command that comes meanwhile adds it again
            made = self._shared(self._specs[name])
            before = {one.key: one for one in self._lanes[name].limits}
            try:
                for limit in made.limits:
                    if limit != before[limit.key]:
                        await self._limits.define(limit)
                        self._has_warned = False
            except _LOST as error:
                self._tuned.add(name)
                self._changed.set()
                if self.events is not None and not self._has_warned:
                    self._has_warned = True
                    self.events.warn(
                        f"the shared limits of lane {name!r} are not changed yet: {error}"
                    )
                await trio.sleep(_TRIM_EVERY)
            else:
                self._lanes[name] = made

    def _shared(self, spec: LaneSpec) -> SharedLane:
        return shared_lane(spec, self._keys.run_id, cap=self._cap)

    async def end(self) -> None:
        """Record what only the journal has, and delete everything of the run. A checkpoint.

        If the run was refused after it was opened here, and another execution had opened it before, all of it
        belongs to that one, which may still run.
        """
        if self.events is None and not self._is_first:
            return
        await self.reader.end()  # a worker that joins only now must not create anything
        if self.events is not None:
            run = self.events.run
            await recover(self.reader, run, self.events.warn, self.events.received)
            await run.durable()
            await self.reader.delete()
        news = news_key(self._keys.namespace, self._keys.run_id)
        await self._link.request(b"DEL", news, rates_key(news))
        for key in {one.key for lane in self._lanes.values() for one in lane.limits}:
            with contextlib.suppress(LimitError):
                await self._limits.remove(key)


@asynccontextmanager
async def open_run_redis(
    prepared: PreparedSuite, run_id: str, find: FindStep, *, has_shared_lanes: bool
) -> AsyncGenerator[RunRedis | None]:
    """Open the Redis server of a run; yield None if its suite has none.

    Args:
        prepared: The suite.
        run_id: The id of the run.
        find: Returns what is not sent with a row.
        has_shared_lanes: Whether the limits of lanes are kept there.

    Raises:
        UsageError: The server is unreachable.
    """
    settings = prepared.suite.limits
    if settings is None or settings.backend != "redis" or settings.url is None:
        yield None
        return
    async with open_link(settings.url, settings.request_timeout_ms / 1000) as link:
        keys = JournalKeys(settings.namespace, run_id)
        lanes = shared_lanes(prepared, run_id) if has_shared_lanes else ()
        limits = RedisLimits(link, settings.namespace)
        redis = RunRedis(
            link,
            limits,
            keys,
            JournalReader(link, keys, find),
            {one.lane: one for one in lanes},
            {one.name: one for one in prepared.lane_specs},
            prepared.suite.evaluate_options.max_total_concurrency,
        )
        await redis.begin()
        try:
            yield redis
        finally:
            with (
                trio.move_on_after(_END_WITHIN, shield=True),
                contextlib.suppress(*_LOST, UsageError),
            ):
                await redis.end()


async def recover(
    reader: JournalReader,
    run: RecordedRun,
    warn: Callable[[str], None],
    received: dict[str, int] | None = None,
) -> int:
    """Record what only the journal of a run has; return the number of replies. A checkpoint.

    Rows and cells of datasets are not recorded: they are made again from their replies.

    Args:
        reader: The journal.
        run: The record of the run.
        warn: Called with entries that cannot be read; the others are recorded.
        received: The number up to which the messages of each session are recorded; updated.

    Raises:
        LimitError: The server is unreachable.
        RedisError: It refuses.
        UsageError: The messages cannot be read, because another version wrote them.
    """
    count, own = 0, journal_format()
    received = {} if received is None else received
    for session, written in (await reader.formats()).items():
        if await reader.is_empty(session):
            continue
        if written != own:
            msg = (
                f"replies to this run are in the journal in Redis in another format ({written}; this is "
                f"{own}): resume it with that version"
            )
            raise UsageError(msg)
        after = received.get(session, 0)
        async with contextlib.aclosing(reader.read(session, after)) as batches:
            async for entries in batches:
                count += _record(_messages(entries), run, warn)
                received[session] = entries[-1].number
    return count


def _record(messages: Sequence[Message], run: RecordedRun, warn: Callable[[str], None]) -> int:
    """Record messages of an earlier execution; return the number of replies that were not recorded yet."""
    calls: list[CallRecord] = []
    rejected: list[CallKey] = []
    for one in messages:
        match one:
            case CallRecord(answer=Reply()):
                calls.append(one)
            case RejectedReply():
                rejected.append(one.key)
            case CreatedJob():
                run.recover_job(one.key, one.name)
            case AttemptProcess():
                run.recover_attempt(one.task, one.attempt)
            case AttemptGone():
                run.recover_attempt(one.task, one.run_id)
            case WorkerWarning():
                warn(one.text)
            case _:
                pass  # made again from the replies
    return run.recover(calls, rejected)


async def recover_run(
    prepared: PreparedSuite,
    run_id: str,
    run: RecordedRun,
    warn: Callable[[str], None],
) -> None:
    """Record the replies that arrived at workers of a run whose coordinator was killed. A checkpoint.

    Args:
        prepared: The suite.
        run_id: The id of the run.
        run: The record of the run, which continues.
        warn: Called if the journal is unreachable, and with the number of replies found.

    Raises:
        UsageError: The messages cannot be read, because another version wrote them.
    """
    settings = prepared.suite.limits
    if settings is None or settings.backend != "redis" or settings.url is None:
        return
    async with open_link(settings.url, settings.request_timeout_ms / 1000) as link:
        keys = JournalKeys(settings.namespace, run_id)
        reader = JournalReader(link, keys)
        try:
            received: dict[str, int] = {}
            count = await recover(reader, run, warn, received)
            await run.durable()
            await reader.trim(received)  # a worker that has not noticed the loss may still add some
        except _LOST as error:
            warn(f"replies that are only in the journal in Redis are requested again: {error}")
            return
    if count:
        warn(f"{counted(count, 'reply', 'replies')} of lost workers recovered from Redis")
