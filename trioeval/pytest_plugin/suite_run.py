# Apart from `pytest_plugin.host`: what a suite gives its items is independent of the thread that runs it.
"""Runs the rows of one file, or waits until another process has.

Processes of one session share a folder and a database. Whoever holds the lock of a file runs all rows of it
that the session wants; the others read how they end. A process that dies frees its lock: the next one goes
on with the run where it stands, so that no reply is paid for twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import attrs
import trio
from filelock import FileLock, Timeout

from trioeval.agent.model import AgentSettings, case_of
from trioeval.errors import StoreError, UsageError
from trioeval.evaluation.reconcile import has_ended
from trioeval.kernel import Lanes
from trioeval.pytest_plugin.keys import Key, RowKey, TaskKey
from trioeval.pytest_plugin.loading import LoadedFile
from trioeval.pytest_plugin.outcome import Answers, told_of_row, told_of_task
from trioeval.report.columns import read_dataset, trouble
from trioeval.report.records import RowRecord
from trioeval.run import PreparedSuite, PreparedTask, Row, run_suite
from trioeval.store import RunFacts, Store, StoredRun, read_store
from trioeval.store.beginning import PROGRAM, run_start
from trioeval.store.cache.cache import Cache
from trioeval.suite.expand import Expansion
from trioeval.suite.filters import narrowed

# What of a suite is run: the rows that somebody asks for, and what those cannot be without.


def chosen(prepared: PreparedSuite, keys: Iterable[Key]) -> PreparedSuite:
    """The suite with the rows that are asked for.

    A task that is asked for comes whole, and so does each that a task with rows or as a whole depends on.
    With a case of agents come those that it depends on, and with a row whose output is compared the others.

    Args:
        prepared: The suite.
        keys: Rows and tasks of it.

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
    """The tasks that some depend on, and those that these depend on, and so on."""
    by_id = {task.id: task for task in tasks}
    found: set[str | None] = set()
    left = [one for task in ids for one in by_id[task].depends_on]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += by_id[one].depends_on
    return found


def _with_rows(prepared: PreparedSuite, wanted: set[tuple[int, int]]) -> PreparedSuite:
    if isinstance(prepared.suite.settings, AgentSettings):
        wanted = _with_cases(prepared.steps, wanted)
    return attrs.evolve(prepared, steps=narrowed(prepared.steps, wanted))


