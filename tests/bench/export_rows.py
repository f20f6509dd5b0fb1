"""Result files of many rows: how long each takes to write, and the memory.

    python tests/bench/export_rows.py [ROWS] [SUFFIX...]

Target for 100,000 rows of 2 kB: JSON in at most 10 s, with at most 150 MB of memory in all. Rows come as
JSON text, as the store gives them; totals are counted first, which is a separate pass. Each figure comes
from a separate process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import trio

import trioeval
from trioeval.report.files import write_results
from trioeval.report.formats.json import compact
from trioeval.report.head import config_tests, head_of
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo
from trioeval.report.row import row_json
from trioeval.report.totals import Totals
from trioeval.suite.expand import expand

ROWS = 100_000
SIZE = 2000  # bytes of a row
SUITE: dict[str, Any] = {
    "providers": ["echo"],
    "prompts": ["{{text}}"],
    "tests": [{"vars": {"text": ""}, "assert": [{"type": "contains", "value": "a"}]}],
}


def results(rows: int) -> Results:
    """Return a run whose rows are made when they are read."""
    suite = trioeval.parse_suite(SUITE)
    (row,) = trio.run(trioeval.collect, suite)
    record = row_json(row, "eval-bench")
    record["response"]["output"] = "word " * ((SIZE - len(compact(record))) // 5)
    before, after = compact(record).split('"testIdx":0')

    def read(_prompt_idx: int | None) -> Iterator[Any]:
        return (json.loads(f'{before}"testIdx":{n}{after}') for n in range(rows))

    steps = expand(suite)
    totals = Totals.of(steps.columns)
    for found in read(None):
        totals.add(RowRecord.of(found))
    return Results(
        head=head_of(suite, steps, eval_id="eval-bench", utc_created="", versions={}),
        totals=totals,
        info=RunInfo(utc_exported="", duration_ms=0.0),
        records=read,
        tests=partial(config_tests, suite),
    )


def measure(file: Path, rows: int) -> None:
    """Write one file and print its figures."""
    began = time.perf_counter()
    found = results(rows)
    counted = time.perf_counter()
    write_results(file, [found])
    written = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = file.stat().st_size / 1e6
    print(
        f"{file.suffix:6} {written - began:6.2f} s ({counted - began:5.2f} of it to count,"
        f" {time.process_time():5.2f} of the processor),"
        f" {memory:5.0f} MB of memory, {size:6.0f} MB written",
        flush=True,
    )


def main() -> None:
    """Write each kind of file."""
    if len(sys.argv) > 1 and sys.argv[1] == "measure":
        measure(Path(sys.argv[2]), int(sys.argv[3]))
        return
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        for suffix in sys.argv[2:] or (".json", ".csv", ".html", ".junit.xml"):
            file = Path(folder) / f"out{suffix}"
            subprocess.run([sys.executable, __file__, "measure", file, str(rows)], check=True)


if __name__ == "__main__":
    main()
