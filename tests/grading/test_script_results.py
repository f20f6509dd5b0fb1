"""The meaning of the results of scripts, without running one."""

import asyncio
import math
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import GradingError, ScriptError
from trioeval.grading import KINDS, Assertion, Computed, Finding, Subject, check_assertion, grade
from trioeval.grading.grade import ReadyAssertion, make_ready, verdict_of
from trioeval.grading.kind import ExternalJudge
from trioeval.grading.kinds.scripts import read_result
from trioeval.grading.services import ExternalServices

GIVEN = {"pass": True, "score": 0.3, "reason": "r"}
PROGRAM = Computed(Path("/suite/check.py"), "judge", "file://check.py:judge")

KEYS = [
    "pass",
    "pass_",
    "score",
    "reason",
    "namedScores",
    "named_scores",
    "componentResults",
    "component_results",
    "metadata",
    "type",
    "x",
]

numbers = st.floats(allow_nan=False, allow_infinity=False)
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=6,
)


def verdict(result: Any, name: str = "python", threshold: float | None = None) -> Any:
    """Return the verdict for a result, with or without `not-`."""
    ready = make_ready(Assertion(type=name, value="code", threshold=threshold), str, KINDS)
    made = verdict_of(ready, read_result(result, threshold, strict="javascript" in name))
    return made.passed, made.score


@pytest.mark.parametrize(
    ("result", "threshold", "passed", "score"),
    [
        (True, None, True, 1),
        (False, None, False, 0),
        (0, None, False, 0),
        (0.2, None, True, 0.2),
        (-1, None, False, -1),
        (3, None, True, 3),
        (3, 4, False, 3),
        (0.5, 0.5, True, 0.5),
        (0, 0, True, 0),
        (GIVEN, None, True, 0.3),
        (GIVEN, 0.5, False, 0.3),
        ({**GIVEN, "pass": False, "score": 1}, 0.5, False, 1),
        ("true", None, True, 1),
        ("FALSE", None, False, 0),
        (" true", None, False, 0),
        ("0.5", None, True, 0.5),
        (" -2e1 ", None, False, -20),
        ("0.5 apples", None, False, 0),
        ("nan", None, False, 0),
        ("1_000", None, False, 0),
        ("", None, False, 0),
        ('{"pass": true, "score": 0.4, "reason": ""}', 0.5, False, 0.4),
        ("{oops", None, False, 0),
        ('{"pass": true}', None, False, 0),
        (None, None, False, 0),
        ([1], None, False, 0),
        ({"pass_": True, "score": 1, "reason": "r"}, None, True, 1),
        ({"pass": 1, "score": 1, "reason": "r"}, None, False, 0),
        ({"pass": True, "score": True, "reason": "r"}, None, False, 0),
        ({"pass": True, "score": 10**400, "reason": "r"}, None, False, 0),
        ({**GIVEN, "namedScores": {"a": "much"}}, None, False, 0),
        ({**GIVEN, "namedScores": 1}, None, False, 0),
        ({**GIVEN, "namedScores": {"a": "1"}}, None, False, 0),
        ({**GIVEN, "componentResults": 1}, None, False, 0),
        ({**GIVEN, "componentResults": [1]}, None, False, 0),
        ({**GIVEN, "componentResults": [{"score": "x"}]}, None, False, 0),
        (math.inf, None, False, 0),
    ],
)
def test_results_of_python(
    result: Any, threshold: float | None, *, passed: bool, score: float
) -> None:
    """A result is a boolean, a number, an object or the text of one of them; anything else fails."""
    assert verdict(result, threshold=threshold) == (passed, score)


@pytest.mark.parametrize(
    ("result", "threshold", "passed", "score"),
    [
        (True, None, True, 1),
        (0.5, 0.7, False, 0.5),
        (GIVEN, 0.5, True, 0.3),
        ("true", None, False, 0),
        ("0.5", None, False, 0),
        ({"pass_": True, "score": 1, "reason": "r"}, None, False, 0),
        (None, None, False, 0),
    ],
)
def test_results_of_javascript_are_not_converted(
    result: Any, threshold: float | None, *, passed: bool, score: float
) -> None:
    """Texts and keys of other languages do not count; an object's own `pass` does, whatever the threshold."""
    assert verdict(result, "javascript", threshold) == (passed, score)


