"""Suites of other shapes: simulations have the order, the judges and the tasks of real runs."""

from typing import Any

import pytest
from fake_world import RealRun, real_run, simulated_suite, suite_of

from trioeval.providers.fake import FakeSettings, ScriptedReplies
from trioeval.simulation.run import Forecast, simulate

EVEN = {"m": FakeSettings(latency_s=1.0)}


def both(suite: dict[str, Any], settings: dict[str, FakeSettings]) -> tuple[RealRun, Forecast]:
    real = real_run(suite, settings)
    return real, simulate(simulated_suite(real.prepared, real.models))


def assert_equal(real: RealRun, found: Forecast) -> None:
    """With constant latencies nothing is random: the courses are the same."""
    assert found.makespan == pytest.approx(real.makespan)
    assert found.requests == len(real.starts)


def test_serial_rows_run_first_and_alone() -> None:
    """SERIAL: two serial rows, then four at a time."""
    suite = suite_of(10, maxConcurrency=4)
    for test in suite["tests"][3:5]:
        test["options"] = {"runSerially": True}
    real, found = both(suite, EVEN)
    assert_equal(real, found)
    assert found.makespan == pytest.approx(4)


def test_rows_of_a_conversation_are_simulated_in_order() -> None:
    """Each row waits for the one before it."""
    suite = suite_of(5, maxConcurrency=4)
    suite["prompts"] = ["{{ _conversation | length }} {{word}}"]
    assert_equal(*both(suite, EVEN))


def test_outputs_are_compared_after_their_group() -> None:
    """A comparison is a job of its own, on the lane of its judge."""
    suite = suite_of(6, maxConcurrency=4)
    suite["prompts"] = ["say {{word}}", "repeat {{word}}"]
    for test in suite["tests"]:
        test["assert"] = [{"type": "select-best", "value": "the kinder one", "provider": "j"}]
    judge = FakeSettings(latency_s=2.0, replies=ScriptedReplies(("0",)))
    real, found = both(suite, {**EVEN, "j": judge})
    assert_equal(real, found)
    assert found.done == 18


def test_several_judges_of_a_row_run_side_by_side() -> None:
    """Up to as many as a run allows; an output that the test has needs no call."""
    suite = suite_of(6, maxConcurrency=4)
    rubric = {"type": "llm-rubric", "value": "is kind", "provider": "j"}
    for test in suite["tests"]:
        test["assert"] = [{**rubric, "value": f"is kind {number}"} for number in range(4)]
    suite["tests"][0]["providerOutput"] = "hello"
    verdict = ScriptedReplies(('{"pass": true, "score": 1, "reason": "x"}',))
    real, found = both(suite, {**EVEN, "j": FakeSettings(latency_s=2.0, replies=verdict)})
    assert_equal(real, found)
    assert found.requests == 5 + 24


def test_tasks_wait_for_their_dependencies() -> None:
    """The second task starts when the first has ended, on the same lane."""
    one = suite_of(6, maxConcurrency=4)
    parts = {"type": "prompt_eval", "prompts": one["prompts"], "tests": one["tests"]}
    tasks = [{"id": "a", **parts}, {"id": "b", "dependsOn": ["a"], **parts}]
    real, found = both({"providers": one["providers"], "tasks": tasks}, EVEN)
    assert_equal(real, found)
    assert found.makespan == pytest.approx(4)


def test_two_providers_on_one_lane_share_it() -> None:
    """The cap over all lanes, and lanes that several providers name, hold."""
    suite = suite_of(6)
    suite["lanes"] = {"both": {"maxConcurrency": 3}}
    suite["providers"] = [{"id": name, "lane": "both"} for name in ("m", "n")]
    real, found = both(suite, {**EVEN, "n": FakeSettings(latency_s=1.0)})
    assert_equal(real, found)
    assert found.makespan == pytest.approx(4)


@pytest.mark.parametrize("begins", [True, False])
def test_conversations_have_the_calls_of_both_in_turn(begins: bool) -> None:  # noqa: FBT001
    """A conversation that has begun goes before new ones, and ends after `maxTurns`."""
    suite = suite_of(6, maxConcurrency=2)
    start = [{"role": "user", "content": "hello"}]
    config = {"userProvider": "u", "maxTurns": 3, "initialMessages": start if begins else []}
    user = {"id": "promptfoo:simulated-user", "config": {**config, "instructions": "Ask."}}
    suite["defaultTest"] = {"provider": user}
    says = ScriptedReplies(("go on",))
    real, found = both(suite, {**EVEN, "u": FakeSettings(latency_s=0.5, replies=says)})
    assert_equal(real, found)
    assert found.requests == 6 * (6 + begins)


def test_shared_limits_hold_over_lanes() -> None:
    """Two lanes count against limits of calls at once and of requests a minute; none refuses."""
    suite = suite_of(12)
    suite["lanes"] = {name: {"limits": ["all:concurrency", "all:rpm"]} for name in ("a", "b")}
    suite["providers"] = [{"id": "m", "lane": "a"}, {"id": "n", "lane": "b"}]
    suite["limits"] = {
        "define": [
            {"key": "all:concurrency", "kind": "concurrency", "capacity": 4, "timeoutSeconds": 600},
            {"key": "all:rpm", "kind": "rolling", "capacity": 20, "windowSeconds": 60},
        ]
    }
    real, found = both(suite, {**EVEN, "n": FakeSettings(latency_s=1.0)})
    assert_equal(real, found)
    assert found.makespan == pytest.approx(61)
    assert not found.refused
