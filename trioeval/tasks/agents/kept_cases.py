"""Cases that are done since an earlier execution, and stand whatever becomes of what they depend on."""

from collections.abc import Callable

import attrs

from trioeval.tasks.agents.case_names import CaseNames

_TOLD = 5  # names of cases


@attrs.frozen
class KeptCases:
    """Those of one task."""

    names: CaseNames
    warn: Callable[[str], None]
    """Told in a line."""
    _done: set[tuple[str, str]] = attrs.field(init=False, factory=set)
    """Columns and names; without those that were told of."""

    def add(self, index: int) -> None:
        """A case is kept that is done."""
        self._done.add((self.names.columns[index], self.names.names[index]))

    def lost(self, index: int) -> None:
        """A case is not done any more, or not yet: tell of those that have begun because it was."""
        column, name = self.names.columns[index], self.names.names[index]
        if resting := self._resting(column, name):
            rest = len(resting) - _TOLD
            more = f" and {rest} more" if rest > 0 else ""
            self.warn(
                f"case {name} is not done any more, and these, which rest on it, stand as they were: "
                f"{', '.join(resting[:_TOLD])}{more}; --retry with their indices runs them again"
            )

    def _resting(self, column: str, name: str) -> list[str]:
        """What is kept and depends on a case, or on such as do, in their order; each is given once."""
        cases = self.names.dependents.get(column, ()) if self._done else ()
        found, before = {name}, 0
        while before < len(found):
            before = len(found)
            found |= {one.name for one in cases if not found.isdisjoint(one.depends_on)}
        resting = [
            one.name for one in cases if one.name in found and (column, one.name) in self._done
        ]
        self._done.difference_update((column, one) for one in resting)
        return resting
