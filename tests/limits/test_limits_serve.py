"""Limits over HTTP: the server, as any client sees it, and the client of this package, over a real socket."""

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest
import trio
from patience import PATIENCE

from trioeval.errors import LimitError
from trioeval.limits import (
    Actual,
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.limits.backend import Backend
from trioeval.limits.batching import open_batching
from trioeval.limits.http_client import open_http_limits
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitKey
from trioeval.limits.open import Batch, open_limits
from trioeval.limits.server import MAX_BODY_BYTES, ServeSettings, serve_limits
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpRequest

pytestmark = pytest.mark.network

RPM = SharedLimit(key="global:llm:openai/gpt:rpm", kind="rolling", capacity=2, window=60)
SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=1, timeout=30)
SECRET, WRONG = "s3cret", "wrong"
DAILY = SharedLimit(key="daily", kind="budget", capacity=100, unit="tokens")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the environment."""
    monkeypatch.setenv("NO_PROXY", "*")


def ask(name: str, **amounts: int) -> LeaseRequest:
    return LeaseRequest(
        name, "job", tuple(Requirement(key, amount) for key, amount in amounts.items())
    )


@asynccontextmanager
async def served(backend: Backend, *, token: str | None = None) -> AsyncGenerator[str]:
    """Run a server over a backend; it has stopped when the block is left."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        settings = ServeSettings(port=0, token=token)
        url = await nursery.start(lambda **more: serve_limits(backend, settings, stop=stop, **more))
        try:
            yield url
        finally:
            stop.set()


@attrs.frozen
class Reply:
    status: int
    body: Any
    headers: Mapping[str, str]


