"""Derived metrics: numbers made of the metrics of a column, once, when all of its rows are there."""

import math
from collections.abc import Iterator, Mapping, Sequence

from trioeval.grading import quote
from trioeval.grading.expressions import ExpressionError, parse
from trioeval.report.totals import ColumnTotals
from trioeval.suite import Around, DerivedMetric, MistakenError
from trioeval.suite.scoring_forms import COUNT
from trioeval.suite.sources.around import names_file
from trioeval.suite.sources.functions import call_function
from trioeval.suite.sources.transform_vars import code_file

LIMIT = 10.0
"""Seconds that a function of the user's may take for a column."""


def derive(metrics: Sequence[DerivedMetric], column: ColumnTotals, around: Around) -> Iterator[str]:
    """Add derived metrics to a column.

    Args:
        metrics: Each may use those before it.
        column: With all of its rows; one without any gets none.
        around: Where functions run.

    Yields:
        What is wrong with one of them, which then is left out.
    """
    if not column.rows:
        return
    names = {**column.named_scores, COUNT: float(column.rows)}
    for metric in metrics:
        try:
            value = _value(metric, names, around)
        except (ExpressionError, MistakenError) as error:
            yield f"the derived metric {quote(metric.name)} is left out: {error}"
        else:
            column.derived[metric.name] = names[metric.name] = value


def _value(metric: DerivedMetric, names: Mapping[str, float], around: Around) -> float:
    if not names_file(metric.value):
        return parse(metric.value).value(names)
    file, function = code_file(metric.value, around)
    found = call_function(file, function or "", [dict(names)], around, limit=LIMIT)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        msg = f"{metric.value} must give a finite number, got {quote(found)}"
        raise ExpressionError(msg)
    return float(found)
