"""A Parquet file of rows: a line for each, in typed columns, read by another program."""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import results_of

from trioeval.errors import OutputError, UsageError
from trioeval.report.files import check_outputs, write_results
from trioeval.report.formats import parquet as own
from trioeval.report.formats.parquet import PARQUET_COLUMNS, missing_for_parquet
from trioeval.report.results import Results
from trioeval.report.strip import Strip

duckdb = pytest.importorskip("duckdb", reason="needs the extra parquet")

DOCS = Path(__file__).parents[2] / "docs"


def lines_of(path: Path, *parts: Results) -> list[dict[str, Any]]:
    """Return the lines of the written file."""
    assert write_results(path, parts) == [path]
    read = duckdb.execute("SELECT * FROM read_parquet(?)", [str(path)])
    names = [name for name, *_ in read.description]
    return [dict(zip(names, line, strict=True)) for line in read.fetchall()]


def test_every_row_is_a_line(tmp_path: Path) -> None:
    """Rows are in order, with their values."""
    lines = lines_of(tmp_path / "rows.parquet", results_of())
    assert [(line["test"], line["prompt_number"]) for line in lines] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    first, echoed, failed, _ = lines
    assert first == first | {
        "run": "e1",
        "task": None,
        "row_id": "e1-test-0-prompt-0-repeat-0",
        "repeat": 0,
        "provider": "mine",
        "prompt_label": "say {{word}}",
        "vars": '{"word":"hi"}',
        "prompt": "say hi",
        "output": "say hi",
        "status": "fail",
        "score": 0.75,
        "outcome": "done",
        "calls": 1,
        "tokens": 5,
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "cost_usd": 0.5,
        "cached": False,
        "finish_reason": "stop",
        "metadata": '{"case":7}',
    }
    assert json.loads(first["metrics"]) == {"m": 0.75}
    assert echoed["provider"] == "back"
    assert (failed["description"], failed["status"], failed["error_kind"]) == (
        "second",
        "error",
        "server",
    )
    assert (failed["output"], failed["cost_usd"], failed["cached"]) == (None, None, None)
    assert "down" in failed["error"]


def test_columns_have_their_types_also_without_rows(tmp_path: Path) -> None:
    """All files have the same columns, so that several can be read together."""
    none = attrs.evolve(results_of(), records=lambda _prompt_idx: iter(()))
    for name, results in (("full", results_of()), ("empty", none)):
        write_results(tmp_path / f"{name}.parquet", [results])
    outputs = [
        duckdb.execute(f"DESCRIBE FROM read_parquet('{tmp_path / name}.parquet')").fetchall()
        for name in ("full", "empty")
    ]
    assert outputs[0] == outputs[1]
    types = {name: kind for name, kind, *_ in outputs[0]}
    assert list(types) == [column.name for column in PARQUET_COLUMNS]
    assert (types["test"], types["score"], types["cached"], types["vars"]) == (
        "BIGINT",
        "DOUBLE",
        "BOOLEAN",
        "VARCHAR",
    )
    everything = str(tmp_path / "*.parquet")
    (count,) = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [everything]).fetchone()
    assert count == 4


def test_all_tasks_are_in_one_file(tmp_path: Path) -> None:
    """Parts of a run follow each other, in batches of any size; the same rows give the same bytes."""
    results = results_of()
    parts = [
        attrs.evolve(results, head=attrs.evolve(results.head, task=task)) for task in ("a", "b")
    ]
    lines = lines_of(tmp_path / "one.parquet", *parts)
    assert [line["task"] for line in lines] == ["a"] * 4 + ["b"] * 4
    lines_of(tmp_path / "again.parquet", *parts)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()


