"""The folder while a dataset is built."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.datasets.grouping import Grouping
from trioeval.datasets.types import ColumnType

Format: TypeAlias = Literal["parquet", "jsonl"]
Existing: TypeAlias = Literal["never", "if_possible", "always"]


@attrs.frozen(kw_only=True)
class Header:
    """What a dataset is: two folders with equal headers go together."""

    columns: Mapping[str, ColumnType]
    """Those that are written, in order."""
    grouping: Grouping
    fingerprint: Mapping[str, str]
    """Digests of what the dataset is made of, by what it is (`columns.question`, `seed`, …), so that a
    difference can be named."""


@attrs.frozen(kw_only=True)
class GroupFile:
    """A group that is written."""

    group: int
    rows: tuple[int, ...] | int
    """The numbers of its rows; only how many, where none of the group is missing."""
    file: str | None
    """The name of its file; None of a group without rows."""
    digest: str | None
    """SHA-256 of its bytes."""
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    """How many of its rows are not there, by cause (`trioeval.datasets.result.Cause`)."""


@attrs.define(eq=False)
class DatasetFolder:
    """A folder that files are written to. Made by `DatasetFolder.open`."""

    path: Path
    header: Header
    format: Format
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    """Groups that are there, each with a file that is as it was written."""
    damaged: tuple[GroupFile, ...] = ()
    """Groups that were written and whose files are not as they were; to be written again."""

    @classmethod
    def open(
        cls,
        path: Path,
        header: Header,
        *,
        file_format: Format,
        existing: Existing,
        known: Iterable[GroupFile] = (),
    ) -> "DatasetFolder":
        """Open a folder, which is made if it is not there.

        Args:
            path: The folder.
            header: What the dataset is to be.
            file_format: Of its files; that of what is there wins where it is gone on with.
            existing: What is done where there is a dataset already. `if_possible` moves one that does not fit
                to a name beside it, and never deletes a file.
            known: Groups that a journal knows to be written.

        Raises:
            DatasetError: It is not empty and nobody said to go on with it; it is of another configuration
                (every difference is named), of another group size, or has more rows; its header cannot be
                read; it cannot be written, or the format not be had.
        """
        raise NotImplementedError

    def write(
        self,
        group: int,
        rows: Sequence[tuple[int, Mapping[str, Any]]],
        dropped: Mapping[str, int] | None = None,
    ) -> GroupFile:
        """Write the rows of a group, by number in ascending order; none makes no file.

        Args:
            group: Its number.
            rows: Numbers and values.
            dropped: How many of its rows are not there, by cause; noted with it.

        Raises:
            DatasetError: It cannot be written, or a value does not fit its column.
        """
        raise NotImplementedError

    def write_aside(self, group: int, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Write columns that a processor has left out, as JSON lines with the numbers of their rows."""
        raise NotImplementedError

    def replace(
        self,
        groups: Iterable[tuple[int, Sequence[tuple[int, Mapping[str, Any]]]]],
        columns: Mapping[str, ColumnType] | None = None,
    ) -> None:
        """Write all groups anew beside those that are there, and switch with one rename.

        What is killed meanwhile leaves the old ones as they were. `groups` is walked once.

        Args:
            groups: In order, those without rows among them; the causes of what is not there stay.
            columns: Those that are written from now on; None leaves them. A header that is compared later is
                the same all the same: its fingerprint decides.
        """
        raise NotImplementedError

    def finish(self, result: Mapping[str, Any]) -> None:
        """The dataset is complete: note all of it, with what became of its rows (without times)."""
        raise NotImplementedError