@pytest.mark.parametrize(
    ("result", "passed", "score"),
    [(True, False, 0), (False, True, 1), (0.3, False, 0.3), (GIVEN, False, 0.3), (None, False, 0)],
)
def test_not_inverts_the_verdict_and_keeps_the_score(
    result: Any, *, passed: bool, score: float
) -> None:
    """An invalid result fails either way."""
    assert verdict(result, "not-python") == (passed, score)


@pytest.mark.slow
@given(result=data, threshold=st.none() | numbers, strict=st.booleans())
def test_any_result_has_a_meaning(result: Any, threshold: float | None, *, strict: bool) -> None:
    """Any result is a finding, with numbers that a document can store."""
    found = read_result(result, threshold, strict=strict)
    assert found.reason is not None
    scores = [found.score or 0.0, *found.named_scores.values()]
    assert all(map(math.isfinite, scores))
    if not found.invertible:
        assert not found.holds


@given(numbers, numbers)
def test_a_number_passes_from_the_threshold_on(score: float, threshold: float) -> None:
    """Without one, it passes above 0."""
    assert read_result(score, threshold).holds is (score >= threshold)
    assert read_result(score, None).holds is (score > 0)


def test_further_fields_of_an_object_are_kept() -> None:
    """These are named scores, weights, metadata, and component results."""
    part = {
        "pass": False,
        "score": 0.25,
        "reason": "low",
        "assertion": {"type": "contains", "value": "a", "metric": "m"},
        "component_results": [{"pass_": True}],
    }
    details = {"named_scores": {"a": 1}, "named_score_weights": {"a": 2}, "metadata": {"k": "v"}}
    found = read_result({**GIVEN, **details, "component_results": [part]}, None)
    assert (found.named_scores, found.named_score_weights) == ({"a": 1}, {"a": 2})
    assert found.metadata == {"k": "v"}
    (one,) = found.parts
    assert (one.passed, one.score, one.reason) == (False, 0.25, "low")
    assert one.assertion == Assertion(type="contains", value="a", metric="m")
    assert [(inner.passed, inner.score) for inner in one.parts] == [(True, 1)]


def test_missing_values_of_javascript() -> None:
    """None of them is JSON."""
    reason = read_result(None, None, strict=True).reason
    assert reason.startswith(
        "the script returned undefined, null, NaN or a function that is never called"
    )


def test_the_depth_of_nested_results_is_bounded() -> None:
    """Infinitely nested results are cut."""
    nested: dict[str, Any] = dict(GIVEN)
    for _ in range(200):
        nested = {**GIVEN, "componentResults": [nested]}
    depth, parts = 0, read_result(nested, None).parts
    while parts:
        depth, parts = depth + 1, parts[0].parts
    assert depth == 8


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (True, "the script returned true"),
        (0.25, "the script returned 0.25"),
        ({**GIVEN, "reason": "because"}, "because"),
        (["a"], 'an object with pass, score and reason, got ["a"]'),
        (None, "several lines need a return"),
        (math.nan, "the number must be a finite number, got NaN"),
    ],
)
def test_reasons(result: Any, reason: str) -> None:
    """They describe the result of the script."""
    assert reason in read_result(result, None).reason


def test_reasons_with_a_threshold() -> None:
    """For a score that is too low, the reason has the expected one."""
    assert read_result(0.1 + 0.2, 0.3).reason == "the script returned 0.30000000000000004"
    assert read_result(0.1 + 0.2, 0.2).reason == "the script returned 0.3"
    assert read_result(0.25, 0.5).reason == "the script returned 0.25, expected at least 0.5"
    assert read_result(GIVEN, 0.5).reason == "the script's score is 0.3, expected at least 0.5: r"
    assert (
        read_result({**GIVEN, "reason": ""}, 0.5).reason
        == "the script's score is 0.3, expected at least 0.5"
    )


