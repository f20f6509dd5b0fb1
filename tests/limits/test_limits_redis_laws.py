"""The laws of limits and leases over Redis, and its agreement with the ledger."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from limits_machine import machine
from limits_portal import PortalBackend, open_portal
from patience import PATIENCE
from redis_server import needs_redis, open_server

from trioeval.errors import LimitError
from trioeval.limits import Actual, Denied, LeaseRequest, Requirement, Settlement, SharedLimit
from trioeval.limits.ledger import LimitLedger
from trioeval.limits.redis import open_redis

pytestmark = [needs_redis, pytest.mark.network, pytest.mark.slow]

KEYS = ("rpm", "tpm", "slots", "purse", "daily")
_names = (f"example-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def open_limits() -> Iterator[Callable[[], PortalBackend]]:
    """Return a function that opens empty limits, all on one server."""
    with open_server() as server, open_portal() as portal:
        yield lambda: portal.open(
            partial(
                open_redis,
                server.url,
                namespace=next(_names),
                now=lambda: portal.now,
                request_timeout=PATIENCE,
            )
        )


def test_the_laws_hold_over_redis(open_limits: Callable[[], PortalBackend]) -> None:
    """The state machine of the ledger also checks Redis."""
    run_state_machine_as_test(
        machine(open_limits),
        settings=settings(max_examples=60, stateful_step_count=40),
    )


seconds = st.integers(0, 40).map(lambda n: n / 8)
leaps = st.sampled_from(
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.125, 0.125, 1.0, 3.0, 10.0, 300.0, 599.0, 700.0]
)
capacities = st.sampled_from([1, 2, 3, 8, 16, 16])
spans = st.sampled_from([0.5, 10.0, 10.0, 600.0, 1000.0])
overages = st.sampled_from(["debt", "deny"])
lease_ids = st.integers(0, 9).map(str)


def limits_of(key: str) -> st.SearchStrategy[SharedLimit]:
    """Definitions of one key, which always have the same kind."""
    common = {"key": st.just(key), "capacity": capacities, "overage": overages}
    if key in ("rpm", "tpm"):
        return st.builds(SharedLimit, kind=st.just("rolling"), window=spans, **common)
    if key == "slots":
        return st.builds(SharedLimit, kind=st.just("concurrency"), timeout=spans, **common)
    resets = spans if key == "daily" else st.none()
    return st.builds(SharedLimit, kind=st.just("budget"), reset=resets, **common)


@st.composite
def asks(draw: st.DrawFn, names: st.SearchStrategy[str] = lease_ids) -> LeaseRequest:
    """Some requests are invalid: an amount of 0, an unknown key, or a key twice."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True))
    if draw(st.integers(0, 30)) == 0:
        keys = draw(st.sampled_from([[], [keys[0]] * 2, ["none"]]))
    least = draw(st.sampled_from([1] * 15 + [0]))
    most = draw(st.sampled_from([1, 1, 3]))
    requirements = tuple(Requirement(key, draw(st.integers(least, most))) for key in keys)
    return LeaseRequest(draw(names), "job", requirements)


@st.composite
def settlements(draw: st.DrawFn) -> Settlement:
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=4, unique=True))
    actuals = tuple(Actual(key, draw(st.integers(0, 16))) for key in keys)
    return Settlement(draw(lease_ids), "job", actuals)


def unused(lease_id: str) -> Settlement:
    """The settlement of an unused lease, whatever its keys."""
    return Settlement(lease_id, "job", tuple(Actual(key, 0) for key in KEYS))


other_kind = SharedLimit(key="rpm", kind="budget", capacity=1)
operations = st.one_of(
    st.tuples(st.just("reserve"), asks()),
    st.tuples(st.just("reserve"), asks()),
    st.tuples(st.just("reserve"), asks(st.uuids().map(str))),
    st.tuples(st.just("again"), st.integers(0, 40)),
    st.tuples(st.just("complete"), settlements()),
    st.tuples(st.just("complete"), lease_ids.map(unused)),
    st.tuples(st.just("extend"), st.lists(lease_ids, max_size=3)),
    st.tuples(st.just("define"), st.sampled_from(KEYS).flatmap(limits_of)),
    st.tuples(st.just("define"), limits_of("rpm") | st.just(other_kind)),
    st.tuples(st.just("pause"), st.sampled_from((*KEYS, "none")), seconds),
)


def _answer_of(subject: Any, now: float, name: str, *values: Any) -> object:
    """Return the answer, or the error."""
    if name == "pause":
        key, length = values
        values = (key, now + length)
    try:
        answer = getattr(subject, name)(*values, now)
    except LimitError as error:
        return str(error)
    # The ledger returns which keys have room again; Redis publishes that on a channel.
    return None if name == "complete" else answer


