"""Totals that a run keeps when it ends: what is shown is the same as if all rows were read again."""

import json
import re
import sqlite3
from pathlib import Path

import pytest

from trioeval.cli import run_command_line
from trioeval.report.head import Head
from trioeval.report.kept_totals import kept_text, read_kept
from trioeval.report.totals import LATENCY_SHARES
from trioeval.store.reader import read_store
from trioeval.store.stored_results import totals_of

DATABASE = Path(".trioeval/results.db")
TESTS = 30


def suite(*bad: int) -> dict[str, object]:
    """Tests in two columns: some fail, some are not graded, two share a cluster, and there are metrics."""
    tests: list[dict[str, object]] = []
    for n in range(TESTS):
        check = {"type": "contains", "value": "never" if n in bad else "say", "metric": f"m{n % 2}"}
        test: dict[str, object] = {"vars": {"n": n}, "metadata": {"cluster": n // 2}}
        tests.append(test if n % 10 == 9 else test | {"assert": [check]})
    derived = [{"name": "both", "value": "m0 + m1"}]
    prompts = ["say {{n}}", "say it: {{n}}"]
    return {"providers": ["echo"], "prompts": prompts, "tests": tests, "derivedMetrics": derived}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stored run."""
    monkeypatch.chdir(tmp_path)
    Path("suite.json").write_text(json.dumps(suite(3, 4, 11)))
    run_command_line(["suite.json", "--no-table", "--no-progress"])
    return tmp_path


def forget() -> None:
    connection = sqlite3.connect(DATABASE)
    assert connection.execute("DELETE FROM part_totals").rowcount
    connection.commit()
    connection.close()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run_command_line([*arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "flags", [(), ("--limit", "3"), ("--failed",), ("--failed", "--limit", "1")]
)
@pytest.mark.usefixtures("folder")
def test_show_reads_only_the_rows_that_it_shows(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    """Its text is that of a run without kept totals, whose rows are all read."""
    kept = shown(capsys, "show", "latest", *flags)
    forget()
    assert kept == shown(capsys, "show", "latest", *flags)
    assert "60 rows: 48 passed, 6 failed, 0 errors, 6 not graded" in kept


@pytest.mark.usefixtures("folder")
def test_a_row_that_is_not_shown_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged record of a row that passed, beyond the first ones, disturbs nothing."""
    kept = shown(capsys, "show", "latest", "--limit", "3")
    connection = sqlite3.connect(DATABASE)
    connection.execute("UPDATE record SET body = '[' WHERE key & 2147483647 = 50")
    connection.commit()
    connection.close()
    assert kept == shown(capsys, "show", "latest", "--limit", "3")
    assert run_command_line(["show", "latest"]) != 0


@pytest.mark.parametrize("file", ["x.json", "x.html", "x.md"])
@pytest.mark.usefixtures("folder")
def test_exports_are_the_same(capsys: pytest.CaptureFixture[str], file: str) -> None:
    """The totals of an exported file are those of its rows."""
    texts = []
    for _ in range(2):
        shown(capsys, "export", "latest", "-o", file)
        texts.append(re.sub(r'"exportedAt": "[^"]*"', "", Path(file).read_text()))
        if len(texts) == 1:
            forget()
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("folder")
def test_a_resumed_run_keeps_its_new_totals(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the earlier execution are gone."""
    Path("suite.json").write_text(json.dumps(suite(4)))
    run_command_line(["suite.json", "--resume", "--reconcile", "--no-table", "--no-progress"])
    kept = shown(capsys, "show", "latest")
    assert "60 rows: 52 passed, 2 failed" in kept
    forget()
    assert kept == shown(capsys, "show", "latest")


@pytest.mark.usefixtures("folder")
def test_kept_totals_have_all_numbers() -> None:
    """Reading and keeping them again changes nothing."""
    with read_store(DATABASE) as reader:
        run = reader.run("latest")
        (head,) = map(Head.read, reader.heads(run))
        totals = totals_of(reader.records(run), head, None)
        text = reader.totals(run)
    assert text is not None
    found = read_kept(text)
    assert kept_text(found) == text
    for kept, column in zip(found.columns, totals.columns, strict=True):
        assert kept.json() == column.json()
        assert [kept.latency_at(share) for share in LATENCY_SHARES] == [
            column.latency_at(share) for share in LATENCY_SHARES
        ]
        assert (kept.rate, kept.tokens, kept.metrics) == (
            column.rate,
            column.tokens,
            column.metrics,
        )
    assert (found.vars, found.has_descriptions) == (totals.vars, totals.has_descriptions)


@pytest.mark.usefixtures("folder")
def test_damaged_totals_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the run and the file."""
    connection = sqlite3.connect(DATABASE)
    connection.execute("UPDATE part_totals SET body = '{}'")
    connection.commit()
    connection.close()
    assert run_command_line(["show", "latest"]) != 0
    assert "the totals of eval-" in capsys.readouterr().err
