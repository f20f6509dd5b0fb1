"""Derived metrics, computed from the metrics of a column when all of its rows are counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli.app import run_command_line
from trioeval.documents.files import FileContext
from trioeval.report.totals import ColumnTotals, derive
from trioeval.run import Status
from trioeval.suite.model import DerivedMetric

AROUND = FileContext(directory=Path("/nowhere"))


def column(**named: float) -> ColumnTotals:
    found = ColumnTotals(named_scores=dict(named))
    found.statuses[Status.PASS] = 4
    return found


def metrics(**values: str) -> list[DerivedMetric]:
    return [DerivedMetric(name=name, value=value) for name, value in values.items()]


def test_as_45_inputs_are_sums() -> None:
    """Two rows of 0.5 add up to 1, and twice that is 2."""
    totals = column(m=1.0)
    assert list(derive(metrics(double="m * 2"), totals, AROUND)) == []
    assert totals.derived == {"double": 2}
    assert totals.json()["namedScores"] == {"double": 2}


def test_later_metrics_may_use_earlier_ones() -> None:
    """A metric may use earlier ones and the number of rows."""
    totals = column(p=2.0, r=1.0)
    wanted = metrics(mean="(p + r) / 2 / __count", twice="mean * 2", p="0")
    assert list(derive(wanted, totals, AROUND)) == []
    assert totals.derived == {"mean": 0.375, "twice": 0.75, "p": 0}
    (warning,) = derive(metrics(twice="mean * 2", mean="p"), column(p=1.0), AROUND)
    assert warning == 'the derived metric "twice" is left out: unknown metric mean'


def test_a_metric_with_an_error_is_left_out_and_reported() -> None:
    """The others are computed."""
    totals = column(m=1.0, nothing=0.0)
    warnings = list(derive(metrics(a="m / nothing", b="m"), totals, AROUND))
    assert warnings == ['the derived metric "a" is left out: it divides by zero']
    assert totals.derived == {"b": 1}


def test_a_column_without_rows_has_no_derived_metrics() -> None:
    """It has no problem either."""
    totals = ColumnTotals()
    assert list(derive(metrics(a="m"), totals, AROUND)) == []
    assert totals.derived == {}


@pytest.mark.slow
def test_each_column_of_a_run_has_derived_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents have derived metrics with the sums; functions in files get the same numbers."""
    (tmp_path / "own.py").write_text(
        "def share(metrics):\n    return metrics['m'] / metrics['__count']\n"
        "def words(metrics):\n    return 'many'\n"
    )
    suite: dict[str, Any] = {
        "providers": ["echo", {"id": "echo", "label": "other"}],
        "prompts": ["{{x}}"],
        "tests": [
            {"vars": {"x": x}, "assert": [{"type": "contains", "value": "a", "metric": "m"}]}
            for x in ("a", "b", "ab", "c")
        ],
        "derivedMetrics": [
            {"name": "share", "value": "file://own.py:share"},
            {"name": "percent", "value": "100 * share"},
            {"name": "wrong", "value": "file://own.py:words"},
        ],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    output = tmp_path / "out.json"
    run_command_line([str(tmp_path / "suite.json"), "-o", str(output), "--no-progress"])
    prompts = json.loads(output.read_text())["results"]["prompts"]
    assert [one["metrics"]["namedScores"] for one in prompts] == [
        {"m": 2, "share": 0.5, "percent": 50}
    ] * 2
    messages = " ".join(capsys.readouterr().err.split())
    wrong = 'file://own.py:words must return a finite number, got "many"'
    assert messages.count(f'warning: the derived metric "wrong" is left out: {wrong}') == 1
