"""Result files at the end of a run."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import trioeval
from trioeval.cli import collector, output
from trioeval.cli.collector import Collector
from trioeval.report import Results, RunInfo
from trioeval.tasks import prepare
from trioeval.testing import run_virtual

INSTANT = "2026-01-01T00:00:00.000Z"
INFO = RunInfo(eval_id="e", utc_created=INSTANT, utc_exported=INSTANT, duration_ms=0, versions={})


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
    prepared = prepare(trioeval.parse_suite({"providers": ["echo"]}), environ={})
    found = Collector.of(prepared, outputs, INFO, cell=40, tests=0)
    found.open()
    fault = "cannot be written: RecursionError: too deep; this is a fault of trioeval"
    assert [str(error) for error in found.close(INFO)] == [
        f"-o {tmp_path / 'a.csv'}: {fault}",
        f"-o {tmp_path / 'c.csv'}: {fault}",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "d.yaml"]


def test_keys_of_the_environment_are_in_no_file(tmp_path: Path) -> None:
    """Wherever a test has put them: neither rows nor the suite tell them."""
    key = "sk-0123456789"
    test = {"assert": [{"type": "contains", "value": f"it is {key}"}]}
    suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["p"], "tests": [test]})
    outputs = [tmp_path / "a.jsonl", tmp_path / "b.json", tmp_path / "c.csv"]
    prepared = prepare(suite, environ={"MY_API_KEY": key})
    found = Collector.of(prepared, outputs, INFO, cell=40, tests=0)
    found.open()
    for row in run_virtual(lambda: trioeval.collect(suite)):
        assert found.add(row) is None
    assert found.close(INFO) == []
    for path in outputs:
        text = path.read_text()
        assert "it is [hidden]" in text
        assert key not in text
