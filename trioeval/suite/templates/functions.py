"""The global functions of nunjucks: `range`, `cycler` and `joiner`."""

import math
from collections.abc import Callable
from typing import Any

import attrs
from jinja2.exceptions import TemplateRuntimeError

from trioeval.suite.templates.bounds import Meter
from trioeval.suite.templates.values import is_nothing, number_of


def make_range(meter: Meter) -> Callable[..., list[float]]:
    """`range`, whose members are steps of a meter."""

    def range_(start: Any, stop: Any = None, step: Any = None) -> list[float]:
        if is_nothing(stop):
            start, stop = 0, start
        begin, end, by = number_of(start), number_of(stop), number_of(step) or 1
        if not all(map(math.isfinite, (begin, end, by))):
            msg = "`range` needs numbers"
            raise TemplateRuntimeError(msg)
        count = max(0, math.ceil((end - begin) / by))
        meter.take(count)
        return [begin + place * by for place in range(count)]

    return range_


@attrs.define(eq=False)
class Cycler:
    """Gives its members in turn."""

    items: tuple[Any, ...]
    current: Any = None
    _next: int = 0

    def next(self) -> Any:
        """The next member; after the last one, the first."""
        if not self.items:
            return None
        self.current = self.items[self._next % len(self.items)]
        self._next += 1
        return self.current

    def reset(self) -> None:
        """Begin again."""
        self._next, self.current = 0, None


def cycler(*items: Any) -> Cycler:
    """A cycler over the arguments."""
    return Cycler(items)


def joiner(separator: Any = None) -> Callable[[], Any]:
    """A function that gives nothing at first, and then the separator."""
    said = "," if is_nothing(separator) or separator == "" else separator
    calls = 0

    def join() -> Any:
        nonlocal calls
        calls += 1
        return said if calls > 1 else ""

    return join
