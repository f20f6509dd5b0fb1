"""Compare evaluation tools on loopback servers: `python docs/comparison/compare.py TOOL [SCENARIO ...]`.

TOOL is `trioeval`, `promptfoo`, `inspect` or `pydantic-evals`. `--python` names an interpreter that has the
two Python tools, `--promptfoo` the program. Each scenario starts servers in processes of their own, runs the
tool on them, and prints what the servers' logs show.

    rate     200 prompts, a server of 1200 requests/min with a burst of 20, 50 ms a reply
    fair     30 prompts for each of two models; one server serves 120 requests/min, the other has no limit
    failing  45 prompts, of which 5 always get HTTP 500, 4 at a time, 50 ms a reply
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Process, SimpleQueue
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LATENCY = 0.05
PATIENCE = 240
"""Seconds until a tool that does not end is killed."""


class FailingHandler(BaseHTTPRequestHandler):
    """Reply to every completion after 50 ms; a prompt that contains "fail" always gets HTTP 500."""

    protocol_version = "HTTP/1.1"
    log = Path()

    def do_POST(self) -> None:
        """Reply to one request and log it."""
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
        line = {"utc_at": time.time(), "status": status, "model": body["model"]}
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


@contextmanager
def limited_server(log: Path, *flags: str) -> Iterator[str]:
    """Serve `trioeval fake-provider` with flags and yield its base URL."""
    command = [sys.executable, "-m", "trioeval", "fake-provider", "--port", "0"]
    # Replies do not say what is left of the rate: refusals carry `Retry-After`, which every tool reads.
    command += ["--latency", str(LATENCY), "--log", str(log), "--hints", "retry_after", *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a server's log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run_tool(arguments: argparse.Namespace, job: dict[str, Any], folder: Path) -> str:
    """Run one tool on a job: models with base URLs, prompts, concurrency and rates; return how it ended."""
    file = folder / "job.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    if arguments.tool == "trioeval":
        command = [sys.executable, str(HERE / "with_trioeval.py"), str(file)]
    elif arguments.tool == "promptfoo":
        command = [sys.executable, str(HERE / "with_promptfoo.py"), str(file), arguments.promptfoo]
    else:
        script = f"with_{arguments.tool.replace('-', '_')}.py"
        command = [arguments.python, str(HERE / script), str(file)]
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"OPENAI_API_KEY": "none"},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not finished after {PATIENCE} s"
    return f"exit {done.returncode}"


def measure_rate(arguments: argparse.Namespace, folder: Path) -> str:
    """Count the refusals of a server with a known rate."""
    log = folder / "log.jsonl"
    with limited_server(log, "--rpm", "1200", "--burst", "20") as url:
        prompts = [f"prompt {number}" for number in range(200)]
        models = [{"model": "m", "url": url, "rpm": 1200, "burst": 20}]
        job = {"models": models, "prompts": prompts, "concurrency": 20}
        ended = run_tool(arguments, job, folder)
    lines = read_log(log)
    done = [line["utc_at"] for line in lines if line["status"] == 200]
    refused = sum(line["status"] == 429 for line in lines)
    first = min(line["utc_at"] for line in lines)
    return f"{len(done)} replies in {max(done) - first:.1f} s (ideal 9.0 s), {refused} × HTTP 429, {ended}"


def measure_fairness(arguments: argparse.Namespace, folder: Path) -> str:
    """Measure how long an unlimited model takes beside a limited one."""
    slow, fast = folder / "slow.jsonl", folder / "fast.jsonl"
    with ExitStack() as stack:
        slow_url = stack.enter_context(limited_server(slow, "--rpm", "120", "--burst", "1"))
        fast_url = stack.enter_context(limited_server(fast))
        models = [
            {"model": "slow", "url": slow_url, "rpm": 120, "burst": 1},
            {"model": "fast", "url": fast_url},
        ]
        prompts = [f"prompt {number}" for number in range(30)]
        job = {"models": models, "prompts": prompts, "concurrency": 4}
        ended = run_tool(arguments, job, folder)
    fast_lines, slow_lines = read_log(fast), read_log(slow)
    first = min(line["utc_at"] for line in fast_lines + slow_lines)
    fast_ended = max(line["utc_at"] for line in fast_lines if line["status"] == 200) - first
    all_ended = max(line["utc_at"] for line in slow_lines if line["status"] == 200) - first
    done = sum(line["status"] == 200 for line in slow_lines)
    refused = sum(line["status"] == 429 for line in slow_lines)
    return (
        f"fast model done after {fast_ended:.1f} s; slow model: {done} replies after {all_ended:.1f} s,"
        f" {refused} × HTTP 429, {ended}"
    )


def measure_failures(arguments: argparse.Namespace, folder: Path) -> str:
    """Measure how long prompts that always fail delay the others."""
    log = folder / "log.jsonl"
    with failing_server(log) as url:
        prompts = [f"fail {number}" for number in range(5)] + [f"good {n}" for n in range(40)]
        models = [{"model": "m", "url": url}]
        job = {"models": models, "prompts": prompts, "concurrency": 4}
        began = time.monotonic()
        ended = run_tool(arguments, job, folder)
        took = time.monotonic() - began
    lines = read_log(log)
    first = min(line["utc_at"] for line in lines)
    good = [line["utc_at"] - first for line in lines if line["status"] == 200]
    failed = sum(line["status"] == 500 for line in lines)
    return (
        f"{len(good)} good replies after {max(good, default=0.0):.1f} s, {failed} failed calls,"
        f" whole run {took:.1f} s, {ended}"
    )


SCENARIOS = {"rate": measure_rate, "fair": measure_fairness, "failing": measure_failures}


def main(given: Sequence[str] | None = None) -> None:
    """Run the scenarios and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    tools = ["trioeval", "promptfoo", "inspect", "pydantic-evals"]
    parser.add_argument("tool", choices=tools)
    parser.add_argument("scenario", nargs="*", default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--promptfoo", default="promptfoo")
    arguments = parser.parse_args(given)
    for name in arguments.scenario:
        with tempfile.TemporaryDirectory() as folder:
            print(
                f"{arguments.tool:<15} {name:<8} {SCENARIOS[name](arguments, Path(folder))}",
                flush=True,
            )


if __name__ == "__main__":
    main()
