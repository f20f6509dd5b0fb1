"""What holds for the calls of all jobs of a run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs
import trio

from trioeval.kernel.events import Observer
from trioeval.kernel.lane import Lane
from trioeval.kernel.reservations import Need, Purse

# What a stop does with jobs that are under way and have made no request yet.
#
# What a lane allows by itself holds its next job back before that is started, so a stop finds nobody who
# waits for it. A permit is another matter: only the body knows what its request needs, so the job is started
# first and asks then. Whoever keeps a limit that is shared may let it wait for as long as he likes, and no
# stop of this run moves him. Such a job has paid for nothing, and comes to nothing that could not be had
# later: it is *withdrawn*. From the stop on nobody asks for a permit whose job has made no request; what has
# made one goes on, as on every other lane.
#
# A withdrawn job is cut off like one whose time is over. Its permit may be granted in that very step: it
# is given back, because who finds at the start that it is withdrawn does not start.
#
# Rejected: to hold the job back until there is a permit (of what size?), and to let it have the permits that
# come at once (then how a run ends depends on where its limits are kept).
#
# Law: DRAIN.


@attrs.define(eq=False)
class Withdrawal:
    """The stop of a run, and the first requests that it calls back."""

    stop: trio.Event
    """No new job starts any more, and no permit is asked for a first request."""
    _waiting: dict[object, Callable[[], None]] = attrs.field(factory=dict)

    @contextmanager
    def ending(self, call: object, withdraw: Callable[[], None]) -> Iterator[None]:
        """Put around a wait that a stop may end.

        Args:
            call: What waits.
            withdraw: Ends it. Synchronous.
        """
        self._waiting[call] = withdraw
        try:
            yield
        finally:
            del self._waiting[call]

    def withdraw(self) -> None:
        """The run was stopped: end every such wait. Synchronous."""
        for withdraw in tuple(self._waiting.values()):
            withdraw()


@attrs.frozen
class Terms:
    """What holds for the calls of all jobs of a run."""

    lanes: Mapping[str, Lane]
    deadline: float
    observe: Observer | None
    purse: Purse | None
    """What calls are paid from."""
    plain: Need
    """Of a call that says nothing of tokens and money."""
    withdrawal: Withdrawal
    """What a stop means for first requests."""
