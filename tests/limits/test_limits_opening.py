"""Opening limits of each backend: in this process, over HTTP, in Redis."""

import logging
import random
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import pytest
import trio
from patience import PATIENCE
from redis_server import RedisServer, needs_redis, open_server

from trioeval import Row, parse_suite, run_suite
from trioeval.errors import LimitError, SuiteError
from trioeval.limits import LeaseRequest, LimitState, Requirement, SharedLimit, Unknown, remote
from trioeval.limits.backend import Backend, SharedLimits, difference
from trioeval.limits.http_client import open_http_limits
from trioeval.limits.limits_file import write_limits
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitKey
from trioeval.limits.open import Batch, _create_missing, open_limits
from trioeval.limits.redis import open_redis
from trioeval.limits.server import ServeSettings, serve_limits
from trioeval.testing import run_virtual

R = TypeVar("R")

RPM = SharedLimit(key="rpm", kind="rolling", capacity=2, window=60)
SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=1, timeout=30)


def drawing() -> random.Random:
    return random.Random(7)  # noqa: S311 - the same in every run


def in_trio(main: Callable[[], Awaitable[R]]) -> R:
    async def bounded() -> R:
        with trio.fail_after(PATIENCE):
            return await main()

    return trio.run(bounded)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the environment."""
    monkeypatch.setenv("NO_PROXY", "*")


def ignore(_shortage: object) -> None:
    """Ignore a warning."""


async def keys_and_usage(limits: SharedLimits) -> list[tuple[str, int]]:
    return [(state.limit.key, state.limit.capacity) for state in await limits.states()]


async def take_one(limits: SharedLimits, *keys: LimitKey) -> None:
    permit = await limits.permits("lane", keys).take(0, 1, 0.0, ignore)
    permit.settle(1, 0.0)


def test_limits_in_memory_come_from_the_call_and_from_the_file(tmp_path: Path) -> None:
    """Earlier usage counts from the moment of opening."""
    file = tmp_path / "limits.json"
    write_limits(file, [LimitState(limit=RPM, used=1)])

    async def main() -> tuple[list[tuple[str, int]], bool]:
        await trio.sleep(80_000)
        async with open_limits(limits=[SLOTS], limits_file=file, rng=drawing()) as limits:
            permits = limits.permits("lane", [LimitKey("rpm", "requests")])
            assert permits.take_nowait(0, 0, 0.0) is not None
            full = permits.take_nowait(0, 0, 0.0) is None
            return await keys_and_usage(limits), full

    assert run_virtual(main) == ([("rpm", 2), ("slots", 1)], True)


def test_ql_15_a_pending_decrease_of_a_file_takes_effect_without_a_request(tmp_path: Path) -> None:
    """The file states that the limit decreases; the end of the usage is enough."""
    file = tmp_path / "limits.json"
    decreasing = LimitState(
        limit=SharedLimit(key="slots", kind="concurrency", capacity=5, timeout=30),
        status="decreasing",
        pending_capacity=2,
        used=3,
    )
    write_limits(file, [decreasing])

    async def main() -> float:
        async with open_limits(limits_file=file, rng=drawing()) as limits:
            await take_one(limits, LimitKey("slots", "slots"))
            [state] = await limits.states()
            assert (state.status, state.limit.capacity) == ("active", 2)
            return trio.current_time()

    assert run_virtual(main) == 30.0


def test_a_period_that_started_earlier_continues(tmp_path: Path) -> None:
    """A run that reads the file does not start a period, whatever its clock."""
    file = tmp_path / "limits.json"
    daily = SharedLimit(key="daily", kind="budget", capacity=10, reset=86_400)
    began_at = time.time() - 86_000
    write_limits(file, [LimitState(limit=daily, used=8, began_at=began_at)])

    async def main() -> None:
        await trio.sleep(80_000)
        async with open_limits(limits_file=file, rng=drawing()) as limits:
            [state] = await limits.states()
            assert state.used == 8
            await trio.sleep(401)
            [state] = await limits.states()
            assert state.used == 0

    run_virtual(main)


def test_invalid_settings_are_reported_when_limits_are_opened(tmp_path: Path) -> None:
    async def main() -> None:
        for backend in ("redis", "http"):
            with pytest.raises(
                LimitError, match=r"^invalid_request: two limits have the key 'rpm'"
            ):
                async with open_limits(
                    backend=backend, url="redis://nowhere", limits=[RPM, RPM], rng=drawing()
                ):
                    pass
        with pytest.raises(SuiteError):
            async with open_limits(limits_file=tmp_path / "none.json", rng=drawing()):
                pass
        with pytest.raises(LimitError, match=r"^invalid_request: two limits have the key 'rpm'"):
            async with open_limits(limits=[RPM, RPM], rng=drawing()):
                pass
        with pytest.raises(LimitError, match=r"^invalid_request: the backend \"redis\" needs"):
            async with open_limits(backend="redis", rng=drawing()):
                pass

    run_virtual(main)


def test_limits_in_memory_need_no_network() -> None:
    """Neither the Redis client nor an HTTP client or server is imported."""
    script = (
        "import sys, trioeval.limits.open\n"
        "assert not {'coredis', 'httpx2', 'starlette'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@asynccontextmanager
async def served(backend: Backend) -> AsyncGenerator[str]:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = partial(serve_limits, backend, ServeSettings(port=0), stop=stop)
        url: str = await nursery.start(serve)
        try:
            yield url
        finally:
            stop.set()


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("batch", [None, Batch(size=4, flush=0.001)])
def test_missing_limits_are_created_and_existing_ones_stay(batch: Batch | None) -> None:
    """A differing definition is warned of, with both definitions."""
    warnings: list[str] = []

    async def main() -> None:
        keeper = MemoryLimits([SharedLimit(key="rpm", kind="rolling", capacity=7, window=60)])
        async with (
            served(keeper) as url,
            open_limits(
                backend="http",
                url=url,
                limits=[RPM, SLOTS],
                batch=batch,
                request_timeout=PATIENCE,
                rng=drawing(),
                warn=warnings.append,
            ) as limits,
        ):
            assert await keys_and_usage(limits) == [("rpm", 7), ("slots", 1)]
            await take_one(limits, LimitKey("rpm", "requests"), LimitKey("slots", "slots"))
            await take_one(limits, LimitKey("rpm", "requests"), LimitKey("slots", "slots"))
        used = {state.limit.key: state.used for state in await keeper.states()}
        assert used == {"rpm": 2, "slots": 0}

    in_trio(main)
    stands = "(capacity 7, windowSeconds 60)"
    here = "the different definition here (capacity 2, windowSeconds 60) is ignored"
    assert warnings == [f"limit 'rpm' stays as it is {stands}; {here}"]


@pytest.mark.slow
@pytest.mark.network
def test_a_run_warns_of_limits_that_differ_on_the_server() -> None:
    """It is a warning of the run, like any other."""
    warnings: list[str] = []
    limit = {"key": "rpm", "kind": "rolling", "capacity": 2, "windowSeconds": 60}

    async def keep(_row: Row) -> None: ...

    async def main() -> None:
        async with served(MemoryLimits([attrs.evolve(RPM, window=30)])) as url:
            limits = {"backend": "http", "url": url, "limits": [limit]}
            providers = [{"id": "echo", "lane": {"limits": [{"key": "rpm", "unit": "requests"}]}}]
            document = {"providers": providers, "prompts": ["a"], "limits": limits}
            await run_suite(parse_suite(document), emit=keep, warn=warnings.append)

    in_trio(main)
    assert [text.partition(" (")[0] for text in warnings] == ["limit 'rpm' stays as it is"]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (LimitState(limit=RPM), None),
        (LimitState(limit=attrs.evolve(RPM, unit="calls", description="ours")), None),
        (LimitState(limit=attrs.evolve(RPM, capacity=3)), "capacity 3, windowSeconds 60"),
        (LimitState(limit=attrs.evolve(RPM, window=30)), "capacity 2, windowSeconds 30"),
        (
            LimitState(limit=attrs.evolve(RPM, overage="deny")),
            "capacity 2, windowSeconds 60, overage deny",
        ),
        (
            LimitState(
                limit=attrs.evolve(RPM, capacity=9), status="decreasing", pending_capacity=2
            ),
            None,
        ),
        (
            LimitState(limit=RPM, status="decreasing", pending_capacity=1),
            "capacity 1, windowSeconds 60",
        ),
    ],
)
def test_the_relevant_fields_of_a_limit_are_compared(
    kept: LimitState, expected: str | None
) -> None:
    """Texts are ignored; a pending capacity counts as the capacity."""
    found = difference(kept, RPM)
    here = "the different definition here (capacity 2, windowSeconds 60) is ignored"
    assert found == (expected and f"limit 'rpm' stays as it is ({expected}); {here}")


@pytest.mark.slow
@pytest.mark.network
@needs_redis
def test_limits_in_redis_are_found_under_their_namespace() -> None:
    async def main(url: str) -> None:
        async with open_limits(
            backend="redis",
            url=url,
            namespace="team",
            limits=[RPM],
            request_timeout=PATIENCE,
            rng=drawing(),
        ) as shared:
            await take_one(shared, LimitKey("rpm", "requests"))
        async with open_redis(url, namespace="team", request_timeout=PATIENCE) as limits:
            [state] = await limits.states()
            assert (state.limit, state.used) == (RPM, 1)
        async with open_redis(url, request_timeout=PATIENCE) as limits:
            assert await limits.states() == []

    with open_server() as server:
        in_trio(partial(main, server.url))


@pytest.mark.slow
@pytest.mark.network
@needs_redis
def test_a_run_recreates_its_limits_on_a_server_that_lost_them() -> None:
    """A server that was down at the start gets them as soon as it is available."""

    async def main(server: RedisServer) -> None:
        warnings: list[str] = []
        async with open_limits(
            backend="redis",
            url=server.url,
            limits=[RPM],
            unreachable="open",
            patience=0.0,
            rng=drawing(),
            warn=warnings.append,
        ) as limits:
            use = LimitKey("rpm", "requests")
            await take_one(limits, use)  # without a lease
            for _ in range(2):
                server.start()
                while not await is_counted(limits, use):
                    await trio.lowlevel.checkpoint()
                server.kill()
        assert f"Redis at 127.0.0.1:{server.port}: " in warnings[0]

    async def is_counted(limits: SharedLimits, use: LimitKey) -> bool:
        # Shortly after its start the old connection is found to be broken, and calls continue without leases.
        await take_one(limits, use)
        try:
            return [(one.limit, one.used >= 1) for one in await limits.states()] == [(RPM, True)]
        except LimitError:
            return False

    with open_server() as server:
        server.kill()
        in_trio(partial(main, server))


@pytest.mark.network
@needs_redis
@pytest.mark.parametrize(
    ("user", "message"),
    [("", "it demands a password"), (":wrong@", "invalid username-password pair")],
)
def test_a_rejected_password_ends_the_wait_at_once(user: str, message: str) -> None:
    """Waiting would not help; the password is not shown."""

    async def main(url: str) -> None:
        with pytest.raises(LimitError, match=f"rejects this client: {message}") as caught:
            async with open_limits(
                backend="redis",
                url=url.replace("//", f"//{user}"),
                limits=[RPM],
                unreachable="open",
                patience=60.0,
                rng=drawing(),
            ):
                pass
        assert caught.value.reason == "invalid_request"
        assert url.removeprefix("redis://") in caught.value.message
        assert "wrong" not in caught.value.message

    with open_server("--requirepass", "right") as server:
        in_trio(partial(main, server.url))


@pytest.mark.network
def test_a_foreign_server_is_reported_with_its_response() -> None:
    """A server that answers must not be reported as unreachable."""

    async def main() -> None:
        async def reply(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n"
            await stream.send_all(head + b"connection: close\r\n\r\n" + b'{"hello":"x"}')
            await stream.aclose()

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, reply, 0, host="127.0.0.1"))
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            async with open_http_limits(url, request_timeout=PATIENCE) as backend:
                ask = LeaseRequest("lease", "job", (Requirement("rpm", 1),))
                [answer] = await backend.reserve([ask])
            assert isinstance(answer, Unknown)
            assert answer.message.startswith(f"{url}: invalid answer from the server: ")
            nursery.cancel_scope.cancel()

    in_trio(main)


@pytest.mark.slow
@pytest.mark.network
def test_a_limit_of_another_kind_on_the_server_is_an_error() -> None:
    """No limit is created: a run under other limits would not be the requested run."""

    async def main() -> None:
        keeper = MemoryLimits([SLOTS])
        other = SharedLimit(key="slots", kind="rolling", capacity=5, window=1)
        async with served(keeper) as url:
            message = (
                r"^invalid_request: 'slots' is a concurrency limit and cannot become a rolling one"
            )
            with pytest.raises(LimitError, match=message):
                async with open_limits(
                    backend="http",
                    url=url,
                    limits=[RPM, other],
                    unreachable="open",
                    request_timeout=PATIENCE,
                    rng=drawing(),
                ):
                    pass
        assert [state.limit for state in await keeper.states()] == [SLOTS]

    in_trio(main)


@pytest.mark.slow
@pytest.mark.network
def test_a_decreasing_limit_of_a_file_is_created_with_its_pending_capacity(tmp_path: Path) -> None:
    """None of it is in use on the server on which it is created."""
    file = tmp_path / "limits.json"
    state = LimitState(limit=RPM, status="decreasing", pending_capacity=1, used=2, debt=4)
    write_limits(file, [state])

    async def main() -> None:
        keeper = MemoryLimits()
        async with (
            served(keeper) as url,
            open_limits(
                backend="http", url=url, limits_file=file, request_timeout=PATIENCE, rng=drawing()
            ) as limits,
        ):
            made = SharedLimit(key="rpm", kind="rolling", capacity=1, window=60)
            assert [*await limits.states()] == [LimitState(limit=made)]

    in_trio(main)


def unused_url() -> str:
    """The URL of a port that no system assigns."""
    return "http://127.0.0.1:1"


@pytest.mark.network
def test_an_unreachable_backend_ends_the_run_at_its_start_if_configured() -> None:
    async def main() -> None:
        url = unused_url()
        with pytest.raises(LimitError, match=r"^limiter_unavailable"):
            async with open_limits(
                backend="http", url=url, limits=[RPM], patience=0.0, rng=drawing()
            ):
                pass

    in_trio(main)


@pytest.mark.network
def test_a_backend_must_be_reachable_if_no_limits_are_to_be_created() -> None:
    """Otherwise every call would wait in vain; with `unreachable: open` no request is sent at the start."""

    async def main() -> None:
        with pytest.raises(LimitError, match=r"^limiter_unavailable"):
            async with open_limits(backend="http", url=unused_url(), patience=0.0, rng=drawing()):
                pass
        async with open_limits(
            backend="http", url=unused_url(), unreachable="open", rng=drawing()
        ) as limits:
            limits.permits("lane", [LimitKey("rpm", "requests")])

    in_trio(main)


@pytest.mark.network
def test_calls_continue_without_a_reachable_backend_if_configured(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning is logged."""
    monkeypatch.setattr(remote, "FLUSH_WITHIN", 0.1)  # seconds of real time

    async def main() -> None:
        async with open_limits(
            backend="http",
            url=unused_url(),
            limits=[RPM],
            patience=0.0,
            unreachable="open",
            rng=drawing(),
        ) as limits:
            await take_one(limits, LimitKey("rpm", "requests"))

    with caplog.at_level(logging.WARNING, logger="trioeval.limits"):
        in_trio(main)
    assert "limits could not be created: limiter_unavailable" in caplog.text


class Late(MemoryLimits):
    """A backend that is unreachable before an instant."""

    def __init__(self, from_: float) -> None:
        super().__init__()
        self.from_ = from_

    async def states(self) -> Sequence[LimitState]:
        await trio.sleep(0.5)
        if trio.current_time() < self.from_:
            raise LimitError("limiter_unavailable", "no answer")
        return await super().states()


@pytest.mark.parametrize("from_", [0.0, 3.0])
def test_limits_are_created_as_soon_as_the_backend_is_reachable(from_: float) -> None:
    async def main() -> tuple[float, list[str]]:
        late = Late(from_)
        await _create_missing(late, [RPM, SLOTS], 30.0, lambda: 0.0)
        at = trio.current_time()
        return at, [state.limit.key for state in await late.states()]

    at, keys = run_virtual(main)
    assert from_ <= at < from_ + 2.0
    assert keys == ["rpm", "slots"]


def test_an_open_does_not_wait_longer_than_the_patience() -> None:
    async def main() -> float:
        with pytest.raises(LimitError, match=r"^limiter_unavailable: no answer"):
            await _create_missing(Late(1e6), [RPM], 10.0, lambda: 0.5)
        return trio.current_time()

    assert 5.0 < run_virtual(main) <= 11.0
