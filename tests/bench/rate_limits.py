"""Lanes against servers that refuse: time taken against the ideal, and how many calls were refused.

    python tests/bench/rate_limits.py

Fake providers run in processes of their own; the kernel runs here, with the adapter that suites use, over
loopback HTTP. Times are from the start of the run to the end of the last job that counts; the client has
made one call before, and its connections are new.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Metered, Outcome, Plan, run_plan
from trioeval.providers import OpenProvider, Reply, Request, open_providers, resolve
from trioeval.templates import Templates

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
class Seen:
    """What came of a run."""

    ended_at: Mapping[int, float]
    """By index, seconds from the start to the end of each job that was done."""
    refused: int
    """Replies with status 429, of all servers."""

    def until_all(self, indices: Sequence[int]) -> float:
        """Seconds until all of these were done."""
        return max(self.ended_at[index] for index in indices)


@contextmanager
def fake(**settings: Any) -> Iterator[str]:
    """A fake provider in a process of its own; gives its base URL."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def refusals(base_url: str) -> int:
    """How many requests a server has answered with 429."""
    stats = json.load(urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/stats"))
    return int(stats["by_status"].get("429", 0))


def forget(base_url: str) -> None:
    """Let a server begin anew."""
    home = base_url.removesuffix("/v1")
    urllib.request.urlopen(urllib.request.Request(f"{home}/reset", method="POST")).read()


async def ask(provider: OpenProvider, prompt: str) -> Metered[Reply]:
    """One call, with what it used and what the reply says of limits."""
    reply = await provider(Request(prompt=prompt))
    return Metered(reply, tokens=reply.usage.total, hint=reply.hint)


async def perform(
    specs: Sequence[LaneSpec], urls: Mapping[str, str], asked: Sequence[tuple[str, str]]
) -> Seen:
    """Ask each lane its prompts, in one run."""
    ended_at: dict[int, float] = {}
    failed: set[int] = set()
    jobs = [Job(index, lane, prompt) for index, (lane, prompt) in enumerate(asked)]
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
        # The first call pays for imports and caches; the server forgets it.
        for lane, url in urls.items():
            with suppress(ProviderError):
                await providers[lane](Request(prompt="warm-up"))
            await trio.to_thread.run_sync(forget, url)
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
    return Seen(ended_at, sum(refused))


def alone(spec: LaneSpec, prompts: Sequence[str], **settings: Any) -> Seen:
    """One lane with a server of its own."""
    with fake(**settings) as url:
        asked = [(spec.name, prompt) for prompt in prompts]
        return trio.run(perform, [spec], {spec.name: url}, asked)


def report(what: str, seen: Seen, ideal: float, calls: int) -> None:
    """One line."""
    took = seen.until_all([*seen.ended_at])
    print(
        f"{what}: {took / ideal:.3f} × ideal ({took:.2f} s of {ideal:.2f} s), "
        f"{seen.refused} × 429, {len(seen.ended_at)} of {calls} done",
        flush=True,
    )


def words(count: int) -> list[str]:
    """So many different prompts."""
    return [f"say w{n}" for n in range(count)]


def paced(what: str, spec: LaneSpec, hints: str) -> None:
    """A server of 1200 requests a minute, of which 20 may come together."""
    seen = alone(spec, words(PACED_CALLS), **PACED, hints=hints)
    report(f"1200 rpm {what}, width {spec.max_concurrency}", seen, PACED_IDEAL, PACED_CALLS)


def crowded() -> None:
    """A server that takes 8 at once and refuses others without a word."""
    seen = alone(
        LaneSpec("lane", 32),
        words(200),
        max_in_flight=8,
        hints="none",
        latency_s=0.2,
        jitter=0.5,
    )
    report("8 in flight, unknown to a lane of width 32", seen, 200 / 8 * 0.2, 200)


def moody() -> None:
    """A server that refuses one call in five at random."""
    seen = alone(LaneSpec("lane", 8), words(60), latency_s=0.02, hints="none", throttle_rate=0.2)
    print(
        f"20 % refused at random, width 8: {seen.until_all([*seen.ended_at]):.2f} s, "
        f"{seen.refused} × 429, {len(seen.ended_at)} of 60 done",
        flush=True,
    )


def beside(rounds: int = 3) -> None:
    """A free lane, by itself and behind 50 calls to a lane of 300 rpm."""
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


def broken(width: int = 5) -> None:
    """5 prompts that always fail with status 500 among 40 that do not."""
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


def main() -> None:
    """Print the figures."""
    paced("declared", LaneSpec("lane", 20, rpm=1200, burst=19), "all")
    paced("told by headers", LaneSpec("lane", 8), "limits")
    for width in (4, 8, 20):
        paced("told by nobody", LaneSpec("lane", width), "retry_after")
    crowded()
    moody()
    beside()
    broken()


if __name__ == "__main__":
    main()
