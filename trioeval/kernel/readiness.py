"""A readiness that somebody else wrote, held to its protocol.

It names each job once: to begin with, as ready, or as blocked. Serial jobs run whatever it says: it may name
them as ready, which changes nothing, and cannot block them. What it does wrong is a fault of the plan, not
of single jobs, and ends the run.
"""

from collections.abc import Callable, Collection, Iterable

from trioeval.errors import PlanError
from trioeval.kernel.jobs import Freed, Readiness


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
        self._named = bytearray(size)
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

    def over(self, index: int, *, done: bool) -> Freed:
        """What an outcome sets free.

        Raises:
            PlanError: It fails, or names what is no job, or a job for the second time; or it blocks a
                serial job.
        """
        try:
            freed = self._readiness.over(index, done=done)
            blocked = tuple(never for never, _ in freed.blocked)
            named = (*freed.ready, *blocked)
        except Exception as error:
            raise _failure(error) from error
        self._name(named)
        for never in blocked if self._serial else ():
            if never in self._serial:
                msg = (
                    f"the readiness of the plan blocks job {never}, which is serial: it runs anyway"
                )
                raise PlanError(msg)
        return freed

    def _name(self, indices: Iterable[int]) -> None:
        for index in indices:
            if type(index) is not int or not 0 <= index < len(self._named):
                msg = f"the readiness of the plan names {index!r}; its jobs are 0 to {len(self._named) - 1}"
                raise PlanError(msg)
            if self._named[index]:
                msg = f"the readiness of the plan names job {index} twice"
                raise PlanError(msg)
            self._named[index] = 1


def _failure(error: Exception) -> PlanError:
    return PlanError(f"the readiness of the plan failed: {type(error).__name__}: {error}")
