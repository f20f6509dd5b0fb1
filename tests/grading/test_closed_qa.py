"""model-graded-closedqa: the last letter, on its own."""

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
    """Marks behind the letter do not matter."""
    found = find(Judge([reply]), "model-graded-closedqa", "is short")
    assert found.holds is holds
    assert reply.strip() in found.reason
    said = verdict(found, "not-model-graded-closedqa", "is short")
    assert (said.passed, said.score) == (not holds, float(not holds))


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
def test_what_is_no_letter(reply: str) -> None:
    """A word that ends with one is another word."""
    judge = Judge([reply] * 2)
    with pytest.raises(GradingError, match="ends neither with Y nor with N"):
        find(judge, "model-graded-closedqa", "is short")
    assert len(judge.asked) == 2


def test_lenient_reading_looks_at_the_last_character() -> None:
    """As promptfoo does: what does not end with Y is N."""
    lenient = {"lenient": True}
    assert find(Judge(["WHY"]), "model-graded-closedqa", "x", settings=lenient).holds
    assert not find(Judge(["Y."]), "model-graded-closedqa", "x", settings=lenient).holds


@settings(max_examples=100)
@given(st.text(), st.sampled_from("YN"), st.text(alphabet=" .*_\n)\"'!-", max_size=20))
def test_a_letter_is_found_behind_anything(before: str, letter: str, behind: str) -> None:
    """And marks before and behind it change nothing."""
    reply = f"{before} {letter}{behind}"
    assert read_letter(JudgeReply(reply, reply)) is (letter == "Y")


@settings(max_examples=100)
@given(st.text(alphabet="YNyn a.*", min_size=1))
def test_what_strict_reading_takes_ends_with_that_letter(reply: str) -> None:
    """Or is refused."""
    try:
        holds = read_letter(JudgeReply(reply, reply))
    except UnusableReplyError:
        return
    assert reply.rstrip(" .*")[-1] == ("Y" if holds else "N")
