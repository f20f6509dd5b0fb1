"""What is found of two runs, beyond chance or not, for people."""

from collections.abc import Iterable, Iterator

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.report.compare_columns import ColumnChange
from trioeval.report.compare_findings import ColumnFindings, Findings
from trioeval.report.compare_tables import name_of_column, number_of
from trioeval.report.fitting import FittingTable
from trioeval.report.inert import inert
from trioeval.report.statistics import Estimate, Finding

_STYLES = {"better": "green", "worse": "red"}
_RARE = 0.001
_NAME = 30  # characters of the name of a metric
_TOLD = (0.05, 0.01)
"""Differences of pass rates for which it is told how many rows they need."""


def findings_table(columns: Iterable[ColumnChange], findings: Findings) -> FittingTable:
    """A line for the pass rate, the score and each metric of a column: before, after, and the difference.

    Pass rates are in percent. Behind each mean stands its interval; p is adjusted for the number of
    questions; `detectable` is the least difference that so many rows show in four of five comparisons.
    """
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("provider | prompt", overflow="fold", min_width=12)
    table.add_column("", overflow="fold")
    for name in ("before", "after", "difference", "p", "detectable"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("beyond chance", overflow="fold")
    for column, found in zip(columns, findings.columns, strict=True):
        heading = name_of_column(column)
        for name, finding in found.named():
            is_rate = finding is found.passed
            table.add_row(
                Text(heading),
                Text(inert(name, _NAME)),
                *(_shown(one, is_rate=is_rate) for one in (finding.before, finding.after)),
                _shown(finding.difference, is_rate=is_rate, signed=True),
                _chance(finding.adjusted),
                _detectable(finding, is_rate=is_rate),
                _answer(finding),
            )
            heading = ""
    return FittingTable(table)


def chance_lines(findings: Findings) -> Iterator[str]:
    """What is to be said beside the table: how intervals were made, and what so many rows can tell."""
    if not findings.pairs:
        yield "no row is in both runs: nothing can be said of their difference"
        return
    if (how := findings.bootstrap) is not None:
        yield (
            f"intervals of scores and metrics: BCa bootstrap, {how.resamples:,} resamples of tests "
            f"or clusters, seed {how.seed}"
        )
    widest = max(findings.columns, key=_telling).passed
    if (difference := widest.difference) is not None:
        where = "" if len(findings.columns) == 1 else "the largest column: "
        yield from (where + told for told in _told_of_rates(widest, difference))


def _telling(column: ColumnFindings) -> tuple[int, bool]:
    """Of columns with as many pairs, one whose pass rate has changed tells more."""
    difference = column.passed.difference
    return column.pairs, difference is not None and difference.mean != 0


def _told_of_rates(finding: Finding, difference: Estimate) -> Iterator[str]:
    groups, pairs = difference.clusters, _counted(difference.n, "pair of rows", "pairs of rows")
    if groups == 1:
        yield f"{pairs} of 1 test or cluster: nobody can know how others would differ"
        return
    own = "" if groups == difference.n else f" of {groups:,} tests or clusters"
    if (rarest := 2.0 ** (1 - groups)) > 1 - difference.confidence:
        yield (
            f"{pairs}{own} are too few to tell any difference of the pass rate from chance: "
            f"at the best p is {_chance(rarest)}"
        )
        return
    if difference.mean == 0 and difference.standard_error is None and difference.high is not None:
        yield (
            f"{pairs}{own} pass in both runs or in neither: with {100 * difference.confidence:g} % "
            f"confidence the pass rates differ by less than {100 * difference.high:.1f} points"
        )
        return
    wanted = [finding.needed(effect) for effect in _TOLD]
    if None in wanted:
        yield f"{pairs}{own}: how many rows a difference of the pass rate needs cannot be told"
        return
    few, many = (f"{rows:,}" for rows in wanted)
    least = finding.detectable
    told = "no difference" if least is None else f"a difference of {100 * least:.1f} points"
    yield (
        f"{pairs}{own} tell {told} of the pass rate in four of five comparisons; "
        f"5 points take about {few}, and 1 point {many}"
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def told_of(columns: Iterable[ColumnChange], findings: Findings) -> Iterator[str]:
    """The same in sentences, one for each number of a column."""
    for column, found in zip(columns, findings.columns, strict=True):
        for name, finding in found.named():
            yield _sentence(name_of_column(column), name, finding, found)
    yield from chance_lines(findings)


def _sentence(heading: str, name: str, finding: Finding, column: ColumnFindings) -> str:
    is_rate = finding is column.passed
    before, after = (_shown(one, is_rate=is_rate) for one in (finding.before, finding.after))
    difference = _shown(finding.difference, is_rate=is_rate, signed=True)
    chance = "" if finding.adjusted is None else f", p = {_chance(finding.adjusted)}"
    told = f"{before} → {after}; {difference}{chance}: {_answers(finding)} beyond chance"
    return f"{heading}, {inert(name, _NAME)}: {told}"


def _shown(found: Estimate | None, *, is_rate: bool, signed: bool = False) -> str:
    """A mean with its interval; a rate in percent, and a difference of rates in points."""
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{_number(found.mean, is_rate=is_rate, signed=signed)} (no interval)"
    middle, low, high = (
        _number(one, is_rate=is_rate, signed=signed) for one in (found.mean, found.low, found.high)
    )
    return f"{middle} ({low} to {high})"


def _number(value: float, *, is_rate: bool, signed: bool) -> str:
    text = f"{100 * value:.1f}" if is_rate else number_of(value)
    return f"+{text}" if signed and value >= 0 else text


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return f"<{_RARE}" if p_value < _RARE else f"{p_value:.2g}"


def _detectable(finding: Finding, *, is_rate: bool) -> str:
    least = finding.detectable
    return "–" if least is None else _number(least, is_rate=is_rate, signed=False)


def _answer(finding: Finding) -> Text:
    return Text(_answers(finding), style=_STYLES.get(finding.answer or "", "dim"))


def _answers(finding: Finding) -> str:
    match finding.answer:
        case None:
            return "cannot be told"
        case "no difference":
            return "no difference"
        case answer:
            return answer
