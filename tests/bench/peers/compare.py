"""Run trioeval and three other evaluation tools on the same loopback servers, and print one table a scenario.

    python tests/bench/peers/compare.py FOLDER --install
    python tests/bench/peers/compare.py FOLDER [--tools TOOL ...] [--scenarios SCENARIO ...] [--rounds N]
           [--many N]

`--install` installs promptfoo with `npm`, and Inspect AI and pydantic-evals with `pip`, into FOLDER, in the
versions that `requirements.txt` and `PROMPTFOO` name. trioeval is the one of the interpreter that runs this
script. Servers and tools are separate processes. Every tool checks that each reply contains "ok".

    plain    200 prompts, 20 at a time, 50 ms a reply, no limits; then 5000 (`--many`) without latency,
             which show the processor time of a further prompt and the growth of memory
    rate     200 prompts, 20 at a time, a server of 1200 requests/min with a burst of 20, 50 ms a reply
    fair     30 prompts for each of two models, 4 at a time each; one server serves 120 requests/min, the
             other has no limit
    failing  45 prompts, of which 5 always get HTTP 500, 4 at a time, 50 ms a reply

The tools take turns, round by round, and a figure is the median of its rounds. "seconds" are from the first
request to the last good reply in the server's log; "whole run" is the time of the tool's process. Processor
time is that of the process and its children, memory is the peak of the largest of them.
"""

import argparse
import functools
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from multiprocessing import Process, SimpleQueue
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parents[2]))
from server_process import fake_provider

HERE = Path(__file__).parent
PROMPTFOO = "promptfoo@0.123.1"
TOOLS = ("trioeval", "promptfoo", "inspect", "pydantic-evals")
LATENCY = 0.05
PATIENCE = 240
"""Seconds until a tool that does not end is killed."""
FEW = 200

Figures = Mapping[str, float]
"""The columns of a table and the values of one round; NaN is a value that does not exist."""


