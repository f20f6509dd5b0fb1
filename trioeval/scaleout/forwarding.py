"""The records of a shard on its worker, which are sent to the coordinator instead of being written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply, ReusedRows
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.providers import Reply, Request
from trioeval.providers.base import KeptJob
from trioeval.providers.local.record import record_call
from trioeval.run.journal import RunJournal
from trioeval.scaleout.agents import ForwardedProcesses
from trioeval.scaleout.messages import (
    AnyShard,
    CreatedJob,
    JournalPosition,
    Message,
    RecordingLine,
    RejectedReply,
    pack,
)
from trioeval.scaleout.private_files import Location, with_texts
from trioeval.scaleout.run_keys import NO_KEYS, RunKeys

if TYPE_CHECKING:
    from trioeval.agent.journal import AgentJournal
    from trioeval.columns.journal import DatasetJournal
    from trioeval.columns.result import DatasetResult
    from trioeval.scaleout.stream_journal import WorkerJournal

LEAST_LINGER = 0.01
"""Seconds in which messages are collected, also if replies do not wait for others."""
_ROWS_LINGER = 0.1
"""Seconds in which messages are collected that are all rows. A message costs Dask about as much as four rows
cost a worker; and rows that are lost are made again from the replies, which are sent before them."""
MOST_LINGER = 60.0
_MOST_MESSAGES = 500
"""Messages that are sent together."""


class _NoRows:
    """The kept rows of a shard: none, because the coordinator sends only rows that remain."""

    def __contains__(self, index: object) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def record(self, index: int, /) -> Any:
        """Raise: no row is kept.

        Raises:
            KeyError: Always.
        """
        raise KeyError(index)


@attrs.define(eq=False, repr=False)
class MessageBatch:
    """Messages that wait: rows for others, all else for some milliseconds, or as long as the user says."""

    _send: Callable[[bytes], None]
    _linger: float = 0.0
    journal: WorkerJournal | None = attrs.field(init=False, default=None)
    """Gets each message at once; None without Redis."""
    keys: RunKeys = attrs.field(init=False, default=NO_KEYS)
    """The keys that this worker has, which are left out."""
    location: Location = attrs.field(init=False, factory=Location)
    """The place of the suite's files, whose paths are replaced by those of the coordinator."""
    _waiting: list[Message] = attrs.field(init=False, factory=list)
    _added: trio.Event = attrs.field(init=False, factory=trio.Event)
    _urgent: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set if not only rows wait."""

    def add(self, message: Message) -> None:
        """Add a message, in order; sends all of them if they are many."""
        self._waiting.append(message)
        if self.journal is not None:
            self.journal.add(message)
        if len(self._waiting) >= _MOST_MESSAGES:
            self.flush()
            return
        self._added.set()
        if not isinstance(message, Row):
            self._urgent.set()

    def flush(self) -> None:
        """Send all messages now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if self.journal is not None:
                self.journal.send()
                waiting.append(JournalPosition(self.journal.session, self.journal.number))
            data, has_keys = self.packed(waiting)
            if has_keys:
                # After the position, because the journal has none of them.
                calls = [one for one in waiting if isinstance(one, CallRecord)]
                waiting += [RejectedReply(one.key) for one in calls if self._has_key(one)]
                data, _ = self.packed(waiting)
            self._send(data)

    def packed(self, messages: Sequence[Message]) -> tuple[bytes, bool]:
        """Return messages as bytes, with the paths of the coordinator and without keys.

        Returns:
            The bytes, and whether there were keys.
        """
        data, root = pack(messages), self.location.root
        if root and root.encode() in data:
            data = pack(messages, functools.partial(with_texts, change=self.location.original))
        if not self.keys.may_be_in(data):
            return data, False
        hidden = pack(messages, functools.partial(with_texts, change=self._cleaned))
        return hidden, hidden != data

    def flush_reply(self) -> None:
        """Send a reply now, unless the user lets it wait for others."""
        if self._linger <= LEAST_LINGER:
            self.flush()

    def _cleaned(self, text: str) -> str:
        return self.keys.hide(self.location.original(text))

    def _has_key(self, call: CallRecord) -> bool:
        """Return whether a call has a reply with a key: it is not to be used again, as in a store."""
        answer = call.answer
        return isinstance(answer, Reply) and self.keys.hide_in(answer) is not answer

    async def send_continuously(self) -> None:
        """Send messages soon after they were added, until cancelled."""
        while True:
            await self._added.wait()
            with trio.move_on_after(max(self._linger, _ROWS_LINGER)):
                await self._urgent.wait()
                await trio.sleep(max(self._linger, LEAST_LINGER))
            self._added, self._urgent = trio.Event(), trio.Event()
            self.flush()


