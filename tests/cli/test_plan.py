"""Plans: judge calls on lanes, shared limits, and durations."""

from collections.abc import Mapping
from typing import Any

import pytest

import trioeval
from trioeval.cli.run.plan import plan_lines
from trioeval.run import prepare

KEYS = {"OPENAI_API_KEY": "sk-x"}
PAID = {"id": "openai:chat:m", "config": {"max_tokens": 10}}
JUDGE = {"id": "judge", "lane": {"rpm": 6, "burst": 1}}
RUBRIC = {"type": "llm-rubric", "value": "is kind"}
SET = {"type": "assert-set", "config": {"repeat": 3}, "assert": [RUBRIC]}
SEVERAL = {"type": "g-eval", "value": ["a", "b"]}
BEST = {"type": "select-best", "value": "the kindest", "config": {"swap": True}}
PLAIN = {"type": "contains", "value": "a"}


async def no_calls(_request: trioeval.Request) -> str:
    raise AssertionError("a plan makes no calls")


def plan_of(document: Any) -> list[str]:
    suite = trioeval.parse_suite(document)
    return list(plan_lines(prepare(suite, providers={"judge": no_calls}, environ=KEYS)))


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
    ("assertions", "expected"),
    [
        ([RUBRIC], "5 judge calls (at most 10)"),
        ([SET, PLAIN, SEVERAL], "35 judge calls (at most 70)"),
        ([{**RUBRIC, "type": "not-llm-rubric"}], "5 judge calls (at most 10)"),
        ([{"type": "conversation-relevance"}], "5 judge calls or more"),
        ([RUBRIC, {"type": "conversation-relevance"}], "10 judge calls or more"),
    ],
)
def test_a_lane_shows_its_number_of_judge_calls(assertions: Any, expected: str) -> None:
    """Members of sets and repeated calls each count."""
    lanes = [line for line in planned(*assertions) if line.startswith("  lane ")]
    assert [line.partition(": ")[2] for line in lanes] == [
        "5 rows, 4 at once",
        f"{expected}, 4 at once, 6 requests a minute",
    ]


def test_the_duration_includes_judge_calls() -> None:
    """Ten calls: the first at once, the others ten seconds apart."""
    assert planned(SEVERAL, tests=[{"vars": {}}] * 3)[-1].startswith("minimum duration 0:01:50")


def test_judges_and_rows_of_one_lane_share_a_line() -> None:
    """One lane has one line."""
    (lane,) = [
        line
        for line in planned(RUBRIC, judge="echo", tests=[{"vars": {}}])
        if line.startswith("  lane ")
    ]
    assert lane.endswith(": 1 row, 1 judge call (at most 2), 4 at once")


def test_rows_of_a_test_are_compared_once() -> None:
    """The comparison uses both orders, for any number of columns."""
    lanes = planned(PLAIN, BEST, prompts=["{{x}}", "a {{x}}", "b {{x}}"])
    assert any(": 10 judge calls (at most 20)," in line for line in lanes)


def test_tasks_add_up_and_judges_are_shown_only_if_there_are_any() -> None:
    """A lane is shown once, for all tasks that use it."""
    task = {
        "providers": ["echo"],
        "prompts": ["x"],
        "tests": [{"assert": [{**RUBRIC, "provider": JUDGE}]}],
    }
    suite = {"tasks": [{"id": name, "type": "prompt_eval", **task} for name in "ab"]}
    lines = plan_of(suite)
    assert any(": 2 judge calls (at most 4)," in line for line in lines)
    assert not any("judge" in line for line in planned(PLAIN))


def test_a_plan_shows_the_budget_and_that_the_estimate_lacks_judges() -> None:
    """Otherwise an estimate of rows would be read as that of the whole run."""
    limits = {"budget": {"requests": 1000, "tokens": 2_000_000}}
    *_, use, budget, _ = planned(RUBRIC, judge=PAID, providers=[PAID], evaluateOptions=limits)
    assert use.endswith(", without judges")
    assert budget == ("the budget, for rows and judges together: 1000 requests, 2000000 tokens")
    assert "judges" not in planned(PLAIN, providers=[PAID])[-2]


def shared(limits: Any, *keys: Any, rows: int = 5, **lane: Any) -> list[str]:
    """The lines about a lane with shared limits."""
    lines = planned(
        PLAIN,
        providers=[{"id": "echo", "lane": {"limits": list(keys), **lane}}],
        tests=[{"vars": {}}] * rows,
        limits=limits,
    )
    return [line for line in lines if line.startswith(("  lane", "  limit"))] + lines[-1:]


