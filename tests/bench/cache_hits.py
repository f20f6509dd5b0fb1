"""Hits of the cache through `Cache.reply`, from file and memory, and the cost of a key and of a miss.

    python tests/bench/cache_hits.py [COUNT]

Target: at least 10,000 hits per second, each of a reply of 2 kB that is read from the file, checked, and
converted to a new `Reply`.
"""

import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import trio

from trioeval.evaluation.journal import RecordedReply
from trioeval.providers import Reply, Request, Usage, open_providers, resolve
from trioeval.store.cache.cache import Cache, open_cache
from trioeval.templates import Templates

WANTED = 10_000
TEXT = "All that is gold does not glitter. " * 28
REPLY = Reply(
    output=TEXT,
    usage=Usage(prompt=20, completion=400, total=420),
    cost=0.001,
    finish_reason="stop",
    raw={"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}}]},
    metadata={"http": {"status": 200, "headers": {"content-type": "application/json"}}},
)


async def fetch() -> RecordedReply:  # noqa: ASYNC124 - has the type of a call
    """A call that takes no time."""
    return RecordedReply(REPLY, 350.0, cached=False)


async def request_all(cache: Cache, keys: list[bytes]) -> float:
    """Return the seconds per key."""
    began = time.perf_counter()
    for key in keys:
        await cache.reply(key, fetch, nullcontext)
    return (time.perf_counter() - began) / len(keys)


async def request_concurrently(cache: Cache, keys: list[bytes]) -> float:
    """Return the seconds per key with twenty concurrent callers."""
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for start in range(20):
            nursery.start_soon(request_all, cache, keys[start::20])
    return (time.perf_counter() - began) / len(keys)


async def cost_of_key() -> float:
    """Return the seconds to compute the key of a request to a chat model."""
    spec = resolve(
        "openai:chat:gpt-4.1",
        {"temperature": 0, "apiKey": "sk-0123456789abcdef"},
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    async with open_providers([spec], Templates()) as [provider]:
        request = Request(prompt=TEXT)
        began = time.perf_counter()
        for _ in range(2000):
            provider.cache_key(request)
        return (time.perf_counter() - began) / 2000


async def main(count: int, folder: Path) -> None:
    """Measure and print the figures."""
    keys = [number.to_bytes(32, "big") + b"openai:gpt-4.1" for number in range(count)]
    async with open_cache(folder / "c.db") as cache:
        alone = await request_all(cache, keys[: count // 10])
        crowd = await request_concurrently(cache, keys[count // 10 :])
    async with open_cache(folder / "c.db") as cache:
        hit = await request_all(cache, keys)
        at_once = await request_concurrently(cache, keys)
        began = time.perf_counter()
        assert all(map(cache.has, keys))
        look = (time.perf_counter() - began) / count
        assert cache.statistics().calls == 0
    async with open_cache(None) as cache:
        await request_all(cache, keys)
        memory = await request_all(cache, keys)
    print(f"key             {await cost_of_key() * 1e6:7.1f} us")
    print(f"miss, alone     {alone * 1e6:7.1f} us    20 at once {crowd * 1e6:7.1f} us")
    print(f"has             {look * 1e6:7.1f} us")
    print(f"hit in memory   {memory * 1e6:7.1f} us   {1 / memory:9,.0f} a second")
    print(f"hit in the file {hit * 1e6:7.1f} us   {1 / hit:9,.0f} a second")
    print(f"  20 at once    {at_once * 1e6:7.1f} us   {1 / at_once:9,.0f} a second")
    if 1 / hit < WANTED:
        sys.exit(f"fewer than {WANTED:,} hits a second")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, Path(directory))
