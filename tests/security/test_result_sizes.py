"""Results from other sources than servers: functions, recordings, the cache."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.errors import ProviderError
from trioeval.evaluation.journal import RecordedReply
from trioeval.evaluation.provider_calls import ReplyCache
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply
from trioeval.providers.bounds import MOST_BYTES, excess
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.store.cache.cache import open_cache
from trioeval.store.cache.entry import CacheEntry

pytestmark = pytest.mark.attack("results")

BOUND = 2_000

LARGE = {
    "text": "'x' * 3_000",
    "wide characters": "'\\u20ac' * 1_000",
    "list": "['x' * 100] * 50",
    "object": "{str(number): 'x' * 100 for number in range(50)}",
    "keys": "{'x' * 3_000: 1}",
    "deep": "[[[['x' * 3_000]]]]",
    "values": "[[]] * 30_000",
    "members": "dict.fromkeys(map(str, range(30_000)), 1)",
    "number": "7 ** 30_000",
    "the same again and again": "doubled(30)",
}
CODE = """
def doubled(times):
    value = []
    for _ in range(times):
        value = [value, value]
    return value

def {name}(prompt, options, context):
    return {result}

async def a{name}(prompt, options, context):
    return {result}
"""


def row_of(
    folder: Path, provider: Any, *, replay: Path | None = None, cache: ReplyCache | None = None
) -> Row:
    suite = parse_suite({"providers": [provider], "prompts": ["hi"]}, directory=folder)
    rows: list[Row] = []

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        rows.append(row)

    async def main() -> None:
        await run_with_options(prepare(suite, replay=replay), RunOptions(emit=emit, cache=cache))

    trio.run(main)
    (row,) = rows
    return row


@pytest.mark.parametrize("mode", ["thread", "trio"])
@pytest.mark.parametrize(
    ("name", "whole"), [*((name, True) for name in LARGE), ("text", False), ("values", False)]
)
def test_the_result_of_a_function_in_this_process_is_bounded(
    tmp_path: Path,
    name: str,
    mode: str,
    whole: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The bound is that of a worker process; values besides the output count."""
    result = (
        f"{{'output': {LARGE[name]}}}"
        if whole
        else f"{{'output': 'a', 'metadata': {{'x': {LARGE[name]}}}}}"
    )
    (tmp_path / "own.py").write_text(CODE.replace("{name}", "ask").replace("{result}", result))
    function = "aask" if mode == "trio" else "ask"
    config = {"mode": mode, "maxResponseBytes": BOUND}
    row = row_of(tmp_path, {"id": f"python:own.py:{function}", "config": config})
    assert row.status.value == "error"
    assert row.error is not None
    assert "the result has more than" in row.error
    assert "maxResponseBytes" in row.error


def test_cyclic_values_are_not_traversed_forever() -> None:
    """It has more values than any bound."""
    value: list[Any] = ["x"]
    value.append(value)
    assert excess(value, MOST_BYTES) == "more than 524,288 texts, brackets and commas"


@pytest.mark.parametrize("size", [BOUND - 100, BOUND - 2])
def test_a_result_within_its_bound_is_a_reply(tmp_path: Path, size: int) -> None:
    """This holds up to the bound."""
    (tmp_path / "own.py").write_text(f"def ask(*_):\n    return 'x' * {size}\n")
    config = {"mode": "thread", "maxResponseBytes": BOUND}
    row = row_of(tmp_path, {"id": "python:own.py:ask", "config": config})
    assert row.output == "x" * size


RECORDED: Mapping[str, Mapping[str, Any]] = {
    "text": {"output": "x" * (BOUND + 1)},
    "list": {"output": ["x" * 100] * 50},
    "values": {"output": [[]] * 30_000},
    "reason": {"output": "x", "finish_reason": "x" * (BOUND + 1)},
    "model": {"output": "x", "model": "x" * (BOUND + 1)},
    "log probs": {"output": "x", "log_probs": [-0.5] * 30_000},
    "error": {"error": {"kind": "server", "message": "x" * (BOUND + 1)}},
}


