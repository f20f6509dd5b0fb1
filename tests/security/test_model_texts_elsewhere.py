"""The output of a model is data also outside of the prompts of later rows.

This covers chains of questions with tools, comparisons of outputs, requests to webhooks, and files that
agents write and read.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from asked_questions import RIGHT, Pupil, asked, calls_tool, number_of, quiz
from test_model_agents import Bench, Script, chat
from test_model_texts import PAYLOADS

from trioeval import Reply, Request, collect, parse_suite
from trioeval.agent.model import AgentSettings
from trioeval.serving.conversation import Receive, Scope, Send
from trioeval.serving.listening import open_listeners, serve_app
from trioeval.testing import run_virtual

pytestmark = pytest.mark.attack("texts of models")

SAYS = tuple(PAYLOADS.values())
ENV = {"WORD": "s3cret-word"}


def texts(value: Any) -> list[str]:
    """Return all texts of a value, and of JSON in its texts."""
    match value:
        case str():
            try:
                inner = json.loads(value)
            except ValueError:
                return [value]
            return [value, *texts(inner)] if isinstance(inner, dict | list) else [value]
        case dict():
            return [text for part in value.values() for text in texts(part)]
        case list():
            return [text for part in value for text in texts(part)]
        case _:
            return []


@pytest.mark.parametrize("says", SAYS, ids=PAYLOADS)
def test_a_chain_with_tools_continues_with_unchanged_outputs(says: str) -> None:
    """This covers the arguments of a tool and its result, in the next step of a question."""
    prompt = _chains()[SAYS.index(says)]
    assert says in texts(prompt)
    assert any(says in text and "names an unknown function" in text for text in texts(prompt)), (
        prompt
    )
    assert "s3cret-word" not in prompt


@functools.cache
def _chains() -> Mapping[int, str]:
    """Return the prompt of the second step of each question."""

    def says(number: int, step: int) -> Any:
        return RIGHT if step else calls_tool(SAYS[number], argument=SAYS[number])

    pupil = Pupil(says=says)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "look.py"
        file.write_text("def look(arguments): ...\n")  # processes do not use the virtual clock
        tools = [{"name": "look", "target": f"file://{file}:look"}]
        asked(quiz(Path(folder), len(SAYS), entry={"tools": tools}, env=ENV), pupil)
    seconds = pupil.requests[1::2]
    return {number_of(request): request.prompt for request in seconds}


@pytest.mark.parametrize("says", SAYS, ids=PAYLOADS)
def test_outputs_are_compared_unchanged(says: str) -> None:
    """This covers the judge that chooses the best."""
    (prompt,) = [one for one in _compared() if f"number {SAYS.index(says)}." in one]
    assert any(says in text for text in texts(prompt))
    assert "s3cret-word" not in prompt


@functools.cache
def _compared() -> tuple[str, ...]:
    """Return the judge's prompt for each payload."""
    found: list[str] = []

    async def model(request: Request) -> Reply:
        return Reply(output=SAYS[request.vars["number"]])

    async def judge(request: Request) -> Reply:
        found.append(request.prompt)
        return Reply(output="0")

    best = {"type": "select-best", "value": "number {{ number }}.", "provider": "judge"}
    suite = {
        "env": ENV,
        "providers": ["model"],
        "prompts": ["a {{ number }}", "b {{ number }}"],
        "tests": [{"vars": {"number": number}, "assert": [best]} for number in range(len(SAYS))],
    }
    run_virtual(lambda: collect(parse_suite(suite), providers={"model": model, "judge": judge}))
    return tuple(found)


@pytest.mark.network
@pytest.mark.parametrize("says", SAYS, ids=PAYLOADS)
def test_a_webhook_receives_unchanged_outputs(says: str) -> None:
    """This covers the output, and variables of a later row."""
    first, second = _posted()[SAYS.index(says)]
    assert first["output"] == says
    assert second["context"]["vars"]["y"] == second["context"]["prompt"] == f"<{says}>"
    assert "s3cret-word" not in json.dumps([first, second])


@functools.cache
def _posted() -> Mapping[int, list[Any]]:
    """Return the requests to a server for each payload: of the row that stores it, and the one using it."""
    found: dict[int, list[Any]] = {}

    async def hook(_scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        posted = json.loads(body)
        found.setdefault(posted["context"]["vars"]["number"], []).append(posted)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"pass": true}'})

    async def model(request: Request) -> Reply:
        return Reply(output=SAYS[request.vars["number"]] if request.vars["step"] == 1 else "done")

    async def main() -> None:
        listeners, address = await open_listeners("127.0.0.1", 0)
        check = {"type": "webhook", "value": f"{address.url}/judge"}
        tests = [
            test
            for number in range(len(SAYS))
            for test in (
                {
                    "vars": {"number": number, "step": 1, "y": "first"},
                    "options": {"storeOutputAs": "answer"},
                    "assert": [check],
                },
                {"vars": {"number": number, "step": 2, "y": "<{{ answer }}>"}, "assert": [check]},
            )
        ]
        suite = {"env": ENV, "providers": ["model"], "prompts": ["{{ y }}"], "tests": tests}
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                stop = trio.Event()
                await nursery.start(
                    lambda **more: serve_app(hook, listeners, stop, grace=0, **more)
                )
                await collect(parse_suite(suite), providers={"model": model})
                stop.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        trio.run(main)
    return found


@pytest.mark.parametrize("says", SAYS, ids=PAYLOADS)
def test_an_agent_reads_the_text_that_it_has_written(says: str) -> None:
    """This covers results of tools in the next step, and in every later step."""
    results = _agents_results()
    assert says in texts(results[2 * SAYS.index(says) + 1])
    assert "s3cret-word" not in json.dumps(results)


@functools.cache
def _agents_results() -> list[Any]:
    """Return results of an agent's tools: it writes a file with each payload, and reads it."""
    steps = [
        step
        for number, says in enumerate(SAYS)
        for step in (
            chat("write_file", path=f"{number}.txt", content=says),
            chat("read_file", path=f"{number}.txt"),
        )
    ]
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "case", settings=AgentSettings(max_steps=len(steps) + 1))
        script = Script([*steps, chat("done", summary="{{ env.WORD }}")])
        assert bench.end(script, prompt="Write {{ env.WORD }}.").failure is None
    assert "Write {{ env.WORD }}." in texts(script.requests[-1].prompt)
    results: list[Any] = script.results
    return results
