"""A suite, a provider that keeps a log, and runs of the suite that are ended at any instant.

The provider is a separate process, so its log shows what was paid for, whatever happened to the client. Its
replies depend on the question only; failures, refusals and disconnects are random and are repaired by
retries. So all runs of the suite have the same rows, however often they are interrupted.

An audit compares three records of the same run: the provider's log, the store, and the result files.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import attrs
from server_process import fake_provider, stats_of

ENV = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "OPENAI_API_KEY": "sk-nothing"}
MODELS = ("alpha", "beta")
PROMPTS = ("short", "long")
JUDGED_EVERY = 4
REFUSED_EVERY = 25
TURNS = 6
TESTS = 100
"""Tests of the matrix, which has four rows of each."""

Question: TypeAlias = tuple[str, str]
"""The model and the last user message, on which the provider's reply depends."""


def digest(*words: str) -> str:
    """Letters that depend only on the arguments."""
    return hashlib.sha256("|".join(words).encode()).hexdigest()[:12]


def answer(model: str, message: str) -> str:
    """The reply of a model."""
    if model != "judge":
        return f"{model} says {digest(model, message)}"
    fair = int(digest(message), 16) % 5 > 0
    return json.dumps(
        {"pass": fair, "score": 0.8 if fair else 0.2, "reason": digest("why", message)}
    )


def message_of(prompt: str, test: int) -> str:
    """The message of a row of the matrix."""
    return f"{prompt} answer to question {test}"


def judged_as(output: str) -> str:
    """The message to the judge about an output."""
    return f"Judge: {output}"


