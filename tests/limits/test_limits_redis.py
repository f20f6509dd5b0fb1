"""Limits on a Redis server: faults of the connection, the server and its end."""

import math
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import attrs
import pytest
import trio
from patience import PATIENCE
from redis_server import RedisServer, needs_redis, open_server

from trioeval.errors import LimitError
from trioeval.limits import (
    Actual,
    Denied,
    Granted,
    LeaseRequest,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.backend import Backend
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.redis import RedisLimits, open_redis

pytestmark = [needs_redis, pytest.mark.network, pytest.mark.slow]

T = TypeVar("T")

RPM = SharedLimit(key="rpm", kind="rolling", capacity=1000, window=60)
SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=2, timeout=60)
PURSE = SharedLimit(key="purse", kind="budget", capacity=1000)


@pytest.fixture(scope="module")
def _server() -> Iterator[RedisServer]:
    with open_server() as server:
        yield server


@pytest.fixture
def server(_server: RedisServer) -> RedisServer:
    """An empty server."""
    _server.command("FLUSHALL")
    return _server


def test_a_clock_that_is_set_back_does_not_lengthen_anything(server: RedisServer) -> None:
    """Shares stored with instants an hour ahead end on time: windows, holds, periods, pauses."""
    limits = (
        RPM,
        attrs.evolve(SLOTS, timeout=30),
        attrs.evolve(PURSE, reset=90),
        attrs.evolve(RPM, key="paused"),
    )
    now = 10_000.0

    async def main() -> None:
        nonlocal now
        async with open_redis(
            server.url, namespace="back", now=lambda: now, request_timeout=PATIENCE
        ) as redis:
            for limit in limits:
                await redis.define(limit)
            await redis.reserve([ask("a", rpm=1000, slots=1), ask("b", slots=1)])
            await redis.reserve([ask("c", purse=900)])
            await redis.complete([Settlement("c", "job")])
            await redis.pause("paused", 20)
            now -= 3600
            (denied,) = await redis.reserve([ask("d", rpm=1)])
            assert isinstance(denied, Denied)
            assert denied.retry_after == 60
            for seconds, key, amount in (
                (20, "paused", 1),
                (10, "slots", 1),
                (30, "rpm", 1000),
                (30, "purse", 900),
            ):
                now += seconds - 0.25
                (early,) = await redis.reserve([ask(f"{key}-early", **{key: amount})])
                assert isinstance(early, Denied), key
                now += 0.25
                (in_time,) = await redis.reserve([ask(key, **{key: amount})])
                assert isinstance(in_time, Granted), key

    trio.run(main)


def test_the_clock_of_a_server_may_be_an_hour_behind_stored_instants(server: RedisServer) -> None:
    """This is the server's own clock after a correction."""

    async def main() -> None:
        ahead = time.time() + 3600
        async with open_redis(
            server.url, namespace="ahead", now=lambda: ahead, request_timeout=PATIENCE
        ) as before:
            await before.define(RPM)
            await before.reserve([ask("a", rpm=1000)])
        async with open_redis(server.url, namespace="ahead", request_timeout=PATIENCE) as redis:
            (denied,) = await redis.reserve([ask("b", rpm=1)])
            assert isinstance(denied, Denied)
            assert 0 < denied.retry_after <= 60
            (again,) = await redis.reserve([ask("a", rpm=1000)])
            assert isinstance(again, Granted)

    trio.run(main)


def test_a_pause_of_at_least_some_seconds_is_never_shortened(server: RedisServer) -> None:
    """Law RETRY_AFTER for clients that do not know of each other's waits."""

    async def main() -> None:
        async with open_redis(server.url, request_timeout=PATIENCE) as redis:
            await redis.define(RPM)
            waits = []
            for seconds in (5.0, 30.0, 10.0):
                state = await redis.pause_at_least("rpm", seconds)
                waits.append(state.paused_for)
            assert waits == pytest.approx([5, 30, 30], abs=2)
            assert (await redis.pause("rpm", 0)).paused_for is None
            with pytest.raises(LimitError, match="unknown_limit_key"):
                await redis.pause_at_least("none", 1.0)

    trio.run(main)


