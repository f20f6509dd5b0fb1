"""context-recall, context-relevance and context-faithfulness."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_double import HTML, PROSE, Judge, find, verdict

from trioeval.errors import GradingError
from trioeval.grading import Subject
from trioeval.grading.judges.rag import read_quotes, read_verdicts, units_of
from trioeval.grading.services import JudgeReply
from trioeval.grading.strict_reading import UnusableReplyError

FACTS = "Salt melts ice. Rome is old. Cats purr. Iron rusts."
MEGABYTE = "word " * 200_000


def subject(output: Any = "It is old.", **variables: Any) -> Subject:
    return Subject.of(output, prompt="the prompt", vars={"query": "How old?", **variables})


def answer(text: str) -> JudgeReply:
    return JudgeReply(text, text)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("1. Rome is old. [Attributed]\n2. It is big. [Not Attributed]", 0.5),
        ("Here they are:\n\nRome is old. So [ATTRIBUTED]\nThat is all.", 1.0),
        ("a [not attributed]\nb [Not Attributed] and not [Attributed]", 0.0),
        ("a [Attributed]\nb [Attributed]\nc [Not Attributed]", 2 / 3),
    ],
)
def test_recall_is_the_share_of_attributed_lines(reply: str, score: float) -> None:
    """Lines without a mark do not count."""
    judge = Judge([reply])
    found = find(judge, "context-recall", "Rome is old.", subject=subject(context=FACTS))
    assert found.holds is (score >= 0.5)
    assert found.score == pytest.approx(score)
    assert judge.rendered[0]["context"] == FACTS
    assert judge.rendered[0]["groundTruth"] == "Rome is old."
    negated = verdict(found, "not-context-recall", "Rome is old.")
    assert negated.passed is (score < 0.5)
    assert negated.score == pytest.approx(1 - score)


@pytest.mark.parametrize("reply", [PROSE, HTML, MEGABYTE, '{"score": 1}', "Attributed"])
def test_recall_without_marks_is_an_error(reply: str) -> None:
    """It is not a recall of 0, which `not-` would turn into a pass."""
    judge = Judge([reply] * 2)
    with pytest.raises(GradingError, match="is marked"):
        find(judge, "not-context-recall", "x", subject=subject(context=FACTS))
    assert len(judge.requests) == 2


@pytest.mark.parametrize(
    ("variables", "settings_", "transform", "context"),
    [
        ({"context": ["a", "b"]}, {}, None, "a\n\nb"),
        ({}, {}, None, "the prompt"),
        ({"context": ""}, {}, None, "the prompt"),
        ({"context": "a"}, {"context": "from the output"}, "output.c", "from the output"),
        ({}, {"context": ["x", "y"]}, "output.c", "x\n\ny"),
    ],
)
def test_the_source_of_a_context(
    variables: Any, settings_: Any, transform: str | None, context: str
) -> None:
    """It is the assertion's own, or else the variable, or else, for recall, the prompt."""
    judge = Judge(["a [Attributed]"])
    find(
        judge,
        "context-recall",
        "x",
        subject=subject(**variables),
        settings=settings_,
        context_transform=transform,
    )
    assert judge.rendered[0]["context"] == context


@pytest.mark.parametrize(
    ("variables", "settings_", "transform", "message"),
    [
        ({}, {}, None, "the context is missing"),
        ({"context": []}, {}, None, "the context is missing"),
        ({"context": ["a", ""]}, {}, None, "the variable context must be text"),
        ({"context": ["a", 5]}, {}, None, "the variable context must be text"),
        ({"context": {"a": 1}}, {}, None, "the variable context must be text"),
        ({"context": 5}, {}, None, "the variable context must be text"),
        ({"context": "a"}, {}, "output.c", "the context is missing"),
        ({"context": "a"}, {"context": 5}, "output.c", "result of contextTransform must be text"),
        ({"context": "a"}, {"context": ""}, "output.c", "result of contextTransform must be text"),
        ({"context": "a", "query": None}, {}, None, "needs a variable query"),
    ],
)
@pytest.mark.parametrize("name", ["context-relevance", "context-faithfulness"])
def test_invalid_contexts(
    name: str, variables: Any, settings_: Any, transform: str | None, message: str
) -> None:
    """No judge is called."""
    with pytest.raises(GradingError, match=message):
        find(
            Judge(),
            name,
            subject=subject(**variables),
            settings=settings_,
            context_transform=transform,
        )


