"""Assertion types that ask a model: how each asks, reads the reply, and comes to a finding."""

from trioeval.grading.judges.classify import KINDS as CLASSIFY_KINDS
from trioeval.grading.judges.closed_qa import KINDS as CLOSED_QA_KINDS
from trioeval.grading.judges.context import KINDS as CONTEXT_KINDS
from trioeval.grading.judges.conversation import KINDS as CONVERSATION_KINDS
from trioeval.grading.judges.factuality import KINDS as FACTUALITY_KINDS
from trioeval.grading.judges.faithfulness import KINDS as FAITHFULNESS_KINDS
from trioeval.grading.judges.g_eval import KINDS as G_EVAL_KINDS
from trioeval.grading.judges.goal import KINDS as GOAL_KINDS
from trioeval.grading.judges.moderate import KINDS as MODERATE_KINDS
from trioeval.grading.judges.relevance import KINDS as RELEVANCE_KINDS
from trioeval.grading.judges.rubric import KINDS as RUBRIC_KINDS
from trioeval.grading.judges.select_best import KINDS as SELECT_BEST_KINDS
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
