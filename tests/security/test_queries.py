"""Queries of a suite that would run forever, or exhaust memory: JSONPath and JMESPath."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from pace import slowness

from trioeval.grading.kinds.files import values_at
from trioeval.grading.kinds.workspace_files import NoFileError
from trioeval.providers.generic.reply import (
    ReplyQuery,
    TransformError,
    TransformInput,
    apply_query,
    query_workers,
    read_transform,
)
from trioeval.providers.programs.workers import open_workers
from trioeval.scripting.queries import program

pytestmark = [pytest.mark.attack("hang"), pytest.mark.slow]

LIMIT = 0.4
"""Seconds after which the worker of a hostile query is ended."""

PATTERN = "^(a|aa)+$"
TEXT = "a" * 80 + "b"
ITEMS = {"items": [{"text": TEXT}, {"text": TEXT}]}
NESTED: Any = {"a": [1, {"b": [2, {"c": [3, 4, 5]}]}]}
for _ in range(5):
    NESTED = {"a": NESTED, "b": [NESTED, NESTED]}

HOSTILE = {
    "search that backtracks": (f"$.items[?search(@.text, '{PATTERN}')]", ITEMS),
    "match that backtracks": ("$.items[?match(@.text, '(a|aa)+')]", ITEMS),
    "pattern in the document": ("$[?search(@.t, @.p)]", [{"t": TEXT, "p": PATTERN}]),
    "fifty descents": ("$" + "..*" * 50, NESTED),
    "descents that find nothing": ("$" + "..*" * 9 + ".nothing", NESTED),
    "descents in filters": ("$" + "..[?@..a]" * 9 + ".nothing", NESTED),
    "repeated selectors": ("$" + "[*,*,*,*]" * 12, [[[[[[[[[[[[1]]]]]]]]]]]]),
    "doubling in a list": ("jmespath:" + " | ".join(["[@,@][]"] * 50), 1),
    "doubling in an object": ("jmespath:" + " | ".join(["{a: @, b: @}"] * 60), 1),
    "doubling without a pipe": ("jmespath:[@,@][]" + ".[@,@][]" * 40, 1),
    "joining what doubles": ("jmespath:" + " | ".join(["join('', [@,@])"] * 60), "ab"),
}


def query(text: str) -> ReplyQuery:
    read = read_transform(text)
    assert isinstance(read, ReplyQuery), read
    return read


def answer(document: Any) -> TransformInput:
    return TransformInput(json=document, text="", context={})


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_query_is_ended_and_delays_no_other_row(name: str, tmp_path: Path) -> None:
    """Its row fails, the worker is gone, and the event loop computed next to nothing meanwhile."""
    text, document = HOSTILE[name]
    parsed = query(text)
    assert not parsed.is_quick(0)

    async def main() -> float:
        with trio.fail_after(60):
            spec = query_workers(tmp_path, os.environ)
            async with open_workers(spec) as workers:
                began = time.thread_time()
                with pytest.raises(TransformError, match=r"fails: |finds nothing") as caught:
                    await apply_query(parsed, answer(document), 100, workers, limit=LIMIT)
                assert "please report" not in str(caught.value)
                return time.thread_time() - began

    assert trio.run(main) < 0.3 * slowness()


def test_cheap_queries_need_no_worker() -> None:
    """The most common queries are evaluated at once."""
    for text in (
        "$.a",
        "$.a[0].b",
        "$['a'][*]",
        "$.*",
        "$",
        "jmespath:a[0].b",
        "jmespath:a[].b[*].c",
    ):
        assert query(text).is_quick(program.CHEAP), text
        assert not query(text).is_quick(program.CHEAP + 1), text


@pytest.mark.parametrize(
    "text",
    [
        "$..a",
        "$[?@.a]",
        "$[0,1]",
        "$[*,*]",
        "$[::-1]",
        "$[?length(@.a) > 1]",
        "jmespath:[@,@]",
        "jmespath:{a: @}",
        "jmespath:a | b",
        "jmespath:sort(@)",
        "jmespath:a[?b]",
        "jmespath:*.a",
        "jmespath:`[1]`",
    ],
)
def test_queries_that_may_visit_a_value_twice_are_not_cheap(text: str) -> None:
    """This covers filters, functions, descents, unions, and constructed values."""
    assert not query(text).is_quick(1)


def test_a_query_that_is_too_long_is_refused_before_it_is_parsed() -> None:
    """Parsing takes more than linear time."""
    assert "longer than 10,000 characters" in str(read_transform("$" + ".a" * 5000))


def test_a_hostile_query_on_a_file_of_an_agent_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs in a separate process: assertions run in threads, which cannot be interrupted."""
    assert values_at("$..c", {"a": [{"c": 1}]}, 100) == [[1]]
    monkeypatch.setattr(program, "TIME_LIMIT", LIMIT)
    with pytest.raises(NoFileError, match=r"takes longer than 0\.4 seconds"):
        values_at("$" + "..*" * 9 + ".nothing", NESTED, 100)
