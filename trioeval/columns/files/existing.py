"""What is done where there is something already: pure decisions about a folder that is to be written."""

from typing import Literal, TypeAlias

import attrs

from trioeval.columns.files.header import Header, differences
from trioeval.columns.graph import Grouping
from trioeval.errors import DatasetError

Existing: TypeAlias = Literal["never", "if_possible", "always"]
"""Whether a dataset that is there is gone on with: never, so there must be none; if it fits, or else it is
moved away and another is begun; always, so it must fit."""


def joined(found: Header, wanted: Header, *, processed: bool = False) -> Header:
    """The header of a dataset that is gone on with: the same groups, and more behind them if more is wanted.

    Args:
        found: What is there.
        wanted: What is to be.
        processed: Whether what is there was changed after all of it had been made.

    Raises:
        DatasetError: It cannot be gone on with: every reason is told.

    Example:
        >>> there = Header(columns={"a": "int"}, grouping=Grouping(2, (5,)), fingerprint={})
        >>> joined(there, attrs.evolve(there, grouping=Grouping(2, (7,)))).grouping
        Grouping(size=2, targets=(5, 7))
    """
    troubles = list(differences(found, wanted))
    old, new = found.grouping, wanted.grouping
    if old.size != new.size:
        troubles.append(f"its groups have {old.size} rows, not {new.size}")
    if new.rows < old.rows:
        troubles.append(f"it has {old.rows} rows, which is more than {new.rows}")
    elif processed and new.rows > old.rows:
        troubles.append(
            f"its {old.rows} rows were processed when all of them were there, so it cannot get more"
        )
    targets = new.targets
    if len(targets) == 1 and new.rows > old.rows:
        targets = (*old.targets, new.rows)
    elif len(targets) == 1 and new.rows == old.rows:
        targets = old.targets
    if targets[: len(old.targets)] != old.targets and new.rows >= old.rows:
        troubles.append(
            f"it was made for {_then(old)} rows, not for {_then(new)}, which makes other groups"
        )
    if troubles:
        raise DatasetError("; ".join(troubles))
    return attrs.evolve(wanted, grouping=Grouping(old.size, targets))


def _then(grouping: Grouping) -> str:
    return ", then ".join(map(str, grouping.targets))
