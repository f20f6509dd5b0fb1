"""Tasks of type `columns`: datasets that are built column by column, row group by row group.

`model` and `form` hold the settings and how a suite writes them; `open` opens such a task, and `run` builds
the dataset. `graph` orders the columns, `groups` and `progress` decide which cells may be made next, `makers`
make them, `buffer` holds their values, and `files` writes and reads the finished groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from trioeval.columns.model import ColumnsSettings
    from trioeval.suite.model import TaskSettings


def is_columns(settings: TaskSettings) -> TypeGuard[ColumnsSettings]:
    """Return whether the settings of a task are those of this type, without importing the type."""
    return settings.type == "columns"
