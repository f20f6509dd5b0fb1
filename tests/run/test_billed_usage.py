"""All that a provider charges is counted once in every total, for replies of every kind."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import chdir
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from billing import KINDS, BillingServer, Charge, billing_server
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval.cli import run_command_line
from trioeval.report.formats.parquet import PARQUET_COLUMNS
from trioeval.report.records import RowRecord

SUITE, RESULT, STORE = "suite.json", "out.json", ".trioeval/results.db"
SUMS = (
    "SELECT sum(tokens), sum(cost_usd) FROM results",
    "SELECT sum(tokens), sum(cost_usd) FROM calls",
)
HOLDS = {"type": "contains", "value": "yes"}
RUBRIC = '{"pass": true, "score": 1, "reason": "fine"}'


def run(folder: Path, suite: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a suite as a user does, and return the document of its task."""
    (folder / SUITE).write_text(json.dumps(suite))
    with chdir(folder):
        run_command_line([SUITE, "-o", RESULT, "--no-table", "--no-progress"])
    document: Mapping[str, Any] = json.loads((folder / RESULT).read_text())
    found: Mapping[str, Any] = document["tasks"]["quiz"] if "tasks" in document else document
    return found


def rows_with(server: BillingServer, charges: Sequence[Sequence[Charge]]) -> dict[str, Any]:
    """Return a suite with a row for each service and each sequence of replies."""
    server.begin(charges)
    tests = [{"vars": {"row": name}, "assert": [HOLDS]} for name in server.script]
    return {"providers": server.entries(), "prompts": ["<{{row}}>"], "tests": tests}


def first(folder: Path, query: str) -> tuple[Any, ...]:
    """Return the first line of the result of a query to the store."""
    connection = sqlite3.connect(folder / STORE)
    try:
        line: tuple[Any, ...] = connection.execute(query).fetchone()
        return line
    finally:
        connection.close()


def sums(usages: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """Return the tokens of prompts, of completions, and all of them."""
    prompt, completion, total = (
        sum(one[name] for one in usages) for name in ("prompt", "completion", "total")
    )
    return prompt, completion, total


def cost_of(found: Sequence[float | None]) -> float:
    return sum(one or 0.0 for one in found)


def check(server: BillingServer, folder: Path, document: Mapping[str, Any]) -> None:
    """Check that all totals are those of the server."""
    charged = server.total
    tokens, cost = charged.total, pytest.approx(server.cost)
    expected = (charged.prompt, charged.completion, tokens)
    results = document["results"]
    rows, prompts = results["results"], [one["metrics"] for one in results["prompts"]]
    assert sums([results["stats"]["tokenUsage"]]) == expected
    assert sums([one["tokenUsage"] for one in prompts]) == expected
    assert sums([one["tokenUsage"] for one in rows]) == expected
    assert cost_of([one["cost"] for one in prompts]) == cost
    assert cost_of([one["cost"] for one in rows]) == cost
    assert results["stats"]["tokenUsage"]["numRequests"] == len(server.charged)
    cells = {column.name: column.get for column in PARQUET_COLUMNS}
    records = [RowRecord.of(row) for row in rows]
    assert sum(cells["tokens"](None, one) for one in records) == tokens  # type: ignore[arg-type]
    assert cost_of([cells["cost_usd"](None, one) for one in records]) == cost  # type: ignore[arg-type]
    for query in (*SUMS, "SELECT tokens, cost_usd FROM runs"):
        found_tokens, found_cost = first(folder, query)
        # Both are NULL where no reply reported a usage.
        assert (found_tokens or 0, found_cost or 0.0) == (tokens, cost)
    (activity,) = first(folder, "SELECT body FROM activity")
    lanes = json.loads(activity)["lanes"].values()
    assert sum(one["tokens"] for one in lanes) == tokens
    assert cost_of([one["cost"] for one in lanes]) == cost


@pytest.mark.parametrize("is_flex", [False, True], ids=["standard", "flex"])
def test_every_kind_of_reply_of_every_service_is_counted(tmp_path: Path, is_flex: bool) -> None:  # noqa: FBT001
    """Alone, and before a reply that can be used; each at the price of the tier that it reports."""
    amounts = (Charge(kind, 2**n, 3**n) for n, kind in enumerate(KINDS))
    charges = [row for one in amounts for row in ([one], [one, Charge("ok", 7, 11)])]
    with billing_server() as server:
        server.is_flex = is_flex
        check(server, tmp_path, run(tmp_path, rows_with(server, charges)))
        assert len(server.charged) > 4 * len(charges)


COUNTS = st.integers(0, 10**6)
CHARGES = st.builds(Charge, st.sampled_from(KINDS), COUNTS, COUNTS)


@settings(max_examples=5)
@example(rows=[[Charge("free_down")]])
@given(rows=st.lists(st.lists(CHARGES, min_size=1, max_size=4), min_size=1, max_size=4))
def test_totals_are_what_the_server_charged(rows: list[list[Charge]]) -> None:
    """Over any sequence of replies: complete, empty, cut off, failed with a usage, tried again."""
    with TemporaryDirectory() as folder, billing_server() as server:
        check(server, Path(folder), run(Path(folder), rows_with(server, rows)))


def test_replies_to_judges_are_counted(tmp_path: Path) -> None:
    """They are counted apart from those of the providers under test, also where grading fails."""
    rows = [[Charge(kind, 5, 9, RUBRIC), Charge("ok", 7, 11, RUBRIC)] for kind in KINDS]
    rows += [[Charge(kind, 3, 4, RUBRIC)] for kind in KINDS]
    with billing_server() as server:
        server.begin(rows)
        judges = server.entries()
        tests = [
            {
                "vars": {"row": name},
                "assert": [{"type": "llm-rubric", "value": "fine", "provider": judge}],
            }
            for name, judge in product(server.script, judges)
        ]
        suite = {"providers": ["echo"], "prompts": ["<{{row}}>"], "tests": tests}
        document = run(tmp_path, suite)
        charged, results = server.total, document["results"]
        expected = (charged.prompt, charged.completion, charged.total)
        found = [row["tokenUsage"]["assertions"] for row in results["results"]]
        assert sums(found) == expected
        metrics = results["prompts"][0]["metrics"]
        assert sums([metrics["tokenUsage"]["assertions"]]) == expected
        assert metrics["gradingCost"] == pytest.approx(server.cost)
        assert metrics["cost"] == 0
        for query in SUMS:
            assert first(tmp_path, query) == (charged.total, pytest.approx(server.cost))


def test_replies_to_questions_are_counted(tmp_path: Path) -> None:
    """All replies of a question that has several steps or retries."""
    questions = [
        {"id": f"q{n}", "question": f"<row {n}>", "answers": ["A", "B"], "correct_answers": ["A"]}
        for n in range(2 * len(KINDS))
    ]
    file = {"version": 1, "questions": questions}
    (tmp_path / "questions.json").write_text(json.dumps(file))
    amounts = (Charge(kind, 2**n, 3**n, "<answer>A</answer>") for n, kind in enumerate(KINDS))
    charges = [row for one in amounts for row in ([one], [one, Charge("ok", 7, 11)])]
    with billing_server() as server:
        server.begin(charges)
        entry = {"id": "quiz", "type": "question_eval", "questionsFile": "questions.json"}
        check(server, tmp_path, run(tmp_path, {"providers": server.entries(), "tasks": [entry]}))
