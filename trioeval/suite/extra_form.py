"""The form in files of what types of tasks add to tests."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from trioeval.documents.mistakes import Mistake, Mistakes
from trioeval.documents.structure import Hook
from trioeval.suite.model import Test


@attrs.frozen(kw_only=True)
class ExtraForm:
    """Keys that single tests have besides those of every test, and how they are read."""

    keys: frozenset[str]
    """The keys in both spellings."""
    structure: Hook
    """From an object of some of `keys` to the `extra` of a test; refuses them in tasks of other types."""
    allowed: Collection[str]
    """The keys in camelCase that a misspelt key of a test may mean."""
    refuse: Callable[[Mapping[str, Any]], None]
    """Raises MistakenError for a default test with any of `keys`."""
    misplaced: Callable[[str], Iterable[Mistake]]
    """Mistakes of an assertion type that needs what tests of this type of task do not have."""

    def added_to(self, plain: Hook) -> Hook:
        """The hook for tests with these keys.

        Args:
            plain: For the keys of every test.
        """

        def hook(value: Any, wanted: Any) -> Test:
            if not isinstance(value, dict) or self.keys.isdisjoint(value):
                test: Test = plain(value, wanted)
                return test
            mistakes = Mistakes()
            read: list[Any] = []
            parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
            for key, part in value.items():
                parts[key in self.keys][key] = part
            for part, structure in zip(parts, (plain, self.structure), strict=True):
                with mistakes.below():
                    read.append(structure(part, wanted))
            mistakes.raise_any()
            found, extra = read
            whole: Test = attrs.evolve(found, extra=extra)
            return whole

        return hook