def suite_of(base_url: str, tests: int) -> dict[str, Any]:
    """A matrix of 2 prompts, 2 models and some tests, and conversations of `TURNS` turns each."""
    lane = {"maxConcurrency": 6, "retries": 9}

    def entry(model: str) -> dict[str, Any]:
        return {"id": f"openai:chat:{model}", "config": {"apiBaseUrl": base_url}, "lane": lane}

    def test(number: int) -> dict[str, Any]:
        checks: list[dict[str, Any]] = [{"type": "contains", "value": "says"}]
        if number % 3 == 0:
            checks.append({"type": "regex", "value": "says [0-7]"})
        if number % JUDGED_EVERY == 0:
            judge = {"provider": entry("judge"), "rubricPrompt": judged_as("{{output}}")}
            checks.append({"type": "llm-rubric", "value": "fair", **judge})
        return {"vars": {"n": number}, "assert": checks, "metadata": {"number": number}}

    turns = [
        {
            "vars": {"q": f"turn {turn} of talk {talk}"},
            "metadata": {"conversationId": f"talk {talk}"},
        }
        for turn in range(TURNS)
        for talk in range(max(1, tests // 50))
    ]
    source = (
        "{% for turn in _conversation %}{% if loop.last %}{{turn.output}}: {% endif %}{% endfor %}"
    )
    return {
        "description": "chaos",
        "providers": [entry(model) for model in MODELS],
        "tasks": [
            {
                "id": "matrix",
                "type": "prompt_eval",
                "prompts": [message_of(prompt, 0).replace(" 0", " {{n}}") for prompt in PROMPTS],
                "tests": [test(number) for number in range(tests)],
            },
            {
                "id": "talk",
                "type": "prompt_eval",
                "prompts": [source + "{{q}}"],
                "tests": turns,
                "evaluateOptions": {"serialize": "conversation"},
            },
        ],
    }


def recordings_of(suite: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All possible requests with their one reply; some rows of the matrix are always refused."""
    matrix, talk = suite["tasks"]
    for model in MODELS:
        for number in range(len(matrix["tests"])):
            for prompt in PROMPTS:
                message = message_of(prompt, number)
                source = {"model": model, "prompt": message}
                if (number + len(prompt)) % REFUSED_EVERY == 0:
                    yield source | {"error": {"kind": "bad_request", "message": "not for me"}}
                    continue
                output = answer(model, message)
                yield source | {"output": output}
                if number % JUDGED_EVERY == 0:
                    question = judged_as(output)
                    yield {
                        "model": "judge",
                        "prompt": question,
                        "output": answer("judge", question),
                    }
        outputs: dict[str, str] = {}
        for test in talk["tests"]:
            name = test["metadata"]["conversationId"]
            before = f"{outputs[name]}: " if name in outputs else ""
            message = before + test["vars"]["q"]
            outputs[name] = answer(model, message)
            yield {"model": model, "prompt": message, "output": outputs[name]}


# --- the provider ---------------------------------------------------------------


@attrs.frozen
class Entry:
    """A finished request in the provider's log."""

    utc_at: float
    status: int
    ending: str
    question: Question

    @property
    def is_paid(self) -> bool:
        """True if its reply was sent completely."""
        return (self.status, self.ending) == (200, "sent")


@attrs.define(eq=False)
class Provider:
    """A running fake provider."""

    url: str
    log: Path
    _entries: list[Entry] = attrs.field(init=False, factory=list)
    _read_bytes: int = attrs.field(init=False, default=0)

    def entries(self) -> Sequence[Entry]:
        """All finished requests in their order; a line that is being written is read next time."""
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(end)
        for line in whole.splitlines():
            source = json.loads(line)
            question = source["model"], source["prompt"]
            self._entries.append(
                Entry(source["utc_at"], source["status"], source["ending"], question)
            )
        return self._entries

    def wait_idle(self) -> Sequence[Entry]:
        """The same, once no request is in progress."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/health"):
            pass  # it has read the requests of disconnected clients
        while self.stats()["in_flight"]:
            pass
        return self.entries()

    def stats(self) -> Any:
        """The counts of the provider."""
        return stats_of(self.url)


@contextmanager
def open_provider(folder: Path, *flags: str) -> Iterator[Provider]:
    """Start a provider in a separate process, and write the suite that calls it.

    Args:
        folder: Receives `suite.json` and the files of the provider.
        *flags: Further flags of `fake-provider`.
    """
    log, replies = folder / "log.jsonl", folder / "replies.jsonl"
    log.touch()
    suite = suite_of("", tests=TESTS)
    replies.write_text("".join(json.dumps(one) + "\n" for one in recordings_of(suite)))
    with fake_provider("--replay", str(replies), "--log", str(log), *flags) as url:
        (folder / "suite.json").write_text(json.dumps(suite_of(url, tests=TESTS)))
        yield Provider(url, log)


# --- the store ------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Recorded:
    """The contents of a store with one run."""

    run: str | None
    """Its id; None if it was not started."""
    replies: Counter[Question]
    """Successful replies by question: each has cost money, and none may be requested again."""
    rows: Counter[tuple[str, int]]
    """Records by task and index."""


def recorded_in(folder: Path) -> Recorded:
    """Return the contents of the store of a folder, read from a copy so that the store is unchanged.

    Raises:
        AssertionError: It is damaged.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        copy = copy_store(folder, Path(elsewhere))
        if not copy.exists():
            return Recorded(run=None, replies=Counter(), rows=Counter())
        with closing(sqlite3.connect(copy)) as store:
            assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if not store.execute("PRAGMA user_version").fetchone()[0]:
                return Recorded(run=None, replies=Counter(), rows=Counter())
            runs = store.execute("SELECT run FROM runs").fetchall()
            assert len(runs) < 2
            replies = store.execute("SELECT provider, prompt FROM calls WHERE error IS NULL")
            rows = store.execute("SELECT task, row FROM results")
            return Recorded(
                run=runs[0][0] if runs else None,
                replies=Counter((who.rpartition(":")[2], question) for who, question in replies),
                rows=Counter(rows.fetchall()),
            )


def copy_store(folder: Path, target: Path) -> Path:
    """Copy a store as it is on disk: the database and its log, without the memory that processes share."""
    source = folder / ".trioeval" / "results.db"
    for name in (source.name, source.name + "-wal"):
        if source.with_name(name).exists():
            shutil.copy(source.with_name(name), target / name)
    return target / source.name


LOG_HEAD, FRAME_HEAD = 32, 24
"""Bytes; see https://www.sqlite.org/fileformat.html#the_write_ahead_log"""
PAGE_SIZE_AT = 8
"""The offset of the page size in the log."""
COPIED_AT = 96
"""The offset in shared memory of the number of frames that are already in the database."""


def cut_log(folder: Path, random: Random) -> None:
    """Remove some of what was written since the last flush to disk, like a power failure.

    With `synchronous=NORMAL` the log is flushed before its frames go to the database, so these remain.
    """
    log = folder / ".trioeval" / "results.db-wal"
    shared = log.with_name("results.db-shm")
    if not shared.exists() or not (size := log.stat().st_size):
        return  # nothing was written since the last time
    (page_size,) = struct.unpack_from(">I", log.read_bytes(), PAGE_SIZE_AT)
    (copied,) = struct.unpack_from("=I", shared.read_bytes(), COPIED_AT)
    safe = LOG_HEAD + copied * (FRAME_HEAD + page_size) if copied else 0
    os.truncate(log, random.randint(min(safe, size), size))
    shared.unlink()


# --- rows -----------------------------------------------------------------------

VOLATILE = frozenset(
    {
        *("id", "evalId", "timestamp", "exportedAt", "evaluationCreatedAt"),
        *("latencyMs", "totalLatencyMs", "durationMs", "evaluationDurationMs", "firstTokenMs"),
        *("waitMs", "waits", "attempts", "numRequests", "content-length", "date", "maxEvalTimeMs"),
    }
)
"""Fields that differ between equal runs: ids, times, including latencies, the number of provider failures,
and the deadline of the first execution."""


def lasting(value: Any) -> Any:
    """A row, or any part of a document, without what differs between equal runs."""
    if isinstance(value, Mapping):
        return {name: lasting(part) for name, part in value.items() if name not in VOLATILE}
    return [*map(lasting, value)] if isinstance(value, list) else value


def text_of(path: Path) -> str:
    """A result file without the port of the provider."""
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", path.read_text())


def documents_of(folder: Path) -> dict[str, Any]:
    """The lasting part of `out.json`, by task."""
    found: dict[str, Any] = lasting(json.loads(text_of(folder / "out.json")))["tasks"]
    return found


def rows_of(folder: Path) -> list[Any]:
    """The lasting part of the rows in `out.json`, task by task."""
    documents = documents_of(folder)
    return [row for task in sorted(documents) for row in documents[task]["results"]["results"]]


def lines_of(folder: Path) -> list[Any]:
    """The same for `out.jsonl`, in which tasks may be mixed."""
    lines = [json.loads(line) for line in text_of(folder / "out.jsonl").splitlines()]
    return lasting(sorted(lines, key=lambda row: str(row["task"])))  # type: ignore[no-any-return]


def places_of(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """The positions of the rows of a result file in the suite."""
    return [(row["task"], row["testIdx"], row["promptIdx"]) for row in rows]


# --- runs -----------------------------------------------------------------------


def start_run(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """The command, in the folder of the suite."""
    command = [sys.executable, "-m", "trioeval", *arguments, "--no-table", "--no-progress"]
    return subprocess.Popen(
        command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait_replies(process: "subprocess.Popen[str]", provider: Provider, number: int) -> None:
    """Return when a number of further replies have ended, or the process has."""
    wanted = len(provider.entries()) + number
    while process.poll() is None and len(provider.entries()) < wanted:
        time.sleep(0.001)  # between two polls


@attrs.define(eq=False)
class Audit:
    """Comparison of paid and recorded replies after each execution of a run."""

    provider: Provider
    folder: Path
    recorded: Recorded = Recorded(run=None, replies=Counter(), rows=Counter())
    lost_ages: list[float] = attrs.field(factory=list)
    """For each reply that was sent and not recorded: the seconds from then to the end of its execution."""
    repeated: list[Question] = attrs.field(factory=list)
    """Requests whose reply was recorded before the execution that made them."""
    paid: int = 0
    requests: int = 0
    executions: int = 0

    def look(self, ended_at: float, *, keeps_all: bool = True) -> Sequence[float]:
        """Compare the records after the end of an execution.

        Args:
            ended_at: The instant of its end.
            keeps_all: Whether the disk kept everything that was written.

        Returns:
            The ages of replies that were lost in this execution.
        """
        entries = self.provider.wait_idle()[self.requests :]
        before, self.recorded = self.recorded, recorded_in(self.folder)
        self.executions += 1
        self.requests += len(entries)
        self.repeated += [one.question for one in entries if one.question in before.replies]
        paid = [one for one in entries if one.is_paid]
        self.paid += len(paid)
        assert len({one.question for one in paid}) == len(paid), (
            "something was paid for twice at once"
        )
        if keeps_all:
            assert not before.replies - self.recorded.replies, "a reply that was recorded is gone"
            assert not before.rows - self.recorded.rows, "a row that was recorded is gone"
        assert {*self.recorded.rows.values()} <= {1}
        assert {*self.recorded.replies.values()} <= {1}
        lost = [ended_at - one.utc_at for one in paid if one.question not in self.recorded.replies]
        self.lost_ages += lost
        return lost

    def __str__(self) -> str:
        ages = [f"{1000 * age:.0f}" for age in sorted(self.lost_ages)]
        median, oldest = (ages[len(ages) // 2], ages[-1]) if ages else ("-", "-")
        return (
            f"{self.executions} executions, {self.requests} requests, {self.paid} replies paid;"
            f" not recorded: {len(ages)}, sent {median} ms before the end in the median and {oldest} at most;"
            f" asked again: {len(self.repeated)}"
        )
