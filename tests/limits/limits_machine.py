"""The laws of limits and leases, as a state machine over any backend.

`machine(open_subject)` makes one for hypothesis: each example runs a random history on a new subject and on a
plain model, and every answer and every state must equal the model's.

Laws: never above capacity, in any window; all or nothing; a repeated request gets the same answer and takes
once; a lease ends once; a smaller capacity takes effect as soon as it is free.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from limits_model import Expected, Model

from trioeval.errors import LimitError
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


class Subject(Protocol):
    """A backend that is called at given instants; a new one has no limits."""

    def reserve(self, ask: LeaseRequest, now: float, /) -> Granted | Denied:
        """Decide about a request."""
        ...

    def complete(self, settlement: Settlement, now: float, /) -> object:
        """End a lease."""
        ...

    def extend(self, lease_ids: Sequence[str], now: float, /) -> Sequence[bool]:
        """Postpone the expiry of holds."""
        ...

    def define(self, limit: SharedLimit, now: float, /) -> LimitState:
        """Create or change a limit; `LimitError` for another kind."""
        ...

    def pause(self, key: str, until: float, now: float, /) -> LimitState:
        """Pause a limit until an instant; `LimitError` for an unknown one."""
        ...

    def states(self, now: float, /) -> Sequence[LimitState]:
        """Return all limits, by key."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


KEYS = ("a", "b", "c", "d")
# Most histories are of short times; some pass everything that is remembered.
INSTANTS = st.sampled_from([0.25, 0.25, 1.0, 1.0, 2.5, 4.0, 10.0, 60.0, 599.75, 600.0, 700.0])
SHORT = st.sampled_from([0.25, 0.75, 1.0, 2.0, 5.0])
CAPACITIES = st.integers(1, 20)
SPANS = st.sampled_from([1.0, 2.5, 10.0, 600.0, 1000.0])
LONG = st.sampled_from([599.75, 600.0, 700.0, 999.75])
AMOUNTS = st.integers(1, 6)
OVERAGES = st.sampled_from(["debt", "debt", "deny"])


def rolling(key: str) -> st.SearchStrategy[SharedLimit]:
    """A rolling limit."""
    return st.builds(
        SharedLimit,
        key=st.just(key),
        kind=st.just("rolling"),
        capacity=CAPACITIES,
        window=SPANS,
        overage=OVERAGES,
    )


def concurrency(key: str) -> st.SearchStrategy[SharedLimit]:
    """A concurrency limit."""
    return st.builds(
        SharedLimit,
        key=st.just(key),
        kind=st.just("concurrency"),
        capacity=st.integers(1, 3),
        timeout=SPANS,
    )


def budget(key: str) -> st.SearchStrategy[SharedLimit]:
    """A budget."""
    return st.builds(
        SharedLimit,
        key=st.just(key),
        kind=st.just("budget"),
        capacity=CAPACITIES.map(lambda n: 3 * n),
        reset=st.none() | SPANS,
        overage=OVERAGES,
    )


# Made once: hypothesis looks at each strategy when it sees it first.
FIRST_LIMITS = st.tuples(rolling("a"), concurrency("b"), budget("c"))
ANY_LIMIT = st.one_of(
    [kind(key) for key, kind in (("a", rolling), ("b", concurrency), ("c", budget))]
    + [kind("d") for kind in (rolling, concurrency, budget)]
)
NEEDS = st.dictionaries(st.sampled_from(KEYS), AMOUNTS, min_size=1, max_size=3)
LITTLE = st.sampled_from(KEYS).map(lambda key: {key: 1}) | NEEDS.map(
    lambda needs: dict.fromkeys(needs, 1)
)
NONSENSE = st.sampled_from(
    [
        LeaseRequest("", "job", (Requirement("a", 1),)),
        LeaseRequest(" ", "job", (Requirement("a", 1),)),
        LeaseRequest("lease-0", "job", ()),
        LeaseRequest("lease-0", "job", (Requirement("a", 0),)),
        LeaseRequest("new", "job", (Requirement("a", -1),)),
        LeaseRequest("new", "job", (Requirement("a", 2**53),)),
        LeaseRequest("new", "job", (Requirement(" ", 1),)),
        LeaseRequest("new", "job", (Requirement("a", 1), Requirement("a", 1))),
        LeaseRequest("new", "job", tuple(Requirement(str(n), 1) for n in range(33))),
    ]
)


def requirements(needs: dict[str, int]) -> tuple[Requirement, ...]:
    """Requirements as lists of requests have them."""
    return tuple(Requirement(key, amount) for key, amount in needs.items())