def ask(lease_id: str, **amounts: int) -> LeaseRequest:
    return LeaseRequest(
        lease_id, "job", tuple(Requirement(key, amount) for key, amount in amounts.items())
    )


ESCAPED = "in a password, write / ? # % as %2F %3F %23 %25"


def over(lease_id: str, **actuals: int) -> Settlement:
    return Settlement(lease_id, "job", tuple(Actual(key, used) for key, used in actuals.items()))


def run(url: str, body: Callable[[RedisLimits], Awaitable[None]], **settings: Any) -> None:
    """Run a body with limits, with a timeout."""

    async def main() -> None:
        with trio.fail_after(PATIENCE):
            async with open_redis(url, **{"request_timeout": PATIENCE, **settings}) as limits:
                await body(limits)

    trio.run(main)


async def define(limits: RedisLimits, *defined: SharedLimit) -> None:
    for limit in defined:
        await limits.define(limit)


async def used(limits: RedisLimits) -> dict[str, int]:
    return {state.limit.key: state.used for state in await limits.states()}


# The wire ------------------------------------------------------------------------------------------------


def test_limits_are_a_backend(server: RedisServer) -> None:
    async def body(limits: RedisLimits) -> None:
        assert isinstance(limits, Backend)
        assert await limits.states() == []

    run(server.url, body)


def test_a_definition_is_returned_in_full(server: RedisServer) -> None:
    """All fields of a limit are returned, over TCP and over a Unix socket."""
    daily = SharedLimit(
        key="tenant:ü:daily {x}",
        kind="budget",
        capacity=2**53 - 1,
        reset=86_400,
        overage="deny",
        unit="tokens",
        description='all "models"\n',
    )

    async def body(limits: RedisLimits) -> None:
        await define(limits, SLOTS, daily, RPM)
        assert [state.limit for state in await limits.states()] == [RPM, SLOTS, daily]

    run(server.url, body)
    run(server.socket_url, body, namespace="other")


def test_amounts_are_exact_up_to_the_largest(server: RedisServer) -> None:
    most = 2**53 - 1

    async def body(limits: RedisLimits) -> None:
        await define(limits, SharedLimit(key="money", kind="budget", capacity=most))
        first, second, third = await limits.reserve(
            [ask("a", money=most - 1), ask("b", money=2), ask("c", money=1)]
        )
        assert (type(first), type(second), type(third)) == (Granted, Denied, Granted)
        await limits.complete([over("a", money=most - 2)])
        (state,) = await limits.states()
        assert (state.used, state.outstanding) == (most - 2, 1)

    run(server.url, body)


def test_a_batch_is_one_round_trip(server: RedisServer) -> None:
    """Many leases are decided and ended in one run of the script."""

    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM)
        server.command("CONFIG", "RESETSTAT")
        await limits.reserve([ask(f"lease-{n}", rpm=1) for n in range(100)])
        await limits.complete([over(f"lease-{n}") for n in range(100)])
        statistics = server.command("INFO", "commandstats").decode()
        (calls,) = re.findall(r"cmdstat_evalsha:calls=(\d+)", statistics)
        assert calls == "2"

    run(server.url, body)


def test_ql_31_decisions_have_the_order_of_their_requests(server: RedisServer) -> None:
    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM, SLOTS)
        granted, invalid, unknown, denied, again = await limits.reserve(
            [
                ask("a", rpm=1, slots=1),
                ask("b", rpm=0),
                ask("c", unknown=1),
                ask("d", rpm=1001),
                ask("a", rpm=1, slots=1),
            ]
        )
        assert again == granted
        reasons = [one.reason for one in (invalid, unknown, denied) if isinstance(one, Denied)]
        assert reasons == ["invalid_request", "unknown_limit_key", "exceeds_capacity"]

    run(server.url, body)


