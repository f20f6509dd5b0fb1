# Separate from `cli.commands.compare`: it belongs to this package, which the other only uses.
"""The statistical findings about two runs as text."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.report.compare import left_out_lines, name_of_column, number_of
from trioeval.report.compare_runs import ColumnChange, ColumnFindings, Findings, Kind
from trioeval.report.statistics.estimates import Estimate
from trioeval.report.statistics.paired import DifferenceFinding
from trioeval.report.text import FittingTable
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

_STYLES = {"better": "green", "worse": "red"}
_RARE = 0.001
_NAME = 30  # characters of the name of a metric
_MANY = 10  # points from which on tenths are left out
_NARROW = 0.1  # width of an interval of shares below which whole percents are too coarse
_TOLD = (0.05, 0.01)
"""Differences of pass rates for which the number of rows needed is shown."""


def findings_table(columns: Sequence[ColumnChange], findings: Findings) -> FittingTable:
    """Return a table of the pass rate, score and metrics of each column before and after, with differences.

    Each mean has its interval; p is adjusted for the number of tests. A score that equals the pass rate is
    left out. If there are several columns, the changed rows of each are counted.
    """
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("provider | prompt", overflow="fold", min_width=12)
    table.add_column("", overflow="fold")
    kinds: Sequence[Kind] = ("better", "worse") if len(columns) > 1 else ()
    for name in (*(f"rows {kind}" for kind in kinds), "before", "after", "difference", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("beyond chance", no_wrap=True)
    for column, found in zip(columns, findings.columns, strict=True):
        heading, counts = name_of_column(column), [str(column.kinds[kind]) for kind in kinds]
        for name, finding in found.findings():
            is_rate = finding is found.passed
            table.add_row(
                Text(heading),
                Text(escape_control_characters(name, _NAME)),
                *counts,
                *(_shown(one, is_rate=is_rate) for one in (finding.before, finding.after)),
                _shown(finding.difference, is_rate=is_rate, signed=True),
                _chance(finding.adjusted),
                _answer(finding),
            )
            heading, counts = "", [""] * len(kinds)
    return FittingTable(table)


def chance_lines(findings: Findings) -> Iterator[str]:
    """Yield the notes below the table: how intervals were computed, and which differences can be found.

    Yields nothing if no row is in both runs.
    """
    if not findings.pairs:
        return
    if (how := findings.bootstrap) is not None:
        yield (
            f"intervals of scores and metrics: BCa bootstrap, {how.resamples:,} resamples of tests "
            f"or clusters, seed {how.seed}"
        )
    widest = max(findings.columns, key=_evidence).passed
    if (difference := widest.difference) is not None:
        where = "" if len(findings.columns) == 1 else "the largest column: "
        yield from (where + sentence for sentence in _rate_sentences(widest, difference))


def _evidence(column: ColumnFindings) -> tuple[int, bool]:
    """Return the best column: of columns with equally many pairs, one whose pass rate changed."""
    difference = column.passed.difference
    return column.pairs, difference is not None and difference.mean != 0


def _rate_sentences(finding: DifferenceFinding, difference: Estimate) -> Iterator[str]:
    groups, pairs = (
        difference.clusters,
        counted(difference.n, "pair of rows", "pairs of rows", grouped=True),
    )
    if groups == 1:
        yield f"{pairs} of 1 test or cluster: other tests may differ in any way"
        return
    own = "" if groups == difference.n else f" of {groups:,} tests or clusters"
    if (rarest := 2.0 ** (1 - groups)) > 1 - difference.confidence:
        yield (
            f"{pairs}{own} are too few to distinguish a difference of pass rates from chance: "
            f"the smallest possible p is {_chance(rarest)}"
        )
        return
    if difference.mean == 0 and difference.standard_error is None and difference.high is not None:
        yield (
            f"{pairs}{own} pass in both runs or in neither: with {100 * difference.confidence:g} % "
            f"confidence the pass rates differ by less than {100 * difference.high:.1f} points"
        )
        return
    needed = [finding.needed(effect) for effect in _TOLD]
    if None in needed:
        yield f"{pairs}{own}: the number of rows that a difference of pass rates needs is unknown"
        return
    few, many = (f"{rows:,}" for rows in needed)
    least = finding.detectable
    detectable = "no difference" if least is None else f"a difference of {_points(least)} points"
    yield (
        f"With {counted(difference.n, 'pair', grouped=True)}{own} {detectable} is found in four of five "
        f"comparisons; 5 points need about {few} pairs, 1 point {many}."
    )


def _points(share: float) -> str:
    points = 100 * share
    return f"{points:.0f}" if points >= _MANY else f"{points:.1f}"


def chance_sentences(columns: Sequence[ColumnChange], findings: Findings) -> Iterator[str]:
    """Yield the findings as sentences, one for each number of a column."""
    for column, found in zip(columns, findings.columns, strict=True):
        for name, finding in found.findings():
            yield _sentence(name_of_column(column), name, finding, found)
    if not findings.pairs:
        yield nothing_shared(columns)
    yield from left_out_lines(columns)
    yield from chance_lines(findings)


def nothing_shared(columns: Iterable[ColumnChange]) -> str:
    """Return the reason why two runs cannot be compared."""
    if any(column.kinds["unfinished"] for column in columns):
        return "no row ended in both runs: the runs cannot be compared"
    return "no row is in both runs: the runs cannot be compared"


def _sentence(heading: str, name: str, finding: DifferenceFinding, column: ColumnFindings) -> str:
    is_rate = finding is column.passed
    before, after = (_shown(one, is_rate=is_rate) for one in (finding.before, finding.after))
    difference = _shown(finding.difference, is_rate=is_rate, signed=True)
    chance = "" if finding.adjusted is None else f", p = {_chance(finding.adjusted)}"
    facts = f"{before} → {after}; {difference}{chance}: {_answers(finding)} beyond chance"
    return f"{heading}, {escape_control_characters(name, _NAME)}: {facts}"


def _shown(found: Estimate | None, *, is_rate: bool, signed: bool = False) -> str:
    """Return a mean with its interval: a rate in percent, a difference of rates in points."""
    if found is None:
        return "–"
    unit = " %" if is_rate and not signed else ""
    middle = f"{_number(found.mean, is_rate=is_rate, signed=signed)}{unit}"
    if found.shown is None:
        return f"{middle} (no interval)"
    low, high = found.shown
    is_wide = is_rate and high - low >= _NARROW
    ends = [
        f"{100 * one:.0f}" if is_wide else _number(one, is_rate=is_rate, signed=False)
        for one in (low, high)
    ]
    if not signed and low >= 0:
        return f"{middle} ({ends[0]}–{ends[1]})"
    plus = "+" if signed and high > 0 else ""
    return f"{middle} ({'+' if signed and low > 0 else ''}{ends[0]} to {plus}{ends[1]})"


def _number(value: float, *, is_rate: bool, signed: bool) -> str:
    text = f"{100 * value:.1f}" if is_rate else number_of(value)
    return f"+{text}" if signed and value >= 0 else text


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return f"<{_RARE}" if p_value < _RARE else f"{p_value:.2g}"


def _answer(finding: DifferenceFinding) -> Text:
    return Text(_answers(finding), style=_STYLES.get(finding.answer or "", "dim"))


def _answers(finding: DifferenceFinding) -> str:
    match finding.answer:
        case None:
            return "unknown"
        case "no difference":
            return "no difference"
        case answer:
            return answer
