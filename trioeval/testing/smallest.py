"""The smallest example of each rule that something breaks.

The problem: one example that breaks a rule hides every other rule, and shrinking that follows any breach
slips from one rule to the next. The rule here: draw all examples once and note which rules are broken at
all, then search and shrink for each of those alone. What was judged is kept, so that nothing is run twice
and a subject that behaves by chance cannot confuse the search. Not hypothesis' own report of several bugs:
it tells them apart by the line that raised, and one example has only one such line.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Generic, TypeVar

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, find, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

X = TypeVar("X")


@attrs.frozen
class Smallest(Generic[X]):
    """The smallest example that was found of a broken rule."""

    example: X
    message: str


def find_smallest(
    examples: st.SearchStrategy[X],
    judge: Callable[[X], Mapping[str, str]],
    *,
    count: int,
    seed: int,
) -> dict[str, Smallest[X]]:
    """Search for the smallest example of each rule that is broken.

    Args:
        examples: Where examples are drawn from.
        judge: Says of an example which rules it breaks, and how; run with drawn schedules.
        count: How many examples are drawn, ≥ 1.
        seed: Equal seeds draw equal examples.
    """
    judged: dict[str, Mapping[str, str]] = {}  # by repr, because examples may hold mappings
    first: dict[str, tuple[X, int]] = {}

    def look(drawn: tuple[X, int]) -> Mapping[str, str]:
        key = repr(drawn)
        if key not in judged:
            judged[key] = judge(drawn[0])
        return judged[key]

    @seeded(seed)
    @_settings(count, Phase.generate)
    @given(drawn=_with_schedule(examples))
    def note(drawn: tuple[X, int]) -> None:
        for rule in look(drawn):
            first.setdefault(rule, drawn)

    note()
    found: dict[str, Smallest[X]] = {}
    for rule, noted in first.items():
        shrunk = _shrink(
            _with_schedule(examples),
            lambda drawn, rule=rule: rule in look(drawn),  # type: ignore[misc] # bound here
            count,
            seed,
        )
        drawn = noted if shrunk is None else shrunk
        found[rule] = Smallest(drawn[0], look(drawn)[rule])
    return found


def _shrink(
    examples: st.SearchStrategy[tuple[X, int]],
    breaks: Callable[[tuple[X, int]], bool],
    count: int,
    seed: int,
) -> tuple[X, int] | None:
    """The smallest example that breaks a rule; None if another way of drawing does not meet one."""
    bounds = _settings(count, Phase.generate, Phase.shrink)
    try:
        # Repeatable, and nothing that has to be kept secret.
        return find(examples, breaks, settings=bounds, random=Random(seed))  # noqa: S311
    except NoSuchExample:
        return None


def _with_schedule(examples: st.SearchStrategy[X]) -> st.SearchStrategy[tuple[X, int]]:
    """With the seed of the schedule, which hypothesis sets while an example is judged."""
    return st.tuples(examples, st.random_module().map(lambda seeder: int(seeder.seed)))


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
