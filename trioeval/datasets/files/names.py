"""The names in the folder of a dataset."""

from collections.abc import Iterator
from pathlib import Path

from trioeval.datasets.files.only_one import LOCK

NOTE = "dataset.json"
LINES = "groups.jsonl"
ASIDE = "aside"
FINAL = "final"
"""A folder of all rows as they are after the whole dataset was processed."""

_PART = ".part"
_OLD_FINAL = f".old-{FINAL}{_PART}"


def batch_name(group: int, file_format: str) -> str:
    """The name of the file of a group.

    Example:
        >>> batch_name(3, "parquet")
        'batch_00003.parquet'
    """
    return f"batch_{group:05d}.{file_format}"


def part_name(name: str) -> str:
    """What something is called until it is whole."""
    return f".{name}{_PART}"


def is_ours(name: str) -> bool:
    """Whether it is only of use while somebody writes: a killed process leaves it."""
    return name == LOCK or is_part(name)


def is_part(name: str) -> bool:
    """Whether something is not whole."""
    return name.startswith(".") and name.endswith(_PART)


def old_final(path: Path) -> Path:
    """What the processed rows of a dataset are called while others take their place."""
    return path / _OLD_FINAL


def processed_folder(path: Path) -> Path | None:
    """Where the processed rows of a dataset stand now; None if there are none."""
    final = path / FINAL
    # Once more at the end: another process may have renamed both in between.
    for one in (final, old_final(path), final):
        if (one / NOTE).exists():
            return one
    return None


def data_folder(path: Path) -> Path:
    """Where the rows of a dataset stand now."""
    return processed_folder(path) or path


def names_beside(path: Path) -> Iterator[Path]:
    """Names for a folder that must make room, one after the other."""
    number = 1
    while True:
        yield path.with_name(f"{path.name}-old-{number}")
        number += 1
