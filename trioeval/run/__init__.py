"""Runs of prepared suites: checks before the first request, the graph of tasks, and the summary.

This is the only package that imports the bodies of all task types.
"""

from trioeval.evaluation.prepared import PreparedSuite as PreparedSuite
from trioeval.evaluation.prepared import PreparedTask as PreparedTask
from trioeval.evaluation.row import Row as Row
from trioeval.evaluation.row import RowsNotRun as RowsNotRun
from trioeval.evaluation.status import Status as Status
from trioeval.run.prepare import prepare as prepare
from trioeval.run.run_suite import RunOptions as RunOptions
from trioeval.run.run_suite import SuiteSummary as SuiteSummary
from trioeval.run.run_suite import collect as collect
from trioeval.run.run_suite import make_lanes as make_lanes
from trioeval.run.run_suite import run_suite as run_suite
from trioeval.run.run_suite import run_with_options as run_with_options
from trioeval.run.shared_limits import open_suite_limits as open_suite_limits
