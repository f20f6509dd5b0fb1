"""A million rows of a number and a template over it, to Parquet: cells a second, and memory along the way.

    python tests/bench/columns_million.py [rows]

The same run measures the parts alone: the makers of both columns, and the files.
The target is 50,000 cells a second and 200 MB, flat.
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

import trioeval
from trioeval.columns.events import DatasetEvent, GroupWritten
from trioeval.columns.files import Header, open_folder
from trioeval.columns.graph import MakeJob, RowGrouping
from trioeval.columns.makers.base import CellError, GroupMaker, GroupOrder
from trioeval.columns.makers.code import TemplateMaker
from trioeval.columns.makers.samplers import SamplerMaker
from trioeval.columns.model import ExpressionColumn, SamplerColumn, UniformSampler

ROWS, GROUP = 1_000_000, 1000
TEMPLATE = "{{ a * 2 }}"
SETTINGS: Mapping[str, Any] = {
    "groupSize": GROUP,
    "seed": 7,
    "columns": [
        {"name": "a", "type": "sampler", "sampler": "uniform", "low": 2, "high": 50, "decimals": 0},
        {"name": "b", "type": "expression", "template": TEMPLATE, "as": "int"},
    ],
}
NO_CALLS: Any = None
"""The call interface of makers that make no calls."""


def megabytes() -> float:
    """Return the resident memory of the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def build(rows: int, folder: Path) -> float:
    """Build the dataset, print the memory on the way, and return the seconds."""
    groups = rows // GROUP
    reported = {max(1, groups * share // 100): share for share in (1, 10, 50, 100)}
    written = 0

    def watch(event: DatasetEvent) -> None:
        nonlocal written
        if isinstance(event, GroupWritten):
            written += 1
            if written in reported:
                print(f"{reported[written]:>4} %: {megabytes():.0f} MB", flush=True)

    began, own = time.perf_counter(), time.process_time()
    dataset = await trioeval.build_columns(
        {**SETTINGS, "rows": rows}, output_dir=folder, events=watch
    )
    seconds, own = time.perf_counter() - began, time.process_time() - own
    print(f"{2 * rows / own:,.0f} cells a second of CPU, all threads")
    assert dataset.result.written == rows
    return seconds


async def parts(rows: int, folder: Path) -> Mapping[str, float]:
    """Return the seconds of the makers and of the files."""
    number = SamplerColumn(name="a", sampler=UniformSampler(low=2, high=50, decimals=0))
    double = ExpressionColumn(name="b", template=TEMPLATE, as_type="int")
    makers: Mapping[str, GroupMaker] = {"a": SamplerMaker(number, 7), "b": TemplateMaker(double)}
    seconds = {"makers": 0.0, "files": 0.0}
    header = Header(
        columns={"a": "int", "b": "int"}, grouping=RowGrouping(GROUP, (rows,)), fingerprint={}
    )
    with open_folder(folder, header, file_format="parquet", existing="never") as files:
        for group, start in enumerate(range(0, rows, GROUP)):
            numbers = range(start, min(start + GROUP, rows))
            table: list[dict[str, Any]] = [{} for _ in numbers]
            began = time.perf_counter()
            for maker in makers.values():
                order = GroupOrder(MakeJob(0, group), start=start, rows=numbers, values=table)
                made = await maker.make(order, NO_CALLS)
                for row, (_, cells) in zip(table, made, strict=True):
                    assert not isinstance(cells, CellError)
                    row.update(cells)
            between = time.perf_counter()
            seconds["makers"] += between - began
            files.write(group, list(zip(numbers, table, strict=True)))
            seconds["files"] += time.perf_counter() - between
    return seconds


def main() -> None:
    """Print the figures."""
    rows = int(sys.argv[1]) if sys.argv[1:] else ROWS
    print(f"{rows:,} rows of 2 columns in groups of {GROUP}; {megabytes():.0f} MB before")
    with tempfile.TemporaryDirectory() as folder:
        seconds = trio.run(build, rows, Path(folder, "all"))
        some = max(GROUP, rows // 10)
        alone = trio.run(parts, some, Path(folder, "parts"))
    print(f"{2 * rows / seconds:,.0f} cells/s ({seconds:.1f} s)")
    reported = ", ".join(
        f"{name} {took / some * rows / seconds:.0%}" for name, took in alone.items()
    )
    print(f"of that, by themselves: {reported}")


if __name__ == "__main__":
    main()
