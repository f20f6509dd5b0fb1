"""One module a task type: how it expands into a plan, and what the body of its jobs does."""

from trioeval.tasks.prepare import PreparedSuite as PreparedSuite
from trioeval.tasks.prepare import PreparedTask as PreparedTask
from trioeval.tasks.prepare import prepare as prepare
from trioeval.tasks.question_result import QuestionEvent as QuestionEvent
from trioeval.tasks.question_result import QuestionResult as QuestionResult
from trioeval.tasks.quotas import open_suite_quota as open_suite_quota
from trioeval.tasks.rows import Row as Row
from trioeval.tasks.rows import RowsNotRun as RowsNotRun
from trioeval.tasks.rows import Status as Status
from trioeval.tasks.run_prepared import make_lanes as make_lanes
from trioeval.tasks.run_suite import SuiteSummary as SuiteSummary
from trioeval.tasks.run_suite import collect as collect
from trioeval.tasks.run_suite import run_suite as run_suite
