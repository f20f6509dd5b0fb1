"""What a page says of a dataset: how it ended, its columns, and the first rows that are not there."""

from collections.abc import Callable, Iterator, Sequence

from trioeval.datasets.result import ColumnProfile, DatasetResult
from trioeval.report.dataset_text import (
    dataset_lines,
    distinct_of,
    failure_line,
    trouble,
    values_of,
)

_SHOWN = 20  # dropped rows
_HEADINGS = (
    *("column", "kind", "type", "rows", "nulls", "skipped", "distinct", "values"),
    *("calls", "recalled", "failed", "tokens", "US dollars"),
)
_WORDS = frozenset({"column", "kind", "type", "values"})  # all others are numbers
_TEXT = 500  # characters

Inert = Callable[[object, int], str]
"""Makes foreign text harmless."""


def dataset_html(result: DatasetResult, inert: Inert) -> Iterator[str]:
    """The part of a page about one dataset.

    Args:
        result: How it ended.
        inert: Makes foreign text harmless in a page.
    """
    found = trouble(result)
    style = "pass" if found is None else "fail"
    yield f"<p><b class={style}>{result.outcome}</b>"
    if found is not None:
        yield f": {inert(found.partition(': ')[2], _TEXT)}"
    yield "</p>\n"
    for line in dataset_lines(result):
        yield f"<p>{inert(line, _TEXT)}</p>\n"
    yield '<div class="scroll" tabindex="0" role="group" aria-label="Columns">'
    yield "<table>\n<thead>" + _line("th", _HEADINGS) + "</thead>\n<tbody>\n"
    for column in result.columns:
        yield _line("td", [inert(cell, _TEXT) for cell in _cells(column)])
    yield "</tbody></table></div>\n"
    if result.failures:
        lines = "\n".join(map(failure_line, result.failures[:_SHOWN]))
        yield (
            f"<details><summary>rows that are not there</summary><div>{inert(lines, 40 * _TEXT)}</div>"
            "</details>\n"
        )


def _cells(column: ColumnProfile) -> Iterator[object]:
    yield from (column.name, column.kind, column.type, column.values, column.nulls, column.skipped)
    yield from (distinct_of(column), values_of(column))
    yield from (column.calls, column.recalled, column.failed, column.usage.total or 0)
    yield "–" if column.cost is None else f"{column.cost:.4f}"


def _line(tag: str, cells: Sequence[str]) -> str:
    marks = ["" if heading in _WORDS else ' class="n"' for heading in _HEADINGS]
    line = (f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{''.join(line)}</tr>\n"
