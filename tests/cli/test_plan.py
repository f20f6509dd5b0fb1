"""What a plan tells of judges: where they are asked, how often, and what ends that."""

from collections.abc import Mapping
from typing import Any

import pytest

import trioeval
from trioeval.cli.plan import plan_lines
from trioeval.tasks import prepare

KEYS = {"OPENAI_API_KEY": "sk-x"}
PAID = {"id": "openai:chat:m", "config": {"max_tokens": 10}}
JUDGE = {"id": "judge", "lane": {"rpm": 6, "burst": 1}}
RUBRIC = {"type": "llm-rubric", "value": "is kind"}
SET = {"type": "assert-set", "config": {"repeat": 3}, "assert": [RUBRIC]}
SEVERAL = {"type": "g-eval", "value": ["a", "b"]}
BEST = {"type": "select-best", "value": "the kindest", "config": {"swap": True}}
PLAIN = {"type": "contains", "value": "a"}


async def nobody(_request: trioeval.Request) -> str:
    raise AssertionError("a plan asks nobody")


def plan_of(document: Any) -> list[str]:
    suite = trioeval.parse_suite(document)
    return list(plan_lines(prepare(suite, providers={"judge": nobody}, environ=KEYS)))


def planned(*assertions: Mapping[str, Any], judge: Any = JUDGE, **more: Any) -> list[str]:
    document = {
        "providers": ["echo"],
        "prompts": ["{{x}}"],
        "tests": [{"vars": {"x": str(number)}} for number in range(5)],
        "defaultTest": {"assert": list(assertions), "options": {"provider": judge}},
        **more,
    }
    return plan_of(document)


@pytest.mark.parametrize(
    ("assertions", "told"),
    [
        ([RUBRIC], "5 judge calls (at most 10)"),
        ([SET, PLAIN, SEVERAL], "35 judge calls (at most 70)"),
        ([{**RUBRIC, "type": "not-llm-rubric"}], "5 judge calls (at most 10)"),
        ([{"type": "conversation-relevance"}], "5 judge calls or more"),
        ([RUBRIC, {"type": "conversation-relevance"}], "10 judge calls or more"),
    ],
)
def test_a_lane_tells_how_often_judges_are_asked_on_it(assertions: Any, told: str) -> None:
    """Members of sets, and what is asked several times, count as often as they are asked."""
    lanes = [line for line in planned(*assertions) if line.startswith("  lane ")]
    assert [line.partition(": ")[2] for line in lanes] == [
        "5 rows, 4 at once",
        f"{told}, 4 at once, 6 requests a minute",
    ]


def test_the_time_of_a_run_is_that_of_its_judges_too() -> None:
    """Ten calls, the first at once, the others ten seconds apart."""
    assert planned(SEVERAL, tests=[{"vars": {}}] * 3)[-1].startswith(
        "the rates make it last 0:01:50"
    )


def test_judges_that_share_a_lane_with_rows_are_told_with_them() -> None:
    """One lane, and one line."""
    (lane,) = [
        line
        for line in planned(RUBRIC, judge="echo", tests=[{"vars": {}}])
        if line.startswith("  lane ")
    ]
    assert lane.endswith(": 1 rows, 1 judge calls (at most 2), 4 at once")


def test_the_outputs_of_a_test_are_compared_once() -> None:
    """In both orders here, whatever the number of columns."""
    lanes = planned(PLAIN, BEST, prompts=["{{x}}", "a {{x}}", "b {{x}}"])
    assert any(": 10 judge calls (at most 20)," in line for line in lanes)


def test_tasks_add_up_and_without_judges_nothing_is_told() -> None:
    """A lane is one, whoever asks on it."""
    task = {
        "providers": ["echo"],
        "prompts": ["x"],
        "tests": [{"assert": [{**RUBRIC, "provider": JUDGE}]}],
    }
    suite = {"tasks": [{"id": name, "type": "prompt_eval", **task} for name in "ab"]}
    lines = plan_of(suite)
    assert any(": 2 judge calls (at most 4)," in line for line in lines)
    assert not any("judge" in line for line in planned(PLAIN))


def test_a_budget_is_told_and_that_judges_are_not_in_the_estimate() -> None:
    """An estimate of rows alone would be taken for the whole."""
    limits = {"budget": {"requests": 1000, "tokens": 2_000_000}}
    *_, use, budget, _ = planned(RUBRIC, judge=PAID, providers=[PAID], evaluateOptions=limits)
    assert use.endswith("; what judges use is not among that")
    assert budget == ("the budget, for rows and judges together: 1000 requests, 2000000 tokens")
    assert "judges" not in planned(PLAIN, providers=[PAID])[-2]
