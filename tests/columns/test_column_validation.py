"""The results of assertions on a column."""

import threading
from typing import Any

from made_locally import column_of, group_order, made_by

from trioeval.columns.makers.code import ValidationMaker
from trioeval.columns.model import ValidationColumn
from trioeval.grading import Assertion, Finding, Kind, Subject


def validation(*assertions: Assertion, target: str = "a", **more: Any) -> ValidationMaker:
    column = ValidationColumn(name="ok", outputs=("ok",), target=target, assertions=assertions)
    return ValidationMaker(column, **more)


def found(maker: ValidationMaker, *rows: dict[str, Any]) -> list[Any]:
    return column_of(made_by(maker, group_order(rows, start=3)), "ok")


def test_each_row_gets_the_verdict_on_its_value() -> None:
    maker = validation(Assertion(type="contains", value="x"))
    assert found(maker, {"a": "xy"}, {"a": "y"}) == [
        {"pass": True, "score": 1.0, "reason": "all assertions passed"},
        {"pass": False, "score": 0.0, "reason": 'the output does not contain "x"'},
    ]


def test_assertions_are_weighted() -> None:
    maker = validation(
        Assertion(type="contains", value="x", weight=3), Assertion(type="contains", value="y")
    )
    [verdict] = found(maker, {"a": "x"})
    assert (verdict["pass"], verdict["score"]) == (False, 0.75)


def test_assertion_values_may_use_other_columns_as_data() -> None:
    maker = validation(
        Assertion(type="equals", value="{{ b | up }}"), filters={"up": lambda text: text.upper()}
    )
    rows = [{"a": "P", "b": "p"}, {"a": "{{ A }}", "b": "{{ a }}"}]
    assert [verdict["pass"] for verdict in found(maker, *rows)] == [True, True]


def test_the_target_may_be_a_field_of_a_column() -> None:
    maker = validation(Assertion(type="equals", value=3), target="q.score")
    verdict, missing = found(maker, {"q": {"score": 3}}, {"q": {}})
    assert verdict["pass"]
    assert missing == 'member "score" does not exist in "q"; there are none'


def test_objects_are_judged_as_json() -> None:
    maker = validation(Assertion(type="is-json"))
    assert [one["pass"] for one in found(maker, {"a": {"b": 1}}, {"a": "{"})] == [True, False]


def test_an_assertion_that_cannot_be_evaluated_fails_its_row_alone() -> None:
    maker = validation(Assertion(type="contains", value="{{ b }}"))
    good, bad = found(maker, {"a": "x", "b": "x"}, {"a": "x"})
    assert good["pass"]
    assert bad == "assert[0] (contains): {{ b }} is not defined; the row has a"


def test_an_assertion_with_weight_0_may_fail_to_be_evaluated() -> None:
    maker = validation(Assertion(type="contains", value="{{ b }}", weight=0))
    assert found(maker, {"a": "x"})[0]["pass"]


def test_assertions_that_make_calls_are_refused() -> None:
    maker = validation(Assertion(type="llm-rubric", value="nice"))
    [error] = found(maker, {"a": "x"})
    assert error.startswith("assert[0] (llm-rubric): a validation cannot")


def test_slow_assertions_run_in_a_thread() -> None:
    threads: list[bool] = []

    def judge(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
        threads.append(threading.current_thread() is threading.main_thread())
        return Finding(holds=subject.text == "long enough", reason="")

    kinds = {"own": Kind("anything", lambda _value: True, judge, at_once=5)}
    maker = validation(Assertion(type="own", value=1), kinds=kinds)
    assert [one["pass"] for one in found(maker, {"a": "short"}, {"a": "long enough"})] == [
        False,
        True,
    ]
    assert threads == [True, False]


def test_many_rows_are_all_judged() -> None:
    maker = validation(Assertion(type="equals", value="{{ b }}"))
    rows = [{"a": str(place), "b": str(place % 2)} for place in range(250)]
    assert [one["pass"] for one in found(maker, *rows)] == [place < 2 for place in range(250)]


def test_a_row_that_is_nested_too_deeply_fails_alone() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    rows: list[dict[str, Any]] = [{"a": "x", "b": one} for one in ("x", deep, "x")]
    message = "a value is nested more than 100 levels deep"
    good, bad, last = found(validation(Assertion(type="contains", value="{{ b }}")), *rows)
    assert (good["pass"], bad, last["pass"]) == (True, message, True)
    judged = validation(Assertion(type="is-json"), target="b")
    assert found(judged, *rows)[1] == "the output cannot be graded: it is nested too deeply"
