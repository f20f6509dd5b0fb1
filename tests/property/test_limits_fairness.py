"""Fairness between waiters for several limits: none starves, and none waits without need.

A small model: three keys of some capacity, which requests take from and return to. After every step all
startable requests start. The laws are checked on its history; `plainly` implements the rule without
optimizations.
"""

from collections.abc import Mapping, Sequence

import attrs
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from trioeval.limits.waiting import LimitWaiter, WaitingOrder

pytestmark = pytest.mark.slow

KEYS = ("a", "b", "shared")
CAPACITY = 10


@attrs.frozen
class Arrive:
    needs: Mapping[str, int]


@attrs.frozen
class Finish:
    """One of the running requests (modulo their number) returns its amounts."""

    place: int


@attrs.frozen
class Withdraw:
    """One of the waiting requests (modulo their number) stops waiting."""

    place: int


@attrs.frozen
class Toggle:
    """A key is paused or resumed."""

    key: str


Step = Arrive | Finish | Withdraw | Toggle

amounts = st.sampled_from((1, 1, 1, 2, 3, 5, 9, CAPACITY))
needs = st.dictionaries(st.sampled_from(KEYS), amounts, min_size=1)
places = st.integers(0, 5)
steps = st.lists(
    st.one_of(
        st.builds(Arrive, needs),
        st.builds(Arrive, needs),
        st.builds(Arrive, needs),
        st.builds(Finish, places),
        st.builds(Finish, places),
        st.builds(Withdraw, places),
        st.builds(Toggle, st.sampled_from(KEYS)),
    ),
    max_size=50,
)


@attrs.define(eq=False)
class Client:
    """One request, from its arrival on."""

    name: int
    waiter: LimitWaiter
    passed_by: set[int] = attrs.field(factory=set)
    """Later requests that started while it waited and was not parked."""


@attrs.define
class World:
    """Capacities, amounts in use, and waiting requests."""

    order: WaitingOrder[LimitWaiter] = attrs.field(factory=WaitingOrder)
    waiting: list[Client] = attrs.field(factory=list)
    running: list[Client] = attrs.field(factory=list)
    paused: set[str] = attrs.field(factory=set)
    starts: list[int] = attrs.field(factory=list)
    came: int = 0

    def room(self, key: str) -> float | None:
        if key in self.paused:
            return None
        return CAPACITY - sum(client.waiter.needs.get(key, 0) for client in self.running)

    def parked(self, client: Client) -> bool:
        return not self.paused.isdisjoint(client.waiter.keys)

    def take(self, step: Step) -> None:
        """Apply one step, and all the starts that it allows."""
        match step:
            case Arrive(wanted):
                self.arrive(wanted)
            case Toggle(key):
                self.paused ^= {key}
            case _ if (client := self.chosen(step)) is not None:
                self.end(client.name)
        self.serve()

    def arrive(self, wanted: Mapping[str, int]) -> None:
        obstacles = self.order.obstacles(wanted, self.room)
        client = Client(self.came, self.order.join(LimitWaiter(wanted)))
        self.came += 1
        self.waiting.append(client)
        assert obstacles == self.order.held_back(client.waiter, self.room)

    def chosen(self, step: Finish | Withdraw) -> Client | None:
        """Return the request that a step refers to."""
        among = self.running if isinstance(step, Finish) else self.waiting
        return among[step.place % len(among)] if among else None

    def end(self, name: int) -> None:
        """Remove a waiting request, or return the amounts of a running one."""
        for client in self.waiting:
            if client.name == name:
                self.order.leave(client.waiter)
        self.waiting = [client for client in self.waiting if client.name != name]
        self.running = [client for client in self.running if client.name != name]

    def serve(self) -> None:
        """Start all requests that may start now, in the order of arrival."""
        last = -1

        def start(waiter: LimitWaiter) -> None:
            nonlocal last
            client = next(one for one in self.waiting if one.waiter is waiter)
            assert client.name > last
            last = client.name
            assert self.plainly(client)
            self.start(client)

        held = self.order.serve(self.room, start)
        assert [waiter for waiter, _ in held] == self.heads()
        for waiter, keys in held:
            lacking = self.lacking(waiter)
            assert keys == lacking or (keys and not lacking)

    def lacking(self, waiter: LimitWaiter) -> tuple[str, ...]:
        """Return the keys that block it by themselves."""
        paused = tuple(key for key in waiter.needs if self.room(key) is None)
        return paused or tuple(
            key for key, amount in waiter.needs.items() if (self.room(key) or 0) < amount
        )

    def heads(self) -> list[LimitWaiter]:
        """Return the first request of each key set, by arrival."""
        first: dict[frozenset[str], LimitWaiter] = {}
        for client in self.waiting:
            first.setdefault(client.waiter.keys, client.waiter)
        return list(first.values())

    def start(self, client: Client) -> None:
        before = {key: self.room(key) for key in KEYS}
        self.waiting.remove(client)
        self.running.append(client)
        self.starts.append(client.name)
        for other in self.waiting:
            if other.name < client.name and not self.parked(other):
                other.passed_by.add(client.name)
                self.check_passing(client.waiter, other.waiter, before)

    def check_passing(
        self, passes: LimitWaiter, waits: LimitWaiter, before: Mapping[str, float | None]
    ) -> None:
        """No waiter is overtaken on a key that it is short of, or made short of one."""
        assert passes.keys != waits.keys
        for key in passes.keys & waits.keys:
            there_was, there_is = before[key], self.room(key)
            assert there_was is not None
            assert there_was >= waits.needs[key]
            assert there_is is not None
            assert there_is >= waits.needs[key]

    def plainly(self, client: Client) -> bool:
        """Apply the rule to the list of all waiting requests."""
        mine = client.waiter.needs
        room = {key: self.room(key) for key in mine}
        if any((room[key] or 0) < amount for key, amount in mine.items()):
            return False
        for earlier in self.waiting:
            if earlier.name >= client.name or self.parked(earlier):
                continue
            if earlier.waiter.keys == client.waiter.keys:
                return False
            for key, amount in earlier.waiter.needs.items():
                if key in mine and (room[key] or 0) - mine[key] < amount:
                    return False
        return True


