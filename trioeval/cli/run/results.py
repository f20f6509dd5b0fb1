"""The results of a run at its end: documents, and the tables on the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trioeval.cli.terminal import draw, say, show
from trioeval.columns.lanes import OWN_LANES
from trioeval.errors import OutputError, StoreError
from trioeval.report.counts import RowNumbers
from trioeval.report.files import LINES, output_suffix, write_results
from trioeval.report.results import Results, RunInfo
from trioeval.report.tables import UNFINISHED
from trioeval.session.collector import CollectedRows, Collector
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

if TYPE_CHECKING:
    from trioeval.columns.result import DatasetResult

_FILE_NAME = 100  # characters of a file name that are shown
_REASON = 200  # characters of the reason why rows were not run


def write_documents(outputs: Sequence[Path], results: Sequence[Results]) -> Sequence[OutputError]:
    """Write all result files that are not written row by row.

    Args:
        outputs: The files; JSON Lines are skipped.
        results: The tasks of a run.

    Returns:
        The errors.
    """
    errors = []
    for path in outputs:
        if output_suffix(path) == LINES:
            continue
        try:
            written = write_results(path, results)
            if written != [path]:
                names = ", ".join(
                    escape_control_characters(one.name, _FILE_NAME) for one in written
                )
                say(f"-o {path}: written as {names}")
        except OutputError as error:
            errors.append(error)
        except StoreError as error:
            errors.append(OutputError(f"{path}: cannot be written: {error}"))
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the other files
            fault = f"{type(error).__name__}: {error}; this is a bug in trioeval"
            errors.append(OutputError(f"{path}: cannot be written: {fault}"))
    return errors


def keep_media(folder: Path | None, outputs: Sequence[Path]) -> Sequence[OutputError]:
    """Copy the media of a run that is not stored to a folder beside its first result file.

    Args:
        folder: Their folder, which is removed with the run.
        outputs: The result files; without any, nothing refers to the media.

    Returns:
        The errors.
    """
    if folder is None or not outputs or not folder.is_dir():
        return ()
    target = outputs[0].with_name(f"{outputs[0].name.partition('.')[0]}-media")
    try:
        shutil.copytree(folder, target, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        return (OutputError(f"{target}: the media of the run cannot be written: {error}"),)
    say(f"-o {outputs[0]}: its media are in {escape_control_characters(target.name, _FILE_NAME)}")
    return ()


# The results on the terminal: the first rows, failures, totals of each task, and usage.


_NAME = 50  # characters of a name


def show_results(
    collector: Collector,
    info: RunInfo,
    command: Callable[[str | None, int], str | None],
    resume: str | None = None,
) -> OutputError | None:
    """Show the first rows and failures on stdout, and totals, datasets, rates and waits on stderr.

    If stdout cannot be written, for example on a full disk, everything else is still shown.

    Args:
        collector: The rows of the run.
        info: The facts of the ended run.
        command: Returns the command that shows one row of a task; None if there is none.
        resume: The command that continues the run; None if there is none.

    Returns:
        The error of writing to stdout; None if all rows were written.
    """
    from trioeval.report.summary import RunUsage, hint_lines, not_run_line, usage_lines

    parts = [part for part in collector.parts if not part.makes_dataset]
    failure: OutputError | None = None
    for part in parts:
        try:
            _show_rows(part, partial(command, part.head.task))
        except OutputError as error:  # once: all further output would fail as well
            failure = error
    for part in parts:
        _show_totals(part)
    if any(part.head.questions_file is not None for part in parts):
        from trioeval.report.question_eval import run_sentence

        if (totals_line := run_sentence((part.head, part.totals) for part in parts)) is not None:
            say(totals_line)
    for dataset in collector.datasets:
        _show_dataset(dataset)
    totals = [part.totals for part in parts]
    for line in usage_lines(RunUsage.of(info.duration_ms / 1000, totals, info.activity, OWN_LANES)):
        say(line)
    left = (not_run_line(part.failures.not_run, part.head.task, resume) for part in parts)
    for line in filter(None, (*hint_lines(totals), *left)):
        say(line)
    return failure


def _show_dataset(result: DatasetResult) -> None:
    from trioeval.report.columns import Profile

    for line in ended_lines(result):
        say(line)
    if result.columns:
        draw(Profile(result.columns), sys.stderr)


def ended_lines(result: DatasetResult) -> Sequence[str]:
    """Return the lines of a dataset at the end of a run, with paths relative to the working folder."""
    from trioeval.report.columns import dataset_lines

    first, *others = dataset_lines(result, Path.cwd())
    return [
        f"task {escape_control_characters(result.task or 'dataset', _NAME)}: {first}",
        *(f"  {line}" for line in others),
    ]


def _show_rows(part: CollectedRows, command: Callable[[int], str | None]) -> None:
    from trioeval.report.summary import failures_view
    from trioeval.report.tables import rows_table

    first = part.first_rows
    if first is None:
        return
    if part.head.task is not None:
        show(f"task {escape_control_characters(part.head.task, _NAME)}")
    if first.names:
        draw(rows_table(part.head.columns, first), sys.stdout)
    if hidden := first.hidden:
        show(f"… and {counted(hidden, 'more row', 'more rows')}; -o FILE writes them all")
    for one in part.never_began:
        if one["outcome"] not in UNFINISHED:
            rows = RowNumbers()
            rows.add_range(range(one["firstRow"], one["lastRow"] + 1))
            why = escape_control_characters(one["error"] or one["outcome"], _REASON)
            show(f"{counted(rows.count, 'row')} not run: {rows}: {why.removeprefix('not run: ')}")
    if (failures := failures_view(part.head.columns, part.failures, command)) is not None:
        draw(failures, sys.stdout)


def _show_totals(part: CollectedRows) -> None:
    from trioeval.report.tables import columns_table

    if part.head.task is not None:
        say(f"task {escape_control_characters(part.head.task, _NAME)}")
    draw(columns_table(part.head.columns, part.totals), sys.stderr)
    if part.head.questions_file is not None:
        from trioeval.report.question_eval import sentence

        if (totals_line := sentence(part.head, part.totals)) is not None:
            say(totals_line)
