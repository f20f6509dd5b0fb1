import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trioeval.providers.http.streams import ServerEvent, Texts
from trioeval.providers.vendors.anthropic import read_message
from trioeval.providers.vendors.gemini import read_reply
from trioeval.providers.vendors.openai_chat import join_chunks


def test_replaced_text_is_kept() -> None:
    """Only a text that still exists grows."""
    texts = Texts()
    block: dict[str, object] = {"a": "", "b": "x", "c": "x"}
    for name in block:
        texts.add(block, name, "y")
    block |= {"b": "z", "c": 1}
    texts.add(block, "b", "!")
    texts.join()
    assert block == {"a": "y", "b": "z!", "c": 1}


def events(*data: object) -> list[ServerEvent]:
    return [ServerEvent(one if isinstance(one, str) else json.dumps(one)) for one in data]


def chat(length: int) -> list[ServerEvent]:
    token = {"content": [{"token": "word ", "logprob": -0.1}]}
    function = {"index": 0, "function": {"arguments": "word "}}
    delta = {"content": "word ", "tool_calls": [function]}
    return [*events({"choices": [{"delta": delta, "logprobs": token}]}) * length, *events("[DONE]")]


def anthropic(length: int) -> list[ServerEvent]:
    def part(index: int, **delta: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    blocks = [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind}}
        for index, kind in enumerate(("text", "tool_use"))
    ]
    parts = [part(0, text="word "), part(0, citation={}), part(1, partial_json="word ")]
    start, stop = {"type": "message_start", "message": {}}, {"type": "message_stop"}
    return [*events(start, *blocks), *events(*parts) * length, *events(stop)]


def gemini(length: int) -> list[ServerEvent]:
    expected = {
        "content": {"parts": [{"text": "word "}]},
        "logprobsResult": {"chosenCandidates": [{"logProbability": -0.1}]},
    }
    end = {"candidates": [{**expected, "finishReason": "STOP"}]}
    return [*events({"candidates": [expected]}) * (length - 1), *events(end)]


def texts_in(data: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from texts_in(value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "join"), [(chat, join_chunks), (anthropic, read_message), (gemini, read_reply)]
)
def test_a_stream_is_joined_in_linear_time(
    make: Callable[[int], list[ServerEvent]], join: Callable[[list[ServerEvent]], object]
) -> None:
    """Received parts are not copied for each new part, which would block the run."""

    def seconds(length: int) -> float:
        stream = make(length)
        started = time.process_time()
        whole = join(stream)
        taken = time.process_time() - started
        assert "word " * length in texts_in(whole)
        return taken

    least = min(seconds(4000) for _ in range(3))
    # Sixteen times as many parts take 256 times as long if each of them copies those before.
    assert min(seconds(64_000) for _ in range(2)) < 50 * least
