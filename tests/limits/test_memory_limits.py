"""Limits in memory: a waiting call is served at the very instant at which room appears."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import attrs
import pytest
import trio
import trio.testing

from trioeval.errors import LimitError
from trioeval.kernel import Permit, Shortage
from trioeval.limits import (
    Actual,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.backend import Backend, SharedLimits
from trioeval.limits.memory import MemoryLimits, MemoryStatistics
from trioeval.limits.model import LimitKey, Unit
from trioeval.testing import run_virtual


def rolling(key: str, capacity: int, window: float = 60.0) -> SharedLimit:
    return SharedLimit(key=key, kind="rolling", capacity=capacity, window=window)


def concurrency(key: str, capacity: int, timeout: float = 60.0) -> SharedLimit:
    return SharedLimit(key=key, kind="concurrency", capacity=capacity, timeout=timeout)


def budget(key: str, capacity: int, reset: float | None = None) -> SharedLimit:
    return SharedLimit(key=key, kind="budget", capacity=capacity, reset=reset)


def tokens_of(*keys: str) -> list[LimitKey]:
    return [LimitKey(key, "tokens") for key in keys]


def ask(lease_id: str, key: str, amount: int = 1) -> LeaseRequest:
    return LeaseRequest(lease_id, "another owner", (Requirement(key, amount),))


@attrs.define(eq=False)
class Clients:
    """Calls that take leases of some keys, and the times of their grants."""

    limits: MemoryLimits
    nursery: trio.Nursery
    granted: dict[str, float] = attrs.field(factory=dict)
    refused: dict[str, str] = attrs.field(factory=dict)
    shortages: dict[str, list[Shortage]] = attrs.field(factory=dict)
    permits: dict[str, Permit] = attrs.field(factory=dict)
    scopes: dict[str, trio.CancelScope] = attrs.field(factory=dict)

    async def come(self, name: str, *keys: str, tokens: int = 1, unit: Unit = "tokens") -> None:
        """Start one call, and wait until it is served or all calls wait."""
        self.nursery.start_soon(self._client, name, [LimitKey(key, unit) for key in keys], tokens)
        await trio.testing.wait_all_tasks_blocked()

    async def _client(self, name: str, keys: Sequence[LimitKey], tokens: int) -> None:
        self.shortages[name] = []
        with trio.CancelScope() as self.scopes[name]:
            try:
                permit = await self.limits.permits(name, keys).take(
                    0, tokens, 0.0, self.shortages[name].append
                )
            except LimitError as error:
                self.refused[name] = f"{trio.current_time():g} {error.reason}"
            else:
                self.granted[name] = trio.current_time()
                self.permits[name] = permit

    def done(self, name: str, tokens: int = 1) -> None:
        """End a call."""
        self.permits.pop(name).settle(tokens, 0.0)


def played(
    states: Sequence[SharedLimit | LimitState], scene: Callable[[Clients], Awaitable[None]]
) -> Clients:
    """Play a scene on the virtual clock; no call may wait at its end."""

    async def main() -> Clients:
        async with trio.open_nursery() as nursery:
            clients = Clients(MemoryLimits(states), nursery)
            await scene(clients)
        return clients

    return run_virtual(main)


def test_memory_limits_implement_limits_and_backend() -> None:
    async def main() -> None:
        limits = MemoryLimits()
        assert isinstance(limits, Backend)
        checked: SharedLimits = limits
        assert await checked.states() == []

    run_virtual(main)


def test_ql_10_a_returned_hold_is_granted_in_the_same_step() -> None:
    """No scheduler step lies in between, and a later call cannot take it."""

    async def scene(clients: Clients) -> None:
        await clients.come("first", "slots")
        await clients.come("second", "slots")
        await trio.sleep(7)
        clients.done("first")
        assert clients.limits.statistics() == MemoryStatistics(leases=1, waiting=0, granted=2)
        assert clients.limits.permits("new", tokens_of("slots")).take_nowait(0, 1, 0.0) is None
        assert repr(clients.limits) == "<MemoryLimits: 1 leases, 0 waiting>"

    assert played([concurrency("slots", 1)], scene).granted == {"first": 0.0, "second": 7.0}


def test_a_call_takes_one_hold_whatever_its_amount() -> None:
    """A concurrency limit takes one hold per call, also when waiters are served."""

    async def scene(clients: Clients) -> None:
        for name in "abcd":
            await clients.come(name, "slots", tokens=90)
        await trio.sleep(1)
        clients.done("a", tokens=80)

    granted = played([concurrency("slots", 3)], scene).granted
    assert granted == {"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0}


def test_ql_11_an_abandoned_hold_is_granted_when_it_expires() -> None:
    """The waiter's timer fires exactly then; the old id is denied."""

    async def scene(clients: Clients) -> None:
        assert await clients.limits.reserve([ask("gone", "slots")]) == [Granted(0.0)]
        await clients.come("second", "slots")
        await trio.sleep(4)
        [denied] = await clients.limits.reserve([ask("gone", "slots")])
        assert isinstance(denied, Denied)
        assert (denied.reason, denied.terminal) == ("lease_expired", True)

    assert played([concurrency("slots", 1, timeout=3)], scene).granted == {"second": 3.0}


