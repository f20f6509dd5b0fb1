"""The observers and options of all datasets of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioeval.columns.events import DatasetEvent
    from trioeval.columns.result import DatasetResult
    from trioeval.columns.spec import Rows


def _ignore(_result: DatasetResult, _rows: Rows) -> None:
    """Do nothing with a result."""


@attrs.frozen(kw_only=True)
class DatasetOptions:
    """The observers of all datasets of a run, and the options of their execution."""

    on_result: Callable[[DatasetResult, Rows], None] = _ignore
    """Called once with each result, and with the numbered rows if they are in memory."""
    on_event: Callable[[str | None, DatasetEvent], None] | None = None
    """Called with each event and the id of its task."""
    reconcile: bool = False
    """True if a resumed run may have another configuration than the first execution."""
    in_memory: bool = False
    """True if rows are only kept in memory and no files are written."""
    preview: int | None = None
    """The maximum number of rows of a preview."""
