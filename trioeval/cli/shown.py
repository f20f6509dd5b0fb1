"""`trioeval show`: the rows of a stored run, or all that is known of one of them."""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from trioeval.cli.agent_folders import case_folders
from trioeval.cli.environment import read_environment
from trioeval.cli.exits import Exit
from trioeval.cli.keeping import Keeping
from trioeval.cli.places import agents_folder
from trioeval.cli.shown_datasets import names_folder, show_dataset, show_dataset_row, show_folder
from trioeval.cli.stored_results import add_never_began, open_runs
from trioeval.cli.terminal import draw, show
from trioeval.errors import UsageError
from trioeval.report import Head, Totals, inert
from trioeval.report.failures import Failures
from trioeval.report.first_rows import FirstRows
from trioeval.report.questions import Ended, run_sentence, sentence
from trioeval.report.run_list import run_line
from trioeval.report.summary import Took, failures_view, took_lines, unfinished_line
from trioeval.report.tables import columns_table, rows_table
from trioeval.store import NeverBegan, Reader, RunFacts
from trioeval.tasks.columns.making import OWN_LANES

_CELL = 40  # characters of an answer in the table
_RANGES = 5  # of rows that never began
_REASON = 200  # characters of why they did not
_FAILURES = 10  # rows that did not pass, of which the reasons are shown


def show_run(
    db: Path | None, run: str, *, failed: bool, limit: int, rows: int, task: str | None
) -> int:
    """Show the first rows of a run and its totals, and its datasets.

    Args:
        db: The database of runs.
        run: Which, or the folder of a dataset.
        failed: Only rows that did not pass.
        limit: Rows of at most so many tests.
        rows: Rows of each dataset.
        task: Only this task.

    Raises:
        UsageError: There is no such run, or no such task.
        StoreError: The database cannot be read.
        DatasetError: The folder holds no dataset, or its files are damaged.
    """
    if names_folder(run):
        return show_folder(Path(run), rows, None)
    with open_runs(db, read_environment(os.environ)) as reader:
        facts = reader.run(run)
        show(run_line(facts))
        shown: list[Ended] = []
        missing = 0
        for head in map(Head.read, reader.heads(facts)):
            if task is not None and head.task != _task(facts, task):
                continue
            if head.dataset_folder is not None:
                show_dataset(reader, facts, head, rows)
            else:
                shown.append(_show_task(reader, facts, head, limit, failed=failed, db=db))
                missing += _missing(facts, *shown[-1])
        if (told := run_sentence(shown)) is not None:
            show(told)
        totals = [one for _, one in shown]
        took = Took.of(facts.duration_ms / 1000, totals, reader.activity(facts), OWN_LANES)
        for line in took_lines(took) if task is None else ():
            show(line)
        if (left := unfinished_line(totals, missing)) is not None:
            show(left)
    return Exit.OK


def _missing(facts: RunFacts, head: Head, totals: Totals) -> int:
    """Rows of a task that were never written down."""
    size = facts.sizes[facts.tasks.index(head.task)]
    return max(0, (size or 0) - totals.rows)


def _show_task(
    reader: Reader, facts: RunFacts, head: Head, limit: int, *, failed: bool, db: Path | None
) -> Ended:
    rows, totals = FirstRows(_CELL, limit), Totals.of(head.columns, cluster=head.cluster)
    failures = Failures(_FAILURES)
    for index, record in reader.numbered(facts, head.task):
        totals.add(record)
        failures.add(index, record)
        if not failed or not record["success"]:
            rows.add(record)
    never_began = reader.never_began(facts, head.task)
    add_never_began(totals, never_began)
    if head.task is not None:
        show(f"task {inert(head.task, 60)}")
    if rows.names:
        draw(rows_table(head.columns, rows), sys.stdout)
        if rows.hidden:
            show(f"… and {rows.hidden} more rows; --limit N shows more of them")
    elif failed:
        show("every row passed" if totals.rows else "no rows")
    for line in _range_lines(never_began):
        show(line)
    command = partial(Keeping(database=reader.path, named=db is not None).show, facts.id, head.task)
    if (view := failures_view(head.columns, failures, command)) is not None:
        draw(view, sys.stdout)
    draw(columns_table(head.columns, totals), sys.stdout)
    if (told := sentence(head, totals)) is not None:
        show(told)
    return head, totals


def _range_lines(never_began: Sequence[NeverBegan]) -> Iterator[str]:
    """Which rows never began and have no records, and why."""
    for one in never_began[:_RANGES]:
        why = inert(one.error or one.outcome, _REASON)
        yield f"rows {one.rows.start} to {one.rows.stop - 1}: {why}"
    if len(never_began) > _RANGES:
        more = sum(len(one.rows) for one in never_began[_RANGES:])
        yield f"and {more} more rows that never began"


def show_row(db: Path | None, run: str, index: int, *, task: str | None) -> int:
    """Show all that is known of one row.

    Raises:
        UsageError: There is no such run, task or row.
        StoreError: The database cannot be read.
    """
    from trioeval.report.row_view import row_view  # noqa: PLC0415

    if names_folder(run):
        return show_folder(Path(run), 0, index)
    with open_runs(db, read_environment(os.environ)) as reader:
        facts = reader.run(run)
        named = _task(facts, task)
        head = next(one for one in map(Head.read, reader.heads(facts)) if one.task == named)
        if head.dataset_folder is not None:
            show_dataset_row(reader, facts, head, index)
            return Exit.OK
        record = reader.record(facts, named, index)
        if record is None:
            for one in reader.never_began(facts, named):
                if index in one.rows:
                    why = inert(one.error or one.outcome, _REASON)
                    show(f"row {index} of {facts.id} never began: {why}")
                    return Exit.OK
            of = "" if named is None else f" of task {named}"
            there = sum(1 for _ in reader.texts(facts, named))
            size = facts.sizes[facts.tasks.index(named)] or "its"
            raise UsageError(
                f"{facts.id} has no row {index}{of}; {there} of {size} rows are written down"
                + _begun(agents_folder(reader.path, facts.id), head, index)
            )
        calls = reader.calls(facts, named, index)
    draw(row_view(record, calls, Path.cwd()), sys.stdout)
    return Exit.OK


def _begun(run: Path, head: Head, index: int) -> str:
    """Where a case is worked on that has no row yet."""
    folders = case_folders(run, head, index)
    if not folders:
        return ""
    # Whose case it is, only the suite knows if there are several columns.
    where = ", or ".join(inert(folder) for folder in folders)
    return f"; its agent has begun: workspace and logs are in {where}"


def _task(facts: RunFacts, name: str | None) -> str | None:
    """The task that is meant; the only one if none is named."""
    if name is None and len(facts.tasks) == 1:
        return facts.tasks[0]
    known = ", ".join(task for task in facts.tasks if task is not None)
    if name is None:
        raise UsageError(f"{facts.id} has several tasks: name one with --task: {known}")
    if name not in facts.tasks:
        there = f"its tasks are {known}" if known else "it has no tasks"
        raise UsageError(f"--task {name}: {facts.id} has no such task; {there}")
    return name
