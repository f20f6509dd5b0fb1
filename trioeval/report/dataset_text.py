"""What is told of a dataset in words: how many rows it has, what became of the others, and what it took."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from trioeval.datasets.result import ColumnProfile, DatasetResult, DroppedRow
from trioeval.grading import output_text
from trioeval.report.inert import inert
from trioeval.report.json_text import shallow

_NAME = 60  # characters of a name
_ERROR = 300  # of what went wrong
_VALUE = 24  # of a value among others
_COMMON = 3  # values that are told
_FORMATS = {"parquet": "Parquet", "jsonl": "JSON lines"}

_REASONS: Mapping[str, str] = {
    "stop": "stopped",
    "deadline": "the deadline",
    "cancel": "cancelled",
    "lane": "a closed lane",
    "rate_limited": "rate limits",
    "quota": "a shared limit",
    "budget_exceeded": "the budget",
    "early_shutdown": "too much failed",
    "fault": "it failed",
    "blocked": "another task",
}
"""Why rows were not run."""

_CAUSES: Mapping[str, str] = {"expression": "left out by expression"}
"""Causes whose names say too little behind a column or a number."""


def dataset_lines(result: DatasetResult, near: Path | None = None) -> Iterator[str]:
    """How a dataset ended, for people: what is there, what went wrong, what it took.

    Args:
        result: It.
        near: The folder from which its own is named where it lies in there.

    Example:
        >>> result = DatasetResult(
        ...     task="a", requested=9, written=7, dropped={"filtered": 2}, groups=1
        ... )
        >>> list(dataset_lines(result))
        ['7 of 9 rows made; 2 dropped: filtered 2', '0 calls in 0.0 s']
    """
    yield _sentence(result, near)
    if result.early_shutdown:
        partial = (
            f"; {len(result.partial_groups)} groups are partial" if result.partial_groups else ""
        )
        yield f"too many calls failed for good: nothing new was begun{partial}"
    if result.error is not None:
        yield f"failed: {inert(result.error, _ERROR)}"
    if result.first_error is not None and result.first_error not in (result.error or ""):
        yield f"first failure: {inert(result.first_error, _ERROR)}"
    yield used_of(result)


def trouble(result: DatasetResult) -> str | None:
    """Why not everything about a dataset is well; None if it is. Rows that were dropped on purpose are.

    Example:
        >>> trouble(DatasetResult(task="a", requested=9, written=7, dropped={"failed": 2}))
        'dataset a: 2 rows lost'
    """
    found = []
    if result.error is not None:
        found.append(f"failed ({inert(result.error, _NAME)})")
    if result.lost:
        found.append(f"{result.lost} rows lost")
    if result.not_run:
        count = sum(result.not_run.values())
        of = f"{count} rows" if count else "rows"
        found.append(f"{of} not run ({_named(result.not_run)})")
    if result.unfinished is not None:
        found.append(_unfinished(result.unfinished))
    if not found and result.outcome == "failed":
        found.append("no row is left")
    return f"dataset {_task(result)}: {', '.join(found)}" if found else None


def was_cut_short(result: DatasetResult) -> bool:
    """Whether rows of a dataset were not tried, since too much had failed: only a retry makes them.

    Example:
        >>> was_cut_short(DatasetResult(task="a", requested=2, written=1, dropped={"failed": 1}))
        False
    """
    return bool(result.dropped.get("early_shutdown"))


def used_of(result: DatasetResult | ColumnProfile) -> str:
    """Calls, tokens and money, and for a whole dataset its time.

    Example:
        >>> used_of(DatasetResult(task="a", requested=2, written=2, calls=3, cost=0.5))
        '3 calls, 0.5000 US dollars in 0.0 s'
    """
    parts = [f"{result.calls} calls"]
    parts += [f"{result.usage.total} tokens"] if result.usage.total else []
    parts += [f"{result.cost:.4f} US dollars"] if result.cost else []
    took = f" in {result.duration_s:.1f} s" if isinstance(result, DatasetResult) else ""
    return ", ".join(parts) + took


def dropped_words(result: DatasetResult) -> str:
    """What rows were dropped for; failures with their columns, where all of them are known.

    Example:
        >>> dropped_words(DatasetResult(task="a", requested=2, written=0, dropped={"filtered": 2}))
        'filtered 2'
    """
    found = []
    for cause, count in result.dropped.items():
        columns = {one.name: one.failed for one in result.columns if one.failed}
        if cause == "failed" and sum(columns.values()) == count:
            found += [f"{inert(name, _NAME)} failed {of}" for name, of in columns.items()]
        else:
            found.append(f"{_words(cause)} {count}")
    return ", ".join(found)


def failure_line(row: DroppedRow) -> str:
    """A row that is not there, and why.

    Example:
        >>> failure_line(DroppedRow(row=3, cause="failed", column="text", error="down", attempts=6))
        'row 3: text failed after 6 calls: down'
    """
    column = "" if row.column is None else f"{inert(row.column, _NAME)} "
    calls = f" after {row.attempts} calls" if row.attempts else ""
    why = "" if row.error is None else f": {inert(row.error, _ERROR)}"
    return f"row {row.row}: {column}{_words(row.cause)}{calls}{why}"


def values_of(column: ColumnProfile) -> str:
    """What the values of a column are like: numbers, the frequent ones, or how long they are.

    Example:
        >>> column = ColumnProfile(
        ...     name="a",
        ...     kind="sampler",
        ...     type="int",
        ...     values=2,
        ...     nulls=0,
        ...     skipped=0,
        ...     distinct=2,
        ...     numbers={"min": 1, "max": 5, "mean": 3, "std": 2},
        ... )
        >>> values_of(column)
        '1 to 5, mean 3, std 2'
    """
    numbers = column.numbers
    if {"min", "max", "mean", "std"} <= numbers.keys():
        least, most, mean, std = (f"{numbers[one]:.4g}" for one in ("min", "max", "mean", "std"))
        return f"{least} to {most}, mean {mean}, std {std}"
    if column.common:
        shown = [
            f"{inert(output_text(shallow(value)), _VALUE)} {count}"
            for value, count in column.common[:_COMMON]
        ]
        return ", ".join(shown) + (", …" if column.distinct > len(shown) else "")
    if column.lengths is not None:
        first, last = column.lengths.edges[0], max(column.lengths.edges[-1] - 1, 0)
        unit = "members" if column.type.startswith("list") else "characters"
        return f"{first:.0f} {unit}" if first == last else f"{first:.0f} to {last:.0f} {unit}"
    return ""


def distinct_of(column: ColumnProfile) -> str:
    """How many different values there are."""
    return f"{'about ' if column.is_estimate else ''}{column.distinct}"


def shown_path(path: Path, near: Path | None = None) -> str:
    """A path, as it is seen from a folder where it lies in there.

    Example:
        >>> shown_path(Path("/a/b/c"), Path("/a")), shown_path(Path("/x"), Path("/a"))
        ('b/c', '/x')
    """
    inside = near is not None and path != near and path.is_relative_to(near)
    return inert(path.relative_to(near) if inside and near is not None else path)


def _sentence(result: DatasetResult, near: Path | None) -> str:
    where = "made"
    if result.folder is not None:
        files = f"{_FORMATS[result.format]}, " if result.format is not None else ""
        where = f"written to {shown_path(result.folder, near)} ({files}{result.groups} groups)"
    parts = [f"{result.written} of {result.requested} rows {where}"]
    if dropped := sum(result.dropped.values()):
        parts.append(f"{dropped} dropped: {dropped_words(result)}")
    if result.not_run:
        parts.append(f"{sum(result.not_run.values())} not run: {_named(result.not_run)}")
    if result.unfinished is not None:
        parts.append(_unfinished(result.unfinished))
    return "; ".join(parts)


def _unfinished(reason: str) -> str:
    """That processors of the whole did not come to their end."""
    return f"processors of afterGeneration cut off ({_REASONS.get(reason, _words(reason))})"


def _named(not_run: Mapping[str, int]) -> str:
    """Why rows were not run; how many for each, where there are several reasons."""
    words = {_REASONS.get(reason, _words(reason)): count for reason, count in not_run.items()}
    if len(words) == 1:
        return next(iter(words))
    return ", ".join(f"{word} {count}" for word, count in words.items())


def _task(result: DatasetResult) -> str:
    return inert(result.task or "", _NAME)


def _words(name: str) -> str:
    return _CAUSES.get(name) or inert(name.replace("_", " "), _NAME)
