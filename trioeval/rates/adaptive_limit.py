"""Adaptive limits of the calls in flight on a lane: by refusals (AIMD) and by latency.

The server's own limit is unknown and changes. The rule is that of TCP congestion control (Chiu and Jain
1989): grow by one while all goes well, shrink by a factor when it does not. The difficulty is to decide what
counts as a signal.

* A burst of refusals is one signal. Calls that started before a cut know nothing of it, so each call
  remembers the *epoch* in which it started, and only a call of the present epoch can cut. A cut begins the
  next epoch.
* A single refusal is not a signal: servers refuse at random. It opens a *round* of as many completions as the
  limit is large; only a second refusal inside the round cuts.
* A cut may not help. If a share p of the calls is refused at a limit of n because n is too many, the server
  serves (1 - p)·n of them, and refuses none at that limit. So if refusals continue at that limit or below,
  with a comparable share, they come *by chance*: the limit returns to n, and from then on only more refusals
  than that share explains are a signal. The share follows what is seen, and is forgotten when it ends.
* An unused lane learns nothing: the limit grows only after a round in which it was nearly reached.
* What was learned is remembered, but not for ever: after a cut the limit grows to just below the refused one,
  stays there, and tries one more after some clean rounds. If the trial is refused, it steps back and waits
  eight times as long; if not, the memory is dropped.
* A refusal that names a wait stops the lane, so it carries more information and costs more than a bare one.
  Nothing starts after it, so what is left in flight when the last call of its wave is refused is what the
  server accepts: the limit is cut to that, at once. If nothing is left, it was not a limit of calls in
  flight, and the usual cut remains. A refused trial costs the lane that wait: the next trial comes when its
  cost is a small part of the time since. If a trial is served, the memory was of something else, such as a
  rate, and the limit doubles until it is refused again.
* Several bare refusals without a success between them are such a wave too: what is left in flight is served,
  and the limit is cut to that at once.

Laws: AIMD, RECOVERY.
"""

import math

import attrs

_LEAST_ROUND = 4
"""Completions of a round at small limits."""
_CUT_TO = 0.7
_SATURATED = 0.8
"""Share of the limit that must have been in flight for a round to count."""
_TRIAL_AFTER = 3
"""Clean rounds at the remembered ceiling before one more call is tried: a refused trial costs a request."""
_LONGER = 8
"""Factor of that number after a refused trial."""
_LONGEST_TRIAL_AFTER = 24
_PAID_BY = 16
"""Seconds between two trials, as a multiple of the cost of a refused one: its wait, and a call that probes.
"""
_WEIGHT = 0.2
"""Weight of the latest call in the average latency, and of the latest round in the share of chance."""
_SIGNAL = 2
"""Refusals that are not one by chance."""
_COMPARABLE = 0.1
"""A cut that leaves less than this part of the share of refusals has helped. The share before it is the one
at which two calls were refused, so it is often several times too large."""
_NO_CHANCE = 0.01
"""Share of refusals by chance below which it is forgotten."""
_DEVIATIONS = 3.0
"""Standard deviations above the expected refusals by chance that are not a signal."""


@attrs.frozen
class Refusal:
    """A refusal because of too many calls, as a signal for a limit of calls in flight."""

    epoch: int
    """The epoch of the limit when the call started."""
    beside: int = 0
    """Other calls in flight that are not refused yet."""
    wait: float = 0.0
    """Seconds that the server asks to wait; 0 if it named no wait."""
    repeated: bool = False
    """True if this call was refused before."""


@attrs.define(eq=False, repr=False)
class Limit:
    """A limit of the calls in flight: the max concurrency, unless a subclass adapts it.

    1 ≤ `limit` ≤ `max_concurrency`.
    """

    max_concurrency: int
    limit: int = attrs.field(init=False)
    epoch: int = attrs.field(init=False, default=0)
    """Number of cuts so far; a call remembers it at its start."""

    def __attrs_post_init__(self) -> None:
        self.limit = self.max_concurrency

    @property
    def calm(self) -> bool:
        """True if starts and successes have no effect now, so that they need not be reported."""
        return True

    @property
    def refused_by_chance(self) -> bool:
        """True if refusals are known to be independent of the number of calls in flight."""
        return False

    def started(self, in_flight: int) -> None:
        """Count a start; `in_flight` includes it."""

    def succeeded(self, latency: float, *, retried: bool) -> None:
        """Count a success after `latency` seconds in flight; `retried` if not at the first attempt."""

    def failed(self) -> None:
        """Count a failure without congestion: no reason to shrink or to grow."""

    def congested(self, refusal: Refusal) -> None:
        """Count a refusal because of too many calls."""

    def retune(self, max_concurrency: int) -> None:
        """Change the max concurrency, ≥ 1."""
        self.max_concurrency = self.limit = max_concurrency

    def narrow(self, limit: int) -> None:
        """Cut the limit to one that another process has learned for the same server, ≥ 1."""


