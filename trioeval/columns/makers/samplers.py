"""Values drawn at random, the same in every run, process and version of Python.

The value of a row follows from the seed, the column, the number of its row group and its place in it: groups
may be made in any order, and dropped rows do not change the others. The stream of a group is that of
`random.Random.random`, the only method whose numbers Python promises not to change; everything else is
computed from it here.
"""

import hashlib
import itertools
import json
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, TypeAlias, assert_never

import attrs
import trio

from trioeval.columns.lanes import LOCAL
from trioeval.columns.makers.base import CellError, GroupOrder, Made
from trioeval.columns.model import (
    CategorySampler,
    DatetimeSampler,
    GaussianSampler,
    Sampler,
    SamplerColumn,
    SubcategorySampler,
    UniformSampler,
    UuidSampler,
)
from trioeval.grading import output_text, quote
from trioeval.kernel import Calls
from trioeval.text import counted

REDRAWS = 1000
"""The maximum number of draws for a value within its bounds."""

_ROWS = 1000  # drawn between two checkpoints
_SHOWN = 20  # categories in a message

_Row: TypeAlias = Mapping[str, Any] | None
_Next: TypeAlias = Callable[[_Row], Any]
_Random: TypeAlias = Callable[[], float]


def stream(seed: int, column: str, group: int) -> random.Random:
    """Return the random numbers of a column in a row group. Only the method `random` is stable.

    Example:
        >>> stream(7, "a", 0).random() == stream(7, "a", 0).random() != stream(7, "a", 1).random()
        True
    """
    digest = hashlib.blake2b(json.dumps([seed, column, group]).encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest))  # noqa: S311 - it keeps no secrets


def draw(sampler: Sampler, numbers: random.Random, rows: Sequence[_Row]) -> Iterator[Any]:
    """Yield the values of consecutive rows, each drawn on demand. Pure except for the stream.

    Args:
        sampler: The sampler.
        numbers: A stream from `stream`.
        rows: The needed columns of each row; None for a row that was not requested, which still uses its part
            of the stream, and whose value is meaningless.

    Returns:
        Values; a `CellError` for a row whose category has no values.

    Raises:
        CellError: No row can have a value.

    Example:
        >>> list(draw(UniformSampler(low=1, high=6, decimals=0), stream(0, "die", 0), [{}] * 5))
        [4, 5, 3, 5, 6]
    """
    return map(_next_of(sampler, numbers.random), rows)


@attrs.frozen
class SamplerMaker:
    """Makes the column of a sampler."""

    column: SamplerColumn
    seed: int
    """The seed of the dataset, for a column without its own."""

    lane = LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it makes no calls
        """Return the values of the requested rows. A checkpoint if they are many."""
        column, name = self.column, self.column.name
        seed = self.seed if column.seed is None else column.seed
        values = draw(column.sampler, stream(seed, name, order.group), _by_place(order))
        made: list[tuple[int, Mapping[str, Any] | CellError]] = []
        numbers = iter(order.rows)
        if order.rows and order.rows[-1] - order.start >= len(order.rows):
            rows = set(order.rows)
            values = (value for row, value in enumerate(values, order.start) if row in rows)
        while some := list(itertools.islice(values, _ROWS)):
            made += [
                (row, value if isinstance(value, CellError) else {name: value})
                for value, row in zip(some, numbers, strict=False)
            ]
            if len(made) < len(order.rows):
                await trio.lowlevel.checkpoint()
        return made


def _by_place(order: GroupOrder) -> Sequence[_Row]:
    """Return the known values of each row of the group, up to the last requested row."""
    if not order.rows or order.rows[-1] - order.start < len(order.rows):
        return order.values
    places: list[_Row] = [None] * (order.rows[-1] - order.start + 1)
    for row, values in zip(order.rows, order.values, strict=True):
        places[row - order.start] = values
    return places


def _next_of(sampler: Sampler, number: _Random) -> _Next:
    match sampler:
        case CategorySampler():
            return _category(sampler, number)
        case SubcategorySampler():
            return _subcategory(sampler, number)
        case UniformSampler():
            return _uniform(sampler, number)
        case GaussianSampler():
            return _gaussian(sampler, number)
        case DatetimeSampler():
            return _datetime(sampler, number)
        case UuidSampler():
            return _uuid(sampler, number)
    assert_never(sampler)


