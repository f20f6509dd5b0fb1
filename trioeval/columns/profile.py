"""What is in a column, counted as its groups are written. Pure.

Nothing here depends on the order of rows or groups, which is another one in each run: counts, sets, least
values and exact sums are all that is kept.

Different values are told apart by a hash of 64 bits, and the 1,001 least hashes are kept. While there are
fewer, their number is exact. Then the estimate is (k - 1) / u, where u in (0, 1] is the k-th least hash (k =
1001) divided by 2**64: it is unbiased, with a standard error of about 1 / sqrt(k - 2), which is 3 % (Beyer,
Haas, Reinwald, Sismanis, Gemulla: On Synopses for Distinct-Value Estimation Under Multiset Operations, 2007).
Against HyperLogLog it needs 8 KB a column more, and is exact where that matters.
"""

import hashlib
import heapq
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
import orjson
import trio

from trioeval.columns.account import Spent
from trioeval.columns.cell_types import fits
from trioeval.columns.makers.base import CellError
from trioeval.columns.result import ColumnProfile, Histogram
from trioeval.columns.spec import DatasetSpec, Rows

# Mean and deviation of numbers, the same in whatever order they come. Pure.
#
# Groups are written in an order that depends on the time that calls take, and a sum of floats on the order
# of its parts. So nothing is rounded before the end: every float is a whole multiple of 2**-1074, and the
# sums of the multiples and of their squares are exact as Python's integers. Welford's method needs less
# memory, but gives other last digits in another order.


_STEP_BITS = 1074  # the least float above 0 is 2**-1074


@attrs.define
class Moments:
    """What is known of the finite numbers that were added."""

    _count: int = 0
    _least: float = math.inf
    _most: float = -math.inf
    _sum: int = 0
    """In steps of 2**-1074."""
    _squares: int = 0
    """In squares of such steps."""
    _whole_sum: int = 0
    """Of whole numbers, which need no steps: theirs would be long."""
    _whole_squares: int = 0

    def add(self, number: float) -> None:
        """One more."""
        self._count += 1
        self._least = min(self._least, number)
        self._most = max(self._most, number)
        if isinstance(number, int):
            self._whole_sum += number
            self._whole_squares += number * number
            return
        over, under = number.as_integer_ratio()  # `under` is a power of 2
        steps = over << (_STEP_BITS + 1 - under.bit_length())
        self._sum += steps
        self._squares += steps * steps

    def figures(self) -> Mapping[str, float]:
        """`min`, `max`, `mean`, and `std` over all of them (divided by their count); empty of none."""
        if not self._count:
            return {}
        total = self._sum + (self._whole_sum << _STEP_BITS)
        squares = self._squares + (self._whole_squares << 2 * _STEP_BITS)
        mean = total / (self._count << _STEP_BITS)
        spread = self._count * squares - total**2
        std = _root(spread, self._count**2 << 2 * _STEP_BITS)
        least, most = self._least + 0.0, self._most + 0.0  # a zero without a sign
        return {"min": least, "max": most, "mean": mean, "std": std}


def _root(over: int, under: int) -> float:
    """The square root of a fraction, although neither part may be a float: it is halved by powers of 4."""
    half = (over.bit_length() - under.bit_length()) // 2
    near_one = over / (under << 2 * half) if half >= 0 else (over << -2 * half) / under
    return math.ldexp(math.sqrt(near_one), half)


EXACT = 1000
"""Different values that are counted exactly."""
FEW = 100
"""Different values up to which the frequent ones are told."""
_COMMON = 5
_SHORT = 200  # bytes, as JSON, of a value that is told
_KINDS = ("text", "int", "float", "bool", "list", "object", "null")
_KIND_OF: Mapping[type, str] = {  # of nearly all values
    str: "text",
    int: "int",
    float: "float",
    bool: "bool",
    list: "list",
    dict: "object",
    type(None): "null",
}


