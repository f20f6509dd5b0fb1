"""Comparisons of several outputs by a judge, asked once or several times, in one order or both.

A judge that prefers the first output contradicts itself when the order is reversed. With `swap` it is asked
in both orders, and its choices are counted by output, not by position.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading.algebra import aggregate
from trioeval.grading.model import JudgeUsage, Verdict
from trioeval.grading.reply_json import objects_in
from trioeval.grading.services import JudgeReply
from trioeval.grading.strict_reading import UnusableReplyError, names_of
from trioeval.text import quote

# The effect of comparisons on the verdicts of the rows of a test.
#
# A comparison is not part of the weighted score: it chooses among rows that are already judged. The chosen
# row keeps its verdict; every other row fails with score 0, even if it passed before.


def with_comparisons(row: Verdict, compared: Mapping[int, Verdict]) -> Verdict:
    """Return the verdict of a row after comparisons.

    Args:
        row: The verdict without comparisons.
        compared: The verdicts of comparisons, by the position of the assertion in the row.

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
                found = attrs.evolve(verdict, passed=True)  # weight 0 always passes
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
        spent=JudgeUsage.sum([row.spent, *(one.spent for one in compared.values())]),
    )
    if lost is None:
        # A row without other assertions has won, and that is its reason.
        only = None if row.parts or not parts else parts[0].reason
        return attrs.evolve(after, reason=only or row.reason)
    # A row that had failed before keeps its reason.
    reason = lost.reason if row.passed else row.reason
    return attrs.evolve(after, passed=False, score=0.0, reason=reason)


CHOICE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"index": {"type": "integer"}, "reason": {"type": "string"}},
    "required": ["index", "reason"],
    "additionalProperties": False,
}
"""JSON schema of a reply."""

_NUMBER = re.compile(r"(?<![^\W_])-?\d++(?:[.,]\d+)*+(?![^\W_])")
"""A number on its own, not part of a word."""
_DIGITS = 9


@attrs.frozen
class Choice:
    """The result of several judgements."""

    winner: int | None
    """The position of the output chosen most often; None without a unique winner."""
    agreement: float
    """The share of the judgements that chose the most frequent output."""


def comparison_names(criteria: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the variables of a comparison prompt."""
    return names_of(criteria=criteria, outputs=list(outputs))


def read_choice(answer: JudgeReply, there: Sequence[bool]) -> int:
    """Return the position of the chosen output: an object with an index, or the only number in the reply.

    Args:
        answer: The reply.
        there: For each position, whether an output exists.

    Raises:
        UnusableReplyError: The index is missing, ambiguous, or without an output.

    Example:
        >>> read_choice(JudgeReply("Output 1 is better.", "Output 1 is better."), [True, True])
        1
    """
    for found in objects_in(answer):
        if isinstance(index := found.get("index"), int) and not isinstance(index, bool):
            return _known(index, str(index), there)
        break
    numbers = [*dict.fromkeys(_NUMBER.findall(answer.text))]
    if not numbers:
        msg = "it names no output"
        raise UnusableReplyError(msg)
    if len(numbers) > 1:
        msg = f"it must name one output, got {quote(numbers[0])} and {quote(numbers[1])}"
        raise UnusableReplyError(msg)
    (digits,) = numbers
    whole = len(digits) <= _DIGITS and digits.isdecimal()
    return _known(int(digits) if whole else -1, digits, there)


def _known(index: int, written: str, there: Sequence[bool]) -> int:
    if not 0 <= index < len(there):
        msg = f"it must name an output from 0 to {len(there) - 1}, got {quote(written)}"
        raise UnusableReplyError(msg)
    if not there[index]:
        msg = f"output {index} does not exist"
        raise UnusableReplyError(msg)
    return index


def orders_of(outputs: int, *, repeat: int = 1, swap: bool = False) -> list[tuple[int, ...]]:
    """Return the orders in which outputs are shown, one per question.

    Example:
        >>> orders_of(3, swap=True)
        [(0, 1, 2), (2, 1, 0)]
    """
    order = tuple(range(outputs))
    return [order, swapped(order)] * repeat if swap else [order] * repeat


def swapped(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the outputs in reverse order."""
    return order[::-1]


def combine_choices(choices: Sequence[int]) -> Choice:
    """Return the most frequent choice.

    Args:
        choices: At least one, each the position of an output in the order of the columns.

    Example:
        >>> combine_choices([1, 0, 1]).winner, combine_choices([0, 1]).winner
        (1, None)
    """
    (first, most), *others = Counter(choices).most_common(2)
    tie = bool(others) and others[0][1] == most
    return Choice(None if tie else first, most / len(choices))