@pytest.mark.parametrize(
    ("context", "reply", "score"),
    [
        (FACTS, "Rome is old.", 0.25),
        (FACTS, "Rome is old. Cats purr.", 0.5),
        (FACTS, "1. Rome is old. 2. cats  PURR.", 0.5),
        (FACTS, 'Here you are:\n- "Rome is old."\n- “Cats purr.”\n- Rome is old.', 0.5),
        (FACTS, FACTS, 1.0),
        (FACTS, "Insufficient Information", 0.0),
        (FACTS, "insufficient information.", 0.0),
        ("One. Two.\nThree.\n", "Three.", 0.5),
        (["Rome is old.", "Cats purr.", " ", "Iron."], "Cats purr.", 1 / 3),
        (["Rome is old. Cats purr."], "Rome is old.\nCats purr.", 1.0),
        ("He had insufficient information. He left.", "He had insufficient information.", 0.5),
    ],
)
def test_relevance_is_the_share_of_quoted_units(context: Any, reply: str, score: float) -> None:
    """Text around quotes does not count, nor does a repeated quote."""
    judge = Judge([reply])
    found = find(judge, "context-relevance", subject=subject(context=context))
    assert found.holds is (score >= 0.5)
    assert found.score == pytest.approx(score)
    assert judge.rendered[0]["query"] == "How old?"


@pytest.mark.parametrize("reply", [PROSE, HTML, MEGABYTE, "1.", "{}", "Rome was old."])
def test_relevance_without_quotes_is_an_error(reply: str) -> None:
    """A refusal is not a verdict."""
    with pytest.raises(GradingError, match="quotes nothing"):
        find(Judge([reply] * 2), "context-relevance", subject=subject(context=FACTS))


def test_a_blank_context_has_no_units() -> None:
    """The judge did not cause that, so it is not an error of the judge."""
    with pytest.raises(GradingError, match="the context is blank"):
        find(Judge(["x"]), "context-relevance", subject=subject(context=" \n "))


@settings(max_examples=100)
@given(st.lists(st.sampled_from(FACTS.split(". ")), min_size=1, max_size=6))
def test_relevance_never_leaves_its_range(parts: list[str]) -> None:
    """The number and the order of quotes do not matter."""
    replies = ["\n".join(order) for order in (parts, parts[::-1])]
    first, second = (read_quotes(answer(reply), FACTS).score for reply in replies)
    assert first == second
    assert 0 < first <= 1
    assert first == len(set(parts)) / 4


@given(st.text(alphabet="ab.!? \n1)", max_size=60))
@settings(max_examples=100)
def test_units_contain_the_whole_text(text: str) -> None:
    """No unit is blank or only a number, and nothing else is lost."""
    found = units_of(text)
    assert all(unit.strip() == unit != "" for unit in found)
    letters = [mark for mark in text if mark in "ab"]
    assert [mark for unit in found for mark in unit if mark in "ab"] == letters