@attrs.define(eq=False, repr=False)
class AimdLimit(Limit):
    """Additive increase, multiplicative decrease.

    Args:
        max_concurrency: The largest value of the limit, ≥ 1.
        slow_start: Start at 1 and double in every clean round until the first refusal.

    Example:
        >>> limit = AimdLimit(8)
        >>> for _ in range(8):  # a burst: all of one epoch
        ...     limit.congested(Refusal(0))
        >>> limit.limit, limit.epoch
        (5, 1)
    """

    slow_start: bool = False
    _ceiling: float = attrs.field(init=False, default=math.inf)
    """The limit just below the one that was last refused; infinite if none is remembered."""
    _completions: int = attrs.field(init=False, default=0)
    _peak: int = attrs.field(init=False, default=0)
    _refusals: int = attrs.field(init=False, default=0)
    """Refusals of this round that do not follow from a cut."""
    _spoilt: bool = attrs.field(init=False, default=False)
    """True if this round has had a failure of another kind."""
    _clean_rounds: int = attrs.field(init=False, default=0)
    """Clean rounds at the ceiling since the last trial."""
    _trial_after: int = attrs.field(init=False, default=_TRIAL_AFTER)
    """Clean rounds before the next trial."""
    _by_wave: bool = attrs.field(init=False, default=False)
    """True if the ceiling was learned from a wave: from what was served beside the refused calls."""
    _usual_cut: tuple[int, int] | None = attrs.field(init=False, default=None)
    """Limit and ceiling after a wave of refusals if nothing else is in flight; None after the wave."""
    _chance: float = attrs.field(init=False, default=0.0)
    """The share of calls that are refused by chance, as far as known; 0 if none."""
    _before: int = attrs.field(init=False, default=0)
    """Completions between the last two refusals, at most as many as the limit, if the later one began this
    round."""
    _since_refusal: int = attrs.field(init=False, default=0)
    """Completions since the last refusal."""
    _origin: int = attrs.field(init=False, default=0)
    """The limit before the cut that is being examined; 0 if none is."""
    _share: float = attrs.field(init=False, default=1.0)
    """The share of calls that were refused at that limit."""
    _origin_ceiling: float = attrs.field(init=False, default=math.inf)
    """The ceiling before that cut."""
    _still_refused: int = attrs.field(init=False, default=0)
    """Refusals since the limit is small enough that the cut should have ended them."""
    _still_ended: int = attrs.field(init=False, default=0)
    """Other completions since then."""
    _wait: float = attrs.field(init=False, default=0.0)
    """Seconds that the refusal of the last trial cost."""
    _latency: float = attrs.field(init=False, default=0.0)
    """Average seconds of a call; 0 if there is none yet."""

    def __attrs_post_init__(self) -> None:
        self.limit = 1 if self.slow_start else self.max_concurrency

    @property
    def calm(self) -> bool:
        """True if the limit is full without being a trial, and no refusal awaits a second one."""
        full = self.max_concurrency == self.limit <= self._ceiling
        return full and not self._refusals and not self._chance

    @property
    def refused_by_chance(self) -> bool:
        """True if a cut did not reduce the share of refusals."""
        return self._chance > 0

    def started(self, in_flight: int) -> None:
        """Record how much of the limit was used."""
        self._usual_cut = None
        self._peak = max(self._peak, in_flight)

    def succeeded(self, latency: float, *, retried: bool) -> None:
        """Count one more completion of the round. A retry that succeeded says nothing about the limit."""
        self._latency += (latency - self._latency) * (_WEIGHT if self._latency else 1.0)
        if not retried:
            self._complete()

    def failed(self) -> None:
        """Mark the round as not clean."""
        self._spoilt = True
        self._complete()

    def congested(self, refusal: Refusal) -> None:
        """Cut, if the call started after the last cut and its refusal is a signal."""
        if refusal.epoch != self.epoch:
            if self._usual_cut is not None and not refusal.repeated:
                self._keep_served(refusal.beside, *self._usual_cut)
            return
        in_trial = self.limit > self._ceiling
        if refusal.repeated and not (in_trial and refusal.wait):
            return
        self.slow_start = False
        if not (self._refusals or self._chance):
            self._begin_round()
            self._before = min(self._since_refusal, self.limit)
        self._since_refusal = 0
        self._refusals += 1
        self._still_refused += self._should_have_helped
        if self._has_not_helped:
            self._undo_cut()
        elif in_trial and not (self._chance and self._is_chance):
            self._wait = refusal.wait
            self._end_trial()
        elif (refusal.wait and refusal.beside and self._ceiling == math.inf) or not self._is_chance:
            is_wave = bool(refusal.wait) or not self._completions
            self._examine_cut(is_wave=is_wave)
            self._cut()
            if is_wave:
                self._by_wave = bool(refusal.wait or refusal.beside)
                self._usual_cut = (self.limit, int(self._ceiling))
                self._keep_served(refusal.beside, *self._usual_cut)

    def retune(self, max_concurrency: int) -> None:
        """Change the max concurrency.

        A full limit stays full unless a smaller one was learned; a learned one is only bounded.
        """
        most = self.limit
        if self.limit == self.max_concurrency and not self.slow_start:
            most = int(min(max_concurrency, max(self.limit, self._ceiling)))
        self.max_concurrency, self.limit = max_concurrency, min(most, max_concurrency)

    def narrow(self, limit: int) -> None:
        """Cut the limit to one that another process has learned: a smaller one, and as by an own refusal."""
        if limit < self.limit:
            self._cut()
            self.slow_start = False
            self._forget_cut()
            self.limit = limit

    def _complete(self) -> None:
        self._completions += 1
        self._since_refusal += 1
        self._still_ended += self._should_have_helped
        if self._completions < max(_LEAST_ROUND, self.limit):
            return
        clean = not self._spoilt and (self._chance > 0 or not self._refusals)
        if self._chance:
            share = self._refusals / (self._completions + self._refusals)
            self._chance += (share - self._chance) * _WEIGHT
            self._chance = self._chance if self._chance >= _NO_CHANCE else 0.0
        if clean and self._peak >= _SATURATED * self.limit:
            self._grow()
        self._begin_round()

    @property
    def _is_chance(self) -> bool:
        """True if the refusals of this round may be random: a single one, or as many as chance explains."""
        expected = self._chance * (self._completions + self._refusals)
        return self._refusals <= 1 + expected + _DEVIATIONS * math.sqrt(expected)

    @property
    def _should_have_helped(self) -> bool:
        """True if the limit is one that the server serves, if refusals come from calls in flight."""
        return 0 < self.limit <= (1 - self._share) * self._origin

    @property
    def _has_not_helped(self) -> bool:
        """True if calls, but not most, are still refused at such a limit, with a comparable share."""
        refused, seen = self._still_refused, self._still_refused + self._still_ended
        return max(_SIGNAL, _COMPARABLE * self._share * seen) <= refused <= seen / 2

    def _examine_cut(self, *, is_wave: bool) -> None:
        """Remember the limit before a cut, with its share of refusals, unless a better one is known.

        A wave says nothing about the share: most of its refusals are still to come.
        """
        seen = self._before + self._completions + self._refusals
        share = 1.0 if is_wave else self._refusals / seen
        if (1 - share) * self.limit > (1 - self._share) * self._origin:
            self._forget_cut()
            self._origin, self._share, self._origin_ceiling = self.limit, share, self._ceiling
        self._chance = 0.0

    def _undo_cut(self) -> None:
        """Return to the limit before the cut: refusals are random."""
        share = self._still_refused / (self._still_refused + self._still_ended)
        self._chance = min(0.5, max(share, self._share))
        self.limit = min(self._origin, self.max_concurrency)
        self._ceiling = self._origin_ceiling
        self._trial_after, self._by_wave, self._usual_cut, self._wait = (
            _TRIAL_AFTER,
            False,
            None,
            0.0,
        )
        self.slow_start = True
        self._clean_rounds = 0
        self._forget_cut()
        self._begin_round()

    def _forget_cut(self) -> None:
        self._origin, self._share, self._origin_ceiling = 0, 1.0, math.inf
        self._still_refused = self._still_ended = 0

    @property
    def _has_paid_for_trial(self) -> bool:
        """True if the time since the last trial is long enough to make its wait a small part."""
        if not self._wait or not self._latency:
            return True
        return self._clean_rounds * self._latency >= _PAID_BY * (self._wait + self._latency)

    def _begin_round(self) -> None:
        self._completions = self._peak = self._refusals = self._before = 0
        self._spoilt = False

    def _grow(self) -> None:
        if self.slow_start and self.limit < self._ceiling:
            self.limit = int(min(2 * self.limit, self.max_concurrency, self._ceiling))
        elif self.limit > self._ceiling:  # the trial was served
            self._ceiling, self._trial_after = math.inf, _TRIAL_AFTER
            self.slow_start, self._wait = self._by_wave, 0.0
            self.limit = min(self.limit + 1, self.max_concurrency)
        elif self.limit < self._ceiling:
            self.limit = min(self.limit + 1, self.max_concurrency)
        else:
            self._clean_rounds += 1
            if self._clean_rounds >= self._trial_after and self._has_paid_for_trial:
                self._clean_rounds = 0
                self.limit = min(self.limit + 1, self.max_concurrency)

    def _end_trial(self) -> None:
        self.limit = max(1, self.limit - 1)
        self._trial_after = min(_LONGER * self._trial_after, _LONGEST_TRIAL_AFTER)
        self._usual_cut = None
        self.epoch += 1
        self._clean_rounds = 0
        self._begin_round()

    def _cut(self) -> None:
        self._ceiling = max(1, self.limit - 1)
        self._trial_after = _TRIAL_AFTER
        self.limit = max(1, int(_CUT_TO * self.limit))
        self._by_wave, self._usual_cut, self._wait = False, None, 0.0
        self.epoch += 1
        self._clean_rounds = 0
        self._begin_round()

    def _keep_served(self, beside: int, limit: int, ceiling: int) -> None:
        """Cut to the number of calls in flight beside a refused call, or to `limit` if there are none."""
        if beside:
            limit = ceiling = min(ceiling, beside)
        self.limit, self._ceiling = min(limit, self.max_concurrency), ceiling


