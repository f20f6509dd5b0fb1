"""A network between clients and a real ledger that loses and delays messages, on virtual time.

It invents no answers: each one was decided by the ledger, at the instant at which the message arrived
there. A message that its sender has given up may still arrive.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Self, TypeVar

import attrs
import trio
from hypothesis import strategies as st

from trioeval.errors import LimitError
from trioeval.limits import (
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.limits.ledger import LimitLedger

R = TypeVar("R")

TIMEOUT = 2.0
"""Seconds that a sender waits for an answer."""


@attrs.frozen
class Fault:
    """The fate of one message."""

    there: float = 0.0
    """Seconds until it arrives."""
    back: float = 0.0
    """Seconds until the answer does."""
    loses: Literal["", "message", "answer"] = ""
    confuses: bool = False
    """The answer to a request for leases is "unknown", whatever was decided."""


def faults() -> st.SearchStrategy[Fault]:
    """Return a strategy for any fault; "late" exceeds every timeout."""
    seconds = st.sampled_from([0.0, 0.0, 0.25, 1.0, 3.0])
    return st.builds(
        Fault,
        there=seconds,
        back=seconds,
        loses=st.sampled_from(["", "", "", "message", "answer"]),
        confuses=st.sampled_from([False, False, False, True]),
    )


@attrs.frozen
class ArrivedRequest:
    """A lease request that has arrived."""

    at: float
    ask: LeaseRequest
    decision: Granted | Denied


@attrs.define(eq=False)
class FaultyNetwork:
    """A `Backend` for several programs that records everything that arrives."""

    _nursery: trio.Nursery
    ledger: LimitLedger
    _faults: Iterator[Fault]
    """Faults of the first messages; all later ones are delivered at once."""
    arrived: list[ArrivedRequest] = attrs.field(factory=list)
    completed: list[Settlement] = attrs.field(factory=list)
    sent: list[tuple[float, LeaseRequest]] = attrs.field(factory=list)
    """Instants at which requests for leases were sent."""
    extended: int = 0
    """Number of heartbeats sent."""
    unanswered: int = 0
    """Number of heartbeats without an answer in time; if a call ends before that, it is not warned of."""
    found_over: dict[str, float] = attrs.field(factory=dict)
    """Instant at which the heartbeat of a lease was first answered with "expired"."""

    @classmethod
    def over(
        cls, nursery: trio.Nursery, limits: Iterable[SharedLimit], faults: Iterable[Fault] = ()
    ) -> Self:
        """Make a network in front of a ledger of these limits."""
        return cls(nursery, LimitLedger(LimitState(limit=one) for one in limits), iter(faults))

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        self.sent.extend((trio.current_time(), ask) for ask in asks)
        fault = next(self._faults, Fault())
        answer = await self._send(fault, lambda now: [self._reserve(ask, now) for ask in asks])
        return [Unknown("the backend is confused")] * len(asks) if fault.confuses else answer

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        def carry_out(now: float) -> None:
            for one in settlements:
                self.completed.append(one)
                self.ledger.complete(one, now)

        await self._send(next(self._faults, Fault()), carry_out)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        def carry_out(now: float) -> list[bool]:
            answers = self.ledger.extend(lease_ids, now)
            for lease_id, lives in zip(lease_ids, answers, strict=True):
                if not lives:
                    self.found_over.setdefault(lease_id, now)
            return answers

        self.extended += 1
        return await self._beat(carry_out)

    async def states(self) -> Sequence[LimitState]:
        return await self._beat(self.ledger.states)

    async def _beat(self, carry_out: Callable[[float], R]) -> R:
        self.unanswered += 1
        answer = await self._send(next(self._faults, Fault()), carry_out)
        self.unanswered -= 1
        return answer

    async def define(self, limit: SharedLimit, /) -> LimitState:
        return await self._send(Fault(), lambda now: self.ledger.define(limit, now))

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        return await self._send(Fault(), lambda now: self.ledger.pause(key, now + seconds, now))

    async def remove(self, key: str, /) -> None:
        await self._send(Fault(), lambda now: self.ledger.remove(key, now))

    def _reserve(self, ask: LeaseRequest, now: float) -> Decision:
        decision = self.ledger.reserve(ask, now)
        self.arrived.append(ArrivedRequest(now, ask, decision))
        return decision

    async def _send(self, fault: Fault, carry_out: Callable[[float], R]) -> R:
        await trio.lowlevel.checkpoint()
        answers: list[R] = []
        delivered = trio.Event()

        async def travel() -> None:
            await trio.sleep(fault.there)
            if fault.loses == "message":
                return
            answer = carry_out(trio.current_time())
            await trio.sleep(fault.back)
            if fault.loses != "answer":
                answers.append(answer)
                delivered.set()

        self._nursery.start_soon(travel)
        with trio.move_on_after(TIMEOUT):
            await delivered.wait()
        if not answers:
            raise LimitError("limiter_unavailable", "no answer in 2 s")
        return answers[0]
