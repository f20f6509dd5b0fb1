"""Logs read by the package of Inspect AI; run by hand if that is installed.

python -m pytest tests/report/inspect_package.py
"""

from pathlib import Path
from typing import Any

import pytest
from finished import results_of
from hostile import hostile, hostile_suite
from test_inspect_log import SUITE, mine

from trioeval.report.files import write_results

log_package: Any = pytest.importorskip("inspect_ai.log")


def test_the_inspect_package_reads_a_log(tmp_path: Path) -> None:
    """Headers, samples, summaries and metrics are read; the package computes equal metrics."""
    [path] = write_results(tmp_path / "run.eval", [results_of(SUITE, mine)])
    log = log_package.read_eval_log(str(path), resolve_attachments=True)
    assert (log.version, log.status, log.eval.config.epochs) == (2, "success", 2)
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(2 / 3)
    assert [sample.epoch for sample in log.samples].count(2) == 4
    summaries = log_package.read_eval_log_sample_summaries(str(path))
    assert sorted((one.id, one.epoch) for one in summaries) == sorted(
        (one.id, one.epoch) for one in log.samples
    )
    sample = log_package.read_eval_log_sample(str(path), 0, 2)
    assert (sample.output.completion, sample.scores["verdict"].as_str()) == ("a", "C")
    assert sample.output.stop_reason == "max_tokens"
    assert [one.name for one in log_package.list_eval_logs(str(tmp_path))]
    log_package.write_eval_log(log, str(tmp_path / "again.eval"))
    assert len(log_package.read_eval_log(str(tmp_path / "again.eval")).samples) == 8


def test_hostile_texts_do_not_make_a_log_unreadable(tmp_path: Path) -> None:
    """Markup, controls, surrogates and huge lines are ordinary texts."""
    [path] = write_results(tmp_path / "run.eval", [results_of(hostile_suite(), hostile)])
    log = log_package.read_eval_log(str(path))
    assert len(log.samples) == log.results.total_samples
