"""Whether a call that failed is made again.

Law: ATTEMPTS. Mishaps are bounded by the lane's `retries`; refusals by its patience, which closes the
lane; everything together by `max_retries`, where it is set, over all salvage rounds.

**Refusals of one call.** A lane that serves other calls never runs out of patience, so a call that its
provider always refuses (it is too large, and the reply does not say so) would be made again for ever. Such
refusals belong to the call: it fails as soon as they can hardly be chance. The share of refusals among the
other calls of the lane since this one began is the chance of one refusal; that chance to the power of the
refusals of this call must be below one in a million. Where everything is refused often, this takes many
refusals; among calls that are all served, a few. A fixed number of refusals would either drop calls of a
busy provider or wait long for a hopeless one.

Refusals beside which nothing else was served may be those of a provider that is busy for a while, also if it
served others before: they are not independent of each other. Alone they decide only after they have lasted
for a part of the patience, long enough for a limit of a minute to pass.
"""

import attrs

from trioeval.errors import CallError, GradingError, leaves
from trioeval.faults import Fault
from trioeval.kernel.lane_spec import LaneSpec

_OFTEN = 2

_CHANCE = 1e-6
"""Below this probability the refusals of one call are not chance."""
_LASTING = 4
"""The part of the patience that refusals last which decide although nothing was served beside them."""


@attrs.define(eq=False)
class Attempts:
    """The failures of one call."""

    _spec: LaneSpec
    _before: tuple[int, int]
    """Calls that the lane had served, and refused, when this call began."""
    failures: int = 0
    """All failures so far, those of earlier salvage rounds included."""
    is_own: bool = False
    """Whether the last failure is a refusal that the other calls of the lane do not share."""
    mishaps: int = 0
    """Transient failures so far."""
    refusals: int = 0
    """How often the call was one too many."""
    _served: int = attrs.field(init=False, default=0)
    """Calls that the lane had served at the last refusal, since this call began."""
    _alone_since: float = attrs.field(init=False, default=0.0)
    """The instant of the first refusal after the last of those."""

    @property
    def exhausted(self) -> bool:
        """Whether `max_retries` allows no further call, not even in a salvage round."""
        return self._spec.max_retries is not None and self.failures > self._spec.max_retries

    @property
    def passes(self) -> bool:
        """Whether the call stands in line before what is new.

        One that was refused again and again does not: it may be refused for ever, and on a narrow lane
        nothing else would be served.
        """
        return self.refusals < _OFTEN

    def again(
        self, error: CallError | None, now: float, seen: tuple[int, int], *, salvaging: bool
    ) -> bool:
        """Count a failure; whether the call is made again, as far as the number of attempts goes.

        A failure that says nothing is final. A job that is salvaged has one attempt left for mishaps.

        Args:
            error: The failure.
            now: The instant.
            seen: Calls that the lane has served, and refused, until now; without this refusal.
            salvaging: Whether its job is salvaged.
        """
        self.is_own = False
        if error is None:
            return False
        self.refusals += error.fault is Fault.RATE_LIMITED
        self.mishaps += error.fault is Fault.TRANSIENT
        self.failures += 1
        served = seen[0] - self._before[0]
        if self.exhausted:
            self.is_own = error.fault is Fault.RATE_LIMITED and served > 0
            return False
        if error.retries is not None and self.failures > error.retries:
            self.is_own = salvaging and error.fault is Fault.RATE_LIMITED and served > 0
            return False
        if error.fault is Fault.TRANSIENT:
            return not salvaging and self.mishaps <= self._spec.retries
        if error.fault is Fault.RATE_LIMITED and served:
            refused = seen[1] - self._before[1] - (self.refusals - 1)
            share = (refused + 1) / (served + refused + 2)
            is_independent = self._is_independent(served, now)
            self.is_own = is_independent and share**self.refusals < _CHANCE
        return not self.is_own

    def _is_independent(self, served: int, now: float) -> bool:
        """Whether this refusal and the last one are not of one time in which the lane serves nothing."""
        if served != self._served:
            self._served, self._alone_since = served, now
            return True
        return now - self._alone_since >= self._spec.patience / _LASTING


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