def test_instants_are_those_of_the_server(server: RedisServer) -> None:
    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM)
        before, _ = map(int, re.findall(rb"\r\n(\d+)\r\n", server.command("TIME")))
        (granted,) = await limits.reserve([ask("a", rpm=1)])
        after, _ = map(int, re.findall(rb"\r\n(\d+)\r\n", server.command("TIME")))
        assert isinstance(granted, Granted)
        assert before <= granted.reserved_at < after + 1

    run(server.url, body)


def test_everything_is_under_one_hash_tag(server: RedisServer) -> None:
    """A cluster keeps keys with one tag on one node, and two namespaces share nothing."""

    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM, SLOTS, PURSE)
        await limits.reserve([ask("a{b}", rpm=1, slots=1, purse=1)])

    run(server.url, body, namespace="us")
    keys = re.findall(rb"^([^\r$*:].*)\r$", server.command("KEYS", "*"), re.MULTILINE)
    assert len(keys) == 9
    assert all(key.startswith(b"{us}") for key in keys)

    async def other(limits: RedisLimits) -> None:
        assert await limits.states() == []

    run(server.url, other, namespace="them")


def test_concurrent_programs_never_exceed_the_capacity(server: RedisServer) -> None:
    """With many connections at once, the granted holds never exceed the capacity."""
    held, most, granted = 0, 0, 0

    async def program(number: int) -> None:
        nonlocal held, most, granted
        async with open_redis(server.url, request_timeout=PATIENCE) as limits:
            for attempt in range(60):
                lease_id = f"lease-{number}-{attempt}"
                (decision,) = await limits.reserve([ask(lease_id, slots=1, rpm=1)])
                if isinstance(decision, Granted):
                    # Counted after it is taken and before it is returned: never too many.
                    held, granted = held + 1, granted + 1
                    most = max(most, held)
                    await trio.lowlevel.checkpoint()
                    held -= 1
                    await limits.complete([over(lease_id)])

    async def body(limits: RedisLimits) -> None:
        await define(limits, SLOTS, RPM)
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(program, number)
        assert await used(limits) == {"rpm": granted, "slots": 0}

    run(server.url, body)
    assert most == 2


# Lost answers ---------------------------------------------------------------------------------------------


def test_cancelled_requests_do_not_mix_up_answers(server: RedisServer) -> None:
    """A request after a cancelled one gets its own answer, and the cancelled one can be ended."""

    async def reserve_and_end(limits: RedisLimits, number: int) -> None:
        (decision,) = await limits.reserve([ask(f"lease-{number}", rpm=number + 1)])
        assert isinstance(decision, Granted)
        (again,) = await limits.reserve([ask(f"lease-{number}", rpm=number + 2)])
        assert isinstance(again, Denied)
        assert again.message.endswith(f"lease-{number} was granted for different requirements")

    async def body(limits: RedisLimits) -> None:
        await define(limits, SharedLimit(key="rpm", kind="rolling", capacity=10**6, window=60))
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(reserve_and_end, limits, number)
                with trio.move_on_after(0.0001 * (number % 7)):
                    await reserve_and_end(limits, 100 + number)
        await limits.complete([over(f"lease-{100 + number}", rpm=0) for number in range(60)])
        assert await used(limits) == {"rpm": sum(range(1, 61))}

    run(server.url, body)


def test_ql_21_a_repeated_request_gets_the_lost_answer(server: RedisServer) -> None:
    """The outcome of a request to a hanging server is unknown. Repeated, it takes the room once."""

    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM)
        async with open_redis(server.url, request_timeout=0.2) as hasty:
            await answered(hasty.states)  # it is connected
            server.send(signal.SIGSTOP)
            try:
                for _ in range(3):
                    with pytest.raises(LimitError, match=r"^limiter_unavailable: Redis at .*: "):
                        await hasty.reserve([ask("a", rpm=1)])
            finally:
                server.send(signal.SIGCONT)
            (granted,) = await answered(lambda: hasty.reserve([ask("a", rpm=1)]))
            assert isinstance(granted, Granted)
        assert await used(limits) == {"rpm": 1}

    async def answered(asks: Callable[[], Awaitable[T]]) -> T:
        while True:
            with suppress(LimitError):  # so short a timeout may end before a slow machine answers
                return await asks()

    run(server.url, body)