@attrs.frozen(eq=False, repr=False)
class ForwardedJob:
    """The record of the job of one call, which the coordinator keeps; a `KeptJob`."""

    _key: CallKey
    _batch: MessageBatch
    _names: dict[CallKey, str]
    """The jobs of the calls of a shard that have not ended."""

    def find(self) -> str | None:
        """Return the name of the job, which may have come with the shard."""
        return self._names.get(self._key)

    def note(self, name: str, /) -> None:
        """Send the name of a new job at once."""
        self._names[self._key] = name
        self._batch.add(CreatedJob(self._key, name))
        self._batch.flush()

    async def keep(self, name: str, /) -> None:
        """Send the name of a new job at once."""
        self.note(name)
        await trio.lowlevel.checkpoint()

    def drop(self) -> None:
        """Send that the job has ended."""
        if self._names.pop(self._key, None) is not None:
            self._batch.add(CreatedJob(self._key, None))


@attrs.define(eq=False, repr=False)
class ForwardingJournal(RunJournal):
    """The journal of a shard, which sends all records to the coordinator."""

    _shard: AnyShard
    _batch: MessageBatch
    _dataset: DatasetJournal | None = None
    """The journal of the dataset whose groups are made."""
    _replies: dict[CallKey, RecordedReply] = attrs.field(init=False)
    _jobs: dict[CallKey, str] = attrs.field(init=False)

    @_jobs.default
    def _find_jobs(self) -> dict[CallKey, str]:
        return dict(self._shard.jobs)

    @_replies.default
    def _find_replies(self) -> dict[CallKey, RecordedReply]:
        return dict(self._shard.replies)

    @property
    def resumed(self) -> bool:
        """True if replies to its rows are recorded, or must not be used."""
        return bool(self._replies or self._shard.anew)

    def begin(self, suite: PreparedSuite, /) -> None:
        """Do nothing: the coordinator has recorded the suite."""

    async def end(self, **_facts: object) -> None:
        """Do nothing: the coordinator records the end."""
        await trio.lowlevel.checkpoint()

    def call(self, call: CallRecord, /) -> None:
        """Send a call."""
        self._batch.add(call)

    def recorded_reply(self, key: CallKey, /) -> RecordedReply | None:
        """Return a reply that came with the shard."""
        return self._replies.get(key)

    def job(self, key: CallKey, /) -> KeptJob:
        """Return the record of the job of a call, which is sent as it changes."""
        return ForwardedJob(key, self._batch, self._jobs)

    def row(self, row: Row, /) -> None:
        """Send a row."""
        self._batch.add(row)

    def first_single_row(self, _task: str | None, rows: range, /) -> int:
        """Return the first row: each is sent."""
        return rows.start

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Do nothing: the run of a shard has no receiver of many rows at once."""

    def superseding_record(self, _row: Row, /) -> None:
        """Return None: the coordinator decides that."""
        return

    def reject(self, key: CallKey, /) -> None:
        """Send that a reply is not to be used again."""
        self._replies.pop(key, None)
        self._batch.add(RejectedReply(key))

    def needs_new_reply(self, _task: str | None, index: int, /) -> bool:
        """Return whether the coordinator asks for new replies to a row."""
        return index in self._shard.anew

    async def durable(self, row: Row | None = None, /, *, urgent: bool = True) -> None:  # noqa: ARG002
        """Send a reply now, before anything depends on it; rows may wait for others."""
        if row is None:
            self._batch.flush_reply()

    def reused_rows(self, _task: str | None, /) -> ReusedRows:
        """Return no rows."""
        return _NoRows()

    def dataset(self, _task: str | None, /) -> DatasetJournal | None:
        """Return the journal of a dataset, which sends its records; None for a shard of rows."""
        return self._dataset

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """Do nothing: the coordinator keeps the account."""

    def agents(self, task: str | None, /) -> AgentJournal:
        """Return the record of the processes of agents, which are sent."""
        left = [one for one in self._shard.processes if task == self._shard.task]
        return ForwardedProcesses(task, left, self._batch.add, self._batch.flush)


@attrs.frozen
class ForwardingRecorder:
    """A recorder of calls that sends their lines to the coordinator."""

    _batch: MessageBatch

    def write(
        self,
        provider: str,
        request: Request,
        answer: Reply | ProviderError,
        latency: float,
        *,
        position: int | None = None,
    ) -> None:
        """Send the line of a call."""
        line = record_call(provider, request, answer, latency, position=position)
        self._batch.add(RecordingLine(line))
