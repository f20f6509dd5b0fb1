"""The cost of storing rows: durable rows per second, and the time on the event loop per row.

    python tests/bench/store_rows.py

Rows whose records have about 2 kB, each with its call, are put down as quickly as a loop can, by themselves
(records are made in the writer's thread) and as records that are ready. The baseline of the
same run is plain `executemany` of the same lines into the same tables, 500 a commit. Then reading them back.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

import trioeval
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.providers import Reply
from trioeval.report.stored import RunStart
from trioeval.store.database import open_database
from trioeval.store.reader import read_store
from trioeval.store.schema import RUNS
from trioeval.store.store import open_store
from trioeval.store.writes import CALL, RECORD, RESULT, SCORE, RowWrite, RunPlace, call_write
from trioeval.usage import Usage

ROWS = 20_000
ROUNDS = 3
TARGET = 20_000  # rows a second
LOOP = 5.0  # µs a row
BATCH = 500
START = RunStart(id="eval-bench", utc_created="2026-01-01T00:00:00Z")


def made() -> tuple[Sequence[trioeval.Row], Sequence[CallRecord]]:
    """Rows of about 2 kB, and their calls."""
    suite = trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["say {{word}}"],
            "tests": [
                {"vars": {"word": str(n)}, "assert": [{"type": "contains", "value": "1"}]}
                for n in range(100)
            ],
        }
    )
    base = trio.run(trioeval.collect, suite)
    reply = Reply(
        output="lorem ipsum " * 4, usage=Usage(prompt=9, completion=9, total=18), cost=0.001
    )
    rows = [
        attrs.evolve(base[index % len(base)], index=index, output=reply.output, reply=reply)
        for index in range(ROWS)
    ]
    calls = [
        CallRecord(
            key=CallKey(None, row.index, "provider", bytes(16)),
            provider="echo",
            prompt=row.prompt or "",
            answer=reply,
            latency_ms=3.0,
        )
        for row in rows
    ]
    return rows, calls


async def stored(
    path: Path, rows: Sequence[trioeval.Row], calls: Sequence[CallRecord], *, ready: bool
) -> tuple[float, float]:
    """Seconds until all is safe, and of the loop's own time."""
    async with open_store(path) as store:
        run = store.begin(START)
        records = [run.record(row).json for row in rows] if ready else []
        await run.durable()
        began, own = time.perf_counter(), time.thread_time()
        if ready:
            for call, (index, record) in zip(calls, enumerate(records), strict=True):
                run.call(call)
                run.take(None, index, record)
        else:
            for call, row in zip(calls, rows, strict=True):
                run.call(call)
                run.row(row)
        own = time.thread_time() - own
        await run.durable()
        taken = time.perf_counter() - began
    return taken, own


def bare(
    path: Path, rows: Sequence[trioeval.Row], calls: Sequence[CallRecord]
) -> tuple[float, float]:
    """Seconds of inserting lines that are ready, and the mean size of a record."""
    place = RunPlace(eval_id="eval-bench", parts={None: 1})
    works = [RowWrite(place, None, row.index, row) for row in rows]
    size = sum(work.make() for work in works) / len(works)
    lines = [work.lines() for work in works]
    results, records = [line[0] for line in lines], [line[1] for line in lines]
    scores = [[*line[2]] for line in lines]
    call_writes = [call_write(place, call) for call in calls]
    for one in call_writes:
        one.make()
    call_lines = [line for one in call_writes if (line := one.line) is not None]
    connection = open_database(path, RUNS)
    inserts = [
        f"INSERT INTO {table} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})"  # noqa: S608
        for table, columns in (RESULT, RECORD, SCORE, CALL)
    ]
    began = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        part = slice(start, start + BATCH)
        connection.execute("BEGIN")
        flat = [score for some in scores[part] for score in some]
        for insert, values in zip(
            inserts, (results[part], records[part], flat, call_lines[part]), strict=True
        ):
            connection.executemany(insert, values)
        connection.execute("COMMIT")
    taken = time.perf_counter() - began
    connection.close()
    return taken, size


def main() -> None:
    """Print the figures."""
    rows, calls = made()
    times: dict[str, list[float]] = {"bare": [], "rows": [], "records": [], "read": [], "loop": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            taken, size = bare(Path(folder, f"bare{turn}.db"), rows, calls)
            times["bare"].append(taken)
            for name, ready in (("rows", False), ("records", True)):
                path = Path(folder, f"{name}{turn}.db")

                async def write(path: Path = path, *, ready: bool = ready) -> tuple[float, float]:
                    return await stored(path, rows, calls, ready=ready)

                taken, own = trio.run(write)
                times[name].append(taken)
                times["loop"].append(own)
            began = time.perf_counter()
            with read_store(path) as reader:
                count = sum(1 for _ in reader.records(reader.run("latest")))
            times["read"].append(time.perf_counter() - began)
            assert count == ROWS
    best = {name: min(found) for name, found in times.items()}
    print(f"records of {size:.0f} bytes, each with its call; the best of {ROUNDS}")
    for name, what in (
        ("bare", "barest executemany of lines that are ready"),
        ("records", "records that are ready"),
        ("rows", "rows"),
        ("read", "read back, with JSON"),
    ):
        print(f"{what:<45} {ROWS / best[name]:>9,.0f} a second")
    for name in ("records", "rows"):
        ratio = statistics.median(a / b for a, b in zip(times[name], times["bare"], strict=True))
        print(f"{name + ', against the barest':<45} {ratio:>9.2f} times the time (median)")
    print(
        f"on the event loop{best['loop'] / ROWS * 1e6:>38.2f} µs a row and its call, at most {LOOP}"
    )
    print(f"target: {TARGET:,} rows a second")


if __name__ == "__main__":
    main()