class Profiler:
    """Counts one column.

    Args:
        name: The column.
        kind: Of what makes it, see `ColumnProfile.kind`.

    Example:
        >>> profiler = Profiler("score", "judge")
        >>> for value in (1, 5, 5, None):
        ...     profiler.add(value)
        >>> profile = profiler.profile()
        >>> profile.type, profile.distinct, profile.numbers["mean"], profile.common
        ('int | null', 2, 3.6666666666666665, ((5, 2), (1, 1)))
    """

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self._rows = 0
        self._skipped = 0
        self._kinds: Counter[str] = Counter()
        self._least = _LeastHashes()
        self._counts: Counter[bytes] | None = Counter()
        """How often each short value is there, as JSON; None when there are more than a few values."""
        self._long: set[int] = set()
        """Hashes of the others, which are never told."""
        self._lengths: Counter[int] = Counter()
        """By how many bits the length has."""
        self._span = (sys.maxsize, 0)
        """The least and the largest length."""
        self._numbers = Moments()

    def add(self, value: Any, *, skipped: bool = False) -> None:
        """A row was written. The value of a cell that was skipped is not looked at."""
        self._rows += 1
        self._skipped += skipped
        if skipped:
            return
        kind = _KIND_OF.get(type(value)) or _kind_of(value)
        self._kinds[kind] += 1
        if kind == "null":
            return
        if kind in {"text", "list"}:
            length = len(value)
            self._lengths[length.bit_length()] += 1
            self._span = (min(self._span[0], length), max(self._span[1], length))
        elif kind in {"int", "float"} and fits(value, "float"):
            self._numbers.add(value)
        text, counts = _json_of(value), self._counts
        is_short = len(text) <= _SHORT
        if counts is not None and is_short:
            counts[text] += 1
            if counts[text] > 1:
                return  # its hash is known
        hashed = self._least.add(text)
        if counts is not None:
            if not is_short:
                self._long.add(hashed)
            if len(counts) + len(self._long) > FEW:
                self._counts = None
                self._long.clear()

    def profile(self) -> ColumnProfile:
        """What is known; nothing of calls."""
        distinct, is_estimate = self._least.distinct()
        looked_at = self._rows - self._skipped - self._kinds["null"]
        return ColumnProfile(
            name=self.name,
            kind=self.kind,
            type=" | ".join(kind for kind in _KINDS if self._kinds[kind]) or "null",
            values=self._rows,
            nulls=self._kinds["null"],
            skipped=self._skipped,
            distinct=min(distinct, looked_at),
            is_estimate=is_estimate,
            lengths=_histogram(self._lengths, *self._span),
            numbers=self._numbers.figures(),
            common=self._common(),
        )

    def _common(self) -> tuple[tuple[Any, int], ...]:
        counts = self._counts or Counter()
        first = heapq.nsmallest(_COMMON, counts.items(), key=lambda item: (-item[1], item[0]))
        if not first or first[0][1] == 1:  # all are different
            return ()
        return tuple((json.loads(text), count) for text, count in first)


class _LeastHashes:
    """The least hashes of different values: a synopsis that is a function of the set."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        """Their negatives, so that the largest of them comes first."""
        self._held: set[int] = set()

    def add(self, text: bytes) -> int:
        """A value, as JSON. Returns its hash."""
        digest = hashlib.blake2b(text, digest_size=8).digest()
        one = int.from_bytes(digest, "big") + 1
        if one in self._held:
            return one
        if len(self._held) <= EXACT:
            heapq.heappush(self._heap, -one)
        elif one < -self._heap[0]:
            self._held.remove(-heapq.heapreplace(self._heap, -one))
        else:
            return one
        self._held.add(one)
        return one

    def distinct(self) -> tuple[int, bool]:
        """How many there are, and whether that is estimated."""
        if len(self._held) <= EXACT:
            return len(self._held), False
        return round(EXACT * 2**64 / -self._heap[0]), True


def _json_of(value: Any) -> bytes:
    """The same bytes for equal values of a kind."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a number beyond 64 bits, a lone surrogate
        return json.dumps(value, sort_keys=True).encode("ascii")


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case str():
            return "text"
        case int():
            return "int"
        case float():
            return "float"
        case list():
            return "list"
        case _:
            return "object"