def check_answer(answer: Granted | Denied, expected: Expected) -> None:
    """Assert that an answer is the expected one; a wait hint need only be in its range."""
    if expected.granted_at is not None:
        assert answer == Granted(expected.granted_at)
        return
    assert isinstance(answer, Denied)
    if expected.same is not None:
        assert answer == expected.same
        return
    assert answer.reason == expected.reason
    assert answer.keys == expected.keys
    is_transient = answer.reason in {"no_capacity", "limit_decreasing"}
    assert answer.terminal is not is_transient
    if is_transient:
        assert answer.retry_after > 0
        assert expected.least_wait <= answer.retry_after <= expected.most_wait
    else:
        assert answer.message.startswith(answer.reason)


class LimitsMachine(RuleBasedStateMachine):
    """A subject beside the model, from its first limit."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.subject = self.open_subject()
        self.model = Model()
        self.requests: dict[str, dict[str, int]] = {}
        self.looks = True
        """Check the state after each step. Reading removes what has expired; so must other operations."""

    def open_subject(self) -> Subject:
        """Return a new subject."""
        raise NotImplementedError

    @initialize(limits=FIRST_LIMITS, looks=st.booleans())
    def begin(self, limits: tuple[SharedLimit, ...], looks: bool) -> None:  # noqa: FBT001 - drawn by name
        self.looks = looks
        for limit in limits:
            self._define(limit)

    @rule(seconds=INSTANTS)
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.model.advance(self.now)

    @rule(target=leases, needs=NEEDS)
    def reserve(self, needs: dict[str, int]) -> str:
        return self._ask_anew(needs)

    @rule(target=leases, needs=LITTLE)
    def reserve_little(self, needs: dict[str, int]) -> str:
        return self._ask_anew(needs)

    @rule(target=leases, needs=LITTLE)
    def reserve_of_an_unknown_limit(self, needs: dict[str, int]) -> str:
        return self._ask_anew({**needs, "unknown": 1})

    @rule(lease_id=leases)
    def ask_again(self, lease_id: str) -> None:
        same = dict(reversed(self.requests[lease_id].items()))
        self._ask(LeaseRequest(lease_id, "job", requirements(same)))

    @rule(lease_id=leases, seconds=INSTANTS)
    def ask_again_later(self, lease_id: str, seconds: float) -> None:
        """A repeated request gets the same answer if the limits were not read in between."""
        self.wait(seconds)
        self.ask_again(lease_id)

    @rule(lease_id=leases, needs=NEEDS)
    def ask_for_others(self, lease_id: str, needs: dict[str, int]) -> None:
        if lease_id not in self.model.known:
            self.requests[lease_id] = needs
        self._ask(LeaseRequest(lease_id, "job", requirements(needs)))

    @rule(
        needs=LITTLE,
        seconds=LONG,
        changes=st.lists(st.none() | st.integers(-8, 8), min_size=5, max_size=5),
        times=st.integers(1, 2),
    )
    def end_after_a_long_time(
        self, needs: dict[str, int], seconds: float, changes: list[int | None], times: int
    ) -> None:
        """A lease is remembered as long as a window lasts: granted again, and completed once."""
        lease_id = self._ask_anew(needs)
        self.wait(seconds)
        self.ask_again(lease_id)
        for _ in range(times):
            self.complete(lease_id, changes)
        self.states_equal_the_model()
        self.wait(seconds)
        self.ask_again(lease_id)

    @rule(ask=NONSENSE)
    def ask_nonsense(self, ask: LeaseRequest) -> None:
        self._ask(ask)

    @rule(
        lease_id=consumes(leases) | leases | st.just("unknown"),
        changes=st.lists(st.none() | st.integers(-8, 8), min_size=5, max_size=5),
    )
    def complete(self, lease_id: str, changes: list[int | None]) -> None:
        needs = {**self.requests.get(lease_id, {}), "unknown": 1}
        used = tuple(
            Actual(key, max(0, needs[key] + change))
            for key, change in zip(needs, changes, strict=False)
            if change is not None
        )
        settlement = Settlement(lease_id, "job", used)
        self.model.complete(settlement, self.now)
        self.subject.complete(settlement, self.now)

    @rule(lease_id=leases | st.just("unknown"))
    def release(self, lease_id: str) -> None:
        known = self.model.known.get(lease_id)
        unused = tuple(Actual(key, 0) for key in (() if known is None else known.needs))
        settlement = Settlement(lease_id, "job", unused)
        self.model.complete(settlement, self.now)
        self.subject.complete(settlement, self.now)

    @rule(lease_ids=st.lists(leases | st.just("unknown"), max_size=3))
    def extend(self, lease_ids: list[str]) -> None:
        expected = [self.model.extend(lease_id, self.now) for lease_id in lease_ids]
        assert [*self.subject.extend(lease_ids, self.now)] == expected

    @rule(limit=ANY_LIMIT)
    def define(self, limit: SharedLimit) -> None:
        kept = self.model.kept.get(limit.key)
        if kept is not None and kept.limit.kind != limit.kind:
            with pytest.raises(LimitError, match="invalid_request"):
                self.subject.define(limit, self.now)
            return
        self._define(limit)

    @rule(key=st.sampled_from(KEYS[:3]), capacity=CAPACITIES)
    def resize(self, key: str, capacity: int) -> None:
        limit = self.model.kept[key].limit
        self._define(attrs.evolve(limit, capacity=capacity))

    @rule(lease_id=leases, seconds=st.sampled_from([0.75, 2.0, 9.0]))
    def keep_alive(self, lease_id: str, seconds: float) -> None:
        for _ in range(3):
            self.extend([lease_id])
            self.states_equal_the_model_after_each_step()
            self.wait(seconds)

    @rule(key=st.sampled_from((*KEYS, "unknown")), seconds=st.sampled_from([0.0, 1.0, 20.0]))
    def pause(self, key: str, seconds: float) -> None:
        kept = self.model.kept.get(key)
        until = self.now + seconds
        if kept is None:
            with pytest.raises(LimitError, match="unknown_limit_key"):
                self.subject.pause(key, until, self.now)
            return
        kept.paused_until = until
        assert self.subject.pause(key, until, self.now) == self.model.state(key, self.now)

    @invariant()
    def states_equal_the_model_after_each_step(self) -> None:
        if self.looks:
            self.states_equal_the_model()

    @rule()
    def states_equal_the_model(self) -> None:
        states = self.subject.states(self.now)
        assert [*states] == [self.model.state(key, self.now) for key in sorted(self.model.kept)]
        for state in states:
            if state.limit.kind != "budget":
                assert 0 <= state.used <= state.limit.capacity

    def teardown(self) -> None:
        self.subject.close()

    def _define(self, limit: SharedLimit) -> None:
        self.model.define(limit, self.now)
        states = self.subject.define(limit, self.now)
        assert states == self.model.state(limit.key, self.now)

    def _ask(self, ask: LeaseRequest) -> None:
        expected = self.model.expect(ask, self.now)
        answer = self.subject.reserve(ask, self.now)
        check_answer(answer, expected)
        self.model.reserved(ask, answer, self.now)

    def _ask_anew(self, needs: dict[str, int]) -> str:
        lease_id = f"lease-{len(self.requests)}"
        self.requests[lease_id] = needs
        self._ask(LeaseRequest(lease_id, "job", requirements(needs)))
        return lease_id


def machine(open_subject: Callable[[], Subject]) -> type[LimitsMachine]:
    """Return a state machine over the subjects that `open_subject` makes."""

    class Machine(LimitsMachine):
        def open_subject(self) -> Subject:
            return open_subject()

    return Machine


class RestartSubject(Subject, Protocol):
    """A subject that may end at any step and is restarted."""

    keeps_denials: bool
    """True if an id that was denied before a restart is denied after it."""

    def restart(self, end: str, lost: LeaseRequest, cut: float, now: float, /) -> None:
        """End it, and start it again.

        Args:
            end: How it ends: `stop`, `kill`, or `lose`: it is killed while it carries out one more request.
            lost: That request, which is never answered and of which no whole record is left.
            cut: How much of the record is left, from 0 to less than 1.
            now: The instant.
        """
        ...


def restarting_machine(open_subject: Callable[[], RestartSubject]) -> type[LimitsMachine]:
    """Return the same machine, in which the subject is restarted at any step."""

    class Machine(LimitsMachine):
        subject: RestartSubject

        def open_subject(self) -> Subject:
            return open_subject()

        @rule(
            end=st.sampled_from(["stop", "kill", "lose"]),
            needs=LITTLE,
            cut=st.sampled_from([0.0, 0.01, 0.5, 0.99]),
        )
        def restart(self, end: str, needs: dict[str, int], cut: float) -> None:
            lost = LeaseRequest("lost", "job", requirements(needs))
            self.subject.restart(end, lost, cut, self.now)
            if not self.subject.keeps_denials:
                self.model.forget_denials()

        @rule(
            needs=LITTLE,
            end=st.sampled_from(["stop", "kill"]),
            before=SHORT,
            after=st.lists(SHORT, min_size=1, max_size=3),
            used=st.none() | AMOUNTS,
        )
        def restart_within_a_lease(
            self,
            needs: dict[str, int],
            end: str,
            before: float,
            after: list[float],
            used: int | None,
        ) -> None:
            """The shares of a lease end on time, and it is completed as usual."""
            lease_id = self._ask_anew(needs)
            self.wait(before)
            self.restart(end, needs, 0.0)
            self.ask_again(lease_id)
            for seconds in after:
                self.wait(seconds)
                self.states_equal_the_model()
            if used is not None:
                self.complete(lease_id, [used] * 5)
                self.restart(end, needs, 0.0)
                self.wait(600.0 - sum(after))
            self.ask_again(lease_id)

    return Machine
