# Separate from `pytest_plugin.host`: running a suite for its items does not depend on its thread.
"""Runs the rows of one file, or waits until another process has run them.

Processes of one session share a folder and a database. The process that holds the lock of a file runs all
requested rows of it; the others read their results. If a process dies, its lock is released: the next one
continues the run, so that no reply is paid for twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import attrs
import trio
from filelock import FileLock, Timeout

from trioeval.agent import is_agent
from trioeval.agent.model import case_of
from trioeval.errors import StoreError, UsageError
from trioeval.evaluation.status import has_ended
from trioeval.kernel import Lanes
from trioeval.pytest_plugin.keys import Key, RowKey, TaskKey
from trioeval.pytest_plugin.loading import CollectedSuite
from trioeval.pytest_plugin.outcome import ItemResults, result_of_row, result_of_task
from trioeval.report.columns import read_dataset, trouble
from trioeval.report.records import RowRecord
from trioeval.report.stored import StoredRunFacts
from trioeval.run import PreparedSuite, PreparedTask, Row, RunOptions, run_with_options
from trioeval.store.cache.cache import Cache
from trioeval.store.reader import read_store
from trioeval.store.run import StoredRun
from trioeval.store.run_start import PROGRAM, run_start
from trioeval.store.store import Store
from trioeval.suite.expand import Expansion
from trioeval.suite.filters import narrowed

# The part of a suite that runs: the requested rows, and the rows that they depend on.


def chosen(prepared: PreparedSuite, keys: Iterable[Key]) -> PreparedSuite:
    """Return the suite with the requested rows.

    A requested task comes whole, and so does each task that it depends on. A case of an agent comes with the
    cases that it depends on, and a row whose output is compared with the other rows of its group.

    Args:
        prepared: The suite.
        keys: The requested rows and tasks.

    Example:
        >>> import trioeval
        >>> from trioeval.pytest_plugin.keys import RowKey
        >>> from trioeval.run import prepare
        >>> tests = [{"vars": {"x": "1"}}, {"vars": {"x": "2"}}]
        >>> suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["p"], "tests": tests})
        >>> [step.vars["x"] for step in chosen(prepare(suite), [RowKey(None, 1, 0)]).steps]
        ['2']
    """
    rows: dict[str | None, set[tuple[int, int]]] = {}
    whole: set[str | None] = set()
    for key in keys:
        if isinstance(key, TaskKey):
            whole.add(key.task)
        else:
            rows.setdefault(key.task, set()).add((key.test_idx, key.prompt_idx))
    if not prepared.tasks:
        return prepared if None in whole else _with_rows(prepared, rows.get(None, set()))
    whole |= _needed(prepared.tasks, whole | rows.keys())
    tasks = [
        part
        if part.id in whole
        else attrs.evolve(part, prepared=_with_rows(part.prepared, rows[part.id]))
        for part in prepared.tasks
        if part.id in whole or part.id in rows
    ]
    return attrs.evolve(prepared, tasks=tuple(tasks))


def _needed(tasks: Sequence[PreparedTask], ids: set[str | None]) -> set[str | None]:
    """Return the tasks that some tasks depend on, directly or indirectly."""
    by_id = {task.id: task for task in tasks}
    found: set[str | None] = set()
    left = [one for task in ids for one in by_id[task].depends_on]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += by_id[one].depends_on
    return found


def _with_rows(prepared: PreparedSuite, cells: set[tuple[int, int]]) -> PreparedSuite:
    if is_agent(prepared.suite.settings):
        cells = _with_cases(prepared.steps, cells)
    return attrs.evolve(prepared, steps=narrowed(prepared.steps, cells))


def _with_cases(steps: Expansion, cells: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return rows of agents with those of the cases that they depend on."""
    by_case = {
        (step.test.extra.name, step.prompt_idx, step.repeat_index): step
        for step in steps
        if step.test.extra is not None
    }
    left = [step for step in steps if (step.test_idx, step.prompt_idx) in cells]
    found = set(cells)
    while left:
        step = left.pop()
        case = case_of(step.test)
        for name in () if case is None else case.depends_on:
            other = by_case.get((name, step.prompt_idx, step.repeat_index))
            if other is not None and (other.test_idx, other.prompt_idx) not in found:
                found.add((other.test_idx, other.prompt_idx))
                left.append(other)
    return found


_LOOK = 0.05  # seconds between two checks of another process
_SAFE_WITHIN = 60.0  # seconds at the end in which everything is written to disk


@attrs.frozen(eq=False)
class Serving:
    """The resources that all files of a process share."""

    folder: Path
    """The folder of the locks of the session."""
    store: Store
    cache: Cache | None
    lanes: Lanes
    stop: trio.Event
    """Set when no new row may start."""
    warn: Callable[[str], None]


