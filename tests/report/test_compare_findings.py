"""Significant differences between two runs: rows, columns and clusters."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text
from test_compare import Record, made

from trioeval.report.compare import Comparison
from trioeval.report.compare_chance import (
    chance_lines,
    chance_sentences,
    findings_table,
    nothing_shared,
)
from trioeval.report.compare_runs import Findings, KeptMetrics, findings_of
from trioeval.report.records import RowRecord
from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.paired import mcnemar
from trioeval.report.text import FittingTable

NOT_RUN = {"trioeval": {"outcome": "not_run"}}


def compared(
    old: Sequence[Record], new: Sequence[Record], confidence: float = 0.95, **how: Any
) -> tuple[Comparison, Findings]:
    comparison = Comparison(lambda: map(RowRecord.of, old), **how)
    for _ in comparison.changes(map(RowRecord.of, new)):
        pass
    return comparison, findings_of(comparison.columns, confidence)


def run(statuses: Sequence[int], **more: Any) -> list[Record]:
    """Return a row for each test: 0 passes, 1 fails, 2 has no verdict."""
    return [made(f"w{place}", status, **more) for place, status in enumerate(statuses)]


def test_pass_rates_are_compared_with_mcnemar() -> None:
    """Ten of forty tests became worse and one better.

    Scores equal to the pass rate are not tested a second time.
    """
    old = run([0] * 30 + [1] * 10)
    new = run([1] * 10 + [0] * 20 + [0] + [1] * 9)
    _, findings = compared(old, new)
    (column,) = findings.columns
    assert column.is_score_pass
    assert column.passed.p_value == column.passed.adjusted == mcnemar(1, 10)
    assert column.scored.p_value == column.passed.p_value
    assert (column.passed.answer, findings.is_worse, findings.is_better) == ("worse", True, False)
    difference = column.passed.difference
    assert difference is not None
    assert difference.n == 40
    assert difference.mean == pytest.approx(-9 / 40)
    assert compared(new, old)[1].is_better


def test_repeats_are_not_independent_observations() -> None:
    """A test that became worse five times is one observation."""
    names = [f"w{place}" for place in range(8) for _ in range(5)]
    old = [made(name) for name in names]
    new = [made(name, int(name == "w0")) for name in names]
    _, findings = compared(old, new)
    (column,) = findings.columns
    assert column.passed.p_value == 1
    assert column.passed.difference is not None
    assert (column.passed.difference.n, column.passed.difference.clusters) == (40, 8)


def test_clusters_come_from_the_named_variable_or_metadata() -> None:
    """Rows of one book are one observation."""
    old = [made("", vars={"n": n, "book": n % 2}) for n in range(20)]
    new = [made("", 1, vars={"n": n, "book": n % 2}) for n in range(20)]
    assert compared(old, new)[1].is_worse
    _, findings = compared(old, new, clusters={None: "book"})
    assert not findings.is_worse
    assert findings.columns[0].passed.p_value == 0.5


def test_rows_without_a_verdict_have_not_passed_and_have_no_score() -> None:
    """A run that only has errors is worse, whatever its scores."""
    _, findings = compared(run([0] * 8), run([2] * 8))
    (column,) = findings.columns
    assert (column.passed.answer, column.scored.difference) == ("worse", None)
    assert column.scored.answer is None
    _, findings = compared(run([0] * 8), run([0] * 4 + [2] * 4))
    scored = findings.columns[0].scored
    assert scored.difference is not None
    assert (scored.difference.n, scored.answer) == (4, "no difference")


def test_scores_alone_can_be_worse() -> None:
    """The pass rates are equal: all rows pass as before."""
    old, new = run([0] * 12, score=0.9), run([0] * 12, score=0.7)
    _, findings = compared(old, new)
    (column,) = findings.columns
    assert (column.passed.answer, column.scored.answer) == ("no difference", "worse")
    assert findings.is_worse


def test_p_values_are_adjusted_for_the_number_of_columns() -> None:
    """A change of one column may be chance among ten columns."""
    old, new = run([0] * 12), run([1] * 6 + [0] * 6)
    assert compared(old, new)[1].is_worse
    others = [row for n in range(9) for row in run([0] * 12, provider={"id": f"p{n}"})]
    _, findings = compared(old + others, new + others)
    first, *rest = findings.columns
    assert first.passed.p_value == mcnemar(0, 6) == 0.03125
    assert (first.passed.adjusted, first.passed.answer) == (0.3125, "no difference")
    assert {column.passed.answer for column in rest} == {"no difference"}


def test_rows_of_only_one_run_are_not_paired() -> None:
    """Without a common row the difference is unknown."""
    comparison, findings = compared(run([0, 0]), run([1, 1], task="other"))
    assert (findings.pairs, findings.is_worse) == (0, False)
    assert [column.passed.answer for column in findings.columns] == [None, None]
    assert [*chance_lines(findings)] == []
    assert [*chance_sentences(comparison.columns, findings)][-1] == (
        "no row is in both runs: the runs cannot be compared"
    )
    assert "–" in printed(comparison, findings)
    assert compared([], [])[1].columns == []


def verdict(**metrics: tuple[float, float]) -> Mapping[str, Any]:
    return {
        "componentResults": [],
        "namedScores": {name: value for name, (value, _) in metrics.items()},
        "namedScoreWeights": {name: weight for name, (_, weight) in metrics.items()},
    }


def test_metrics_are_shown_and_do_not_affect_the_verdict() -> None:
    """Metrics are weighted, and use only rows that have them in both runs."""
    old = [made(f"w{n}", gradingResult=verdict(m=(0.9, 1), x=(1, 1))) for n in range(9)]
    new = [made(f"w{n}", gradingResult=verdict(m=(0.1 + n / 100, 3))) for n in range(9)]
    _, findings = compared(old, new)
    assert not findings.is_worse
    metrics = findings.columns[0].metrics
    assert [*metrics] == ["m", "x"]
    assert metrics["m"].answer == "worse"
    assert (metrics["x"].difference, metrics["x"].answer) == (None, None)
    assert metrics["m"].difference is not None
    assert metrics["m"].difference.mean == pytest.approx(-0.76)


numbers = st.dictionaries(st.sampled_from("ab"), st.tuples(st.floats(0, 1), st.just(2.0)))


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(numbers, max_size=8))
def test_metrics_of_rows_are_preserved(rows: list[dict[str, tuple[float, float]]]) -> None:
    """Rows may lack some metrics."""
    kept = KeptMetrics()
    for place, metrics in enumerate(rows):
        kept.add(place, metrics)
    assert [kept.of(place) for place in range(len(rows))] == rows


@settings(max_examples=settings().max_examples // 8)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_swapping_the_runs_mirrors_the_result(statuses: list[tuple[int, int]]) -> None:
    """Swapped runs have the same p-values and mirrored intervals."""
    before, after = (run(side) for side in zip(*statuses, strict=True))
    (there,), (back,) = (
        found[1].columns for found in (compared(before, after), compared(after, before))
    )
    turned = {"better": "worse", "worse": "better"}
    for (_, one), (_, other) in zip(there.named(), back.named(), strict=True):
        assert one.p_value == pytest.approx(other.p_value)
        assert one.answer == turned.get(other.answer or "", other.answer)
        assert one.detectable == pytest.approx(other.detectable)
        if one.difference is not None and other.difference is not None:
            assert one.difference.mean == pytest.approx(-other.difference.mean)


def printed(comparison: Comparison, findings: Findings, width: int = 150) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(findings_table(comparison.columns, findings))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_findings_are_shown_as_a_table_and_sentences() -> None:
    """The table has intervals, p-values, the detectable difference and the rows needed; names are inert."""
    old = run([0] * 15 + [1] * 5, gradingResult=verdict(**{"\x1b[31mevil": (0.5, 1)}))
    new = run(
        [1] * 9 + [0] * 6 + [1] * 4 + [0], gradingResult=verdict(**{"\x1b[31mevil": (0.5, 1)})
    )
    comparison, findings = compared(old, new)
    table = printed(comparison, findings)
    assert "\x1b" not in table
    passed = next(line for line in table.splitlines() if "pass rate" in line)
    numbers = "75.0 % (53–89) 35.0 % (18–57) -40.0 (-63 to -11)"
    assert " ".join(passed.split()) == f"p | q pass rate {numbers} 0.021 worse"
    assert "score" not in table  # it repeats the pass rate
    evil = next(line for line in table.splitlines() if "evil" in line)
    assert evil.split()[-2:] == ["no", "difference"]
    *sentences, last = chance_sentences(comparison.columns, findings)
    assert sentences[0] == (
        "p | q, pass rate: 75.0 % (53–89) → 35.0 % (18–57); -40.0 (-63 to -11), p = 0.021: "
        "worse beyond chance"
    )
    assert last.startswith(
        "With 20 pairs a difference of 40 points is found in four of five comparisons; 5 points need about "
    )
    narrow = printed(comparison, findings, 60)
    assert "  pass rate, before 75.0 % (53–89), after 35.0 % (18–57)," in narrow
    assert "  difference -40.0 (-63 to -11), p 0.021," in narrow


def test_unfinished_rows_do_not_make_a_run_worse() -> None:
    """A stopped run is judged by the rows that ended; errors make it worse."""
    old = run([0] * 20)
    stopped = [made(f"w{n}", 2 * (n > 9), metadata=NOT_RUN if n > 9 else {}) for n in range(20)]
    comparison, findings = compared(old, stopped)
    assert (findings.pairs, findings.is_known, findings.is_worse) == (10, True, False)
    after = findings.columns[0].passed.after
    assert after is not None
    assert (after.mean, after.n) == (1, 10)
    assert "10 rows of the later run did not end" in " ".join(
        chance_sentences(comparison.columns, findings)
    )
    assert compared(old, run([0] * 10 + [2] * 10))[1].is_worse
    comparison, findings = compared(old, stopped[10:])
    assert findings.pairs == 0
    assert nothing_shared(comparison.columns).startswith("no row ended in both runs")


def test_intervals_are_cut_to_the_range_of_scores() -> None:
    """Scores beyond 0 to 1 are not cut."""
    few = run([0, 1], score=0.9), [made("w0", score=0.1), made("w1", score=0.9)]
    comparison, findings = compared(*few)
    scored = findings.columns[0].scored
    assert scored.after is not None
    assert scored.after.low is not None
    assert scored.after.low < 0
    assert scored.after.shown == (0.0, 1.0)
    assert scored.difference is not None
    assert scored.difference.shown == (-1.0, 1.0)
    assert "0.500 (0.000–1.000)" in printed(comparison, findings)
    _, wide = compared(few[0], [made("w0", score=0.1), made("w1", score=9.0)])
    after = wide.columns[0].scored.after
    assert after is not None
    assert after.shown == (after.low, after.high)


def test_several_columns_show_how_many_rows_changed() -> None:
    """Each column has its counts; a single column has them in the last line."""
    other = made("x", provider={"id": "other"})
    comparison, findings = compared([*run([0, 1]), other], [*run([1, 1]), other])
    first, second = (
        line.split() for line in printed(comparison, findings).splitlines() if "pass rate" in line
    )
    assert (first[5:7], second[5:7]) == (["0", "1"], ["0", "0"])


def test_the_detectable_difference_is_noted() -> None:
    """The note covers runs without a changed row, with too few rows, and with one cluster."""

    def line(old: Sequence[Record], new: Sequence[Record], **how: Any) -> str:
        (sentence,) = chance_lines(compared(old, new, **how)[1])
        return sentence

    same = run([0] * 15 + [1] * 5)
    assert line(same, same) == (
        "20 pairs of rows pass in both runs or in neither: with 95 % confidence the pass rates differ by "
        "less than 16.1 points"
    )
    assert line(same * 2, same * 2).startswith(
        "40 pairs of rows of 20 tests or clusters pass in both"
    )
    assert line(run([0] * 4), run([1] * 4)) == (
        "4 pairs of rows are too few to distinguish a difference of pass rates from chance: "
        "the smallest possible p is 0.12"
    )
    assert line(run([0]), run([1])).startswith(
        "1 pair of rows of 1 test or cluster: other tests may differ"
    )
    few = line(run([0, 1] * 3), run([1, 0] * 3))
    assert few.startswith("With 6 pairs no difference is found in four of five comparisons")
    assert line(run([0] * 6), run([1] * 6)) == (
        "6 pairs of rows: the number of rows that a difference of pass rates needs is unknown"
    )
    two = [made("x", provider={"id": "other"})]
    assert line(same + two, same + two).startswith("the largest column: 20 pairs")


def test_bootstrap_intervals_do_not_affect_the_verdict() -> None:
    """The bootstrap changes intervals of scores and metrics only; pass rates, p-values and verdicts stay."""
    old = [made(f"w{n}", score=0.9, gradingResult=verdict(m=(0.9, 1))) for n in range(9)]
    new = [made(f"w{n}", score=n / 10, gradingResult=verdict(m=(n * n / 90, 1))) for n in range(9)]
    comparison, plain = compared(old, new)
    drawn, again = (findings_of(comparison.columns, 0.95, Bootstrap(400)) for _ in range(2))
    assert drawn == again
    (ours,), (theirs,) = drawn.columns, plain.columns
    assert ours.passed == theirs.passed
    for one, other in ((ours.scored, theirs.scored), (ours.metrics["m"], theirs.metrics["m"])):
        assert (one.p_value, one.adjusted, one.answer, one.detectable) == (
            other.p_value,
            other.adjusted,
            other.answer,
            other.detectable,
        )
        assert one.difference is not None
        assert other.difference is not None
        assert one.difference.mean == other.difference.mean
        assert one.difference.low != other.difference.low
        assert one.after != other.after
        assert one.before == other.before  # equal values cannot be resampled
    assert next(chance_lines(drawn)) == (
        "intervals of scores and metrics: BCa bootstrap, 400 resamples of tests or clusters, seed 0"
    )


def test_one_cluster_cannot_be_compared() -> None:
    """Runs without pairs cannot be compared; one column with pairs is enough."""
    assert not compared(run([0]), run([1]))[1].is_known
    assert not compared(run([0]), run([1], task="t"))[1].is_known
    two = [made("x", provider={"id": "other"})]
    assert compared(run([0, 0]) + two, run([0, 0]) + two)[1].is_known


def test_no_table_cell_is_truncated() -> None:
    """A table that is too wide becomes lines."""
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("name")
    table.add_column("beyond chance", no_wrap=True)
    table.add_row("a", Text("no difference"))
    for width in range(8, 40):
        stream = io.StringIO()
        Console(file=stream, width=width).print(FittingTable(table))
        assert "nodifference" in "".join(stream.getvalue().split())
