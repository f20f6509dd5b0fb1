"""What share of a bound is really used, learnt from what was used.

The tokens of a call are bounded before it (a text has at most as many tokens as bytes, a reply at most as
many as its longest), but a lane that reserves bounds starts a quarter of the calls that its tokens per
minute would allow. So each lane learns the largest share lately seen. It rises at once, because too small
a reservation is a "too many tokens" of the server; it falls slowly, because one short reply says little.
"""

import math

import attrs

_FALL = 0.1
"""How far the share falls towards a smaller one, of the way there, for each call."""
_MARGIN = 1.1
"""How much more is reserved than the largest share lately seen."""


@attrs.define
class LearntShare:
    """The largest share of its bound that a quantity lately had.

    Example:
        >>> share = LearntShare()
        >>> share.expected(400)
        400
        >>> for _ in range(100):
        ...     share.learn(400, 100)
        >>> share.expected(400)
        111
    """

    share: float = 1.0
    """From 0 to 1."""

    def expected(self, bound: int) -> int:
        """What will be used at most, as far as one knows: from 0 to `bound`."""
        return min(bound, math.ceil(bound * self.share * _MARGIN))

    def learn(self, bound: int, used: int) -> None:
        """So much of a bound was used; what is more than the bound counts as all of it."""
        if bound <= 0 or used < 0:
            return
        seen = min(1.0, used / bound)
        self.share = seen if seen >= self.share else self.share - (self.share - seen) * _FALL
