"""The fake provider on a virtual clock: its real decisions, without sockets, behind a provider function."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import attrs
import trio

from trioeval import parse_suite
from trioeval.columns.open import read_seeds
from trioeval.columns.options import DatasetOptions
from trioeval.errors import Fault, ProviderError
from trioeval.kernel import CallStarted, Event, Throttled
from trioeval.providers import Reply, Request
from trioeval.providers.fake import FakeSettings
from trioeval.providers.fake.replies import FakeModel
from trioeval.providers.http.rate_hints import read_hint
from trioeval.run import PreparedSuite
from trioeval.run.prepare import prepare
from trioeval.run.run_suite import RunOptions, run_with_options
from trioeval.simulation.model import ProviderModel, ServerLimits
from trioeval.simulation.observed import (
    GivenFigures,
    ObservedCall,
    observed_models,
    provider_models,
    without_random_refusals,
)
from trioeval.simulation.rows import simulated_tasks
from trioeval.simulation.suite import SimulatedSuite
from trioeval.testing import run_virtual
from trioeval.usage import Usage

ROUND_TRIP = 0.02
"""Seconds until a refusal arrives."""


@attrs.define(eq=False)
class FakeServer:
    """One fake provider, and the calls that it has served."""

    settings: FakeSettings
    name: str
    model: FakeModel | None = None
    observed: list[ObservedCall] = attrs.field(factory=list)

    async def ask(self, request: Request) -> Reply:
        """Answer like the HTTP server and the adapter together."""
        now = trio.current_time()
        if self.model is None:
            self.model = FakeModel.of(self.settings, Random(self.settings.seed), now)  # noqa: S311
        messages = [{"role": "user", "content": request.prompt}]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        decided = self.model.begin(now, body)
        headers = dict(decided.headers)
        if decided.status == 429:
            self.model.end(now, decided, "sent")
            await trio.sleep(ROUND_TRIP)
            self.observed.append(self._call(ROUND_TRIP, Fault.RATE_LIMITED))
            wait = headers.get("retry-after-ms")
            retry_after = None if wait is None else int(wait) / 1000
            raise ProviderError(
                "rate_limited",
                "HTTP 429",
                status=429,
                retry_after=retry_after,
                hint=read_hint(headers),
            )
        await trio.sleep(decided.delay)
        self.model.reply(decided)
        self.model.end(trio.current_time(), decided, "sent", replied=True)
        if decided.status != 200:
            self.observed.append(self._call(decided.delay, Fault.TRANSIENT))
            raise ProviderError("server", "HTTP 500", status=500, hint=read_hint(headers))
        found = json.loads(decided.body)
        usage = found["usage"]
        prompt, reply = usage["prompt_tokens"], usage["completion_tokens"]
        self.observed.append(
            attrs.evolve(self._call(decided.delay), prompt_tokens=prompt, reply_tokens=reply)
        )
        output = found["choices"][0]["message"]["content"]
        return Reply(
            output=output,
            usage=Usage(prompt=prompt, completion=reply, total=prompt + reply),
            cost=0.0,
            hint=read_hint(headers),
        )

    def _call(self, latency: float, fault: Fault | None = None) -> ObservedCall:
        return ObservedCall(provider=self.name, latency=latency, fault=fault)


def suite_of(size: int, *, judge: str | None = None, **lane: Any) -> dict[str, Any]:
    """Return a suite of short rows for the provider m, on a lane with these settings."""
    tests: list[dict[str, Any]] = [
        {"vars": {"word": str(number) * (1 + number % 7)}} for number in range(size)
    ]
    if judge is not None:
        checks = [{"type": "llm-rubric", "value": "is kind", "provider": judge}]
        tests = [{**test, "assert": checks} for test in tests]
    return {
        "providers": [{"id": "m", "lane": lane}],
        "prompts": ["say {{word}} again"],
        "tests": tests,
    }


def simulated_suite(
    prepared: PreparedSuite,
    models: Mapping[str | None, ProviderModel],
    *,
    seed: int = 0,
    **limits: ServerLimits,
) -> SimulatedSuite:
    """Return a simulation with observed models and the limits of some providers."""
    tasks = simulated_tasks(prepared)
    limited = {
        name: without_random_refusals(model) if name in limits else model
        for name, model in models.items()
    }
    found, _ = provider_models(tasks, limited, GivenFigures())
    return SimulatedSuite.of(prepared, found, limits=limits, seed=seed)


@attrs.frozen
class RealRun:
    """The course of a real run on the virtual clock."""

    prepared: PreparedSuite
    makespan: float
    starts: Sequence[tuple[str, float]]
    """The lane and the instant of each request."""
    refused: int
    models: Mapping[str | None, ProviderModel]


def prepared_suite(suite: dict[str, Any], servers: Mapping[str, FakeServer]) -> PreparedSuite:
    providers = {name: server.ask for name, server in servers.items()}
    found = prepare(parse_suite(suite), providers=providers, environ={})
    if "columns" not in found.task_types:
        return found
    # A run reads seeds in a thread, for which a virtual clock does not wait.
    return attrs.evolve(found, opened=read_seeds(found))


def real_run(suite: dict[str, Any], settings: Mapping[str, FakeSettings]) -> RealRun:
    """Run a suite for real, with every part of the program except sockets."""
    servers = {name: FakeServer(one, name) for name, one in settings.items()}
    prepared = prepared_suite(suite, servers)
    starts: list[tuple[str, float]] = []
    refused = 0

    def observe(event: Event) -> None:
        nonlocal refused
        if isinstance(event, CallStarted):
            starts.append((event.lane, event.at))
        refused += isinstance(event, Throttled)

    async def emit(_row: object) -> None:
        pass

    async def main() -> float:
        await run_with_options(
            prepared,
            RunOptions(emit=emit, observe=observe, datasets=DatasetOptions(in_memory=True)),
        )
        return trio.current_time()

    makespan = run_virtual(main)
    calls = [call for server in servers.values() for call in server.observed]
    return RealRun(prepared, makespan, starts, refused, observed_models(calls, "a run"))
