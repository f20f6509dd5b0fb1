"""What the table of a page knows of a row: enough to show, sort, search and filter it."""

from collections.abc import Mapping
from typing import Any

from trioeval.grading import output_text
from trioeval.report.html_report.inert_text import plain
from trioeval.report.records import name_of_test, own_of, shown_of, status_of
from trioeval.tasks import Status

NAME = 160  # characters of the name of a test
_SAID = 200  # of an answer
_WHY = 200  # of a reason
_METRICS = 40  # of a row that are told
_STATUSES = (Status.PASS, Status.FAIL, Status.ERROR, Status.NOT_RUN)

CELL_FIELDS = ("status", "score", "ms", "tokens", "cost", "said", "why", "metrics", "row")
"""What stands in a cell, in this order; `status` by its place among pass, fail, error and not run."""


def cell_json(record: Mapping[str, Any], row: int) -> list[Any]:
    """A row in the order of `CELL_FIELDS`.

    Args:
        record: As `row_json` made it, without what must not be shown.
        row: Its number among those that the page has details of.
    """
    status, own = status_of(record), own_of(record)
    graded = record["gradingResult"]
    reason = record["error"] if graded is None else graded["reason"]
    # The reason of an error is what is shown of it, and nobody asks why a row has passed.
    why = plain(reason, _WHY) if status is Status.FAIL and reason else ""
    if status.has_verdict and own["outcome"] not in {"done", "failed"}:
        why = f"{own['outcome']}: {why}" if why else str(own["outcome"])
    metrics = {
        plain(name, NAME): score for name, score in [*record["namedScores"].items()][:_METRICS]
    }
    return [
        _STATUSES.index(status),
        record["score"],
        record["latencyMs"],
        record["tokenUsage"]["total"],
        record["cost"],
        said_of(record),
        why,
        metrics or None,
        row,
    ]


def said_of(record: Mapping[str, Any]) -> str:
    """What stands for a row where there is little room, as one line."""
    shown = shown_of(record)
    if shown is None:
        return ""
    text = output_text(shown)
    # What nobody can see is not looked through; replies may be megabytes.
    return plain(" ".join(text[: 8 * _SAID].split()), _SAID).partition("… (")[0]


def test_name(record: Mapping[str, Any]) -> str:
    """What the test of a row is called, as one line."""
    return plain(" ".join(name_of_test(record)[: 8 * NAME].split()), NAME)
