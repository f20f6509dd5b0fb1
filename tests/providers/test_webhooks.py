"""Webhooks that judge outputs, over real sockets."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, serve

import trioeval
from trioeval.errors import GradingError
from trioeval.evaluation.judge_services import LARGEST, open_webhooks

pytestmark = pytest.mark.network


def posted(respond: Callable[[Seen], Answer | None], data: Any, **environ: str) -> Any:
    """Return the result of a request to a server; an error as its text."""

    async def main() -> Any:
        with trio.fail_after(60):
            async with (
                serve(respond) as server,
                open_webhooks({"WEBHOOK_TIMEOUT": "60000", **environ}) as webhooks,
            ):
                try:
                    return await webhooks.post(f"{server.url}/judge?key=k", data)
                except GradingError as error:
                    return str(error)

    return trio.run(main)


def test_a_webhook_gets_the_variables_of_its_row_and_nothing_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request is the same in each run, so that a server may cache its replies."""
    monkeypatch.setenv("WEBHOOK_TIMEOUT", "60000")
    seen: list[Seen] = []

    def respond(request: Seen) -> Answer:
        seen.append(request)
        return as_json({"pass": True})

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(respond) as server:
                hook = {"type": "webhook", "value": f"{server.url}/judge"}
                document = {
                    "providers": ["echo"],
                    "prompts": ["say {{x}}"],
                    "tests": [{"vars": {"x": 1}, "assert": [hook]}],
                }
                await trioeval.collect(trioeval.parse_suite(document))

    trio.run(main)
    (request,) = seen
    context = {"prompt": "say 1", "vars": {"x": 1}}
    assert json.loads(request.body) == {"output": "say 1", "context": context}


def test_a_webhook_exchanges_json() -> None:
    """One request is sent; numbers that JSON does not support become null."""
    seen: list[Seen] = []

    def respond(request: Seen) -> Answer:
        seen.append(request)
        return as_json({"pass": True})

    assert posted(respond, {"output": "é", "context": {"x": float("nan")}}) == {"pass": True}
    (request,) = seen
    assert (request.method, request.target) == ("POST", "/judge?key=k")
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {"output": "é", "context": {"x": None}}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (as_json({"error": "full"}, 503), "the webhook returned status 503"),
        (Answer(302, b"", {"location": "/there"}), "the webhook returned status 302"),
        (Answer(200, b"<p>yes</p>"), "the webhook must return JSON, got: <p>yes</p>"),
        (Answer(200, b""), "the webhook must return JSON, got"),
        (Answer(200, b" " * (LARGEST + 1)), "the webhook is unreachable"),
    ],
)
def test_an_invalid_reply_is_an_error(answer: Answer, message: str) -> None:
    """It is not a judgement of the output."""
    assert posted(lambda _: answer, {}).startswith(message)


def test_a_silent_webhook_times_out() -> None:
    """The environment sets the time limit."""
    message = posted(lambda _: None, {}, WEBHOOK_TIMEOUT="50")
    assert message == "the webhook did not reply within 0.05 seconds (WEBHOOK_TIMEOUT)"


@pytest.mark.parametrize("milliseconds", ["", "soon", "0", "-1", "inf"])
def test_invalid_limits_are_replaced_by_the_default(milliseconds: str) -> None:
    """The environment sets them."""
    assert posted(lambda _: as_json(1), {}, WEBHOOK_TIMEOUT=milliseconds) == 1


def test_a_missing_webhook_is_an_error() -> None:
    """The key in its URL is not shown."""

    async def main() -> str:
        async with open_webhooks({"WEBHOOK_TIMEOUT": "60000"}) as webhooks:
            with pytest.raises(GradingError) as caught:
                await webhooks.post("http://127.0.0.1:9/judge?key=secret", {})
        return str(caught.value)

    result = trio.run(main)
    assert result.startswith("the webhook is unreachable: ")
    assert "secret" not in result
