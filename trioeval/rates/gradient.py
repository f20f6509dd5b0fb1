"""How many calls a lane may have in flight: a limit that learns from latency.

The problem: a server of one's own has no rate to exceed. Asked too much, it does not refuse; it queues, or
computes larger batches, and every call takes longer. The aim is the best throughput at no more than twice
the *base* latency, the one of a call that is alone.

The rule. Latency over base says by which factor a call is slowed down, and where to go: after a round of
completions the limit becomes `limit · 2 · base / latency`, rounded, by no more than a factor of two. On a
queue before c workers this is 2c in one step; on a server whose latency is `base · (1 + n/k)` it
approaches k from either side. That latency beyond the least one shows a queue is from TCP Vegas (Brakmo and
Peterson 1995); that the ratio is the factor, from gradient limiters.

What has to be got right is what is compared:

* **The base drifts** (another model, longer prompts), and a full server never shows it. So at the start,
  and again after so many rounds, the limit is 1 for a few calls, and goes back to where it was. The base is
  the least of these means, forgotten by half each time. Not the least single latency: with jitter it is
  far below the mean, and the limit would be as far too low. Not a least value over a window of ordinary
  calls: a full server would slowly become the base, and the limit would run away.
* **If everything slows down** more than twofold, the limit falls to 1 by itself and the base is measured
  there. That is why nothing has to detect a change.
* **Calls in flight at a change** of the limit tell of the old one, and those that refill an emptied server
  meet it half empty. So as many completions as the limit is wide pass uncounted.
* **A lane that is not used** learns nothing: the limit grows only after a round in which it was nearly
  reached. Once is enough: replies that come together empty the lane before it is filled again.

A second refusal in a round cuts the limit, once for each epoch as in `aimd`; from then on it grows by one
at a time, since latency does not show where the server refuses.

Law: AIMD.
"""

import math

import attrs

from trioeval.rates.aimd import Refusal

_SLOWDOWN = 2.0
"""Latency, in parts of the base, that is aimed at."""
_LEAST_ROUND = 4
"""Completions of a round at small limits."""
_SATURATED = 0.8
"""Share of the limit that must have been in flight for the limit to grow."""
_PROBE_AFTER = 64
"""Rounds at a nearly reached limit until the base is measured again."""
_CUT_TO = 0.7


@attrs.define(eq=False)
class GradientLimit:
    """A limit of the calls in flight that keeps their latency at twice the base.

    Args:
        width: The most that the limit may be, ≥ 1.

    Example:
        >>> limit = GradientLimit(8)
        >>> limit.limit
        1
        >>> for _ in range(4):  # as fast as a call can be, so two may be in flight
        ...     limit.begun(1)
        ...     limit.succeeded(0.5, retried=False)
        >>> limit.limit
        2
    """

    width: int
    limit: int = attrs.field(init=False, default=1)
    """Calls that may be in flight; 1 ≤ `limit` ≤ `width`."""
    epoch: int = attrs.field(init=False, default=0)
    """Cuts by refusals so far; a call remembers it at its start."""
    base: float = attrs.field(init=False, default=math.inf)
    """Seconds that a call takes when it is alone, as far as is known; infinite if it is not."""
    _aim: int = attrs.field(init=False, default=1)
    """The limit when the base is not being measured."""
    _rounds: int = attrs.field(init=False, default=0)
    """Since the base was measured."""
    _fresh: bool = attrs.field(init=False, default=True)
    """Whether no call has started since the limit changed."""
    _stale: int = attrs.field(init=False, default=0)
    """Calls still to come that do not tell of the present limit."""
    _latencies: list[float] = attrs.field(init=False, factory=list)
    """Of this round."""
    _peak: int = attrs.field(init=False, default=0)
    """Most in flight at a start of this round."""
    _spoilt: bool = attrs.field(init=False, default=False)
    """Whether this round has had a failure."""
    _refused: bool = attrs.field(init=False, default=False)
    """Whether this round has had a refusal; a second one cuts, as in `aimd`."""

    @property
    def calm(self) -> bool:
        """Never: every latency tells something."""
        return False

    def begun(self, in_flight: int) -> None:
        """A call has started; `in_flight` counts it."""
        if self._fresh:
            self._fresh, self._stale = False, self.limit - 1
        if self._stale == 0:
            self._peak = max(self._peak, in_flight)

    def succeeded(self, latency: float, *, retried: bool) -> None:  # noqa: ARG002 - an attempt's time is its own
        """A call has succeeded after `latency` seconds in flight, ≥ 0."""
        if self._tells():
            self._latencies.append(latency)
            if len(self._latencies) >= max(_LEAST_ROUND, self.limit):
                self._end_round()

    def failed(self) -> None:
        """A call has failed without congestion: the limit does not grow in this round."""
        if self._tells():
            self._spoilt = True

    def congested(self, refusal: Refusal) -> None:
        """A call was refused because there were too many; only its first refusal says so."""
        if refusal.epoch != self.epoch or refusal.repeated:
            return
        if not self._refused:
            self._refused = True
        else:
            self.epoch += 1
            self._aim = max(1, int(_CUT_TO * self._aim))
            self._move(min(self.limit, self._aim))

    def retune(self, width: int) -> None:
        """The configured width is another now, ≥ 1."""
        self.width = width
        self._aim = min(self._aim, width)
        self._move(min(self.limit, self._aim))

    def _tells(self) -> bool:
        """Whether the call that is over tells of the present limit."""
        if self._stale > 0:
            self._stale -= 1
            return False
        return not self._fresh

    def _end_round(self) -> None:
        latency = math.fsum(self._latencies) / len(self._latencies)
        probing = self.limit < self._aim
        saturated = self._peak >= _SATURATED * self.limit
        if self.limit == 1:
            known = self.base if self.base < math.inf else latency
            self.base = min(latency, (known + latency) / 2)
            self._rounds = 0
        if not probing:
            self._rounds += saturated
            self._follow(latency, may_grow=saturated and not self._spoilt and not self._refused)
        self._move(1 if self._rounds >= _PROBE_AFTER else self._aim)

    def _follow(self, latency: float, *, may_grow: bool) -> None:
        wanted = self.limit * _SLOWDOWN * self.base / latency if latency > 0 else math.inf
        most = (2 * self.limit if self.epoch == 0 else self.limit + 1) if may_grow else self.limit
        least = self.limit / 2
        self._aim = max(1, round(max(least, min(wanted, most, self.width))))

    def _move(self, limit: int) -> None:
        """Begin a round, at this limit."""
        if limit != self.limit:
            self.limit = limit
            self._fresh = True
        self._latencies.clear()
        self._peak = 0
        self._spoilt = self._refused = False
