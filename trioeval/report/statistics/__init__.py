"""How sure a number is, and whether two of them differ beyond chance. Pure, with sources.

See docs/reference/statistics.md for what is shown of it where, and why.
"""

from trioeval.report.statistics.column_sums import ColumnSums as ColumnSums
from trioeval.report.statistics.column_sums import Place as Place
from trioeval.report.statistics.estimates import CONFIDENCE as CONFIDENCE
from trioeval.report.statistics.estimates import Estimate as Estimate
from trioeval.report.statistics.estimates import mean as mean
from trioeval.report.statistics.proportions import proportion as proportion
