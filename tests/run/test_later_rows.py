"""The effects of rows on later rows, in whole runs: secret keys, repeated calls, and costs."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from pace import takes_less

from trioeval import ProviderError, Reply, Request, Row, collect, parse_suite, run_suite
from trioeval.evaluation.shared_data import SharedData
from trioeval.run import prepare
from trioeval.suite.expand import Step
from trioeval.testing import run_virtual

HISTORY = "{% for turn in _conversation %}({{turn.output}}){% endfor %}{{q}}"
STORES = {"options": {"storeOutputAs": "r"}}


def rows_of(document: dict[str, Any], mine: Any = None, **environ: str) -> list[Row]:
    document = {"providers": ["mine" if mine else "echo"], **document}
    providers = {"mine": mine} if mine else None
    prepared = prepare(parse_suite(document), providers=providers, environ=environ)
    return run_virtual(lambda: collect(prepared))


async def one_after_another(request: Request) -> str:
    await trio.sleep(1)
    return str(request.test_idx)


@pytest.mark.parametrize("mode", ["all", "auto"])
def test_an_output_cannot_read_a_key(mode: str) -> None:
    """Neither a register nor a variable of the conversation exposes it; a row's own template may use it."""
    answer = {"providerOutput": "<{{ env.MY_API_KEY }}>"}
    document = {
        "prompts": ["{{q}}{{r}}"],
        "evaluateOptions": {"serialize": mode},
        "tests": [
            {"vars": {"q": "1"}, **answer, **STORES},
            {"vars": {"q": "2"}},
            {"vars": {"q": "{{ r }}"}},
        ],
    }
    rows = rows_of(document, MY_API_KEY="s3cret")
    assert [row.prompt for row in rows] == [
        "1",
        "2<{{ env.MY_API_KEY }}>",
        "<{{ env.MY_API_KEY }}><{{ env.MY_API_KEY }}>",
    ]
    spoken = {
        **document,
        "prompts": [HISTORY],
        "tests": [{"vars": {"q": "1"}, **answer}, {"vars": {"q": "{{ _conversation }}"}}],
    }
    assert all("s3cret" not in str(row.prompt) for row in rows_of(spoken, MY_API_KEY="s3cret"))
    tests = [{"vars": {"q": "{{ env.MY_API_KEY }}"}, **STORES}, {"vars": {"q": "2"}}]
    shown = rows_of({**document, "tests": tests}, MY_API_KEY="s3cret")
    assert [row.prompt for row in shown] == ["s3cret", "2s3cret"]


def test_an_empty_reply_adds_no_turn_and_a_row_that_runs_again_adds_one() -> None:
    """In a final retry round, later rows see the result of the last attempt."""
    calls: list[int] = []

    async def mine(request: Request) -> Reply:
        await trio.sleep(1)
        calls.append(request.test_idx)
        if request.test_idx == 0 and calls.count(0) == 1:
            return Reply(output=None)
        if request.test_idx == 1 and calls.count(1) < 3:
            raise ProviderError("connection", "gone")
        return Reply(output=f"<{request.test_idx}>")

    document = {
        "prompts": [HISTORY],
        "tests": [{"vars": {"q": str(number)}} for number in range(3)],
        "evaluateOptions": {"salvageRounds": 1},
    }
    rows = rows_of(document, mine)
    for row in rows:
        assert row.prompt is not None
        assert "()" not in row.prompt
        assert row.prompt.count("(<0>)") <= 1
        assert row.prompt.count("(<1>)") <= 1


@pytest.mark.parametrize("switch", ["1", "0"])
def test_the_environment_of_the_suite_is_never_hidden(switch: str) -> None:
    """`DISABLE_TEMPLATE_ENV_VARS` only hides the environment of the process."""
    document = {
        "env": {"TOWN": "Paris"},
        "prompts": ["{{ env.TOWN }} {{ env.KEY }}"],
        "tests": [{"vars": {}}],
    }
    (row,) = rows_of(document, KEY="k", PROMPTFOO_DISABLE_TEMPLATE_ENV_VARS=switch)
    assert row.prompt == ("Paris " if switch == "1" else "Paris k")


def test_outputs_that_are_no_longer_visible_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a name that every row stores, only the last value and those of rows not yet emitted are kept."""
    kept: list[int] = []
    whole = SharedData.store

    def counting(history: SharedData, step: Step, name: str, output: Any) -> None:
        whole(history, step, name, output)
        kept.append(len(history))

    monkeypatch.setattr(SharedData, "store", counting)
    tests = [{"vars": {"q": str(number)}, **STORES} for number in range(500)]
    rows = rows_of({"prompts": ["{{q}}{{r}}"], "tests": tests}, one_after_another)
    assert len(rows) == len(kept) == 500
    assert max(kept) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["{{q}}", "{{q}}{{out7}}"])
@pytest.mark.parametrize("mode", ["all", "auto"])
def test_thousands_of_registers_need_a_linear_number_of_steps(mode: str, prompt: str) -> None:
    """Finding the order takes little more than the rows themselves, if they are emitted meanwhile."""
    tests = [
        {"vars": {"q": str(number)}, "options": {"storeOutputAs": f"out{number}"}}
        for number in range(3_000)
    ]
    document = {"prompts": [prompt], "tests": tests, "evaluateOptions": {"serialize": mode}}
    rows: list[Row] = []

    async def repeat(request: Request) -> str:
        await trio.lowlevel.checkpoint()  # virtual time does not pass, so workers do not pause
        return request.prompt

    def run() -> None:
        rows[:] = rows_of(document, repeat)

    assert takes_less(8, run)  # some 1 s on an idle machine
    assert rows[-1].prompt == ("2999" if prompt == "{{q}}" else "29997")


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["{{q}}", "{{q}}{{r}}"])
def test_the_first_row_of_a_huge_file_does_not_wait_for_the_last(
    tmp_path: Path, prompt: str
) -> None:
    """Of sixty thousand lines, one stores its output: most lines are not read when it starts."""
    with (tmp_path / "tests.jsonl").open("w") as file:
        for number in range(60_000):
            line: dict[str, Any] = {"vars": {"q": str(number)}, **(STORES if number == 5 else {})}
            file.write(json.dumps(line) + "\n")
    document = {
        "providers": ["echo"],
        "prompts": [prompt],
        "tests": "file://tests.jsonl",
        "evaluateOptions": {"serialize": "auto"},
    }
    prepared = prepare(parse_suite(document, directory=tmp_path), environ={})

    async def main() -> float:
        spent: list[float] = []
        began = time.process_time()
        stop = trio.Event()

        async def emit(_row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
            spent.append(time.process_time() - began)
            stop.set()

        await run_suite(prepared, emit=emit, stop=stop)
        return spent[0]

    # About 0.5 s on an idle machine; the load of other processes may be included.
    assert any(trio.run(main) < 3 for _ in range(3))