def test_ql_12_a_hold_does_not_expire_while_its_call_runs() -> None:
    """Neither a local waiter nor another program gets it earlier, although its timeout is shorter."""

    async def scene(clients: Clients) -> None:
        await clients.come("first", "slots")
        await clients.come("second", "slots")
        for second in range(60):
            [decision] = await clients.limits.reserve([ask(f"lease-{second}", "slots")])
            assert isinstance(decision, Denied)
            assert not decision.terminal
            await trio.sleep(1)
        clients.done("first")

    played_out = played([concurrency("slots", 1, timeout=3)], scene)
    assert played_out.granted == {"first": 0.0, "second": 60.0}


def test_ql_13_a_larger_capacity_wakes_waiting_calls() -> None:
    async def scene(clients: Clients) -> None:
        for name in "abcdef":
            await clients.come(name, "slots")
        await trio.sleep(1)
        state = await clients.limits.define(concurrency("slots", 8))
        assert (state.limit.capacity, state.used) == (8, 5)
        await clients.come("g", "slots")
        await clients.come("h", "slots")

    granted = played([concurrency("slots", 5)], scene).granted
    assert granted == dict.fromkeys("abcde", 0.0) | dict.fromkeys("fgh", 1.0)


def test_ql_14_a_smaller_capacity_takes_effect_when_enough_is_free() -> None:
    """80 of 100 are used and 60 is pending: at 60 used it takes effect, and the waiter keeps waiting."""

    async def scene(clients: Clients) -> None:
        await clients.come("large", "tpm", tokens=50)
        await clients.come("small", "tpm", tokens=30)
        await clients.limits.define(rolling("tpm", 60))
        await clients.come("waits", "tpm", tokens=10)
        [shortage] = clients.shortages["waits"]
        assert (shortage.kind, shortage.keys) == ("limit_decreasing", ("tpm",))
        await trio.sleep(1)
        clients.done("small", tokens=11)
        [state] = await clients.limits.states()
        assert (state.status, state.pending_capacity, state.used) == ("decreasing", 60, 61)
        await trio.sleep(1)
        clients.done("large", tokens=49)
        [state] = await clients.limits.states()
        assert (state.status, state.limit.capacity, state.used) == ("active", 60, 60)
        assert clients.shortages["waits"][1:] == [Shortage("rate_limit", ("tpm",), 60.0)]

    # At 60 the shares that were taken at 0 leave the window.
    assert played([rolling("tpm", 100)], scene).granted["waits"] == 60.0


def test_ql_18_a_refund_of_a_budget_wakes_a_call_that_fits() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("outstanding", "budget", tokens=200)
        await clients.come("waits", "budget", tokens=250)
        [shortage] = clients.shortages["waits"]
        assert shortage == Shortage("rate_limit", ("budget",), None)
        await trio.sleep(3)
        clients.done("outstanding", tokens=50)
        [state] = await clients.limits.states()
        assert (state.used, state.outstanding) == (750, 250)

    limit = LimitState(limit=budget("budget", 1000), used=700)
    assert played([limit], scene).granted == {"outstanding": 0.0, "waits": 3.0}