def test_a_server_that_does_not_answer_occupies_no_connection(server: RedisServer) -> None:
    """However many requests were cancelled while connecting, the next one succeeds."""

    async def body(limits: RedisLimits) -> None:
        server.send(signal.SIGSTOP)
        try:
            for number in range(100):
                with trio.move_on_after(0.001) as scope:
                    await limits.reserve([ask(f"lease-{number}", rpm=1)])
                assert scope.cancelled_caught
        finally:
            server.send(signal.SIGCONT)
        await define(limits, RPM)
        (granted,) = await limits.reserve([ask("a", rpm=1)])
        assert isinstance(granted, Granted)
        assert server.command("CLIENT", "LIST").count(b" addr=") == 2  # and that of this request

    run(server.url, body)


def test_a_cancelled_listener_leaves_no_connection(server: RedisServer) -> None:
    """The listener is cancelled while connecting or while listening."""

    async def body(limits: RedisLimits) -> None:
        await limits.states()
        server.send(signal.SIGSTOP)
        try:
            for seconds in (0, 0.001, 0.01):
                with trio.move_on_after(seconds):
                    await limits.wakes(lambda _: None)
        finally:
            server.send(signal.SIGCONT)
        notified = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limits.wakes, lambda _: notified.set())
            await notified.wait()
            nursery.cancel_scope.cancel()
        await limits.states()
        with trio.fail_after(PATIENCE):
            while server.command("CLIENT", "LIST").count(b" addr=") > 2:
                await limits.states()  # until the server has closed it

    run(server.url, body)


def test_an_unreachable_server_is_reported(server: RedisServer) -> None:
    """No request is sent before the first operation; then the error names the address."""

    async def body(limits: RedisLimits) -> None:
        with pytest.raises(LimitError, match=r"^limiter_unavailable: Redis at 127\.0\.0\.1:1: .+"):
            await limits.states()

    run("redis://127.0.0.1:1", body)


# The server's end -----------------------------------------------------------------------------------------


def test_the_script_is_loaded_again_on_a_server_that_lost_it(server: RedisServer) -> None:
    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM)
        server.command("SCRIPT", "FLUSH")
        decisions = await limits.reserve([ask("a", rpm=1)])
        assert isinstance(decisions[0], Granted)

    run(server.url, body)


def test_leases_survive_a_crash_of_server_and_client() -> None:
    """With appendfsync always, a killed server loses no lease."""
    with open_server("--appendonly", "yes", "--appendfsync", "always") as server:
        answers: list[Sequence[object]] = []

        async def before(limits: RedisLimits) -> None:
            await define(limits, RPM, SLOTS, PURSE)
            answers.append(await limits.reserve([ask("a", rpm=5, slots=1, purse=10)]))
            server.kill()
            with pytest.raises(LimitError, match="limiter_unavailable"):
                await limits.reserve([ask("b", rpm=1)])
            server.start()
            answers.append(await limits.reserve([ask("a", rpm=5, slots=1, purse=10)]))

        async def after(limits: RedisLimits) -> None:
            answers.append(await limits.reserve([ask("a", rpm=5, slots=1, purse=10)]))
            assert await used(limits) == {"purse": 0, "rpm": 5, "slots": 1}
            await limits.complete([over("a", rpm=2, purse=7)])
            assert await used(limits) == {"purse": 7, "rpm": 2, "slots": 0}

        run(server.url, before)
        server.kill()
        server.start()
        run(server.url, after)
        assert isinstance(answers[0][0], Granted)
        assert answers[0] == answers[1] == answers[2]


