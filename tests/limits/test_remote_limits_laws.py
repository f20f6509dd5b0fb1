"""The laws of a client over a network that loses and delays messages: LEASE, and the order of waiters."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Literal

import attrs
import pytest
import trio
from faulty_network import ArrivedRequest, Fault, FaultyNetwork, faults
from hypothesis import event, given
from hypothesis import strategies as st

from trioeval.errors import LimitError
from trioeval.limits import Denied, Granted, Settlement, SharedLimit
from trioeval.limits.model import LimitKey
from trioeval.limits.remote import RemoteLimits, open_remote
from trioeval.testing import run_virtual

TIMEOUT, WINDOW, LONG_ENOUGH = 8.0, 16.0, 600.0
USES = (
    (LimitKey("slots", "slots"),),
    (LimitKey("rpm", "requests"),),
    (LimitKey("slots", "slots"), LimitKey("rpm", "requests")),
)


@attrs.frozen
class Customer:
    """A call that needs a lease."""

    program: int
    uses: tuple[LimitKey, ...]
    starts_at: float
    takes: float
    """Seconds for which it holds the lease."""
    is_made: bool
    """Use the lease, or else return it unused."""
    cancelled_after: float | None
    """Seconds after its start at which it is cancelled."""


@attrs.frozen
class Case:
    """Some programs on one network."""

    slots: int
    rpm: int
    customers: tuple[Customer, ...]
    faults: tuple[Fault, ...]
    seed: int


@attrs.define(eq=False)
class Visit:
    """The result of a call."""

    customer: Customer
    arrival: int
    came_at: float
    granted_at: float | None = None
    left_at: float | None = None
    end: Literal["made", "unused", "cancelled", "refused"] | None = None


@attrs.define(eq=False)
class Trace:
    """All events."""

    network: FaultyNetwork
    visits: list[Visit] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    left: list[tuple[int, int, int]] = attrs.field(factory=list)
    """Counts of each program at its end: unreported leases, waiting calls, and heartbeats."""
    used: dict[str, int] = attrs.field(factory=dict)

    @property
    def grants(self) -> list[ArrivedRequest]:
        """Return the grants that took something."""
        found = dict[str, ArrivedRequest]()
        for one in self.network.arrived:
            if isinstance(one.decision, Granted):
                found.setdefault(one.ask.lease_id, one)
        return list(found.values())

    def is_over_by_itself(self, lease_id: str) -> bool:
        """Return whether a lease was reported as expired."""
        answers = (one.decision for one in self.network.arrived if one.ask.lease_id == lease_id)
        is_reported = any(
            isinstance(one, Denied) and one.reason == "lease_expired" for one in answers
        )
        return is_reported or lease_id in self.network.found_over


def cases() -> st.SearchStrategy[Case]:
    times = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 12.0])
    customers = st.builds(
        Customer,
        program=st.integers(0, 1),
        uses=st.sampled_from(USES),
        starts_at=times,
        takes=times,
        is_made=st.sampled_from([True, True, False]),
        cancelled_after=st.none() | times,
    )
    return st.builds(
        Case,
        slots=st.integers(1, 2),
        rpm=st.integers(1, 3),
        customers=st.lists(customers, min_size=1, max_size=7).map(tuple),
        faults=st.lists(faults(), max_size=14).map(tuple),
        seed=st.integers(0, 3),
    )


def perform(case: Case) -> Trace:
    """Run a case on virtual time until no message is in transit."""

    async def main() -> Trace:
        async with trio.open_nursery() as nursery:
            limits = [
                SharedLimit(key="slots", kind="concurrency", capacity=case.slots, timeout=TIMEOUT),
                SharedLimit(key="rpm", kind="rolling", capacity=case.rpm, window=WINDOW),
            ]
            trace = Trace(FaultyNetwork.over(nursery, limits, case.faults))
            async with trio.open_nursery() as programs:
                for number in range(2):
                    programs.start_soon(run_program, case, number, trace)
        now = trio.current_time()
        trace.used = {one.limit.key: one.used for one in trace.network.ledger.states(now)}
        return trace

    return run_virtual(main)


async def run_program(case: Case, number: int, trace: Trace) -> None:
    rng = Random(case.seed + number)  # noqa: S311 - repeatable
    ids = map(f"{number}-{{}}".format, itertools.count(1))
    async with open_remote(
        trace.network, warn=trace.warnings.append, ids=lambda: next(ids), spread=rng.random
    ) as limits:
        async with trio.open_nursery() as nursery:
            for index, customer in enumerate(case.customers):
                if customer.program == number:
                    nursery.start_soon(visit, limits, customer, index, trace)
        await trio.sleep_until(LONG_ENOUGH)
        trace.left.append((limits.undelivered, len(limits._turns), len(limits._heartbeat._held)))


async def visit(limits: RemoteLimits, customer: Customer, index: int, trace: Trace) -> None:
    await trio.sleep_until(customer.starts_at)
    permits = limits.permits("lane", customer.uses)
    record = Visit(customer, len(trace.visits), trio.current_time())
    trace.visits.append(record)
    limit = customer.cancelled_after
    with trio.move_on_after(float("inf") if limit is None else limit):
        try:
            permit = await permits.take(index, 1, 0.0, lambda _shortage: None)
        except LimitError:
            record.end = "refused"
        else:
            record.granted_at = trio.current_time()
            try:
                await trio.sleep(customer.takes)
            finally:
                record.end = "made" if customer.is_made else "unused"
                if customer.is_made:
                    permit.settle(1, 0.0)
                else:
                    permit.give_back()
    record.end = record.end or "cancelled"
    record.left_at = trio.current_time()


@pytest.mark.slow
@given(cases(), st.random_module())
def test_the_laws_of_leases_hold_over_any_network(case: Case, _random: object) -> None:
    """They hold for lost, late, cancelled and repeated messages."""
    trace = perform(case)
    for end in {visit.end for visit in trace.visits}:
        event(f"a call is {end}")
    for warning in {warning.partition(":")[0] for warning in trace.warnings}:
        event(f"warning: {warning}")
    check_every_lease_is_ended_and_only_calls_that_were_made_count(trace)
    check_one_call_never_has_two_leases(trace)
    check_no_more_calls_run_than_there_are_slots(trace, case.slots)
    check_calls_of_one_program_with_the_same_needs_keep_their_order(trace)
    check_cancelled_calls_leave_in_that_step_and_all_others_are_served(trace)


def check_every_lease_is_ended_and_only_calls_that_were_made_count(trace: Trace) -> None:
    """LEASE, as the backend sees it."""
    assert trace.left == [(0, 0, 0)] * 2
    assert trace.used == {"slots": 0, "rpm": 0}
    settled = dict[str, Settlement]()
    for one in trace.network.completed:
        assert settled.setdefault(one.lease_id, one) == one  # repeated, but never with other values
    assert {one.ask.lease_id for one in trace.grants} <= settled.keys()
    made = [one for one in settled.values() if not one.actuals]
    assert len(made) == sum(visit.end == "made" for visit in trace.visits)


def check_one_call_never_has_two_leases(trace: Trace) -> None:
    """A new id is used only after the old one was denied, or found to be over."""
    sent: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for at, ask in trace.network.sent:
        sent[ask.job_id].append((at, ask.lease_id))
    given_up = dict(trace.network.found_over)
    for one in reversed(trace.network.arrived):
        if isinstance(one.decision, Denied):
            given_up[one.ask.lease_id] = one.at
    granted = {one.ask.lease_id for one in trace.grants}
    for asks in sent.values():
        for (_, earlier), (at, later) in itertools.pairwise(asks):
            if later != earlier:
                assert given_up[earlier] <= at
        *others, _last = dict.fromkeys(lease_id for _, lease_id in asks)
        for lease_id in granted & set(others):
            assert trace.is_over_by_itself(lease_id)


def check_no_more_calls_run_than_there_are_slots(trace: Trace, slots: int) -> None:
    """As calls see it, unless a heartbeat had no answer."""
    if trace.network.unanswered:
        return
    holders = [
        one
        for one in trace.visits
        if one.granted_at is not None and one.customer.uses != (LimitKey("rpm", "requests"),)
    ]
    for one in holders:
        assert one.granted_at is not None
        assert sum(_runs_at(other, one.granted_at) for other in holders) <= slots


def check_calls_of_one_program_with_the_same_needs_keep_their_order(trace: Trace) -> None:
    """Also if their messages are lost or late."""
    lines: defaultdict[object, list[float]] = defaultdict(list)
    for one in trace.visits:
        if one.granted_at is not None:
            lines[one.customer.program, one.customer.uses].append(one.granted_at)
    for line in lines.values():
        assert line == sorted(line)


def check_cancelled_calls_leave_in_that_step_and_all_others_are_served(trace: Trace) -> None:
    """No lost wake-up: a forgotten waiter would stay until the end of the run."""
    for one in trace.visits:
        assert one.left_at is not None
        if one.end == "cancelled":
            assert one.left_at - one.came_at == one.customer.cancelled_after
        # The longest possible wait: every fault, the windows, and the other calls.
        assert one.left_at < LONG_ENOUGH / 2


@pytest.mark.slow
@given(cases())
def test_without_faults_the_first_waiter_never_waits_in_vain(case: Case) -> None:
    """EAGER over a network without delays: a slot of the same program is taken when it is free."""
    takes = case.customers[0].takes
    customers = tuple(
        attrs.evolve(one, program=0, uses=USES[0], takes=takes, cancelled_after=None)
        for one in case.customers
    )
    trace = perform(attrs.evolve(case, customers=customers, faults=()))
    assert starts_of(trace) == ideal_starts(case.slots, customers)


def starts_of(trace: Trace) -> list[float]:
    return sorted(one.granted_at for one in trace.visits if one.granted_at is not None)


def ideal_starts(slots: int, customers: Sequence[Customer]) -> list[float]:
    """Compute the starts of first come, first served; simultaneous arrivals may start in any order."""
    starts = list[float]()
    free = [0.0] * slots
    for customer in sorted(customers, key=lambda one: one.starts_at):
        free.sort()
        starts.append(max(customer.starts_at, free[0]))
        free[0] = starts[-1] + customer.takes
    return sorted(starts)


def _runs_at(one: Visit, instant: float) -> bool:
    assert one.granted_at is not None
    assert one.left_at is not None
    return one.granted_at <= instant < one.left_at
