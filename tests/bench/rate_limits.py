"""Lanes against servers that refuse: time taken against the ideal, and how many calls were refused.

    python tests/bench/rate_limits.py

Fake providers run in separate processes; the kernel runs here, with the adapter that suites use, over
loopback HTTP. Times are from the start of the run to the end of the last job that counts; the client has
made one call before, and its connections are new.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Metered, Outcome, Plan, run_plan
from trioeval.providers import OpenProvider, Reply, Request, open_providers, resolve
from trioeval.templates import Templates

sys.path.insert(0, str(Path(__file__).parents[1]))
from server_process import open_server, reset, stats_of

SERVER = """
import json, pathlib, sys
from trioeval.cli.commands.fake_provider import choose_replies, serve_until_interrupted
from trioeval.cli.interrupts import Interrupts
from trioeval.providers.fake import FakeSettings
settings = json.loads(sys.argv[1])
replay = settings.pop("replay", None)
replies = choose_replies(replay and pathlib.Path(replay), ())
serve_until_interrupted(FakeSettings(replies=replies, **settings), Interrupts.installed())
"""
LATENCY = 0.05
PACED = {"rpm": 1200, "burst": 20, "latency_s": LATENCY}
PACED_CALLS = 200
PACED_IDEAL = (PACED_CALLS - 20) * 60 / 1200 + LATENCY


@attrs.frozen
class LaneRun:
    """The result of a run."""

    ended_at: Mapping[int, float]
    """By index, the seconds from the start of the run to the end of each successful job."""
    refused: int
    """Replies with status 429, of all servers."""

    def until_all(self, indices: Sequence[int]) -> float:
        """Return the seconds until all of these jobs were done."""
        return max(self.ended_at[index] for index in indices)


def fake(**settings: Any) -> AbstractContextManager[str]:
    """Run a fake provider with settings that the command line lacks; the context is its base URL."""
    return open_server([sys.executable, "-c", SERVER, json.dumps(settings)])


def refusals(base_url: str) -> int:
    """Return the number of replies with status 429 of a server."""
    return int(stats_of(base_url)["by_status"].get("429", 0))


async def ask(provider: OpenProvider, prompt: str) -> Metered[Reply]:
    """Make one call and return its reply with its tokens and its hints about limits."""
    reply = await provider(Request(prompt=prompt))
    return Metered(reply, tokens=reply.usage.total, hint=reply.hint)


async def perform(
    specs: Sequence[LaneSpec], urls: Mapping[str, str], prompts_by_lane: Sequence[tuple[str, str]]
) -> LaneRun:
    """Send each lane its prompts, in one run."""
    ended_at: dict[int, float] = {}
    failed: set[int] = set()
    jobs = [Job(index, lane, prompt) for index, (lane, prompt) in enumerate(prompts_by_lane)]
    templates = Templates()
    specs_of_providers = [
        resolve(
            "openai:chat:fake",
            {"apiBaseUrl": url},
            environ={},
            directory=Path(),
            templates=templates,
            custom={},
        )
        for url in urls.values()
    ]
    async with open_providers(specs_of_providers, templates) as opened:
        providers = dict(zip(urls, opened, strict=True))
        # The first call pays for imports and caches; the server is reset.
        for lane, url in urls.items():
            with suppress(ProviderError):
                await providers[lane](Request(prompt="warm-up"))
            await trio.to_thread.run_sync(reset, url)
        started = trio.current_time()

        async def body(job: Job[str], calls: Calls[str]) -> None:
            await calls(job.lane, ask, providers[job.lane or ""], job.payload)
            ended_at[job.index] = trio.current_time() - started

        async def emit(outcome: Outcome[None]) -> None:
            if not isinstance(outcome, Done):
                failed.add(outcome.index)

        plan = Plan(jobs, tuple(spec.name for spec in specs))
        await run_plan(plan, body, lanes=Lanes(specs), emit=emit)
    assert failed.isdisjoint(ended_at)
    refused = [await trio.to_thread.run_sync(refusals, url) for url in urls.values()]
    return LaneRun(ended_at, sum(refused))


def alone(spec: LaneSpec, prompts: Sequence[str], **settings: Any) -> LaneRun:
    """Run one lane with its own server."""
    with fake(**settings) as url:
        prompts_by_lane = [(spec.name, prompt) for prompt in prompts]
        return trio.run(perform, [spec], {spec.name: url}, prompts_by_lane)


def report(what: str, seen: LaneRun, ideal: float, calls: int) -> None:
    """Print one line."""
    took = seen.until_all([*seen.ended_at])
    print(
        f"{what}: {took / ideal:.3f} × ideal ({took:.2f} s of {ideal:.2f} s), "
        f"{seen.refused} × 429, {len(seen.ended_at)} of {calls} done",
        flush=True,
    )


def words(count: int) -> list[str]:
    """Return different prompts."""
    return [f"say w{n}" for n in range(count)]


def measure_rate(what: str, spec: LaneSpec, hints: str) -> None:
    """Measure a server that allows 1200 requests a minute with a burst of 20."""
    seen = alone(spec, words(PACED_CALLS), **PACED, hints=hints)
    report(f"1200 rpm {what}, width {spec.max_concurrency}", seen, PACED_IDEAL, PACED_CALLS)


def measure_in_flight_limit() -> None:
    """Measure a server that serves 8 requests at once and refuses others without hints."""
    seen = alone(
        LaneSpec("lane", 32),
        words(200),
        max_in_flight=8,
        hints="none",
        latency_s=0.2,
        jitter=0.5,
    )
    report("8 in flight, unknown to a lane of width 32", seen, 200 / 8 * 0.2, 200)


def measure_random_refusals() -> None:
    """Measure a server that refuses one call in five at random."""
    seen = alone(LaneSpec("lane", 8), words(60), latency_s=0.02, hints="none", throttle_rate=0.2)
    print(
        f"20 % refused at random, width 8: {seen.until_all([*seen.ended_at]):.2f} s, "
        f"{seen.refused} × 429, {len(seen.ended_at)} of 60 done",
        flush=True,
    )


def measure_isolation(rounds: int = 3) -> None:
    """Measure an unlimited lane alone and behind 50 calls to a lane of 300 rpm."""
    slow, free = LaneSpec("slow", 4, rpm=300), LaneSpec("free", 4)
    prompts = [("free", prompt) for prompt in words(50)]
    before = [("slow", prompt) for prompt in words(50)]
    by_itself, together = [], []
    for _ in range(rounds):
        with ExitStack() as servers:
            urls = {
                "slow": servers.enter_context(fake(rpm=300, burst=4, latency_s=LATENCY)),
                "free": servers.enter_context(fake(latency_s=LATENCY)),
            }
            seen = trio.run(perform, [free], {"free": urls["free"]}, prompts)
            by_itself.append(seen.until_all(range(50)))
            seen = trio.run(perform, [slow, free], urls, before + prompts)
            together.append(seen.until_all(range(50, 100)))
    ratio = statistics.median(together) / statistics.median(by_itself)
    print(
        f"free lane beside a throttled one: {ratio:.3f} × its time alone "
        f"({statistics.median(by_itself):.2f} s)",
        flush=True,
    )


def measure_failures(width: int = 5) -> None:
    """Measure 5 prompts that always fail with status 500 among 40 that succeed."""
    prompts = words(45)
    bad = set(range(4, 45, 9))
    good = [index for index in range(45) if index not in bad]
    ideal = len(good) / width * LATENCY
    with tempfile.TemporaryDirectory() as folder:
        replay = Path(folder) / "replies.jsonl"
        failure = {"error": {"kind": "server", "message": "always"}}
        lines = [
            {"prompt": prompt, **(failure if index in bad else {"output": "ok"})}
            for index, prompt in enumerate(prompts)
        ]
        replay.write_text("\n".join(map(json.dumps, lines)))
        seen = alone(LaneSpec("lane", width), prompts, latency_s=LATENCY, replay=str(replay))
    took = seen.until_all(good)
    print(
        f"5 prompts that always fail among 45, width {width}: the others took {took:.2f} s, "
        f"{took / ideal:.3f} × their ideal, {took / (45 / width * LATENCY):.3f} × that of all 45",
        flush=True,
    )


def measure_failing_servers(runs: int = 7) -> None:
    """Measure servers that fail at random or are full, on the virtual clock: the median of several seeds."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "property"))
    from server_shapes import Server, run_on

    cases: list[tuple[str, dict[str, Any], float, int, int, int]] = [
        ("10 % of replies 500", {"failed_share": 0.1}, 0.05, 20, 200, 1),
        ("8 in flight, no hints", {"cap": 8}, 0.2, 32, 200, 1),
        ("10 % bare 429", {"refused_share": 0.1}, 0.2, 32, 600, 1),
        (
            "10 % 429 that ask for 1 ms, 10 % 500",
            {"refused_share": 0.1, "refused_wait": 0.001, "failed_share": 0.1},
            0.05,
            32,
            1000,
            3,
        ),
    ]
    for what, shape, latency, width, jobs, cells in cases:
        ideal = Server(latency, **shape).ideal(jobs * cells, width)
        seen = [
            run_on(Server(latency, **shape, seed=seed), LaneSpec("lane", width), jobs, cells=cells)
            for seed in range(runs)
        ]
        took = statistics.median(run.seconds for run in seen)
        refused = statistics.median(run.refusals for run in seen)
        print(f"{what}: {took / ideal:.2f} × ideal ({took:.2f} s), {refused:g} × 429", flush=True)


def main() -> None:
    """Print the figures."""
    measure_failing_servers()
    measure_rate("declared", LaneSpec("lane", 20, rpm=1200, burst=19), "all")
    measure_rate("known from headers", LaneSpec("lane", 8), "limits")
    for width in (4, 8, 20):
        measure_rate("unknown", LaneSpec("lane", width), "retry_after")
    measure_in_flight_limit()
    measure_random_refusals()
    measure_isolation()
    measure_failures()


if __name__ == "__main__":
    main()
