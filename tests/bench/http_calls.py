"""The cost of a call over HTTP, compared with a bare loop of the HTTP client in the same run.

    python tests/bench/http_calls.py [CALLS]

The fake provider runs in a separate process. Figures: CPU milliseconds a call of this process, by the
provider (body, headers, exchange, usage, hints, cost) and by a bare `httpx2` loop that posts the same body
and parses the same reply, at 20 and 200 calls in flight; whether 500 calls can be in flight at once; how
much memory many calls leave behind; and what a suite takes whose rows are graded and stored, beside what the
latency and the width allow: the CPU of a further test is the difference of a longer and a shorter run.
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import trio

from trioeval.loading.load import parse_suite
from trioeval.providers import ProviderSpec, Request, open_providers, resolve
from trioeval.report.head import head_of
from trioeval.report.stored import RunStart
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.run.journal import RunJournal
from trioeval.store.store import open_store
from trioeval.suite.model import Suite
from trioeval.templates import Templates

sys.path.insert(0, str(Path(__file__).parents[1]))
from server_process import fake_provider

ROUNDS = 5
WIDE = 500

STAMP = "2026-01-01T00:00:00.000Z"
SUITE_CALLS, MORE_CALLS, SUITE_WIDTH, SUITE_LATENCY = 200, 1200, 20, 0.05

Ask = Callable[[], Awaitable[object]]


async def many(ask: Ask, calls: int, width: int) -> float:
    """Return the CPU seconds of concurrent calls."""
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await ask()

    before = time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(width):
            nursery.start_soon(worker)
    return time.process_time() - before


async def measure(base_url: str, calls: int) -> None:
    """Print the figures."""
    prompt = "Name the capital of France. " * 8
    templates = Templates()
    spec = spec_at(base_url, templates)
    body = {
        "model": "gpt-4.1",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 1024,
    }
    unbounded = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with (
        open_providers([spec], templates) as [provider],
        httpx2.AsyncClient(limits=unbounded, timeout=None) as client,
    ):

        async def ours() -> object:
            return await provider(Request(prompt=prompt))

        async def bare() -> object:
            reply = await client.post(f"{base_url}/chat/completions", json=body)
            return json.loads(reply.content)["choices"][0]["message"]["content"]

        for width in (20, 200):
            await many(ours, width * 2, width)
            await many(bare, width * 2, width)
            pairs = [
                (await many(ours, calls, width), await many(bare, calls, width))
                for _ in range(ROUNDS)
            ]
            own = statistics.median(pair[0] for pair in pairs) / calls * 1000
            ratio = statistics.median(one / other for one, other in pairs)
            print(f"{width} in flight: {own:.3f} ms CPU a call, {ratio:.2f} × the bare loop")
        await many(ours, 2000, 50)
        before = resident()
        await many(ours, 20_000, 50)
        print(f"memory after 20,000 more calls: {resident() - before:+.1f} MiB")


async def measure_width(base_url: str) -> None:
    """Print whether so many calls can be in flight at once, at a server that takes its time."""
    templates = Templates()
    async with open_providers([spec_at(base_url, templates)], templates) as [provider]:

        async def ours() -> object:
            return await provider(Request(prompt="Name the capital of France."))

        await many(ours, WIDE, WIDE)
    async with httpx2.AsyncClient() as client:
        stats = (await client.get(base_url.removesuffix("/v1") + "/stats")).json()
    print(f"{WIDE} at once: {stats['ok']} served, {stats['max_in_flight']} in flight at the peak")


async def measure_suite(base_url: str, folder: Path) -> None:
    """Print what a suite takes that is graded and stored, from the first request to the last reply."""
    entry = {
        "id": "openai:chat:gpt-4.1",
        "config": {"apiBaseUrl": base_url},
        "lane": {"maxConcurrency": SUITE_WIDTH},
    }
    checks = [{"type": "contains", "value": "Paris"}]
    shorter, longer = (
        parse_suite(
            {
                "providers": [entry],
                "prompts": ["Question {{n}}: name the capital of France."],
                "tests": [{"vars": {"n": n}, "assert": checks} for n in range(calls)],
            }
        )
        for calls in (SUITE_CALLS, MORE_CALLS)
    )

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - only looks
        assert row.verdict is not None

    async def timed(suite: Suite, journal: RunJournal | None) -> tuple[float, float]:
        """Times the ideal, from the first request to the last reply; and CPU seconds."""
        await client.post(base_url.removesuffix("/v1") + "/reset")
        prepared, before = prepare(suite), time.process_time()
        await run_with_options(prepared, RunOptions(emit=emit, journal=journal))
        spent = time.process_time() - before
        stats = (await client.get(base_url.removesuffix("/v1") + "/stats")).json()
        took = stats["last_reply_at"] - stats["first_request_at"]
        return took / (len(suite.tests) * SUITE_LATENCY / SUITE_WIDTH), spent

    async def further(name: str | None) -> tuple[float, float]:
        """Times the ideal of the shorter run, and CPU milliseconds of a further test."""
        found: list[tuple[float, float]] = []
        for suite in (shorter, longer):
            run = None
            if name is not None:
                run_id = f"{name}-{len(suite.tests)}"
                head = head_of(
                    suite, prepare(suite).steps, eval_id=run_id, utc_created=STAMP, versions={}
                )
                run = store.begin(RunStart(id=run_id, utc_created=STAMP, heads=[head.json()]))
            found.append(await timed(suite, run))
            if run is not None:
                run.finish("finished", duration_ms=0)
        (ideal, first), (_, second) = found
        return ideal, (second - first) / (MORE_CALLS - SUITE_CALLS) * 1000

    async with open_store(folder / "results.db") as store, httpx2.AsyncClient() as client:
        rounds = [
            (*(await further(None)), *(await further(f"eval-{number}"))) for number in range(ROUNDS)
        ]
    bare, bare_ms, stored, stored_ms = (statistics.median(one) for one in zip(*rounds, strict=True))
    print(
        f"{SUITE_CALLS} tests at width {SUITE_WIDTH}, graded: {bare:.3f} × the ideal,"
        f" {bare_ms:.3f} ms CPU a further test; stored as well: {stored:.3f} × (target 1.1),"
        f" {stored_ms:.3f} ms (target 0.7)"
    )


def spec_at(base_url: str, templates: Templates) -> ProviderSpec:
    """The provider that is measured."""
    return resolve(
        "openai:chat:gpt-4.1",
        {"apiBaseUrl": base_url},
        environ={},
        directory=Path(),
        templates=templates,
        custom={},
    )


def resident() -> float:
    """Return the resident MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024


def main() -> None:
    """Start the server and measure."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with fake_provider("--reply", "Paris.", "--latency", "0.01") as base_url:
        trio.run(measure, base_url, calls)
    with fake_provider("--reply", "Paris.", "--latency", "2") as base_url:
        trio.run(measure_width, base_url)
    with (
        fake_provider("--reply", "Paris.", "--latency", str(SUITE_LATENCY)) as base_url,
        tempfile.TemporaryDirectory() as folder,
    ):
        trio.run(measure_suite, base_url, Path(folder))


if __name__ == "__main__":
    main()