@attrs.define(eq=False, repr=False)
class FileRun:
    """The run of one file."""

    loaded: CollectedSuite
    run: str
    """The id, the same in every process of the session."""
    wanted: frozenset[Key]
    """The requested items."""
    answers: ItemResults
    serving: Serving
    _indices: Mapping[RowKey, int] | None = attrs.field(init=False, default=None)
    """The index of each requested row in the store; computed on demand."""

    async def serve(self) -> None:
        """Report the results of all items. A checkpoint.

        Raises:
            TrioevalError: The run cannot be started or stored.
        """
        lock = FileLock(
            self.serving.folder / f"{self.run}.lock",
            timeout=0,
            thread_local=False,
            fallback_to_soft=False,
        )
        while True:
            with suppress(Timeout):
                lock.acquire()
                break
            if self.serving.stop.is_set():
                return
            self._report_requested()
            await trio.sleep(_LOOK)
        try:
            facts = _facts(self.serving.store.path, self.run)
            # A run that was interrupted, or died, continues here.
            is_done = facts is not None and facts.state == "finished"
            if not is_done:
                await self._run_on(facts)
            self._report_rest(with_rows=is_done)
        finally:
            lock.release()

    async def _run_on(self, facts: StoredRunFacts | None) -> None:
        serving = self.serving
        whole = await trio.to_thread.run_sync(self.loaded.prepared)
        prepared = chosen(whole, self.wanted)
        created = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        start = run_start(prepared, run=self.run, utc_created=created, flags={PROGRAM: "pytest"})
        if facts is None:
            run = serving.store.begin(start)
            await run.durable()
            if serving.store.error is not None:
                raise serving.store.error
        else:
            run = await serving.store.resume(self.run, start)
            self._report(
                record
                for task in start.tasks
                for record in map(RowRecord.of, run.records(task))
                if record.is_ended
            )
        began = trio.current_time()
        is_over = False
        try:
            is_over = await self._run_suite(prepared, run)
        finally:
            # Also after an exception: the rows were paid for.
            with trio.move_on_after(_SAFE_WITHIN, shield=True):
                duration_ms = (trio.current_time() - began) * 1000
                run.finish("finished" if is_over else "interrupted", duration_ms=duration_ms)
                await run.durable()
            run.release()
        if run.error is not None:
            raise run.error

    async def _run_suite(self, prepared: PreparedSuite, run: StoredRun) -> bool:
        """Return whether it ended; rows that never started count only if the run was not stopped."""
        serving = self.serving
        unended = 0

        async def emit(row: Row) -> None:  # noqa: ASYNC124 - reporting does not wait
            nonlocal unended
            unended += not has_ended(row.outcome)
            self._report([run.record(row)])

        # With shared limits, the limit server is called by the run's own lanes.
        shares = not prepared.lane_limits
        known = all(spec.name in serving.lanes for spec in prepared.lane_specs)
        is_cached = prepared.suite.evaluate_options.cache
        await run_with_options(
            prepared,
            RunOptions(
                emit=emit,
                lanes=serving.lanes if shares and known else None,
                stop=serving.stop,
                observe=run.observe,
                run_id=run.id,
                warn=serving.warn,
                journal=run,
                cache=serving.cache if is_cached else None,
            ),
        )
        return not (unended and serving.stop.is_set())

    def _report(self, records: Iterable[RowRecord]) -> None:
        for record in records:
            key = RowKey(record.task, record.test_idx, record.prompt_idx)
            if key in self.wanted:
                self.answers.add({key: result_of_row(record)})

    def _report_requested(self) -> None:
        """Check whether another process has the row that is waited for."""
        key = self.answers.requested
        if not isinstance(key, RowKey):
            return
        if self._indices is None:
            self._indices = _indices(chosen(self.loaded.checked, self.wanted))
        with suppress(StoreError, UsageError), read_store(self.serving.store.path) as reader:
            found = reader.record(reader.run(self.run), key.task, self._indices[key])
            if found is not None and (record := RowRecord.of(found)).is_ended:
                self._report([record])

    def _report_rest(self, *, with_rows: bool) -> None:
        """Report the results that are known when the run is over."""
        with read_store(self.serving.store.path) as reader:
            facts = reader.run(self.run)
            for task in facts.tasks if with_rows else ():
                self._report(map(RowRecord.of, reader.records(facts, task)))
            datasets = reader.datasets(facts)
            for key in self.wanted:
                if isinstance(key, TaskKey):
                    dataset = datasets.get(key.task)
                    result = None if dataset is None else dataset.result
                    failed = result_of_task(
                        key.task or "the suite",
                        (
                            RowRecord.of(found, index=index)
                            for index, found in reader.numbered(facts, key.task)
                        ),
                        None if result is None else trouble(read_dataset(result)),
                        is_dataset=result is not None,
                    )
                    self.answers.add({key: failed})


def _facts(path: Path, run: str) -> StoredRunFacts | None:
    """Return the facts of the run in the store; None if it was never started."""
    with read_store(path) as reader, suppress(UsageError):
        return reader.run(run)
    return None


def _indices(prepared: PreparedSuite) -> Mapping[RowKey, int]:
    return {
        RowKey(part.id, step.test_idx, step.prompt_idx): step.index
        for part in prepared.parts
        for step in part.prepared.steps
    }
