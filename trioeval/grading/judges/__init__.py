"""Assertion types that ask a model: how each asks, reads the reply, and comes to a finding."""

from trioeval.grading.judges.conversation import GOAL_KINDS
from trioeval.grading.judges.conversation import KINDS as CONVERSATION_KINDS
from trioeval.grading.judges.facts import CLOSED_QA_KINDS, RELEVANCE_KINDS
from trioeval.grading.judges.facts import KINDS as FACTUALITY_KINDS
from trioeval.grading.judges.moderate import CLASSIFY_KINDS
from trioeval.grading.judges.moderate import KINDS as MODERATE_KINDS
from trioeval.grading.judges.rag import FAITHFULNESS_KINDS
from trioeval.grading.judges.rag import KINDS as CONTEXT_KINDS
from trioeval.grading.judges.rubric import G_EVAL_KINDS
from trioeval.grading.judges.rubric import KINDS as RUBRIC_KINDS
from trioeval.grading.judges.shapes import KINDS as SELECT_BEST_KINDS
from trioeval.grading.judges.similar import KINDS as SIMILAR_KINDS
from trioeval.grading.kind import Kinds

KINDS: Kinds = {
    **CLASSIFY_KINDS,
    **CLOSED_QA_KINDS,
    **CONTEXT_KINDS,
    **CONVERSATION_KINDS,
    **FACTUALITY_KINDS,
    **FAITHFULNESS_KINDS,
    **G_EVAL_KINDS,
    **GOAL_KINDS,
    **MODERATE_KINDS,
    **RELEVANCE_KINDS,
    **RUBRIC_KINDS,
    **SELECT_BEST_KINDS,
    **SIMILAR_KINDS,
}
"""By name."""
