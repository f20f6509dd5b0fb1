"""Token counters that are zero, left out of documents and lines on request."""

import json
from typing import Any

import attrs
from finished import results_of

from trioeval.report.formats.document import document
from trioeval.report.formats.json import json_chunks
from trioeval.report.results import Results, row_without_zeros


def written(results: Results, *, omit: bool = True) -> Any:
    info = attrs.evolve(results.info, omit_zero_counters=omit)
    return json.loads("".join(json_chunks(document(attrs.evolve(results, info=info)))))


def counters(document: Any, path: str = "") -> dict[str, float]:
    """Return all token counters of a document that are not zero, by path."""
    found: dict[str, float] = {}
    parts = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for name, part in parts:
        at = f"{path}.{name}"
        if isinstance(part, dict | list):
            found |= counters(part, at)
        elif part and ("tokenUsage" in path or "tokensUsed" in path):
            found[at] = part
    return found


def test_counters_that_are_not_zero_remain() -> None:
    """Everything else of the document remains as well."""
    results = results_of()
    whole, short = written(results, omit=False), written(results)
    assert counters(short) == counters(whole)
    assert counters(whole)[".results.results.0.tokenUsage.total"] == 5
    assert without_counters(short) == without_counters(whole)
    assert len(json.dumps(short)) < 0.8 * len(json.dumps(whole))


def without_counters(value: Any) -> Any:
    if isinstance(value, dict):
        hidden = {"tokenUsage", "tokensUsed"}
        return {name: without_counters(part) for name, part in value.items() if name not in hidden}
    return [*map(without_counters, value)] if isinstance(value, list) else value


def test_no_counter_is_zero() -> None:
    """A usage without any counter is an empty object, and a judge's is missing."""
    row = written(results_of())["results"]["results"][2]
    assert row["error"] == "server: down"
    assert row["tokenUsage"] == {}
    first = written(results_of())["results"]["results"][0]
    used = {"prompt": 2, "completion": 3, "total": 5, "numRequests": 1}
    assert first["response"]["tokenUsage"] == used
    assert "tokensUsed" not in first["gradingResult"]
    assert [*first["gradingResult"]["componentResults"][0]][:4] == [
        *("pass", "score", "reason", "namedScores")
    ]


def test_a_line_has_the_content_of_the_document() -> None:
    """By default it is the text of the store."""
    results = results_of()
    (record, *_) = results.rows()
    short = attrs.evolve(results.info, omit_zero_counters=True)
    assert json.loads(short.row_line(record)) == written(results)["results"]["results"][0]
    assert results.info.row_line(record) == record.text


def test_values_of_users_are_unchanged() -> None:
    """Their variables and metadata may have the same names."""
    used = {"tokenUsage": {"total": 0}, "tokensUsed": {"total": 0}}
    row = {"vars": used, "metadata": used, "response": {"output": used}, "tokenUsage": 7}
    assert row_without_zeros(row) == row


def test_verdicts_of_a_row_that_ended_in_an_error_are_shortened() -> None:
    """They are among the members that only trioeval writes."""
    own = {"outcome": "done", "componentResults": [{"pass": True, "tokensUsed": {"total": 0}}, 3]}
    found = row_without_zeros({"metadata": {"case": 1, "trioeval": own}})
    assert found["metadata"]["case"] == 1
    assert found["metadata"]["trioeval"]["componentResults"] == [{"pass": True}, 3]