async def request(
    method: str, url: str, data: object = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """Return the response."""
    body = data if isinstance(data, bytes) else None if data is None else json.dumps(data).encode()
    async with open_http() as client:
        reply = await client.send(HttpRequest(url, headers or {}, body, method))
    is_json = reply.headers.get("content-type") == "application/json" and reply.body
    return Reply(reply.status, json.loads(reply.body) if is_json else reply.body, reply.headers)


def request_body(name: str, **amounts: object) -> dict[str, object]:
    needs = [{"key": key, "amount": amount} for key, amount in amounts.items()]
    return {"lease_id": name, "job_id": "job", "requirements": needs}


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(PATIENCE):
            await main()

    trio.run(bounded)


def test_a_lease_is_reserved_and_completed() -> None:
    """It is granted once, granted again under the same id, and denied to others until completed."""

    async def main() -> None:
        async with served(MemoryLimits([SLOTS])) as url:
            first = await request("POST", f"{url}/v1/reserve", request_body("a", slots=1))
            assert first.status == 200
            assert first.body["granted"] is True
            assert first.headers["content-type"] == "application/json"
            again = await request("POST", f"{url}/v1/reserve", request_body("a", slots=1))
            assert again.body == first.body
            denied = await request("POST", f"{url}/v1/reserve", request_body("b", slots=1))
            assert denied.status == 200
            assert denied.body == {
                "granted": False,
                "reason": "no_capacity",
                "terminal": False,
                "retry_after_ms": 50,
                "keys": ["slots"],
                "message": denied.body["message"],
            }
            done = {"lease_id": "a", "job_id": "job", "actuals": []}
            for _twice in range(2):
                reply = await request("POST", f"{url}/v1/complete", done)
                assert (reply.status, reply.body) == (200, {"ok": True})
            after = await request("POST", f"{url}/v1/reserve", request_body("c", slots=1))
            assert after.body["granted"] is True

    in_trio(main)


def test_an_invalid_request_is_malformed_alone_and_in_a_batch() -> None:
    """The messages are the same in both; the client returns the denial of every backend."""

    async def main() -> None:
        async with served(MemoryLimits([SLOTS])) as url:
            empty = {"lease_id": "", "requirements": []}
            alone = await request("POST", f"{url}/v1/reserve", empty)
            assert alone.status == 400
            assert alone.body == {"error": "invalid_request", "message": "$: the lease id is blank"}
            batch = {"requests": [empty, request_body("a", slots=1)]}
            reply = await request("POST", f"{url}/v1/reserve/batch", batch)
            wrong, granted = reply.body["results"]
            assert wrong == {**alone.body, "message": "$.requests[0]: the lease id is blank"}
            assert granted["granted"] is True
            # A number of more than 64 bits must not be reported as not an integer.
            body = b'{"lease_id": "b", "requirements": [{"key": "slots", "amount": 18446744073709551616}]}'
            reply = await request("POST", f"{url}/v1/reserve", body)
            assert (reply.status, "must be at most 2^53-1" in reply.body["message"]) == (400, True)
            async with open_http_limits(url, request_timeout=PATIENCE) as backend:
                (denied,) = await backend.reserve([LeaseRequest("", "", ())])
                assert isinstance(denied, Denied)
                assert (denied.reason, denied.terminal) == ("invalid_request", True)

    in_trio(main)


def test_a_limit_is_removed_over_http() -> None:
    """The key may be any text; a missing limit is reported with its key."""

    async def main() -> None:
        odd = SharedLimit(key="a/b ?ü", kind="budget", capacity=1)
        limits = MemoryLimits([odd, SLOTS])
        async with (
            served(limits) as url,
            open_http_limits(url, request_timeout=PATIENCE) as backend,
        ):
            await backend.remove(odd.key)
            assert [state.limit for state in await limits.states()] == [SLOTS]
            with pytest.raises(LimitError, match="unknown_limit_key: unknown limit 'a/b"):
                await backend.remove(odd.key)
            reply = await request("DELETE", f"{url}/v1/admin/limits/slots")
            assert (reply.status, reply.body) == (200, {"ok": True})
            assert await limits.states() == []

    in_trio(main)


def test_ql_31_a_batch_is_answered_in_order() -> None:
    """A granted, an invalid and a denied item get three answers, and the valid ones count."""

    async def main() -> None:
        limits = MemoryLimits([DAILY])
        async with served(limits) as url:
            items = [
                request_body("a", daily=60),
                request_body("b", daily="many"),
                request_body("c", monthly=1),
            ]
            reply = await request("POST", f"{url}/v1/reserve/batch", {"requests": items})
            assert reply.status == 200
            granted, malformed, denied = reply.body["results"]
            assert granted["granted"] is True
            assert malformed == {
                "error": "invalid_request",
                "message": "$.requests[1].requirements[0].amount: must be a whole number, got 'many'",
            }
            assert (denied["reason"], denied["terminal"]) == ("unknown_limit_key", True)
            ends = [
                {"lease_id": "a", "actuals": [{"key": "daily", "actual_amount": 7}]},
                {"lease_id": "b", "actuals": [{"key": "daily"}]},
                {"lease_id": "unknown"},
            ]
            reply = await request("POST", f"{url}/v1/complete/batch", {"requests": ends})
            ok, wrong, unknown = reply.body["results"]
            assert ok == unknown == {"ok": True}
            assert wrong["error"] == "invalid_request"
        (state,) = await limits.states()
        assert (state.used, state.outstanding) == (7, 0)

    in_trio(main)


@pytest.mark.parametrize(
    ("method", "path", "data", "status", "error"),
    [
        ("POST", "/v1/reserve", b"{", 400, "invalid_request"),
        ("POST", "/v1/reserve", [], 400, "invalid_request"),
        ("POST", "/v1/reserve", {**request_body("a", slots=1), "prio": 1}, 400, "invalid_request"),
        ("POST", "/v1/reserve", {"lease_id": "", "requirements": []}, 400, "invalid_request"),
        ("POST", "/v1/reserve", {"lease_id": "a", "requirements": []}, 400, "invalid_request"),
        ("POST", "/v1/reserve", request_body("a" * 257, slots=1), 400, "invalid_request"),
        ("POST", "/v1/reserve", request_body("a", **{"k" * 257: 1}), 400, "invalid_request"),
        ("POST", "/v1/reserve", request_body("a", slots=0), 400, "invalid_request"),
        ("POST", "/v1/reserve", request_body("a", slots=2**63), 400, "invalid_request"),
        ("POST", "/v1/reserve", request_body("a", slots=2**64 - 1), 400, "invalid_request"),
        ("POST", "/v1/reserve/batch", {"requests": []}, 400, "invalid_request"),
        ("POST", "/v1/reserve/batch", {"requests": [{}] * 257}, 400, "invalid_request"),
        ("POST", "/v1/complete", {"job_id": "x"}, 400, "invalid_request"),
        ("POST", "/v1/complete/batch", {}, 400, "invalid_request"),
        ("POST", "/v1/extend", {"lease_ids": []}, 400, "invalid_request"),
        ("PUT", "/v1/admin/limits", {"key": "x", "kind": "sliding"}, 400, "invalid_request"),
        ("POST", "/v1/admin/pause", {"key": "slots"}, 400, "invalid_request"),
        ("POST", "/v1/admin/pause", {"key": "no", "seconds": 1}, 404, "not_found"),
        ("GET", "/v1/admin/limits/no", None, 404, "not_found"),
        ("GET", "/v2/reserve", None, 404, "not_found"),
        ("GET", "/v1/reserve", None, 405, "method_not_allowed"),
        ("DELETE", "/v1/admin/limits", None, 405, "method_not_allowed"),
        ("POST", "/healthz", {}, 405, "method_not_allowed"),
        ("POST", "/v1/reserve", b" " * (MAX_BODY_BYTES + 1), 413, "invalid_request"),
    ],
)
def test_errors_have_a_status_and_a_code(
    method: str, path: str, data: object, status: int, error: str
) -> None:
    """Nothing is taken."""

    async def main() -> None:
        limits = MemoryLimits([SLOTS])
        async with served(limits) as url:
            reply = await request(method, url + path, data)
            assert (reply.status, reply.body["error"]) == (status, error)
        (state,) = await limits.states()
        assert state == LimitState(limit=SLOTS)

    in_trio(main)


def test_limits_are_read_and_changed() -> None:
    """All limits, one by its key, a new one, a smaller one, and a paused one."""

    async def main() -> None:
        async with served(MemoryLimits([RPM, DAILY])) as url:
            assert (await request("GET", f"{url}/healthz")).body == {"status": "ok"}
            found = (await request("GET", f"{url}/v1/admin/limits")).body["limits"]
            assert [one["key"] for one in found] == ["daily", RPM.key]
            assert found[1] == {
                "key": RPM.key,
                "kind": "rolling",
                "capacity": 2,
                "window_seconds": 60.0,
                "overage": "debt",
                "status": "active",
                "used": 0,
                "outstanding": 0,
                "debt": 0,
            }
            # A key may have a slash in it.
            assert (await request("GET", f"{url}/v1/admin/limits/{RPM.key}")).body == found[1]
            made = {"key": "new", "kind": "concurrency", "capacity": 3, "timeout_seconds": 5}
            assert (await request("PUT", f"{url}/v1/admin/limits", made)).body["capacity"] == 3
            await request("POST", f"{url}/v1/reserve", request_body("a", daily=60))
            less = {"key": "daily", "kind": "budget", "capacity": 50}
            reply = await request("PUT", f"{url}/v1/admin/limits", less)
            assert (reply.body["status"], reply.body["pending_capacity"]) == ("decreasing", 50)
            pause = {"key": "new", "seconds": 60}
            reply = await request("POST", f"{url}/v1/admin/pause", pause)
            assert reply.body["paused_until"] > trio.current_time() + 50
            assert 50 < reply.body["paused_seconds"] <= 60
            for seconds in (1e300, 10**9 + 1):
                reply = await request(
                    "POST", f"{url}/v1/admin/pause", {**pause, "seconds": seconds}
                )
                assert (reply.status, reply.body["error"]) == (400, "invalid_request")
            other = {"key": "new", "kind": "rolling", "capacity": 3, "window_seconds": 5}
            reply = await request("PUT", f"{url}/v1/admin/limits", other)
            assert (reply.status, reply.body["error"]) == (400, "invalid_request")
            head = await request("HEAD", f"{url}/v1/admin/limits")
            assert (head.status, head.body) == (200, b"")

    in_trio(main)


def test_requests_without_the_token_are_rejected() -> None:
    """Only the health check is public."""

    async def main() -> None:
        limits = MemoryLimits([SLOTS])
        async with served(limits, token=SECRET) as url:
            assert (await request("GET", f"{url}/healthz")).status == 200
            for headers in (
                {},
                {"authorization": "Bearer wrong"},
                {"authorization": "Basic s3cret"},
            ):
                reply = await request(
                    "POST", f"{url}/v1/reserve", request_body("a", slots=1), headers
                )
                assert (reply.status, reply.body["error"]) == (401, "unauthorized")
                assert reply.headers["www-authenticate"] == "Bearer"
            known = {"authorization": "bearer s3cret"}
            assert (await request("GET", f"{url}/v1/admin/limits", None, known)).status == 200
            async with open_http_limits(url, token=WRONG, request_timeout=PATIENCE) as backend:
                with pytest.raises(
                    LimitError, match=r"invalid_request: .* does not accept the token"
                ) as caught:
                    await backend.reserve([ask("a", slots=1)])
                assert "wrong" not in str(caught.value)
            there = url.replace("http://", "http://:s3cret@")
            async with open_http_limits(there, request_timeout=PATIENCE) as backend:
                assert isinstance((await backend.reserve([ask("a", slots=1)]))[0], Granted)
                assert "s3cret" not in repr(backend)

    in_trio(main)


@attrs.define(eq=False)
class Broken:
    """A backend that is unreachable, or does not know the answer, and counts requests."""

    error: LimitError | None = None
    asks: list[LeaseRequest] = attrs.field(factory=list)

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        self.asks += asks
        self._fail()
        return [Unknown("half of the answer was lost")] * len(asks)

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        assert settlements
        self._fail()

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        return [False] * len(lease_ids)

    async def states(self) -> Sequence[LimitState]:
        self._fail()
        return []

    async def define(self, limit: SharedLimit, /) -> LimitState:
        return LimitState(limit=limit)

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        raise AssertionError(key, seconds)

    async def remove(self, key: str, /) -> None:
        raise AssertionError(key)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("reason", [None, "limiter_unavailable"])
def test_an_unknown_outcome_is_not_a_denial(reason: str | None) -> None:
    """The status is 503, or an error in place in a batch; the client returns unknown either way."""
    error = None if reason is None else LimitError("limiter_unavailable", "no connection")

    async def main() -> None:
        broken = Broken(error)
        async with (
            served(broken) as url,
            open_http_limits(url, request_timeout=PATIENCE) as backend,
        ):
            alone = await request("POST", f"{url}/v1/reserve", request_body("a", slots=1))
            assert (alone.status, alone.body["error"]) == (503, "backend_error")
            both = await request(
                "POST", f"{url}/v1/reserve/batch", {"requests": [request_body("a", slots=1)] * 2}
            )
            if reason is None:
                assert both.status == 200
                assert (
                    both.body["results"]
                    == [{"error": "backend_error", "message": "half of the answer was lost"}] * 2
                )
            else:
                assert (both.status, both.body["error"]) == (503, "backend_error")
            with pytest.raises(LimitError, match=r"limiter_unavailable: .* status 503"):
                await backend.reserve([ask("a", slots=1)])
            answers = await backend.reserve([ask("a", slots=1), ask("b", slots=1)])
            assert all(isinstance(one, Unknown) for one in answers)
            if reason is not None:
                with pytest.raises(LimitError, match="limiter_unavailable"):
                    await backend.complete([Settlement("a", "job"), Settlement("b", "job")])
                with pytest.raises(LimitError, match="limiter_unavailable"):
                    await backend.states()

    in_trio(main)


def test_the_client_behaves_like_the_backend_behind_the_server() -> None:
    """All operations of a backend have the same answers, through one instance of each."""

    async def main() -> None:
        limits = MemoryLimits([RPM, SLOTS, DAILY])
        async with (
            served(limits) as url,
            open_http_limits(f"{url}/", request_timeout=PATIENCE) as backend,
        ):
            assert isinstance(backend, Backend)
            assert list(await backend.states()) == list(await limits.states())
            wanted = ask("a", daily=60, slots=1)
            (granted,) = await backend.reserve([wanted])
            assert [granted] == list(await limits.reserve([wanted]))
            answers = await backend.reserve([ask("b", daily=60), ask("c", daily=41), ask("d", x=1)])
            assert list(answers) == list(
                await limits.reserve([ask("b", daily=60), ask("c", daily=41), ask("d", x=1)])
            )
            assert [type(one) for one in answers] == [Denied] * 3
            assert list(await backend.extend(["a", "unknown"])) == [True, False]
            await backend.complete([Settlement("a", "job", (Actual("daily", 10),))])
            await backend.complete([Settlement("a", "job"), Settlement("b", "job")])
            smaller = attrs.evolve(DAILY, capacity=10, description="a day")
            assert await backend.define(smaller) == (await limits.states())[0]
            paused = await backend.pause("slots", 30)
            assert paused == (await limits.states())[2]
            assert paused.paused_until is not None
            assert paused.paused_for is not None
            assert paused.paused_for > 0
            with pytest.raises(LimitError, match=r"invalid_request: .*: a pause of inf s"):
                await backend.pause(paused.limit.key, float("inf"))
            with pytest.raises(LimitError, match="unknown_limit_key: unknown limit 'no'"):
                await backend.pause("no", 30)
            with pytest.raises(LimitError, match="invalid_request"):
                await backend.define(attrs.evolve(SLOTS, kind="budget", timeout=None))
            assert list(await backend.reserve([])) == []
            assert list(await backend.extend([])) == []

    in_trio(main)


def test_more_items_than_a_batch_are_sent_in_several() -> None:
    """Each batch has at most 256 items, and all are answered in order."""

    async def main() -> None:
        wide = SharedLimit(key="wide", kind="budget", capacity=1000)
        async with (
            served(MemoryLimits([wide])) as url,
            open_http_limits(url, request_timeout=PATIENCE) as backend,
        ):
            asks = [ask(f"{number}", **{"wide" if number % 3 else "x": 1}) for number in range(600)]
            answers = await backend.reserve(asks)
            assert [isinstance(one, Granted) for one in answers] == [
                number % 3 > 0 for number in range(600)
            ]
            await backend.complete([Settlement(one.lease_id, "job") for one in asks])
            (state,) = await backend.states()
            assert (state.used, state.outstanding) == (400, 0)
            assert await backend.extend([one.lease_id for one in asks]) == [False] * 600

    in_trio(main)


def test_ql_32_a_batch_that_fails_keeps_its_lease_ids() -> None:
    """The server stops and returns with a lease of the first attempt: nothing is reserved twice."""

    async def main() -> None:
        limits = MemoryLimits([DAILY])
        asks = [ask("a", daily=30), ask("b", daily=30)]
        async with (
            served(limits) as url,
            open_http_limits(url, request_timeout=PATIENCE) as backend,
            open_batching(backend, size=2) as batched,
        ):
            assert [type(one) for one in await batched.reserve(asks)] == [Granted] * 2
        async with (
            open_http_limits(url, request_timeout=PATIENCE) as backend,
            open_batching(backend, size=2) as batched,
        ):
            answers = await batched.reserve(asks)
            assert [type(one) for one in answers] == [Unknown] * 2
            assert isinstance(answers[0], Unknown)
            assert "connection refused by " in answers[0].message
        async with (
            served(limits) as url,
            open_http_limits(url, request_timeout=PATIENCE) as backend,
            open_batching(backend, size=2) as batched,
        ):
            assert [type(one) for one in await batched.reserve(asks)] == [Granted] * 2
        (state,) = await limits.states()
        assert state.outstanding == 60

    in_trio(main)


def test_lanes_acquire_their_permits_over_http() -> None:
    """From a suite's settings to the server's limits: reserved, settled as used, and returned."""

    async def main() -> None:
        keys = [LimitKey("daily", "tokens"), LimitKey("slots", "slots")]
        limits = MemoryLimits([DAILY])
        async with (
            served(limits) as url,
            open_limits(
                backend="http",
                url=url,
                batch=Batch(),
                limits=[SLOTS],
                request_timeout=PATIENCE,
                rng=Random(1),  # noqa: S311
            ) as shared,
        ):
            permits = shared.permits("lane", keys)
            permit = await permits.take(0, 30, 0.0, lambda _shortage: None)
            daily, slots = await limits.states()
            assert (daily.outstanding, slots.used) == (30, 1)
            permit.settle(20, 0.0)
            permit = await permits.take(1, 30, 0.0, lambda _shortage: None)
            permit.give_back()
        daily, slots = await limits.states()
        assert (daily.used, daily.outstanding, slots.used) == (20, 0, 0)

    in_trio(main)


async def answer_with(raw: bytes, stream: trio.SocketStream) -> None:
    """A server with the same answer to everything; None closes the connection."""
    async with stream:
        await stream.receive_some(65536)
        if raw:
            await stream.send_all(raw)
        else:
            await trio.sleep_forever()


def response(body: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no answer from .* within 0.1 seconds"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{",
            "connection lost before the end of the reply",
        ),
        (response("<html>"), "status 200"),
        (response('{"error": "not_found"}', "404 Not Found"), "status 404: not_found"),
        (response("", "500 Internal Server Error"), "status 500"),
        (response('{"granted": true, "reserved_at": 1}', "202 Accepted"), "status 202"),
        (response('{"error": "too much"}', "400 Bad Request"), "status 400: too much"),
        (response("{}"), ": {}"),
        (response('{"results": [1, 2, 3]}'), "invalid answer"),
        (response('{"limits": [{"key": "a"}]}'), "invalid answer"),
    ],
)
def test_any_other_response_is_an_unknown_outcome(raw: bytes, message: str) -> None:
    """The request may have been carried out."""

    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, partial(answer_with, raw), [listener])
            async with open_http_limits(url, request_timeout=PATIENCE if raw else 0.1) as backend:
                several = await backend.reserve([ask("a", x=1), ask("b", x=1)])
                assert [type(one) for one in several] == [Unknown] * 2

                async def reserve_one() -> None:
                    (alone,) = await backend.reserve([ask("a", x=1)])
                    assert isinstance(alone, Unknown)
                    raise LimitError("limiter_unavailable", alone.message)

                for attempt in (
                    reserve_one,
                    lambda: backend.complete([Settlement("a", "job")]),
                    lambda: backend.complete([Settlement("a", "job"), Settlement("b", "job")]),
                    backend.states,
                    lambda: backend.define(SLOTS),
                    lambda: backend.pause("a", 5) if b"not_found" not in raw else backend.states(),
                ):
                    with pytest.raises(LimitError, match=message) as caught:
                        await attempt()
                    assert caught.value.reason == "limiter_unavailable"
            nursery.cancel_scope.cancel("done")

    in_trio(main)