def _histogram(bits: Counter[int], least: int, most: int) -> Histogram | None:
    """Bins from one power of 2 to the next, wherever the lengths are; empty ones only between others.

    The first begins at the least length, and the last ends behind the largest.
    """
    if not bits:
        return None
    bins = range(min(bits), max(bits) + 1)
    inner = (float(1 << one >> 1) for one in bins[1:])
    edges = (float(least), *inner, float(most + 1))
    return Histogram(edges=edges, counts=tuple(bits[one] for one in bins))


# What is in the columns of a dataset, and what they cost: counted as groups are written.
#
# Of groups that an earlier execution has written only the values are there. Which of them were left out
# follows from the row, because a condition looks at nothing else.


_STRIDE = 200  # rows that are counted between two looks at the rest of the world


class Profiles:
    """The profiles of all columns that are written."""

    def __init__(self, spec: DatasetSpec) -> None:
        self._spec = spec
        self._makers = [spec.graph.maker[name] for name in spec.columns]
        self._profilers = self._new()
        self._are_seen_again = bool(spec.stages.after_generation)
        self._skipped: dict[int, set[int]] = {}
        """What was told of rows that are seen again."""
        self._is_last = False

    async def add(self, rows: Rows, skipped: dict[int, set[int]]) -> None:
        """Rows were written. A checkpoint if they are many, which no cancellation ends.

        Args:
            rows: With their values.
            skipped: By row, the producers that left it out.
        """
        for place, (row, values) in enumerate(rows, 1):
            gone = skipped.get(row, ())
            for maker, profiler in zip(self._makers, self._profilers, strict=True):
                if profiler.name in values:
                    profiler.add(values[profiler.name], skipped=maker in gone)
            if not place % _STRIDE:
                # One that was cancelled would count the group twice: it is written again then.
                await trio.lowlevel.cancel_shielded_checkpoint()
        if self._are_seen_again:
            self._skipped |= skipped

    async def add_earlier(self, rows: Rows) -> None:
        """Rows were written by an earlier execution. A checkpoint if they are many."""
        await self.add(rows, {row: self._skips(values) for row, values in rows})

    def begin_anew(self) -> None:
        """The whole was processed: only what is there now counts."""
        self._profilers = self._new()
        self._is_last = True

    async def add_processed(self, rows: Rows) -> None:
        """Rows are there after the whole was processed. A checkpoint if they are many."""
        await self.add(rows, self._skipped)

    def columns(self, spent: list[Spent]) -> tuple[ColumnProfile, ...]:
        """What is known of each column that is there.

        Args:
            spent: What the columns of each producer have cost; all of it is told of the first of them.
        """
        found = []
        for maker, profiler in zip(self._makers, self._profilers, strict=True):
            profile = profiler.profile()
            if self._is_last and not profile.values:
                continue
            if profiler.name == self._spec.graph.producers[maker].name:
                profile = attrs.evolve(profile, **attrs.asdict(spent[maker], recurse=False))
            found.append(profile)
        return tuple(found)

    def _new(self) -> list[Profiler]:
        return [
            Profiler(name, self._spec.makings[maker].kind)
            for name, maker in zip(self._spec.columns, self._makers, strict=True)
        ]

    def _skips(self, values: Mapping[str, object]) -> set[int]:
        """Which producers left a row out, as far as it can be seen from what is written of it."""
        skipped: set[int] = set()
        for place, making in enumerate(self._spec.makings):
            try:
                if making.skips(self._spec.graph.upstream[place], skipped, values):
                    skipped.add(place)
            except CellError:
                continue  # it looks at what is not written
        return skipped
