"""Results as a page: totals on top, below them a line a test with what every provider answered.

One file that needs no other, no script and no network. What models answer is foreign text: nothing of it
is markup, and a policy in the page forbids everything that markup could load or run. Long texts are cut,
as a page that holds every character of a large run can be opened by no browser; result files of other
formats hold them all.
"""

import html
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading import output_text
from trioeval.grading.text import score_text
from trioeval.report.agent_facts import agent_lines, agent_of
from trioeval.report.dataset_html import dataset_html
from trioeval.report.head import HeadColumn
from trioeval.report.questions import run_sentence, sentence
from trioeval.report.records import name_of_test, output_of, own_of, shown_of, status_of
from trioeval.report.results import Results
from trioeval.report.totals import ColumnTotals, Totals, nearest_rank, percent
from trioeval.tasks import Status

_OUTPUT = 1500  # characters of an answer
_REASON = 500  # of a reason, a name or a heading
_AGENT = 20_000  # of the attempts of an agent

_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, what turns the direction of text around, and halves of characters."""


def html_chunks(*parts: Results) -> Iterator[str]:
    """The text of a page, a line a test at a time.

    Args:
        parts: One run, or its tasks.
    """
    first = parts[0].head
    whole = Totals.joined(part.totals for part in parts)
    title = inert_html(first.config.get("description") or first.eval_id, _REASON)
    yield _BEGIN.format(title=title, style=_STYLE)
    only_datasets = not whole.rows and any(part.dataset is not None for part in parts)
    yield f"<h1>{title}</h1>\n" + ("" if only_datasets else f"<p>{_sentence(whole)}</p>\n")
    about = [first.eval_id, first.utc_created, f"{parts[0].info.duration_ms / 1000:.1f} s"]
    yield f"<p class=dim>{' · '.join(inert_html(one, _REASON) for one in about)}</p>\n"
    if (told := run_sentence((part.head, part.totals) for part in parts)) is not None:
        yield f"<p>{told}</p>\n"
    for results in parts:
        if results.task is not None:
            yield f"<h2>{inert_html(results.task, _REASON)}</h2>\n"
        if (told := sentence(results.head, results.totals)) is not None:
            yield f"<p>{inert_html(told, _REASON)}</p>\n"
        if (dataset := results.shown_dataset()) is not None:
            yield from dataset_html(dataset, inert_html)
            continue
        yield from _columns(results)
        yield from _rows(results)
    yield "</main></body></html>\n"


def inert_html(text: object, most: int) -> str:
    r"""Foreign text as it may stand in a page.

    Args:
        text: Anything.
        most: Characters that are shown.

    Example:
        >>> inert_html("<b>\x1b[1m" + "x" * 9, 8), inert_html('a "b"', 9)
        ('&lt;b&gt;\ufffd[1mx… (16 characters)', 'a &quot;b&quot;')
    """
    whole = str(text)
    shown = whole[:most]
    if not shown.isprintable():  # most texts are, which is quickly seen
        shown = _FORBIDDEN.sub("\ufffd", shown)
    shown = html.escape(shown)
    return shown if len(whole) <= most else f"{shown}… ({len(whole)} characters)"


def _sentence(totals: Totals) -> str:
    counts = ", ".join(
        f"<b class={status.value}>{totals.count(status)}</b> {name}"
        for status, name in zip(Status, ("passed", "failed", "without a verdict"), strict=True)
    )
    rate = f" – {percent(totals.count(Status.PASS), totals.rows)} % passed" if totals.rows else ""
    return f"{totals.rows} rows: {counts}{rate}"


def _heading(results: Results, column: HeadColumn) -> str:
    label = inert_html(results.prompt_text(column.label), _REASON)
    return f"{inert_html(column.provider, _REASON)}<br><span class=dim>{label}</span>"


def _columns(results: Results) -> Iterator[str]:
    names = ("provider, prompt", *_COUNTED)
    yield "<table>\n<thead>" + _line("th", names) + "</thead>\n<tbody>\n"
    for column, totals in zip(results.columns, results.totals.columns, strict=True):
        yield _line("td", [_heading(results, column), *_counts(totals)])
    yield "</tbody></table>\n"


_COUNTED = (
    *("pass", "fail", "error", "pass rate", "score", "p50 ms", "p95 ms", "tokens", "US dollars"),
)


def _counts(totals: ColumnTotals) -> Iterator[str]:
    for status in Status:
        yield str(totals.statuses[status])
    passed, rows = totals.statuses[Status.PASS], totals.rows
    yield f"{percent(passed, rows)} %" if rows else "–"
    yield f"{totals.score / rows:.3f}" if rows else "–"
    for share in (0.50, 0.95):
        latency_ms = nearest_rank(totals.latencies, share)
        yield "–" if latency_ms is None else f"{latency_ms:.0f}"
    yield str(totals.usage["total"])
    yield "–" if totals.cost is None else f"{totals.cost:.4f}"


def _rows(results: Results) -> Iterator[str]:
    headings = (_heading(results, column) for column in results.columns)
    yield "<table>\n<thead>" + _line("th", ["#", "test", *headings]) + "</thead>\n<tbody>\n"
    for test_idx, group in itertools.groupby(results.shown(), key=lambda row: row["testIdx"]):
        by_column = {row["promptIdx"]: row for row in group}
        name = name_of_test(next(iter(by_column.values())))
        cells = (_cell(by_column.get(idx)) for idx in range(len(results.columns)))
        yield _line("td", [str(test_idx), f"<div>{inert_html(name, _REASON)}</div>", *cells])
    yield "</tbody></table>\n"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    status, output, graded = status_of(row), output_of(row), row["gradingResult"]
    reason = row["error"] if graded is None else graded["reason"]
    facts = [f"score {score_text(row['score'])}"] if status is not Status.ERROR else []
    facts += [] if row["latencyMs"] is None else [f"{row['latencyMs']:.0f} ms"]
    facts += [] if own_of(row)["outcome"] in {"done", "failed"} else [own_of(row)["outcome"]]
    said = "" if output is None else inert_html(output_text(output), _OUTPUT)
    why = inert_html(reason or "", _REASON)
    return (
        f"<b class={status.value}>{status.name}</b> "
        f"<span class=dim>{inert_html(', '.join(facts), _REASON)}</span>"
        + (f"<div>{said}</div>" if said and "question" not in row else "")
        + (_answer(row, said) if "question" in row else "")
        + _agent(row)
        + (f"<div class=why>{why}</div>" if why else "")
    )


def _answer(row: Mapping[str, Any], reply: str) -> str:
    """What was chosen of the answers to a question; the reply, which may be long, where it is asked for."""
    # Why there is no verdict is told below, as of every row.
    shown = "" if status_of(row) is Status.ERROR else inert_html(shown_of(row) or "", _OUTPUT)
    whole = f"<details><summary>reply</summary><div>{reply}</div></details>"
    return (f"<div>{shown}</div>" if shown else "") + (whole if reply else "")


def _agent(row: Mapping[str, Any]) -> str:
    """The attempts of an agent, where they are asked for."""
    agent = agent_of(row)
    if agent is None:
        return ""
    told = inert_html("\n".join(agent_lines(agent)), _AGENT)
    count = len(agent.attempts)
    name = "1 attempt" if count == 1 else f"{count} attempts"
    return f"<details><summary>{name}</summary><div>{told}</div></details>"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>\n"


_BEGIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style></head>
<body><main>
"""

_STYLE = """
:root {
  color-scheme: light dark;
  --line: light-dark(#d5d9de, #3a4048); --dim: light-dark(#5c6670, #9aa4ae);
  --pass: light-dark(#17702f, #6fd18a); --fail: light-dark(#b3261e, #ff8a80);
  --error: light-dark(#8a5a00, #ffc45c);
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem; }
body { background: light-dark(#fff, #16191d); color: light-dark(#1b1f24, #e4e7ea); }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
p { margin: .2rem 0; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { position: sticky; top: 0; background: light-dark(#f3f5f7, #21262c); font-weight: 600; }
td div { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
td div { min-width: 9rem; max-width: 48rem; max-height: 16rem; overflow: auto; }
.dim, .why { color: var(--dim); }
.dim { font-weight: 400; }
summary { color: var(--dim); cursor: pointer; }
.why { border-top: 1px dotted var(--line); margin-top: .3rem; padding-top: .2rem; }
.pass { color: var(--pass); }
.fail { color: var(--fail); }
.error { color: var(--error); }
"""
