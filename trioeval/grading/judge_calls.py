"""How many calls the judges of an assertion take: known before a run, for who wants to know what it costs."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.grading.judges import KINDS as JUDGES
from trioeval.grading.kind import Kind, Role
from trioeval.grading.model import Assertion
from trioeval.grading.registry import split_type
from trioeval.text import Computed

_QUESTIONS: Mapping[str, int] = {"answer-relevance": 3, "context-faithfulness": 2, "g-eval": 2}
"""Of one judgement, where that is more than one; `g-eval` asks them for each criterion."""

_FREE = frozenset({"answer-relevance"})
"""Types whose questions any reply answers: none is asked again."""

_OPEN = frozenset({"conversation-relevance"})
"""Types that ask as often as the conversation has turns."""


@attrs.frozen
class Count:
    """Calls to judges, without those that a lane makes again because they failed."""

    usual: int = 0
    """If every reply can be used; equal texts that are embedded count each."""
    most: float = 0
    """If each that cannot be used is asked for once more; infinite where nobody knows."""

    def __add__(self, other: "Count") -> "Count":
        return Count(self.usual + other.usual, self.most + other.most)

    def __mul__(self, times: int) -> "Count":
        return Count(self.usual * times, self.most * times if times else 0)


def judge_calls(
    assertion: Assertion, kind: Kind, *, lenient: bool = False
) -> Iterator[tuple[Role, Count]]:
    """The calls of one judgement, by what a judge is needed for.

    Args:
        assertion: As the suite has it, its value not rendered.
        kind: Its type. One that is not built in asks at least once.
        lenient: Whether replies are read as promptfoo reads them, which asks for none again.

    Example:
        >>> rubric = Assertion(type="llm-rubric", value="is kind", config={"repeat": 3})
        >>> list(judge_calls(rubric, JUDGES["llm-rubric"]))
        [('text', Count(usual=3, most=6))]
    """
    name, _ = split_type(assertion.type)
    value = assertion.value
    known = kind is JUDGES.get(name)
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
    """Of one judgement."""
    members = len(value) if isinstance(value, list | tuple) else 1
    if role == "text":
        return _QUESTIONS.get(name, 1) * (members if name == "g-eval" else 1)
    if role == "embedding":
        return 1 + _QUESTIONS.get(name, members)
    return 1
