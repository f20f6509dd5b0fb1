"""The collector of rows during a run, and result files at its end."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.cli.run import results as collector
from trioeval.cli.run.execution import RowObserver
from trioeval.cli.run.results import write_documents
from trioeval.cli.run.start import Continuation, begin, start_of
from trioeval.errors import OutputError
from trioeval.evaluation.reconcile import Retry
from trioeval.report import files as output
from trioeval.report.results import Results, RunInfo
from trioeval.report.stored import RunStart
from trioeval.run import PreparedSuite, Row, RunOptions, Status, prepare, run_with_options
from trioeval.session.collector import Collector
from trioeval.store.store import open_store

INFO = RunInfo(utc_exported="2026-01-01T00:00:00.000Z", duration_ms=0)


def collected(
    prepared: PreparedSuite,
    outputs: Sequence[Path],
    *,
    database: Path | None = None,
    start: RunStart | None = None,
    continued: Continuation | None = None,
    stop_at: int | None = None,
) -> tuple[Collector, Sequence[OutputError]]:
    """The collector of an ended run, and the errors of files that could not be written."""
    start = start_of(prepared, {}) if start is None else start

    async def main() -> tuple[Collector, Sequence[OutputError]]:
        async with open_store(database) as store:
            run = await begin(store, start, continued)
            found = Collector.of(prepared, start, run, outputs, INFO, cell=40, tests=9)
            found.open()
            stop = trio.Event()

            async def emit(row: Row) -> None:
                assert await found.add(row) is None

            def notice(row: Row) -> None:
                if row.index == stop_at:
                    stop.set()

            run.stays_open = True
            await run_with_options(
                prepared,
                RunOptions(
                    emit=emit, journal=run, record_observers=[RowObserver(notice)], stop=stop
                ),
            )
            await found.add_rest()
            await run.durable()
            return found, [*found.close(), *write_documents(outputs, found.results(INFO))]

    return trio.run(main)


def test_a_failed_document_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes a failure because of a bug, which is reported with the file."""

    def write_results(path: Path, parts: Sequence[Results]) -> Sequence[Path]:
        if path.suffix == ".csv":
            raise RecursionError("too deep")
        return output.write_results(path, parts)

    monkeypatch.setattr(collector, "write_results", write_results)
    outputs = [tmp_path / "a.csv", tmp_path / "b.json", tmp_path / "c.csv", tmp_path / "d.yaml"]
    prepared = prepare(trioeval.parse_suite({"providers": ["echo"]}), environ={})
    _, errors = collected(prepared, outputs)
    fault = "cannot be written: RecursionError: too deep; this is a bug in trioeval"
    assert [str(error) for error in errors] == [
        f"{tmp_path / 'a.csv'}: {fault}",
        f"{tmp_path / 'c.csv'}: {fault}",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "d.yaml"]


def test_keys_of_the_environment_are_in_no_file(tmp_path: Path) -> None:
    """Rows, the suite and the database contain no key, wherever a test has put it."""
    key = "sk-0123456789"
    test = {"assert": [{"type": "contains", "value": f"it is {key}"}]}
    suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["p"], "tests": [test]})
    outputs = [tmp_path / "a.jsonl", tmp_path / "b.json", tmp_path / "c.csv"]
    database = tmp_path / "runs.db"
    _, errors = collected(prepare(suite, environ={"MY_API_KEY": key}), outputs, database=database)
    assert errors == []
    for path in outputs:
        text = path.read_text()
        assert "it is [hidden]" in text
        assert key not in text
    assert key.encode() not in database.read_bytes()


def words(*some: str) -> PreparedSuite:
    suite: dict[str, Any] = {
        "providers": ["echo"],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": word}} for word in some],
        "evaluateOptions": {"maxConcurrency": 1},
    }
    return prepare(trioeval.parse_suite(suite), environ={})


def test_stored_rows_are_merged_with_new_rows_in_order(tmp_path: Path) -> None:
    """Files, totals and tables contain each row once, with stored rows before, between and after new ones."""
    prepared, database = words(*"abcdef"), tmp_path / "runs.db"
    start = start_of(prepared, {})
    collected(prepared, [], database=database, start=start)
    continued = Continuation(retry=Retry("rows", (range(1, 2), range(3, 5))), reconciled={})
    outputs = [tmp_path / "a.jsonl", tmp_path / "b.json"]
    again, errors = collected(
        prepared,
        outputs,
        database=database,
        start=start,
        continued=continued,
    )
    assert errors == []
    rows = [json.loads(line) for line in outputs[0].read_text().splitlines()]
    assert [row["testIdx"] for row in rows] == list(range(6))
    assert [row["response"]["output"] for row in rows] == list("abcdef")
    document = json.loads(outputs[1].read_text())
    assert document["results"]["results"] == rows
    assert again.totals.count(Status.NOT_GRADED) == 6
    shown = again.parts[0].first_rows
    assert shown is not None
    assert list(shown.names) == list(range(6))


def test_every_row_is_reported_once(tmp_path: Path) -> None:
    """Stored rows are reported too, to observers that show the progress of the run."""
    prepared, database = words(*"abcd"), tmp_path / "runs.db"
    start = start_of(prepared, {})
    first, _ = collected(prepared, [], database=database, start=start, stop_at=1)
    assert first.totals.outcome("not_run") > 0
    statuses: list[Status] = []

    async def go_on() -> None:
        continued = Continuation(retry=Retry(), reconciled={})
        async with open_store(database) as store:
            run = await begin(store, start, continued)
            found = Collector.of(prepared, start, run, [], INFO, cell=40, tests=0)
            found.watch = lambda record, _kept: statuses.append(record.status)

            async def emit(row: Row) -> None:
                await found.add(row)

            await run_with_options(prepared, RunOptions(emit=emit, journal=run))
            await found.add_rest()

    trio.run(go_on)
    assert statuses == [Status.NOT_GRADED] * 4
