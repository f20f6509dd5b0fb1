"""Datasets over loopback HTTP, against the ideal of the same run.

    python tests/bench/columns_http.py [case …]

The fake provider runs in a separate process. Time is from its first request to its last reply, by its own
clock; with several providers, from before the first cell until after the last one.
"""

import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import trio

import trioeval
from trioeval.kernel import CallEnded, Event

sys.path.insert(0, str(Path(__file__).parents[1]))
from server_process import fake_provider, stats_of

WIDTH, LATENCY = 32, 0.05
NUMBER = {"type": "sampler", "sampler": "uniform", "low": 1, "high": 10**9, "decimals": 0}


def fake(**flags: object) -> AbstractContextManager[str]:
    """Run a fake provider with flags by keyword; the context is its base URL."""
    return fake_provider(
        *(
            word
            for name, value in flags.items()
            for word in (f"--{name.replace('_', '-')}", str(value))
        )
    )


def took(url: str) -> float:
    """Seconds from its first request to its last reply."""
    stats = stats_of(url)
    return float(stats["last_reply_at"] - stats["first_request_at"])


def lane(url: str, label: str = "fake", width: int = WIDTH, **more: Any) -> dict[str, Any]:
    """Return the suite entry of a provider."""
    config = {"apiBaseUrl": url}
    limits = {"maxConcurrency": width, **more}
    return {"id": f"openai:chat:{label}", "label": label, "config": config, "lane": limits}


def llm(name: str, prompt: str, label: str = "fake") -> dict[str, Any]:
    """Return a column filled by a model."""
    return {"name": name, "type": "llm", "provider": label, "prompt": prompt}


def settings(rows: int, *columns: Mapping[str, Any], size: int = 1000) -> dict[str, Any]:
    """Return the settings of a number column and columns derived from it."""
    return {"rows": rows, "groupSize": size, "columns": [{"name": "a", **NUMBER}, *columns]}


def built(
    rows: int,
    columns: Sequence[Mapping[str, Any]],
    lanes: Sequence[Mapping[str, Any]],
    observe: Callable[[Event], None] | None = None,
    size: int = 1000,
) -> int:
    """Build a dataset and return the number of written rows."""

    async def build() -> int:
        with tempfile.TemporaryDirectory() as folder:
            dataset = await trioeval.build_columns(
                settings(rows, *columns, size=size),
                providers=lanes,
                output_dir=Path(folder, "made"),
                observe=observe,
            )
        return dataset.result.written

    return trio.run(build)


def against(what: str, seconds: float, ideal: float, most: float) -> None:
    """Print one line of the report."""
    ratio = seconds / ideal
    print(
        f"{what}: {seconds:.2f} s, {ratio:.3f} × ideal (at most {most})"
        f"{'' if ratio <= most else '  <-- too slow'}",
        flush=True,
    )


def plain() -> None:
    """As many calls of a task without a dataset: what the machine can do now."""

    async def forget(_row: object) -> None:
        pass

    suite = {
        "providers": None,
        "prompts": ["x {{a}}"],
        "tests": [{"vars": {"a": f"{10**8 + place}"}} for place in range(400)],
    }
    with fake(latency=LATENCY) as url:
        ready = trioeval.parse_suite({**suite, "providers": [lane(url)]})
        trio.run(functools.partial(trioeval.run_suite, ready, emit=forget))
        against("400 rows of a task of type prompt_eval", took(url), 400 / WIDTH * LATENCY, 1.25)


def linear() -> None:
    """Two columns one behind the other."""
    with fake(latency=LATENCY) as url:
        assert built(200, [llm("x", "x {{ a }}"), llm("y", "y {{ x }}")], [lane(url)]) == 200
        against("200 rows × 2 columns in a line", took(url), 400 / WIDTH * LATENCY, 1.25)


def fan() -> None:
    """One column, and four that need it."""
    columns = [llm("x", "x {{ a }}"), *(llm(f"y{n}", f"y{n} {{{{ x }}}}") for n in range(4))]
    with fake(latency=LATENCY) as url:
        assert built(200, columns, [lane(url)]) == 200
        against("200 rows, fan-out 1 → 4", took(url), 1000 / WIDTH * LATENCY, 1.2)


