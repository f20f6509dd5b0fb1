"""Assertions: pure functions from an output to a verdict."""

from trioeval.grading.check import check_assertion as check_assertion
from trioeval.grading.grade import grade as grade
from trioeval.grading.kinds import ASSERTION_TYPES as ASSERTION_TYPES
from trioeval.grading.model import Assertion as Assertion
from trioeval.grading.model import Verdict as Verdict
from trioeval.grading.text import output_text as output_text
from trioeval.grading.text import quote as quote