# A limit of the calls in flight that learns from latency.
#
# The problem: a self-hosted server has no rate to exceed. Under overload it does not refuse; it queues, or
# computes larger batches, and every call takes longer. The aim is the best throughput at no more than twice
# the *base* latency, that of a call that is alone.
#
# The rule. Latency over base gives the factor by which a call is slowed down, and the direction: after a
# round of completions the limit becomes `limit · 2 · base / latency`, rounded, changed by no more than a
# factor of two. For a queue before c workers this is 2c in one step; for a server whose latency is `base · (1
# + n/k)` it approaches k from either side. The idea that latency above the minimum shows a queue is from TCP
# Vegas (Brakmo and Peterson 1995); that the ratio is the factor, from gradient limiters.
#
# The difficulty is what to compare:
#
# * **The base drifts** (another model, longer prompts), and a full server never shows it. So at the start,
#   and again after a number of rounds, the limit is 1 for a few calls, and then returns to its value. The
#   base is the minimum of these means, with half of the memory forgotten each time. Not the minimum single
#   latency: with jitter it is far below the mean, and the limit would be too low by as much. Not a minimum
#   over a window of ordinary calls: a full server would slowly become the base, and the limit would run away.
# * **If everything slows down** more than twofold, the limit falls to 1 by itself and the base is measured
#   there. So nothing has to detect a change.
# * **Calls in flight at a change** of the limit measure the old one, and those that refill an emptied server
#   find it half empty. So as many completions as the limit is large pass uncounted.
# * **An unused lane** learns nothing: the limit grows only after a round in which it was nearly reached. Once
#   is enough: replies that arrive together empty the lane before it is filled again.
#
# A second refusal in a round cuts the limit, once for each epoch as in `aimd`; from then on it grows by one
# at a time, since latency does not show where the server refuses.
#
# Law: AIMD.


