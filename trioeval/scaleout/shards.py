"""The sizes of shards, and the lanes that only one worker may use. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import attrs

FIRST_ROWS = 32
"""Least rows of a shard, as far as there are as many: a message for each row would cost more than the row."""
MOST_ROWS = 1000
"""Most rows of a shard, which also bounds the memory of the coordinator."""
AFTER_LOSSES = (MOST_ROWS, 8, 1)
"""Most rows of a shard by the number of workers that were lost with its first row."""
SHARD_SECONDS = 5.0
"""Intended seconds of work of a shard."""
_LEAST_SECONDS = 0.1
"""Seconds of work of the smallest shards: a shard costs some milliseconds."""
_BLOCK_ROWS = 64
"""Most rows of a block: a block costs the coordinator about as much as a few rows."""
SHARDS_AT_ONCE = 2
"""Shards of rows of one group that a worker has at once, so that it never waits for the next one."""
_OLD = 0.5  # the part of earlier shards in the measured duration


def shard_rows(row_seconds: float | None, waiting: int, workers: int, width: int = 1) -> int:
    """Return the number of rows of the next shard, from 1 to `MOST_ROWS`.

    Args:
        row_seconds: The seconds of work for each row of a shard; None if it is not known yet.
        waiting: The rows that wait for a worker, ≥ 1.
        workers: The workers that may run them, ≥ 1.
        width: The rows that a worker can run at once.

    Example:
        >>> shard_rows(None, 1000, 2), shard_rows(0.05, 1000, 2), shard_rows(0.05, 60, 2)
        (32, 100, 15)
    """
    size = _full_shard(row_seconds, width)
    # The last rows are spread, so that all workers end at about the same time.
    least = 1 if row_seconds is None else max(1, int(_LEAST_SECONDS / max(row_seconds, 1e-9)))
    return min(size, waiting, max(least, math.ceil(waiting / (SHARDS_AT_ONCE * workers))))


def _full_shard(row_seconds: float | None, width: int) -> int:
    """Return the number of rows of a shard as long as many rows wait."""
    wished = 0.0 if row_seconds is None else SHARD_SECONDS / max(row_seconds, 1e-9)
    # Slow rows must fill the lanes, too.
    return int(min(max(wished, width, FIRST_ROWS), MOST_ROWS))


def rows_at_once(
    widths: Mapping[str | None, int], row_seconds: Mapping[str | None, float], workers: int
) -> int:
    """Return the most rows that all workers have at once, as long as many rows wait.

    Args:
        widths: The rows of each group that a worker can run at once; 0 for a group without rows.
        row_seconds: The seconds of work for each row of a shard, of groups of which it is known.
        workers: The number of workers.

    Example:
        >>> rows_at_once({None: 0, "a": 4}, {}, 3), rows_at_once({None: 40}, {}, 3)
        (64, 240)
    """
    most = 0
    for group, width in widths.items():
        rows = width if is_case_group(group) else _full_shard(row_seconds.get(group), width)
        takers = workers if group is None or is_case_group(group) else 1
        most += SHARDS_AT_ONCE * rows * takers if width else 0
    return most


def next_rows(size: int, running: int) -> int:
    """Return the number of rows to send to a worker now, which is 0 while it has enough of them.

    Rows are counted, and not shards: a slow row must not keep the lanes of its worker empty.

    Args:
        size: The result of `shard_rows`.
        running: The rows of the group that the worker has not finished.

    Example:
        >>> next_rows(32, 0), next_rows(32, 32), next_rows(32, 40), next_rows(32, 60)
        (32, 32, 24, 0)
    """
    free = SHARDS_AT_ONCE * size - running
    return min(size, free) if free >= max(1, size // 2) else 0


def next_cases(running: int, others: int, waiting: int, workers: int, width: int) -> int:
    """Return the number of cases of agents to send to a worker now: 0 or 1.

    Cases may take hours, so all workers get about as many; and no worker gets many more than it can run at
    once, so that the others, and those that join later, have some left.

    Args:
        running: The cases of the group that the worker has not finished.
        others: Those of all other workers.
        waiting: The cases that no worker has.
        workers: The workers, ≥ 1.
        width: The attempts that a worker can run at once.

    Example:
        >>> next_cases(0, 0, 2, 2, 4), next_cases(1, 0, 1, 2, 4), next_cases(8, 8, 9, 2, 4)
        (1, 0, 0)
    """
    fair = math.ceil((running + others + waiting) / workers)
    return int(waiting > 0 and running < min(fair, SHARDS_AT_ONCE * width))


def block_rows(lanes: Iterable[tuple[int, float | None]]) -> int:
    """Return the number of rows of a block of a task.

    The rows of a block are emitted together. So there are no more than those that arrive at about the same
    time: as many as a lane has calls at once, or starts in a second.

    Args:
        lanes: The most concurrent calls and the requests per minute of each lane whose calls take time.

    Example:
        >>> block_rows([]), block_rows([(8, None), (20, None)]), block_rows([(8, 120)])
        (64, 8, 2)
    """
    counts = [min(width, math.inf if rpm is None else rpm / 60) for width, rpm in lanes]
    return max(1, int(min(_BLOCK_ROWS, *counts))) if counts else _BLOCK_ROWS


def measured(before: float | None, seconds: float, rows: int) -> float:
    """Return the seconds of work for each row after another shard has ended.

    Args:
        before: The value until now; None for the first shard.
        seconds: The seconds that the shard took.
        rows: Its number of rows, ≥ 1.

    Example:
        >>> measured(None, 2.0, 4), measured(0.25, 2.0, 4)
        (0.5, 0.375)
    """
    new = max(seconds, 0.0) / rows
    return new if before is None else _OLD * before + (1 - _OLD) * new


RowKind: TypeAlias = tuple[str | None, str | None]
"""Rows of one task that start on one lane: the id of the task, and the lane."""


@attrs.frozen
class LaneUse:
    """The lanes that rows of one kind may use."""

    rows: RowKind
    lanes: frozenset[str]
    """Those of their provider and of the judges of their task."""


def owner_groups(
    uses: Iterable[LaneUse], owned: Collection[str], *, is_capped: bool = False
) -> Mapping[RowKind, str | None]:
    """Return the group of the rows of each kind; None for rows that any worker may run.

    The rows of a group run on one worker, its owner. Kinds of rows that use a common owned lane are in one
    group, so that each owned lane is used by one worker only.

    Args:
        uses: The lanes of each kind of rows.
        owned: The lanes whose limits hold only if one worker makes all of their calls.
        is_capped: Whether all calls together have a limit, so that all rows are in one group.

    Example:
        >>> uses = [
        ...     LaneUse((None, "a"), frozenset({"a"})),
        ...     LaneUse((None, "b"), frozenset({"b", "judge"})),
        ...     LaneUse((None, "c"), frozenset({"c", "judge"})),
        ... ]
        >>> list(owner_groups(uses, {"b", "judge"}).values())
        [None, 'b', 'b']
    """
    listed = list(uses)
    if is_capped:
        return {use.rows: "all" for use in listed}
    parents = {lane: lane for lane in owned}

    def root(lane: str) -> str:
        while parents[lane] != lane:
            lane = parents[lane]
        return lane

    for use in listed:
        first, *others = sorted(use.lanes & parents.keys()) or [""]
        for other in others:
            low, high = sorted((root(first), root(other)))
            parents[high] = low
    return {
        use.rows: root(min(found)) if (found := use.lanes & parents.keys()) else None
        for use in listed
    }


def next_groups(
    *, waiting: int, workers: int, running: int, group_rows: int, width: int, most_rows: int
) -> int:
    """Return the number of groups of a dataset to send to a worker now, 0 while it has enough of them.

    A worker has two groups or more, so that the calls of one fill its lanes while the last cells of another
    are made.

    Args:
        waiting: The groups that wait for a worker, ≥ 1.
        workers: The workers that may make them, ≥ 1.
        running: The rows of the dataset that the worker has not finished.
        group_rows: The rows of a group, ≥ 1.
        width: The calls that a worker can make at once.
        most_rows: The rows that a worker may have at once, if that is more than one group.

    Example:
        >>> facts = {"workers": 2, "width": 10, "most_rows": 5000}
        >>> next_groups(waiting=100, running=0, group_rows=1000, **facts)
        1
        >>> next_groups(waiting=100, running=1000, group_rows=1000, **facts)
        1
        >>> next_groups(waiting=100, running=2000, group_rows=1000, **facts)
        0
        >>> next_groups(waiting=100, running=0, group_rows=4, **facts)
        8
    """
    rows = max(SHARDS_AT_ONCE * width, FIRST_ROWS)
    wished = max(1, rows // group_rows)
    free = SHARDS_AT_ONCE * wished * group_rows - running
    if running:
        free = min(free, most_rows - running)
    spread = math.ceil(waiting / (SHARDS_AT_ONCE * workers))
    if running and free < group_rows:
        return 0
    return max(1, min(wished, spread, free // group_rows))


_CASES = "\0cases of "
"""The beginning of the group of a task's cases, which no lane's name has."""


def with_case_groups(
    groups: Mapping[RowKind, str | None], agents: Collection[str | None]
) -> Mapping[RowKind, str | None]:
    """Return groups in which the cases of each task of agents that any worker may run are apart from others.

    Args:
        groups: The groups of `owner_groups`.
        agents: The tasks of agents.

    Example:
        >>> found = with_case_groups({("a", "x"): None, ("b", "x"): None, ("a", "y"): "y"}, {"a"})
        >>> [is_case_group(group) for group in found.values()]
        [True, False, False]
    """
    return {
        kind: f"{_CASES}{kind[0]}" if group is None and kind[0] in agents else group
        for kind, group in groups.items()
    }


def is_case_group(group: str | None) -> bool:
    """Return whether a group has cases of agents, which any worker may run."""
    return group is not None and group.startswith(_CASES)
