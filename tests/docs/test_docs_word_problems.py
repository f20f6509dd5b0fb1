"""The example that generates word problems and sends them to models: a real process, real files, twice."""

import json
import operator
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import duckdb
import pytest
from snippets import DOCS, ROOT

pytestmark = pytest.mark.slow

EXAMPLE = "word-problems.yaml"
ROWS = 120
ASKED = 100
_OPERATIONS = {
    "add": operator.add,
    "take": operator.sub,
    "times": operator.mul,
    "share": operator.truediv,
}


@attrs.frozen
class Made:
    """The results of one run."""

    folder: Path
    code: int
    stderr: str
    results: Sequence[Mapping[str, Any]]

    def of(self, task: str) -> list[Mapping[str, Any]]:
        return [row for row in self.results if row["task"] == task]

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        files = self.folder / "datasets/problems/final/batch_*.parquet"
        found: list[tuple[Any, ...]] = duckdb.execute(query.format(f"'{files}'")).fetchall()
        return found

    def files(self) -> dict[str, bytes]:
        dataset = self.folder / "datasets"
        return {
            str(path.relative_to(dataset)): path.read_bytes()
            for path in sorted(dataset.rglob("*"))
            if path.is_file()
        }


def run(folder: Path) -> Made:
    folder.mkdir()
    shutil.copy(DOCS / "examples" / EXAMPLE, folder)
    done = subprocess.run(
        [sys.executable, "-m", "trioeval", EXAMPLE, "-o", "out.jsonl", "--no-progress"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    out = folder / "out.jsonl"
    lines = out.read_text().splitlines() if out.exists() else []
    results = [found for line in lines if "provider" in (found := json.loads(line))]
    return Made(folder, done.returncode, done.stderr, results)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return run(tmp_path_factory.mktemp("problems") / "first")


def test_a_hundred_problems_are_generated_and_sent(made: Made) -> None:
    """More are generated than sent, since some are dropped on purpose; only wrong answers fail."""
    assert made.code == 100, made.stderr
    [(written, different)] = made.sql("select count(*), count(distinct problem) from {}")
    assert ASKED <= written < ROWS
    assert different == written
    assert f"{written} of {ROWS} rows written" in made.stderr
    assert re.search(r"dropped: filtered \d+, validation \d+$", made.stderr, re.MULTILINE)
    assert len(made.of("exam")) == ASKED
    assert len(made.of("quiz")) == 20
    assert ", 0 errors;" in made.stderr


def test_the_problems_vary(made: Made) -> None:
    """They differ not only in their numbers."""
    texts = [text for (text,) in made.sql("select problem from {}")]
    plots = {re.sub(r"\d+", "#", text) for text in texts}
    assert len(plots) > len(texts) * 0.8
    by_operation = made.sql("select operation, count(*) from {} group by operation")
    assert {name for name, _ in by_operation} == set(_OPERATIONS)
    assert min(count for _, count in by_operation) > ROWS / 10


def test_the_answers_are_right(made: Made) -> None:
    """They are computed once more from the numbers in the texts."""
    for text, operation, answer in made.sql("select problem, operation, answer from {}"):
        first, second = map(int, re.findall(r"\d+", text))
        assert _OPERATIONS[operation](first, second) == answer, text


def test_only_accepted_problems_are_kept(made: Made) -> None:
    """The judge is not called for the others."""
    [(kept,)] = made.sql(
        "select count(*) from {} where checked->>'$.pass' = 'true'"
        " and quality->>'$.clarity.score' = '5' and problem like '%?'"
    )
    assert [(kept,)] == made.sql("select count(*) from {}")
    problems = made.folder / "datasets/problems"
    assert "problem__trace" in json.loads((problems / "dataset.json").read_text())["columns"]
    columns = {name for name, *_ in made.sql("describe select * from {}")}
    assert columns.isdisjoint({"problem__trace", "pattern", "story", "a"})
    files = f"from '{problems}/aside/final/*.parquet'"
    aside = duckdb.execute(f"select problem__trace {files}").fetchall()
    assert len(aside) == kept
    assert all(json.loads(trace)[-1]["role"] == "assistant" for (trace,) in aside)


def test_the_student_is_right_four_times_of_five(made: Made) -> None:
    """Its right rows pass, and no others; each reply belongs to its own row."""
    exam = made.of("exam")
    passed = sum(row["success"] for row in exam)
    assert 70 <= passed <= 90
    rows = made.sql("select problem, answer from {}")[:ASKED]
    assert [(row["vars"]["problem"], row["vars"]["answer"]) for row in exam] == rows
    for row in exam:
        answer = int(row["response"]["output"])
        assert (answer == row["vars"]["answer"]) is row["success"]
    assert 0 < sum(row["success"] for row in made.of("quiz")) < 20


def test_a_second_run_is_the_same(made: Made, tmp_path: Path) -> None:
    """Every file has the same bytes, and the verdicts are the same."""
    again = run(tmp_path / "again")
    assert again.files() == made.files()
    assert len(made.files()) == 14
    for task in ("exam", "quiz"):
        stderr = [
            [(row["testIdx"], row["response"]["output"], row["success"]) for row in one.of(task)]
            for one in (made, again)
        ]
        assert stderr[0] == stderr[1]
