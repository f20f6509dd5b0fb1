"""The page of a run: totals, a table of all tests with their outputs, and the activity of the lanes.

One file that needs no other file and no network. Outputs of models are foreign text: the page has them as
packed data, which its script shows as text only. Without scripts the page still shows the totals.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import attrs
from markupsafe import Markup

from trioeval.columns.result import ColumnProfile, DatasetResult
from trioeval.grading import output_text
from trioeval.providers.base import Media
from trioeval.report.activity import WAIT_WORDS, labels_of, lane_names
from trioeval.report.columns import dataset_lines, distinct_of, failure_line, trouble, values_of
from trioeval.report.counts import RowNumbers, money, percent
from trioeval.report.head import HeadColumn
from trioeval.report.html_report.details import details_json
from trioeval.report.html_report.inert_text import inert_html, plain
from trioeval.report.html_report.page import Packs, page_chunks
from trioeval.report.question_eval import run_sentence, sentence
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.report.summary import hint_lines, not_run_line
from trioeval.report.tables import UNFINISHED, Failures
from trioeval.report.text import cut_middle
from trioeval.report.totals import LATENCY_SHARES, ColumnTotals, Totals
from trioeval.run import Status
from trioeval.text import counted

# The dataset of a page: its result, its columns, and the first dropped rows.


LARGEST_IMAGE = 2 * 2**20
"""Bytes of an image up to which it is in the page."""
ALL_IMAGES = 24 * 2**20
"""Bytes of all images in the page."""

_SHOWN = 20  # dropped rows
_HEADINGS = (
    *("column", "kind", "type", "rows", "nulls", "skipped", "distinct", "values"),
    *("calls", "recalled", "failed", "tokens", "cost"),
)
_WORDS = frozenset({"column", "kind", "type", "values"})  # all others are numbers
_TEXT = 500  # characters

Inert = Callable[[object, int], str]
"""Makes foreign text inert."""


def dataset_html(result: DatasetResult, inert: Inert) -> Iterator[str]:
    """Yield the part of a page about one dataset.

    Args:
        result: The result of the dataset.
        inert: Makes foreign text inert.
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
            f"<details><summary>dropped rows</summary><div>{inert(lines, 40 * _TEXT)}</div>"
            "</details>\n"
        )


def _cells(column: ColumnProfile) -> Iterator[object]:
    yield from (column.name, column.kind, column.type, column.values, column.nulls, column.skipped)
    yield from (distinct_of(column), values_of(column))
    yield from (column.calls, column.recalled, column.failed, column.usage.total or 0)
    yield "–" if column.cost is None else money(column.cost)


