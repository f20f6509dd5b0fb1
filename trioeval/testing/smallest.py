# Separate from `testing.conformance`: together they exceed 600 lines.
"""The smallest example of each rule that is broken.

The problem: one example that breaks a rule hides every other rule, and shrinking that follows any breach
slips from one rule to the next. The solution: draw all examples once and note which rules are broken at all,
then search and shrink for each of those alone. Judgements are cached, so that nothing is run twice and a
subject with random behaviour cannot confuse the search. Not hypothesis' own report of several bugs: it
distinguishes them by the line that raised, and one example has only one such line.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import Generic, TypeAlias, TypeVar

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, find, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

X = TypeVar("X")

_PERSISTENCE = (
    4  # times as many examples are drawn to find one that breaks a rule known to be broken
)

_Drawn: TypeAlias = tuple[int, X]
"""The seed of a schedule, and an example that is judged with it."""


@attrs.frozen
class Smallest(Generic[X]):
    """The smallest example found of a broken rule."""

    example: X
    message: str


def find_smallest(
    examples: st.SearchStrategy[X],
    judge: Callable[[X, Collection[str]], Mapping[str, str]],
    rules: Collection[str],
    *,
    count: int,
    seed: int,
    shrink: bool = True,
) -> dict[str, Smallest[X]]:
    """Search for the smallest example of each rule that is broken.

    Args:
        examples: The strategy that draws examples.
        judge: Returns which of some rules an example breaks, and how; run with drawn schedules.
        rules: The rules to check.
        count: Number of examples to draw, ≥ 1.
        seed: Equal seeds draw equal examples.
        shrink: Whether to search for smaller ones; otherwise the first that was drawn is returned.
    """
    # By repr, because examples may hold mappings.
    judged: dict[tuple[str, str], str | None] = {}
    first: dict[str, _Drawn[X]] = {}

    def look(drawn: _Drawn[X], rules: Collection[str]) -> Mapping[str, str]:
        key = repr(drawn)
        new = [rule for rule in rules if (key, rule) not in judged]
        if new:
            broken = judge(drawn[1], new)
            judged.update({(key, rule): broken.get(rule) for rule in new})
        known = {rule: judged[key, rule] for rule in rules}
        return {rule: message for rule, message in known.items() if message is not None}

    @seeded(seed)
    @_settings(count, Phase.generate)
    @given(drawn=_with_schedule(examples))
    def note(drawn: _Drawn[X]) -> None:
        for rule in look(drawn, rules):
            first.setdefault(rule, drawn)

    note()
    found: dict[str, Smallest[X]] = {}
    for rule, noted in first.items():
        breaks = partial(look, rules=(rule,))
        shrunk = _shrink(_with_schedule(examples), breaks, count, seed) if shrink else None
        drawn = noted if shrunk is None else shrunk
        found[rule] = Smallest(drawn[1], breaks(drawn)[rule])
    return found


def _shrink(
    examples: st.SearchStrategy[_Drawn[X]],
    breaks: Callable[[_Drawn[X]], object],
    count: int,
    seed: int,
) -> _Drawn[X] | None:
    """Return the smallest example that breaks a rule; None if this way of drawing finds none."""
    rng = Random(seed)  # noqa: S311 - repeatable examples, no secrets
    bounds = _settings(_PERSISTENCE * count, Phase.generate, Phase.shrink)
    try:
        return find(examples, lambda drawn: bool(breaks(drawn)), settings=bounds, random=rng)
    except NoSuchExample:
        return None


def _with_schedule(examples: st.SearchStrategy[X]) -> st.SearchStrategy[_Drawn[X]]:
    """Add the seed of the schedule, which hypothesis sets while an example is judged."""
    return st.tuples(st.random_module().map(lambda seeder: int(seeder.seed)), examples)


def _settings(count: int, *phases: Phase) -> settings:
    return settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
