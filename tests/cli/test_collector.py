"""Result files at the end of a run."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import trioeval
from trioeval.cli import collector, output
from trioeval.cli.collector import Collector
from trioeval.report import Results, RunInfo
from trioeval.tasks import prepare


def test_a_document_that_fails_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if it is our fault: that is told, with the file."""

    def write_results(path: Path, parts: Sequence[Results]) -> None:
        if path.suffix == ".csv":
            raise RecursionError("too deep")
        output.write_results(path, parts)

    monkeypatch.setattr(collector, "write_results", write_results)
    outputs = [tmp_path / "a.csv", tmp_path / "b.json", tmp_path / "c.csv", tmp_path / "d.yaml"]
    instant = "2026-01-01T00:00:00.000Z"
    info = RunInfo(
        eval_id="e", utc_created=instant, utc_exported=instant, duration_ms=0, versions={}
    )
    prepared = prepare(trioeval.parse_suite({"providers": ["echo"]}), environ={})
    found = Collector.of(prepared, outputs, info, cell=40, tests=0)
    found.open()
    fault = "cannot be written: RecursionError: too deep; this is a fault of trioeval"
    assert [str(error) for error in found.close(info)] == [
        f"-o {tmp_path / 'a.csv'}: {fault}",
        f"-o {tmp_path / 'c.csv'}: {fault}",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "d.yaml"]