def _category(sampler: CategorySampler, number: _Random) -> _Next:
    values = sampler.values
    if sampler.weights is None:
        count = len(values)
        return lambda _row: values[int(number() * count)]
    sums = list(itertools.accumulate(sampler.weights))
    total = sums[-1]
    if not total > 0:
        raise CellError("at least one weight must be above 0")
    last = sums.index(total)  # the last value with a weight: rounding must not select one after it
    return lambda _row: values[min(bisect_right(sums, number() * total), last)]


def _subcategory(sampler: SubcategorySampler, number: _Random) -> _Next:
    def one(row: _Row) -> Any:
        place = number()
        if row is None:
            return None
        category = row[sampler.category]
        choices = sampler.values.get(
            category if isinstance(category, str) else output_text(category)
        )
        if choices is None:
            known = ", ".join(map(quote, itertools.islice(sampler.values, _SHOWN)))
            return CellError(
                f"column {quote(sampler.category)} is {quote(category)}, for which no values are given; "
                f"values are given for {known}"
            )
        return choices[int(place * len(choices))]

    return one


def _uniform(sampler: UniformSampler, number: _Random) -> _Next:
    low, high, decimals = sampler.low, sampler.high, sampler.decimals
    if low > high:
        raise CellError(f"low must not be above high, got {low:g} and {high:g}")
    if decimals is None:
        return lambda _row: min(max(low + (high - low) * number(), low), high)
    # Computed from the decimal text: 0.29 is 29 hundredths, although 0.29 * 100 is less.
    first = int(Decimal(repr(low)).scaleb(decimals).to_integral_value(ROUND_CEILING))
    count = int(Decimal(repr(high)).scaleb(decimals).to_integral_value(ROUND_FLOOR)) - first + 1
    if count < 1:
        raise CellError(
            f"no number with {counted(decimals, 'decimal')} is between {low:g} and {high:g}"
        )
    if decimals == 0:
        return lambda _row: first + int(number() * count)
    scale: int = 10**decimals
    return lambda _row: (first + int(number() * count)) / scale


def _gaussian(sampler: GaussianSampler, number: _Random) -> _Next:
    mean, deviation, decimals = sampler.mean, sampler.deviation, sampler.decimals
    low = -math.inf if sampler.low is None else sampler.low
    high = math.inf if sampler.high is None else sampler.high
    log, sqrt, cos, turn = math.log, math.sqrt, math.cos, 2 * math.pi

    def one(_row: _Row) -> float:
        for _ in range(REDRAWS):
            value = mean + deviation * sqrt(-2 * log(1 - number())) * cos(turn * number())
            if decimals is not None:
                value = round(value, decimals) if decimals else round(value)
            if low <= value <= high:
                return value
        raise CellError(
            f"none of {REDRAWS} numbers with mean {mean:g} and deviation {deviation:g} was "
            f"between {low:g} and {high:g}"
        )

    return one


def _datetime(sampler: DatetimeSampler, number: _Random) -> _Next:
    start, end = _instant(sampler.start), _instant(sampler.end)
    if (start.tzinfo is None) is not (end.tzinfo is None):
        raise CellError(
            f"start and end must both have a time zone, or neither, got {quote(sampler.start)} and "
            f"{quote(sampler.end)}"
        )
    unit = timedelta(**{f"{sampler.unit}s": 1})
    count = (end - start) // unit + 1
    if count < 1:
        raise CellError(
            f"end must not be before start, got {quote(sampler.start)} and {quote(sampler.end)}"
        )
    shape = sampler.format

    def one(_row: _Row) -> str:
        found = start + unit * int(number() * count)
        return found.isoformat() if shape is None else found.strftime(shape)

    return one


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise CellError(f"{quote(text)} is not a date and time in ISO 8601") from None


def _uuid(sampler: UuidSampler, number: _Random) -> _Next:
    prefix = sampler.prefix

    def one(_row: _Row) -> str:
        a, b, c, d = (int(number() * 0x1_0000_0000) for _ in range(4))
        text = f"{a:08x}"
        if not sampler.short:
            text = (
                f"{text}-{b >> 16:04x}-{0x4000 | b & 0xFFF:04x}"
                f"-{0x8000 | c >> 16 & 0x3FFF:04x}-{c & 0xFFFF:04x}{d:08x}"
            )
        return prefix + (text.upper() if sampler.uppercase else text)

    return one
