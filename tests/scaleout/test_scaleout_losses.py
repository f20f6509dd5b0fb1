"""The order of messages and losses of workers with a journal, under any schedule; on a virtual clock."""

from collections.abc import AsyncGenerator, Mapping, Sequence

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trioeval.agent.journal import RunningAttempt
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.providers import Reply
from trioeval.scaleout.messages import JournalPosition, Message
from trioeval.scaleout.run_redis import JournalledEvents
from trioeval.scaleout.stream_journal import JournalEntry, JournalReader

pytestmark = pytest.mark.slow


def call(session: str, number: int) -> CallRecord:
    key = CallKey(session, number, "provider", b"q" * 16)
    return CallRecord(
        key=key, provider="p", prompt="q", answer=Reply(output=number), latency_ms=1.0
    )


class MemoryReader(JournalReader):
    """Journals in memory, each read of which takes a while."""

    def __init__(self, streams: dict[str, dict[int, Message]], delay: float) -> None:
        self.streams = streams
        self.delay = delay

    async def read(self, session: str, after: int = 0) -> AsyncGenerator[Sequence[JournalEntry]]:
        await trio.sleep(self.delay)
        stream = self.streams[session]
        for number in sorted(one for one in stream if one > after):
            await trio.sleep(self.delay)
            yield [JournalEntry(number, stream[number])]

    async def trim(self, stored: Mapping[str, int]) -> None:
        await trio.sleep(self.delay)
        for session, number in stored.items():
            stream = self.streams[session]
            for one in [one for one in stream if one <= number]:
                del stream[one]


@attrs.define
class Recorder:
    """A coordinator and the store of its run: what has arrived of each worker, and in which order."""

    arrived: dict[str, list[int]] = attrs.field(factory=dict)
    lost: list[str] = attrs.field(factory=list)
    alive: set[str] = attrs.field(factory=set)
    losses: trio.Event = attrs.field(factory=trio.Event)

    def on_worker(self, worker: str) -> None:
        self.alive.add(worker)

    def on_loss(self, worker: str) -> None:
        self.alive.discard(worker)
        self.lost.append(worker)
        self.losses.set()

    def on_messages(self, messages: Sequence[Message]) -> None:
        for one in messages:
            assert isinstance(one, CallRecord)
            assert one.key.task is not None
            assert one.key.task not in self.lost, "a message after the loss of its worker"
            self.arrived.setdefault(one.key.task, []).append(one.key.index)

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        """Do nothing."""

    def recover(self, calls: Sequence[CallRecord], rejected: Sequence[CallKey], /) -> int:
        raise NotImplementedError

    def recover_job(self, key: CallKey, name: str | None, /) -> None:
        raise NotImplementedError

    def recover_attempt(self, task: str | None, attempt: RunningAttempt | str, /) -> None:
        raise NotImplementedError

    async def durable(self) -> None:
        await trio.sleep(0.3)


@attrs.frozen
class Worker:
    """The messages that a worker makes, those that arrive over Dask, and the instant of its loss."""

    joins_after: float
    made: int
    batches: tuple[int, ...]
    pauses: tuple[float, ...]
    lost_after: float
    late: int
    """The batches that arrive over Dask only after its loss."""


workers = st.builds(
    Worker,
    st.sampled_from((0.0, 0.5, 3.0)),
    st.integers(0, 12),
    st.lists(st.integers(1, 4), max_size=5).map(tuple),
    st.lists(st.sampled_from((0.0, 0.5, 2.0)), min_size=5, max_size=5).map(tuple),
    st.sampled_from((0.0, 0.5, 3.0)),
    st.integers(0, 2),
)


@given(st.lists(workers, min_size=1, max_size=4), st.sampled_from((0.0, 0.2, 1.5)))
def test_every_message_of_a_lost_worker_arrives_once_in_order_and_before_its_loss(
    several: list[Worker], delay: float
) -> None:
    """RESUME, ONCE: also if others are lost meanwhile, and the journal is trimmed."""
    names = [f"w{place}" for place in range(len(several))]
    made = {
        name: {number: call(name, number) for number in range(1, one.made + 1)}
        for name, one in zip(names, several, strict=True)
    }
    streams: dict[str, dict[int, Message]] = {name: {**found} for name, found in made.items()}
    recorder = Recorder()

    async def live(events: JournalledEvents, name: str, worker: Worker) -> None:
        await trio.sleep(worker.joins_after)
        events.on_worker(name)
        sent = 0
        batches = [*zip(worker.batches, worker.pauses, strict=False)]
        timely = max(0, len(batches) - worker.late)

        async def send(size: int, pause: float) -> None:
            nonlocal sent
            await trio.sleep(pause)
            batch = [*range(sent + 1, min(sent + size, worker.made) + 1)]
            if batch:
                sent = batch[-1]
                messages: list[Message] = [made[name][number] for number in batch]
                events.on_messages([*messages, JournalPosition(name, sent)])

        for size, pause in batches[:timely]:
            await send(size, pause)
        await trio.sleep(worker.lost_after)
        events.on_loss(name)
        for size, pause in batches[timely:]:
            await send(size, pause)

    async def main() -> None:
        reader = MemoryReader(streams, delay)
        sessions = {name: name for name in names}
        events = JournalledEvents(recorder, reader, sessions.get, recorder, print)
        async with trio.open_nursery() as serving:
            serving.start_soon(events.serve)
            async with trio.open_nursery() as nursery:
                for name, worker in zip(names, several, strict=True):
                    nursery.start_soon(live, events, name, worker)
            while len(recorder.lost) < len(names):
                await recorder.losses.wait()
                recorder.losses = trio.Event()
            serving.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sorted(recorder.lost) == names
    assert recorder.alive == set(), "a worker that was lost counts as alive"
    for name, worker in zip(names, several, strict=True):
        assert recorder.arrived.get(name, []) == [*range(1, worker.made + 1)]