def _line(tag: str, cells: Sequence[str]) -> str:
    marks = ["" if heading in _WORDS else ' class="n"' for heading in _HEADINGS]
    line = (f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{''.join(line)}</tr>\n"


# The data of a row in the table of a page: enough to show, sort, search and filter it.


NAME = 160  # characters of the name of a test
_SAID = 200  # characters of an output
_WHY = 200  # characters of a reason
_METRICS = 40  # metrics of a row that are shown
_STATUSES = (Status.PASS, Status.FAIL, Status.ERROR, Status.NOT_RUN, Status.NOT_GRADED)

CELL_FIELDS = ("status", "score", "ms", "tokens", "cost", "text", "why", "metrics", "row")
"""The values of a cell, in this order; `status` counts pass, fail, error, not run and not graded from 0."""


def cell_json(record: RowRecord, row: int) -> list[Any]:
    """Return a row in the order of `CELL_FIELDS`.

    Args:
        record: The record without the parts that must not be shown.
        row: The position of its details in the page.
    """
    status, reason = record.status, record.reason
    # The cell shows the error itself, and a passed row needs no reason.
    why = plain(reason, _WHY) if status is Status.FAIL and reason else ""
    if status.has_verdict and record.outcome not in {"done", "failed"}:
        why = f"{record.outcome}: {why}" if why else record.outcome
    if record.is_cut_off:
        why = f"cut off: {why}" if why else "cut off"
    scores = itertools.islice(record.named_scores.items(), _METRICS)
    metrics = {plain(name, NAME): score for name, score in scores}
    return [
        _STATUSES.index(status),
        record.score,
        record.latency_ms,
        record.tokens,
        record.cost,
        shown_text(record),
        why,
        metrics or None,
        row,
    ]


def shown_text(record: RowRecord) -> str:
    """Return the short form of a row as one line."""
    shown = record.shown
    if shown is None:
        return ""
    text = output_text(shown)
    # Replies may be megabytes: only the beginning is searched.
    return plain(" ".join(text[: 8 * _SAID].split()), _SAID).partition("… (")[0]


def test_name(record: RowRecord) -> str:
    """Return the name of the test of a row as one line."""
    return plain(" ".join(record.name[: 8 * NAME].split()), NAME)


# The activity of the lanes in a page: calls in flight, refusals and waits of each execution.


_NAME = 200  # characters
_SHORTEST_S = 0.05
_LANES_WORDS = {why.value: word for why, word in WAIT_WORDS.items()}


def lanes_json(executions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the data of the charts of lanes.

    Args:
        executions: The results of `Activity.json`, one for each execution.
    """
    keys = (key for execution in executions for key in execution["lanes"])
    names = lane_names(keys, labels_of(executions))
    return [
        {
            "seconds": execution["durationS"],
            "lanes": [
                _lane(key, names[key], lane, execution["durationS"])
                for key, lane in execution["lanes"].items()
            ],
        }
        for execution in executions
        if execution["lanes"]
    ]


def _lane(key: str, name: str, lane: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "name": plain(cut_middle(name, _NAME), _NAME),
        "key": plain(key, 4 * _NAME),
        "text": plain(", ".join(_facts(lane, seconds)), 4 * _NAME),
        "reasons": [_word(why) for why, _ in _waits(lane)],
        "bucket": lane["bucketS"],
        "buckets": [
            [*bucket[:5], {_word(why): waited for why, waited in bucket[5].items()}]
            for bucket in lane["buckets"]
        ],
    }


def _facts(lane: Mapping[str, Any], seconds: float) -> Iterator[str]:
    """Yield the facts of the chart in words."""
    yield counted(lane["calls"], "call")
    if lane["failed"]:
        yield f"{lane['failed']} failed"
    if lane["refused"]:
        yield f"{lane['refused']} refused (429)"
    if lane["tokens"]:
        yield counted(lane["tokens"], "token")
    if lane["cost"]:
        yield money(lane["cost"])
    if lane["closed"] is not None:
        yield f"closed: {lane['closed']}"
    waits = _waits(lane)
    if waits:
        parts = ", ".join(f"{_word(why)} {waited:.1f} s" for why, waited in waits)
        total = sum(waited for _, waited in waits)
        yield f"waited {total:.1f} s of {seconds:.1f} s: {parts}"


def _waits(lane: Mapping[str, Any]) -> Sequence[tuple[str, float]]:
    """Return the waits of a lane, the longest first, without those that round to 0.0 s."""
    waits = (found for found in lane["waits"].items() if found[1] >= _SHORTEST_S)
    return sorted(waits, key=lambda found: -found[1])


def _word(why: str) -> str:
    return _LANES_WORDS.get(why, why)


# The columns of a run in the summary of a page.


_ERRORS = 20  # groups of equal errors that are listed
_BAR = 120  # units of the width of a bar


@attrs.frozen
class Bar:
    """A pass rate and its interval as a bar, in units of which the bar has `_BAR`."""

    passed: float
    low: float
    high: float


@attrs.frozen(kw_only=True)
class ColumnSummary:
    """A column of the run in the summary."""

    provider: str
    prompt: str
    rows: int
    counts: tuple[int, int, int]
    """Passed, failed and errors."""
    not_graded: int
    """Rows that succeeded and have no assertion."""
    left: int
    """Rows that did not end."""
    rate: str | None
    """The pass rate and the number of rows that it is about; None without rows."""
    interval: str | None
    bar: Bar | None
    cells: tuple[str, ...]
    """Score, p50, p95, tokens and cost."""


def title_of(results: Results) -> str:
    """Return the title of a run: its description, or else the file name of its suite, or else its id."""
    head, suite = results.head, results.info.suite
    return head.config.get("description") or (PurePath(suite).name if suite else head.eval_id)


def minute_text(utc: str) -> str:
    """Return an instant to the minute; any other text is returned unchanged.

    Args:
        utc: ISO 8601.

    Example:
        >>> minute_text("2026-11-22T19:50:07.123Z"), minute_text("2026-11-22T20:50:07+01:00")
        ('2026-11-22 19:50 UTC', '2026-11-22 19:50 UTC')
    """
    try:
        found = datetime.fromisoformat(utc)
    except ValueError:
        return utc
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return f"{found:%Y-%m-%d %H:%M} UTC"


def sentence_of(totals: Totals) -> dict[str, Any]:
    """Return the number of rows with each status, for the template."""
    errors = totals.count(Status.ERROR)
    counts = [
        ("pass", totals.passed, "passed"),
        ("fail", totals.count(Status.FAIL), "failed"),
        ("error", errors, "error" if errors == 1 else "errors"),
    ]
    counts += [("not_graded", totals.not_graded, "not graded")] if totals.not_graded else []
    counts += [("not_run", totals.left, "not run")] if totals.left else []
    return {
        "rows": totals.rows,
        "counts": counts,
        "rate": percent(totals.passed, totals.rated) if totals.rated else None,
        "rated": counted(totals.rated, "row"),
        "hints": [*hint_lines([totals])],
    }


def lines_of(results: Results) -> Iterator[ColumnSummary]:
    """Yield the columns of a task.

    Args:
        results: The task.
    """
    for column, totals in zip(results.columns, results.totals.columns, strict=True):
        yield _column(column, results.prompt_text(column.label), totals)


def _column(column: HeadColumn, prompt: str, totals: ColumnTotals) -> ColumnSummary:
    passed, rows = totals.passed, totals.rated
    rate = totals.rate if rows else None
    estimate = totals.intervals.pass_interval()
    if estimate is None or estimate.low is None or estimate.high is None:
        interval, bar = None, None
    else:
        low, high = max(0.0, estimate.low), min(1.0, estimate.high)
        interval = f"{100 * low:.1f} to {100 * high:.1f}"
        bar = Bar(*(round(_BAR * share, 1) for share in (passed / rows, low, high)))
    return ColumnSummary(
        provider=column.provider,
        prompt=prompt,
        rows=totals.rows,
        counts=(passed, totals.statuses[Status.FAIL], totals.statuses[Status.ERROR]),
        not_graded=totals.not_graded,
        left=totals.left,
        rate=rate,
        interval=interval,
        bar=bar,
        cells=(*_numbers(totals),),
    )


def _numbers(totals: ColumnTotals) -> Iterator[str]:
    score = totals.intervals.score_interval()
    yield "–" if score is None else f"{score.mean:.3f}"
    for share in LATENCY_SHARES:
        latency_ms = totals.latency_at(share)
        yield "–" if latency_ms is None else f"{latency_ms:.0f}"
    replies = counted(totals.replies, "reply", "replies")
    cached = f" ({totals.from_cache} of {replies} from cache)" if totals.from_cache else ""
    yield f"{totals.tokens}{cached}"
    yield "–" if totals.cost is None else money(totals.cost)


def html_chunks(*parts: Results) -> Iterator[str]:
    """Yield the text of a page, a few hundred rows at a time.

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
    """Return the variables of the template for a task."""
    dataset = results.shown_dataset()
    return {
        "name": results.task,
        "sentence": sentence(results.head, results.totals),
        "lines": [] if dataset is not None else [*lines_of(results)],
        "errors": [*_errors(results)],
        "not_run": _not_run(results),
        "dataset": None if dataset is None else map(Markup, dataset_html(dataset, inert_html)),
    }


def _errors(results: Results) -> Iterator[tuple[str, str, str, str]]:
    """Yield the groups of rows that ended in the same error: count, numbers, provider and error."""
    if not results.totals.count(Status.ERROR):
        return
    failures = Failures(_ERRORS)
    for row in results.shown():
        if row.status is Status.ERROR:
            failures.add(row.number, row)
    for group in failures.groups:
        yield counted(group.rows.count, "row"), str(group.rows), group.provider, group.reason
    if rest := failures.count - failures.grouped:
        yield counted(rest, "more row", "more rows"), "", "", ""


def _not_run(results: Results) -> str | None:
    """Return the line about the rows that were not run; None if all were."""
    if not results.totals.outcome(*UNFINISHED):
        return None
    rows = RowNumbers()
    for row in results.rows():
        if row.outcome in UNFINISHED:
            rows.add(row.number)
    for one in results.never_began:
        if one["outcome"] in UNFINISHED:
            rows.add_range(range(one["firstRow"], one["lastRow"] + 1))
    return not_run_line(rows)


def _part_json(results: Results) -> dict[str, Any] | None:
    """Return the data of a task with rows for the script of the page."""
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
    characters, images = 0, EmbeddedImages()
    for number, results in enumerate(parts):
        if results.dataset is None:
            index, details = Packs(number, "index"), Packs(number, "details", characters)
            images.folder = results.info.media
            for element in _rows(results, index, details, images.embed):
                yield Markup(element)  # noqa: S704 - base64
            characters = details.characters


@attrs.define(eq=False)
class EmbeddedImages:
    """The images in a page; others are shown by their names, so that a page stays small."""

    folder: Path | None = None
    """The folder of their files."""
    _left: int = ALL_IMAGES

    def embed(self, media: Media) -> str | None:
        """Return an image as a `data:` URI; None if it is too large, or its file is not readable."""
        if (
            self.folder is None
            or media.kind != "image"
            or media.size > min(self._left, LARGEST_IMAGE)
        ):
            return None
        from trioeval.providers.media import data_uri, locate

        try:
            locate([media], self.folder)
            uri = data_uri(media)
        except (OSError, ValueError):
            return None
        self._left -= media.size
        return uri


def _rows(
    results: Results, index: Packs, details: Packs, embed: Callable[[Media], str | None]
) -> Iterator[str]:
    rows = itertools.count()
    for _, group in itertools.groupby(results.shown(), key=lambda row: row.test_idx):
        cells: list[Any] = [None] * len(results.columns)
        name, numbers = None, RowNumbers()
        for record in group:
            numbers.add(record.number)
            name = test_name(record) if name is None else name
            cells[record.prompt_idx] = cell_json(record, next(rows))
            yield from details.add(details_json(record, details.most, embed))
        yield from index.add([str(numbers), name, cells])
    yield from index.rest()
    yield from details.rest()