@pytest.mark.parametrize(
    "url",
    ["", "redis://host", "127.0.0.1:8770", "http://", "http://h:x", "http://h?a=b", "http://[::1"],
)
def test_an_invalid_address_is_rejected_before_anything_is_sent(url: str) -> None:
    """The message shows a valid address."""

    async def main() -> None:
        with pytest.raises(LimitError, match="must be like http://host:8770, got"):
            async with open_http_limits(url, request_timeout=PATIENCE):
                raise AssertionError

    in_trio(main)


def test_a_rejected_address_is_shown_without_its_password() -> None:
    """The message may be logged."""

    async def main() -> None:
        with pytest.raises(LimitError) as caught:
            async with open_http_limits("redis://me:s3cret@host"):
                raise AssertionError
        assert "s3cret" not in str(caught.value)
        assert "host" in str(caught.value)

    in_trio(main)


def test_an_address_in_use_raises_os_error() -> None:
    """It is raised to the caller of the server, not wrapped."""

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            settings = ServeSettings(port=taken.getsockname()[1])
            async with trio.open_nursery() as nursery:
                with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
                    await nursery.start(serve_limits, MemoryLimits(), settings)

    in_trio(main)


@attrs.define(eq=False)
class Slow(Broken):
    """A backend that answers when the test allows it."""

    reached: trio.Event = attrs.field(factory=trio.Event)
    go: trio.Event = attrs.field(factory=trio.Event)

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        self.reached.set()
        await self.go.wait()
        return [Granted(1.0)] * len(asks)


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a grace that would exceed the timeout of `in_trio` if a stop used it up."""
    monkeypatch.setattr("trioeval.limits.server.STOP_GRACE", 600.0)


@pytest.mark.usefixtures("long_grace")
def test_a_stop_waits_for_pending_requests_only() -> None:
    """A pending request is answered; an idle connection does not delay the stop."""

    async def main() -> None:
        slow = Slow()
        decisions: list[Decision] = []

        async def reserve(backend: Backend) -> None:
            decisions.extend(await backend.reserve([ask("a", x=1)]))

        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            url = await nursery.start(
                lambda **more: serve_limits(slow, ServeSettings(port=0), stop=stop, **more)
            )
            async with open_http_limits(url, request_timeout=PATIENCE) as backend:
                await backend.states()  # leaves a connection open
                async with trio.open_nursery() as callers:
                    callers.start_soon(reserve, backend)
                    await slow.reached.wait()
                    stop.set()
                    slow.go.set()
                assert decisions == [Granted(1.0)]

    in_trio(main)


@pytest.mark.usefixtures("long_grace")
def test_a_server_that_is_cancelled_ends_at_once() -> None:
    """This holds with a pending request, and with an incomplete one."""

    async def main() -> None:
        slow = Slow()
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_limits, slow, ServeSettings(port=0))
            port = int(url.rpartition(":")[2])
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"POST /v1/reserve HTTP/1.1\r\nhost: x\r\ncontent-le")
            async with (
                open_http_limits(url, request_timeout=PATIENCE) as backend,
                trio.open_nursery() as callers,
            ):
                callers.start_soon(backend.reserve, [ask("a", x=1)])
                await slow.reached.wait()
                callers.cancel_scope.cancel("enough")
            nursery.cancel_scope.cancel("enough")
        await stream.aclose()

    in_trio(main)


@pytest.mark.usefixtures("long_grace")
def test_a_client_that_reads_nothing_does_not_block_the_server() -> None:
    """The answer exceeds all buffers; the server is cancelled while sending it."""

    async def main() -> None:
        long = attrs.evolve(DAILY, description="x" * 32_000_000)
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_limits, MemoryLimits([long]), ServeSettings(port=0))
            stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
            await stream.send_all(b"GET /v1/admin/limits HTTP/1.1\r\nhost: localhost\r\n\r\n")
            seen = 0
            while seen < 100_000:  # well within the body
                seen += len(await stream.receive_some(65536))
            nursery.cancel_scope.cancel("enough")
        await stream.aclose()

    in_trio(main)


def test_a_client_that_disconnects_does_not_affect_others() -> None:
    """It disconnects within a head, within a body, and before its answer."""

    async def main() -> None:
        limits = MemoryLimits([SLOTS])
        async with served(limits) as url:
            port = int(url.rpartition(":")[2])
            for part in (
                b"POST /v1/res",
                b"POST /v1/reserve HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{",
                b"POST /v1/reserve HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
                b"\x16\x03\x01 no http at all\r\n\r\n",
            ):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await stream.send_all(part)
                await stream.aclose()
            async with open_http_limits(url, request_timeout=PATIENCE) as backend:
                assert isinstance((await backend.reserve([ask("a", slots=1)]))[0], Granted)

    in_trio(main)
