"""Workers as tasks of the test: real sessions with lanes of their own, whose messages are packed and sent."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.agent.open import AgentOptions
from trioeval.agent.protocols import AgentEvent
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.prepared import PreparedTask
from trioeval.loading.load import parse_suite
from trioeval.providers import Provider
from trioeval.question_eval.answer import QuestionEvent
from trioeval.run import PreparedSuite, Row, RunOptions, make_lanes, prepare, run_with_options
from trioeval.scaleout.agents import AgentsFolder
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.lane_reports import LaneReporter
from trioeval.scaleout.messages import AnyShard, FileList, Message, Needs, Shard, StepFinder, unpack
from trioeval.scaleout.private_files import WorkerFiles
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.worker import SessionOptions, WorkerSession, _RunningShard
from trioeval.testing.journals import MemoryJournal


@attrs.define(eq=False)
class _Worker:
    session: WorkerSession
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    running: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    is_lost: bool = False


@attrs.define(eq=False)
class SessionCluster:
    """The workers; a `Cluster`."""

    nursery: trio.Nursery
    prepared: PreparedSuite
    folder: Any = None
    on_message: Callable[["SessionCluster", str, Message], None] = lambda *_: None
    """Called after each message of a worker."""
    coordinator: Coordinator | None = None
    workers: dict[str, _Worker] = attrs.field(factory=dict)
    shards: list[tuple[str, Shard]] = attrs.field(factory=list)

    @property
    def events(self) -> Coordinator:
        assert self.coordinator is not None
        return self.coordinator

    def join(self, name: str) -> None:
        """Start a worker."""
        find = StepFinder.of(self.prepared)

        def send(data: bytes) -> None:
            for message in unpack(data, find):
                if worker.is_lost:
                    return
                self.events.on_messages([message])
                self.on_message(self, name, message)

        worker = self.workers[name] = _Worker(
            WorkerSession(
                lambda _location: self.prepared,
                SessionOptions(run_id="r", folder=self.folder),
                send,
                Needs(packages=()),
                WorkerFiles(FileList()),
            )
        )
        session = worker.session
        session._prepared = self.prepared
        session._lanes = make_lanes(self.prepared)
        session._reporter = LaneReporter(
            worker=name,
            name=name,
            session=session.id,
            lanes=session._lanes,
            send=session._batch.add,
        )
        session._parts |= {part.id: part for part in self.prepared.parts}  # without a thread
        self.nursery.start_soon(self._serve, worker)
        self.events.on_worker(name)

    async def _serve(self, worker: _Worker) -> None:
        with worker.scope:
            await worker.session._batch.send_continuously()

    def lose(self, name: str) -> None:
        """End a worker; nothing that it still sends arrives."""
        worker = self.workers.pop(name)
        worker.is_lost = True
        worker.scope.cancel()
        for scope in worker.running.values():
            scope.cancel()
        self.events.on_loss(name)

    def submit(self, worker: str, shard: AnyShard) -> None:
        """Start a shard."""
        assert isinstance(shard, Shard)  # no dataset is made here
        self.shards.append((worker, shard))
        if (found := self.workers.get(worker)) is not None:
            self.nursery.start_soon(self._perform, found, shard)

    async def _perform(self, worker: _Worker, shard: Shard) -> None:
        with trio.CancelScope() as scope:
            worker.running[shard.number] = scope
            running = _RunningShard(str(shard.number), shard, Future())
            try:
                await worker.session._run_rows(running)
            finally:
                if (usage := running.usage) is not None:
                    worker.session._batch.add(usage)
        del worker.running[shard.number]
        worker.session._batch.flush()
        if not worker.is_lost:
            self.events.on_shard_end(shard.number, None)

    def add_task(self, part: PreparedTask) -> None:
        """Refuse: the tests of these suites are known."""
        raise NotImplementedError(part.id)

    def shut_down(self, number: int, lane: str) -> None:
        """End a shard of a dataset: there are none here."""
        raise NotImplementedError

    def cancel(self, number: int) -> None:
        """Cancel a shard."""
        for worker in self.workers.values():
            if number in worker.running:
                worker.running[number].cancel()

    def stop(self) -> None:
        """Start no more rows."""
        for worker in self.workers.values():
            worker.session._stop.set()


@attrs.define
class SessionRun:
    """The results of a run."""

    rows: list[Row] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    agents: list[AgentEvent] = attrs.field(factory=list)
    questions: list[QuestionEvent] = attrs.field(factory=list)
    shards: list[tuple[str, Shard]] = attrs.field(factory=list)
    ended_at: float = 0.0


def recorded_in(journal: MemoryJournal) -> Any:
    """Return a function that returns the replies to a row that a journal has recorded earlier."""

    def recorded(task: str | None, index: int) -> Sequence[tuple[CallKey, RecordedReply]]:
        keys = dict.fromkeys(
            one.key
            for one in journal.earlier
            if isinstance(one, CallRecord) and (one.key.task, one.key.index) == (task, index)
        )
        found = ((key, journal.recorded_reply(key)) for key in keys)
        return [(key, reply) for key, reply in found if reply is not None]

    return recorded


async def run_on_sessions(
    suite: Mapping[str, Any],
    providers: Mapping[str, Provider],
    *,
    folder: Path | None = None,
    journal: MemoryJournal | None = None,
    workers: Sequence[str] = ("first", "second"),
    on_message: Callable[[SessionCluster, str, Message], None] = lambda *_: None,
    options: AgentOptions | None = None,
    stop: trio.Event | None = None,
) -> SessionRun:
    """Run a suite on workers; see `run_here`."""
    run = SessionRun()
    stop = trio.Event() if stop is None else stop

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        run.rows.append(row)

    found = parse_suite(suite, environ={}, allow_outside=True)
    prepared = prepare(found, providers=providers, environ={})
    async with trio.open_nursery() as nursery:
        cluster = SessionCluster(nursery, prepared, on_message=on_message)
        coordinator = cluster.coordinator = Coordinator(
            cluster,
            prepared,
            stop,
            run.warnings.append,
            records=RunRecords(journal, recorded=None if journal is None else recorded_in(journal)),
        )
        agents = None
        if folder is not None:
            cluster.folder = AgentsFolder(folder, "proof")
            given = options or AgentOptions()
            agents = attrs.evolve(given, folder=folder, observe=run.agents.append)
        for name in workers:
            cluster.join(name)
        async with open_coordinator(coordinator):
            await run_with_options(
                prepared,
                RunOptions(
                    emit=emit,
                    stop=stop,
                    journal=journal,
                    adapt=coordinator.adapt,
                    agents=agents,
                    questions=run.questions.append,
                    run_id="r",
                    warn=run.warnings.append,
                ),
            )
        run.ended_at = trio.current_time()
        run.shards = cluster.shards
        nursery.cancel_scope.cancel()
    return run
