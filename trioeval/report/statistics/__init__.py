"""The uncertainty of numbers, and whether two of them differ beyond chance. Pure, with sources.

See docs/reference/statistics.md for what is shown where, and why.
"""

from trioeval.report.statistics.bootstrap import Bootstrap as Bootstrap
from trioeval.report.statistics.bootstrap import bootstrap_mean as bootstrap_mean
from trioeval.report.statistics.estimates import CONFIDENCE as CONFIDENCE
from trioeval.report.statistics.estimates import Estimate as Estimate
from trioeval.report.statistics.estimates import at_least_one as at_least_one
from trioeval.report.statistics.estimates import every_one as every_one
from trioeval.report.statistics.estimates import mean as mean
from trioeval.report.statistics.estimates import proportion as proportion
from trioeval.report.statistics.grouped import ColumnSums as ColumnSums
from trioeval.report.statistics.grouped import RowPlace as RowPlace
from trioeval.report.statistics.paired import Difference as Difference
from trioeval.report.statistics.paired import DifferenceFinding as DifferenceFinding
from trioeval.report.statistics.paired import PairSums as PairSums
from trioeval.report.statistics.paired import adjusted as adjusted
from trioeval.report.statistics.paired import clustered_mcnemar as clustered_mcnemar
from trioeval.report.statistics.paired import holm as holm
from trioeval.report.statistics.paired import mcnemar as mcnemar
from trioeval.report.statistics.paired import paired_difference as paired_difference
from trioeval.report.statistics.paired import paired_proportion as paired_proportion
from trioeval.report.statistics.power import POWER as POWER
from trioeval.report.statistics.power import detectable as detectable
from trioeval.report.statistics.power import needed as needed
from trioeval.report.statistics.power import needed_for_pairs as needed_for_pairs
from trioeval.report.statistics.power import needed_for_rates as needed_for_rates
from trioeval.report.statistics.power import needed_unpaired as needed_unpaired
