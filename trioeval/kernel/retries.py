"""Whether a call that failed is made again.

Law: ATTEMPTS. Mishaps are bounded by the lane's `retries`; refusals by its patience, which closes the
lane; everything together by `max_retries`, where somebody set it.
"""

import attrs

from trioeval.errors import CallError, GradingError, leaves
from trioeval.faults import Fault
from trioeval.kernel.lane_spec import LaneSpec

_OFTEN = 2


@attrs.define(eq=False)
class Attempts:
    """The failures of one call."""

    _spec: LaneSpec
    mishaps: int = 0
    """Transient failures so far."""
    refusals: int = 0
    """How often the call was one too many."""
    _failures: int = 0

    @property
    def passes(self) -> bool:
        """Whether the call stands in line before what is new.

        One that was refused again and again does not: it may be refused for ever, and on a narrow lane
        nothing else would be served.
        """
        return self.refusals < _OFTEN

    def again(self, error: CallError | None, *, salvaging: bool) -> bool:
        """Count a failure; whether the call is made again, as far as the number of attempts goes.

        A failure that says nothing is final. A job that is salvaged has one attempt left for mishaps.
        """
        if error is None:
            return False
        self.refusals += error.fault is Fault.RATE_LIMITED
        self.mishaps += error.fault is Fault.TRANSIENT
        self._failures += 1
        if self._spec.max_retries is not None and self._failures > self._spec.max_retries:
            return False
        if error.retries is not None and self._failures > error.retries:
            return False
        if error.fault is Fault.TRANSIENT:
            return not salvaging and self.mishaps <= self._spec.retries
        return True


def call_error(error: Exception) -> CallError | None:
    """What a failure says of its lane, also if it comes out of a nursery; None if it says nothing."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, ExceptionGroup):
        inside = list(leaves(error))
        if len(inside) == 1 and isinstance(inside[0], CallError):
            return inside[0]
    return None


def used_by(failure: Exception, tokens: int, money: float) -> tuple[int, float]:
    """What a request used that failed, of what it had reserved."""
    error = call_error(failure)
    return (tokens, money) if error is None else error.used(tokens, money)


def worth_salvaging(error: Exception) -> bool:
    """Whether a job that ended with `error` may do better later."""
    found = [leaf for leaf in leaves(error) if isinstance(leaf, CallError | GradingError)]
    return bool(found) and all(map(_is_mishap, found))


def _is_mishap(error: CallError | GradingError) -> bool:
    if isinstance(error, GradingError):
        return error.mishap
    return error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)
