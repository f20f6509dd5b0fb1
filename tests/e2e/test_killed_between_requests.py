"""Runs that are killed in the very step in which a server reads a request (law RESUME).

A request that depends on a reply is only sent when that reply is durable: wherever the kill happens, the
resumed run requests nothing again from which a later request was made. The providers answer at once, so
only that order gives the store time to write.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from held_server import HeldServer, held_server
from test_command_line import ENV, trioeval, write

pytestmark = pytest.mark.slow

TURNS = 8
COMMAND = ("s.json", "--no-cache", "--no-table", "--no-progress")


@pytest.fixture(name="server")
def fixture_server() -> Iterator[HeldServer]:
    with held_server() as server:
        yield server


def model(server: HeldServer, name: str, **config: Any) -> dict[str, Any]:
    config = {"apiBaseUrl": server.url, "apiKey": "k", **config}
    return {"id": f"openai:chat:{name}", "config": config}


def killed_at(request: int, folder: Path, server: HeldServer, beginning: str = "") -> list[str]:
    """All requests of a run whose process is killed at a request, see `kill_at`."""
    command = [sys.executable, "-m", "trioeval", *COMMAND, "-j", "1"]
    with subprocess.Popen(
        command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        server.kill_at(request, process.pid, beginning)
    assert process.returncode == -9
    return server.prompts[:]


def resumed(folder: Path, before: list[str], server: HeldServer) -> list[str]:
    """All requests of the continued run."""
    done = trioeval(*COMMAND, "--resume", "-o", "o.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    return server.prompts[len(before) :]


@pytest.mark.parametrize("request_number", [2, 6])
def test_no_turn_whose_reply_was_used_is_requested_again(
    tmp_path: Path, server: HeldServer, request_number: int
) -> None:
    """Only the turn in flight is requested again, and the texts are the same."""
    turns = "{% for turn in _conversation %}{{ turn.output }} {% endfor %}{{ q }}"
    suite = {
        "providers": [model(server, "m")],
        "prompts": [turns],
        "tests": [{"vars": {"q": f"q{number}"}} for number in range(TURNS)],
    }
    write(tmp_path / "s.json", suite)
    before = killed_at(request_number, tmp_path, server)
    assert len(before) == request_number
    again = resumed(tmp_path, before, server)
    assert again[:1] == before[-1:]
    assert len({*before, *again}) == len(before) + len(again) - 1 == TURNS
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert rows[-1]["prompt"]["raw"] == again[-1]


@pytest.mark.parametrize("request_number", [1, 3])
def test_no_reply_that_a_judge_has_received_is_requested_again(
    tmp_path: Path, server: HeldServer, request_number: int
) -> None:
    """The request to the judge, at which the kill happens, was made from a durable reply."""
    rubric = {
        "type": "llm-rubric",
        "value": "is good",
        "provider": model(server, "judge"),
        "rubricPrompt": "judge {{output}}",
    }
    suite = {
        "providers": [model(server, "m")],
        "prompts": ['{"pass": true, "score": 1, "reason": "{{word}}"}'],
        "tests": [{"vars": {"word": f"w{number}"}, "assert": [rubric]} for number in range(3)],
    }
    write(tmp_path / "s.json", suite)
    before = killed_at(request_number, tmp_path, server, "judge")
    requests = Counter([*before, *resumed(tmp_path, before, server)])
    used = [prompt for prompt in requests if f"judge <{prompt}>" in before]
    assert used
    assert [prompt for prompt in used if requests[prompt] > 1] == []


@pytest.mark.parametrize("request_number", [2, 5, 9])
def test_no_reply_of_a_conversation_that_was_used_is_requested_again(
    tmp_path: Path, server: HeldServer, request_number: int
) -> None:
    """Of two conversations of six calls, only calls in flight are requested again, with the same texts."""
    config = {
        "userProvider": model(server, "user"),
        "maxTurns": 3,
        "initialMessages": [{"role": "assistant", "content": "w{{n}}"}],
    }
    suite = {
        "providers": [model(server, "m")],
        "prompts": ["Be kind."],
        "defaultTest": {"provider": {"id": "promptfoo:simulated-user", "config": config}},
        "tests": [{"vars": {"n": number, "instructions": "x"}} for number in range(2)],
    }
    write(tmp_path / "s.json", suite)
    before = killed_at(request_number, tmp_path, server)
    assert len(before) == request_number
    again = resumed(tmp_path, before, server)
    depths = {f"{'<' * depth}w{number}{'>' * depth}" for number in range(2) for depth in range(6)}
    requests = Counter([*before, *again])
    assert requests.keys() == depths
    assert [prompt for prompt in requests if f"<{prompt}>" in before and requests[prompt] > 1] == []
    assert requests[before[-1]] == 2
    assert requests.total() <= len(depths) + 2  # at most one call of each conversation
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    messages = rows[1]["response"]["metadata"]["messages"]
    assert [one["content"] for one in messages] == [
        f"{'<' * depth}w1{'>' * depth}" for depth in range(7)
    ]
    assert rows[1]["response"]["tokenUsage"]["total"] == 30
