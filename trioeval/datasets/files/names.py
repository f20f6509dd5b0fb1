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


def data_folder(path: Path) -> Path:
    """Where the rows of a dataset stand now."""
    final = path / FINAL
    return final if (final / NOTE).exists() else path


def names_beside(path: Path) -> Iterator[Path]:
    """Names for a folder that must make room, one after the other."""
    number = 1
    while True:
        yield path.with_name(f"{path.name}-old-{number}")
        number += 1
