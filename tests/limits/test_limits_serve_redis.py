"""Limits over HTTP that are stored in Redis: two servers act as one, and outlive each other."""

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from patience import PATIENCE
from redis_server import RedisServer, needs_redis, open_server

from trioeval.cli.app import run_command_line
from trioeval.errors import LimitError
from trioeval.limits import (
    Denied,
    Granted,
    LeaseRequest,
    Requirement,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.limits.backend import create_missing
from trioeval.limits.http_client import open_http_limits
from trioeval.limits.redis import open_redis
from trioeval.limits.server import ServeSettings, serve_limits

pytestmark = [pytest.mark.network, needs_redis]

SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=1, timeout=30)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the environment."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with open_server() as server:
        yield server


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(PATIENCE):
            await main()

    trio.run(bounded)


def ask(name: str) -> LeaseRequest:
    return LeaseRequest(name, "job", (Requirement("slots", 1),))


def test_two_servers_over_one_redis_are_one_limiter(redis: RedisServer) -> None:
    """A grant by one is a denial by the other, and known under its id."""

    async def main() -> None:
        async with (
            open_redis(redis.url, namespace="two", request_timeout=PATIENCE) as one,
            open_redis(redis.url, namespace="two", request_timeout=PATIENCE) as other,
            trio.open_nursery() as nursery,
        ):
            urls = [
                await nursery.start(serve_limits, backend, ServeSettings(port=0))
                for backend in (one, other)
            ]
            async with (
                open_http_limits(urls[0], request_timeout=PATIENCE) as first,
                open_http_limits(urls[1], request_timeout=PATIENCE) as second,
            ):
                await first.define(SLOTS)
                (granted,) = await first.reserve([ask("a")])
                assert isinstance(granted, Granted)
                again, denied = await second.reserve([ask("a"), ask("b")])
                assert again == granted
                assert isinstance(denied, Denied)
                assert (denied.reason, denied.terminal) == ("no_capacity", False)
                await second.complete([Settlement("a", "job")])
                (state,) = await first.states()
                assert (state.limit, state.used) == (SLOTS, 0)
            nursery.cancel_scope.cancel("done")

    in_trio(main)


def test_an_unreachable_redis_is_not_a_denial() -> None:
    """The server reports an unknown outcome; clients do not treat it as an answer."""

    async def main() -> None:
        with open_server() as redis:
            async with (
                open_redis(redis.url, request_timeout=PATIENCE) as backend,
                trio.open_nursery() as nursery,
            ):
                url = await nursery.start(serve_limits, backend, ServeSettings(port=0))
                async with open_http_limits(url, request_timeout=PATIENCE) as client:
                    await client.define(SLOTS)
                    redis.kill()
                    with pytest.raises(LimitError, match=r"limiter_unavailable: .* status 503"):
                        await client.reserve([ask("a")])
                    answers = await client.reserve([ask("a"), ask("b")])
                    assert [type(one) for one in answers] == [Unknown] * 2
                nursery.cancel_scope.cancel("done")

    in_trio(main)


def test_limits_in_redis_are_set_and_shown(
    redis: RedisServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same commands work; a namespace is separate from others."""
    patient = partial(open_redis, request_timeout=PATIENCE)
    monkeypatch.setattr("trioeval.limits.redis.open_redis", patient)
    where = ["--url", redis.url, "--namespace", "shown"]
    words = ["set", "daily", "--kind", "budget", "--capacity", "100"]
    assert run_command_line(["limits", *words, *where]) == 0
    assert capsys.readouterr().err == "daily: 0 of 100 in use (budget), active\n"
    assert run_command_line(["limits", "show", "--json", *where]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["key"], found["capacity"]) == ("daily", 100)
    assert run_command_line(["limits", "show", "--url", redis.url, "--namespace", "empty"]) == 0
    assert capsys.readouterr().err == "no limits\n"
    assert run_command_line(["limits", "set", "no", "--pause", "5", *where]) == 2
    assert "unknown_limit_key" in capsys.readouterr().err


def test_a_file_of_limits_creates_missing_limits_in_redis(redis: RedisServer) -> None:
    """Existing limits stay unchanged, with a warning."""
    theirs = SharedLimit(key="theirs", kind="budget", capacity=5)

    async def main() -> None:
        async with open_redis(redis.url, namespace="filled", request_timeout=PATIENCE) as backend:
            await backend.define(theirs)
            mine = SharedLimit(key="theirs", kind="budget", capacity=7)
            warnings = await create_missing(backend, [SLOTS, mine])
            assert [state.limit for state in await backend.states()] == [SLOTS, theirs]
        stands = (
            "stays as it is (capacity 5); the different definition here (capacity 7) is ignored"
        )
        assert warnings == [f"limit 'theirs' {stands}"]

    in_trio(main)


def test_an_invalid_file_is_reported_before_redis_is_used(
    redis: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the position in the file."""
    path = tmp_path / "limits.json"
    path.write_text("[{}]")
    words = ["serve", "--redis", redis.url, "--limits", str(path)]
    assert run_command_line(["limits", *words]) == 2
    assert "[0].key: is missing" in capsys.readouterr().err
