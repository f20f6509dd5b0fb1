"""The page of a run: totals on top, below them every test with what was answered, and what its lanes did.

One file that needs no other and no network. What models answer is foreign text: it is in the page as packed
data, which the page's own script shows as text and nothing else. Without scripts there are still the totals.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from trioeval.report.dataset_html import dataset_html
from trioeval.report.html_report.cells import CELL_FIELDS, NAME, cell_json, test_name
from trioeval.report.html_report.details import details_json
from trioeval.report.html_report.inert_text import inert_html, plain
from trioeval.report.html_report.lanes import lanes_json
from trioeval.report.html_report.packed import Packs
from trioeval.report.html_report.page import page_chunks
from trioeval.report.html_report.summary import lines_of, minute_text, sentence_of, title_of
from trioeval.report.questions import run_sentence, sentence
from trioeval.report.results import Results
from trioeval.report.totals import Totals


def html_chunks(*parts: Results) -> Iterator[str]:
    """The text of a page, a few hundred rows at a time.

    Args:
        parts: One run, or its tasks.
    """
    first = parts[0].head
    whole = Totals.joined(part.totals for part in parts)
    only_datasets = not whole.rows and any(part.dataset is not None for part in parts)
    lanes = lanes_json(parts[0].info.activity)
    shown = {
        "title": title_of(parts[0]),
        "about": [
            first.eval_id,
            minute_text(first.utc_created),
            f"{parts[0].info.duration_ms / 1000:.1f} s",
        ],
        "totals": None if only_datasets else sentence_of(whole),
        "sentences": [run_sentence((part.head, part.totals) for part in parts)],
        "parts": [_part(part) for part in parts],
        "comparison": None,
        "has_charts": not only_datasets,
        "has_lanes": bool(lanes),
        "packs": _packs(parts),
    }
    data = {
        "fields": CELL_FIELDS,
        "parts": [_part_json(part) for part in parts],
        "lanes": lanes,
    }
    return page_chunks(shown, data)


def _part(results: Results) -> dict[str, Any]:
    """What the template tells of a task."""
    dataset = results.shown_dataset()
    return {
        "name": results.task,
        "sentence": sentence(results.head, results.totals),
        "lines": [] if dataset is not None else [*lines_of(results)],
        "dataset": None if dataset is None else map(Markup, dataset_html(dataset, inert_html)),
    }


def _part_json(results: Results) -> dict[str, Any] | None:
    """What the script of the page knows of a task with rows."""
    if results.dataset is not None:
        return None
    return {
        "name": "" if results.task is None else plain(results.task, NAME),
        "columns": [
            {
                "provider": plain(column.provider, NAME),
                "prompt": plain(
                    " ".join(results.prompt_text(column.label)[: 4 * NAME].split()), NAME
                ),
            }
            for column in results.columns
        ],
    }


def _packs(parts: Sequence[Results]) -> Iterator[Markup]:
    characters = 0
    for number, results in enumerate(parts):
        if results.dataset is None:
            index, details = Packs(number, "index"), Packs(number, "details", characters)
            for element in _rows(results, index, details):
                yield Markup(element)  # noqa: S704 - base64
            characters = details.characters


def _rows(results: Results, index: Packs, details: Packs) -> Iterator[str]:
    rows = itertools.count()
    for test_idx, group in itertools.groupby(results.shown(), key=lambda row: row["testIdx"]):
        cells: list[Any] = [None] * len(results.columns)
        name = None
        for record in group:
            name = test_name(record) if name is None else name
            cells[record["promptIdx"]] = cell_json(record, next(rows))
            yield from details.add(details_json(record, details.most))
        yield from index.add([test_idx, name, cells])
    yield from index.rest()
    yield from details.rest()
