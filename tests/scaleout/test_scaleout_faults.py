"""Faults of a cluster: each is one clear error, nothing is paid for it, and nothing recorded is lost."""

import base64
import functools
import hashlib
import json
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from clusters import load_moved
from distributed import Client, LocalCluster
from remote_cluster import RemoteCluster, remote_scheduler, remote_worker, wiretapped
from scaleout_command import ROWS, check_every_row_was_paid, command, rows_of, wait_served
from server_process import fake_provider, stats_of

from trioeval.cli import run_command_line
from trioeval.errors import UsageError
from trioeval.evaluation.journal import CallKey, RecordedReply
from trioeval.providers import Reply
from trioeval.run import prepare
from trioeval.scaleout import dask_cluster
from trioeval.scaleout.address import SchedulerAddress
from trioeval.scaleout.dask_cluster import open_cluster
from trioeval.scaleout.messages import Message, Shard
from trioeval.scaleout.worker import SessionOptions

pytestmark = [pytest.mark.slow, pytest.mark.network]

KEY = "sk-scaleout-0123456789abcdef"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteCluster]:
    with remote_scheduler(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "evals"
    found.mkdir()
    monkeypatch.chdir(found)
    return found


def suite(url: str, **more: Any) -> str:
    provider = {
        "id": "openai:chat:m",
        "config": {"apiBaseUrl": url, "apiKeyEnvar": "SCALEOUT_FAULTS_KEY"},
        "lane": {"maxConcurrency": 8, "retryDelay": 0.02},
    }
    tests = [{"vars": {"word": f"word {number}"}} for number in range(ROWS)]
    return json.dumps({"providers": [provider], "prompts": ["say {{word}}"], "tests": tests} | more)


def test_all_differences_of_all_workers_are_named_at_once_and_nothing_is_paid(
    cluster: RemoteCluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another version, a missing key, another value of a variable, and a file that is never sent."""
    others = {"trioeval": "0.0.1", "distributed": "2020.1"}
    with (
        fake_provider() as url,
        remote_worker(cluster, "old", versions=others, environ={"SCALEOUT_TEAM": "blue"}),
        remote_worker(cluster, "keyless", hidden=[folder]),
    ):
        monkeypatch.setenv("SCALEOUT_FAULTS_KEY", KEY)
        monkeypatch.setenv("SCALEOUT_TEAM", "red")
        (folder / "client.pem").write_text("of the machine")
        prompts, tests = (
            ["{{env.SCALEOUT_TEAM}} {{word}}"],
            [{"vars": {"word": "file://client.pem"}}],
        )
        (folder / "s.json").write_text(suite(url, prompts=prompts, tests=tests))
        code = run_command_line(["s.json", "--on", cluster.address, "--no-progress"])
        text = capsys.readouterr().err
        paid = stats_of(url)["requests"]
    assert code == 2
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "--on: the workers cannot run this suite:"
    said = sorted(line.split(" ", 2)[2] for line in lines[1:] if line.startswith("worker "))
    assert next(one for one in said if "trioeval" in one).startswith("has trioeval 0.0.1, the run ")
    assert next(one for one in said if "distributed" in one).startswith("has distributed 2020.1, ")
    assert said.count("lacks the environment variable SCALEOUT_FAULTS_KEY, which the run has") == 2
    assert "has another value of the environment variable SCALEOUT_TEAM than the run" in said
    assert "lacks the environment variable SCALEOUT_TEAM, which the run has" in said
    assert f"cannot load the suite: {folder / 'client.pem'} cannot be read: " in "\n".join(said)
    assert "files of keys are not sent: put one on the worker, at the same path" in text
    assert len(said) == 7
    assert KEY not in text
    assert paid == 0
    assert run_command_line(["runs"]) == 0
    assert capsys.readouterr().err.strip() == "no runs"


def test_a_key_in_a_file_is_not_sent(
    cluster: RemoteCluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCALEOUT_FAULTS_KEY", KEY)
    (folder / "s.json").write_text(suite("http://127.0.0.1:9", description=f"with {KEY}"))
    with remote_worker(
        cluster, "one", hidden=[folder], environ={"SCALEOUT_FAULTS_KEY": "sk-of-the-worker-01"}
    ):
        code = run_command_line(["s.json", "--on", cluster.address, "--no-progress"])
    text = capsys.readouterr().err
    assert code == 2
    assert f"{folder / 's.json'} contains a key, and keys are not sent" in text
    assert KEY not in text


def test_nothing_that_passes_the_scheduler_contains_a_key(
    cluster: RemoteCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the plugin, files, shards, rows or events; the key comes from an environment file.

    Every prompt, and so every reply, contains it.
    """
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__COMPRESSION", "False")
    (folder / "run.env").write_text(f"SCALEOUT_FAULTS_KEY={KEY}\n")
    environ = {"SCALEOUT_FAULTS_KEY": KEY}
    with (
        fake_provider("--failure-rate", "0.2", "--seed", "3") as url,
        wiretapped(cluster) as (tapped, captured),
        remote_worker(tapped, "one", hidden=[folder], environ=environ),
    ):
        named = "{{env.SCALEOUT_FAULTS_KEY | length}} {{env.SCALEOUT_FAULTS_KEY}}"
        prompts = [f"{{{{word}}}} of {named} {'x' * 20_000}"]
        (folder / "s.json").write_text(suite(url, prompts=prompts))
        words = ["s.json", "--env-file", "run.env", "--on", tapped.address, "-o", "o.jsonl"]
        with command(folder, *words) as process:
            _, text = process.communicate(timeout=110)
        assert process.returncode in (0, 100), text  # a row may fail as often as it may be tried
        with Client(cluster.address, set_as_default=False) as client:
            events = str(client.get_events())
    assert len(rows_of(folder)) == ROWS
    assert b"word 119 of 28 [hidden] xxx" in captured, "prompts and replies pass, readably"
    assert b"SCALEOUT_FAULTS_KEY" in captured, "names pass"
    key = KEY.encode()
    for form in (key, base64.b64encode(key), hashlib.sha256(key).digest(), key[:12]):
        assert form not in captured
    assert KEY not in events


def test_an_unreachable_scheduler_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCALEOUT_FAULTS_KEY", KEY)
    monkeypatch.setattr(dask_cluster, "REACHED_WITHIN", 0.5)
    (folder / "s.json").write_text(suite("http://127.0.0.1:9"))
    with socket.socket() as bound:  # no program listens there
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert run_command_line(["s.json", "--on", f"dask://{address}", "--no-progress"]) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"--on: no Dask scheduler responds at tcp://{address}: ")
    assert len(text.splitlines()) == 1
    assert run_command_line(["runs"]) == 0
    assert capsys.readouterr().err.strip() == "no runs"


@pytest.mark.timeout(300)  # programs start
def test_a_worker_that_joins_later_gets_the_files_and_takes_the_place_of_a_lost_one(
    cluster: RemoteCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_FAULTS_KEY", KEY)
    with fake_provider("--latency", "0.2") as url:
        (folder / "prompt.txt").write_text("say {{word}}")
        (folder / "s.json").write_text(suite(url, prompts=["file://prompt.txt"]))
        with (
            remote_worker(cluster, "one", hidden=[folder]) as first,
            command(folder, "s.json", "--on", cluster.address, "-o", "o.jsonl") as process,
        ):
            wait_served(url, process, 20)
            first.kill()
            with remote_worker(cluster, "two", hidden=[folder]):
                _, text = process.communicate(timeout=200)
    assert process.returncode == 0, text
    assert "is not used" not in text
    assert [row["response"]["output"] for row in rows_of(folder)] == [
        f"say word {number}" for number in range(ROWS)
    ]


@attrs.define
class Ends:
    """A receiver of the ends of shards."""

    errors: dict[int, str] = attrs.field(factory=dict)
    changed: trio.Event = attrs.field(factory=trio.Event)

    def on_worker(self, worker: str) -> None:
        """Do nothing."""

    def on_loss(self, worker: str) -> None:
        """Do nothing."""

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Do nothing."""

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        self.errors[number] = str(error)
        self.changed.set()


def test_a_suite_or_a_shard_that_cannot_be_pickled_is_one_error(
    cluster: RemoteCluster, folder: Path
) -> None:
    """The suite before the start; the rows of a shard wait again."""
    (folder / "s.json").write_text(json.dumps({"providers": ["echo"], "prompts": ["a"]}))
    prepared = prepare("s.json")
    address = SchedulerAddress(cluster.address)
    lock: Any = threading.Lock()

    async def refused() -> None:
        async with open_cluster(
            address,
            prepared,
            functools.partial(load_moved, lock),
            options=SessionOptions(),
            warn=print,
        ):
            raise AssertionError

    with pytest.raises(UsageError, match=r"--on: the suite cannot be sent to workers: .*lock"):
        trio.run(refused)

    async def submitted() -> Ends:
        load = functools.partial(load_moved, str(folder / "s.json"))
        async with open_cluster(
            address, prepared, load, options=SessionOptions(), warn=print
        ) as opened:
            ends = Ends()
            opened.connect(ends)
            key = CallKey(None, 0, "provider", bytes(16))
            reply = RecordedReply(Reply(output=lock), 1.0, cached=False)
            opened.submit("any", Shard(number=7, task=None, rows=(0,), replies=((key, reply),)))
            with trio.fail_after(30):
                await ends.changed.wait()
            return ends

    with remote_worker(cluster, "one"):
        ends = trio.run(submitted)
    assert "pickle" in ends.errors[7]


@pytest.mark.timeout(300)  # programs start, and a lost scheduler is noticed late
def test_a_scheduler_that_is_lost_leaves_a_run_that_is_resumed_without_a_second_payment(
    cluster: RemoteCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law RESUME; the message says what happened, and how to continue."""
    monkeypatch.setenv("SCALEOUT_FAULTS_KEY", KEY)
    log = folder / "log.jsonl"
    with (
        fake_provider("--latency", "0.2", "--log", str(log)) as url,
        remote_worker(cluster, "one"),
    ):
        (folder / "s.json").write_text(suite(url))
        with command(folder, "s.json", "--on", cluster.address) as process:
            wait_served(url, process, 30)
            cluster.process.send_signal(signal.SIGKILL)
            _, text = process.communicate(timeout=200)
        assert process.returncode == 100, text
        assert "the scheduler is lost" in text
        assert "trioeval resume" in text
        assert "Traceback" not in text
        assert run_command_line(["resume", "--no-cache", "-o", "o.jsonl"]) == 0
    check_every_row_was_paid(folder, log, repeated=2 * 8)


@pytest.mark.parametrize("words", [["--max-requests", "40"], ["--max-tokens", "900"]])
def test_a_budget_holds_over_all_workers_and_is_used_up(
    two_workers: LocalCluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    """Law BUDGET: as many rows run as on one machine, and a continuation runs only the others."""
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "k")
    log = folder / "log.jsonl"
    on = ("--on", two_workers.scheduler_address)

    def run(*more: str) -> tuple[int, str]:
        flags = ["--no-cache", "--no-progress", "--no-table", "-o", "o.jsonl"]
        return run_command_line([*more, *flags]), capsys.readouterr().err

    with fake_provider("--latency", "0.01", "--log", str(log)) as url:
        found = json.loads(suite(url))
        (entry,) = found["providers"]
        entry["config"] |= {"apiKeyEnvar": "SCALEOUT_TEST_KEY", "max_tokens": 20}
        lanes = {name: {**entry, "label": name, "lane": {"key": name}} for name in ("a", "b")}
        (folder / "s.json").write_text(json.dumps(found | {"providers": [*lanes.values()]}))
        code, text = run("s.json", *words)
        assert code == 100, text
        local = [row for row in rows_of(folder) if row["success"]]
        assert 20 <= len(local) < 2 * ROWS
        before = len(log.read_text().splitlines())
        assert before == len(local)
        code, text = run("s.json", *on, *words)
        assert code == 100, text
        assert "not run" in text.splitlines()[-1]
        rows = rows_of(folder)
        done = [row for row in rows if row["success"]]
        left = {row["error"] for row in rows if not row["success"]}
        assert len(rows) == 2 * ROWS
        assert len(local) - 2 <= len(done) <= len(local)
        assert len(log.read_text().splitlines()) - before == len(done)
        assert all("budget" in error for error in left)
        code, text = run("resume", *on, words[0], "1000000")
        assert code == 0, text
    served = log.read_text().splitlines()[before:]
    prompts = Counter(json.loads(line)["prompt"] for line in served)
    assert {*prompts.values()} == {2}, "each row of both lanes is asked once"