def test_a_server_without_memory_refuses_and_loses_nothing(server: RedisServer) -> None:
    """A refused request has changed nothing, so the counts are right when there is memory again."""

    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM, SLOTS)
        await limits.reserve([ask("a", rpm=3, slots=1)])
        server.command("CONFIG", "SET", "maxmemory", "1")
        try:
            with pytest.raises(LimitError, match=r"^limiter_unavailable: Redis at .*maxmemory"):
                await limits.reserve([ask("b", rpm=1)])
            await limits.complete([over("a", rpm=1)])  # needs no memory
        finally:
            server.command("CONFIG", "SET", "maxmemory", "0")
        assert await used(limits) == {"rpm": 1, "slots": 0}

    run(server.url, body)


def test_a_password_is_used_and_never_shown() -> None:
    with open_server("--requirepass", "p@ss") as server:
        address = f"127.0.0.1:{server.port}"

        async def refused(limits: RedisLimits) -> None:
            with pytest.raises(
                LimitError, match=r"^invalid_request: .* rejects this client: "
            ) as caught:
                await limits.states()
            assert "wrong" not in str(caught.value)

        async def let_in(limits: RedisLimits) -> None:
            assert await limits.states() == []

        run(f"redis://:wrong@{address}", refused)
        run(f"redis://{address}", refused)
        run(f"redis://default:p%40ss@{address}/3", let_in)


@pytest.mark.parametrize(
    ("url", "namespace", "message"),
    [
        (
            "http://:secret@localhost",
            "x",
            "invalid_request: the URL of a Redis server must begin with one of redis://…, rediss://…, unix://…",
        ),
        *(
            (
                f"redis://:secret@{rest}",
                "x",
                (
                    "invalid_request: the URL of a Redis server must have a port from 1 to 65535, or none, "
                    f"and options like ?db=0; {ESCAPED}"
                ),
            )
            for rest in ("h:abc", "h:99999", "h:0", "h?db")
        ),
        *(
            (
                f"redis://:secret@{rest}",
                "x",
                (
                    "invalid_request: the URL of a Redis server may have only the number of a database "
                    f"after its host; {ESCAPED}"
                ),
            )
            for rest in ("h/notadb", "h/1/2", "h/-1")
        ),
        *(
            (
                f"redis://h{rest}",
                "x",
                f"invalid_request: the URL of a Redis server may have only these options: db; {ESCAPED}",
            )
            for rest in ("?foo=bar", "?stream_timout=1", "/0#x", "?ssl_certfile=x")
        ),
        (
            "redis://h?db=x",
            "x",
            "invalid_request: the URL of a Redis server must have a number for db",
        ),
        *(
            (url, "x", f"invalid_request: the URL of a Redis server must name a host; {ESCAPED}")
            for url in ("redis://:6379", "redis://:secret@/x@h")
        ),
        (
            "unix://",
            "x",
            (
                "invalid_request: the URL of a Redis server must have a path after unix://, for example "
                "unix:///run/redis.sock"
            ),
        ),
        (
            "rediss://h?ssl_ca_certs=/nowhere.pem",
            "x",
            "invalid_request: the certificates of a Redis server cannot be used: No such file or directory",
        ),
        (
            "redis://localhost",
            "a{b",
            "invalid_request: the namespace 'a{b' must not be blank or contain braces",
        ),
        (
            "redis://localhost",
            " ",
            "invalid_request: the namespace ' ' must not be blank or contain braces",
        ),
    ],
)
def test_an_invalid_url_or_namespace_is_rejected(url: str, namespace: str, message: str) -> None:
    async def body(limits: RedisLimits) -> None:
        raise AssertionError

    with pytest.raises(LimitError) as caught:
        run(url, body, namespace=namespace)
    assert str(caught.value) == message


