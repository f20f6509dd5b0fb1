"""What is shown of a run at its end: the first rows, what failed, how each task ended, and what it took."""

import sys
from collections.abc import Callable
from functools import partial

from trioeval.cli.collector import Collector, Part
from trioeval.cli.datasets import ended_lines
from trioeval.cli.terminal import draw, say, show
from trioeval.errors import OutputError
from trioeval.report import RunInfo, inert
from trioeval.report.questions import run_sentence, sentence
from trioeval.tasks.columns.making import OWN_LANES

_NAME = 50  # characters of a name


def show_results(
    collector: Collector, info: RunInfo, command: Callable[[str | None, int], str | None]
) -> OutputError | None:
    """Show the first rows and failures on stdout, and totals, datasets and what it took on stderr.

    A full disk behind stdout costs the rows that were to be shown, and nothing else.

    Args:
        collector: Has what is known of the run.
        info: Of the run as it ended.
        command: Gives what shows the row of a task with an index; None where nothing does.

    Returns:
        Why rows cannot be written to stdout; None if they are.
    """
    from trioeval.report.dataset_tables import Profile  # noqa: PLC0415 - after the run
    from trioeval.report.summary import Took, took_lines, unfinished_line  # noqa: PLC0415

    parts = [part for part in collector.parts if not part.makes_dataset]
    failure: OutputError | None = None
    for part in parts:
        try:
            _show_rows(part, partial(command, part.head.task))
        except OutputError as error:  # once: what follows goes nowhere
            failure = error
    for part in parts:
        _show_totals(part)
    if (told := run_sentence((part.head, part.totals) for part in parts)) is not None:
        say(told)
    for dataset in collector.datasets:
        for line in ended_lines(dataset):
            say(line)
        if dataset.columns:
            draw(Profile(dataset.columns), sys.stderr)
    totals = [part.totals for part in parts]
    for line in took_lines(Took.of(info.duration_ms / 1000, totals, info.activity, OWN_LANES)):
        say(line)
    if (left := unfinished_line(totals)) is not None:
        say(left)
    return failure


def _show_rows(part: Part, command: Callable[[int], str | None]) -> None:
    from trioeval.report.summary import failures_view  # noqa: PLC0415 - after the run
    from trioeval.report.tables import rows_table  # noqa: PLC0415 - after the run

    first = part.first_rows
    if first is None:
        return
    if part.head.task is not None:
        show(f"task {inert(part.head.task, _NAME)}")
    draw(rows_table(part.head.columns, first), sys.stdout)
    if hidden := first.hidden:
        show(f"… and {hidden} more rows; -o FILE writes them all")
    if left_out := sum(one["lastRow"] - one["firstRow"] + 1 for one in part.never_began):
        show(f"… and {left_out} rows that never began, which are counted and not listed")
    if (failures := failures_view(part.head.columns, part.failures, command)) is not None:
        draw(failures, sys.stdout)


def _show_totals(part: Part) -> None:
    from trioeval.report.tables import columns_table  # noqa: PLC0415 - after the run

    if part.head.task is not None:
        say(f"task {inert(part.head.task, _NAME)}")
    draw(columns_table(part.head.columns, part.totals), sys.stderr)
    if (told := sentence(part.head, part.totals)) is not None:
        say(told)
