"""The number of judge calls, as estimated before a run and as counted in it."""

import json
import math
from typing import Any

import pytest
from judge_double import Judge, find

from trioeval.errors import GradingError
from trioeval.grading import Assertion, Finding, Subject
from trioeval.grading.judge_calls import Count, judge_calls
from trioeval.grading.kind import ExternalJudge, Kind
from trioeval.grading.registry import JUDGED_BY_MODELS, KINDS

YES = {"pass": True, "score": 1, "reason": "r", "verdict": "yes", "category": "A", "steps": ["a"]}
ANSWERS: dict[str, Any] = {
    "context-recall": "It is so. [Attributed]",
    "context-relevance": "the context",
    "answer-relevance": "the output",
    "model-graded-closedqa": "Y",
}
TRACED = {"trace": {"spans": [{"name": "search", "startTime": 5, "endTime": 7.5}]}}
VARS = {"query": "the output", "context": "the context"}


class Everything(dict[str, Any]):
    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> list[float]:
        return [1.0, 0.0]


async def _own(*_: Any) -> Finding:
    raise AssertionError("it is only counted")


def answer_to(name: str) -> Any:
    if name != "context-faithfulness":
        return lambda _: ANSWERS.get(name, json.dumps(YES))
    verdicts = "Final verdict for each statement in order: Yes."
    return ["It is so.", verdicts] * 3


def counted(name: str, judge: Judge, value: Any, config: Any) -> tuple[Finding | None, int]:
    subject = Subject.of("the output", prompt="the output", vars=VARS, metadata=TRACED)
    try:
        found = find(judge, name, value, subject=subject, config=config)
    except GradingError:
        found = None
    return found, len(judge.requests)


CASES = [
    *(
        (name, "a text", None)
        for name, kind in ((name, KINDS[name]) for name in sorted(JUDGED_BY_MODELS))
        if isinstance(kind.judge, ExternalJudge)
    ),
    *((name, ["a", "b", "c"], None) for name in ("similar", "similar:dot", "g-eval")),
    *((name, "a text", {"repeat": 3}) for name in ("llm-rubric", "g-eval", "answer-relevance")),
]


@pytest.mark.parametrize(("name", "value", "config"), CASES)
def test_judges_are_called_as_often_as_estimated(name: str, value: Any, config: Any) -> None:
    """The usual number is that of a judge with proper replies; one without gets at most the maximum."""
    estimate = dict(judge_calls(Assertion(type=name, value=value, config=config), KINDS[name]))
    good = Judge(answer_to(name), vectors=Everything(), scores={"a text": 1.0})
    found, calls = counted(name, good, value, config)
    assert found is not None
    assert calls == estimate.get("text", Count()).usual
    assert len(good.embedded) == estimate.get("embedding", Count()).usual
    assert len(estimate) == len(KINDS[name].roles)
    if "text" in estimate:
        _, most = counted(name, Judge(lambda _: "?"), value, config)
        assert most <= estimate["text"].most


def test_judges_are_called_once_with_lenient_reading() -> None:
    """The same is true of replies that cannot be invalid."""
    rubric, relevance = (Assertion(type=name) for name in ("llm-rubric", "answer-relevance"))
    assert list(judge_calls(rubric, KINDS["llm-rubric"], lenient=True)) == [("text", Count(1, 1))]
    assert list(judge_calls(relevance, KINDS["answer-relevance"])) == [
        ("embedding", Count(4, 4)),
        ("text", Count(3, 3)),
    ]


def test_a_comparison_calls_the_judge_once_for_each_order() -> None:
    """Custom types and conversations have no known bound."""
    best = Assertion(type="select-best", value="kindest", config={"repeat": 3, "swap": True})
    assert list(judge_calls(best, KINDS["select-best"])) == [("text", Count(6, 12))]
    own = Kind("a", lambda _: True, ExternalJudge(_own, frozenset({"text"})))
    talk = Assertion(type="conversation-relevance")
    assert list(judge_calls(Assertion(type="own"), own)) == [("text", Count(1, math.inf))]
    assert list(judge_calls(talk, KINDS[talk.type])) == [("text", Count(1, math.inf))]
