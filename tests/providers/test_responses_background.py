import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest
import trio
import trio.testing
from loopback import Answer, Seen, as_json, serve

from trioeval.errors import ProviderError
from trioeval.providers import OpenProvider, Request, open_providers, resolve
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.vendors.openai_responses import BACKGROUND
from trioeval.templates import Templates

pytestmark = pytest.mark.network

ID = "resp/1"  # an id is only a text, not a part of a path
PENDING = {"id": ID, "status": "queued", "output": []}
RUNNING = {**PENDING, "status": "in_progress"}
PART = {"type": "output_text", "text": "4"}
DONE = {"id": ID, "status": "completed", "output": [{"type": "message", "content": [PART]}]}

ASK = Request(prompt="2 + 2")

Look: TypeAlias = tuple[int, Any]
"""Status and body of a reply."""


@attrs.define(eq=False)
class Service:
    """A service that replies from a list, and stores its requests."""

    answers: deque[Look]
    seen: list[tuple[float, str, str]] = attrs.field(factory=list)
    """Time, method and path of each request."""
    asked: trio.Event = attrs.field(factory=trio.Event)
    """Set by the request without a reply."""
    stuck: bool = False
    """True if requests after the end of the list get no reply."""

    def respond(self, request: Seen) -> Answer | None:
        """Return the next reply."""
        self.seen.append((trio.current_time(), request.method, request.target))
        if self.answers:
            status, data = self.answers.popleft()
            return as_json(data, status)
        self.asked.set()
        return None if self.stuck else as_json({"id": ID, "status": "cancelled"})

    def paths(self) -> list[tuple[str, str]]:
        """Method and path of each request."""
        return [(method, path) for _, method, path in self.seen]


@asynccontextmanager
async def opened(service: Service, **config: Any) -> AsyncGenerator[OpenProvider]:
    """Open the provider against the service; both end with the block."""
    templates = Templates()
    async with serve(service.respond) as server:
        own = {"apiBaseUrl": f"{server.url}/v1", "apiKey": "sk-1", "background": True}
        spec = resolve(
            "openai:responses:o3",
            {**own, **config},
            environ={},
            directory=Path(),
            templates=templates,
            custom={},
        )
        assert spec.secrets == ("sk-1",)
        assert spec.lane_key.endswith("|o3")
        async with open_providers([spec], templates) as (provider,):
            yield provider


def run(service: Service, body: Callable[[OpenProvider], Awaitable[None]], **config: Any) -> None:
    """Run a test body on a clock that jumps to the next deadline when sockets are quiet."""

    async def main() -> None:
        with trio.fail_after(3600):
            async with opened(service, **config) as provider:
                await body(provider)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))


CREATE = ("POST", "/v1/responses")
LOOK = ("GET", "/v1/responses/resp%2F1")
CANCEL = ("POST", "/v1/responses/resp%2F1/cancel")


def test_a_response_is_polled_every_second_until_it_is_finished() -> None:
    """The last poll has the reply, and nothing is cancelled."""
    service = Service(deque([(200, PENDING), (200, RUNNING), (200, RUNNING), (200, DONE)]))

    async def body(provider: OpenProvider) -> None:
        assert (await provider(ASK)).output == "4"

    run(service, body)
    assert service.paths() == [CREATE, LOOK, LOOK, LOOK]
    times = [at for at, _, _ in service.seen]
    assert [later - before for before, later in pairwise(times)] == [1, 1, 1]


def test_a_response_that_is_finished_at_once_is_not_polled() -> None:
    """No second request is sent."""
    service = Service(deque([(200, DONE)]))

    async def body(provider: OpenProvider) -> None:
        assert (await provider(ASK)).output == "4"

    run(service, body)
    assert service.paths() == [CREATE]


def test_a_cancelled_call_stops_its_response() -> None:
    """The service is notified, although the caller has gone."""
    service = Service(deque([(200, PENDING), (200, RUNNING)]))

    async def body(provider: OpenProvider) -> None:
        with trio.move_on_after(1.5) as scope:
            await provider(ASK)
        assert scope.cancelled_caught

    run(service, body)
    assert service.paths() == [CREATE, LOOK, CANCEL]


