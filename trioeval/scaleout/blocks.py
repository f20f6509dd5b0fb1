"""The rows of a task that are sent to workers, in blocks.

A block is consecutive jobs of the task, and one job of the coordinator's kernel: a job for each row would
cost more than a worker's row. Its body waits until every row of it has a result. A row is recorded in the
step in which it arrives, and emitted, in index order, when its block has ended.

Laws: TOTAL, ORDER, ONCE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, RecordedReply
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import Body, RecordRow, RowOf, UnstartedRows
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import (
    Blocked,
    Calls,
    Failed,
    Interrupted,
    Job,
    NotRun,
    Outcome,
    Plan,
    StopReason,
)
from trioeval.scaleout.chains import serial_cuts
from trioeval.scaleout.shards import MOST_ROWS
from trioeval.sequences import LazySequence

if TYPE_CHECKING:
    from trioeval.evaluation.prompt import PromptBuilder
    from trioeval.evaluation.shared_data import SharedPart
    from trioeval.scaleout.chain_queues import Chain, ChainQueues


@attrs.define(eq=False, repr=False)
class SentRow:
    """A row that waits for a worker, or for its result."""

    block: RowBlock
    job: int
    """Its job in the plan of the task."""
    index: int
    group: str | None
    chain: Chain | None = None
    """The chain that it is a row of."""
    is_over: bool = False
    """True if it needs no worker any more."""
    is_sent: bool = False
    """True if a worker may have started it."""
    shard: int | None = None
    """The shard that runs it."""
    losses: int = 0
    """The workers that were lost with it."""
    replies: dict[CallKey, RecordedReply] = attrs.field(factory=dict)
    """The replies that arrived in this execution."""
    jobs: dict[CallKey, str] = attrs.field(factory=dict)
    """The jobs at services that its calls have created in this execution, and that have not ended."""


@attrs.define(eq=False, repr=False)
class RowBlock:
    """Consecutive jobs of a task whose rows are sent."""

    task: SentTask
    jobs: range
    started_at: float = attrs.field(factory=trio.current_time)
    left: dict[int, SentRow] = attrs.field(init=False, factory=dict)
    """The rows without a result, by index."""
    cut: StopReason = attrs.field(init=False, default=StopReason.STOP)
    """The reason why it has ended before rows without a result."""
    refusal: str | None = attrs.field(init=False, default=None)
    """The refusal of the budget, if that is the reason."""
    arrived: dict[int, Row] = attrs.field(init=False, factory=dict)
    """The rows with a result, as they are recorded, by index."""
    ended: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when nothing of it is awaited any more."""
    _awaited: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        task = self.task
        for job in self.jobs:
            index = task.row_of(job)
            if not isinstance(index, int):
                raise TypeError(index)
            self.left[index] = SentRow(self, job, index, task.group_of(job), task.chain_of(index))
        self._awaited = len(self.left)

    def add(self, row: SentRow, found: Row) -> None:
        """Record the result of a row."""
        self.task.remember(found)
        self.arrived[row.index] = self.task.record(found)
        del self.left[row.index]
        self.give_up(row)

    def add_crash(self, row: SentRow) -> None:
        """Record a row with which several workers were lost."""
        message = f"{row.losses} workers were lost or failed while they ran this row"
        now, error = trio.current_time(), ProviderError("worker_crashed", message)
        for found in self.task.body.rows(Failed(row.job, self.started_at, now, 0, 0, error)):
            self.add(row, found)

    def give_up(self, row: SentRow) -> None:
        """Await a row no longer."""
        row.is_over = True
        self._awaited -= 1
        if not self._awaited:
            self.ended.set()


class RowSender(Protocol):
    """Sends the rows of blocks to workers."""

    def send(self, block: RowBlock, /) -> None:
        """Let the rows of a block wait for workers."""
        ...

    def close(self, block: RowBlock, /) -> None:
        """Give up the rows of a block that have no result."""
        ...


