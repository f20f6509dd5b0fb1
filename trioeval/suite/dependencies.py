"""Names that depend on other names, and what happens to them when one fails. Pure.

A dependent may begin when all of its dependencies are done. A dependency that has ended without being done
never will be; neither will its dependents, unless their policy is `run`, which only requires it to end. An
unknown name never ends, whatever the policy.

A dependent that waits for a dependency which will never be done, and whose policy is `block`, waits forever
unless the caller intervenes: it is *stuck*. Its own dependents are not stuck, since they continue when it is
given up.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import UsageError

FailedDependency: TypeAlias = Literal["skip", "block", "fail", "run"]
"""The effect on a dependent of a dependency that will never be done: it is left out at once and names that
dependency (`skip`), waits until nothing can change any more (`block`), fails at once (`fail`), or runs anyway
(`run`)."""


@attrs.frozen(kw_only=True)
class Dependent:
    """A name that may depend on others."""

    name: str
    depends_on: tuple[str, ...] = ()
    when_failed: FailedDependency = "skip"


@attrs.frozen
class WaitingFor:
    """A dependent must wait."""

    by: tuple[str, ...]
    """The names that it waits for, in its own order."""


@attrs.frozen
class Unsatisfied:
    """A dependent will not run."""

    by: str
    """The first dependency that will never be done; for `cut`, not in this execution."""
    how: Literal["skip", "fail", "stuck", "cut"]


def parse_names(names_given: str | Iterable[str], own: str | None = None) -> tuple[str, ...]:
    """Return names split at commas, trimmed, without blanks and duplicates.

    Args:
        names_given: One text or several.
        own: The name of the dependent.

    Raises:
        UsageError: A name is `own`, or is not valid: it contains a path separator or `..`.

    Example:
        >>> parse_names([" a ", "b, c", "a", "c", ""], "t")
        ('a', 'b', 'c')
    """
    texts = [names_given] if isinstance(names_given, str) else names_given
    parts = (part.strip() for text in texts for part in text.split(","))
    names = tuple(dict.fromkeys(part for part in parts if part))
    for name in names:
        if name == own:
            raise UsageError(f"{name!r} cannot depend on itself")
        if "/" in name or "\\" in name or ".." in name:
            raise UsageError(f"{name!r} is not a valid name: remove '/', '\\' and '..'")
    return names


def cycle_in(graph: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """Return the first cycle of a graph, in a deterministic order; None if it has none.

    Names are visited in alphabetical order, and the dependencies of each in their own order.

    Example:
        >>> cycle_in({"a": ["b"], "b": ["c"], "c": ["a"]})
        ('a', 'b', 'c', 'a')
    """
    harmless: set[str] = set()
    for start in sorted(graph):
        path = {start: iter(graph[start])}  # in the order of the visit
        while path and start not in harmless:
            here = next(reversed(path))
            following = next(path[here], None)
            if following is None:
                harmless.add(here)
                del path[here]
            elif following in path:
                names = [*path]
                return (*names[names.index(following) :], following)
            elif following in graph and following not in harmless:
                path[following] = iter(graph[following])
    return None


def chain_text(chain: Sequence[str], end: str = "failed") -> str:
    """Return a chain of names as text for people.

    Args:
        chain: Two names or more.
        end: The state of the last one.

    Example:
        >>> chain_text(["a", "b", "c"])
        'a waits for b, b for c (failed)'
    """
    first, second, *rest = chain
    links = [f"{first} waits for {second}"]
    links += [f"{one} for {other}" for one, other in zip([second, *rest], rest, strict=False)]
    return f"{', '.join(links)} ({end})"


@attrs.define(eq=False, repr=False)
class Tracker:
    """The state of a dependency graph: what is done, and what waits. For one run; synchronous."""

    _dependents: Mapping[str, Dependent]
    _needed_by: Mapping[str, Sequence[str]]
    """The dependents of each name, in order."""
    _over: dict[str, bool] = attrs.field(init=False, factory=dict)
    """For each name that has ended, whether it is done."""

    @classmethod
    def of(cls, dependents: Sequence[Dependent]) -> "Tracker":
        """Return a tracker with nothing done yet.

        Raises:
            UsageError: A name occurs twice, or names wait for each other; the message contains the cycle.
        """
        by_name: dict[str, Dependent] = {}
        needed_by: dict[str, list[str]] = {}
        for one in dependents:
            if one.name in by_name:
                raise UsageError(f"{one.name!r} occurs twice; names must be unique")
            by_name[one.name] = one
            for name in dict.fromkeys(one.depends_on):
                needed_by.setdefault(name, []).append(one.name)
        circle = cycle_in({name: one.depends_on for name, one in by_name.items()})
        if circle is not None:
            raise UsageError(f"they wait for each other: {' -> '.join(circle)}")
        return cls(by_name, needed_by)

    def state(self, name: str) -> WaitingFor | Unsatisfied | None:
        """Return what prevents a dependent from beginning; None if nothing does."""
        one = self._dependents[name]
        if one.when_failed in {"skip", "fail"}:
            lost = next((other for other in one.depends_on if self._is_lost(other)), None)
            if lost is not None:
                return Unsatisfied(lost, "skip" if one.when_failed == "skip" else "fail")
        by = tuple(other for other in one.depends_on if not self._lets_begin(one, other))
        return WaitingFor(by) if by else None

    def lost(self, name: str) -> tuple[str, ...]:
        """Return the dependencies of a name that ended without being done, in its own order."""
        return tuple(filter(self._is_lost, self._dependents[name].depends_on))

    def over(self, name: str, *, done: bool) -> Sequence[str]:
        """Record that a name has ended; return the names whose state may have changed, in their order.

        Only the first call for a name has an effect.

        Args:
            name: The name.
            done: It is done; otherwise it never will be.
        """
        if name in self._over:
            return ()
        self._over[name] = done
        return self.needing(name)

    def needing(self, name: str) -> Sequence[str]:
        """Return the dependents of a name that have not ended, in order."""
        return [other for other in self._needed_by.get(name, ()) if other not in self._over]

    def stuck(self, active: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the names that wait for something that can never change, each with its chain of names.

        A chain ends at the name that failed, or at an unknown one.

        Args:
            active: Names that run, or may run without waiting for any other.
        """
        doomed = self._doomed(set(active))
        causes: dict[str, str | None] = {}
        return {
            name: self._chain(name, doomed, causes)
            for name, one in self._dependents.items()
            if name in doomed
            and isinstance(self.state(name), WaitingFor)
            and (one.when_failed == "block" or any(map(self._is_unknown, one.depends_on)))
        }

    def why(self, chain: Sequence[str]) -> str:
        """Return a chain of `stuck` as text.

        Example:
            >>> tracker = Tracker.of([Dependent(name="a", depends_on=("b",), when_failed="block")])
            >>> tracker.why(tracker.stuck(())["a"])
            'a waits for b (not in this run)'
        """
        return chain_text(chain, "not in this run" if self._is_unknown(chain[-1]) else "failed")

    def _lets_begin(self, one: Dependent, other: str) -> bool:
        return other in self._over if one.when_failed == "run" else self._over.get(other, False)

    def _is_lost(self, name: str) -> bool:
        return not self._over.get(name, True)

    def _is_unknown(self, name: str) -> bool:
        return name not in self._dependents and name not in self._over

    def _is_dead(self, name: str, doomed: Collection[str]) -> bool:
        return self._is_lost(name) or self._is_unknown(name) or name in doomed

    def _doomed(self, active: set[str]) -> set[str]:
        """Return the names that have not ended and can never begin unless the caller intervenes."""
        found: set[str] = set()
        dead = deque(name for name in self._needed_by if self._is_dead(name, ()))
        while dead:
            name = dead.popleft()
            for other in self._needed_by.get(name, ()):
                runs = self._dependents[other].when_failed == "run" and not self._is_unknown(name)
                if (
                    not runs
                    and other not in found
                    and other not in active
                    and other not in self._over
                ):
                    found.add(other)
                    dead.append(other)
        return found

    def _chain(
        self, name: str, doomed: Collection[str], causes: dict[str, str | None]
    ) -> tuple[str, ...]:
        chain: list[str] = []
        following: str | None = name
        while following is not None:
            chain.append(following)
            if following not in causes:
                causes[following] = self._cause(following, doomed)
            following = causes[following]
        return tuple(chain)

    def _cause(self, name: str, doomed: Collection[str]) -> str | None:
        """Return the first dependency that prevents a name from ever beginning."""
        one = self._dependents.get(name)
        if one is None:
            return None
        runs = one.when_failed == "run"
        return next(
            (
                other
                for other in one.depends_on
                if (self._is_unknown(other) if runs else self._is_dead(other, doomed))
            ),
            None,
        )
