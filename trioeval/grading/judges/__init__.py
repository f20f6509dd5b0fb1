"""Assertion types that ask a model: their prompts, the reading of replies, and their findings."""

from trioeval.grading.judges.conversation import KINDS as CONVERSATION_KINDS
from trioeval.grading.judges.facts import KINDS as FACT_KINDS
from trioeval.grading.judges.moderate import KINDS as MODERATE_KINDS
from trioeval.grading.judges.rag import KINDS as CONTEXT_KINDS
from trioeval.grading.judges.rubric import KINDS as RUBRIC_KINDS
from trioeval.grading.judges.shapes import KINDS as SELECT_BEST_KINDS
from trioeval.grading.judges.similar import KINDS as SIMILAR_KINDS
from trioeval.grading.kind import Kinds

KINDS: Kinds = {
    **CONTEXT_KINDS,
    **CONVERSATION_KINDS,
    **FACT_KINDS,
    **MODERATE_KINDS,
    **RUBRIC_KINDS,
    **SELECT_BEST_KINDS,
    **SIMILAR_KINDS,
}
"""By name."""