def test_ql_19_an_amount_that_a_budget_can_never_have_is_denied_at_once() -> None:
    """A waiting call is denied too, in the step in which its grant becomes impossible."""

    async def scene(clients: Clients) -> None:
        await clients.come("too much", "budget", tokens=350)
        await clients.come("outstanding", "budget", tokens=200)
        await clients.come("hopes", "budget", tokens=250)
        await clients.come("too", "budget", "slots", tokens=250)
        await clients.come("rate", "rpm")
        await clients.come("does not need it", "rpm")
        await trio.sleep(5)
        clients.done("outstanding", tokens=200)
        assert clients.limits.statistics().waiting == 1

    spent = LimitState(limit=budget("budget", 1000), used=700)
    clients = played([spent, concurrency("slots", 1), rolling("rpm", 1)], scene)
    assert clients.granted == {"outstanding": 0.0, "rate": 0.0, "does not need it": 60.0}
    assert clients.refused == {
        "too much": "0 budget_exhausted",
        "hopes": "5 budget_exhausted",
        "too": "5 budget_exhausted",
    }


def test_ql_30_a_waiter_cancelled_in_the_step_of_its_grant_takes_nothing() -> None:
    """It is cancelled first, then granted, before it runs again: the next waiter gets the lease."""

    async def scene(clients: Clients) -> None:
        for name in ("first", "cancelled", "last"):
            await clients.come(name, "slots")
        await trio.sleep(2)
        clients.scopes["cancelled"].cancel()
        clients.done("first")
        await trio.testing.wait_all_tasks_blocked()
        assert clients.limits.statistics() == MemoryStatistics(leases=1, waiting=0, granted=3)

    assert played([concurrency("slots", 1)], scene).granted == {"first": 0.0, "last": 2.0}