@pytest.mark.parametrize("how", ["entry", "flag", "default"])
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_reply_is_bounded_by_its_provider(tmp_path: Path, name: str, how: str) -> None:
    """This holds for an entry, and for a file of all of a suite's providers; its other replies are used."""
    file = tmp_path / "replies.jsonl"
    take = {"prompt": "hi", **RECORDED[name]}
    file.write_text(json.dumps(take) + "\n")
    config = {"maxRetries": 0} | ({} if how == "default" else {"maxResponseBytes": BOUND})
    if how == "flag":
        provider = {"id": "openai:gpt-4.1", "config": config}
        row = row_of(tmp_path, provider, replay=file)
    else:
        row = row_of(tmp_path, {"id": "replay:replies.jsonl", "config": config})
    is_held = row.error is not None and (
        "replies.jsonl:1: the recorded reply has more than" in row.error
        and "maxResponseBytes" in row.error
    )
    assert is_held is (how != "default")


KEY = bytes(32)


def test_a_cached_reply_is_bounded_by_its_caller(tmp_path: Path) -> None:
    """A reply that is too large is an error; a new request may get another one."""

    async def main() -> str:
        async def fetch(output: str) -> RecordedReply:
            await trio.lowlevel.checkpoint()
            return RecordedReply(Reply(output=output), 1.0, cached=False)

        async with open_cache(tmp_path / "cache.db") as cache:
            await cache.reply(KEY, lambda: fetch("x" * 9 * BOUND), nullcontext)
        async with open_cache(tmp_path / "cache.db") as cache:
            for bound in (BOUND, BOUND):
                with pytest.raises(ProviderError, match="exceeds the size limit of replies"):
                    await cache.reply(KEY, lambda: fetch("never"), nullcontext, most_bytes=bound)
            assert (
                len((await cache.reply(KEY, lambda: fetch("never"), nullcontext)).reply.output)
                > BOUND
            )
            new = await cache.reply(
                KEY, lambda: fetch("anew"), nullcontext, refresh=True, most_bytes=BOUND
            )
        return str(new.reply.output)

    assert trio.run(main) == "anew"


@attrs.define
class Bounds:
    """A cache that records the bounds of its calls."""

    bounds: list[int] = attrs.field(factory=list)

    def has(self, _key: bytes, /) -> bool:
        return False

    def drop(self, _key: bytes, /) -> None:
        """Return nothing."""

    async def reply(
        self, _key: bytes, _fetch: Any, _waiting: Any, *, refresh: bool = False, most_bytes: int = 0
    ) -> RecordedReply:
        assert not refresh
        self.bounds.append(most_bytes)
        await trio.lowlevel.checkpoint()
        return RecordedReply(Reply(output="kept"), 1.0, cached=True)


@pytest.mark.parametrize(
    ("config", "bound"), [({}, MOST_BYTES), ({"maxResponseBytes": BOUND}, BOUND)], ids=str
)
def test_the_cache_receives_the_bound_of_the_provider(
    tmp_path: Path, config: Mapping[str, Any], bound: int
) -> None:
    """Each provider has its own bound."""
    cache = Bounds()
    provider = {"id": "openai:gpt-4.1", "config": {"apiKey": "sk-0123456789abcdef", **config}}
    assert row_of(tmp_path, provider, cache=cache).output == "kept"
    assert cache.bounds == [bound]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"output": "x" * (8 * BOUND)}),
        json.dumps({"output": "a", "raw": [["x" * 1000]] * 20}),
        json.dumps({"output": [[]] * 70_000}),
        "[" * (9 * BOUND),
    ],
    ids=["text", "raw", "values", "brackets"],
)
def test_a_reply_in_the_cache_is_bounded_by_its_provider(text: str) -> None:
    """It is refused before any of it is read."""
    most = BOUND if len(text) < 100_000 else BOUND * 10
    with pytest.raises(ProviderError, match=rf"maxResponseBytes: {most}") as caught:
        CacheEntry(text, 1.0, 0.0).paid(most)
    assert "--refresh" in str(caught.value)


@pytest.mark.parametrize("character", ["x", "\\u00e9", "\\u20ac", "\\U0001f600", '"', "\\x00"])
def test_a_reply_within_its_bound_can_be_cached(character: str) -> None:
    """This holds for any spelling: it is stored twice, and in ASCII."""
    output = character * (BOUND // len(json.dumps(character, ensure_ascii=False)[1:-1].encode()))
    text = json.dumps({"output": output, "raw": {"choices": [output]}})
    assert CacheEntry(text, 1.0, 0.0).paid(BOUND).reply.output == output