def test_batches_are_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a batch are written, and the files of batches are removed."""
    results = results_of()
    whole = lines_of(tmp_path / "whole.parquet", results)
    monkeypatch.setattr(own, "_BATCH", 2)
    folder = tmp_path / "it's [a] *folder"
    folder.mkdir()
    assert lines_of_quoted(folder / "rows.parquet", results) == whole
    assert [path.name for path in folder.iterdir()] == ["rows.parquet"]


def lines_of_quoted(path: Path, results: Results) -> list[dict[str, Any]]:
    """A path with wildcard characters is written literally."""
    write_results(path, [results])
    moved = path.parents[1] / "moved.parquet"
    moved.write_bytes(path.read_bytes())
    read = duckdb.execute("SELECT * FROM read_parquet(?)", [str(moved)])
    names = [name for name, *_ in read.description]
    return [dict(zip(names, line, strict=True)) for line in read.fetchall()]


def test_texts_are_written_unchanged(tmp_path: Path) -> None:
    """Formulas are text; surrogates become escapes, other values JSON."""
    records = [dict(record) for record in results_of().records(None)]
    for record, output in zip(
        records, ["=1+1\x00\x1b[2J", "\ud800x", {"a": [1, "\ud800"]}, "ü\n"], strict=True
    ):
        record["response"] = {**(record["response"] or {}), "output": output}
    records[0]["tokenUsage"] = {"total": 2**70, "prompt": 1.5, "completion": "x"}
    records[0]["latencyMs"] = "soon"
    records[0]["cost"], records[0]["score"] = 10**400, float("inf")
    records[1]["tokenUsage"], records[1]["cost"] = {"total": 10**400}, float("nan")
    records[1]["vars"] = {"x": float("nan"), "y\ud800": 10**400}
    results = attrs.evolve(results_of(), records=lambda _prompt_idx: iter(records))
    lines = lines_of(tmp_path / "rows.parquet", results)
    assert [line["output"] for line in lines] == [
        "=1+1\x00\x1b[2J",
        "\\ud800x",
        lines[2]["output"],
        "ü\n",
    ]
    assert json.loads(lines[2]["output"]) == {"a": [1, "\ud800"]}
    # Numbers that do not fit the column are NULL.
    unknown = [
        lines[0][name] for name in ("tokens", "prompt_tokens", "completion_tokens", "latency_ms")
    ]
    assert unknown == [None] * 4
    huge = [lines[0]["cost_usd"], lines[0]["score"], lines[1]["tokens"], lines[1]["cost_usd"]]
    assert huge == [None] * 4
    read = duckdb.execute("SELECT json_extract(?, '$.x')", [lines[1]["vars"]]).fetchall()
    assert read == [("null",)]
    assert json.loads(lines[1]["vars"]) == {"x": None, "y\\ud800": 10**400}


def test_stripped_parts_are_left_out_of_parquet(tmp_path: Path) -> None:
    """The environment determines the folder of batches."""
    strip = Strip(prompt_text=True, response_output=True, test_vars=True, metadata=True)
    (first, *_) = lines_of(tmp_path / "rows.parquet", results_of(strip=strip))
    assert (first["prompt"], first["output"]) == ("[prompt stripped]", "[output stripped]")
    assert (first["vars"], first["metadata"]) == ("{}", "{}")


def test_a_failed_write_keeps_the_existing_file(tmp_path: Path) -> None:
    """A file is written completely, or not at all."""

    def broken(_prompt_idx: int | None) -> Any:
        yield next(results_of().records(None))
        raise OutputError("rows cannot be read")

    path = tmp_path / "rows.parquet"
    path.write_text("before")
    with pytest.raises(OutputError, match=r"rows\.parquet: rows cannot be read"):
        write_results(path, [attrs.evolve(results_of(), records=broken)])
    assert [found.name for found in tmp_path.iterdir()] == ["rows.parquet"]
    assert path.read_text() == "before"


def test_a_missing_package_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the command that installs it."""
    check_outputs([tmp_path / "rows.parquet"])
    assert missing_for_parquet() is None
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(
        UsageError, match=r"rows\.parquet: Parquet files need the extra `parquet`: pip"
    ):
        check_outputs([tmp_path / "rows.parquet"])


def test_the_docs_name_every_column() -> None:
    """The page has the descriptions of the columns."""
    page = (DOCS / "howto" / "export.md").read_text()
    for column in PARQUET_COLUMNS:
        assert f"| `{column.name}` | {column.kind} | {column.about} |" in page
