"""Tasks of type `columns` and `agent`, and tests that are rows of a dataset, in simulations."""

from typing import Any

import pytest
from fake_world import real_run, simulated_suite, suite_of
from test_laws import model

from trioeval import parse_suite
from trioeval.errors import Fault, SuiteError
from trioeval.providers.fake import FakeSettings
from trioeval.run import PreparedSuite, prepare
from trioeval.simulation.model import ProviderModel
from trioeval.simulation.observed import ObservedCall, observed_models
from trioeval.simulation.run import Forecast, simulate

TOPIC = {"name": "topic", "type": "sampler", "sampler": "category", "values": ["a", "b"]}
SECOND = {"m": FakeSettings(latency_s=1.0)}


def column(name: str, prompt: str, provider: str = "m") -> dict[str, Any]:
    return {"name": name, "type": "llm", "provider": provider, "prompt": prompt}


def dataset(rows: int | None, *columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "data", "type": "columns", "rows": rows, "columns": [TOPIC, *columns], **more}


def suite_with(*tasks: dict[str, Any], **lane: Any) -> dict[str, Any]:
    return {"providers": suite_of(1, **lane)["providers"], "tasks": [*tasks]}


async def never(_request: object) -> str:
    """Stand for a provider that is not called."""
    raise AssertionError


def prepared(suite: dict[str, Any]) -> PreparedSuite:
    return prepare(parse_suite(suite), providers={"m": never}, environ={})


def forecast(suite: dict[str, Any], provider: ProviderModel | None = None) -> Forecast:
    found = model(1, 0) if provider is None else provider
    return simulate(simulated_suite(prepared(suite), {"m": found}))


@pytest.mark.parametrize(
    "columns",
    [
        [column("a", "about {{topic}}"), column("b", "more than {{a}}")],
        [column("a", "about {{topic}}"), column("b", "of {{topic}}"), column("c", "{{a}} {{b}}")],
    ],
    ids=["chain", "two-then-one"],
)
def test_cells_start_in_the_order_of_a_run(columns: list[dict[str, Any]]) -> None:
    """With constant latencies makespan and requests are those of the run, over several groups of rows."""
    suite = suite_with(dataset(10, *columns, groupSize=4), maxConcurrency=3)
    real = real_run(suite, SECOND)
    found = simulate(simulated_suite(real.prepared, real.models))
    assert found.requests == len(real.starts) == 10 * len(columns)
    assert found.makespan == pytest.approx(real.makespan)
    assert (found.rows, found.done) == (10, 10)


def test_tests_from_a_dataset_are_as_many_as_its_rows() -> None:
    """They start when the dataset is complete; a limit holds, and prompts multiply them."""
    use = {"type": "prompt_eval", "prompts": ["{{a}}", "again {{a}}"], "dependsOn": ["data"]}
    tests = {"fromTask": "data", "limit": 8}
    suite = suite_with(
        dataset(12, column("a", "{{topic}}")),
        {"id": "use", **use, "tests": tests},
        maxConcurrency=4,
    )
    found = forecast(suite)
    assert found.requests == 12 + 16
    assert found.makespan == pytest.approx(3 + 4)


def test_a_dataset_from_another_has_its_rows() -> None:
    """Without `rows`, a dataset has as many as its first seed."""
    seed = {"type": "seed", "fromTask": "data", "columns": ["a"]}
    second = {"id": "second", "type": "columns", "dependsOn": ["data"]}
    suite = suite_with(
        dataset(5, column("a", "{{topic}}")),
        {**second, "columns": [seed, column("b", "{{a}}")]},
        maxConcurrency=5,
    )
    assert forecast(suite).requests == 10


def agent(*tests: dict[str, Any]) -> dict[str, Any]:
    return {"id": "fix", "type": "agent", "prompts": ["fix it"], "tests": [*tests]}


def cases(number: int) -> list[dict[str, Any]]:
    return [{"vars": {"n": str(place)}} for place in range(number)]


def test_a_case_of_an_agent_makes_its_calls_one_after_another() -> None:
    """Eight cases of five calls on four slots take ten times one call."""
    provider = model(1, 0, rounds=(5,))
    found = forecast(suite_with(agent(*cases(8)), maxConcurrency=4), provider)
    assert found.requests == 40
    assert found.makespan == pytest.approx(10)


def test_numbers_of_calls_are_drawn_from_the_sample() -> None:
    """64 cases have its mean."""
    provider = model(1, 0, rounds=(2, 4, 6, 8))
    found = forecast(
        suite_with(agent(*cases(64)), maxConcurrency=64),
        provider,
    )
    assert found.requests == 64 * 5
    assert found.makespan == pytest.approx(8)


def test_a_case_waits_for_those_on_which_it_depends() -> None:
    """A chain of three cases takes three times one case, whatever the width."""
    chain: list[dict[str, Any]] = [
        {"id": "a"},
        {"id": "b", "dependsOn": ["a"]},
        {"id": "c", "dependsOn": ["b"]},
    ]
    provider = model(1, 0, rounds=(2,))
    found = forecast(suite_with(agent(*chain), maxConcurrency=4), provider)
    assert found.makespan == pytest.approx(6)


def test_tests_whose_number_only_a_run_shows_are_refused() -> None:
    """The message names the task and its source."""
    source = {
        "id": "ask",
        "type": "prompt_eval",
        "prompts": ["{{x}}"],
        "tests": [{"vars": {"x": "1"}}],
    }
    use = {"id": "use", "type": "prompt_eval", "prompts": ["{{output}}"], "dependsOn": ["ask"]}
    suite = suite_with(source, {**use, "tests": {"fromTask": "ask"}})
    with pytest.raises(SuiteError) as caught:
        forecast(suite)
    (problem,) = caught.value.problems
    assert problem.path == "$.tasks[1]"
    assert problem.message == "its tests are the rows of task ask, whose number only a run shows"


def test_calls_of_cases_are_observed() -> None:
    """Only successful calls of each row count; providers without rows have no numbers."""
    calls = [
        ObservedCall(provider="m", latency=1.0, row=("fix", place)) for place in (0, 0, 0, 1, 2, 2)
    ]
    calls.append(ObservedCall(provider="m", latency=1.0, row=("fix", 1), fault=Fault.TRANSIENT))
    calls.append(ObservedCall(provider="judge", latency=1.0))
    found = observed_models(calls, "a run")
    assert list(found["m"].rounds) == [1, 2, 3]
    assert not found["judge"].rounds
