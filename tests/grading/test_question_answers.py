"""Prompts of questions, and the answers at the end of replies."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.question_eval.answer import (
    ParseError,
    QuestionResult,
    normalized,
    parse_answer,
    question_prompt,
)
from trioeval.question_eval.model import Question
from trioeval.question_eval.result import judged

SPICED = st.text(st.sampled_from("a<>/!?&;#x38lt amp\"'é ß\n")) | st.text()
CHOICES = SPICED.map(str.strip).filter(bool)


def raw(reply: str) -> str:
    answer = parse_answer(reply)
    assert isinstance(answer, str), answer
    return answer


def graded(reply: str, answers: list[str], correct: list[str]) -> QuestionResult:
    question = Question(question="?", answers=(*answers,), correct_answers=(*correct,))
    return judged(question, reply)


def fault(reply: str) -> str:
    found = parse_answer(reply)
    assert isinstance(found, ParseError), found
    return found.kind


def test_qe_05_an_answer_is_stripped_and_normalized() -> None:
    """Any text before it is ignored."""
    reply = "The sky is blue.\n<answer> Blue\n</answer>\n"
    assert parse_answer(reply) == "Blue"
    assert parse_answer("<answer>Blue</answer>") == "Blue"
    assert normalized("Blue") == "blue"


@pytest.mark.parametrize(
    "reply",
    [
        "<answer>Blue</answer> because",
        "<answer>Blue</answer>.",
        "<answer>Blue</answer><answer>",
        "</answer> x",
    ],
)
def test_qe_06_nothing_may_follow_the_answer(reply: str) -> None:
    """This includes a full stop."""
    assert fault(reply) == "trailing_text"


def test_qe_07_the_last_answer_counts() -> None:
    """A model may change its mind."""
    assert raw("<answer>Red</answer> no, wait: <answer>Blue</answer>") == "Blue"
    assert raw("<answer> I mean <answer>Blue</answer>") == "Blue"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("<answers>x</answers>", "missing_answer"),
        ("<Answer>x</Answer>", "missing_answer"),
        ("<answer >x</answer>", "missing_answer"),
        ("x</answer>", "missing_answer"),
        ("<answer>x", "missing_answer"),
        ("", "missing_answer"),
        (" \n", "missing_answer"),
        ("Blue", "missing_answer"),
        ("<answer> </answer>", "empty_answer"),
        ("<answer></answer>", "empty_answer"),
        ("<answer>&#32;</answer>", "empty_answer"),
    ],
)
def test_qe_08_a_reply_without_an_answer_has_none(reply: str, kind: str) -> None:
    """Tags are lower-case and exact."""
    assert fault(reply) == kind


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        ("A & B", "A & B"),
        ("A &amp; B", "A & B"),
        ("a < b", "a < b"),
        ("a <3 b", "a <3 b"),
        ("1<2>0", "1<2>0"),
        ("&lt;b&gt; &quot;&apos;", "<b> \"'"),
        ("&#38;#x42;", "&#x42;"),
        ("&#x41;&#66;", "AB"),
        ("&amp;lt;", "&lt;"),
        ("AT&T; &nbsp; &AMP; &#; &#x; &#xD800; &#0; &#1114112; &#X41;",) * 2,
        ("a <", "a <"),
    ],
)
def test_qe_09_xml_characters_are_literal_unless_they_form_a_reference(
    content: str, meant: str
) -> None:
    """References are decoded once."""
    assert raw(f"<answer>{content}</answer>") == meant


@pytest.mark.parametrize(
    "content", ["<b>x</b>", "a <b", "x</b>", "<!-- x -->", "<?x?>", "A</answer>", "<é>"]
)
def test_qe_10_markup_is_not_an_answer(content: str) -> None:
    """An incomplete tag is not an answer either."""
    assert fault(f"<answer>{content}</answer>") == "malformed_answer"


def test_qe_11_an_unlisted_choice_is_a_wrong_answer() -> None:
    """It is not a malformed reply."""
    green = graded("<answer>Green</answer>", ["Red", "Blue"], ["Blue"])
    assert (green.correct, green.answer_listed) == (False, False)
    red = graded("<answer>red</answer>", ["Red", "Blue"], ["Blue"])
    assert (red.correct, red.answer_listed) == (False, True)


def test_qe_12_answers_are_case_folded() -> None:
    """Lower case alone would not be sufficient."""
    street = graded("<answer>STRASSE</answer>", ["Straße", "Weg"], ["Straße"])
    assert (street.correct, street.answer_listed) == (True, True)


@given(st.text())
@example("İ")
@example("ΐ")
@example("ﬃ")
def test_normalization_is_idempotent(text: str) -> None:
    """The composition of characters does not matter."""
    assert normalized(normalized(text)) == normalized(text)


@pytest.mark.parametrize("pair", ["e\u0301é", "Å\u212b"])
def test_composed_and_decomposed_forms_are_equal(pair: str) -> None:
    """They look the same."""
    assert normalized(pair[:-1]) == normalized(pair[-1])


@given(st.lists(CHOICES, min_size=1, max_size=4), st.text())
@example(["<b>", "&amp;", "a\nb"], "")
@example(["</answer>", "&#38;lt;"], "")
def test_a_copied_choice_is_that_choice(choices: list[str], reasoning: str) -> None:
    """Choices may have any content: they are listed literally, and equal texts are the same choice."""
    listed = question_prompt("Which?", choices).partition("Choices:\n")[2]
    assert listed == "\n".join(choices)
    for choice in choices:
        found = parse_answer(f"{reasoning}<answer> {choice}\n</answer>", choices)
        assert found == choice


@pytest.mark.parametrize(
    ("content", "choice"),
    [
        ("<div>", "<div>"),
        ("<DIV>", "<div>"),
        ("&lt;div>", "<div>"),
        ("&lt;div&gt;", "<div>"),
        ("&amp;", "&amp;"),
        ("&amp;amp;", "&amp;"),
        ("</answer>", "</answer>"),
    ],
)
def test_a_choice_with_markup_is_answered_as_it_is_shown_or_escaped(
    content: str, choice: str
) -> None:
    """A reply that equals no choice stays malformed."""
    choices = ["<div>", "<span>", "&amp;", "</answer>"]
    found = graded(f"<answer>{content}</answer>", choices, [choice])
    assert (found.correct, found.answer_listed) == (True, True)
    assert isinstance(parse_answer("<answer><b></answer>", choices), ParseError)


def test_a_choice_and_its_escaped_form_are_different_choices() -> None:
    """Both are choices, and each can be answered."""
    for choice in ("&", "&amp;", "a<answer>b", "b"):
        found = parse_answer(f"<answer>{choice}</answer>", ["&", "&amp;", "b", "a<answer>b"])
        assert found == choice


@given(SPICED, SPICED, SPICED)
def test_every_reply_is_an_answer_or_a_described_error(
    before: str, content: str, after: str
) -> None:
    """It is never an exception, a blank answer, or text after the answer."""
    found = parse_answer(f"{before}<answer>{content}</answer>{after}")
    match found:
        case str(text):
            assert text
            assert text == text.strip()
            assert not after.strip()
        case ParseError(message=message):
            assert message


def test_long_replies_are_read_quickly() -> None:
    """Repeated tags do not matter."""
    assert fault("<answer>" * 200_000) == "missing_answer"
    assert fault("</answer>" * 200_000) == "missing_answer"
    assert raw(f"<answer>{'&' * 1_000_000}</answer>").startswith("&&")


def test_the_prompt_has_instructions_the_question_and_the_choices() -> None:
    """They are in this order, one line for each choice."""
    prompt = question_prompt("Which colour?", ["Red", "Blue & green"])
    instructions, question, choices = prompt.split("\n\n")
    assert "<answer>" in instructions
    assert "</answer>" in instructions
    assert question == "Question:\nWhich colour?"
    assert choices == "Choices:\nRed\nBlue & green"