def _with_cases(steps: Expansion, wanted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same rows of agents, and those of the cases that they depend on."""
    by_case = {
        (step.test.extra.name, step.prompt_idx, step.repeat_index): step
        for step in steps
        if step.test.extra is not None
    }
    left = [step for step in steps if (step.test_idx, step.prompt_idx) in wanted]
    found = set(wanted)
    while left:
        step = left.pop()
        case = case_of(step.test)
        for name in () if case is None else case.depends_on:
            other = by_case.get((name, step.prompt_idx, step.repeat_index))
            if other is not None and (other.test_idx, other.prompt_idx) not in found:
                found.add((other.test_idx, other.prompt_idx))
                left.append(other)
    return found


_LOOK = 0.05  # seconds between two looks at what another process does
_SAFE_WITHIN = 60.0  # seconds in which everything is on disk at the end, or will not be


@attrs.frozen(eq=False)
class Serving:
    """What all files of a process share."""

    folder: Path
    """Of the locks of the session."""
    store: Store
    cache: Cache | None
    lanes: Lanes
    stop: trio.Event
    """Set when no new row is to start."""
    warn: Callable[[str], None]


@attrs.define(eq=False)
class FileRun:
    """The run of one file."""

    loaded: LoadedFile
    run: str
    """Its id, the same in every process of the session."""
    wanted: frozenset[Key]
    """What the session wants of it."""
    answers: Answers
    serving: Serving
    _indices: Mapping[RowKey, int] | None = attrs.field(init=False, default=None)
    """Where the store has the rows that are wanted; not known before that is asked."""

    async def serve(self) -> None:
        """Tell how all its items end. A checkpoint.

        Raises:
            TrioevalError: The run cannot be begun, or not be kept.
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
            self._tell_asked()
            await trio.sleep(_LOOK)
        try:
            facts = _facts(self.serving.store.path, self.run)
            # One that was only interrupted, or died, goes on here.
            is_done = facts is not None and facts.state == "finished"
            if not is_done:
                await self._run_on(facts)
            self._tell_rest(with_rows=is_done)
        finally:
            lock.release()

    async def _run_on(self, facts: RunFacts | None) -> None:
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
            self._tell(
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
            # Also when it dies: its rows were paid for.
            with trio.move_on_after(_SAFE_WITHIN, shield=True):
                duration_ms = (trio.current_time() - began) * 1000
                run.finish("finished" if is_over else "interrupted", duration_ms=duration_ms)
                await run.durable()
            run.release()
        if run.error is not None:
            raise run.error

    async def _run_suite(self, prepared: PreparedSuite, run: StoredRun) -> bool:
        """Whether it came to its end: what was never begun was not kept from it by a stop."""
        serving = self.serving
        unended = 0

        async def emit(row: Row) -> None:  # noqa: ASYNC124 - telling waits for nobody
            nonlocal unended
            unended += not has_ended(row.outcome)
            self._tell([run.record(row)])

        # With limits that others share, whoever keeps those is asked by lanes of its own.
        shares = not prepared.lane_limits
        known = all(spec.name in serving.lanes for spec in prepared.lane_specs)
        is_cached = prepared.suite.evaluate_options.cache
        await run_suite(
            prepared,
            emit=emit,
            lanes=serving.lanes if shares and known else None,
            stop=serving.stop,
            observe=run.observe,
            run_id=run.id,
            warn=serving.warn,
            journal=run,
            cache=serving.cache if is_cached else None,
        )
        return not (unended and serving.stop.is_set())

    def _tell(self, records: Iterable[RowRecord]) -> None:
        for record in records:
            key = RowKey(record.task, record.test_idx, record.prompt_idx)
            if key in self.wanted:
                self.answers.tell({key: told_of_row(record)})

    def _tell_asked(self) -> None:
        """Look whether another process has the row that is waited for."""
        key = self.answers.asked
        if not isinstance(key, RowKey):
            return
        if self._indices is None:
            self._indices = _indices(chosen(self.loaded.checked, self.wanted))
        with suppress(StoreError, UsageError), read_store(self.serving.store.path) as reader:
            found = reader.record(reader.run(self.run), key.task, self._indices[key])
            if found is not None and (record := RowRecord.of(found)).is_ended:
                self._tell([record])

    def _tell_rest(self, *, with_rows: bool) -> None:
        """Tell what is known when the run is over."""
        with read_store(self.serving.store.path) as reader:
            facts = reader.run(self.run)
            for task in facts.tasks if with_rows else ():
                self._tell(map(RowRecord.of, reader.records(facts, task)))
            datasets = reader.datasets(facts)
            for key in self.wanted:
                if isinstance(key, TaskKey):
                    dataset = datasets.get(key.task)
                    result = None if dataset is None else dataset.result
                    told = told_of_task(
                        key.task or "the suite",
                        (
                            RowRecord.of(found, index=index)
                            for index, found in reader.numbered(facts, key.task)
                        ),
                        None if result is None else trouble(read_dataset(result)),
                        is_dataset=result is not None,
                    )
                    self.answers.tell({key: told})


def _facts(path: Path, run: str) -> RunFacts | None:
    """What the store knows of a run; None if it was never begun."""
    with read_store(path) as reader, suppress(UsageError):
        return reader.run(run)
    return None


def _indices(prepared: PreparedSuite) -> Mapping[RowKey, int]:
    return {
        RowKey(part.id, step.test_idx, step.prompt_idx): step.index
        for part in prepared.parts
        for step in part.prepared.steps
    }
