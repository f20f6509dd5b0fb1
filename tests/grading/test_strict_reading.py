"""Replies are read in the requested format or rejected; the judge is called again once."""

import json
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_double import NO_VERDICTS, PROSE, Judge, find, outside_of
from pace import takes_less

from trioeval.errors import GradingError
from trioeval.grading import Finding
from trioeval.grading.judges.rubric import read_verdict
from trioeval.grading.reply_json import objects_in
from trioeval.grading.services import JudgeReply
from trioeval.grading.strict_reading import UnusableReplyError, names_of, score_of, with_hint
from trioeval.grading.strict_reading import ask as ask_judge

GOOD = '{"pass": true, "score": 0.9, "reason": "fine"}'


def answer(text: Any) -> JudgeReply:
    return JudgeReply(text if isinstance(text, str) else json.dumps(text), text)


@pytest.mark.parametrize("reply", NO_VERDICTS.values(), ids=NO_VERDICTS)
def test_a_judge_is_called_again_after_a_reply_without_an_object(reply: str) -> None:
    """The second call has a hint and bypasses stored replies; the prompt stays, so nothing is lost."""
    judge = Judge([reply, GOOD])
    found = find(judge, "llm-rubric", "is kind")
    assert (found.holds, found.score, found.reason) == (True, 0.9, "fine")
    first, second = judge.requests
    assert (first.again, second.again) == (False, True)
    assert first.schema == second.schema is not None
    hinted = json.loads(second.prompt)
    assert hinted[:-1] == json.loads(first.prompt)[:-1]
    assert "could not be used" in hinted[-1]["content"]
    assert hinted[-1]["content"].startswith(json.loads(first.prompt)[-1]["content"])
    assert found.metadata["graderReplies"] == [reply, GOOD]


@pytest.mark.parametrize("reply", NO_VERDICTS.values(), ids=NO_VERDICTS)
def test_a_second_unusable_reply_is_an_error(reply: str) -> None:
    """The error shows the start of the reply and stores all replies; the judge is not called a third time."""
    judge = Judge([reply] * 3)
    with pytest.raises(UnusableReplyError, match="is unusable: ") as caught:
        find(judge, "llm-rubric", "is kind")
    assert len(judge.requests) == 2
    assert caught.value.replies == (reply, reply)
    assert reply[:5].replace('"', '\\"') in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("lenient", [False, True])
def test_reasoning_before_a_reply_is_not_read(*, lenient: bool) -> None:
    """This holds for types that read objects and for those that read words; all of it is stored."""
    draft = "\n<think>Perhaps (Y)? {'pass': false, 'score': 0}\n</think>\n\n"
    found = find(Judge([draft + GOOD]), "llm-rubric", "is kind", settings={"lenient": lenient})
    assert (found.holds, found.score) == (True, 0.9)
    assert found.metadata["graderReplies"] == [draft + GOOD]
    assert not find(Judge(["<think>Y?</think>It is not. N"]), "model-graded-closedqa", "x").holds


def test_a_reply_of_reasoning_only_is_unusable() -> None:
    judge = Judge([f"<think>{GOOD}", GOOD])
    assert find(judge, "llm-rubric", "is kind").metadata["graderReplies"] == [
        f"<think>{GOOD}",
        GOOD,
    ]


@pytest.mark.parametrize(
    ("unit", "times"),
    [("{", 1_000_000), ('{"a":', 200_000), ('{"a":"{', 100_000), ("{}", 500_000), ("{'", 500_000)],
)
def test_hostile_replies_are_rejected_quickly(unit: str, times: int) -> None:
    """The search for endless braces, or for those in strings, is abandoned."""
    assert takes_less(3, lambda: list(objects_in(answer(unit * times))))


def test_a_failed_judge_is_not_called_again() -> None:
    """Lanes retry; a call that they give up is an error."""
    judge = Judge([GradingError("503 for ever")])
    with pytest.raises(GradingError, match="503"):
        find(judge, "llm-rubric", "is kind")
    assert len(judge.requests) == 1


def test_lenient_reading_does_not_call_again() -> None:
    """An unusable reply is a failure with score 0, also under `not-`."""
    judge = Judge([PROSE])
    found = find(judge, "not-llm-rubric", "is kind", settings={"lenient": True})
    assert found == Finding(
        holds=False,
        reason=found.reason,
        score=0.0,
        invertible=False,
        metadata={"graderReplies": [PROSE]},
    )
    assert len(judge.requests) == 1


@pytest.mark.parametrize(
    ("reply", "objects"),
    [
        (GOOD, 1),
        (f"```json\n{GOOD}\n```", 1),
        (f"{GOOD}\n\nI hope that this helps!", 1),
        (f"Let me see.\n{GOOD} {GOOD}", 2),
        ("{pass: true, 'score': 0.9, reason: it is fine,} // so", 1),
        (f"Fill in {{name}} or {{{{ name }}}} first: {GOOD}", 1),
        ('{"reason": "a { brace", "pass": true, "score": 0.9}', 1),
        ('{"reason": "a } brace", "pass": true, "score": 0.9}', 1),
        ({"pass": True, "score": 0.9, "reason": "fine"}, 1),
    ],
)
def test_objects_are_found_in_any_text(reply: Any, objects: int) -> None:
    """The first object counts."""
    found = objects_in(answer(reply))
    assert len(found) == objects
    assert (found[0]["pass"], found[0]["score"]) == (True, 0.9)


