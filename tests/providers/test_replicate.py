"""Replicate over sockets: waiting, polling, cancelling; `test_every_vendor` tests what is sent and read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from loopback import Answer, Seen, as_json, opened, serve
from vendor_replicate import prediction

from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import Reply, Request, resolve
from trioeval.providers.resolve import ProviderSpec
from trioeval.templates import Templates

pytestmark = pytest.mark.network

TOKEN = {"REPLICATE_API_TOKEN": "r8_12345678"}
STARTING = prediction(None, status="starting")
RUNNING = prediction(None, status="processing")
DONE = prediction(["Fo", "ur"])


def spec_of(entry: str, environ: dict[str, str] | None = None, **config: Any) -> ProviderSpec:
    return resolve(
        entry,
        config,
        environ=TOKEN | (environ or {}),
        directory=Path(),
        templates=Templates(),
        custom={},
    )


def paths(seen: list[Seen]) -> list[tuple[str, str]]:
    return [(one.method, one.target) for one in seen]


def called(
    respond: Callable[[Seen], Answer | None], prompt: str = "Hi", **config: Any
) -> tuple[Reply | ProviderError, list[Seen]]:
    """Return the reply or the failure of one call, and the requests."""

    async def main() -> tuple[Reply | ProviderError, list[Seen]]:
        found: Reply | ProviderError
        with trio.fail_after(60):
            async with serve(respond) as server:
                spec = spec_of("replicate:a/b:v1", apiBaseUrl=server.url, **config)
                async with opened(spec) as provider:
                    try:
                        found = await provider(Request(prompt=prompt))
                    except ProviderError as error:
                        found = error
        return found, server.seen

    return trio.run(main)


def test_a_prediction_that_ends_in_time_is_not_polled() -> None:
    """The first request waits for it."""
    reply, seen = called(lambda _: as_json(DONE, 201))
    assert isinstance(reply, Reply)
    assert reply.output == "Four"
    assert paths(seen) == [("POST", "/predictions")]
    assert seen[0].headers["prefer"] == "wait=60"
    assert json.loads(seen[0].body) == {"version": "v1", "input": {"prompt": "Hi"}}


def test_a_prediction_is_polled_until_it_ends() -> None:
    """Its output is that of the last poll."""
    answers = [as_json(STARTING, 201), as_json(RUNNING), as_json(DONE)]
    reply, seen = called(lambda _: answers.pop(0))
    assert isinstance(reply, Reply)
    assert reply.output == "Four"
    assert paths(seen) == [("POST", "/predictions"), *[("GET", "/predictions/p1")] * 2]
    assert seen[1].headers["authorization"] == "Bearer r8_12345678"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (as_json({"detail": "Slow down, r8_12345678"}, 429), "rate_limited"),
        (as_json({"detail": "Down"}, 500), "server"),
        (Answer(200, b"<html>"), "malformed_reply"),
        (as_json(prediction(None, status="failed", error="no")), "unexpected"),
    ],
)
@pytest.mark.parametrize("polls", [0, 1])
def test_failures_have_their_kinds(answer: Answer, kind: str, polls: int) -> None:
    """A poll that fails is a failure of the call; a prediction that may continue is cancelled."""
    answers = [as_json(STARTING, 201)] * polls + [answer, as_json({})]
    error, seen = called(lambda _: answers.pop(0))
    assert isinstance(error, ProviderError)
    assert error.kind == kind
    assert "r8_12345678" not in f"{error} {error.body_excerpt}"
    ended = ("POST", "/predictions/p1/cancel") in paths(seen)
    assert ended == (polls == 1 and answer.status >= 400)


def test_a_prediction_that_takes_too_long_is_cancelled() -> None:
    """The service would continue and charge for it."""
    error, seen = called(
        lambda one: as_json(STARTING if one.target == "/predictions" else RUNNING), timeoutMs=1100
    )
    assert isinstance(error, ProviderError)
    assert error.kind == "attempt_timeout"
    assert "no finished prediction within 1.1 seconds" in str(error)
    assert paths(seen)[-1] == ("POST", "/predictions/p1/cancel")


def test_a_cancelled_call_cancels_its_prediction() -> None:
    """The request is sent although the call is cancelled."""

    async def main() -> list[tuple[str, str]]:
        polled = trio.Event()

        def respond(seen: Seen) -> Answer | None:
            if seen.method == "GET":
                polled.set()
                return None
            return as_json(STARTING, 201)

        with trio.fail_after(60):
            async with serve(respond) as server:
                spec = spec_of("replicate:a/b", apiBaseUrl=server.url)
                async with opened(spec) as provider, trio.open_nursery() as calls:
                    calls.start_soon(provider, Request(prompt="Hi"))
                    await polled.wait()
                    calls.cancel_scope.cancel()
                return paths(server.seen)

    assert trio.run(main) == [
        ("POST", "/models/a/b/predictions"),
        ("GET", "/predictions/p1"),
        ("POST", "/predictions/p1/cancel"),
    ]


def test_messages_are_split_and_the_environment_has_defaults() -> None:
    """The first system and the first user message are sent; other keys become inputs."""
    spec = spec_of(
        "replicate:a/b",
        {"REPLICATE_TEMPERATURE": "0.5", "REPLICATE_SYSTEM_PROMPT": "Be kind."},
        width=64,
    )
    adapter: Any = spec.settings.adapter  # type: ignore[attr-defined]

    def sent(prompt: str) -> Any:
        return json.loads(adapter.build(Request(prompt=prompt)).body)["input"]

    shared = {"width": 64, "temperature": 0.5}
    assert sent("Hi") == {**shared, "system_prompt": "Be kind.", "prompt": "Hi"}
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert sent(json.dumps(chat)) == {**shared, "system_prompt": "Be brief.", "prompt": "Hi"}


@pytest.mark.parametrize("kind", ["image", "moderation"])
def test_images_and_moderations_are_refused(kind: str) -> None:
    """They must not be called as models."""
    with pytest.raises(SuiteError, match=f'"replicate:{kind}" is not supported'):
        spec_of(f"replicate:{kind}:a/b")