class FailingHandler(BaseHTTPRequestHandler):
    """Reply to every completion after 50 ms; a prompt that contains "fail" always gets HTTP 500."""

    protocol_version = "HTTP/1.1"
    log = Path()

    def do_POST(self) -> None:
        """Reply to one request and log it."""
        began = time.time()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = json.dumps(body["messages"])
        time.sleep(LATENCY)
        status = 500 if "fail" in prompt else 200
        message = {"role": "assistant", "content": "ok"}
        reply = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        data = json.dumps(reply if status == 200 else {"error": {"message": "broken"}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        utc_at = time.time()
        line = {"utc_at": utc_at, "seconds": utc_at - began, "status": status}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


def _serve_failures(log: Path, ports: "SimpleQueue[int]") -> None:
    FailingHandler.log = log
    server = ThreadingHTTPServer(("127.0.0.1", 0), FailingHandler)
    ports.put(server.server_port)
    server.serve_forever()


@contextmanager
def failing_server(log: Path) -> Iterator[str]:
    """Serve `FailingHandler` and yield its base URL."""
    ports: SimpleQueue[int] = SimpleQueue()
    process = Process(target=_serve_failures, args=(log, ports))
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get()}/v1"
    finally:
        process.terminate()
        process.join()


def provider(log: Path, *flags: str, latency: float = LATENCY) -> AbstractContextManager[str]:
    """Serve `trioeval fake-provider` with flags and yield its base URL."""
    # Replies do not say what is left of the rate: refusals carry `Retry-After`, which every tool reads.
    common = ["--latency", str(latency), "--log", str(log), "--hints", "retry_after"]
    return fake_provider(*common, "--reply", "ok", *flags)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a server's log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@attrs.frozen
class Usage:
    """The cost of one process of a tool."""

    seconds: float
    cpu: float
    mebibytes: float
    ended: bool
    """It was not killed."""


def command_of(tool: str, tools: Path, file: Path) -> list[str]:
    """Return the command that runs a tool on a job's file."""
    script = str(HERE / f"with_{tool.replace('-', '_')}.py")
    if tool == "trioeval":
        return [sys.executable, script, str(file)]
    if tool == "promptfoo":
        return [sys.executable, script, str(file), str(tools / "node_modules/.bin/promptfoo")]
    return [str(tools / "python/bin/python"), script, str(file)]


def run_tool(tool: str, tools: Path, job: dict[str, Any], folder: Path) -> Usage:
    """Run one tool on a job: models with base URLs, prompts, concurrency and rates."""
    file = folder / "job.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command_of(tool, tools, file),
            cwd=folder,
            env=os.environ | {"OPENAI_API_KEY": "none"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        killer = threading.Timer(PATIENCE, os.killpg, [process.pid, signal.SIGKILL])
        killer.start()
        # Unlike the usage of all children, that of `wait4` leaves out the servers.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Usage(seconds, cpu, usage.ru_maxrss / 1024, process.returncode != -signal.SIGKILL)


def job_of(url: str, count: int, **rate: int) -> dict[str, Any]:
    """Return a job of one model, 20 at a time."""
    prompts = [f"prompt {number}" for number in range(count)]
    return {"models": [{"model": "m", "url": url, **rate}], "prompts": prompts, "concurrency": 20}


def first_arrival(lines: Sequence[Mapping[str, Any]]) -> float:
    """Return the time at which the first request of a server's log arrived."""
    return min(float(line["utc_at"] - line["seconds"]) for line in lines)


def reply_figures(log: Path) -> dict[str, float]:
    """Return the number of good replies, the seconds until the last one, and the refusals of a server."""
    lines = read_log(log)
    first = first_arrival(lines)
    good = [line["utc_at"] for line in lines if line["status"] == 200]
    return {
        "replies": len(good),
        "seconds": max(good, default=math.nan) - first,
        "status 429": sum(line["status"] == 429 for line in lines),
    }


def measure_plain(tool: str, tools: Path, folder: Path, many: int) -> Figures:
    """Measure 200 prompts, and then more of them without latency, on a server without limits."""
    logs, usages = [], []
    for count, latency in ((FEW, LATENCY), (many, 0.0)):
        inner = folder / str(count)
        inner.mkdir()
        logs.append(inner / "log.jsonl")
        with provider(logs[-1], latency=latency) as url:
            usages.append(run_tool(tool, tools, job_of(url, count), inner))
    small, large = usages
    return reply_figures(logs[0]) | {
        "whole run": small.seconds,
        "CPU s": small.cpu,
        "peak MiB": small.mebibytes,
        "CPU ms a further prompt": (large.cpu - small.cpu) / (many - FEW) * 1000,
        f"replies of {many}": reply_figures(logs[1])["replies"],
        f"peak MiB, {many} prompts": large.mebibytes,
    }


def measure_rate(tool: str, tools: Path, folder: Path) -> Figures:
    """Count the refusals of a server with a known rate."""
    log = folder / "log.jsonl"
    with provider(log, "--rpm", "1200", "--burst", "20") as url:
        run_tool(tool, tools, job_of(url, FEW, rpm=1200, burst=20), folder)
    return reply_figures(log)


def measure_fairness(tool: str, tools: Path, folder: Path) -> Figures:
    """Measure how long an unlimited model takes beside a limited one."""
    slow, fast = folder / "slow.jsonl", folder / "fast.jsonl"
    with ExitStack() as stack:
        slow_url = stack.enter_context(provider(slow, "--rpm", "120", "--burst", "1"))
        fast_url = stack.enter_context(provider(fast))
        models = [
            {"model": "slow", "url": slow_url, "rpm": 120, "burst": 1},
            {"model": "fast", "url": fast_url},
        ]
        prompts = [f"prompt {number}" for number in range(30)]
        job = {"models": models, "prompts": prompts, "concurrency": 4}
        run_tool(tool, tools, job, folder)
    fast_lines, slow_lines = read_log(fast), read_log(slow)
    first = first_arrival(fast_lines + slow_lines)
    fast_ended = max(line["utc_at"] for line in fast_lines if line["status"] == 200)
    slow_figures = reply_figures(slow)
    return {
        "fast model done after, s": fast_ended - first,
        "replies of the slow model": slow_figures["replies"],
        "status 429": slow_figures["status 429"],
    }


def measure_failures(tool: str, tools: Path, folder: Path) -> Figures:
    """Measure how long prompts that always fail delay the others."""
    log = folder / "log.jsonl"
    with failing_server(log) as url:
        prompts = [f"fail {number}" for number in range(5)] + [f"good {n}" for n in range(40)]
        job = {"models": [{"model": "m", "url": url}], "prompts": prompts, "concurrency": 4}
        usage = run_tool(tool, tools, job, folder)
    figures = reply_figures(log)
    return {
        "good replies": figures["replies"],
        "the last one after, s": figures["seconds"],
        "failed calls": sum(line["status"] == 500 for line in read_log(log)),
        "whole run": usage.seconds if usage.ended else math.nan,
    }


Scenario = Callable[[str, Path, Path], Figures]

SCENARIOS: dict[str, Scenario] = {
    "rate": measure_rate,
    "fair": measure_fairness,
    "failing": measure_failures,
}


def text_of(values: Sequence[float]) -> str:
    """Return the median of a figure's rounds as text; "none" if a round has no value."""
    if any(map(math.isnan, values)):
        return "none"
    median = statistics.median(values)
    return f"{median:.0f}" if median == int(median) or median >= 100 else f"{median:.2f}"


def table_of(rounds: Mapping[str, Sequence[Figures]]) -> str:
    """Return the figures of one scenario as a Markdown table, one row a tool."""
    columns = [*next(iter(rounds.values()))[0]]
    lines = [["tool", *columns], ["---"] * (len(columns) + 1)]
    for tool, figures in rounds.items():
        lines.append([tool, *(text_of([one[column] for one in figures]) for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """Return a line that describes the machine and the versions."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    today = datetime.now(UTC).date().isoformat()
    load = os.getloadavg()[0]
    return (
        f"{today}, {len(names)} cores {names[0]}, load {load:.1f} at the start,"
        f" Python {platform.python_version()}, trioeval {version('trioeval')}"
    )


def install(tools: Path) -> None:
    """Install the other tools into a folder."""
    tools.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(tools / "python")], check=True)
    pip = [str(tools / "python/bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", str(HERE / "requirements.txt")], check=True)
    npm = [
        "npm",
        "install",
        "--prefix",
        str(tools),
        "--no-audit",
        "--no-fund",
        "--engine-strict",
        PROMPTFOO,
    ]
    subprocess.run(npm, check=True)


def main(given: Sequence[str] | None = None) -> None:
    """Install the tools, or run the scenarios and print a table for each."""
    names = ["plain", *SCENARIOS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the other tools")
    parser.add_argument("--install", action="store_true", help="install them and end")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--scenarios", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=5000)
    arguments = parser.parse_args(given)
    tools = arguments.folder.absolute()
    if arguments.install:
        install(tools)
        return
    print(machine(), flush=True)
    plain = functools.partial(measure_plain, many=arguments.many)
    scenarios: dict[str, Scenario] = {"plain": plain, **SCENARIOS}
    for name in arguments.scenarios:
        rounds: dict[str, list[Figures]] = {tool: [] for tool in arguments.tools}
        for _ in range(arguments.rounds):
            for tool in arguments.tools:
                with tempfile.TemporaryDirectory() as folder:
                    figures = scenarios[name](tool, tools, Path(folder))
                rounds[tool].append(figures)
                print(f"{name} {tool} {json.dumps(figures)}", file=sys.stderr, flush=True)
        print(f"\n{name}, medians of {arguments.rounds}\n\n{table_of(rounds)}", flush=True)


if __name__ == "__main__":
    main()
