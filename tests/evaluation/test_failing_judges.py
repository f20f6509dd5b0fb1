"""Judges of the user that fail in any way: an error of their assertion, and of no other."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import JUDGED, suite_of

import trioeval
from trioeval import Reply, Row, Status, SuiteError, parse_suite
from trioeval.errors import GradingError, ProviderError
from trioeval.evaluation.judging import AssertionServices, Judging, JudgingContext
from trioeval.evaluation.scoring import Spending
from trioeval.grading import Assertion, Finding, JudgeUsage, Kind, Kinds, Subject
from trioeval.grading.grade import check_assertion
from trioeval.grading.kind import ComparisonJudge, Contender, ExternalJudge
from trioeval.grading.services import ExternalServices
from trioeval.run.prepare import prepare
from trioeval.suite.model import Suite
from trioeval.suite.sources import jsonl_tests
from trioeval.testing import run_virtual

ASKS = {"type": "asks", "value": "kind", "provider": "judge"}


def broken() -> KeyError:
    return KeyError("x")


async def raises(_: Subject, value: Any, __: Assertion, outside: ExternalServices) -> Finding:
    """A judge that fails as configured."""
    await trio.lowlevel.checkpoint()
    match value:
        case "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(outside.grader.ask, "again?")
                await trio.lowlevel.checkpoint()
        case "several":
            msg = "two"
            raise ExceptionGroup(msg, [broken(), GradingError("second")])
        case "nothing":
            return None  # type: ignore[return-value] # a mistake that users make
    raise broken()


async def fails_when_cut_off(
    _: Subject, __: Any, ___: Assertion, ____: ExternalServices
) -> Finding:
    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise broken()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean_up)
        await trio.sleep_forever()
    raise AssertionError


async def compares_badly(
    contenders: Sequence[Contender | None], value: Any, _: Assertion, __: ExternalServices
) -> Sequence[Finding]:
    await trio.lowlevel.checkpoint()
    if value == "few":
        return [Finding(holds=True, reason="the best")]
    if value == "seven":
        return 7  # type: ignore[return-value] # on purpose
    raise broken()


async def seems(*calls: Any) -> Any:
    """Returns its value, which may be an invalid result."""
    await trio.lowlevel.checkpoint()
    return calls[1]


def picky(value: Any) -> bool:
    """Return whether a value is accepted; fail for a value that is not a template or a number."""
    return isinstance(value, str) and ("{{" in value or 1 / int(value) > 0)


KINDS: Kinds = {
    **JUDGED,
    "raises": Kind("text", lambda _: True, ExternalJudge(raises, frozenset({"text"})), bare=True),
    "cut-off": Kind("nothing", lambda _: True, ExternalJudge(fails_when_cut_off), bare=True),
    "seems": Kind("any value", lambda _: True, ExternalJudge(seems)),
    "picky": Kind("a number", picky, ExternalJudge(raises)),
    "picky-here": Kind("a number", picky, lambda *_: Finding(holds=True, reason="fine")),
    "select-best": Kind("text", lambda _: True, ComparisonJudge(compares_badly), bare=True),
    "my-best": Kind("text", lambda _: True, ComparisonJudge(compares_badly), bare=True),
}


async def hello(_request: trioeval.Request) -> Reply:
    await trio.lowlevel.checkpoint()
    return Reply(output="hello", cost=1.0)


async def yes(_request: trioeval.Request) -> Reply:
    await trio.sleep(1)
    return Reply(output="yes", cost=0.25)


def document(*assertions: Any, **more: Any) -> dict[str, Any]:
    return {
        "providers": ["mine"],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": "hello"}, "assert": list(assertions)}],
        **more,
    }


def rows_of(suite: Suite | dict[str, Any], judge: Any = yes) -> list[Row]:
    loaded = parse_suite(suite, kinds=KINDS, environ={}) if isinstance(suite, dict) else suite
    providers = {"mine": hello, "judge": judge}
    return run_virtual(lambda: trioeval.collect(loaded, providers=providers))


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        ({"type": "raises", "value": "once"}, "its judge failed: KeyError: 'x'"),
        ({"type": "raises", "value": "several"}, "its judge failed: KeyError: 'x'"),
        (
            {"type": "raises", "value": "nothing"},
            "raises must return true or false, a number or a Finding, got NoneType: null",
        ),
        ({"type": "picky", "value": "{{ word }}"}, "its judge failed: ValueError: "),
        ({"type": "picky-here", "value": "{{ word }}"}, "its judge failed: ValueError: "),
    ],
)
def test_whatever_a_judge_raises_is_the_error_of_its_assertion(
    assertion: dict[str, Any], message: str
) -> None:
    """The spending of other judges is kept; without weight the failure does not count."""
    wrong = {**assertion, "provider": "judge"}
    (row,) = rows_of(document(ASKS, wrong))
    assert (row.status, row.spent.calls, len(row.graded)) == (Status.ERROR, 1, 1)
    assert row.error is not None
    assert row.error.startswith(f"assert[1] ({assertion['type']}): {message}")
    (row,) = rows_of(document(ASKS, {**wrong, "weight": 0}))
    assert (row.status, row.spent.calls) == (Status.PASS, 1)
    assert row.verdict is not None
    assert row.verdict.parts[1].reason.startswith(message)


@pytest.mark.parametrize(
    ("value", "status", "score"), [(True, "pass", 1), (0.25, "pass", 0.25), (False, "fail", 0)]
)
def test_a_judge_that_makes_calls_may_return_the_values_of_a_function(
    value: Any, status: str, score: float
) -> None:
    (row,) = rows_of(document({"type": "seems", "value": value}))
    assert (row.status.value, row.score) == (status, score)


@pytest.mark.parametrize("name", ["seems", "not-seems"])
def test_an_invalid_result_of_a_judge_is_reported_with_the_valid_ones(name: str) -> None:
    (row,) = rows_of(document({"type": name, "value": ["yes"]}))
    wanted = "seems must return true or false, a number or a Finding, got list"
    assert row.error == f'assert[0] ({name}): {wanted}: ["yes"]'


def test_a_transient_failure_in_a_nursery_stays_transient() -> None:
    """The row is judged once more, and its error names the judge and the failure."""
    calls: list[str] = []

    async def judge(request: trioeval.Request) -> Reply:
        calls.append(request.prompt)
        if request.prompt == "again?":
            raise ProviderError("server", "503")
        return await yes(request)

    entry = {"id": "judge", "lane": {"retries": 0}}
    wrong = {"type": "raises", "value": "nursery", "provider": entry}
    options = {"salvageRounds": 1}
    (row,) = rows_of(document({**ASKS, "provider": entry}, wrong, evaluateOptions=options), judge)
    assert row.error == "assert[1] (raises): the grader judge failed: server: 503"
    assert row.details["errorKind"] == "server"
    assert calls.count("again?") == 2
    assert len(calls) == 3


def test_a_judge_that_fails_while_it_is_cancelled_affects_no_other() -> None:
    """The deciding failure is reported."""

    async def untouched(_transform: str, subject: Subject) -> Any:
        await trio.lowlevel.checkpoint()
        return subject.output

    async def no(*_: Any) -> Finding:
        await trio.sleep(1)
        return Finding(holds=False, reason="no")

    bench = JudgingContext(
        subject=Subject.of("a"),
        render=str,
        kinds={**KINDS, "no": Kind("nothing", lambda _: True, ExternalJudge(no), bare=True)},
        services_for=lambda _assertion: AssertionServices(None),  # type: ignore[arg-type] # never called
        transform=untouched,
        short_circuit=True,
    )
    judging = Judging(bench, [Assertion(type="cut-off"), Assertion(type="no")])
    verdict = run_virtual(judging.run)
    assert (verdict.passed, verdict.reason) == (False, "no")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("any", "its judge failed: KeyError: 'x'"),
        ("few", "compares_badly must return a list of findings"),
        ("seven", "compares_badly must return a list of findings"),
    ],
)
def test_whatever_a_comparison_raises_is_its_own_error(value: str, message: str) -> None:
    """The same applies as for judges of one row."""
    best = {"type": "select-best", "value": value}
    rows = rows_of(document(best, prompts=["a", "b"]))
    assert [row.status for row in rows] == [Status.ERROR] * 2
    assert str(rows[0].error).startswith(f"assert[0] (select-best): {message}")
    rows = rows_of(document({**best, "weight": 0}, prompts=["a", "b"]))
    assert [row.status for row in rows] == [Status.PASS] * 2


def test_an_own_type_of_comparison_is_refused() -> None:
    """It is refused at loading, and for a suite made in Python: the judge would never be called."""
    for name in ("my-best", "not-my-best"):
        (problem,) = check_assertion(Assertion(type=name), value_given=False, kinds=KINDS)
        assert problem.path == ".type"
        assert (
            problem.message
            == f'"{name}" compares rows, which only max-score and select-best can do'
        )
    asks = {"type": "contains", "value": "e"}
    loaded = parse_suite(document(asks, prompts=["a", "b"]), kinds=KINDS, environ={})
    best = Assertion(type="select-best")
    for wrong in (
        Assertion(type="my-best"),
        Assertion(type="not-select-best"),
        Assertion(type="assert-set", assertions=(best,)),
    ):
        test = attrs.evolve(loaded.tests[0], assertions=(wrong, *loaded.tests[0].assertions))
        rows = rows_of(attrs.evolve(loaded, tests=(test,)))
        assert [row.status for row in rows] == [Status.ERROR] * 2
        assert "compares rows" in str(rows[0].error)


def test_transforms_of_assertions_are_checked_before_the_run() -> None:
    """Each is reported once, at any position; also in sets and in the default test."""
    inside = {"type": "assert-set", "assert": [{**ASKS, "transform": "python: 1 +"}]}
    recall = {"type": "context-recall", "value": "c", "provider": "judge"}
    suite = document(
        {"type": "contains", "value": "o", "transform": "file://missing.py:f", "weight": 0},
        {**recall, "contextTransform": "$.[[["},
        inside,
        {**ASKS, "transform": "$.[[["},
        {**ASKS, "transform": "$.a"},
        defaultTest={"assert": [{**ASKS, "transform": " "}]},
        scenarios=[
            {
                "config": [{}],
                "tests": [{"assert": [{**ASKS, "transform": "jmespath: ["}]}],
            }
        ],
    )
    with pytest.raises(SuiteError) as caught:
        prepare(
            parse_suite(suite, kinds=KINDS, environ={}),
            providers={"mine": hello, "judge": yes},
            environ={},
        )
    assert [problem.path for problem in caught.value.problems] == [
        "$.defaultTest.assert[0].transform",
        "$.tests[0].assert[0].transform",
        "$.tests[0].assert[1].contextTransform",
        "$.tests[0].assert[2].assert[0].transform",
        "$.scenarios",
    ]


def test_a_transform_of_an_unread_line_fails_its_assertion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails only this assertion, whose weight is 0 here."""
    monkeypatch.setattr(jsonl_tests, "CHECKED_AT_ONCE", 0)
    wrong = {"type": "contains", "value": "o", "weight": 0, "transform": "$.[[["}
    line = {"vars": {"word": "hello"}, "assert": [{"type": "asks", "value": "kind"}, wrong]}
    (tmp_path / "tests.jsonl").write_text(json.dumps(line) + "\n")
    default = {"options": {"provider": "judge"}}
    suite = suite_of(directory=tmp_path, tests="file://tests.jsonl", defaultTest=default)
    (row,) = rows_of(suite)
    assert (row.status, row.spent.calls) == (Status.PASS, 1)
    assert row.verdict is not None
    assert row.verdict.parts[1].reason.startswith("transform: $.[[[ is not a valid JSONPath")


COSTS = st.lists(st.floats(0, 1e6) | st.none(), max_size=8)


@settings(max_examples=30)
@given(costs=COSTS, random=st.randoms(use_true_random=False))
def test_the_total_usage_does_not_depend_on_the_order(
    costs: list[float | None], random: Any
) -> None:
    """The sums are equal to the last bit."""

    def spent(each: Sequence[float | None]) -> JudgeUsage:
        spending = Spending()
        for cost in each:
            spending.add(JudgeUsage(cost=cost, calls=1, judges=("judge",)))
        return spending.total

    mixed = list(costs)
    random.shuffle(mixed)
    assert spent(mixed) == spent(costs)
