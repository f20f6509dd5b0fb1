"""The rows of a dataset that is written, read as they are looked at."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload


class DatasetRows(Sequence[Mapping[str, Any]]):
    """The rows of a folder, in their order; those that were dropped have no place.

    One group is held in memory at a time.

    Args:
        path: The folder.

    Raises:
        DatasetError: It holds no dataset, or a file is missing or not as it was written.
    """

    def __init__(self, path: Path) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, place: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        raise NotImplementedError