class SentTask:
    """The body of a task whose rows run on workers.

    Args:
        sender: Sends the rows.
        task: The id of the task.
        body: The body of the task on this machine, which makes the rows that no worker has run.
        row_of: Returns the index of the row of a job.
        group_of: Returns the group of the row of a job.
        size: The jobs of a block, ≥ 1.
        memory: Contains the data that rows leave for later ones.
        queues: The chains of the task; None if it has none.
        keeps_jobs: Whether calls of its rows create jobs that are recorded.
    """

    def __init__(
        self,
        sender: RowSender,
        task: str | None,
        body: Body,
        *,
        row_of: RowOf,
        group_of: Callable[[int], str | None],
        size: int,
        memory: PromptBuilder | None = None,
        queues: ChainQueues | None = None,
        keeps_jobs: bool = False,
    ) -> None:
        self.id = task
        self.body = body
        self.row_of = row_of
        self.group_of = group_of
        self.record: RecordRow = _unrecorded
        self._sender = sender
        self._size = size
        self._memory = memory if memory is not None and memory.shares_data else None
        self._queues = queues
        self.keeps_jobs = keeps_jobs
        self._cut: BlockJobs | SerialBlocks = BlockJobs(0, size)
        """The blocks of the task."""
        self._blocks: dict[int, RowBlock] = {}
        """The blocks whose rows have not been returned, by their jobs."""

    def start(self, record: RecordRow) -> None:
        """Record rows with a function, from now on."""
        self.record = record

    def plan(self) -> Plan[range]:
        """Return the plan, whose jobs are blocks: on no lane, and without timeouts, which workers observe."""
        whole = self.body.plan()
        if not whole.serial_indices:
            self._cut = BlockJobs(len(whole.jobs), self._size)
            return Plan(self._cut, (None,))
        cuts = serial_cuts(len(whole.jobs), whole.serial_indices, self._size, MOST_ROWS)
        self._cut = SerialBlocks(tuple(jobs for jobs, _ in cuts))
        serial = tuple(block for block, (_, is_serial) in enumerate(cuts) if is_serial)
        return Plan(self._cut, (None,), serial)

    def chain_of(self, index: int) -> Chain | None:
        """Return the chain of a row; None if it has none."""
        return None if self._queues is None else self._queues.of(index)

    def remember(self, row: Row) -> None:
        """Remember the data that a row has left for later ones."""
        if self._memory is not None:
            self._memory.remember(row)

    def shared_with(self, rows: Iterable[SentRow]) -> SharedPart | None:
        """Return the data that earlier rows have left for some rows; None without any."""
        memory, has_chains = self._memory, self._queues is not None
        if memory is None:
            return None
        readers = (row for row in rows if row.chain is not None or not has_chains)
        return memory.part(memory.steps[row.index] for row in readers)

    async def perform(self, job: Job[range], _calls: Calls[Any]) -> None:
        """Wait for the rows of a block."""
        block = self._blocks[job.index] = RowBlock(self, job.payload)
        self._sender.send(block)
        try:
            await block.ended.wait()
        finally:
            self._sender.close(block)

    def rows(self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS) -> Sequence[Row]:
        """Return the rows of a block: those of workers, and others with the reason why they did not run."""
        block = self._blocks.pop(outcome.index, None)
        if block is None:
            jobs = self._cut.jobs(outcome.index)
            return [row for job in jobs for row in self.body.rows(_of_job(job, outcome), waits)]
        found = block.arrived
        for row in block.left.values():
            own = _of_job(row.job, outcome, block, is_sent=row.is_sent)
            found.update((one.index, one) for one in self.body.rows(own, waits))
        return [found[index] for index in sorted(found)]

    def unstarted(self, blocks: range) -> UnstartedRows | None:
        """Return the rows of blocks that never started."""
        cut = self._cut
        if isinstance(cut, SerialBlocks):
            return None
        jobs = range(cut.jobs(blocks.start).start, cut.jobs(blocks[-1]).stop)
        while jobs:
            found = self.body.unstarted(jobs)
            if found is None or found.jobs == len(jobs):
                return None if found is None else attrs.evolve(found, jobs=cut.count(jobs))
            jobs = jobs[: found.jobs // self._size * self._size]
        return None

    def on_emitted(self, row: Row) -> None:
        """Note that a row and all rows before it are emitted; the body has no other state of them here."""
        if self._memory is not None:
            self._memory.on_row_end(row.step)


def _unrecorded(row: Row) -> Row:
    """Return a row that no run records."""
    return row


def _of_job(
    job: int, outcome: Outcome[Any], block: RowBlock | None = None, *, is_sent: bool = False
) -> Outcome[Any]:
    """Return the outcome of a job without a result, from that of its block.

    Args:
        job: The job.
        outcome: The outcome of its block.
        block: Its block; None for one that never started.
        is_sent: Whether a worker may have started it.
    """
    cut, refusal = (StopReason.STOP, None) if block is None else (block.cut, block.refusal)
    match outcome:
        case NotRun() | Blocked():
            return attrs.evolve(outcome, index=job)
        case Interrupted():
            cut, refusal = outcome.cut, None
        case _:
            pass
    if not is_sent:
        return NotRun(job, cut, refusal)
    return Interrupted(job, outcome.started_at, outcome.finished_at, outcome.waited, 0, cut)


@attrs.frozen
class BlockJobs(LazySequence[Job[range]]):
    """The blocks of a task as jobs, whose payloads are the jobs of the task.

    Example:
        >>> [job.payload for job in BlockJobs(5, 2)]
        [range(0, 2), range(2, 4), range(4, 5)]
    """

    number: int
    """The number of jobs of the task."""
    size: int
    """The jobs of each block but the last."""

    def __len__(self) -> int:
        return self.count(range(self.number))

    def entry(self, index: int) -> Job[range]:
        """Return a block."""
        return Job(index, None, self.jobs(index))

    def jobs(self, block: int) -> range:
        """Return the jobs of a block."""
        return range(block * self.size, min((block + 1) * self.size, self.number))

    def count(self, jobs: range) -> int:
        """Return the number of blocks of jobs that begin with a block."""
        return -(-len(jobs) // self.size)


@attrs.frozen
class SerialBlocks(LazySequence[Job[range]]):
    """The blocks of a task with serial jobs: all jobs of a block are serial, or none."""

    ranges: tuple[range, ...]

    def __len__(self) -> int:
        return len(self.ranges)

    def entry(self, index: int) -> Job[range]:
        """Return a block."""
        return Job(index, None, self.ranges[index])

    def jobs(self, block: int) -> range:
        """Return the jobs of a block."""
        return self.ranges[block]


def continues_chain(row: SentRow, rows: Sequence[SentRow]) -> bool:
    """Return whether a row that waits is sent with the last one of some rows: both are of one chain."""
    return bool(rows) and row.chain is not None and row.chain is rows[-1].chain


def no_row(_job: int) -> None:
    """Return None: the rows of a block are several."""
