"""Where the rows of a run go: into totals, result files, and the table that is shown. None is kept.

The JSON text of a row is made once, whoever wants it.
"""

from collections.abc import Sequence
from pathlib import Path

import attrs

from trioeval.cli.output import LINES, LinesFile, output_suffix, write_results
from trioeval.cli.spool import Spool
from trioeval.errors import OutputError
from trioeval.report import Results, RunInfo, Totals, row_json, to_json
from trioeval.report.first_rows import FirstRows
from trioeval.suite import Column, Suite
from trioeval.tasks import Row


@attrs.define
class Collector:
    """Takes rows in index order."""

    suite: Suite
    columns: Sequence[Column]
    outputs: Sequence[Path]
    info: RunInfo
    """Of the run as it begins."""
    first_rows: FirstRows | None
    """What will be shown; None to show no rows."""
    totals: Totals = attrs.field(init=False)
    _lines: list[LinesFile] = attrs.field(init=False)
    _spool: Spool | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.totals = Totals.of(self.columns)
        self._lines = [LinesFile(path) for path in self.outputs if output_suffix(path) == LINES]
        documents = self._documents()
        self._spool = Spool(documents[0].parent) if documents else None

    def _documents(self) -> list[Path]:
        return [path for path in self.outputs if output_suffix(path) != LINES]

    def open(self) -> None:
        """Begin all files that get rows as they come.

        Raises:
            OutputError: One of them cannot be opened.
        """
        for lines in self._lines:
            lines.open()
        for spool in self._spools():
            spool.open()

    def add(self, row: Row) -> OutputError | None:
        """Take a row; the error is the first that a file met, and the row is counted all the same."""
        self.totals.add(row)
        if self.first_rows is not None:
            self.first_rows.add(row)
        if not self._lines and self._spool is None:
            return None
        text = to_json(row_json(row, self.info.eval_id, self.info.strip))
        for lines in self._lines:
            lines.add(text)
        for spool in self._spools():
            spool.add(text, row.step.prompt_idx)
        return self.error

    def _spools(self) -> Sequence[Spool]:
        return () if self._spool is None else (self._spool,)

    @property
    def error(self) -> OutputError | None:
        """The first error that a file met."""
        met = [
            *(lines.error for lines in self._lines),
            *(spool.error for spool in self._spools()),
        ]
        return next((error for error in met if error is not None), None)

    def close(self, info: RunInfo) -> None:
        """No row will follow: write all documents. Each is written even if another cannot be.

        Args:
            info: Of the run as it ended.

        Raises:
            OutputError: A file cannot be written; the first one that could not.
        """
        for lines in self._lines:
            lines.close()
        first = self.error
        for spool in self._spools():
            results = Results(
                suite=self.suite,
                columns=self.columns,
                totals=self.totals,
                info=info,
                rows=spool.rows,
            )
            for path in self._documents():
                try:
                    write_results(path, results)
                except OutputError as error:
                    first = first or error
            spool.close()
        if first is not None:
            raise first
