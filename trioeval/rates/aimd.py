"""How many calls a lane may have in flight: a limit that learns from refusals.

The server's own limit is unknown and moves. The rule is the one of TCP congestion control (Chiu and Jain
1989): grow by one while all goes well, shrink by a factor when it does not. What has to be got right is
what counts as a signal.

* A burst of refusals is one signal. Calls that started before a cut know nothing of it, so each call
  remembers the *epoch* it started in and only a call of the present epoch can cut. A cut begins the next.
* A single refusal is no signal: servers refuse at random. It opens a *round* of as many completions as
  the limit is wide; only a second refusal inside it cuts.
* A lane that is not used learns nothing: the limit grows only after a round in which it was nearly
  reached.
* What was learned is remembered and not believed for ever: after a cut the limit grows to just below
  where it was, stays, and tries one more after some clean rounds. If the trial is refused, it steps back
  and waits twice as long; if not, the memory is dropped.

Law: AIMD.
"""

import math
from typing import Protocol

import attrs

_LEAST_ROUND = 4
"""Completions of a round at small limits."""
_CUT_TO = 0.7
_SATURATED = 0.8
"""Share of the limit that must have been in flight for a round to tell anything."""
_TRIAL_AFTER = 3
"""Clean rounds at the remembered ceiling before one more is tried."""
_LONGEST_TRIAL_AFTER = 24


class AdaptiveLimit(Protocol):
    """A limit of the calls in flight; 1 ≤ `limit` ≤ `width` at all times."""

    limit: int
    width: int
    epoch: int
    """Cuts so far; a call remembers it at its start."""

    @property
    def calm(self) -> bool:
        """Whether starts and successes tell nothing now, so that nobody has to report them."""
        ...

    def begun(self, in_flight: int) -> None:
        """A call has started; `in_flight` counts it."""
        ...

    def succeeded(self, latency: float, *, retried: bool) -> None:
        """A call has succeeded after `latency` seconds in flight; `retried` if not at its first attempt."""
        ...

    def failed(self) -> None:
        """A call has failed without congestion: no reason to shrink, and none to grow."""
        ...

    def congested(self, epoch: int) -> None:
        """A call that started in `epoch` was refused because there were too many."""
        ...

    def retune(self, width: int) -> None:
        """The configured width is another now, ≥ 1."""
        ...


@attrs.define(eq=False)
class FixedLimit:
    """No adaptation: the limit is the width."""

    width: int
    limit: int = attrs.field(init=False)
    epoch: int = 0

    def __attrs_post_init__(self) -> None:
        self.limit = self.width

    @property
    def calm(self) -> bool:
        """Always."""
        return True

    def begun(self, in_flight: int) -> None:
        """Nothing."""

    def succeeded(self, latency: float, *, retried: bool) -> None:
        """Nothing."""

    def failed(self) -> None:
        """Nothing."""

    def congested(self, epoch: int) -> None:
        """Nothing."""

    def retune(self, width: int) -> None:
        """Take the width."""
        self.width = self.limit = width


@attrs.define(eq=False)
class AimdLimit:
    """Additive increase, multiplicative decrease.

    Args:
        width: The most that the limit may be, ≥ 1.
        slow_start: Begin at 1 and double in every clean round until the first refusal.

    Example:
        >>> limit = AimdLimit(8)
        >>> for _ in range(8):  # a burst: all of one epoch
        ...     limit.congested(0)
        >>> limit.limit, limit.epoch
        (5, 1)
    """

    width: int
    slow_start: bool = False
    limit: int = attrs.field(init=False)
    epoch: int = attrs.field(init=False, default=0)
    _ceiling: float = attrs.field(init=False, default=math.inf)
    """The limit just below the one that was refused last; infinite if there is no such memory."""
    _completions: int = attrs.field(init=False, default=0)
    _peak: int = attrs.field(init=False, default=0)
    _refused: bool = attrs.field(init=False, default=False)
    """Whether this round has had a refusal."""
    _spoilt: bool = attrs.field(init=False, default=False)
    """Whether this round has had a failure of another kind."""
    _clean_rounds: int = attrs.field(init=False, default=0)
    """At the ceiling, since the last trial."""
    _trial_after: int = attrs.field(init=False, default=_TRIAL_AFTER)

    def __attrs_post_init__(self) -> None:
        self.limit = 1 if self.slow_start else self.width

    @property
    def calm(self) -> bool:
        """At full width, and no refusal to hold a second one against."""
        return self.limit == self.width and not self._refused

    def begun(self, in_flight: int) -> None:
        """Remember how much of the limit was used."""
        self._peak = max(self._peak, in_flight)

    def succeeded(self, latency: float, *, retried: bool) -> None:  # noqa: ARG002 - time tells nothing here
        """One more completion of the round. A retry that succeeded tells nothing of the limit."""
        if not retried:
            self._complete()

    def failed(self) -> None:
        """A round with a failure is not clean."""
        self._spoilt = True
        self._complete()

    def congested(self, epoch: int) -> None:
        """Cut, if the call knew of the last cut and this is not the first refusal of the round."""
        if epoch != self.epoch:
            return
        self.slow_start = False
        if self.limit > self._ceiling:
            self._end_trial()
        elif self._refused:
            self._cut()
        else:
            self._begin_round()
            self._refused = True

    def retune(self, width: int) -> None:
        """A full limit stays full, as far as nothing smaller was learned; a learned one is only bounded."""
        most = self.limit
        if self.limit == self.width and not self.slow_start:
            most = int(min(width, max(self.limit, self._ceiling)))
        self.width, self.limit = width, min(most, width)

    def _complete(self) -> None:
        self._completions += 1
        if self._completions < max(_LEAST_ROUND, self.limit):
            return
        clean = not self._refused and not self._spoilt
        if clean and self._peak >= _SATURATED * self.limit:
            self._grow()
        self._begin_round()

    def _begin_round(self) -> None:
        self._completions = self._peak = 0
        self._refused = self._spoilt = False

    def _grow(self) -> None:
        if self.slow_start:
            self.limit = min(2 * self.limit, self.width)
        elif self.limit > self._ceiling:  # the trial was served
            self._ceiling, self._trial_after = math.inf, _TRIAL_AFTER
            self.limit = min(self.limit + 1, self.width)
        elif self.limit < self._ceiling:
            self.limit = min(self.limit + 1, self.width)
        else:
            self._clean_rounds += 1
            if self._clean_rounds >= self._trial_after:
                self._clean_rounds = 0
                self.limit = min(self.limit + 1, self.width)

    def _end_trial(self) -> None:
        self.limit = max(1, self.limit - 1)
        self._trial_after = min(2 * self._trial_after, _LONGEST_TRIAL_AFTER)
        self.epoch += 1
        self._clean_rounds = 0
        self._begin_round()

    def _cut(self) -> None:
        self._ceiling = max(1, self.limit - 1)
        self._trial_after = _TRIAL_AFTER
        self.limit = max(1, int(_CUT_TO * self.limit))
        self.epoch += 1
        self._clean_rounds = 0
        self._begin_round()
