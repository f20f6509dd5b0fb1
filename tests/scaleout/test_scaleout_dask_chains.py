"""Rows that depend on others on real worker processes: the rows are those of one process."""

import os
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from clusters import ClusterRun, plain, processes, run_on, written
from distributed import LocalCluster
from own_models import reverse

from trioeval.providers import Request
from trioeval.providers.fake.server import ServedCompletion, serve_fake
from trioeval.providers.fake.settings import FakeSettings
from trioeval.providers.local.custom import own_provider
from trioeval.run import Row, collect, prepare
from trioeval.scaleout.facts import refusals

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(300)]

TURNS = "{{word}} after {% for turn in _conversation %}{{turn.output | length}} {% endfor %}"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "k")


def remote(url: str, **lane: object) -> dict[str, Any]:
    config = {"apiBaseUrl": url, "apiKeyEnvar": "SCALEOUT_TEST_KEY"}
    return {"id": "openai:chat:m", "config": config, "lane": {"retryDelay": 0.02, **lane}}


def user(instructions: str) -> dict[str, Any]:
    """Return a simulated user, who repeats what the provider says."""
    config = {"userProvider": "echo", "instructions": instructions, "maxTurns": 2}
    return {"id": "promptfoo:simulated-user", "config": config}


def every_dependency(provider: object) -> dict[str, Any]:
    """Return a suite with conversations, registers, serial rows, comparisons, users and rows of a task."""
    talks = [
        {"vars": {"word": f"talk {number}"}, "metadata": {"conversationId": number % 3}}
        for number in range(12)
    ]
    stored: list[dict[str, Any]] = [
        {"vars": {"word": f"first {number}"}, "options": {"storeOutputAs": "last"}}
        if number % 2
        else {"vars": {"word": f"{number} of {{{{last}}}}"}}
        for number in range(8)
    ]
    serial = [
        {"vars": {"word": f"alone {number}"}, "options": {"runSerially": number % 2 == 0}}
        for number in range(6)
    ]
    best = [{"type": "max-score"}, {"type": "contains", "value": "3"}]
    compared = [{"vars": {"word": f"rival {number}"}, "assert": best} for number in range(6)]
    say = ["say {{word}}"]
    return {
        "providers": [provider],
        "evaluateOptions": {"serialize": "auto"},
        "tasks": [
            {"id": "talks", "type": "prompt_eval", "prompts": [TURNS], "tests": talks},
            {"id": "stored", "type": "prompt_eval", "prompts": say, "tests": stored},
            {"id": "serial", "type": "prompt_eval", "prompts": say, "tests": serial},
            {
                "id": "compared",
                "type": "prompt_eval",
                "prompts": [*say, "show {{word}}"],
                "tests": compared,
            },
            {
                "id": "users",
                "type": "prompt_eval",
                "prompts": ["help {{word}}"],
                "tests": [
                    {"vars": {"word": number}, "provider": user(f"ask for {number}")}
                    for number in range(6)
                ],
            },
            {
                "id": "later",
                "type": "prompt_eval",
                "prompts": ["repeat {{said}}"],
                "tests": {"fromTask": "stored", "vars": {"said": "output"}},
            },
        ],
    }


def comparable(rows: list[Row]) -> list[Row]:
    """Return rows by task, without times, and without the headers of replies and what follows from them."""
    return [
        attrs.evolve(
            row,
            reply=None
            if row.reply is None
            else attrs.evolve(row.reply, metadata={}, hint=None, raw=None),
        )
        for row in sorted(plain(rows), key=lambda row: (str(row.task), row.index))
    ]


def test_every_kind_of_dependency_gives_the_rows_of_one_process(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async def main() -> tuple[list[Row], ClusterRun]:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_fake, FakeSettings(latency_s=0.01))
            path = written(tmp_path, every_dependency(remote(address.base_url)))
            local = await collect(path)
            run = await run_on(cluster.scheduler_address, path)
            nursery.cancel_scope.cancel()
        return local, run

    local, run = trio.run(main)
    assert comparable(run.rows) == comparable(local)
    assert not run.warnings


def test_a_conversation_goes_on_with_its_turns_after_its_worker_was_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Law RESUME: at most the call in flight is made again, and no turn changes."""
    served = 0

    def on_served(_one: ServedCompletion) -> None:
        nonlocal served
        served += 1

    suite = {
        "prompts": [TURNS],
        "tests": [{"vars": {"word": f"turn {number}"}} for number in range(20)],
    }

    def on_row(run: ClusterRun, row: Row) -> None:
        if row.index == 5:
            (owner,) = run.owners()
            os.kill(processes(cluster)[owner], signal.SIGKILL)

    async def main() -> tuple[ClusterRun, list[Row], int]:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_fake, FakeSettings(latency_s=0.1), on_served)
            path = written(tmp_path, suite | {"providers": [remote(address.base_url)]})
            run = await run_on(cluster.scheduler_address, path, on_row=on_row)
            paid = served
            local = await collect(path)
            nursery.cancel_scope.cancel()
        return run, local, paid

    run, local, paid = trio.run(main)
    assert comparable(run.rows) == comparable(local)
    assert paid <= 21


def test_a_function_of_a_module_is_a_provider_on_workers(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    suite = {
        "providers": ["own"],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": f"{number}"}} for number in range(40)],
    }
    path, providers = written(tmp_path, suite), {"own": own_provider(reverse, max_cost=1.0)}

    async def main() -> ClusterRun:
        return await run_on(cluster.scheduler_address, path, providers=providers)

    run = trio.run(main)
    assert [row.output for row in run.rows] == [f"say {number}"[::-1] for number in range(40)]
    assert not [*refusals(prepare(path, providers=providers))]


def test_a_function_that_workers_cannot_import_is_refused(tmp_path: Path) -> None:
    async def local(request: Request) -> str:
        await trio.lowlevel.checkpoint()
        return request.prompt

    path = written(tmp_path, {"providers": ["own"], "prompts": ["say"]})
    (found,) = refusals(prepare(path, providers={"own": local}))
    assert "provider own, which other processes cannot import" in found
