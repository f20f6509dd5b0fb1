"""`trioeval compare`: two runs row by row."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from trioeval.cli.commands.runs import CompareFlags
from trioeval.cli.environment import databases, read_environment
from trioeval.cli.inputs import check_files, check_not_suite_files
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import Exit, draw, pour, say, show
from trioeval.errors import UsageError
from trioeval.report.compare import (
    By,
    Comparison,
    RowChange,
    changes_table,
    compared_line,
    comparison_json,
    first_of,
    left_out_lines,
)
from trioeval.report.compare_chance import (
    chance_lines,
    chance_sentences,
    findings_table,
    nothing_shared,
)
from trioeval.report.compare_runs import Findings, UnreadRow, findings_of
from trioeval.report.files import check_outputs, output_suffix, write_whole
from trioeval.report.formats.json import json_chunks
from trioeval.report.head import Head
from trioeval.report.records import RowRecord
from trioeval.report.run_list import run_line
from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.stored import StoredRunFacts
from trioeval.report.totals import cluster_of
from trioeval.store.reader import StoreReader
from trioeval.store.stored_results import results_of
from trioeval.text_safety import escape_control_characters

_SHOWN = 20  # changed rows
_NAME = 40  # characters of the name of a test
_PAGE = ".html"


def compare_runs(db: Path | None, before: str, after: str, flags: CompareFlags) -> int:
    """Show the rows that differ between two runs, and whether the differences exceed chance.

    Raises:
        UsageError: A run does not exist, no row has the cluster, or a file cannot be written.
        StoreError: The database cannot be read.
        OutputError: A file cannot be written.
    """
    environment = read_environment(os.environ)
    outputs = flags.output
    bootstrap = None if flags.bootstrap is None else Bootstrap(flags.bootstrap)
    written = [("-o", path) for path in outputs]
    check_files(databases=databases(db, environment), written=written)
    _check_pages(outputs)
    with open_runs(db, environment) as reader:
        old, new = reader.run(before), reader.run(after)
        for facts in (old, new):
            check_not_suite_files(written, facts.files)
        check_outputs(outputs)
        clusters = _clusters(reader, (old, new), flags.cluster)
        if flags.cluster is not None:
            _check_cluster(flags.cluster, chain(_records(reader, new), _records(reader, old)))
        comparison = Comparison(partial(_unread, reader, old), by=flags.by, clusters=clusters)
        changes = comparison.changes(_unread(reader, new))
        found = partial(findings_of, comparison.columns, flags.confidence, bootstrap)
        if flags.json:
            ids = (old.id, new.id)
            pour(
                json_chunks(comparison_json(*ids, comparison, changes, found, bootstrap=bootstrap))
            )
            show("")
            findings = found()
        else:
            shown, more = (list(changes), 0) if flags.changed else first_of(changes, _SHOWN)
            findings = found()
        for path in outputs:
            _write_page(
                path,
                (reader, old, new),
                flags.by,
                [*chance_sentences(comparison.columns, findings)],
            )
    if not flags.json:
        show(f"before: {run_line(old)}")
        show(f"after:  {run_line(new)}")
        if flags.changed or findings.pairs:
            _show_changes(shown, more)
        _show_findings(comparison, findings)
    return _exit(flags.fail_if, findings, comparison, new)


def _show_changes(shown: Sequence[RowChange], more: int) -> None:
    if shown:
        draw(changes_table(shown, _NAME), sys.stdout)
    if more:
        show(f"… and {more} more; --changed shows them all")


def _show_findings(comparison: Comparison, findings: Findings) -> None:
    columns = comparison.columns
    if findings.pairs:
        draw(findings_table(columns, findings), sys.stdout)
    elif columns:
        show(nothing_shared(columns))
    for line in (*chance_lines(findings), *left_out_lines(columns), compared_line(comparison)):
        show(line)


def _exit(
    fail_if: Literal["worse", "different"] | None,
    findings: Findings,
    comparison: Comparison,
    later: StoredRunFacts,
) -> Exit:
    """Return the exit code, and print the reason if --fail-if is given."""
    if fail_if is None:
        return Exit.OK
    so_far = f" (it is unfinished: {later.state})" if _is_unfinished(later) else ""
    if not findings.pairs:
        how = "finished" if comparison.kinds["unfinished"] else "exists"
        why = f"no row {how} in both runs{so_far}"
        say(f"exit {Exit.FAILED:d}: no comparison is possible: {why}")
        return Exit.FAILED
    if not findings.is_known:
        say(
            f"exit {Exit.FAILED:d}: no comparison is possible: all rows of a column belong to one test or "
            f"cluster{so_far}"
        )
        return Exit.FAILED
    found = {"worse": findings.is_worse, "better": findings.is_better and fail_if == "different"}
    result = " and ".join(word for word, holds in found.items() if holds)
    if result:
        say(f"exit {Exit.FAILED:d}: the later run is {result} beyond chance{so_far}")
        return Exit.FAILED
    alone = comparison.kinds["new"] + comparison.kinds["gone"]
    rest = f"; rows of only one run, not compared: {alone}" if alone else ""
    if left := comparison.kinds["unfinished"]:
        rest += f"; unfinished rows, not compared: {left}"
    say(f"exit {Exit.OK:d}: the later run is not {fail_if} beyond chance{so_far}{rest}")
    return Exit.OK


def _is_unfinished(run: StoredRunFacts) -> bool:
    return run.state != "finished" or run.not_run > 0


def _clusters(
    reader: StoreReader, runs: Iterable[StoredRunFacts], cluster: str | None
) -> Mapping[str | None, str | None]:
    """Return the key of clusters by task; if both runs name one, that of the last run."""
    heads = (Head.read(head) for run in runs for head in reader.heads(run))
    return {head.task: head.cluster if cluster is None else cluster for head in heads}


def _check_cluster(name: str, records: Iterable[RowRecord]) -> None:
    known: dict[str, None] = {}
    for record in records:
        if cluster_of(record.test, record.vars, name) is not None:
            return
        known |= dict.fromkeys(record.vars)
        metadata = record.test.get("metadata")
        known |= dict.fromkeys(metadata if isinstance(metadata, Mapping) else ())
    names = ", ".join(escape_control_characters(one, _NAME) for one in sorted(known)[:_SHOWN])
    shown = escape_control_characters(name, _NAME)
    msg = (
        f"--cluster {shown!r}: no row of the runs has this metadata key or variable; "
        f"{f'the rows have {names}' if names else 'they have none'}"
    )
    raise UsageError(msg)


def _check_pages(outputs: Sequence[Path]) -> None:
    for path in outputs:
        if output_suffix(path) != _PAGE:
            msg = f"-o {path}: a comparison is written as {_PAGE}, got {path.suffix!r}; --json prints it"
            raise UsageError(msg)


def _write_page(
    path: Path,
    runs: tuple[StoreReader, StoredRunFacts, StoredRunFacts],
    by: By,
    sentences: Sequence[str],
) -> None:
    from trioeval.report.html_report import compare_chunks

    reader, old, new = runs
    environment = read_environment(os.environ)
    before, after = (
        results_of(
            reader, facts, strip=environment.strip, escape_formulas=environment.escape_formulas
        )
        for facts in (old, new)
    )
    write_whole(path, compare_chunks(before, after, by=by, sentences=sentences))
    say(f"wrote {path}: {new.id} beside {old.id}")


def _records(reader: StoreReader, run: StoredRunFacts) -> Iterator[RowRecord]:
    for task in run.tasks:
        for index, found in reader.numbered(run, task):
            yield RowRecord.of(found, index=index)


def _unread(reader: StoreReader, run: StoredRunFacts) -> Iterator[UnreadRow]:
    for task in run.tasks:
        yield from reader.unread_rows(run, task)