def test_a_call_cancelled_during_a_poll_stops_its_response() -> None:
    """This also holds while a request is in progress."""
    service = Service(deque([(200, PENDING)]), stuck=True)

    async def body(provider: OpenProvider) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(provider, ASK)
            await service.asked.wait()
            service.stuck = False
            nursery.cancel_scope.cancel()

    run(service, body)
    assert service.paths() == [CREATE, LOOK, CANCEL]


def test_a_call_that_takes_too_long_stops_its_response() -> None:
    """`timeoutMs` is for the whole call, including polls and waits."""
    service = Service(deque([(200, PENDING), *[(200, RUNNING)] * 3]))

    async def body(provider: OpenProvider) -> None:
        with pytest.raises(ProviderError) as caught:
            await provider(ASK)
        expected = (
            "attempt_timeout: no finished response within 3.5 seconds from POST http://127.0.0.1:"
        )
        assert str(caught.value).startswith(expected)
        assert str(caught.value).endswith("/v1/responses: raise timeoutMs")

    run(service, body, timeoutMs=3500)
    assert service.paths() == [CREATE, LOOK, LOOK, LOOK, CANCEL]


def test_stopping_a_response_takes_ten_seconds_at_most() -> None:
    """A service that does not answer the cancellation delays nothing further."""
    service = Service(deque([(200, PENDING), (200, RUNNING)]), stuck=True)

    async def body(provider: OpenProvider) -> None:
        start = trio.current_time()
        with trio.move_on_after(1.5):
            await provider(ASK)
        assert trio.current_time() - start == 11.5

    run(service, body)
    assert service.paths() == [CREATE, LOOK, CANCEL]


@pytest.mark.parametrize(
    ("look", "kind"),
    [
        ((503, {"error": {"message": "down"}}), "server"),
        ((429, {"error": {"code": "rate_limit_exceeded"}}), "rate_limited"),
    ],
)
def test_a_failing_poll_is_the_failure_of_the_call(look: Look, kind: str) -> None:
    """Only the lane retries; the unwatched response is cancelled, and failures of that are ignored."""
    service = Service(deque([(200, PENDING), look, (500, {})]))

    async def body(provider: OpenProvider) -> None:
        with pytest.raises(ProviderError) as caught:
            await provider(ASK)
        assert caught.value.kind == kind

    run(service, body)
    assert service.paths() == [CREATE, LOOK, CANCEL]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {**DONE, "status": "cancelled"},
            "server: HTTP 200 from GET {url} (model o3): the response ended as cancelled",
        ),
        (
            {**DONE, "status": "failed", "error": {"code": "server_error", "message": "Oops"}},
            "server: HTTP 200 from GET {url} (model o3): Oops",
        ),
    ],
)
def test_a_failed_response_is_not_cancelled(data: Any, message: str) -> None:
    """It has ended by itself."""
    service = Service(deque([(200, PENDING), (200, data)]))

    async def body(provider: OpenProvider) -> None:
        with pytest.raises(ProviderError) as caught:
            await provider(ASK)
        seen = re.sub(r"http://127\.0\.0\.1:\d+/v1/responses/resp%2F1", "{url}", str(caught.value))
        assert seen == message

    run(service, body)
    assert service.paths() == [CREATE, LOOK]


def test_a_refused_request_has_no_response() -> None:
    """There is nothing to poll, and nothing to cancel."""
    service = Service(
        deque([(429, {"error": {"message": "slow down"}}), (200, {"status": "queued"})])
    )

    async def body(provider: OpenProvider) -> None:
        for kind in ("rate_limited", "malformed_reply"):
            with pytest.raises(ProviderError) as caught:
                await provider(ASK)
            assert caught.value.kind == kind

    run(service, body)
    assert service.paths() == [CREATE, CREATE]


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, PENDING, ID),
        (200, {**PENDING, "id": 5}, ""),
        (200, DONE, None),
        (200, {**PENDING, "status": []}, None),
        (500, PENDING, None),
        (200, [PENDING], None),
    ],
)
def test_only_an_unfinished_response_is_polled(status: int, body: Any, found: str | None) -> None:
    """Any other reply is final."""
    assert BACKGROUND.find_unfinished(HttpReply(status, {}, json.dumps(body).encode())) == found
