"""The words of grading: what is asserted of a reply, and what grading says of it."""

from collections.abc import Mapping
from typing import Any

import attrs

HEAVIEST = 1e9
"""The largest weight: sums of weights stay finite."""


@attrs.frozen(kw_only=True)
class Assertion:
    """One expectation of a reply."""

    type: str
    """A known type, such as `contains`, optionally with the prefix `not-`."""
    value: Any = None
    """What the type compares with; its shape depends on the type."""
    threshold: float | None = None
    weight: float = 1.0
    """Share in the weighted score, from 0 to `HEAVIEST`. With 0 the result is kept but neither counts nor
    fails."""
    metric: str | None = None
    """A name, which may be a template, under which the score is added up over the run."""


@attrs.frozen(kw_only=True)
class Verdict:
    """What grading says of a reply, or of one part of it."""

    passed: bool
    score: float
    reason: str
    assertion: Assertion | None = None
    """The assertion that was judged; None for the aggregate of a row."""
    named_scores: Mapping[str, float] = attrs.field(factory=dict)
    """Weighted mean per metric name."""
    parts: tuple["Verdict", ...] = ()
    """The verdicts that an aggregate was made from, in the order of the assertions."""
