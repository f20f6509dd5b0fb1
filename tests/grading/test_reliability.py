"""Repeated calls of a judge, and comparisons in several orders."""

import json
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_double import NO_VERDICTS, Judge, find, outside_of, verdict

from trioeval.errors import GradingError
from trioeval.grading import KINDS, Assertion, Finding, Subject, Verdict, check_assertion
from trioeval.grading.comparison import combine_choices, orders_of, read_choice, swapped
from trioeval.grading.kind import ComparisonJudge, Contender
from trioeval.grading.kinds.measures import combined
from trioeval.grading.services import JudgeReply
from trioeval.grading.strict_reading import UnusableReplyError

THREE = [
    {"pass": passed, "score": score, "reason": f"so {score}"}
    for passed, score in ((True, 0.9), (False, 0.1), (True, 0.6))
]


def test_the_majority_decides_and_agreement_is_reported() -> None:
    """The score is the median; each judgement is stored."""
    judge = Judge(THREE)
    found = find(judge, "llm-rubric", "is kind", config={"repeat": 3})
    assert (found.holds, found.score) == (True, 0.6)
    assert found.metadata["agreement"] == pytest.approx(2 / 3)
    assert sorted((part.score, part.passed) for part in found.parts) == [
        (0.1, False),
        (0.6, True),
        (0.9, True),
    ]
    assert found.reason == "2 of 3 judgements hold: so 0.6"
    assert sorted(found.metadata["graderReplies"]) == sorted(map(json.dumps, THREE))
    assert sorted(one.again for one in judge.requests) == [False, True, True]
    negated = verdict(found, "not-llm-rubric", "is kind", config={"repeat": 3})
    assert negated.passed is False
    assert negated.score == pytest.approx(0.4)


def test_the_mean_is_compared_with_the_threshold() -> None:
    """It is the threshold of the assertion, or that of the type."""
    for threshold, holds in ((None, True), (0.5, True), (0.54, False)):
        judge = Judge(THREE)
        config = {"repeat": 3, "combine": "mean"}
        found = find(judge, "llm-rubric", "is kind", config=config, threshold=threshold)
        assert found.holds is holds
        assert found.score == pytest.approx(1.6 / 3)
    replies = [{"steps": ["a"]}] * 2 + [{"score": 6, "reason": "x"}, {"score": 7, "reason": "y"}]
    judge = Judge(lambda prompt: replies.pop(0) if "By which steps" in prompt else replies.pop())
    config = {"repeat": 2, "combine": "mean"}
    found = find(judge, "g-eval", "is kind", config=config)
    assert found.holds is False
    assert found.score == pytest.approx(0.65)


def test_one_failed_judgement_is_an_error() -> None:
    """A smaller panel would be a different measurement."""
    judge = Judge([THREE[0], GradingError("503"), THREE[2]])
    with pytest.raises(GradingError, match="503"):
        find(judge, "llm-rubric", "is kind", config={"repeat": 3})


