"""The data model of grading: assertions and verdicts."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trioeval.text import KEY
from trioeval.usage import Usage

HEAVIEST = 1e9
"""The largest weight; sums of weights stay finite."""


@attrs.frozen(kw_only=True)
class Assertion:
    """One expectation of an output, or a set of them."""

    type: str
    """A known type, such as `contains`, optionally with the prefix `not-`; or `assert-set`."""
    value: Any = None
    """The expected value; its shape depends on the type."""
    threshold: float | None = None
    weight: float = 1.0
    """Share in the weighted score, at most `HEAVIEST`. With 0 the result is stored, but neither counts nor
    fails; one below 0 lowers the score."""
    metric: str | None = None
    """A name, which may be a template, under which the score is summed over the run."""
    transform: str | None = None
    """Transforms the output for this assertion alone."""
    context_transform: str | None = None
    """Extracts the context from the output, for types that use one."""
    provider: Any = None
    """The judge, for types that ask a model: an id, an entry, or one of each by role."""
    rubric_prompt: Any = None
    """The judge's prompt, in place of the type's own."""
    config: Mapping[str, Any] | None = None
    """Settings of the type; those of a set apply to members without settings."""
    assertions: tuple["Assertion", ...] = attrs.field(default=(), metadata={KEY: "assert"})
    """The members of a set; the key `assert` of the file."""


@attrs.frozen(kw_only=True)
class JudgeUsage:
    """The usage of judges."""

    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars; None for an unknown price."""
    calls: int = 0
    """Requests to judges, retries and failures among them."""
    judges: tuple[str, ...] = ()
    """Labels or ids of the judges that replied, sorted."""

    @classmethod
    def sum(cls, several: Iterable["JudgeUsage"]) -> "JudgeUsage":
        """Return the sum of several usages."""
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


NOTHING_SPENT = JudgeUsage()


@attrs.frozen(kw_only=True)
class Verdict:
    """The result of grading an output, or of one part of it."""

    passed: bool
    score: float
    reason: str
    assertion: Assertion | None = None
    """The assertion that was judged; None for the aggregate of a row."""
    named_scores: Mapping[str, float] = attrs.field(factory=dict)
    """Weighted mean per metric name."""
    named_score_weights: Mapping[str, float] = attrs.field(factory=dict)
    """The weights of those means; 1 for a missing name."""
    parts: tuple["Verdict", ...] = ()
    """The verdicts that an aggregate was computed from, in the order of the assertions."""
    spent: JudgeUsage = NOTHING_SPENT
    """The usage of its judges; of an aggregate, for all of its parts."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """Further data: the prompt of a judge, its reply, the rendered value."""
