"""Calls of makers that call no provider."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import trio

from trioeval.columns.graph import MakeJob
from trioeval.columns.lanes import CODE, LOCAL
from trioeval.columns.makers.base import (
    CellError,
    CellMaker,
    CellOrder,
    GroupMaker,
    GroupOrder,
    Made,
)
from trioeval.columns.makers.code import PythonExpressionMaker, PythonGroupMaker
from trioeval.evaluation.scripts import Scripts, open_scripts

T = TypeVar("T")

NOBODY: Any = None
"""The calls of a maker that makes none."""


def group_order(
    values: Sequence[Mapping[str, Any]] | int,
    rows: Sequence[int] | None = None,
    group: int = 0,
    start: int = 0,
) -> GroupOrder:
    """Return an order of rows with these values, or of a number of rows without values."""
    known = [{} for _ in range(values)] if isinstance(values, int) else values
    numbers = range(start, start + len(known)) if rows is None else rows
    job, is_later = MakeJob(0, group), start > 0
    order = GroupOrder(job, start=start, rows=list(numbers), values=known, follows=is_later)
    order.begin()
    return order


async def make_group(maker: GroupMaker, order: GroupOrder) -> Made:
    """Return the result of a maker for an order."""
    runs_code = isinstance(maker, PythonGroupMaker | PythonExpressionMaker)
    assert maker.lane == (CODE if runs_code else LOCAL)
    return await maker.make(order, NOBODY)


async def make_cell(maker: CellMaker, row: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of a maker for a row."""
    assert maker.lane == CODE
    order = CellOrder(MakeJob(0, 0, row), values=values)
    order.begin()
    return await maker.make(order, NOBODY)


def made_by(maker: GroupMaker, order: GroupOrder) -> Made:
    """Return the result of a maker, in its own run."""
    return trio.run(make_group, maker, order)


def column_of(made: Made, name: str) -> list[Any]:
    """Return the values of a column, with the texts of errors."""
    return [str(values) if isinstance(values, CellError) else values[name] for _, values in made]


def with_code(folder: Path, code: str, body: Callable[[Scripts], Awaitable[T]]) -> T:
    """Return the result of a body that may call functions of `gen.py`."""
    (folder / "gen.py").write_text(code)

    async def main() -> T:
        with trio.fail_after(60):
            async with open_scripts(folder, os.environ) as scripts:
                return await body(scripts)

    return trio.run(main)
