"""A journal in memory that can be cut anywhere, providers that count, and runs with both in virtual time."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import attrs
import trio

from trioeval import Reply, Request, Row, SuiteSummary, parse_suite
from trioeval.columns.result import DatasetResult
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.providers import Usage
from trioeval.providers.base import KeptJob
from trioeval.providers.cache_key import CacheIdentity
from trioeval.providers.http.wire import HttpRequest
from trioeval.report.row import row_json
from trioeval.run import RowsNotRun, RunOptions, run_with_options
from trioeval.store.cache.backends import MemoryBackend
from trioeval.store.cache.cache import Cache
from trioeval.store.cache.file import LIFETIME
from trioeval.testing import run_virtual


@contextmanager
def shared_cache() -> Iterator[Cache]:
    """A cache in memory for several executions, each of which is a run of Trio."""
    with closing(MemoryBackend(LIFETIME, time.time)) as tables:
        yield Cache(tables, time.time)


@attrs.define
class Kept:
    """Rows of one task, as records."""

    records: dict[int, Mapping[str, Any]] = attrs.field(factory=dict)

    def __contains__(self, index: object) -> bool:
        return index in self.records

    def __len__(self) -> int:
        return len(self.records)

    def record(self, index: int) -> Mapping[str, Any]:
        return self.records[index]


@attrs.define
class Notes:
    """One execution of a run, and the records of the executions before it."""

    before: Sequence[CallRecord | Row] = ()
    keeps: Callable[[Row], bool] = lambda row: row.outcome in {"done", "failed", "timed_out"}
    """Indices of the rows that are not run again."""
    writes: list[CallRecord | Row] = attrs.field(factory=list)
    rows_at: dict[int, float] = attrs.field(factory=dict)
    """The instants at which rows were recorded."""
    durable_at: int = 0
    """The number of rows that were durable at the last request."""
    anew: Container[int] = ()
    """Rows that need new replies."""
    rejected: set[CallKey] = attrs.field(factory=set)
    lasts: float = 0.0
    """Seconds until a record is durable."""
    urgent: list[bool] = attrs.field(factory=list)
    """True for each urgent wait for a reply, False for the others."""

    @property
    def resumed(self) -> bool:
        return bool(self.before)

    def begin(self, suite: PreparedSuite) -> None:
        """Do nothing: the test knows the suite."""

    async def end(self, *, finished: bool, duration: float) -> None:
        """Do nothing: no caller waits for it."""

    def dataset_ended(self, result: DatasetResult) -> None:
        """Do nothing: datasets are not recorded."""

    def call(self, call: CallRecord) -> None:
        self.writes.append(call)

    def recorded_reply(self, key: CallKey) -> RecordedReply | None:
        for one in reversed(self.before):
            if key in self.rejected or key.index in self.anew:
                return None
            if isinstance(one, CallRecord) and one.key == key and isinstance(one.answer, Reply):
                return RecordedReply(one.answer, one.latency_ms, one.cached)
        return None

    def job(self, key: CallKey) -> KeptJob:
        raise AssertionError(key)

    def row(self, row: Row) -> None:
        self.writes.append(row)
        self.rows_at[row.index] = trio.current_time()

    def first_single_row(self, _task: str | None, rows: range) -> int:
        """Every row is returned alone."""
        return rows.start

    def rows_not_run(self, rows: RowsNotRun) -> None:
        raise AssertionError(rows)

    def superseding_record(self, _row: Row) -> None:
        """Return the record unchanged."""

    def reject(self, key: CallKey) -> None:
        self.rejected.add(key)

    def needs_new_reply(self, _task: str | None, index: int) -> bool:
        return index in self.anew

    async def durable(self, row: Row | None = None, *, urgent: bool = True) -> None:
        if row is None:
            self.urgent.append(urgent)
        written = len(self.writes)
        await trio.sleep(self.lasts)
        self.durable_at = max(self.durable_at, written)

    def reused_rows(self, task: str | None) -> Kept:
        rows = [one for one in self.before if isinstance(one, Row) and one.task == task]
        return Kept({row.index: row_json(row, "eval-1") for row in rows if self.keeps(row)})

    def dataset(self, task: str | None) -> None:
        """Return None: this journal stores no datasets."""

    def agents(self, task: str | None) -> None:
        """Return None: this journal stores no processes of agents."""

    @property
    def calls(self) -> list[CallRecord]:
        return [one for one in self.writes if isinstance(one, CallRecord)]

    @property
    def rows(self) -> list[Row]:
        return [one for one in self.writes if isinstance(one, Row)]

    def next(self, **how: Any) -> "Notes":
        """Return the journal of the next execution, with all records so far."""
        return Notes([*self.before, *self.writes], rejected={*self.rejected}, **how)


@attrs.define
class Model:
    """Replies with the prompt, and counts; may be slow, fail, and be cached."""

    takes: float = 1.0
    slow: Mapping[str, float] = attrs.field(factory=dict)
    """Seconds for other prompts."""
    cacheable: bool = False
    fails: Callable[[Request], Exception | None] = lambda _: None
    says: Callable[[Request], str] = lambda request: request.prompt
    counts: Counter[str] = attrs.field(factory=Counter)
    most: int = 0
    """The most concurrent requests."""
    _in_flight: int = 0

    async def __call__(self, request: Request) -> Reply:
        self.counts[request.prompt] += 1
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        try:
            await trio.sleep(self.slow.get(request.prompt, self.takes))
        finally:
            self._in_flight -= 1
        if (error := self.fails(request)) is not None:
            raise error
        usage = Usage(prompt=3, completion=4, total=7)
        return Reply(output=self.says(request), usage=usage, cost=0.25)

    def cache_identity(self, request: Request) -> CacheIdentity | None:
        if not self.cacheable:
            return None
        sent = HttpRequest(
            method="POST", url="https://model", headers={}, body=request.prompt.encode()
        )
        return CacheIdentity(name="model", service="test", request=sent)

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.counts.total()


@attrs.define
class Ran:
    """The result of an execution."""

    rows: list[Row] = attrs.field(factory=list)
    at: dict[int, float] = attrs.field(factory=dict)
    """The instants at which rows were emitted."""
    summary: SuiteSummary | None = None


def execute(
    document: Mapping[str, Any],
    models: Mapping[str, Any],
    journal: Any = None,
    *,
    cut_at: float = float("inf"),
    around: Callable[[Callable[..., Awaitable[None]]], Awaitable[None]] | None = None,
    **more: Any,
) -> Ran:
    """Run a suite in virtual time; `around` may give further arguments."""
    suite = parse_suite(document, environ={})
    ran = Ran()

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        ran.rows.append(row)
        ran.at[row.index] = trio.current_time()

    async def go(**given: Any) -> None:
        with trio.move_on_at(trio.current_time() + cut_at):
            ran.summary = await run_with_options(
                suite, RunOptions(emit=emit, journal=journal, **more, **given), providers=models
            )

    run_virtual(go if around is None else lambda: around(go))
    return ran


def without_times(row: Row) -> dict[str, Any]:
    """A row without times."""
    found = row_json(row, "eval-1")
    for name in ("latencyMs", "metadata"):
        found.pop(name)
    return found
