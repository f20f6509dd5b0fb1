"""The observers and options of all datasets of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trioeval.columns.events import DatasetEvent
    from trioeval.columns.finish import Output
    from trioeval.columns.graph import RowGrouping
    from trioeval.columns.makers.seeds import Source
    from trioeval.columns.result import DatasetResult
    from trioeval.columns.run import DatasetRun
    from trioeval.columns.spec import DatasetSpec, Rows


def _ignore(_result: DatasetResult, _rows: Rows) -> None:
    """Do nothing with a result."""


class DatasetPlace(Protocol):
    """The place of the groups of datasets: where they are made, and where their rows go."""

    def seeds(self) -> Mapping[str, Source]:
        """Return the seeds that need no earlier task, besides those of files; by their first columns."""
        ...

    def output(self, grouping: RowGrouping, /) -> Output | None:
        """Return the destination of the rows of a dataset; None is its folder."""
        ...

    def adapt(self, spec: DatasetSpec, /) -> DatasetSpec:
        """Return the specification with which a dataset is built in this process.

        Raises:
            DatasetError: It is another dataset than that of the process which sends its groups.
        """
        ...

    def on_open(self, run: DatasetRun, /) -> None:
        """Handle a dataset that is opened, before it is built."""
        ...


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
    place: DatasetPlace | None = None
    """The place of their groups; None makes and writes them in this process."""