def played(script: Sequence[Step]) -> World:
    world = World()
    for step in script:
        world.take(step)
    return world


A_FULL = Arrive({"a": CAPACITY})
B_FULL = Arrive({"b": CAPACITY})
TWO_KEYS = Arrive({"a": 1, "shared": 1})
B_AND_SHARED = Arrive({"b": 1, "shared": 1})


@given(script=steps)
@example([A_FULL, Arrive({"a": 1, "shared": 9}), Arrive({"b": 1, "shared": 2}), Arrive({"b": 1})])
@example([A_FULL, Arrive({"a": 1}), Arrive({"a": 1, "b": 9}), Arrive({"b": 2})])
@example([A_FULL, TWO_KEYS, Arrive({"a": 1, "shared": 9}), Arrive({"b": 1, "shared": 2})])
@example([A_FULL, B_FULL, TWO_KEYS, B_AND_SHARED, Arrive({"a": 1, "shared": 10}), Finish(1)])
@example([B_FULL, Arrive({"b": 1, "shared": 9}), Arrive({"a": 5, "shared": 5}), TWO_KEYS])
@example([Toggle("shared"), TWO_KEYS, B_AND_SHARED, TWO_KEYS, Withdraw(0), Toggle("shared")])
@example(
    [
        Toggle("a"),
        Arrive({"a": 1, "b": 9}),
        Arrive({"b": 2}),
        Toggle("a"),
        Arrive({"b": 1}),
    ]
)
def test_exactly_the_startable_requests_start(script: Sequence[Step]) -> None:
    """Exactly the waiters that the simple rule allows start."""
    world = World()
    for step in script:
        world.take(step)
        for client in world.waiting:
            assert not world.plainly(client)
            held_by = world.order.held_back(client.waiter, world.room)
            assert held_by
            assert client.waiter.keys.issuperset(held_by)
    assert [client.waiter for client in world.waiting] == list(world.order)
    event(f"passed: {any(client.passed_by for client in world.waiting)}")
    event(f"parked: {any(map(world.parked, world.waiting))}")