def test_a_plan_shows_shared_limits_and_their_minimum_duration() -> None:
    """Five calls at two a minute take at least two minutes, whatever the lane allows."""
    limits: list[dict[str, Any]] = [
        {"key": "a:rpm", "kind": "rolling", "capacity": 2, "windowSeconds": 60},
        {"key": "a:tpm", "kind": "rolling", "capacity": 500, "windowSeconds": 60},
        {"key": "a:concurrency", "kind": "concurrency", "capacity": 3, "timeoutSeconds": 9},
        {"key": "day:tokens", "kind": "budget", "capacity": 900, "resetSeconds": 86400},
        {"key": "all:cost_micro", "kind": "budget", "capacity": 70},
    ]
    keys = [limit["key"] for limit in limits]
    assert shared({"define": limits, "maxOutputTokens": 9}, *keys, rpm=60) == [
        f"  lane echo: 5 rows, 4 at once, 60 requests a minute, counts against {', '.join(keys)}",
        "  limit a:rpm: 2 requests in any 60 seconds",
        "  limit a:tpm: 500 tokens in any 60 seconds",
        "  limit a:concurrency: 3 at once",
        "  limit day:tokens: 900 tokens every 86400 seconds",
        "  limit all:cost_micro: 70 millionths of a US dollar",
        "minimum duration 0:02:00, from the rates; no provider was called",
    ]


@pytest.mark.parametrize(
    ("rows", "last"),
    [(2, "the duration depends on"), (3, "minimum duration 0:01:00, from the rates")],
)
def test_a_plan_with_shared_limits_does_not_claim_to_be_unlimited(rows: int, last: str) -> None:
    """Calls within the first window have no minimum duration."""
    limit = {"key": "a:rpm", "kind": "rolling", "capacity": 2, "windowSeconds": 60}
    *_, found = shared({"define": [limit]}, "a:rpm", rows=rows)
    assert last in found


def test_limits_of_servers_are_shown_without_capacity() -> None:
    """Only the server knows their capacities."""
    for backend, url, expected in (
        ("redis", "redis://:secret@h", "kept by Redis"),
        ("http", "http://h", "kept by a server"),
    ):
        lane, limit, last = shared({"backend": backend, "url": url}, "a:rpm")
        assert lane.endswith("4 at once, counts against a:rpm")
        assert limit == f"  limit a:rpm: {expected}"
        assert last == (
            "the duration depends on the calls and the shared limits; no provider was called"
        )
    _, limit, _ = shared({"define": []}, "a:rpm")
    assert limit == "  limit a:rpm: not defined"


CONVERSATION = "{% for turn in _conversation %}{{ turn.output }}{% endfor %}{{x}}"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"prompts": ["{{x}}", CONVERSATION]}, "prompt 2 uses _conversation"),
        (
            {
                "prompts": [CONVERSATION, "{{x}}", f"{CONVERSATION}!"],
                "providers": ["echo", "judge"],
            },
            "prompts 1, 3 use _conversation",
        ),
        (
            {"tests": [{"vars": {"x": "a"}, "options": {"storeOutputAs": "first"}}]},
            "tests use storeOutputAs (first)",
        ),
        ({"prompts": [CONVERSATION], "evaluateOptions": {"serialize": "auto"}}, None),
        ({}, None),
    ],
)
def test_a_plan_gives_the_reason_of_serial_rows(more: dict[str, Any], why: str | None) -> None:
    lines = [line for line in planned(PLAIN, **more) if "at a time" in line]
    assert lines == ([] if why is None else [f"  one row at a time, because {why}"])


def test_a_plan_shows_that_a_delay_serializes_rows() -> None:
    """It shows the gap of the lane and the minimum duration."""
    document = {
        "providers": ["echo"],
        "evaluateOptions": {"delay": 1500},
        "tests": [{"vars": {"n": 1}}, {"vars": {"n": 2}}],
    }
    lines = list(plan_lines(prepare(trioeval.parse_suite(document), one_by_one=True)))
    assert "  one row at a time, because a delay is set" in lines
    assert "  lane echo: 2 rows, 4 at once, 1500 ms between two" in lines
    assert "0:00:01.5" in lines[-1]


def test_a_plan_shows_the_limit_of_all_lanes() -> None:
    assert "3 calls at once on all lanes together" in planned(
        PLAIN, evaluateOptions={"maxTotalConcurrency": 3}
    )


def test_a_plan_shows_conversations_with_simulated_users() -> None:
    """The number of their calls is not known, so the rows are counted apart."""
    config = {"userProvider": {"id": "sequence", "config": {"inputs": ["Hello"]}}}
    own = {"provider": {"id": "promptfoo:simulated-user", "config": config}}
    found = planned(tests=[own, {"vars": {"x": "1"}}])
    assert "  1 row is a conversation with a simulated user on lane sequence" in found
