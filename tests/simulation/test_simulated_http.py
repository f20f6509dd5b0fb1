"""A simulation beside a run over HTTP against the fake provider, compared by counts, not by time."""

from typing import Any

import pytest
import trio
from fake_world import simulated_suite, suite_of

from trioeval import parse_suite
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallRecord, RecordObserver
from trioeval.kernel import Event, Throttled
from trioeval.providers.fake import FakeSettings, serve_fake
from trioeval.run import PreparedSuite, RunOptions, prepare, run_with_options
from trioeval.simulation import ServerLimits, simulate
from trioeval.simulation.observed import ObservedCall, observed_models

pytestmark = [pytest.mark.slow, pytest.mark.network]


class Calls(RecordObserver):
    """The calls of a run."""

    def __init__(self) -> None:
        self.calls: list[ObservedCall] = []
        self.refused = 0

    def on_call(self, call: CallRecord, /) -> None:
        answer, latency = call.answer, call.latency_ms / 1000
        if isinstance(answer, ProviderError):
            found = ObservedCall(provider=call.provider, latency=latency, fault=answer.fault)
        else:
            prompt, reply = answer.usage.prompt or 0, answer.usage.completion or 0
            found = ObservedCall(
                provider=call.provider, latency=latency, prompt_tokens=prompt, reply_tokens=reply
            )
        self.calls.append(found)

    def observe(self, event: Event) -> None:
        self.refused += isinstance(event, Throttled)


def run_over_http(settings: FakeSettings, **lane: Any) -> tuple[PreparedSuite, Calls]:
    observed = Calls()

    async def emit(_row: object) -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> PreparedSuite:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_fake, settings)
            suite = suite_of(60, **lane)
            config = {"apiBaseUrl": address.base_url, "apiKey": "sk-0123456789abcdef"}
            suite["providers"][0] |= {"id": "openai:chat:m", "label": "m", "config": config}
            prepared = prepare(parse_suite(suite), environ={})
            options = RunOptions(emit=emit, observe=observed.observe, record_observers=[observed])
            await run_with_options(prepared, options)
            nursery.cancel_scope.cancel("the run is over")
        return prepared

    return trio.run(main), observed


@pytest.mark.parametrize(
    ("settings", "limits", "lane"),
    [
        ({}, None, {"maxConcurrency": 8}),
        ({"rpm": 1200, "burst": 8}, {"rpm": 1200, "burst": 8}, {"rpm": 1000, "burst": 4}),
        (
            {"max_in_flight": 4, "hints": "none"},
            {"max_in_flight": 4, "reports": False},
            {"maxConcurrency": 16},
        ),
    ],
    ids=["unlimited", "rate", "refusing"],
)
def test_requests_and_refusals_are_forecast(
    settings: dict[str, Any], limits: dict[str, Any] | None, lane: dict[str, Any]
) -> None:
    """The forecast from the calls of a run has its requests, and about as many refusals."""
    prepared, observed = run_over_http(FakeSettings(latency_s=0.05, **settings), **lane)
    given: dict[str, Any] = {} if limits is None else {"m": ServerLimits(**limits)}
    models = observed_models(observed.calls, "the run")
    assert models["m"].mean_latency >= 0.05
    found = simulate(simulated_suite(prepared, models, **given))
    assert found.done == 60
    # How many of the first twelve excess calls start before the first refusal depends on the machine.
    assert found.refused == pytest.approx(observed.refused, abs=12)
    assert found.requests == pytest.approx(len(observed.calls), abs=12)
    assert bool(found.refused) == bool(observed.refused) == ("max_in_flight" in settings)