def test_durations_are_bounded(server: RedisServer) -> None:
    """They are counted in microseconds; longer ones are rejected, as in memory; pauses are shorter."""
    most, week = 10.0**9, 7 * 86_400.0
    longest = SharedLimit(key="long", kind="rolling", capacity=1, window=most)

    async def body(limits: Backend) -> None:
        assert (await limits.define(longest)).limit == longest
        for window in (most + 1, 1e13, 1e300, math.inf, math.nan):
            with pytest.raises(LimitError, match=r"invalid_request: long: .* too long"):
                await limits.define(attrs.evolve(longest, window=window))
        for seconds in (-1.0, week + 1, most, 1e300, math.inf, math.nan):
            with pytest.raises(LimitError, match="invalid_request: long: a pause of"):
                await limits.pause("long", seconds)
        with pytest.raises(LimitError, match="invalid_request: the key of a limit has 257"):
            await limits.define(attrs.evolve(longest, key="k" * 257))
        paused = await limits.pause("long", week)
        assert paused.paused_for == pytest.approx(week)
        (denied,) = await limits.reserve([ask("a", long=1)])
        assert isinstance(denied, Denied)
        assert denied.retry_after == pytest.approx(week, abs=60)
        (state,) = await limits.states()
        assert state.limit == longest
        opened = await limits.pause("long", 0)
        assert (opened.paused_until, opened.paused_for) == (None, None)
        assert isinstance((await limits.reserve([ask("b", long=1)]))[0], Granted)

    run(server.url, body, namespace="spans")

    async def in_memory() -> None:
        await body(MemoryLimits())

    trio.run(in_memory)


def test_a_limit_is_removed(server: RedisServer) -> None:
    """Its leases live on and count nowhere at their end; a new limit with its key starts empty."""

    async def body(limits: Backend) -> None:
        for limit in (RPM, SLOTS, PURSE):
            await limits.define(limit)
        both = ask("a", rpm=600, slots=1, purse=10)
        (granted,) = await limits.reserve([both])
        assert isinstance(granted, Granted)
        for key in ("slots", "rpm"):
            await limits.remove(key)
            with pytest.raises(LimitError, match=f"unknown_limit_key: unknown limit '{key}'"):
                await limits.remove(key)
        assert await limits.reserve([both]) == [granted]
        assert await limits.extend(["a"]) == [True]
        (denied,) = await limits.reserve([ask("b", slots=1, purse=1)])
        assert isinstance(denied, Denied)
        assert (denied.reason, denied.keys) == ("unknown_limit_key", ("slots",))
        await limits.define(attrs.evolve(PURSE, key="rpm"))
        await limits.complete([over("a", rpm=1000, purse=4)])
        states = await limits.states()
        found = [(state.limit.key, state.used, state.outstanding) for state in states]
        assert found == [("purse", 4, 0), ("rpm", 0, 0)]

    run(server.url, body, namespace="removed")

    async def in_memory() -> None:
        await body(MemoryLimits())

    trio.run(in_memory)


def test_waiting_clients_are_notified_of_a_removed_limit(server: RedisServer) -> None:
    """Waiting clients retry, and the answer is that the limit does not exist."""
    notifications: list[tuple[str, ...]] = []
    events = [trio.Event(), trio.Event()]

    def on_room(keys: tuple[str, ...]) -> None:
        events[len(notifications)].set()
        notifications.append(keys)

    async def body(limits: RedisLimits) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limits.wakes, on_room)
            await events[0].wait()
            await limits.define(SLOTS)
            await limits.reserve([ask(name, slots=1) for name in "abc"])
            await limits.remove("slots")
            await events[1].wait()
            assert notifications == [(), ("slots",)]
            nursery.cancel_scope.cancel()

    run(server.url, body)


