"""Where the rows of a run go: into totals, result files, and the table that is shown. None is kept.

The JSON text of a row is made once, whoever wants it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from trioeval.cli.output import LINES, LinesFile, output_suffix, write_results
from trioeval.cli.spool import Spool
from trioeval.errors import OutputError
from trioeval.report import Results, RunInfo, Totals, row_json, to_json
from trioeval.report.derived import derive
from trioeval.report.first_rows import FirstRows
from trioeval.report.redact import keys_of
from trioeval.suite import Around, Column, Suite
from trioeval.tasks import PreparedSuite, Row


@attrs.define(kw_only=True)
class Part:
    """What is known of the rows of one task."""

    task: str | None
    """None for a suite that has no tasks but is one."""
    depends_on: tuple[str, ...]
    suite: Suite
    columns: Sequence[Column]
    first_rows: FirstRows | None
    """What will be shown; None to show no rows."""
    totals: Totals
    around: Around
    keys: Sequence[str] = attrs.field(repr=False)
    """Texts that must not stand in what is told of its suite."""
    spool: Spool | None
    """Where rows wait for documents, if there will be any."""

    def results(self, info: RunInfo) -> Results | None:
        """What documents are made of; None if there will be none."""
        if self.spool is None:
            return None
        return Results(
            suite=self.suite,
            columns=self.columns,
            totals=self.totals,
            info=info,
            rows=self.spool.rows,
            task=self.task,
            depends_on=self.depends_on,
            keys=self.keys,
        )


@attrs.define
class Collector:
    """Takes the rows of a run, those of each task in index order."""

    parts: Sequence[Part]
    """Those of the suite's tasks, in their order."""
    outputs: Sequence[Path]
    info: RunInfo
    """Of the run as it begins."""
    _lines: list[LinesFile] = attrs.field(init=False)
    _by_task: dict[str | None, Part] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = [LinesFile(path) for path in self.outputs if output_suffix(path) == LINES]
        self._by_task = {part.task: part for part in self.parts}

    @classmethod
    def of(
        cls,
        prepared: PreparedSuite,
        outputs: Sequence[Path],
        info: RunInfo,
        *,
        cell: int,
        tests: int,
    ) -> "Collector":
        """One for the rows of a suite.

        Args:
            prepared: The suite.
            outputs: Result files.
            info: Of the run as it begins.
            cell: Characters of an answer that are shown.
            tests: Tests of each task that are shown; 0 shows no rows.
        """
        documents = [path for path in outputs if output_suffix(path) != LINES]
        parts = [
            Part(
                task=part.id,
                depends_on=part.depends_on,
                suite=part.prepared.suite,
                columns=part.prepared.steps.columns,
                first_rows=FirstRows(cell, tests) if tests else None,
                totals=Totals.of(part.prepared.steps.columns),
                around=part.prepared.around,
                keys=keys_of(part.prepared.around.environ),
                spool=Spool(documents[0].parent) if documents else None,
            )
            for part in prepared.parts
        ]
        return cls(parts, outputs, info)

    @property
    def totals(self) -> Totals:
        """Those of all rows."""
        if len(self.parts) == 1:
            return self.parts[0].totals
        return Totals.joined(part.totals for part in self.parts)

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
        part = self._by_task[row.task]
        part.totals.add(row)
        if part.first_rows is not None:
            part.first_rows.add(row)
        if not self._lines and part.spool is None:
            return None
        text = to_json(row_json(row, self.info.eval_id, self.info.strip, part.keys))
        for lines in self._lines:
            lines.add(text)
        if part.spool is not None:
            part.spool.add(text, row.step.prompt_idx)
        return next(self._errors(), None)

    def _spools(self) -> Sequence[Spool]:
        return [part.spool for part in self.parts if part.spool is not None]

    def _errors(self) -> Iterator[OutputError]:
        """The first that each file met while rows came."""
        met = [lines.error for lines in self._lines] + [spool.error for spool in self._spools()]
        yield from (error for error in met if error is not None)

    def derive(self) -> Iterator[str]:
        """No row will follow: make the derived metrics; what is wrong with them is told."""
        for part in self.parts:
            for column in part.totals.columns:
                yield from derive(part.suite.derived_metrics, column, part.around)

    def close(self, info: RunInfo) -> Sequence[OutputError]:
        """No row will follow: write all documents. Each is written even if another cannot be.

        Args:
            info: Of the run as it ended.

        Returns:
            Why files could not be written.
        """
        for lines in self._lines:
            lines.close()
        errors = [*self._errors()]
        results = [found for part in self.parts if (found := part.results(info)) is not None]
        for path in self.outputs if results else ():
            if output_suffix(path) == LINES:
                continue
            try:
                write_results(path, results)
            except OutputError as error:
                errors.append(error)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the other files
                fault = f"{type(error).__name__}: {error}; this is a fault of trioeval"
                errors.append(OutputError(f"-o {path}: cannot be written: {fault}"))
        for spool in self._spools():
            spool.close()
        return errors
