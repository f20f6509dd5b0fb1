"""`trioeval export` and `trioeval import`: results of runs, from the store and into it."""

import os
from collections.abc import Sequence
from pathlib import Path

from trioeval.cli.environment import database_path, databases, read_environment
from trioeval.cli.inputs import check_files, check_not_suite_files
from trioeval.cli.stored_results import open_runs, write_stored
from trioeval.cli.terminal import Exit, say
from trioeval.errors import StoreError, UsageError
from trioeval.report.files import check_outputs
from trioeval.report.formats.imported import Imported, imported
from trioeval.report.kept_totals import kept_text
from trioeval.report.stored import RunStart
from trioeval.store.reader import read_store
from trioeval.store.store import open_store
from trioeval.store.stored_results import results_of, totals_of
from trioeval.text import counted

_AT_ONCE = 1000  # rows that are pending at once


def export_run(
    db: Path | None, run: str, outputs: Sequence[Path], *, omit_zero_counters: bool
) -> int:
    """Write result files of a stored run.

    Args:
        db: The database; None takes that of the environment, or the default.
        run: The name of the run.
        outputs: The files.
        omit_zero_counters: Whether they leave out token counters that are zero.

    Raises:
        UsageError: The run does not exist, or no file is named, or a file cannot be written.
        StoreError: The database cannot be read.
    """
    if not outputs:
        raise UsageError("name the files to write: trioeval export RUN -o FILE")
    environment = read_environment(os.environ)
    written = [("-o", path) for path in outputs]
    check_files(databases=databases(db, environment), written=written)
    with open_runs(db, environment) as reader:
        facts = reader.run(run)
        check_not_suite_files(written, facts.files)
        check_outputs(outputs)
        results = results_of(
            reader,
            facts,
            strip=environment.strip,
            escape_formulas=environment.escape_formulas,
            omit_zero_counters=omit_zero_counters,
        )
        unwritten = write_stored(outputs, results)
        left_out = sum(one.unlisted for one in results)
    for error in unwritten:
        say(error)
    if unwritten:
        return Exit.FAULT
    left = "" if facts.state == "finished" else f"; the run is {facts.state}"
    if left_out:
        left += f"; {counted(left_out, 'row')} not run: counted, and not listed in the files"
    for path in outputs:
        say(f"wrote {path}: {counted(facts.rows - left_out, 'row')} of {facts.id}{left}")
    return Exit.OK


def import_results(db: Path | None, files: Sequence[Path]) -> int:
    """Store the results of files as runs, one run a file. All files are read before any is stored.

    Raises:
        SuiteError: A file is not a result file; the error has all problems of the first such file.
        UsageError: A file cannot be read, or its run is stored already.
        StoreError: The database cannot be written to.
    """
    import trio

    environment = read_environment(os.environ)
    database = database_path(db, environment)
    check_files((("the result file", file) for file in files), databases=databases(db, environment))
    runs = [(file, _read(file)) for file in files]
    _check_new(database, runs)
    error = trio.run(_store, database, [run for _, run in runs])
    if error is not None:
        raise error
    for file, run in runs:
        rows = sum(len(task.records) for task in run.tasks)
        say(f"imported {file}: {counted(rows, 'row')} as {run.eval_id}")
    return Exit.OK


def _read(file: Path) -> Imported:
    try:
        return imported(file.read_bytes(), file)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from None


def _check_new(database: Path, runs: Sequence[tuple[Path, Imported]]) -> None:
    """Raise if a run is stored already, or occurs in two files."""
    known: dict[str, str] = {}
    if database.exists():
        with read_store(database) as reader:
            known = {run.id: f"already stored in {database}" for run in reader.runs()}
    wrong = []
    for file, run in runs:
        if run.eval_id in known:
            wrong.append(f"{file}: its run {run.eval_id} is {known[run.eval_id]}")
        known.setdefault(run.eval_id, f"also in {file}")
    if wrong:
        raise UsageError("\n".join(wrong))


async def _store(database: Path, runs: Sequence[Imported]) -> StoreError | None:
    """Write runs into the store, and return the error of the store if there was one."""
    async with open_store(database, on_warning=say) as store:
        for run in runs:
            stored = store.begin(
                RunStart(
                    id=run.eval_id,
                    utc_created=run.tasks[0].head.utc_created,
                    description=run.tasks[0].head.config.get("description"),
                    versions=run.tasks[0].head.versions,
                    heads=[task.head.json() for task in run.tasks],
                    rows={task.head.task: len(task.records) for task in run.tasks},
                )
            )
            for task in run.tasks:
                for index, record in enumerate(task.records):
                    stored.take(task.head.task, index, record)
                    if index % _AT_ONCE == _AT_ONCE - 1:
                        await stored.durable()  # do not hold all rows in memory twice
                stored.tests(task.head.task, iter(task.tests))
            stored.finish(
                "finished",
                duration_ms=run.duration_ms,
                derived={task.head.task or "": list(task.derived) for task in run.tasks},
                totals={
                    task.head.task: kept_text(totals_of(iter(task.records), task.head, None))
                    for task in run.tasks
                },
            )
            await stored.durable()
    return store.error