RPM = SharedLimit(key="rpm", kind="rolling", capacity=8, window=10.0)
TPM = attrs.evolve(RPM, key="tpm")
SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=4, timeout=10.0)
PURSE = SharedLimit(key="purse", kind="budget", capacity=8)
DAILY = attrs.evolve(PURSE, key="daily", reset=10.0)


def want(lease_id: str, **amounts: int) -> tuple[str, LeaseRequest]:
    return "reserve", LeaseRequest(
        lease_id, "job", tuple(map(Requirement, amounts, amounts.values()))
    )


@example(  # smaller capacities, which wait: at first for shares that end, then for one that is settled
    defined=(RPM, TPM, SLOTS, PURSE, DAILY),
    script=[
        (0.0, want("a", rpm=3, slots=1, purse=3)),
        (1.0, want("b", rpm=3, slots=1, purse=3)),
        (0.0, ("define", attrs.evolve(RPM, capacity=4))),
        (0.0, ("define", attrs.evolve(SLOTS, capacity=1))),
        (0.0, ("define", attrs.evolve(PURSE, capacity=4))),
        (0.0, want("c", rpm=1)),
        (0.0, want("d", rpm=2, slots=1)),
        (0.0, want("e", slots=1)),
        (0.0, want("f", slots=1, purse=1)),
        (0.0, want("g", purse=5)),
        (0.0, ("complete", Settlement("a", "job", (Actual("purse", 1), Actual("rpm", 1))))),
        (0.0, want("h", rpm=1, slots=1)),
        (9.0, want("i", rpm=1, purse=1)),
    ],
)
@example(  # a repeated lease is remembered for longer, and its hold ends when it would have
    defined=(RPM, TPM, SLOTS, PURSE, DAILY),
    script=[
        (0.0, want("a", slots=1)),
        (0.0, want("b", purse=2)),
        (6.0, want("a", slots=1)),
        (4.0, want("a", slots=1)),
        (580.0, want("b", purse=2)),
        (300.0, want("b", purse=2)),
        (300.0, ("extend", ["a", "b"])),
        (600.0, want("b", purse=2)),
    ],
)
@example(  # what is used beyond a share while the limit decreases counts in the window as it is
    defined=(RPM, TPM, SLOTS, PURSE, DAILY),
    script=[
        (0.0, want("a", rpm=6)),
        (1.0, ("define", attrs.evolve(RPM, capacity=5))),
        (1.0, ("complete", Settlement("a", "job", (Actual("rpm", 8),)))),
    ],
)
@example(  # another period of a budget begins when it is defined
    defined=(RPM, TPM, SLOTS, PURSE, DAILY),
    script=[
        (0.0, want("a", daily=4)),
        (1.0, ("complete", Settlement("a", "job"))),
        (3.0, ("define", attrs.evolve(DAILY, reset=3.0))),
        (2.0, want("b", daily=5)),
        (1.0, want("c", daily=5)),
    ],
)
@example(  # a longer retention brings nothing back that was due
    defined=(RPM, TPM, SLOTS, PURSE, DAILY),
    script=[
        (599.0, want("a", tpm=1)),
        (700.0, ("define", attrs.evolve(RPM, window=1000.0))),
        (11.0, want("a", tpm=1)),
    ],
)
@given(
    defined=st.tuples(*[limits_of(key) for key in KEYS]),
    script=st.lists(st.tuples(leaps, operations), min_size=10, max_size=40),
)
@settings(max_examples=50, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_redis_answers_like_the_ledger(
    open_limits: Callable[[], PortalBackend],
    defined: tuple[SharedLimit, ...],
    script: list[tuple[float, tuple[Any, ...]]],
) -> None:
    """Every answer, and the state of every limit after it, equals that of the ledger."""
    redis, ledger = open_limits(), LimitLedger()
    now, requests = 0.0, [LeaseRequest("first", "job", (Requirement("rpm", 1),))]
    for limit in defined:
        assert _answer_of(redis, now, "define", limit) == _answer_of(ledger, now, "define", limit)
    for leap, (name, *values) in script:
        now += leap
        is_again = name == "again"
        operation = "reserve" if is_again else name
        given = [requests[values[0] % len(requests)]] if is_again else values
        answer = _answer_of(ledger, now, operation, *given)
        assert _answer_of(redis, now, operation, *given) == answer, (operation, given, now)
        assert redis.states(now) == ledger.states(now)
        if operation == "reserve":
            requests.extend(given)
            event(answer.reason if isinstance(answer, Denied) else "granted")
    redis.close()
