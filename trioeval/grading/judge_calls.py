"""The number of judge calls of an assertion, known before a run, for estimates of its cost."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.grading.kind import Kind, Role
from trioeval.grading.model import Assertion
from trioeval.grading.registry import JUDGED_BY_MODELS, KINDS, split_type
from trioeval.text import Computed

_QUESTIONS: Mapping[str, int] = {"answer-relevance": 3, "context-faithfulness": 2, "g-eval": 2}
"""Questions per judgement, if more than one; `g-eval` asks them for each criterion."""

_FREE = frozenset({"answer-relevance"})
"""Types that accept any reply: no question is repeated."""

_OPEN = frozenset({"conversation-relevance"})
"""Types with one question per turn of the conversation."""


@attrs.frozen
class Count:
    """Calls of judges, without the retries of their lane."""

    usual: int = 0
    """The calls if every reply is usable; equal embedded texts count each."""
    most: float = 0
    """The calls if each unusable reply is requested once more; infinite if unknown."""

    def __add__(self, other: "Count") -> "Count":
        return Count(self.usual + other.usual, self.most + other.most)

    def __mul__(self, times: int) -> "Count":
        return Count(self.usual * times, self.most * times if times else 0)


def judge_calls(
    assertion: Assertion, kind: Kind, *, lenient: bool = False
) -> Iterator[tuple[Role, Count]]:
    """Yield the calls of one judgement, by the role of the judge.

    Args:
        assertion: The assertion as written in the suite, with its value not rendered.
        kind: Its type. A custom type has at least one call.
        lenient: True to read replies as promptfoo does, which repeats no question.

    Example:
        >>> rubric = Assertion(type="llm-rubric", value="is kind", config={"repeat": 3})
        >>> list(judge_calls(rubric, KINDS["llm-rubric"]))
        [('text', Count(usual=3, most=6))]
    """
    name, _ = split_type(assertion.type)
    value = assertion.value
    known = name in JUDGED_BY_MODELS and kind is KINDS[name]
    is_bounded = known and name not in _OPEN and not isinstance(value, Computed)
    for role in sorted(kind.roles):
        usual = _times(assertion) * _calls_of_one(name, role, value) if known else 1
        again = 2 if role == "text" and not lenient and name not in _FREE else 1
        yield role, Count(usual, usual * again if is_bounded else math.inf)


def _times(assertion: Assertion) -> int:
    config: Mapping[str, Any] = assertion.config or {}
    repeat = config.get("repeat", 1)
    return (repeat if isinstance(repeat, int) else 1) * (2 if config.get("swap") is True else 1)


def _calls_of_one(name: str, role: Role, value: Any) -> int:
    """Return the calls of one judgement."""
    members = len(value) if isinstance(value, list | tuple) else 1
    if role == "text":
        return _QUESTIONS.get(name, 1) * (members if name == "g-eval" else 1)
    if role == "embedding":
        return 1 + _QUESTIONS.get(name, members)
    return 1