def test_with_lenient_reading_one_unreadable_reply_is_a_failure() -> None:
    """It is one under `not-` too, because a judgement is missing."""
    judge = Judge([THREE[0], "well", THREE[2]])
    found = find(judge, "llm-rubric", "is kind", config={"repeat": 3}, settings={"lenient": True})
    assert (found.holds, found.invertible) == (True, False)


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        ("llm-rubric", {"repeat": 0}, ".config.repeat: must be a whole number from 1 to 99, got 0"),
        ("llm-rubric", {"repeat": True}, ".config.repeat: must be a whole number"),
        ("llm-rubric", {"repeat": "3"}, ".config.repeat: must be a whole number"),
        ("llm-rubric", {"repeat": 4}, ".config.repeat: 4 judgements may end in a tie\n  write 5"),
        ("llm-rubric", {"combine": "median"}, ".config.combine: must be majority or mean"),
        ("llm-rubric", {"swap": True}, ".config.swap: llm-rubric is not a comparison"),
        ("select-best", {"swap": 1}, ".config.swap: must be true or false, got 1"),
        ("select-best", {"combine": "mean"}, ".config.combine: choices have no mean"),
        ("conversation-relevance", {"repeat": 2}, ".config.repeat: 2 judgements"),
        ("trajectory:goal-success", {"repeat": 2}, ".config.repeat: 2 judgements"),
        ("similar", {"repeat": 3}, ".config.repeat: it has no effect on similar"),
        ("classifier", {"combine": "mean"}, ".config.combine: it has no effect on classifier"),
        (
            "llm-rubric",
            {"repeet": 3},
            '.config.repeet: "repeet" is not a key of llm-rubric\n  did you mean "repeat"?',
        ),
        (
            "select-best",
            {"other": 3},
            '.config.other: "other" is not a key of select-best\n  known keys are combine, repeat, swap',
        ),
        (
            "conversation-relevance",
            {"windowsize": 3},
            (
                '.config.windowsize: "windowsize" is not a key of conversation-relevance\n'
                '  did you mean "windowSize"?'
            ),
        ),
        ("similar", {"other": 3}, '.config.other: "other" is not a key of similar\n  leave it out'),
    ],
)
def test_invalid_panels(name: str, config: Any, problem: str) -> None:
    """Problems are reported before a run; those of members of a set when they are judged."""
    found = [str(one) for one in check_assertion(Assertion(type=name, value="x", config=config))]
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_a_panel_of_a_set_is_checked_as_well() -> None:
    """Its config applies to members without one."""
    with pytest.raises(GradingError, match=r"config\.repeat: 2 judgements may end in a tie"):
        find(Judge(), "llm-rubric", "x", config={"repeat": 2})
    fine: list[dict[str, Any]] = [
        {"repeat": 5},
        {"repeat": 2, "combine": "mean"},
        {"swap": False},
    ]
    for config in fine:
        assert not list(check_assertion(Assertion(type="llm-rubric", value="x", config=config)))


FINDINGS = st.lists(
    st.builds(
        Finding,
        st.booleans(),
        st.sampled_from(["a", "b", "c"]),
        st.one_of(st.none(), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=7,
).filter(lambda found: len(found) % 2 == 1)


@settings(max_examples=100)
@given(FINDINGS, st.sampled_from(["majority", "mean"]), st.floats(0, 1), st.randoms())
def test_the_order_of_replies_changes_nothing(
    found: list[Finding], combine: Any, threshold: float, random: Any
) -> None:
    """It changes neither the verdict nor its score, reason or agreement."""
    shuffled = list(found)
    random.shuffle(shuffled)
    one, other = combined(found, combine, threshold), combined(shuffled, combine, threshold)
    assert (one.holds, one.score, one.reason) == (other.holds, other.score, other.reason)
    assert one.metadata["agreement"] == other.metadata["agreement"] >= 0.5
    scores = [part.score for part in one.parts]
    assert one.score is not None
    assert min(scores) <= one.score <= max(scores)


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 1))
def test_the_median_reaches_a_threshold_if_the_majority_does(
    scores: list[float], threshold: float
) -> None:
    """Score and verdict therefore never contradict each other."""
    scores = scores[: len(scores) - 1 + len(scores) % 2] or scores[:1]
    found = combined([Finding(one >= threshold, "x", one) for one in scores], "majority", threshold)
    assert found.score is not None
    assert found.holds is (found.score >= threshold)


def compare(judge: Judge, *outputs: str | None, **config: Any) -> list[bool]:
    kind = KINDS["select-best"].judge
    assert isinstance(kind, ComparisonJudge)
    passed = Verdict(passed=True, score=1, reason="")
    contenders = [
        None if output is None else Contender(Subject.of(output, prompt="p"), passed)
        for output in outputs
    ]
    assertion = Assertion(type="select-best", value="shortest", config=config or None)
    found = trio.run(kind.judge, contenders, "shortest", assertion, outside_of(judge))
    return [one.holds for one in found]


def test_a_judge_chooses_one_output() -> None:
    """The prompt has all outputs, numbered from 0."""
    judge = Judge(["1"])
    assert compare(judge, "one", '{"a": 2}', "three") == [False, True, False]
    assert judge.rendered[0]["criteria"] == "shortest"
    assert judge.rendered[0]["outputs"] == ["one", '{"a": 2}', "three"]
    mark = judge.rendered[0]["__mark"]
    for place in range(3):
        assert f"=== output {place} {mark} ===" in judge.requests[0].prompt
    assert "from 0 to 2" in judge.requests[0].prompt


