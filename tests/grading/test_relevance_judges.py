"""answer-relevance and conversation-relevance."""

import json
from typing import Any

import pytest
from judge_double import NO_VERDICTS, Judge, find, verdict

from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject, check_assertion
from trioeval.grading.judges.conversation import windows_of

VECTORS = {"Where?": [1.0, 0.0], "Who?": [0.0, 1.0], "the prompt": [2.0, 0.0], "query": [0.0, 3.0]}


def test_relevance_is_the_mean_similarity_of_guessed_questions() -> None:
    """Three questions are guessed."""
    judge = Judge(["Where?", "Who?", "Where?"], vectors=VECTORS)
    found = find(judge, "answer-relevance", subject="In Rome.")
    assert found.holds is True
    assert found.score == pytest.approx(2 / 3)
    assert len(judge.requests) == 3
    assert sorted(judge.embedded) == ["Where?", "Where?", "Who?", "the prompt"]
    assert {"question": "Who?", "similarity": 0.0} in found.metadata["generatedQuestions"]
    assert judge.rendered[0]["answer"] == "In Rome."


def test_a_variable_query_replaces_the_prompt() -> None:
    """It must be text."""
    subject = Subject.of("x", prompt="the prompt", vars={"query": "query"})
    found = find(Judge(["Where?"] * 3, vectors=VECTORS), "answer-relevance", subject=subject)
    assert (found.holds, found.score) == (False, 0.0)
    subject = Subject.of("x", prompt="the prompt", vars={"query": ["query"]})
    assert find(Judge(["Where?"] * 3, vectors=VECTORS), "answer-relevance", subject=subject).holds


def test_thresholds_of_relevance_tolerate_rounding() -> None:
    """The default is one half; the negation has the complement as its score."""
    for threshold, holds in ((2 / 3, True), (0.67, False), (None, True)):
        judge = Judge(["Where?", "Who?", "Where?"], vectors=VECTORS)
        found = find(judge, "answer-relevance", threshold=threshold)
        assert found.holds is holds
        negated = verdict(found, "not-answer-relevance", threshold=threshold)
        assert negated.passed is not holds
        assert negated.score == pytest.approx(1 / 3)


@pytest.mark.parametrize("subject", [Subject.of({"a": 1}, prompt="p"), Subject.of("x")])
def test_relevance_needs_a_text_and_a_prompt(subject: Subject) -> None:
    """Otherwise the judge is not called."""
    with pytest.raises(GradingError, match=r"the output must be text|the prompt is empty"):
        find(Judge(), "answer-relevance", subject=subject)


def test_relevance_without_vectors_is_an_error() -> None:
    """It is not a score of 0."""
    with pytest.raises(GradingError, match="no vector"):
        find(Judge(["Where?"] * 3), "answer-relevance")


def turns(*negated: str) -> list[dict[str, Any]]:
    return [{"input": f"{word}?", "output": f"{word}!"} for word in negated]


def judged(prompt: str) -> Any:
    """Return the finding of a judge for which no reply about cats is relevant."""
    last = prompt.rpartition("Assistant: ")[2]
    return {"verdict": "no" if last.startswith("cat") else "yes", "reason": f"so {last[:3]}"}


def test_each_reply_is_judged_in_its_window() -> None:
    """The window is the turns up to it, five at most."""
    subject = Subject.of("x", prompt="p", vars={"_conversation": turns(*"abcde", "cat")})
    judge = Judge(judged)
    found = find(judge, "conversation-relevance", subject=subject)
    assert found.holds is True
    assert found.score == pytest.approx(5 / 6)
    assert found.reason.startswith("5 of 6 replies are relevant")
    assert "reply 6: so cat" in found.reason
    sizes = sorted(len(names["messages"]) for names in judge.rendered)
    assert sizes == [1, 2, 3, 4, 5, 5]
    negated = verdict(found, "not-conversation-relevance")
    assert negated.passed is False
    assert negated.score == pytest.approx(1 / 6)


def test_the_window_may_be_smaller() -> None:
    """The config sets `windowSize`."""
    subject = Subject.of("x", prompt="p", vars={"_conversation": turns(*"abc")})
    judge = Judge(judged)
    find(judge, "conversation-relevance", subject=subject, config={"windowSize": 2})
    assert sorted(len(names["messages"]) for names in judge.rendered) == [1, 2, 2]
    wrong = Assertion(type="conversation-relevance", config={"windowSize": 0})
    assert [one.path for one in check_assertion(wrong, value_given=False)] == [".config.windowSize"]
    with pytest.raises(GradingError, match=r"config\.windowSize must be"):
        find(judge, "conversation-relevance", subject=subject, config={"windowSize": "2"})


def test_the_judged_turn_is_added_to_the_conversation_of_a_run() -> None:
    """A conversation in the test's own variables is already complete."""
    before = [{"prompt": "p0", **turns("a")[0], "metadata": {}}]
    prompt = json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}])
    subject = Subject.of({"b": 1}, prompt=prompt, vars={"_conversation": before})
    judge = Judge(judged)
    find(judge, "conversation-relevance", subject=subject)
    longest = max((names["messages"] for names in judge.rendered), key=len)
    assert longest == [*turns("a"), {"input": "hi", "output": '{"b":1}'}]


@pytest.mark.parametrize("value", [{}, "", [], None])
def test_without_a_conversation_there_is_one_turn(value: Any) -> None:
    """It is the prompt and the output."""
    judge = Judge(judged)
    subject = Subject.of("cats", prompt="p", vars={"_conversation": value})
    found = find(judge, "conversation-relevance", subject=subject)
    assert (found.holds, found.score) == (False, 0.0)
    assert judge.rendered[0]["messages"] == [{"input": "p", "output": "cats"}]


@pytest.mark.parametrize("value", ["x", [1], [{"input": "x"}], {"a": 1}])
def test_a_conversation_is_a_list_of_turns(value: Any) -> None:
    """Anything else is an error, not a conversation without relevance."""
    subject = Subject.of("x", prompt="p", vars={"_conversation": value})
    with pytest.raises(GradingError, match="_conversation must be a list"):
        find(Judge(), "conversation-relevance", subject=subject)


@pytest.mark.parametrize(
    "reply",
    [
        *NO_VERDICTS.values(),
        {"verdict": "maybe"},
        {"verdict": True},
        {"reason": "x"},
        {"verdict": "no", "reason": 1},
    ],
)
def test_invalid_verdicts_on_a_reply(reply: Any) -> None:
    """One window without a verdict makes the result an error."""
    with pytest.raises(GradingError, match="is unusable"):
        find(Judge([reply] * 2), "conversation-relevance")


def test_windows_cover_every_turn_once_as_their_last() -> None:
    """No window is longer than its size."""
    for count in range(6):
        for size in range(1, 7):
            found = windows_of([{"n": number} for number in range(count)], size)
            assert [window[-1]["n"] for window in found] == list(range(count))
            assert all(len(window) == min(size, place + 1) for place, window in enumerate(found))
