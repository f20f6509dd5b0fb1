"""Servers on the virtual clock, and the time in which a clairvoyant scheduler would finish on each."""

import random
from collections.abc import Sequence
from typing import TypeAlias

import attrs
import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, LimitChanged, Plan, run_plan
from trioeval.kernel.events import Event
from trioeval.kernel.outcomes import Done, Outcome
from trioeval.testing.virtual import run_virtual

Failure: TypeAlias = CallError | None


@attrs.define
class Server:
    """A server that serves a request in `latency` seconds, unless its shape says otherwise."""

    latency: float = 0.2
    cap: int | None = None
    """Requests that it serves at once; others are refused without a hint."""
    refuses_after: float = 0.01
    """Seconds until such a refusal arrives."""
    jitter: float = 0.5
    """The latency is drawn from this share below `latency` to this share above it."""
    cliff: int | None = None
    """Requests beyond which each one in flight adds `latency / cliff` to the latency."""
    rate: float | None = None
    """Requests per second of its token bucket; others are refused at once."""
    burst: int = 1
    names_wait: bool = True
    """True if a refusal of the token bucket names the wait."""
    refused_share: float = 0.0
    """Share of requests that it refuses at random, after `latency`."""
    refused_wait: float | None = None
    """The wait that these refusals name."""
    failed_share: float = 0.0
    """Share of requests that fail at random with a transient failure, after `latency`."""
    seed: int = 0
    trouble_ends: float = float("inf")
    """The instant after which it serves every request."""
    requests: int = attrs.field(init=False, default=0)
    refusals: int = attrs.field(init=False, default=0)
    serving: int = attrs.field(init=False, default=0)
    """Requests that it serves at present."""
    _level: float = attrs.field(init=False, default=0.0)
    _level_at: float = attrs.field(init=False, default=0.0)
    _random: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - a simulation
        self._level = self.burst

    async def serve(self) -> None:
        """Serve one request, or raise."""
        self.requests += 1
        healthy = trio.current_time() >= self.trouble_ends
        try:
            if not healthy:
                await self._accept()
            await self._answer(healthy=healthy)
        except CallError as error:
            self.refusals += error.fault is Fault.RATE_LIMITED
            raise

    async def _accept(self) -> None:
        wait = 0.0 if self.rate is None else self._drain()
        if wait or (self.cap is not None and self.serving >= self.cap):
            await trio.sleep(self.refuses_after)
            raise _refusal(wait if wait and self.names_wait else None)

    async def _answer(self, *, healthy: bool) -> None:
        self.serving += 1
        try:
            latency = self.latency * (1 + self.jitter * (2 * self._random.random() - 1))
            if self.cliff is not None and self.serving > self.cliff:
                latency *= self.serving / self.cliff
            await trio.sleep(latency)
        finally:
            self.serving -= 1
        drawn = self._random.random()
        if healthy:
            return
        if drawn < self.refused_share:
            raise _refusal(self.refused_wait)
        if drawn < self.refused_share + self.failed_share:
            raise CallError(Fault.TRANSIENT, "500")

    def _drain(self) -> float:
        """Take one request of the bucket; return the seconds until there is one, 0 if there was."""
        assert self.rate is not None
        now = trio.current_time()
        self._level = min(self.burst, self._level + (now - self._level_at) * self.rate)
        self._level_at = now
        if self._level >= 1 - 1e-9:
            self._level -= 1
            return 0.0
        return (1 - self._level) / self.rate

    def ideal(self, calls: int, width: int) -> float:
        """Return the least seconds in which `calls` calls can be served, if all of it is known.

        The failing share costs its requests; where it draws, no schedule avoids that.
        """
        share = 1 - self.refused_share - self.failed_share
        most = min(width, self.cap or width)
        if self.cliff is not None:
            # Beyond the cliff more in flight serve no more: n / (latency · n / cliff).
            most = min(most, self.cliff)
        seconds = calls / share * self.latency / most
        if self.rate is not None:
            seconds = max(seconds, (calls - self.burst) / self.rate + self.latency)
        return max(seconds, self.latency)


def _refusal(wait: float | None) -> CallError:
    return CallError(Fault.RATE_LIMITED, "429", retry_after=wait)


@attrs.frozen
class ShapeRun:
    """The duration and the requests of a run on a server."""

    seconds: float
    done: int
    requests: int
    refusals: int
    limits: Sequence[tuple[float, int]]
    """The adaptive limit after each change, with its instant."""
    ended: Sequence[float]
    """The instants of the ends of the jobs."""


def run_on(server: Server, spec: LaneSpec, jobs: int, *, cells: int = 1) -> ShapeRun:
    """Run `jobs` jobs of `cells` calls, one after another, on a lane of its own."""
    limits: list[tuple[float, int]] = []
    ended: list[float] = []
    done = 0

    def on_event(event: Event) -> None:
        if isinstance(event, LimitChanged):
            limits.append((event.at, event.adaptive))

    async def body(job: Job[None], calls: Calls[None]) -> None:
        for _ in range(cells):
            await calls(job.lane, server.serve)

    async def emit(outcome: Outcome[None]) -> None:
        nonlocal done
        done += isinstance(outcome, Done)

    async def main() -> float:
        plan = Plan.of(Job(index, spec.name, None) for index in range(jobs))

        async def timed(job: Job[None], calls: Calls[None]) -> None:
            try:
                await body(job, calls)
            finally:
                ended.append(trio.current_time())

        await run_plan(plan, timed, lanes=Lanes([spec]), emit=emit, observe=on_event)
        return max(ended)

    seconds = run_virtual(main)
    return ShapeRun(seconds, done, server.requests, server.refusals, limits, ended)
