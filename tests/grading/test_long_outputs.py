"""Outputs much longer than usual replies: bounds of judging, and who waits for it."""

import threading

import pytest
import trio

import trioeval
from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject
from trioeval.grading.grade import find, judged_here, make_ready
from trioeval.grading.kind import AT_ONCE, SLOW_AT_ONCE, Finding, Kind, SlowError
from trioeval.grading.kinds.text import is_refusal
from trioeval.grading.kinds.xml import xml_fault
from trioeval.grading.registry import KINDS

VALUES = {"word-count": 3, "tool-call-f1": ["a"]}


@pytest.mark.parametrize(
    ("kind", "most"),
    [("rouge-n", 500_000), ("bleu", 500_000), ("gleu", 500_000), ("tool-call-f1", 1_000_000)],
)
def test_types_of_superlinear_cost_bound_the_output(kind: str, most: int) -> None:
    """An output beyond the bound was not judged, so `not-` fails too."""
    value = VALUES.get(kind, "a b")
    assert judged_here(Subject.of("a" * most), Assertion(type=kind, value=value), str).score < 0.01
    message = rf"^the output has {most + 1:,} characters; {kind} takes up to {most:,}$"
    for name in (kind, f"not-{kind}"):
        with pytest.raises(GradingError, match=message):
            judged_here(Subject.of("a" * (most + 1)), Assertion(type=name, value=value), str)


def test_references_have_the_same_bound() -> None:
    """The bound applies to all of them together, as each is read."""
    assertion = Assertion(type="bleu", value=["a" * 300_000, "a" * 200_001])
    with pytest.raises(GradingError, match=r"^the value has 500,001 characters; up to 500,000 are"):
        judged_here(Subject.of("a"), assertion, str)


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        *((name, SLOW_AT_ONCE) for name in ("rouge-n", "bleu", "gleu", "meteor", "tool-call-f1")),
        *((name, SLOW_AT_ONCE) for name in ("is-sql", "contains-sql", "contains-json")),
        *((name, AT_ONCE) for name in ("contains", "is-json", "word-count", "is-refusal")),
    ],
)
def test_only_quick_judging_may_block_the_event_loop(kind: str, most: int) -> None:
    """From some length on, judging requires a thread; types that parse have a lower bound."""
    assert KINDS[kind].at_once == most


def test_a_slow_judge_is_not_started_on_the_event_loop() -> None:
    """The function of the raised exception judges."""
    judged: list[int] = []

    def judge(subject: Subject, _value: object, _assertion: Assertion) -> Finding:
        judged.append(len(subject.text))
        return Finding(holds=True, reason="yes")

    kind = Kind("any", lambda _: True, judge, bare=True, at_once=3)
    ready = make_ready(Assertion(type="own"), str, {"own": kind})
    assert find(ready, judge, Subject.of("abc"), patient=False).holds
    with pytest.raises(SlowError) as caught:
        find(ready, judge, Subject.of("abcd"), patient=False)
    assert judged == [3]
    assert caught.value.finish().holds
    assert judged == [3, 4]


@pytest.mark.parametrize("at", [65_536 - 8, 65_536, 65_536 + 256 - 8, 131_072 - 3])
def test_a_refusal_is_found_across_the_ends_of_pieces(at: int) -> None:
    """A text is searched in pieces."""
    assert is_refusal("." * at + "I cannot assist with that")
    assert not is_refusal("." * at + "I can assist with that")


@pytest.mark.parametrize("end", [65_536, 65_536 + 256, 2 * 65_536 + 256])
def test_the_end_of_a_piece_is_not_the_end_of_a_word(end: int) -> None:
    """A phrase at the end of a piece may continue in the next one."""
    phrase = "not legal"
    assert is_refusal("." * (end - len(phrase)) + phrase)
    assert not is_refusal("." * (end - len(phrase)) + phrase + "ly")


def test_xml_is_read_in_pieces() -> None:
    """Multi-byte characters cross their ends, and faults have the right position."""
    text = "é" * 200_000
    assert xml_fault(f"<a>{text}</a>") is None
    assert xml_fault(f"<aa>{text}</aa>") is None
    assert xml_fault(f"<a>\n{text}<b></a>") == "line 2, column 200006: mismatched tag"
    assert xml_fault("") == "line 1, column 1: no element found"


def test_a_run_judges_long_outputs_outside_of_the_event_loop() -> None:
    """Each type has its own length for that."""
    threads: dict[int, threading.Thread] = {}

    def judge(subject: Subject, _value: object, _assertion: Assertion) -> Finding:
        threads[len(subject.text)] = threading.current_thread()
        return Finding(holds=True, reason="yes")

    kinds = {"own": Kind("any", lambda _: True, judge, bare=True, at_once=3)}
    suite = trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["abc", "abcd"],
            "tests": [{"assert": [{"type": "own"}]}],
        },
        kinds=kinds,
    )
    rows = trio.run(lambda: trioeval.collect(suite))
    assert [row.status.value for row in rows] == ["pass", "pass"]
    assert threads[3] is threading.main_thread()
    assert threads[4] is not threading.main_thread()
