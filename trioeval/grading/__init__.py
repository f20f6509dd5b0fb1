"""Assertions: what is expected of an output, and the verdict on it."""

from trioeval.grading.grade import check_assertion as check_assertion
from trioeval.grading.grade import grade as grade
from trioeval.grading.kind import Asking as Asking
from trioeval.grading.kind import Finding as Finding
from trioeval.grading.kind import Kind as Kind
from trioeval.grading.kind import Kinds as Kinds
from trioeval.grading.kind import kind_of as kind_of
from trioeval.grading.model import Assertion as Assertion
from trioeval.grading.model import Spent as Spent
from trioeval.grading.model import Verdict as Verdict
from trioeval.grading.registry import ASSERTION_TYPES as ASSERTION_TYPES
from trioeval.grading.registry import COMPARISONS as COMPARISONS
from trioeval.grading.registry import KINDS as KINDS
from trioeval.grading.subject import Subject as Subject
from trioeval.text import AsWritten as AsWritten
from trioeval.text import Computed as Computed
from trioeval.text import output_text as output_text
from trioeval.text import quote as quote
