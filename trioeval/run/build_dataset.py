"""Building of datasets from Python, in Trio applications and as previews."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.columns import is_columns
from trioeval.columns.events import DatasetEvent
from trioeval.columns.files import DatasetRows
from trioeval.columns.model import SeedColumns
from trioeval.columns.options import DatasetOptions
from trioeval.columns.result import DatasetResult
from trioeval.columns.spec import Rows
from trioeval.documents.mistakes import kind
from trioeval.errors import UsageError
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.provider_calls import ReplyCache
from trioeval.evaluation.row import Row
from trioeval.kernel import Lanes, Observer
from trioeval.kernel.events import guarded
from trioeval.loading.load import parse_suite
from trioeval.providers import Provider
from trioeval.run.journal import RunJournal
from trioeval.run.prepare import prepare
from trioeval.run.run_suite import RunOptions, ended, ignore, log, run_prepared
from trioeval.suite.model import Suite

_TASK = "dataset"


@attrs.frozen(eq=False)
class Dataset:
    """A dataset that was built, completely or partially."""

    result: DatasetResult
    rows: Sequence[Mapping[str, Any]]
    """The written rows, in order: in memory, or read from the files on access."""
    _numbers: Sequence[int] = ()
    """The numbers of rows in memory."""

    def number(self, place: int) -> int:
        """Return the number of a row, as used in messages; dropped rows have numbers as well.

        Args:
            place: Its index in `rows`, 0 to `len(rows)` - 1.
        """
        rows = self.rows
        return rows.number(place) if isinstance(rows, DatasetRows) else self._numbers[place]


async def build_columns(
    settings: Mapping[str, Any],
    *,
    providers: Mapping[str, Provider] | Sequence[Any] = (),
    output_dir: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    preview: int | None = None,
    lanes: Lanes | None = None,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    events: Callable[[DatasetEvent], None] | None = None,
    journal: RunJournal | None = None,
    cache: ReplyCache | None = None,
    warn: Callable[[str], None] | None = None,
) -> Dataset:
    """Build one dataset inside of a Trio program. A checkpoint.

    Cancelling the surrounding scope ends the calls at once; groups that were complete are still written, and
    the results of others are in the journal, if there is one.

    Args:
        settings: The settings of a task of type `columns` as in a suite file, without `id` and `type`.
        providers: Async callables by the id that columns name, or provider entries as in a suite file.
        output_dir: The folder of its files; None takes `outputDir` of the settings, and without that, rows
        are
            kept in memory.
        directory: The base of relative paths in the settings; None is the working folder.
        preview: The maximum number of rows, ≥ 1; no files are written.
        lanes: Shared lanes to run on; None creates its own.
        stop: Nothing new starts once it is set.
        observe: Called with the events of lanes and jobs.
        events: Called with the events of the dataset.
        journal: Records the results, so that the dataset can be resumed: a run of a store.
        cache: The cache of replies.
        warn: Called with harmless failures; None logs them.

    Returns:
        The result, and the rows.

    Raises:
        UsageError: `settings` is not a mapping, or `preview` is not a number of rows.
        SuiteError: The settings are not valid; lists all problems. Nothing was called.
        DatasetError: Its folder cannot be used, or the dataset cannot be finished.
        ProviderError: A provider cannot be opened.

    Example:
        >>> async def write(request):
        ...     return f"What is {request.vars['a']} + {request.vars['b']}?"
        >>> number = {"type": "sampler", "sampler": "uniform", "low": 1, "high": 9, "decimals": 0}
        >>> async def main():
        ...     return await build_columns(
        ...         {
        ...             "rows": 3,
        ...             "columns": [
        ...                 {"name": "a", **number},
        ...                 {"name": "b", **number},
        ...                 {
        ...                     "name": "text",
        ...                     "type": "llm",
        ...                     "provider": "writer",
        ...                     "prompt": "Ask for the sum of {{ a }} and {{ b }}.",
        ...                 },
        ...             ],
        ...         },
        ...         providers={"writer": write},
        ...     )
        >>> dataset = trio.run(main)
        >>> dataset.result.outcome, len(dataset.rows)
        ('complete', 3)
    """
    _check_settings(settings)
    if preview is not None:
        _check_preview(preview)
    custom = providers if isinstance(providers, Mapping) else {}
    entries: Sequence[Any] = list(providers)
    task = {"id": _TASK, "type": "columns", **settings}
    if output_dir is not None:
        task.pop("outputDir", None)
        task.pop("output_dir", None)
    document = {"providers": entries, "tasks": [task]}
    if not entries:
        del document["providers"]
    base = None if directory is None else Path(directory)
    suite = parse_suite(document, directory=base)
    if output_dir is not None:
        suite = _written_to(suite, output_dir)
    prepared = prepare(suite, providers=custom)
    made = prepared.parts[0].prepared.suite.settings
    is_written = is_columns(made) and made.output_dir is not None
    built: list[Dataset] = []
    observe_all = None if events is None else lambda _task, event: events(event)
    async with ended(journal) as end:
        totals = await run_prepared(
            prepared,
            _terms(
                lanes=lanes,
                stop=trio.Event() if stop is None else stop,
                observe=observe,
                journal=journal,
                cache=cache,
                warn=warn,
                datasets=DatasetOptions(
                    on_result=lambda result, rows: built.append(_in_memory(result, rows)),
                    on_event=observe_all,
                    in_memory=preview is not None or not is_written,
                    preview=preview,
                ),
            ),
        )
        end.is_finished = totals.is_finished
    [dataset] = built
    if (folder := dataset.result.folder) is not None:
        rows = await trio.to_thread.run_sync(DatasetRows, folder)
        return Dataset(dataset.result, rows)
    return dataset


def _in_memory(result: DatasetResult, rows: Rows) -> Dataset:
    return Dataset(result, [values for _, values in rows], [row for row, _ in rows])


def _check_settings(settings: object) -> None:
    if not isinstance(settings, Mapping):
        msg = f"settings must be a mapping like a task in a suite file, not {kind(settings)}"
        raise UsageError(msg)


def _check_preview(rows: object) -> None:
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        msg = f"preview must be a whole number of rows, 1 or more, not {rows!r:.60}"
        raise UsageError(msg)


def _written_to(suite: Suite, folder: str | os.PathLike[str]) -> Suite:
    """Return a suite of one dataset with the folder that the program names, which may be anywhere."""
    [task] = suite.tasks
    settings = task.suite.settings
    if is_columns(settings):
        settings = attrs.evolve(settings, output_dir=Path(folder).absolute())
    inner = attrs.evolve(task.suite, settings=settings)
    return attrs.evolve(suite, tasks=(attrs.evolve(task, suite=inner),))


async def preview_suite(
    prepared: PreparedSuite,
    rows: int,
    *,
    tasks: Sequence[str] = (),
    cache: ReplyCache | None = None,
    stop: trio.Event | None = None,
    warn: Callable[[str], None] | None = None,
) -> Sequence[Dataset]:
    """Return the first rows of the datasets of a suite, in memory, without running other tasks. A checkpoint.

    Args:
        prepared: The suite.
        rows: The maximum number of rows of each dataset, ≥ 1.
        tasks: The ids of the requested tasks, which include the tasks that they are made from; all tasks of
            type `columns` if empty.
        cache: The cache of replies.
        stop: Nothing new starts once it is set.
        warn: Called with harmless failures; None logs them.

    Raises:
        UsageError: A task does not exist, or is made from rows of a task that is not a dataset; or `rows` is
            not a number of rows.
        TrioevalError: As for `build_columns`.
    """
    _check_preview(rows)
    selected = _selected(prepared, tasks)
    built: dict[str | None, Dataset] = {}

    def on_result(result: DatasetResult, made: Rows) -> None:
        built[result.task] = _in_memory(result, made)

    only = attrs.evolve(prepared, tasks=selected)
    datasets = DatasetOptions(on_result=on_result, in_memory=True, preview=rows)
    how = _terms(
        lanes=None,
        stop=trio.Event() if stop is None else stop,
        observe=None,
        journal=None,
        cache=cache,
        warn=warn,
        datasets=datasets,
    )
    await run_prepared(only, how)
    return [built[part.id] for part in selected if part.id in built]


def _selected(prepared: PreparedSuite, named: Sequence[str]) -> tuple[PreparedTask, ...]:
    """Return the tasks to preview, in the order of the suite, without dependencies on others."""
    parts = {part.id: part for part in prepared.tasks}
    own = {name: part.prepared.suite.settings for name, part in parts.items()}
    datasets = [name for name, one in own.items() if is_columns(one)]
    for name in named:
        if name not in datasets:
            known = ", ".join(map(str, datasets)) or "none"
            msg = (
                f"the suite has no task {name} of type columns; its tasks of that type are: {known}"
            )
            raise UsageError(msg)
    if not datasets:
        raise UsageError("the suite has no task of type columns to preview")
    found: set[str | None] = set()
    waiting: list[str | None] = list(named or datasets)
    while waiting:
        task = waiting.pop()
        if task in found:
            continue
        found.add(task)
        settings = own[task]
        for column in settings.columns if is_columns(settings) else ():
            if not isinstance(column, SeedColumns) or column.from_task is None:
                continue
            if column.from_task not in datasets:
                msg = (
                    f"task {task} is made from the rows of task {column.from_task}, which is not a dataset: "
                    "a preview does not run it; run the suite instead"
                )
                raise UsageError(msg)
            waiting.append(column.from_task)
    return tuple(
        attrs.evolve(part, depends_on=tuple(one for one in part.depends_on if one in found))
        for part in prepared.tasks
        if part.id in found
    )


async def _no_rows(_row: Row) -> None:
    """Do nothing: datasets emit no rows."""


def _terms(
    *,
    lanes: Lanes | None,
    stop: trio.Event,
    observe: Observer | None,
    journal: RunJournal | None,
    cache: ReplyCache | None,
    warn: Callable[[str], None] | None,
    datasets: DatasetOptions,
) -> RunOptions:
    return RunOptions(
        emit_many=None,
        emit=_no_rows,
        lanes=lanes,
        stop=stop,
        observe=guarded(observe),
        observers=None,
        recorder=None,
        run_id=None,
        warn=warn or log.warning,
        journal=journal,
        record_observers=(),
        cache=cache,
        refresh_cache=False,
        questions=None,
        settled=ignore,
        datasets=datasets,
        agents=None,
    )
