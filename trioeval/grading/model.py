"""The words of grading: what is asserted of a reply, and what grading says of it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trioeval.text import KEY
from trioeval.usage import Usage

HEAVIEST = 1e9
"""The largest weight: sums of weights stay finite."""


@attrs.frozen(kw_only=True)
class Assertion:
    """One expectation of a reply, or a set of them."""

    type: str
    """A known type, such as `contains`, optionally with the prefix `not-`; or `assert-set`."""
    value: Any = None
    """What the type compares with; its shape depends on the type."""
    threshold: float | None = None
    weight: float = 1.0
    """Share in the weighted score, from 0 to `HEAVIEST`. With 0 the result is kept but neither counts nor
    fails."""
    metric: str | None = None
    """A name, which may be a template, under which the score is added up over the run."""
    transform: str | None = None
    """What becomes of the output for this assertion alone."""
    context_transform: str | None = None
    """What finds the context in the output, for types that look at one."""
    provider: Any = None
    """Who judges, for types that ask a model: an id, an entry, or one of each by role."""
    rubric_prompt: Any = None
    """How a judge is asked, in place of the type's own prompt."""
    config: Mapping[str, Any] | None = None
    """Settings of the type; those of a set hold for its members that have none."""
    assertions: tuple["Assertion", ...] = attrs.field(default=(), metadata={KEY: "assert"})
    """The members of a set; the key `assert` of the file."""


@attrs.frozen(kw_only=True)
class Spent:
    """What asking judges used."""

    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars; None where no price is known."""
    calls: int = 0
    """Requests to judges, retries and those that failed among them."""
    judges: tuple[str, ...] = ()
    """Labels or ids of those who replied, sorted."""

    @classmethod
    def sum(cls, several: Iterable["Spent"]) -> "Spent":
        """All of them together."""
        listed = [one for one in several if one is not NOTHING_SPENT and one != NOTHING_SPENT]
        if not listed:
            return NOTHING_SPENT
        costs = [one.cost for one in listed if one.cost is not None]
        return cls(
            usage=Usage.sum(one.usage for one in listed),
            cost=math.fsum(costs) if costs else None,
            calls=sum(one.calls for one in listed),
            judges=tuple(sorted({name for one in listed for name in one.judges})),
        )


NOTHING_SPENT = Spent()


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
    named_score_weights: Mapping[str, float] = attrs.field(factory=dict)
    """What those means are weighed with; 1 for a name that is missing."""
    parts: tuple["Verdict", ...] = ()
    """The verdicts that an aggregate was made from, in the order of the assertions."""
    spent: Spent = NOTHING_SPENT
    """What judges used for it; of an aggregate, for all of its parts."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """What else is known: the prompt of a judge, its reply, the rendered value."""
