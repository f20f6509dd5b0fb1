"""Tasks of type `columns`: datasets that are built column by column, row group by row group.

`model` and `form` hold the settings and how a suite writes them; `open` opens such a task, and `run` builds
the dataset. `graph` orders the columns, `groups` and `progress` decide which cells may be made next, `makers`
make them, `buffer` holds their values, and `files` writes and reads the finished groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.columns.events import DatasetEvent as DatasetEvent
    from trioeval.columns.events import DatasetShutDown as DatasetShutDown
    from trioeval.columns.events import DatasetStarted as DatasetStarted
    from trioeval.columns.events import GroupAbandoned as GroupAbandoned
    from trioeval.columns.events import GroupOpened as GroupOpened
    from trioeval.columns.events import GroupWritten as GroupWritten
    from trioeval.columns.events import ManyTransientFailures as ManyTransientFailures
    from trioeval.columns.events import ProcessorEnded as ProcessorEnded
    from trioeval.columns.events import ProcessorStarted as ProcessorStarted
    from trioeval.columns.events import RowDropped as RowDropped
    from trioeval.columns.files import DatasetRows as DatasetRows
    from trioeval.columns.model import ColumnsSettings
    from trioeval.columns.result import DatasetResult as DatasetResult
    from trioeval.suite.model import TaskSettings
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.columns",
        {
            "trioeval.columns.events": (
                "DatasetEvent DatasetShutDown DatasetStarted GroupAbandoned GroupOpened GroupWritten"
                " ManyTransientFailures ProcessorEnded ProcessorStarted RowDropped"
            ),
            "trioeval.columns.files": "DatasetRows",
            "trioeval.columns.result": "DatasetResult",
        },
        own="is_columns",
    )


def is_columns(settings: TaskSettings) -> TypeGuard[ColumnsSettings]:
    """Return whether the settings of a task are those of this type, without importing the type."""
    return settings.type == "columns"
