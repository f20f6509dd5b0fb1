"""What waits for what: names that depend on names, and what becomes of them when one fails. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

FailedDependency: TypeAlias = Literal["skip", "block", "fail", "run"]
"""What becomes of what depends on something that will never be done: it is left out at once and says which
one it lacks (`skip`), waits until nothing can change any more (`block`), fails at once (`fail`), or runs all
the same (`run`)."""


@attrs.frozen(kw_only=True)
class Dependent:
    """Something that may depend on others."""

    name: str
    depends_on: tuple[str, ...] = ()
    when_failed: FailedDependency = "skip"


@attrs.frozen
class Blocked:
    """Something waits."""

    by: tuple[str, ...]
    """The names that it waits for, in its own order."""


@attrs.frozen
class Lacking:
    """Something is not worked on."""

    by: str
    """The first that it depends on and that will never be done."""
    how: Literal["skip", "fail", "stuck"]


def normalized(said: str | Iterable[str], own: str | None = None) -> tuple[str, ...]:
    """Names as they are meant: split at commas, trimmed, without blanks and repetitions.

    Args:
        said: A text or several.
        own: The name of what depends on them.

    Raises:
        UsageError: One is `own`, or is no name: holds a path separator or `..`.

    Example:
        >>> normalized([" a ", "b, c", "a", "c", ""], "t")
        ('a', 'b', 'c')
    """
    raise NotImplementedError


def cycle_in(graph: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """The first circle in a graph, in an order that is always the same; None if there is none.

    Example:
        >>> cycle_in({"a": ["b"], "b": ["c"], "c": ["a"]})
        ('a', 'b', 'c', 'a')
    """
    raise NotImplementedError


@attrs.define(eq=False)
class Tracker:
    """What of a graph is done, and what waits. Good for one run; synchronous."""

    @classmethod
    def of(cls, dependents: Sequence[Dependent]) -> "Tracker":
        """Nothing is done yet.

        Raises:
            UsageError: A name is there twice, or they wait for each other; the message has the circle.
        """
        raise NotImplementedError

    def state(self, name: str) -> Blocked | Lacking | None:
        """What keeps something from beginning; None if nothing does."""
        raise NotImplementedError

    def over(self, name: str, *, done: bool) -> Sequence[str]:
        """Something is over; the names whose state may have changed, in their order.

        Args:
            name: Of it.
            done: Whether it is done; what is not never will be.
        """
        raise NotImplementedError

    def stuck(self, active: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """What waits for something that can never change, each with its chain of names.

        Args:
            active: Names that run, or may run without waiting for any other.
        """
        raise NotImplementedError