def test_a_judge_that_chooses_by_position_makes_no_choice() -> None:
    """It chooses the first output in both orders."""
    assert compare(Judge(["0"]), "a", "b") == [True, False]
    with pytest.raises(GradingError, match="the judge cannot decide: it chose the outputs 0, 1"):
        compare(Judge(["0", "0"]), "a", "b", swap=True)


def test_choices_are_counted_by_output_not_by_position() -> None:
    """A judge that prefers short texts chooses the same one at any position."""

    def shortest(prompt: str) -> str:
        parts = prompt.split("=== output ")[1:]
        texts = [part.split("===\\n")[1].split("\\n===")[0] for part in parts]
        return f"{texts.index(min(texts, key=len))}"

    judge = Judge(shortest)
    assert compare(judge, "long", "s", "longer", swap=True, repeat=2) == [False, True, False]
    assert len(judge.requests) == 4


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("1", 1),
        ("Output 2.", 2),
        ("**0** is best: 0 it is", 0),
        ({"index": 2, "reason": "0 is worse"}, 2),
        ('{"reason": "1 is worse", "index": 0}', 0),
        ('{"best": 1}', 1),
        ({"index": 0, "reason": "1 of 2"}, 0),
        ("2\n\nBecause of several reasons.", 2),
    ],
)
def test_choices(reply: Any, chosen: int) -> None:
    """A choice is the index of an object, or else the only number."""
    text = reply if isinstance(reply, str) else json.dumps(reply)
    assert read_choice(JudgeReply(text, reply), [True] * 3) == chosen


@pytest.mark.parametrize(
    "reply",
    [
        "3",
        "-1",
        "7 of 9",
        "1 or 2",
        "I compared 2 outputs. The best is output 0.",
        '{"best": 1, "worst": 0}',
        "1.5",
        "0,1",
        "none",
        "9" * 5000,
        '{"index": 5}',
        NO_VERDICTS["prose"],
        NO_VERDICTS["html"],
        NO_VERDICTS["a megabyte"],
        NO_VERDICTS["deep"],
    ],
)
def test_invalid_choices(reply: str) -> None:
    """An index without an output is not a choice."""
    with pytest.raises(UnusableReplyError):
        read_choice(JudgeReply(reply, reply), [True] * 3)


@pytest.mark.parametrize("reply", ["1", '{"index": 1, "reason": "it is short"}'])
def test_an_absent_output_cannot_be_chosen(reply: str) -> None:
    """It keeps its number, so that the numbers of the others are those of their columns."""
    there = [True, False, True]
    with pytest.raises(UnusableReplyError, match="output 1 does not exist"):
        read_choice(JudgeReply(reply, reply), there)
    assert read_choice(JudgeReply("2", "2"), there) == 2
    judge = Judge(lambda prompt: "2" if prompt.index("\\na\\n") < prompt.index("\\nc\\n") else "0")
    assert compare(judge, "a", None, "c", swap=True) == [False, True]
    assert sorted(names["outputs"] for names in judge.rendered) == [
        ["a", "(no output)", "c"],
        ["c", "(no output)", "a"],
    ]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.randoms())
def test_counting_choices_does_not_depend_on_order(choices: list[int], random: Any) -> None:
    """The winner has more than any other."""
    shuffled = list(choices)
    random.shuffle(shuffled)
    found = combine_choices(choices)
    assert found == combine_choices(shuffled)
    most = max(map(choices.count, choices))
    assert found.agreement == most / len(choices)
    leaders = {one for one in choices if choices.count(one) == most}
    assert found.winner == (leaders.pop() if len(leaders) == 1 else None)


@given(st.integers(2, 9), st.integers(1, 4))
@settings(max_examples=50)
def test_each_order_has_its_reverse(outputs: int, repeat: int) -> None:
    """Every order has every output once."""
    for order in orders_of(outputs, repeat=repeat, swap=True):
        assert swapped(swapped(order)) == order
        assert sorted(order) == list(range(outputs))
    assert len(orders_of(outputs, repeat=repeat, swap=True)) == 2 * repeat