class FakeCode:
    """A code runner that fails or returns a given result."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[Any] = []

    async def _give(self, *request: Any) -> Any:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def python(self, code: str, output: Any) -> Any:
        return await self._give("python", code, output)

    async def javascript(self, code: str, output: Any) -> Any:
        return await self._give("javascript", code, output)

    async def ruby(self, code: str, output: Any) -> Any:
        return await self._give("ruby", code, output)

    async def file(self, file: Path, function: str | None, output: Any) -> Any:
        return await self._give(file, function, output)


async def nothing(*_: Any) -> Any:
    await asyncio.sleep(0)


def judged(name: str, value: Any, code: FakeCode, reply: Any = None) -> Finding:
    """Return the finding of a type with external calls."""
    kind = KINDS[name]
    assert isinstance(kind.judge, ExternalJudge)

    async def post(url: str, sent: Any) -> Any:
        await asyncio.sleep(0)
        code.requests.append((url, sent))
        return reply

    outside = ExternalServices(grader=None, code=code, post=post, run=nothing, together=nothing)  # type: ignore[arg-type]
    subject = Subject.of({"a": 1}, prompt="p", vars={"v": 1})
    found = kind.judge.judge(subject, value, Assertion(type=name, value=value), outside)
    return asyncio.run(_awaited(found))


async def _awaited(found: Awaitable[Finding]) -> Finding:
    return await found


@pytest.mark.parametrize("name", ["python", "javascript", "ruby"])
def test_code_gets_the_output_unchanged(name: str) -> None:
    """The code is inline, or in a file of any language."""
    code = FakeCode(0.5)
    assert judged(name, "code", code).score == 0.5
    assert judged(name, PROGRAM, code).score == 0.5
    assert code.requests == [(name, "code", {"a": 1}), (PROGRAM.file, "judge", {"a": 1})]


@pytest.mark.parametrize("name", ["python", "javascript", "ruby"])
def test_code_that_fails_fails_the_assertion(name: str) -> None:
    """It does so under `not-` too; aborted code is an error."""
    found = judged(name, "code", FakeCode(ScriptError("no luck")))
    assert (found.holds, found.invertible, found.reason) == (False, False, "no luck")
    with pytest.raises(GradingError, match="too long"):
        judged(name, "code", FakeCode(GradingError("too long")))


@pytest.mark.parametrize(
    ("reply", "holds", "score"),
    [
        ({"pass": True}, True, None),
        ({"pass": False, "score": 0.4, "reason": "low"}, False, 0.4),
    ],
)
def test_webhooks(reply: Any, *, holds: bool, score: float | None) -> None:
    """The request has the output, the prompt and the variables."""
    code = FakeCode(None)
    found = judged("webhook", "http://h/x", code, reply)
    assert (found.holds, found.score) == (holds, score)
    sent = {"output": {"a": 1}, "context": {"prompt": "p", "vars": {"v": 1}}}
    assert code.requests == [("http://h/x", sent)]


@pytest.mark.parametrize(
    "reply",
    [
        None,
        [],
        {},
        {"pass": "yes"},
        {"pass": True, "score": "1"},
        {"pass": True, "score": None},
    ],
)
def test_an_invalid_response_of_a_webhook_is_an_error(reply: Any) -> None:
    """A missing response is an error too."""
    with pytest.raises(GradingError, match="webhook"):
        judged("webhook", "http://h/x", FakeCode(None), reply)


@pytest.mark.parametrize(
    ("assertion", "problem"),
    [
        (Assertion(type="webhook", value="ftp://h"), "begins with http"),
        (Assertion(type="webhook", value="http://[h"), "begins with http"),
        (Assertion(type="webhook", value="{{url}}"), None),
        (Assertion(type="webhook", value="https://h/x?y=1"), None),
        (Assertion(type="python", value=" "), "Python code"),
        (Assertion(type="python", value=3), "Python code"),
        (Assertion(type="not-ruby", value="true"), None),
        (Assertion(type="regex", value=PROGRAM), None),
        (Assertion(type="contains", value=PROGRAM), None),
    ],
)
def test_checks_before_a_run(assertion: Assertion, problem: str | None) -> None:
    """A value is not judged before its program has computed it."""
    found = [*map(str, check_assertion(assertion))]
    assert (problem is None) == (not found)
    assert problem is None or problem in found[0]


def test_a_value_that_a_program_computes_needs_a_run() -> None:
    """`grade` does not run it."""
    with pytest.raises(GradingError, match=r"check\.py:judge, which only run_suite can call"):
        grade("a", [Assertion(type="contains", value=PROGRAM)])
    ready = make_ready(Assertion(type="python", value=PROGRAM), str, KINDS)
    assert isinstance(ready, ReadyAssertion)
    assert ready.value is PROGRAM