_SLOWDOWN = 2.0
"""The latency aimed at, as a multiple of the base."""
_PROBE_AFTER = 64
"""Rounds at a nearly reached limit until the base is measured again."""


@attrs.define(eq=False, repr=False)
class GradientLimit(Limit):
    """A limit of the calls in flight that keeps their latency at twice the base.

    Args:
        max_concurrency: The largest value of the limit, ≥ 1.

    Example:
        >>> limit = GradientLimit(8)
        >>> limit.limit
        1
        >>> for _ in range(4):  # as fast as a call can be, so two may be in flight
        ...     limit.started(1)
        ...     limit.succeeded(0.5, retried=False)
        >>> limit.limit
        2
    """

    base: float = attrs.field(init=False, default=math.inf)
    """Seconds that a call takes when it is alone, as far as known; infinite if unknown."""
    _aim: int = attrs.field(init=False, default=1)
    """The limit when the base is not being measured."""
    _rounds: int = attrs.field(init=False, default=0)
    """Rounds since the base was measured."""
    _fresh: bool = attrs.field(init=False, default=True)
    """True if no call has started since the limit changed."""
    _stale: int = attrs.field(init=False, default=0)
    """Calls still to end that do not measure the present limit."""
    _latencies: list[float] = attrs.field(init=False, factory=list)
    """The latencies of this round."""
    _peak: int = attrs.field(init=False, default=0)
    """The most calls in flight at a start of this round."""
    _spoilt: bool = attrs.field(init=False, default=False)
    """True if this round has had a failure."""
    _refused: bool = attrs.field(init=False, default=False)
    """True if this round has had a refusal; a second one cuts, as in `aimd`."""

    def __attrs_post_init__(self) -> None:
        self.limit = 1

    @property
    def calm(self) -> bool:
        """Always false: every latency is a measurement."""
        return False

    def started(self, in_flight: int) -> None:
        """Count a start; `in_flight` includes it."""
        if self._fresh:
            self._fresh, self._stale = False, self.limit - 1
        if self._stale == 0:
            self._peak = max(self._peak, in_flight)

    def succeeded(self, latency: float, *, retried: bool) -> None:  # noqa: ARG002 - an attempt's time is its own
        """Count a success after `latency` seconds in flight, ≥ 0."""
        if self._is_informative():
            self._latencies.append(latency)
            if len(self._latencies) >= max(_LEAST_ROUND, self.limit):
                self._end_round()

    def failed(self) -> None:
        """Count a failure without congestion: the limit does not grow in this round."""
        if self._is_informative():
            self._spoilt = True

    def congested(self, refusal: Refusal) -> None:
        """Count a refusal because of too many calls; only the first refusal of a call counts."""
        if refusal.epoch != self.epoch or refusal.repeated:
            return
        if not self._refused:
            self._refused = True
        else:
            self.epoch += 1
            self._aim = max(1, int(_CUT_TO * self._aim))
            self._move(min(self.limit, self._aim))

    def retune(self, max_concurrency: int) -> None:
        """Change the max concurrency, ≥ 1."""
        self.max_concurrency = max_concurrency
        self._aim = min(self._aim, max_concurrency)
        self._move(min(self.limit, self._aim))

    def narrow(self, limit: int) -> None:
        """Cut the limit to one that another process has learned, if it is smaller."""
        if limit < self._aim:
            self.epoch += 1
            self._aim = limit
            self._move(min(self.limit, limit))

    def _is_informative(self) -> bool:
        """Return whether the call that is over measures the present limit."""
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
        target = self.limit * _SLOWDOWN * self.base / latency if latency > 0 else math.inf
        most = (2 * self.limit if self.epoch == 0 else self.limit + 1) if may_grow else self.limit
        least = self.limit / 2
        self._aim = max(1, round(max(least, min(target, most, self.max_concurrency))))

    def _move(self, limit: int) -> None:
        """Begin a round at this limit."""
        if limit != self.limit:
            self.limit = limit
            self._fresh = True
        self._latencies.clear()
        self._peak = 0
        self._spoilt = self._refused = False