STATEMENTS = "Rome is old.\n\n  Rome is big.\nRome is in Italy."


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("Final verdict for each statement in order: Yes. No. Yes.", 2 / 3),
        ("1. So.\nFinal verdict for each statement in order:\nYes.\nYes.\nYes.", 1.0),
        ("**Final verdict for each statement in order:** No. No. No.", 0.0),
        ("final verdict for each statement in order: yes, it is. no", 1 / 3),
        ("1. x Verdict: Yes.\n2. y Verdict: No.\n3. z Verdict: yes", 2 / 3),
        ("1. x Verdict: Yes.", 1 / 3),
    ],
)
def test_faithfulness_is_the_share_of_supported_statements(reply: str, score: float) -> None:
    """A statement without a verdict is not supported."""
    judge = Judge([STATEMENTS, reply])
    found = find(judge, "context-faithfulness", subject=subject(context=FACTS))
    assert found.holds is (score >= 0.5)
    assert found.score == pytest.approx(score)
    first, second = judge.rendered
    assert (first["question"], first["answer"]) == ("How old?", "It is old.")
    assert second["statements"] == ["Rome is old.", "Rome is big.", "Rome is in Italy."]
    assert "2. Rome is big." in judge.requests[1].prompt
    negated = verdict(found, "not-context-faithfulness")
    assert negated.passed is (score < 0.5)
    assert negated.score == pytest.approx(1 - score)


@pytest.mark.parametrize(
    "reply",
    [
        PROSE,
        HTML,
        MEGABYTE,
        "Final verdict for each statement in order: Yes. Maybe. No.",
        "Final verdict for each statement in order: Yes or no. Yes. No.",
        "Final verdict for each statement in order: Yes. No. Yes. Yes.",
        "Final verdict for each statement in order:",
        "Verdict: yes. Verdict: yes. Verdict: yes. Verdict: no.",
    ],
)
def test_invalid_verdicts_on_statements(reply: str) -> None:
    """Too many verdicts are as bad as none: they cannot be assigned to statements."""
    judge = Judge([STATEMENTS, reply, reply])
    with pytest.raises(GradingError, match="is unusable"):
        find(judge, "context-faithfulness", subject=subject(context=FACTS))
    assert len(judge.requests) == 3


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("Final verdict for each statement in order: Yes. Yes. Yes. Yes.", 1.0),
        ("Final verdict for each statement in order: No. Yes. Yes. Yes. Yes", 2 / 3),
        ("Final verdict for each statement in order: No. No. No. No. Yes.", 0.0),
        ("final verdict for each statement in order: yes, no, yes", 1 / 3),
        ("Final verdict for each statement in order: Yes.\nNo.\nYes\nYes.", 2 / 3),
        ("Verdict: yes. Verdict: yes. Verdict: no. Verdict: yes.", 2 / 3),
        ("Final verdict for each statement in order: Yes. Maybe. No.", None),
        ("Final verdict for each statement in order:", None),
        (PROSE, None),
    ],
)
def test_lenient_verdicts_equal_those_of_promptfoo(reply: str, score: float | None) -> None:
    """Extra verdicts count, any line that contains a yes is one, and the results are the same."""
    judge = Judge([STATEMENTS, reply])
    found = find(
        judge, "context-faithfulness", subject=subject(context=FACTS), settings={"lenient": True}
    )
    assert found.score == pytest.approx(0 if score is None else score)
    assert found.holds is (score is not None and score >= 0.5)
    negated = verdict(found, "not-context-faithfulness")
    assert negated.score == pytest.approx(0 if score is None else 1 - score)
    assert negated.passed is (score is not None and score < 0.5)


def test_prompts_of_the_user_by_position() -> None:
    """The first extracts statements, the second judges them."""
    judge = Judge(
        ["one", "Verdict: yes"], prompts={0: "A {{answer}}", 1: "B {{statements | join('+')}}"}
    )
    find(judge, "context-faithfulness", subject=subject(context=FACTS))
    assert [one.prompt for one in judge.requests] == ["A It is old.", "B one"]


@settings(max_examples=100)
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 5))
def test_verdicts_are_read_back(verdicts: list[bool], more: int) -> None:
    """Both forms are read, for as many statements or more."""
    words = ["Yes" if one else "No" for one in verdicts]
    short = f"Final verdict for each statement in order: {'. '.join(words)}."
    long = "\n".join(f"{number}. so. Verdict: {word}." for number, word in enumerate(words, 1))
    for reply in (short, long):
        assert read_verdicts(answer(reply), len(words) + more) == verdicts
        with pytest.raises(UnusableReplyError):
            read_verdicts(answer(reply), len(words) - 1)
