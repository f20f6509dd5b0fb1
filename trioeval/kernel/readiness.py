"""A readiness that somebody else wrote, held to its protocol.

It names each job once as ready, and once more each time that it was set aside. It may block a job that has
not started, or is set aside, and no other. Serial jobs run whatever it says: it may name them as ready, which
changes nothing, and cannot block them. What it does wrong is a fault of the plan, not of single jobs, and
ends the run.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence

import attrs

from trioeval.errors import PlanError
from trioeval.kernel.jobs import Freed, Rank, Readiness

# How far each job is, a byte each.
_UNNAMED, _READY, _STARTED, _ASIDE, _LEFT, _OVER = range(6)
_NOT_READY = {
    _READY: "as ready twice",
    _STARTED: "as ready, which has started",
    _LEFT: "as ready, which it left to the run to run again",
    _OVER: "as ready, which is over",
}
_NOT_BLOCKED = {_STARTED: "has started", _OVER: "is over"}


@attrs.frozen
class Said:
    """What a readiness said, and was free to say."""

    ready: Sequence[int] = ()
    """Jobs that may start now."""
    blocked: Sequence[tuple[int, int]] = ()
    """Jobs that never will, or not again, each with the job that blocks it."""
    withdrawn: Sequence[int] = ()
    """Those of them that might have started at any time."""


_NOTHING = Said()


class Checked:
    """Passes on what a readiness says, if it may say it.

    Args:
        make: Makes the readiness of one run.
        size: Jobs of the plan.
        serial: Those that run before all others.

    Raises:
        PlanError: It cannot be made.
    """

    def __init__(
        self, make: Callable[[], Readiness], size: int, serial: Collection[int] = ()
    ) -> None:
        self._states = bytearray(size)
        self._serial = serial
        try:
            self._readiness = make()
        except Exception as error:
            raise _failure(error) from error

    def begin(self) -> tuple[int, ...]:
        """The jobs that may start at once.

        Raises:
            PlanError: It fails, or names what is no job, or a job twice.
        """
        try:
            ready = tuple(self._readiness.begin())
        except Exception as error:
            raise _failure(error) from error
        self._name(ready)
        return ready

    def rank(self, index: int) -> Rank:
        """Where a job stands among those of its lane that may start.

        Raises:
            PlanError: It fails, or says what is no rank.
        """
        try:
            rank = self._readiness.rank(index)
        except Exception as error:
            raise _failure(error) from error
        if not _is_rank(rank):
            msg = f"the readiness of the plan ranks job {index} as {rank!r}; a rank is a tuple of numbers"
            raise PlanError(msg)
        return rank

    def is_ready(self, index: int) -> bool:
        """Whether a job may start and has not."""
        return self._states[index] == _READY

    def start(self, index: int) -> None:
        """A job starts that was ready."""
        self._states[index] = _STARTED

    def start_again(self, index: int) -> None:
        """A job may start again whose round was left to the run."""
        self._states[index] = _READY

    def aside(self, index: int) -> Said | None:
        """What it says of a job that is set aside; None leaves its round to the run.

        Raises:
            PlanError: As `over`.
        """
        if index in self._serial:
            return None
        self._states[index] = _ASIDE
        try:
            freed = self._readiness.aside(index)
        except Exception as error:
            raise _failure(error) from error
        if freed is None:
            self._states[index] = _LEFT
            return None
        return self._take(freed)

    def over(self, index: int, *, done: bool) -> Said:
        """What an outcome sets free.

        Raises:
            PlanError: It fails; names as ready what is no job, was named before, or is over; or blocks what
                is no job, has started, is over, or is serial.
        """
        if index not in self._serial:
            self._states[index] = _OVER
        try:
            freed = self._readiness.over(index, done=done)
        except Exception as error:
            raise _failure(error) from error
        return self._take(freed)

    def _take(self, freed: Freed) -> Said:
        try:
            ready, blocked = tuple(freed.ready), tuple((job, by) for job, by in freed.blocked)
        except Exception as error:
            raise _failure(error) from error
        if not ready and not blocked:
            return _NOTHING
        self._name(ready)
        return Said(ready, blocked, [job for job, _ in blocked if self._block(job)])

    def _name(self, indices: Iterable[int]) -> None:
        for index in indices:
            state = self._state(index)
            if state in _NOT_READY:
                msg = f"the readiness of the plan names job {index} {_NOT_READY[state]}"
                raise PlanError(msg)
            self._states[index] = _READY

    def _block(self, index: int) -> bool:
        """Put an end to a job; whether it might have started."""
        state = self._state(index)
        if index in self._serial:
            msg = f"the readiness of the plan blocks job {index}, which is serial: it runs anyway"
            raise PlanError(msg)
        if state in _NOT_BLOCKED:
            msg = f"the readiness of the plan blocks job {index}, which {_NOT_BLOCKED[state]}"
            raise PlanError(msg)
        self._states[index] = _OVER
        return state == _READY

    def _state(self, index: int) -> int:
        if type(index) is not int or not 0 <= index < len(self._states):
            msg = f"the readiness of the plan names {index!r}; its jobs are 0 to {len(self._states) - 1}"
            raise PlanError(msg)
        return self._states[index]


def _is_rank(rank: object) -> bool:
    if not isinstance(rank, tuple):
        return False
    return not rank or all(isinstance(one, int | float) and not math.isnan(one) for one in rank)


def _failure(error: Exception) -> PlanError:
    return PlanError(f"the readiness of the plan failed: {type(error).__name__}: {error}")
