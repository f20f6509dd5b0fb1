"""What is shown of a run at its end: the first rows, how each task ended, and what it took."""

import sys

from trioeval.cli.collector import Collector, Part
from trioeval.cli.datasets import ended_lines
from trioeval.cli.terminal import draw, say, show
from trioeval.report import inert
from trioeval.report.questions import run_sentence, sentence

_NAME = 50  # characters of a name


def show_results(collector: Collector) -> None:
    """Show the first rows on stdout, and totals and datasets on stderr.

    Raises:
        OutputError: Rows cannot be written to stdout.
    """
    from trioeval.report.dataset_tables import Profile  # noqa: PLC0415 - after the run

    parts = [part for part in collector.parts if not part.makes_dataset]
    for part in parts:
        _show_rows(part)
    for part in parts:
        _show_totals(part)
    if (told := run_sentence((part.head, part.totals) for part in parts)) is not None:
        say(told)
    for dataset in collector.datasets:
        for line in ended_lines(dataset):
            say(line)
        if dataset.columns:
            draw(Profile(dataset.columns), sys.stderr)


def _show_rows(part: Part) -> None:
    from trioeval.report.tables import rows_table  # noqa: PLC0415 - after the run

    first = part.first_rows
    if first is None:
        return
    if part.head.task is not None:
        show(f"task {inert(part.head.task, _NAME)}")
    draw(rows_table(part.head.columns, first), sys.stdout)
    if hidden := first.hidden:
        show(f"… and {hidden} more rows; -o FILE writes them all")


def _show_totals(part: Part) -> None:
    from trioeval.report.tables import columns_table  # noqa: PLC0415 - after the run

    if part.head.task is not None:
        say(f"task {inert(part.head.task, _NAME)}")
    draw(columns_table(part.head.columns, part.totals), sys.stderr)
    if (told := sentence(part.head, part.totals)) is not None:
        say(told)
