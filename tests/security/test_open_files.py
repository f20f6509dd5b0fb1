"""Runs that need more open files than allowed: slowed down, and complete at the end."""

import json
import resource
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from loopback import Answer, Seen, as_json, serve

from trioeval.open_files import has_room, lowest_free

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.attack("open files"), pytest.mark.slow, pytest.mark.network]

REPLY = {
    "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}

MANY = """
import json, os, sys
import trio
from trioeval.errors import ProviderError
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpRequest

async def main():
    errors = []
    async def send(client):
        try:
            await client.send(HttpRequest(sys.argv[1], {}, b"{}"))
        except ProviderError as error:
            errors.append([error.fault.value, error.kind, str(error)])
    async with open_http() as client, trio.open_nursery() as nursery:
        for _ in range(120):
            nursery.start_soon(send, client)
        while len(errors) + os.stat("held").st_size < 120:  # each is refused, or held by the server
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    print(json.dumps(errors))

trio.run(main)
"""


def answer(_seen: Seen) -> Answer:
    return as_json(REPLY)


async def run_with(files: int, folder: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    """Run Python with a maximum number of open files."""
    with trio.fail_after(60):
        return await trio.run_process(
            [sys.executable, *words],
            cwd=folder,
            check=False,
            capture_stdout=True,
            capture_stderr=True,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (files, files)),
        )


def suite_of(folder: Path, provider: Any, rows: int, width: int) -> None:
    (folder / "s.json").write_text(
        json.dumps(
            {
                "providers": [provider],
                "prompts": ["Say hi to {{i}}"],
                "evaluateOptions": {"maxConcurrency": width},
                "tests": [
                    {"vars": {"i": i}, "assert": [{"type": "contains", "value": "hi"}]}
                    for i in range(rows)
                ],
            }
        )
    )


def test_calls_beyond_the_file_limit_are_refused_by_the_machine_and_repeated(
    tmp_path: Path,
) -> None:
    """Of 120 concurrent calls every row passes, and the database is written all the time."""

    async def main() -> "subprocess.CompletedProcess[bytes]":
        async with serve(answer) as server:
            config = {"apiBaseUrl": f"{server.url}/v1", "apiKey": "sk-1234567890"}
            suite_of(tmp_path, {"id": "openai:chat:m", "config": config}, 120, 120)
            words = ("-m", "trioeval", "run", "s.json", "--no-progress", "--no-table")
            return await run_with(64, tmp_path, *words)

    done = trio.run(main)
    stderr = done.stderr.decode()
    assert done.returncode == 0, stderr
    assert "120 rows" in stderr
    assert "120 passed" in stderr


def test_programs_beyond_the_file_limit_are_refused_by_the_machine_and_restarted(
    tmp_path: Path,
) -> None:
    """Each needs several pipes."""
    suite_of(tmp_path, "exec:echo hi", 30, 30)
    words = ("-m", "trioeval", "run", "s.json", "--no-progress", "--no-table", "-o", "rows.jsonl")
    done = trio.run(run_with, 48, tmp_path, *words)
    assert done.returncode == 0, (tmp_path / "rows.jsonl").read_text()
    assert "30 passed" in done.stderr.decode()


def test_a_refusal_of_the_machine_names_its_cause(tmp_path: Path) -> None:
    """The message has the limit and a remedy; existing connections continue."""
    (tmp_path / "held").touch()

    def hold(_seen: Seen) -> None:
        with (tmp_path / "held").open("a") as held:
            held.write(".")

    async def main() -> "subprocess.CompletedProcess[bytes]":
        async with serve(hold) as server:
            return await run_with(48, tmp_path, "-c", MANY, server.url)

    done = trio.run(main)
    errors = json.loads(done.stdout)
    assert 70 < len(errors) < 120
    for fault, kind, message in errors:
        assert (fault, kind) == ("rate_limited", "connection")
        assert "too many open files (this process may have 48): raise the limit with" in message
        assert "lower maxConcurrency" in message


def test_files_of_a_run_have_reserved_room() -> None:
    """The lowest free number shows the number of files in use."""
    free = lowest_free()
    assert free is not None
    with open("/dev/null") as first:  # noqa: PTH123
        assert first.fileno() == free
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert has_room(free)
    assert not has_room(most - 1)