@pytest.mark.parametrize("name", ["lease id", "key"])
def test_names_are_bounded(server: RedisServer, name: str) -> None:
    """Otherwise clients could use any amount of memory."""

    async def body(limits: Backend) -> None:
        for length in (256, 257):
            long = "x" * length
            request = ask(long, slots=1) if name == "lease id" else ask("a", **{long: 1})
            (denied,) = await limits.reserve([request])
            assert isinstance(denied, Denied)
            assert ("has 257 characters" in denied.message) == (length == 257)
            assert (denied.reason == "invalid_request") == (length == 257)

    run(server.url, body, namespace=f"names {len(name)}")

    async def in_memory() -> None:
        await body(MemoryLimits())

    trio.run(in_memory)


def test_an_error_of_the_block_is_not_wrapped(server: RedisServer) -> None:
    async def body(limits: RedisLimits) -> None:
        await limits.states()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(server.url, body)


# Memory and wakes -----------------------------------------------------------------------------------------


def test_ql_35_memory_is_bounded_by_retention(server: RedisServer) -> None:
    """A closed lease leaves only a record, which Redis drops ten minutes after the last request."""
    clock = [1000.0]

    async def body(limits: RedisLimits) -> None:
        await define(limits, RPM, SLOTS, PURSE)
        for batch in range(20):
            clock[0] += 60
            names = [f"lease-{batch}-{n}" for n in range(50)]
            await limits.reserve([ask(name, rpm=1, slots=1, purse=20) for name in names])
            await limits.complete([over(name, purse=0) for name in names[::2]])
        clock[0] += 600

    run(server.url, body, now=lambda: clock[0])
    # The limits' own keys stay; those of leases all expire.
    lives = server.command("INFO", "keyspace").decode()
    (keys, expires) = map(int, re.findall(r"db0:keys=(\d+),expires=(\d+)", lives)[0])
    assert (keys - expires, expires) == (8, 20 * 50)
    times = re.findall(rb":(\d+)\r", server.command("PTTL", "{trioeval}:l:lease-0-0"))
    assert 0 < int(times[0]) <= 600_000

    async def looked_at(limits: RedisLimits) -> None:
        assert {state.limit.key: state.outstanding for state in await limits.states()}["purse"] == 0

    run(server.url, looked_at, now=lambda: clock[0])
    counts = [server.command("ZCARD", f"{{trioeval}}:z:{key}") for key in ("rpm", "slots", "purse")]
    assert counts == [b":0\r\n"] * 3


def test_a_denied_client_is_notified_of_room(server: RedisServer) -> None:
    """A settled share is announced only if a request was denied for lack of it."""
    notifications: list[tuple[str, ...]] = []
    news = trio.Event()

    def on_room(keys: tuple[str, ...]) -> None:
        notifications.append(keys)
        news.set()

    async def body(limits: RedisLimits) -> None:
        nonlocal news
        await define(limits, SLOTS, RPM)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limits.wakes, on_room)
            await news.wait()
            assert notifications == [()]

            await limits.reserve([ask("a", slots=1, rpm=1), ask("b", slots=1)])
            await limits.complete([over("b")])
            await limits.reserve([ask("c", slots=1), ask("d", slots=1)])
            news = trio.Event()
            await limits.complete([over("a", rpm=0)])
            await news.wait()
            assert notifications[1:] == [("slots",)]

            news = trio.Event()
            await limits.reserve([ask("e", slots=1), ask("f", slots=1)])
            await limits.define(
                SharedLimit(key="slots", kind="concurrency", capacity=3, timeout=60)
            )
            await news.wait()
            assert notifications[2:] == [("slots",)]
            nursery.cancel_scope.cancel()

    run(server.url, body)


def test_listening_is_resumed_after_a_crash() -> None:
    notified = trio.Event()
    with open_server() as server:

        def on_room(keys: tuple[str, ...]) -> None:
            assert keys == ()
            notified.set()

        async def body(limits: RedisLimits) -> None:
            nonlocal notified
            async with trio.open_nursery() as nursery:
                nursery.start_soon(limits.wakes, on_room)
                await notified.wait()
                notified = trio.Event()
                server.kill()
                server.start()
                await notified.wait()
                nursery.cancel_scope.cancel()

        run(server.url, body)
