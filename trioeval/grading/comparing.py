"""What comparisons of the outputs of one test make of the verdicts on its rows.

A comparison is no part of the weighted score: it chooses among rows that were judged already. The row that
it chooses keeps its verdict; every other row fails with score 0, also if it passed before.
"""

from collections.abc import Mapping

import attrs

from trioeval.grading.algebra import aggregate
from trioeval.grading.model import Spent, Verdict


def with_comparisons(row: Verdict, compared: Mapping[int, Verdict]) -> Verdict:
    """The verdict on a row after comparisons.

    Args:
        row: Without them.
        compared: Those of comparisons, by the place of the assertion in the row.

    Example:
        >>> row = Verdict(passed=True, score=0.8, reason="fine")
        >>> lost = Verdict(passed=False, score=0.0, reason="another one is better")
        >>> after = with_comparisons(row, {0: lost})
        >>> after.passed, after.score, after.reason, len(after.parts)
        (False, 0.0, 'another one is better', 1)
    """
    parts = list(row.parts)
    lost: Verdict | None = None
    metrics: set[str] = set()
    for place, verdict in sorted(compared.items()):
        found = verdict
        if (assertion := verdict.assertion) is not None:
            metrics |= {assertion.metric} if assertion.metric else set()
            if not assertion.weight:
                found = attrs.evolve(verdict, passed=True)  # what does not count passes
        parts.insert(place, found)
        lost = lost or (None if found.passed else found)
    whole = aggregate(parts)
    found_scores = {name: whole.named_scores[name] for name in metrics}
    weights = {name: whole.named_score_weights[name] for name in metrics}
    after = attrs.evolve(
        row,
        parts=tuple(parts),
        named_scores={**row.named_scores, **found_scores},
        named_score_weights={**row.named_score_weights, **weights},
        spent=Spent.sum([row.spent, *(one.spent for one in compared.values())]),
    )
    if lost is None:
        # A row with nothing else has won, and that is its reason.
        only = None if row.parts or not parts else parts[0].reason
        return attrs.evolve(after, reason=only or row.reason)
    # A row that had failed before has its reason.
    reason = lost.reason if row.passed else row.reason
    return attrs.evolve(after, passed=False, score=0.0, reason=reason)