def test_a_waiter_granted_and_then_cancelled_in_one_step_has_its_lease() -> None:
    """The wait is over; the owner of the permit ends it."""

    async def scene(clients: Clients) -> None:
        await clients.come("first", "slots")
        await clients.come("second", "slots")
        clients.done("first")
        clients.scopes["second"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert clients.limits.statistics() == MemoryStatistics(leases=1, waiting=0, granted=2)
        clients.done("second")

    assert played([concurrency("slots", 1)], scene).granted == {"first": 0.0, "second": 0.0}


def test_a_call_cancelled_at_its_request_takes_nothing() -> None:
    """`take` is a checkpoint even if there is room."""

    async def scene(clients: Clients) -> None:
        permits = clients.limits.permits("lane", tokens_of("rpm"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await permits.take(0, 1, 0.0, print)
        assert scope.cancelled_caught
        [state] = await clients.limits.states()
        assert state.used == 0
        permits.take_nowait(0, 1, 0.0)

    played([rolling("rpm", 1)], scene)


def test_a_cancelled_waiter_no_longer_holds_back_others() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("first", "tpm", tokens=50)
        await clients.come("large", "tpm", tokens=90)
        await clients.come("small", "tpm", "other", tokens=10)
        assert clients.shortages["small"] == [Shortage("rate_limit", ("tpm",))]
        await trio.sleep(1)
        clients.scopes["large"].cancel()

    granted = played([rolling("tpm", 100), rolling("other", 100)], scene).granted
    assert granted == {"first": 0.0, "small": 1.0}


def test_the_end_of_a_share_wakes_a_waiter_at_that_instant() -> None:
    """Each waiter is woken at its own instant; the timer moves to the next one."""

    async def scene(clients: Clients) -> None:
        for at in range(3):
            await clients.come(f"{at}", "rpm")
            await trio.sleep(1)
        for late in range(3, 6):
            await clients.come(f"{late}", "rpm")
        assert clients.shortages["3"] == [Shortage("rate_limit", ("rpm",), 10.0)]

    granted = played([rolling("rpm", 3, window=10)], scene).granted
    assert granted == {"0": 0.0, "1": 1.0, "2": 2.0, "3": 10.0, "4": 11.0, "5": 12.0}


def test_the_timer_moves_on_when_its_waiter_is_cancelled() -> None:
    async def scene(clients: Clients) -> None:
        for name in ("first", "cancelled", "last"):
            await clients.come(name, "rpm")
        await trio.sleep(5)
        clients.scopes["cancelled"].cancel()

    granted = played([rolling("rpm", 1, window=10)], scene).granted
    assert granted == {"first": 0.0, "last": 10.0}


def test_a_resumed_key_wakes_its_waiters_in_order() -> None:
    """Rule 4: a paused key holds back no call on another key; after it, the order of arrival counts again."""

    async def scene(clients: Clients) -> None:
        await clients.limits.pause("a", 60)
        await clients.come("parked", "a", "shared", tokens=9)
        await clients.come("too", "a", "shared", tokens=1)
        assert clients.shortages["parked"] == [Shortage("rate_limit", ("a",), 60.0)]
        await trio.sleep(1)
        await clients.come("passes", "b", "shared", tokens=9)
        await trio.sleep(29)
        await clients.limits.pause("a", 0)
        assert [shortage.keys for shortage in clients.shortages["parked"]] == [
            ("a",),
            ("shared",),
        ]
        await clients.come("held back", "b", "shared", tokens=1)
        clients.done("passes", tokens=0)

    limits = [rolling(key, 10) for key in ("a", "b", "shared")]
    clients = played(limits, scene)
    assert clients.granted == {"passes": 1.0, "parked": 30.0, "too": 30.0, "held back": 90.0}


def test_a_pause_ends_by_itself() -> None:
    async def scene(clients: Clients) -> None:
        await clients.limits.pause("slots", 12.5)
        await clients.come("waits", "slots")
        assert clients.shortages["waits"] == [Shortage("rate_limit", ("slots",), 12.5)]

    assert played([concurrency("slots", 1)], scene).granted == {"waits": 12.5}


def test_a_budget_reset_wakes_waiters() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("first", "daily", tokens=8)
        await clients.come("waits", "daily", tokens=5)
        await trio.sleep(1)
        clients.done("first", tokens=5)

    clients = played([budget("daily", 10, reset=86_400)], scene)
    assert clients.granted == {"first": 0.0, "waits": 1.0}

    async def spent(clients: Clients) -> None:
        await clients.come("first", "daily", tokens=8)
        await clients.come("waits", "daily", tokens=2)
        await clients.come("more", "daily", tokens=1)
        assert clients.granted.keys() == {"first", "waits"}
        clients.done("first", tokens=7)

    clients = played([budget("daily", 10, reset=86_400)], spent)
    assert clients.granted["more"] == 0.0


def test_a_waiter_is_denied_when_no_refund_can_come() -> None:
    """A lease that is never completed finally counts in full: after that, no grant is possible."""

    async def scene(clients: Clients) -> None:
        await clients.limits.reserve([ask("gone", "budget", 60)])
        await clients.come("hopes", "budget", tokens=50)

    assert played([budget("budget", 100)], scene).refused == {"hopes": "600 budget_exhausted"}


def test_a_waiter_is_denied_when_its_limit_becomes_too_small() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("first", "tpm", tokens=50)
        await clients.come("large", "tpm", tokens=90)
        await clients.come("small", "tpm", tokens=50)
        await trio.sleep(2)
        await clients.limits.define(rolling("tpm", 80))
        assert not any(
            shortage.kind == "limit_decreasing" for shortage in clients.shortages["small"]
        )

    clients = played([rolling("tpm", 100)], scene)
    assert clients.refused == {"large": "2 exceeds_capacity"}
    assert clients.granted == {"first": 0.0, "small": 60.0}


@pytest.mark.parametrize("tries", ["take", "take_nowait"])
def test_permanent_denials_are_raised_at_once(tries: Literal["take", "take_nowait"]) -> None:
    """For an unknown key, or more than the capacity, no call waits, and nothing is stored."""

    async def main() -> list[tuple[str, tuple[str, ...]]]:
        limits = MemoryLimits([rolling("tpm", 100)])
        denials: list[tuple[str, tuple[str, ...]]] = []
        for key, tokens in (("other", 1), ("tpm", 101)):
            permits = limits.permits("lane", tokens_of(key))
            try:
                if tries == "take":
                    await permits.take(0, tokens, 0.0, print)
                else:
                    permits.take_nowait(0, tokens, 0.0)
            except LimitError as error:
                denials.append((str(error), error.keys))
        assert limits.statistics() == MemoryStatistics(leases=0, waiting=0, granted=0)
        return denials

    assert run_virtual(main) == [
        ("unknown_limit_key: other: unknown limit", ("other",)),
        ("exceeds_capacity: tpm: 101 of tpm requested, the capacity is 100", ("tpm",)),
    ]


def test_invalid_keys_are_rejected_before_any_call() -> None:
    async def main() -> None:
        limits = MemoryLimits()
        for keys in ([], tokens_of(" "), tokens_of("a", "a"), tokens_of(*map(str, range(33)))):
            with pytest.raises(LimitError, match=r"^invalid_request: "):
                limits.permits("lane", keys)

    run_virtual(main)


def test_a_returned_permit_does_not_count() -> None:
    """It does not even count as a request."""

    async def scene(clients: Clients) -> None:
        keys = [
            LimitKey("rpm", "requests"),
            LimitKey("tpm", "tokens"),
            LimitKey("spent", "cost_micro"),
        ]
        permit = clients.limits.permits("lane", keys).take_nowait(0, 70, 0.02)
        assert permit is not None
        assert [state.used + state.outstanding for state in await clients.limits.states()] == [
            1,
            20_000,
            70,
        ]
        permit.give_back()
        assert not any(state.used for state in await clients.limits.states())

    played([rolling("rpm", 1), rolling("tpm", 100), budget("spent", 1_000_000)], scene)


def test_usage_is_settled_by_unit() -> None:
    """Actual tokens and cost count; a request stays one, a slot is free."""

    async def scene(clients: Clients) -> None:
        keys = [
            LimitKey("rpm", "requests"),
            LimitKey("tpm", "tokens"),
            LimitKey("spent", "cost_micro"),
            LimitKey("slots", "slots"),
        ]
        permit = await clients.limits.permits("lane", keys).take(0, 70, 0.02, print)
        permit.settle(30, 0.0125)
        used = {state.limit.key: state.used for state in await clients.limits.states()}
        assert used == {"rpm": 1, "tpm": 30, "spent": 12_500, "slots": 0}

    limits = [
        rolling("rpm", 1),
        rolling("tpm", 100),
        budget("spent", 10**6),
        concurrency("slots", 1),
    ]
    played(limits, scene)


def test_another_program_does_not_overtake_waiters_of_this_one() -> None:
    """Its denial names the key; without waiters there is room for it. An id has one answer."""

    async def scene(clients: Clients) -> None:
        granted = [Granted(0.0)]
        assert await clients.limits.reserve([ask("lease-1", "tpm", 50)]) == granted
        await clients.come("large", "tpm", tokens=90)
        await trio.sleep(1)
        [denied] = await clients.limits.reserve([ask("lease-2", "tpm", 10)])
        assert isinstance(denied, Denied)
        assert (denied.reason, denied.keys, denied.terminal) == ("no_capacity", ("tpm",), False)
        assert denied.retry_after > 0
        assert await clients.limits.reserve([ask("lease-1", "tpm", 50)]) == granted
        assert await clients.limits.extend(["lease-1", "lease-2"]) == [True, False]
        settled = Settlement("lease-1", "another owner", (Actual("tpm", 10),))
        await clients.limits.complete([settled, settled])
        await trio.testing.wait_all_tasks_blocked()
        clients.done("large", tokens=80)
        assert await clients.limits.reserve([ask("lease-2", "tpm", 10)]) == [denied]
        assert await clients.limits.reserve([ask("lease-3", "tpm", 10)]) == [Granted(1.0)]

    assert played([rolling("tpm", 100)], scene).granted == {"large": 1.0}


def test_a_waiter_is_notified_once_for_each_reason() -> None:
    """It is not notified at every check, but again when the announced instant has passed in vain."""

    async def scene(clients: Clients) -> None:
        for name in ("one", "two"):
            await clients.come(name, "slots")
        await clients.come("rate", "rpm", "slots", unit="requests")
        await clients.limits.reserve([ask("other", "rpm")])
        await clients.come("waits", "slots", "rpm", unit="requests")
        for _ in range(3):
            await trio.sleep(1)
            await clients.limits.define(concurrency("slots", 2))
        clients.done("one")
        clients.done("two")
        await trio.testing.wait_all_tasks_blocked()
        clients.done("rate")

    clients = played([concurrency("slots", 2), rolling("rpm", 2, window=10)], scene)
    assert clients.granted == {"one": 0.0, "two": 0.0, "rate": 3.0, "waits": 10.0}
    assert clients.shortages["rate"] == [Shortage("rate_limit", ("slots",))]
    assert clients.shortages["waits"] == [
        Shortage("rate_limit", ("slots",)),
        Shortage("rate_limit", ("slots", "rpm")),
        Shortage("rate_limit", ("rpm",), 10.0),
    ]


def test_a_waiter_is_notified_again_when_the_announced_instant_passes_in_vain() -> None:
    """An earlier call took the room."""

    async def scene(clients: Clients) -> None:
        await clients.come("0", "rpm")
        await trio.sleep(1)
        await clients.come("1", "rpm")
        await clients.come("first", "rpm", "a")
        await clients.come("second", "rpm", "b")

    clients = played([rolling(key, 2, window=10) for key in ("rpm", "a", "b")], scene)
    assert clients.granted == {"0": 0.0, "1": 1.0, "first": 10.0, "second": 11.0}
    assert [shortage.until for shortage in clients.shortages["first"]] == [10.0]
    assert [shortage.until for shortage in clients.shortages["second"]] == [10.0, 11.0]


def test_a_waiter_is_notified_of_a_pending_decrease() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("first", "tpm", tokens=90)
        await clients.come("waits", "tpm", tokens=50)
        await trio.sleep(1)
        await clients.limits.define(rolling("tpm", 60))
        await clients.limits.define(rolling("tpm", 60))

    clients = played([rolling("tpm", 100)], scene)
    assert clients.shortages["waits"] == [
        Shortage("rate_limit", ("tpm",), 60.0),
        Shortage("limit_decreasing", ("tpm",), 60.0),
    ]
    assert clients.granted["waits"] == 60.0


def test_a_waiter_behind_others_is_notified_of_their_reason() -> None:
    async def scene(clients: Clients) -> None:
        await clients.come("first", "tpm", "other", tokens=50)
        await clients.come("large", "tpm", "other", tokens=90)
        await clients.come("small", "other", "tpm", tokens=10)
        assert clients.shortages["small"] == [Shortage("rate_limit", ("tpm",))]

    granted = played([rolling("tpm", 100), rolling("other", 200)], scene).granted
    assert granted == {"first": 0.0, "large": 60.0, "small": 60.0}


def test_a_waiter_is_denied_when_its_limit_is_removed() -> None:
    """The waiter no longer holds back others; an existing lease stays, and is ended normally."""

    async def scene(clients: Clients) -> None:
        limits = clients.limits
        await clients.come("holder", "gone")
        await clients.come("both", "gone", "stays", tokens=10)
        await clients.come("small", "stays", tokens=5)
        assert "small" not in clients.granted
        await trio.sleep(1)
        await limits.remove("gone")
        await trio.testing.wait_all_tasks_blocked()
        assert clients.refused == {"both": "1 unknown_limit_key"}
        assert clients.granted["small"] == 1
        clients.done("holder")
        assert [state.limit.key for state in await limits.states()] == ["stays"]

    played([rolling("gone", 10), rolling("stays", 10)], scene)