def independent() -> None:
    """An open lane beside one of two calls at once."""

    def alone(slow: bool) -> float:  # noqa: FBT001 - the two sides of a comparison
        ends: dict[str, list[float]] = {"fast": [], "slow": []}
        begins: list[float] = []

        def watch(event: Event) -> None:
            begins.append(event.at)
            if isinstance(event, CallEnded):
                ends[event.lane.rpartition("|")[2]].append(event.at)

        with fake(latency=LATENCY) as one, fake(latency=0.2) as two:
            columns = [llm("x", "x {{ a }}", "fast")]
            lanes = [lane(one, "fast", 60)]
            if slow:
                columns.append(llm("y", "y {{ a }}", "slow"))
                lanes.append(lane(two, "slow", 2))
            assert built(60, columns, lanes, watch, 10) == 60
        return max(ends["fast"]) - min(begins)

    by_itself, beside = alone(slow=False), alone(slow=True)
    against(
        f"60 rows of an open lane beside a slow one ({by_itself:.2f} s alone)",
        beside,
        by_itself,
        1.2,
    )


def capped() -> None:
    """A server that serves 8 at once, and a lane of 32 that does not know it."""
    with fake(latency=LATENCY, max_in_flight=8) as url:
        written = built(100, [llm("x", "x {{ a }}")], [lane(url)])
        stats = stats_of(url)
        against(
            f"{written} of 100 rows, a server of 8 behind a lane of 32, {stats['requests'] - 100} × 429",
            took(url),
            100 / 8 * LATENCY,
            1.4,
        )


def unreliable() -> None:
    """A server that refuses or fails one call in five; the first repetition comes within a quarter second."""
    for name in ("throttle_rate", "failure_rate"):
        with fake(latency=0.02, seed=3, **{name: 0.2}) as url:
            written = built(60, [llm("x", "x {{ a }}")], [lane(url, width=8, retryDelay=0.25)])
            seconds = took(url)
            print(
                f"20 % {name.partition('_')[0]}: {written} of 60 rows in {seconds:.2f} s (less than 2)"
                f"{'' if written == 60 and seconds < 2 else '  <-- too few or too slow'}",
                flush=True,
            )


def killed() -> None:
    """A process that is killed at half of its calls."""
    rows = 100
    with fake(latency=LATENCY) as url, tempfile.TemporaryDirectory() as folder:
        task = {"id": "made", "type": "columns", **settings(rows, llm("x", "x {{ a }}"), size=20)}
        Path(folder, "s.json").write_text(
            json.dumps({"providers": [lane(url, width=8)], "tasks": [task]})
        )
        command = [sys.executable, "-m", "trioeval"]
        how = ["--no-cache", "--no-table", "--no-progress"]
        with subprocess.Popen(
            [*command, "s.json", *how], cwd=folder, stderr=subprocess.DEVNULL
        ) as run:
            while stats_of(url)["ok"] < rows // 2:
                assert run.poll() is None
            os.kill(run.pid, signal.SIGKILL)
        while stats_of(url)["in_flight"]:
            pass
        requested = stats_of(url)["requests"]
        with closing(sqlite3.connect(Path(folder, ".trioeval", "results.db"))) as store:
            ((known,),) = store.execute("SELECT count(*) FROM cell").fetchall()
        done = subprocess.run(
            [*command, "resume", *how], cwd=folder, stderr=subprocess.DEVNULL, check=False
        )
        total = stats_of(url)["requests"]
    print(
        f"killed at half of {rows} calls: {total} requests in all; {requested} before the kill, {known} of "
        f"them in the store, {total - requested} after it (exit {done.returncode})"
        f"{'' if total == requested + rows - known else '  <-- repeated stored calls'}",
        flush=True,
    )


CASES = {
    case.__name__: case for case in (plain, linear, fan, independent, capped, unreliable, killed)
}


def main() -> None:
    """Print the figures."""
    for name in sys.argv[1:] or CASES:
        CASES[name]()


if __name__ == "__main__":
    main()