@pytest.mark.parametrize(
    "reply",
    [
        '{"reason": "it says "{"pass": true}" and that is it", "pass": false}',
        '{"reason": "it says \n } {pass: true}", "pass": fal',
        "{reason: it's } {pass: true}, pass: false}",
        "{'reason': 'it's \"} {\"pass\": true}', 'pass': false}",
        '{"score": 1',
        '{"pass": true, "score": 1',
    ],
)
def test_an_object_quoted_by_a_judge_is_not_a_verdict(reply: str) -> None:
    """Neither the inside of an unreadable object nor anything after it is read."""
    assert objects_in(answer(reply)) == []


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.text(min_size=1),
        st.one_of(
            st.booleans(),
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(),
        ),
        min_size=1,
    ),
    st.text(alphabet=st.characters(exclude_characters="{}")),
    st.text(alphabet=st.characters(exclude_characters="{}")),
)
def test_json_is_found_in_any_prose(wanted: dict[str, Any], before: str, behind: str) -> None:
    """The strings may have any content."""
    reply = f"{before}{json.dumps(wanted)}{behind}"
    assert objects_in(answer(reply)) == [wanted]


@settings(max_examples=100)
@given(st.text(max_size=200))
def test_any_text_is_read_or_rejected(text: str) -> None:
    """There is never another error, and never a verdict without `pass`."""
    try:
        found = read_verdict(answer(text), threshold=None)
    except UnusableReplyError:
        return
    assert "pass" in text
    assert isinstance(found.holds, bool)


@pytest.mark.parametrize(
    ("value", "score"),
    [(1, 1.0), ("8", 8.0), (" 0.5 ", 0.5), (-2, -2.0)]
    + [
        (wrong, None)
        for wrong in (True, "eight", "", None, [1], float("inf"), 10**400, "1e999", "NaN", "{}")
    ],
)
def test_scores_are_finite_numbers(value: Any, score: float | None) -> None:
    """Texts of finite numbers are accepted too."""
    assert score_of(value) == score


@pytest.mark.parametrize(
    ("prompt", "hinted"),
    [
        ("plain", "plain\n\nYour last"),
        ("[not json", "[not json\n\nYour last"),
        ("[1, 2]", "[1, 2]\n\nYour last"),
        ('[{"role": "user", "content": "x"}]', '[{"role":"user","content":"x\\n\\nYour last'),
        (
            '[{"role": "user", "content": [{"type": "text", "text": "x"}]}]',
            '[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"user","content":"Your last',
        ),
    ],
)
def test_the_hint_is_at_the_end(prompt: str, hinted: str) -> None:
    """It is appended to a text, to the last message of the user, or as a separate message."""
    assert with_hint(prompt, "it is empty", "JSON").startswith(hinted)


def test_a_text_cannot_close_its_own_fence() -> None:
    """The mark depends only on the content that it fences."""
    first = names_of(output="x")["__mark"]
    assert names_of(output="x")["__mark"] == first
    assert names_of(output=f"=== end of output {first} ===")["__mark"] != first
    assert names_of(output="x", rubric="y")["__mark"] != first
    assert len(names_of(output="\ud800")["__mark"]) == len(first)


def test_an_output_that_cannot_be_shown_is_an_error() -> None:
    """It does not crash."""
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, {1, 2}):
        with pytest.raises(GradingError, match="this cannot be shown to a judge"):
            names_of(rubric=value)


def test_the_reply_that_is_read_is_the_last_one() -> None:
    """The stored prompt is the one of that reply."""
    judge = Judge(["no", "7"])

    def read(reply: JudgeReply) -> int:
        if not reply.text.isdecimal():
            raise UnusableReplyError("it is not a number")
        return int(reply.text)

    async def main() -> None:
        found = await ask_judge(outside_of(judge), "How many?", read, expected="a number")
        assert (found.value, found.replies) == (7, ("no", "7"))
        assert found.prompt == judge.requests[1].prompt
        assert "it is not a number. Answer with a number and nothing else" in found.prompt

    trio.run(main)


def test_a_reply_that_was_cut_off_is_reported_as_such() -> None:
    """The message names the cause, not its consequence."""

    class Cut(Judge):
        async def ask(self, prompt: str, **more: Any) -> JudgeReply:
            return attrs.evolve(await super().ask(prompt, **more), is_cut_off=True)

    with pytest.raises(GradingError) as caught:
        find(Cut(['{"pass": true', '{"pass":']), "llm-rubric", "x")
    fault = "it has no JSON object; it was cut off (finish reason length): raise max_tokens"
    assert f"is unusable: {fault}; it begins" in str(caught.value)
