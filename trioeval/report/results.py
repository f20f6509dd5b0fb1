"""What all result files are made from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.report.row import STRIPPED_PROMPT
from trioeval.report.totals import Totals
from trioeval.suite import Column, Suite
from trioeval.suite.strip import KEEP_ALL, Strip


@attrs.frozen(kw_only=True)
class RunInfo:
    """What a document says of the run itself."""

    eval_id: str
    utc_created: str
    """ISO 8601."""
    utc_exported: str
    duration_ms: float
    versions: Mapping[str, str]
    """`trioevalVersion`, `pythonVersion`, `platform`, `arch`."""
    strip: Strip = KEEP_ALL
    """What is left out of all files."""
    escape_formulas: bool = True
    """Whether cells of a spreadsheet that look like formulas are made harmless."""


@attrs.frozen(kw_only=True)
class Results:
    """A run that is over, or a task of one. Its rows are read as often as needed, and never all held."""

    suite: Suite
    columns: Sequence[Column]
    totals: Totals
    info: RunInfo
    rows: Callable[[int | None], Iterator[Mapping[str, Any]]]
    """Gives the rows of one `prompt_idx`, or all, as `row_json` makes them, in index order."""
    task: str | None = None
    """The id of the task that it is of; None where the suite has no tasks but is one."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that came before."""
    keys: Sequence[str] = attrs.field(default=(), repr=False)
    """Texts that must not stand in what is told of the suite."""

    def provider_name(self, column: Column) -> str:
        """What result files call the provider of a column."""
        entry = self.suite.providers[column.provider_index]
        return entry.label or entry.id

    def prompt_text(self, text: str) -> str:
        """The text or label of a prompt, as far as it may be shown."""
        return STRIPPED_PROMPT if self.info.strip.prompt_text else text
