"""model-graded-closedqa: the last letter of the reply, separate from words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_double import HTML, PROSE, Judge, find, verdict

from trioeval.errors import GradingError
from trioeval.grading.judges.facts import read_letter
from trioeval.grading.services import JudgeReply
from trioeval.grading.strict_reading import UnusableReplyError


@pytest.mark.parametrize(
    ("reply", "holds"),
    [
        ("It is short.\n\nY", True),
        ("It is short.\n\nN", False),
        ("Y", True),
        ("N.\n", False),
        ("Verdict: **Y**", True),
        ("(N)  ", False),
        ("not N but 'Y'", True),
    ],
)
def test_letters(reply: str, holds: bool) -> None:  # noqa: FBT001
    """Punctuation after the letter does not matter."""
    found = find(Judge([reply]), "model-graded-closedqa", "is short")
    assert found.holds is holds
    assert reply.strip() in found.reason
    negated = verdict(found, "not-model-graded-closedqa", "is short")
    assert (negated.passed, negated.score) == (not holds, float(not holds))


@pytest.mark.parametrize(
    "reply",
    [
        "maybe",
        "MAY",
        "yes",
        "y",
        "n",
        "WHY",
        "CAN_N",
        "Y or N?!?! no",
        "ÄY",
        "3N",
        PROSE,
        HTML,
        "***",
    ],
)
def test_replies_without_a_letter(reply: str) -> None:
    """The last letter of a word does not count."""
    judge = Judge([reply] * 2)
    with pytest.raises(GradingError, match="ends neither with Y nor with N"):
        find(judge, "model-graded-closedqa", "is short")
    assert len(judge.requests) == 2


def test_lenient_reading_looks_at_the_last_character() -> None:
    """It follows promptfoo: a reply that does not end with Y is N."""
    lenient = {"lenient": True}
    assert find(Judge(["WHY"]), "model-graded-closedqa", "x", settings=lenient).holds
    assert not find(Judge(["Y."]), "model-graded-closedqa", "x", settings=lenient).holds


@settings(max_examples=100)
@given(st.text(), st.sampled_from("YN"), st.text(alphabet=" .*_\n)\"'!-", max_size=20))
def test_a_letter_is_found_after_any_text(before: str, letter: str, behind: str) -> None:
    """Punctuation before and after it changes nothing."""
    reply = f"{before} {letter}{behind}"
    assert read_letter(JudgeReply(reply, reply)) is (letter == "Y")


@settings(max_examples=100)
@given(st.text(alphabet="YNyn a.*", min_size=1))
def test_strict_reading_requires_the_letter_at_the_end(reply: str) -> None:
    """Every other reply is rejected."""
    try:
        holds = read_letter(JudgeReply(reply, reply))
    except UnusableReplyError:
        return
    assert reply.rstrip(" .*")[-1] == ("Y" if holds else "N")
