"""Reports of attempts that cannot be used as they are: told once, when the run is over."""

from collections.abc import Callable, Sequence

import attrs


@attrs.define(eq=False)
class ReportTroubles:
    """Those of a run."""

    _count: int = attrs.field(init=False, default=0)
    _first: str = attrs.field(init=False, default="")

    def add(self, case: str, number: int, warnings: Sequence[str]) -> None:
        """What is wrong with the report of an attempt; nothing if that is nothing.

        Args:
            case: What people call it.
            number: Of the attempt.
            warnings: Sentences.
        """
        if not warnings:
            return
        self._count += 1
        self._first = self._first or f"{case}, attempt {number}: {warnings[0]}"

    def tell(self, warn: Callable[[str], None]) -> None:
        """Tell how many they are, and of the first one, if there is any."""
        if self._count == 1:
            warn(f"a report of an agent cannot be used as it is: {self._first}")
        elif self._count:
            warn(
                f"{self._count} reports of agents cannot be used as they are (see `trioeval show`); "
                f"the first is of {self._first}"
            )
