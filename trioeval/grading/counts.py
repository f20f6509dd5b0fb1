"""How often something may happen: values of the form {name or pattern, min?, max?}."""

import math
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.grading.text import number_text


@attrs.frozen
class Counted:
    """What is counted, and how much of it there may be."""

    name: str | None = None
    pattern: str | None = None
    least: float | None = None
    most: float | None = None

    def allows(self, count: int) -> bool:
        """Whether so many are right."""
        few = self.least is not None and count < self.least
        return not few and (self.most is None or count <= self.most)

    @property
    def bounds(self) -> str:
        """What is right, in words.

        Example:
            >>> Counted(most=3).bounds, Counted(least=1, most=3).bounds, Counted(least=1).bounds
            ('at most 3', '1 to 3', 'at least 1')
        """
        if self.most is None:
            return "any number" if self.least is None else f"at least {number_text(self.least)}"
        if self.least is None:
            return f"at most {number_text(self.most)}"
        return f"{number_text(self.least)} to {number_text(self.most)}"


def read_counted(
    value: Any, *, whole: bool = False, others: frozenset[str] = frozenset()
) -> Counted | None:
    """What an object means; None if it is not right.

    Args:
        value: Anything.
        whole: Whether bounds must be whole numbers of at least 0.
        others: Keys that it may have besides.

    Example:
        >>> read_counted({"name": "a", "min": 2}).least
        2
        >>> read_counted({"name": "a", "min": 2, "max": 1}) is None
        True
    """
    known = {"name", "pattern", "min", "max"} | others
    if not isinstance(value, Mapping) or not known.issuperset(value):
        return None
    texts = [value.get(key) for key in ("name", "pattern")]
    if any(text is not None and not (isinstance(text, str) and text.strip()) for text in texts):
        return None
    name, pattern = (None if text is None else text.strip() for text in texts)
    bounds = [value[key] for key in ("min", "max") if key in value]
    if not all(_is_bound(bound, whole=whole) for bound in bounds) or bounds != sorted(bounds):
        return None
    return Counted(name, pattern, value.get("min"), value.get("max"))


def _is_bound(value: Any, *, whole: bool) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return False
    return not whole or (value >= 0 and value == int(value))