@given(script=steps)
def test_a_request_that_overtakes_a_waiter_never_causes_its_wait(script: Sequence[Step]) -> None:
    """A waiter never waits for capacity taken by a request that overtook it.

    The starvation bound: without all that overtook it, it could not start either; it waits for earlier
    capacity, for capacity taken while it was parked, or for an earlier waiter.
    """
    world = World()
    for step in script:
        world.take(step)
        for client in world.waiting:
            if world.parked(client):
                continue
            left = {
                key: CAPACITY
                - sum(
                    other.waiter.needs.get(key, 0)
                    for other in world.running
                    if other.name not in client.passed_by
                )
                for key in KEYS
            }
            short = any(left[key] < amount for key, amount in client.waiter.needs.items())
            behind = any(
                other.name < client.name
                and not world.parked(other)
                and not other.waiter.keys.isdisjoint(client.waiter.keys)
                for other in world.waiting
            )
            assert short or behind


@given(script=steps)
def test_the_same_keys_are_served_first_in_first_out(script: Sequence[Step]) -> None:
    """Requests for the same keys start in the order of arrival, with pauses or not."""
    kinds = [frozenset(step.needs) for step in script if isinstance(step, Arrive)]
    world = played(script)
    for kind in set(kinds):
        mine = [name for name in world.starts if kinds[name] == kind]
        assert mine == sorted(mine)


@given(script=steps, more=st.lists(st.tuples(places, amounts), max_size=10))
def test_disjoint_keys_do_not_delay_each_other(
    script: Sequence[Step], more: Sequence[tuple[int, int]]
) -> None:
    """Requests for disjoint keys do not change each other's starts."""
    alone, crowded = World(), World()
    there: list[int] = []  # the indices in `crowded` of the requests of `alone`
    for at, step in enumerate(script):
        for place, amount in more:
            if place == at:
                crowded.take(Arrive({"own": amount}))
        if isinstance(step, Finish | Withdraw):
            if (client := alone.chosen(step)) is not None:
                crowded.end(there[client.name])
                crowded.serve()
        else:
            if isinstance(step, Arrive):
                there.append(crowded.came)
            crowded.take(step)
        alone.take(step)
        assert [name for name in crowded.starts if name in there] == [
            there[name] for name in alone.starts
        ]


@given(script=steps)
def test_every_waiter_is_served_eventually(script: Sequence[Step]) -> None:
    """When all keys are open and running requests end, every waiter starts."""
    world = played(script)
    for key in sorted(world.paused):
        world.take(Toggle(key))
    bound = len(world.running) + len(world.waiting)
    for _ in range(bound):
        world.take(Finish(0))
    assert not world.waiting
    assert len(world.order) == 0


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    """A large request starts although small ones that fit arrive for ever."""
    world = World()
    for _ in range(CAPACITY):
        world.take(Arrive({"a": 1}))
    world.take(Arrive({"a": 9, "b": 1}))
    for _ in range(50):
        world.take(Arrive({"a": 1, "shared": 1}))
        if world.starts[-1] == CAPACITY:
            break
        world.take(Finish(0))
    assert world.starts == list(range(CAPACITY + 1))


def test_many_waiters_for_one_key_leave_the_room_of_another() -> None:
    """Each waiter reserves room only for itself, not for all waiters together."""
    world = World()
    world.take(A_FULL)
    for _ in range(100):
        world.take(Arrive({"a": 1, "shared": 1}))
    for _ in range(CAPACITY):
        world.take(Arrive({"b": 1, "shared": 1}))
    assert world.starts == [0, *range(101, 101 + CAPACITY - 1)]
    assert world.room("shared") == 1


def test_an_unknown_capacity_does_not_hold_back_requests() -> None:
    """A key of unknown capacity blocks none; a bound below a denied amount blocks that key's waiters."""
    order = WaitingOrder[LimitWaiter]()
    order.join(LimitWaiter({"tokens": 90, "calls": 1}))
    known: dict[str, float] = {"tokens": 89}

    def room(key: str) -> float:
        return known.get(key, float("inf"))

    assert order.obstacles({"tokens": 1}, room) == ("tokens",)
    assert not order.obstacles({"calls": 1}, room)
    del known["tokens"]
    assert not order.serve(room, lambda _waiter: None)
    assert len(order) == 0
