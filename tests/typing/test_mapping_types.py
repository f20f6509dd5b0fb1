"""The types of a map: strict type checkers read this file, and it runs as well."""

from typing import Any, assert_type

import trio

from trioeval import LaneSpec, map_on_lanes
from trioeval.kernel import Lanes, MappedItem, MappedItems, Outcome
from trioeval.testing import run_virtual

SPEC = LaneSpec("*", 2)


async def length(text: str) -> int:
    await trio.sleep(1)
    return len(text)


def first(text: str) -> str:
    return text[0]


def longest(results: list[MappedItem]) -> int:
    """A bare name is a complete type."""
    assert_type(results[0], MappedItem[Any, Any])
    lengths: list[int] = [result.unwrap() for result in results]
    return max(lengths)


async def run_map() -> None:
    async with map_on_lanes(length, ["a", "bc"], lane=first, spec=SPEC) as results:
        assert_type(results, MappedItems[str, int])
        assert_type(results.lanes, Lanes)
        assert_type(results.add("def"), int)
        async for result in results:
            assert_type(result, MappedItem[str, int])
            assert_type(result.item, str)
            assert_type(result.outcome, Outcome[int])
            assert_type(result.unwrap(), int)
            assert_type(result.error, Exception | None)


async def run_added() -> None:
    """Without items, the function alone determines the type of an item."""
    async with map_on_lanes(length, spec=SPEC) as results:
        assert_type(results, MappedItems[str, int])
        results.add("four")
        assert longest([result async for result in results]) == 4


def test_a_map_runs_as_typed() -> None:
    run_virtual(run_map)
    run_virtual(run_added)
