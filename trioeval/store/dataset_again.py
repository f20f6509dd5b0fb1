"""Rows of a dataset that were lost are tried again: their groups are written anew."""

import json
import sqlite3

from trioeval.datasets.grouping import Grouping
from trioeval.datasets.result import LOST
from trioeval.errors import DatasetError
from trioeval.store.runs import key_range
from trioeval.store.schema import INDEX_BITS

_INDEX = (1 << INDEX_BITS) - 1


def try_lost_again(connection: sqlite3.Connection, part: int, *, is_wanted: bool) -> None:
    """Forget which rows of a dataset were lost, and mark their groups; or take back such marks.

    What was made for those groups stays, and so do their files until others are written.

    Args:
        connection: In a transaction.
        part: The number of the part; one without a dataset is left as it is.
        is_wanted: Whether they are tried again. If not, what an earlier execution was to try and did not
            stays as it is.
    """
    if not is_wanted:
        connection.execute("DELETE FROM group_again WHERE part = ?", (part,))
        return
    begun = connection.execute("SELECT grouping FROM dataset WHERE part = ?", (part,)).fetchone()
    if begun is None:
        return
    try:
        told = json.loads(begun[0])
        grouping = Grouping(told["size"], tuple(told["targets"]))
    except (ValueError, TypeError, KeyError, DatasetError):
        return  # damaged: the dataset begins anew, which is told when it is read
    lost = f"key BETWEEN ? AND ? AND cause IN ({', '.join('?' * len(LOST))})"
    wanted = (*key_range(part), *sorted(LOST))
    keys = connection.execute(f"SELECT key FROM dropped_row WHERE {lost}", wanted)  # noqa: S608
    rows = [key & _INDEX for (key,) in keys]
    groups = {grouping.group_of(row) for row in rows if row < grouping.rows}
    if not groups:
        return
    connection.executemany(
        "INSERT OR IGNORE INTO group_again (part, number) VALUES (?, ?)",
        ((part, group) for group in groups),
    )
    connection.execute(f"DELETE FROM dropped_row WHERE {lost}", wanted)  # noqa: S608
    # Processors have to see the whole of it once more.
    connection.execute("DELETE FROM dataset_stage WHERE part = ?", (part,))
