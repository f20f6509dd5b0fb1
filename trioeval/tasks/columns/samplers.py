"""Values drawn at random, the same in every run, process and version of Python.

What a row gets follows from the seed, the column, the number of its row group and its place in it: groups may
be made in any order, and rows that were dropped change nothing for the others. The stream of a group is that
of `random.Random.random`, the one method whose numbers Python promises not to change; all else is made of it
here.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.kernel import Calls
from trioeval.suite.column_models import Sampler, SamplerColumn
from trioeval.tasks.columns.making import LOCAL, GroupOrder, Made

REDRAWS = 1000
"""How often a number beyond its bounds is drawn again."""

_ROWS = 1000  # drawn without a look at others
_MOST_SHOWN = 20

_Draw: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""The next value of a stream, for a row of which the columns that are needed are known."""
_Random: TypeAlias = Callable[[], float]


def stream(seed: int, column: str, group: int) -> random.Random:
    """The random numbers of a column in a row group. Only its `random` is the same everywhere.

    Example:
        >>> stream(7, "a", 0).random() == stream(7, "a", 0).random() != stream(7, "a", 1).random()
        True
    """
    text = json.dumps([seed, column, group])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return random.Random(int.from_bytes(digest))  # noqa: S311 - it keeps no secrets


def draw(
    sampler: Sampler,
    numbers: random.Random,
    rows: Sequence[Mapping[str, Any] | None],
) -> Iterator[Any]:
    """The values of consecutive rows. Pure but for the stream.

    Args:
        sampler: What is drawn.
        numbers: A stream, as of `stream`.
        rows: The columns that are needed, of each row in turn; None for a row that is not wanted, which still
            takes its part of the stream.

    Returns:
        The value of each row, drawn as it is asked for; that of one that is not wanted means nothing.

    Raises:
        CellError: There is no such value.

    Example:
        >>> list(draw(UniformSampler(low=1, high=6, decimals=0), stream(0, "die", 0), [{}] * 4))
        [5, 3, 1, 6]
    """
    one = _drawer(sampler, numbers.random)
    return map(one, map(_or_nothing, rows)) if None in rows else map(one, rows)  # type: ignore[arg-type]


@attrs.frozen
class SamplerMaker:
    """Makes the column of a sampler."""

    column: SamplerColumn
    seed: int
    """The dataset's, for a column without one."""

    @property
    def lane(self) -> str:
        """It asks nobody."""
        return LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it asks nobody
        """The values of all rows that are wanted. Always a checkpoint."""
        column = self.column
        seed = self.seed if column.seed is None else column.seed
        draws = draw(column.sampler, stream(seed, column.name, order.group), _in_place(order))
        made: list[tuple[int, Mapping[str, Any]]] = []
        return made
