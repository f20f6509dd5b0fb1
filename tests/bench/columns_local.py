"""Cells per second of makers without calls: a sampler, a template over it, and both in turns.

python tests/bench/columns_local.py [rows]
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from trioeval.columns.graph import MakeJob
from trioeval.columns.makers.base import CellError, GroupMaker, GroupOrder
from trioeval.columns.makers.code import TemplateMaker
from trioeval.columns.makers.samplers import SamplerMaker
from trioeval.columns.model import CategorySampler, ExpressionColumn, SamplerColumn, UniformSampler

ROWS = 1_000_000
GROUP = 1000
NO_CALLS: Any = None
"""The call interface of makers that make no calls."""


def makers() -> Mapping[str, tuple[GroupMaker, Sequence[str]]]:
    """Return the maker of each column and the columns that it needs."""
    number = SamplerColumn(name="a", sampler=UniformSampler(low=2, high=50, decimals=0))
    topic = SamplerColumn(name="topic", sampler=CategorySampler(values=("apples", "trains")))
    text = ExpressionColumn(name="text", template="How many {{ topic }} are {{ a }}?")
    double = ExpressionColumn(name="double", template="{{ a + a }}", as_type="int")
    return {
        "a": (SamplerMaker(number, 7), ()),
        "topic": (SamplerMaker(topic, 7), ()),
        "text": (TemplateMaker(text), ("a", "topic")),
        "double": (TemplateMaker(double), ("a",)),
    }


async def run(rows: int) -> None:
    """Print the figures."""
    seconds = dict.fromkeys(found := makers(), 0.0)
    for group, start in enumerate(range(0, rows, GROUP)):
        numbers = range(start, min(start + GROUP, rows))
        table: list[dict[str, Any]] = [{} for _ in numbers]
        for name, (maker, needed) in found.items():
            values = [{one: row[one] for one in needed} for row in table]
            began = time.perf_counter()
            order = GroupOrder(MakeJob(0, group), start=start, rows=numbers, values=values)
            made = await maker.make(order, NO_CALLS)
            seconds[name] += time.perf_counter() - began
            for row, (_, cells) in zip(table, made, strict=True):
                if isinstance(cells, CellError):
                    raise cells
                row.update(cells)
    for name, took in seconds.items():
        print(f"{name}: {rows / took:,.0f} cells/s")
    print(f"all: {rows * len(seconds) / sum(seconds.values()):,.0f} cells/s")


if __name__ == "__main__":
    trio.run(run, int(sys.argv[1]) if sys.argv[1:] else ROWS)
