"""A client of remote limits: each rule, with its fault."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from faulty_network import Fault, FaultyNetwork

from trioeval.errors import LimitError
from trioeval.kernel import Permit, Permits, Shortage
from trioeval.limits import (
    Actual,
    Denied,
    Granted,
    LeaseRequest,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.backend import actuals_of
from trioeval.limits.ledger import LimitLedger
from trioeval.limits.model import LimitKey
from trioeval.limits.remote import RemoteLimits, open_remote
from trioeval.testing import run_virtual

SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=1, timeout=3.0)
RPM = SharedLimit(key="rpm", kind="rolling", capacity=2, window=60.0)
TPM = SharedLimit(key="tpm", kind="rolling", capacity=1000, window=60.0)
LOST = Fault(loses="answer")
BACK = "holds end by their timeout"


@attrs.define(eq=False)
class Program:
    """A program that uses the limits, and what was reported to it."""

    limits: RemoteLimits
    network: FaultyNetwork
    warnings: list[str]
    shortages: list[Shortage]

    def permits(self, *units: tuple[str, Any], lane: str = "lane") -> Permits:
        return self.limits.permits(lane, [LimitKey(key, unit) for key, unit in units])

    async def take(self, permits: Permits, index: int = 0, tokens: int = 1) -> Permit:
        return await permits.take(index, tokens, 0.0, self.shortages.append)


def with_program(
    body: Callable[[Program], Awaitable[None]],
    limits: Sequence[SharedLimit],
    faults: Sequence[Fault] = (),
    *,
    spread: float = 0.5,
    network: type[FaultyNetwork] = FaultyNetwork,
    brought: Sequence[SharedLimit] = (),
    **settings: Any,
) -> FaultyNetwork:
    """Run a body on virtual time, and return the network with its record.

    The first message of a program reads the limits, so the first fault applies to that one.
    """

    async def main() -> FaultyNetwork:
        async with trio.open_nursery() as nursery:
            between = network.over(nursery, limits, [Fault(), *faults])
            warnings: list[str] = []
            ids = map("id-{}".format, itertools.count(1))
            async with open_remote(
                between,
                limits=brought,
                warn=warnings.append,
                ids=lambda: next(ids),
                spread=lambda: spread,
                **settings,
            ) as shared:
                await trio.testing.wait_all_tasks_blocked()
                await body(Program(shared, between, warnings, []))
        return between

    return run_virtual(main)


def sent_ids(network: FaultyNetwork) -> list[str]:
    return [ask.lease_id for _at, ask in network.sent]


def used(network: FaultyNetwork, key: str, now: float) -> int:
    return {one.limit.key: one.used for one in network.ledger.states(now)}[key]


def test_ql_22_a_denial_is_followed_by_a_new_id_after_the_announced_time() -> None:
    """The time is exact for a rolling limit, plus half of 25 ms of jitter."""

    async def body(program: Program) -> None:
        permits = program.permits(("rpm", "requests"))
        for index in range(3):
            (await program.take(permits, index)).settle(1, 0.0)
        assert trio.current_time() == 60.0125

    network = with_program(body, [RPM])
    assert sent_ids(network) == ["id-1", "id-2", "id-3", "id-4"]
    decisions = [request.decision for request in network.arrived]
    assert [type(one) for one in decisions] == [Granted, Granted, Denied, Granted]


def test_ql_21_a_request_with_a_lost_answer_is_repeated_with_the_same_id() -> None:
    """It is repeated after 2 s without an answer and three quarters of 100 ms; the lease is taken once."""

    async def body(program: Program) -> None:
        permit = await program.take(program.permits(("rpm", "requests")))
        assert trio.current_time() == 2.075
        silent, lost = program.shortages
        assert (silent.kind, silent.until, silent.message) == (
            "limiter_error",
            None,
            "no answer yet",
        )
        assert (lost.kind, lost.until) == ("limiter_error", 2.075)
        assert used(program.network, "rpm", trio.current_time()) == 1
        permit.settle(1, 0.0)

    network = with_program(body, [RPM], [LOST])
    assert sent_ids(network) == ["id-1", "id-1"]
    assert len(network.completed) == 1


def test_ql_21_a_request_with_an_unknown_outcome_is_repeated_with_the_same_id() -> None:
    """An answer of "unknown" is not a denial: a new id would take the room twice."""

    async def body(program: Program) -> None:
        (await program.take(program.permits(("rpm", "requests")))).settle(1, 0.0)

    network = with_program(body, [RPM], [Fault(confuses=True)] * 3)
    assert sent_ids(network) == ["id-1"] * 4
    assert used(network, "rpm", 1.0) == 1


@pytest.mark.parametrize(
    ("key", "tokens", "reason"),
    [("gone", 1, "unknown_limit_key"), ("tpm", 5000, "exceeds_capacity")],
    ids=["ql_16_unknown_key", "ql_17_impossible_amount"],
)
def test_ql_16_and_ql_17_a_permanently_denied_request_is_sent_once(
    key: str, tokens: int, reason: str
) -> None:
    """It does not wait, and sends no second request."""

    async def body(program: Program) -> None:
        with pytest.raises(LimitError) as caught:
            await program.take(program.permits((key, "tokens")), tokens=tokens)
        assert (caught.value.reason, caught.value.keys) == (reason, (key,))
        assert trio.current_time() == 0

    assert len(with_program(body, [TPM]).sent) == 1


def test_actual_tokens_are_reported_and_unused_leases_do_not_count() -> None:
    """Unused amounts are free at once; the number of requests stays."""

    async def body(program: Program) -> None:
        permits = program.permits(("rpm", "requests"), ("tpm", "tokens"))
        first, second = [await program.take(permits, n, tokens=400) for n in range(2)]
        first.settle(10, 0.0)
        second.give_back()

    network = with_program(body, [RPM, TPM])
    assert (used(network, "rpm", 1.0), used(network, "tpm", 1.0)) == (1, 10)
    assert network.completed[0].actuals == (Actual("tpm", 10),)


def test_ql_10_a_waiter_gets_a_slot_in_the_step_in_which_it_is_free() -> None:
    """It does not wait for the time that the denial names."""

    async def body(program: Program) -> None:
        permits = program.permits(("slots", "slots"))
        first = await program.take(permits)

        async def wait() -> None:
            second = await program.take(permits, 1)
            assert trio.current_time() == 1.125
            second.settle(1, 0.0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1.125)
            first.settle(1, 0.0)

    # Denied at 0, and again at 0.0625, 0.175, 0.3875 and 0.8, by the hints of the backend.
    assert len(with_program(body, [SLOTS]).sent) == 7


def test_ql_12_a_hold_lives_as_long_as_its_call() -> None:
    """The call takes 60 s, with a timeout of 3 s, and every second heartbeat is lost."""

    async def body(program: Program) -> None:
        permits = program.permits(("slots", "slots"))
        first = await program.take(permits)

        async def wait() -> None:
            (await program.take(permits, 1)).settle(1, 0.0)
            assert trio.current_time() >= 60

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(60)
            first.settle(1, 0.0)

    network = with_program(body, [SLOTS])
    grants = [one.at for one in network.arrived if isinstance(one.decision, Granted)]
    assert grants == [0, 60]
    assert 55 <= network.extended <= 65


def test_usage_of_a_call_of_an_hour_counts() -> None:
    """This holds for limits without holds too: the lease is remembered as long as the call runs."""
    daily = SharedLimit(key="daily", kind="budget", capacity=1000, reset=86400.0)

    async def body(program: Program) -> None:
        permit = await program.take(program.permits(("daily", "tokens")), tokens=600)
        await trio.sleep(3600.0)
        permit.settle(10, 0.0)

    network = with_program(body, [daily])
    assert used(network, "daily", 3600.0) == 10


def test_a_failed_heartbeat_is_warned_of_and_ends_no_call() -> None:
    """The backend is unreachable for 5 s of a hold of 3 s: the hold is lost, the call is not."""

    async def body(program: Program) -> None:
        permit = await program.take(program.permits(("slots", "slots")))
        await trio.sleep(20)
        assert [warning.partition(":")[0] for warning in program.warnings] == [
            *["the holds of 1 running call cannot be extended now"] * 2,
            "the hold of a running call expired",
        ]
        permit.settle(1, 0.0)

    with_program(body, [SLOTS], [Fault(), *[Fault(loses="message")] * 2])


@pytest.mark.parametrize("fault", [LOST, Fault(there=0.5, back=1.0, confuses=True)])
def test_calls_fail_after_the_patience_and_later_ones_at_once(fault: Fault) -> None:
    """They fail until an answer arrives; open requests are resolved then."""

    async def body(program: Program) -> None:
        permits = program.permits(("rpm", "requests"))
        with pytest.raises(
            LimitError, match=r"for 30 s, last failure: (no answer in 2 s|the backend is confused)"
        ) as caught:
            await program.take(permits)
        assert caught.value.reason == "limiter_unavailable"
        # The first failure is noticed after 2 s; the request in transit at 32 s is awaited.
        assert 31 <= (failed_at := trio.current_time()) <= 34
        with pytest.raises(LimitError):
            await program.take(permits, 1)
        assert trio.current_time() == failed_at
        await trio.sleep(60)
        (await program.take(permits, 2)).settle(1, 0.0)

    network = with_program(body, [RPM], [fault] * 12)
    assert used(network, "rpm", 90.0) == 1
    assert {one.lease_id for one in network.completed} == {"id-1", "id-3"}


def test_limits_that_fail_open_continue_without_leases() -> None:
    """A warning is logged once in each outage."""

    async def body(program: Program) -> None:
        permits = program.permits(("rpm", "requests"))
        for index in range(5):
            permit = await program.take(permits, index)
            permit.settle(1, 0.0)
        assert 32 <= trio.current_time() <= 34
        unleased = [
            one for one in program.warnings if one.endswith("calls are made without a lease")
        ]
        assert len(unleased) == 1
        permit = await program.take(permits, 6)
        permit.give_back()

    with_program(body, [RPM], [Fault(loses="message")] * 50, unreachable="open")


def test_ql_30_a_cancelled_call_leaves_at_once_and_takes_nothing() -> None:
    """Its request was granted, but the answer was lost."""

    async def body(program: Program) -> None:
        with trio.move_on_after(0.5) as scope:
            await program.take(program.permits(("rpm", "requests"), ("slots", "slots")))
        assert scope.cancelled_caught
        assert trio.current_time() == 0.5

    network = with_program(body, [RPM, SLOTS], [Fault(back=1.0)])
    assert (used(network, "rpm", 1.0), used(network, "slots", 1.0)) == (0, 0)
    assert sent_ids(network) == ["id-1", "id-1"]


def test_ql_30_a_request_that_arrives_after_its_call_was_cancelled_takes_nothing() -> None:
    """Its id is decided and ended by then."""

    async def body(program: Program) -> None:
        with trio.move_on_after(0.5):
            await program.take(program.permits(("rpm", "requests")))
        await trio.sleep(10)

    network = with_program(body, [RPM], [Fault(there=3.0)])
    assert used(network, "rpm", 10.5) == 0
    late = network.arrived[-1]
    assert late.at == 3.0
    assert isinstance(late.decision, Denied)
    assert late.decision.reason == "lease_completed"


def test_the_end_of_a_lease_is_reported_after_a_cancellation() -> None:
    """The block is cancelled with a call in flight, whose lease ends in that step."""

    async def body(program: Program) -> None:
        permit = await program.take(program.permits(("slots", "slots")))
        with trio.CancelScope() as scope:
            scope.cancel()
            permit.settle(1, 0.0)
            await trio.sleep(1)

    network = with_program(body, [SLOTS], [Fault(), *[LOST] * 1])
    assert used(network, "slots", 2.0) == 0


def test_closing_is_bounded_when_the_backend_does_not_answer() -> None:
    """Usage that was not reported within 5 s is left to expire."""

    async def body(program: Program) -> None:
        (await program.take(program.permits(("slots", "slots")))).settle(1, 0.0)

    async def main() -> float:
        await body_in(body)
        return trio.current_time()

    async def body_in(body: Callable[[Program], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            faults = [Fault(), Fault(), *[Fault(loses="message")] * 100]
            network = FaultyNetwork.over(nursery, [SLOTS], faults)
            warnings: list[str] = []
            async with open_remote(network, warn=warnings.append) as limits:
                await trio.testing.wait_all_tasks_blocked()
                await body(Program(limits, network, [], []))
            ended_at = trio.current_time()
            assert ended_at == 5.0
            assert warnings == [
                "usage of calls (1 lease) cannot be reported now, will be retried: no answer in 2 s",
                f"usage of calls (1 lease) not reported within 5 s: no answer in 2 s; {BACK}",
            ]

    assert run_virtual(main) < 8


def test_an_error_of_the_block_is_not_wrapped() -> None:
    """No nursery wraps it."""

    async def body(program: Program) -> None:  # noqa: ASYNC124 - fails
        raise LookupError("mine")

    with pytest.RaisesGroup(LookupError):  # the only nursery is that of this test
        with_program(body, [SLOTS])


def test_a_grant_that_arrives_after_its_hold_may_have_expired_is_checked_again() -> None:
    """The timeout is 1 s, and the answer arrives after 1.5 s: by then another call has the slot."""
    short = attrs.evolve(SLOTS, timeout=1.0)

    async def body(program: Program) -> None:
        (await program.take(program.permits(("slots", "slots")))).settle(1, 0.0)

    network = with_program(body, [short], [Fault(back=1.5)])
    assert sent_ids(network) == ["id-1", "id-2"]
    assert network.extended >= 1


def test_an_id_that_expired_during_an_outage_does_not_count() -> None:
    """Its hold ended by its timeout; its share of a window is returned."""

    async def body(program: Program) -> None:
        both = program.permits(("slots", "slots"), ("rpm", "requests"))
        (await program.take(both)).settle(1, 0.0)

    confused = [Fault(back=1.0, confuses=True)] * 4
    network = with_program(body, [SLOTS, RPM], confused)
    assert sent_ids(network) == [*["id-1"] * 5, "id-2"]
    assert used(network, "rpm", 10.0) == 1


def test_a_heartbeat_counts_from_the_instant_it_was_sent() -> None:
    """Its answer takes 1.9 s, and the next message half a second, which is in time for a hold of 3 s."""

    async def body(program: Program) -> None:
        permit = await program.take(program.permits(("slots", "slots")))
        await trio.sleep(20)
        assert program.warnings == []
        permit.settle(1, 0.0)

    # The lease, then the limits and the heartbeat, twice.
    late = [Fault(), Fault(), Fault(back=1.9), Fault(), Fault(there=0.5)]
    with_program(body, [SLOTS], late)


def test_ql_25_two_requests_per_job_suffice_over_a_network() -> None:
    """Capacity 4, 8 workers, 200 jobs of 20 ms take the ideal time, in the order of arrival."""
    four = attrs.evolve(SLOTS, capacity=4)
    starts: list[int] = []

    async def body(program: Program) -> None:
        permits = program.permits(("slots", "slots"))
        jobs = iter(range(200))

        async def work() -> None:
            for job in jobs:
                permit = await program.take(permits, job)
                starts.append(job)
                await trio.sleep(0.02)
                permit.settle(1, 0.0)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(work)
        assert trio.current_time() == pytest.approx(1.0)

    network = with_program(body, [four])
    assert len(network.sent) <= 400
    assert starts == sorted(starts)


def test_ql_28_a_call_that_waits_for_a_paused_limit_does_not_hold_back_others() -> None:
    """Lane B shares a limit with lane A, whose own limit is paused for a minute."""
    team = SharedLimit(key="team", kind="concurrency", capacity=2, timeout=60.0)
    own = SharedLimit(key="own", kind="rolling", capacity=100, window=1.0)

    async def body(program: Program) -> None:
        await program.network.pause("own", 60.0)
        lane_a = program.permits(("own", "requests"), ("team", "slots"))
        lane_b = program.permits(("team", "slots"))
        order: list[int] = []

        async def on_a(index: int) -> None:
            permit = await program.take(lane_a, index)
            order.append(index)
            assert trio.current_time() >= 60
            permit.settle(1, 0.0)

        async with trio.open_nursery() as nursery:
            for index in range(3):
                nursery.start_soon(on_a, index)
                await trio.testing.wait_all_tasks_blocked()
            for index in range(100):
                permit = await program.take(lane_b, index)
                await trio.sleep(0.1)
                permit.settle(1, 0.0)
            assert trio.current_time() == pytest.approx(10)
        assert order == [0, 1, 2]

    with_program(body, [team, own])


def test_a_call_behind_another_is_notified_in_the_step_of_its_request() -> None:
    """A lane that waits must not keep its turn before lanes that can start."""

    async def body(program: Program) -> None:
        permits = program.permits(("slots", "slots"))
        first = await program.take(permits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program.take, permits, 1)
            await trio.testing.wait_all_tasks_blocked()
            program.shortages.clear()
            nursery.start_soon(program.take, permits, 2)
            await trio.testing.wait_all_tasks_blocked()
            assert program.shortages == [Shortage("rate_limit", ("slots",))]
            nursery.cancel_scope.cancel()
        first.settle(1, 0.0)

    with_program(body, [SLOTS])


def test_a_lease_ends_once() -> None:
    """A second end is an internal error."""

    async def body(program: Program) -> None:
        permit = await program.take(program.permits(("rpm", "requests")))
        permit.give_back()
        with pytest.raises(RuntimeError, match="id-1 of lane\\[0\\] is already over"):
            permit.settle(1, 0.0)

    with_program(body, [RPM])


def test_a_backend_may_notify_of_room() -> None:
    """Another program returns a slot: a waiting call retries at once, not at the announced time."""
    callbacks: list[Callable[[Sequence[str]], None]] = []

    async def wakes(on_room: Callable[[Sequence[str]], None]) -> None:
        callbacks.append(on_room)
        await trio.sleep_forever()

    async def body(program: Program) -> None:
        permits = program.permits(("slots", "slots"))
        first = await program.take(permits)

        async def wait() -> None:
            (await program.take(permits, 1)).settle(1, 0.0)
            assert trio.current_time() == 1.0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1.0)
            # like another program, bypassing this one
            unused = Settlement("id-1", "job", (Actual("slots", 0),))
            program.network.ledger.complete(unused, trio.current_time())
            callbacks[0](["slots"])
        first.settle(1, 0.0)

    with_program(body, [SLOTS], wakes=wakes)


def take_elsewhere(network: FaultyNetwork, lease_id: str, *keys: str) -> None:
    """Take a lease like another program."""
    ask = LeaseRequest(lease_id, "elsewhere", tuple(Requirement(key, 1) for key in keys))
    assert isinstance(network.ledger.reserve(ask, trio.current_time()), Granted)


def grants_beside(*, lacked_first: bool | None) -> int:
    """Return how often a lane is served in five minutes that needs a window, at one call in 1.5 s.

    Args:
        lacked_first: A call of another lane also waits, for the window and for a slot that is always in use;
            the value is whether it lacked the window alone at its first request. None for no such call.
    """
    window = SharedLimit(key="window", kind="rolling", capacity=1, window=1.5)
    slots = attrs.evolve(SLOTS, timeout=1e5)
    count = 0

    async def body(program: Program) -> None:
        lane_a = program.permits(("slots", "slots"), ("window", "requests"), lane="a")
        lane_b = program.permits(("window", "requests"), lane="b")
        take_elsewhere(program.network, "window", "window")
        if not lacked_first:
            take_elsewhere(program.network, "slot", "slots")

        async def go_on() -> None:
            nonlocal count
            while True:
                (await program.take(lane_b)).settle(1, 0.0)
                count += 1

        async with trio.open_nursery() as nursery:
            if lacked_first is not None:
                nursery.start_soon(program.take, lane_a)
            await trio.sleep(0.7)
            if lacked_first:
                take_elsewhere(program.network, "slot", "slots")
            nursery.start_soon(go_on)
            await trio.sleep(300)
            nursery.cancel_scope.cancel()

    with_program(body, [slots, window])
    return count


@pytest.mark.parametrize("lacked_first", [False, True])
def test_ql_28_a_call_that_waits_for_a_full_limit_does_not_hold_back_others(
    *, lacked_first: bool
) -> None:
    """This holds for a full limit too: its slots may be in use for hours."""
    assert grants_beside(lacked_first=lacked_first) >= 0.9 * grants_beside(lacked_first=None)


def test_ql_27_two_limits_that_are_full_in_turn_do_not_starve_a_call() -> None:
    """Calls of 30 s take one slot or the other, without a pause; a call that needs both is served."""
    limits = [attrs.evolve(SLOTS, key=key) for key in "ab"]

    async def body(program: Program) -> None:
        async def stream(key: str, first: float) -> None:
            permits = program.permits((key, "slots"), lane=key)
            lasts = first
            while True:
                permit = await program.take(permits)
                await trio.sleep(lasts)
                permit.settle(1, 0.0)
                lasts = 30.0

        async with trio.open_nursery() as nursery:
            for key, first in (("a", 10.0), ("b", 25.0)):
                nursery.start_soon(stream, key, first)
                nursery.start_soon(stream, key, 30.0)
            await trio.sleep(1)
            both = program.permits(("a", "slots"), ("b", "slots"), lane="both")
            permit = await program.take(both)
            assert trio.current_time() < 8 * 30
            permit.settle(1, 0.0)
            nursery.cancel_scope.cancel()

    with_program(body, limits)


def test_a_long_wait_for_a_window_holds_no_slot() -> None:
    """A slot was returned without a notification: a call that needs only it does not wait for the window."""
    minute = attrs.evolve(RPM, capacity=1)

    async def body(program: Program) -> None:
        both = program.permits(("slots", "slots"), ("rpm", "requests"), lane="both")
        take_elsewhere(program.network, "elsewhere", "slots", "rpm")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program.take, both)
            await trio.sleep(1)
            program.network.ledger.complete(Settlement("elsewhere", ""), trio.current_time())
            permit = await program.take(program.permits(("slots", "slots")))
            assert trio.current_time() == 1
            permit.settle(1, 0.0)
            nursery.cancel_scope.cancel()

    with_program(body, [SLOTS, minute])


def test_a_failed_request_that_is_not_repeated_starts_no_outage() -> None:
    """A failed request for the states of limits, a minute before, is not an outage."""

    async def body(program: Program) -> None:
        with pytest.raises(LimitError):
            await program.limits.states()
        await trio.sleep(60)
        permits = program.permits(("rpm", "requests"))
        requested_at = trio.current_time()
        (await program.take(permits)).settle(1, 0.0)
        assert trio.current_time() == requested_at + 2.075  # its first answer is lost

    with_program(body, [RPM], [LOST, LOST])


def test_a_denied_call_that_is_cancelled_leaves_no_outage() -> None:
    """The states of limits could not be read during its long wait."""
    once = attrs.evolve(RPM, capacity=1, window=20.0)

    async def body(program: Program) -> None:
        permits = program.permits(("rpm", "requests"))
        (await program.take(permits)).settle(1, 0.0)
        await trio.sleep(1)
        with trio.move_on_after(3):
            await program.take(permits, 1)
        await trio.sleep(31)
        (await program.take(permits, 2)).settle(1, 0.0)

    with_program(body, [once], [Fault(), Fault(), Fault(), LOST])


def test_in_a_long_outage_one_call_sends_a_request_if_no_other_does() -> None:
    """A heartbeat was lost, and the backend is available again before the next one is due."""

    async def body(program: Program) -> None:
        holding = await program.take(program.permits(("slots", "slots")))
        await trio.sleep(3.05)
        [warning] = program.warnings
        assert warning.startswith("the holds of 1 running call cannot be extended now: ")
        (await program.take(program.permits(("rpm", "requests")))).settle(1, 0.0)
        holding.settle(1, 0.0)

    with_program(body, [SLOTS, RPM], [Fault(), Fault(), LOST], patience=0.0)


def test_a_long_outage_is_warned_of_once_with_its_reason() -> None:
    """Calls wait for half a minute, and the warning states the reason."""

    async def body(program: Program) -> None:
        (await program.take(program.permits(("rpm", "requests")))).settle(1, 0.0)
        [warning] = program.warnings
        assert warning == ("no lease decision for 7 s: no answer in 2 s; calls wait for up to 30 s")

    with_program(body, [RPM], [LOST] * 6)


@pytest.mark.parametrize("faults", [(), (Fault(), LOST)])
def test_limits_of_a_program_are_recreated_when_they_are_missing(
    faults: Sequence[Fault],
) -> None:
    """The backend restarted without data. A new id is used: the old one is denied for good."""

    async def body(program: Program) -> None:
        program.network.ledger = LimitLedger()
        (await program.take(program.permits(("rpm", "requests")))).settle(1, 0.0)
        assert used(program.network, "rpm", trio.current_time()) == 1
        with pytest.raises(LimitError, match="unknown_limit_key: gone") as caught:
            await program.take(program.permits(("gone", "requests")))
        assert caught.value.keys == ("gone",)

    network = with_program(body, [RPM], faults, brought=[RPM])
    assert len(set(sent_ids(network))) == len(network.sent)
    assert [one.decision for one in network.arrived if isinstance(one.decision, Granted)]


def test_missing_limits_that_cannot_be_recreated_are_reported_at_once() -> None:
    """Missing limits of others are not recreated; recreating its own is tried once."""

    async def body(program: Program) -> None:
        program.network.ledger = LimitLedger()
        permits = program.permits(("rpm", "requests"), ("gone", "requests"))
        with pytest.raises(LimitError, match="unknown_limit_key: gone"):
            await program.take(permits)
        assert trio.current_time() == 0

    assert len(with_program(body, [RPM], brought=[RPM]).sent) == 2


class Strict(FaultyNetwork):
    """A backend that refuses a whole message because of one settlement in it."""

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        await super().complete([one for one in settlements if one.lease_id != "id-2"])
        if any(one.lease_id == "id-2" for one in settlements):
            raise LimitError("invalid_request", "id-2 means nothing")


def test_a_rejected_settlement_does_not_affect_others_of_its_message() -> None:
    """Calls that wait for the returned amounts are served."""
    slots = attrs.evolve(SLOTS, capacity=3, timeout=3600.0)

    async def body(program: Program) -> None:
        permits = program.permits(("slots", "slots"))
        leases = [await program.take(permits, index) for index in range(3)]

        async def wait() -> None:
            (await program.take(permits, 3)).settle(1, 0.0)
            assert trio.current_time() == 1.0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1.0)
            for lease in leases:
                lease.settle(1, 0.0)
        await program.limits.flush(60.0)
        [warning] = program.warnings
        assert warning == (
            f"usage of calls (1 lease) refused: invalid_request: id-2 means nothing; {BACK}"
        )

    network = with_program(body, [slots], network=Strict)
    assert used(network, "slots", 2.0) == 1


def test_negative_usage_counts_as_none() -> None:
    """Negative usage in a reply must not prevent the end of the lease."""
    keys = [LimitKey("tpm", "tokens"), LimitKey("money", "cost_micro")]
    assert actuals_of(keys, -5, -0.1) == (Actual("tpm", 0), Actual("money", 0))


def test_limits_open_and_close_at_once_in_a_cancelled_block() -> None:
    """Its own tasks are shielded, but end nevertheless."""

    async def main() -> None:
        with trio.fail_after(60), trio.CancelScope() as scope:
            scope.cancel("before anything was opened")
            async with (
                trio.open_nursery() as nursery,
                open_remote(FaultyNetwork.over(nursery, [SLOTS])),
            ):
                raise AssertionError
        assert scope.cancelled_caught
        assert trio.current_time() == 0.0

    run_virtual(main)
