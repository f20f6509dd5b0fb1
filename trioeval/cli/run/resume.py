"""Continuing a stored run: which run, with which flags, and which rows."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import attrs

from trioeval.cli.arguments import LATEST
from trioeval.cli.environment import EnvironmentSettings, database_path, databases, read_environment
from trioeval.cli.flags import RunFlags, StorageFlags
from trioeval.cli.inputs import check_files, check_not_suite_files, environ_with
from trioeval.cli.run.exit_status import RunOutcome
from trioeval.cli.run.start import Continuation
from trioeval.cli.settings import first
from trioeval.cli.stored_flags import StoredFlags
from trioeval.cli.stored_results import open_runs, write_stored
from trioeval.cli.terminal import say
from trioeval.errors import UsageError
from trioeval.evaluation.identity import recorded_row_name
from trioeval.evaluation.reconcile import Reconciled, Retry, parse_retry, summarize
from trioeval.evaluation.suite_files import file_digests
from trioeval.report.files import check_outputs
from trioeval.report.head import Head
from trioeval.report.stored import StoredRunFacts
from trioeval.run import PreparedSuite
from trioeval.store.reader import StoreReader
from trioeval.store.run_start import PROGRAM, judged_rows, reconcile_tasks
from trioeval.store.stored_results import datasets_of, results_of, stored_totals


@attrs.frozen(kw_only=True)
class RunToContinue:
    """A stored run to continue."""

    facts: StoredRunFacts
    stored: StoredFlags
    flags: RunFlags
    """The flags of the continuation."""
    retry: Retry
    environment: EnvironmentSettings
    names_database: bool
    """True if a flag names the database."""
    has_datasets: bool = True
    """True if the files of its datasets are unchanged since it finished."""

    @property
    def is_done(self) -> bool:
        """True if no row is left to run and the files of the suite and of datasets are unchanged."""
        done = self.facts.state == "finished" and self.retry.which in ("rest", "none")
        return done and self.has_datasets and not self.changed_files

    @property
    def changed_files(self) -> list[str]:
        """The files of the suite that have changed."""
        before = self.facts.files
        now = file_digests(before)
        return [file for file, digest in now.items() if digest != before[file]]

    def continued(self, prepared: PreparedSuite, digests: Mapping[str, str]) -> Continuation:
        """Return how the run continues with the suite as it is now.

        Raises:
            UsageError: The suite has changed and --reconcile is not given, or --retry names rows that do not
                exist.
        """
        sizes = [judged_rows(part) for part in prepared.parts]
        known = [rows for rows in sizes if rows is not None]
        largest = max(known, default=0)
        all_known = len(known) == len(sizes)
        if all_known and (row := self.retry.beyond(largest)) is not None:
            raise UsageError(f"--retry {self.retry}: no row {row}; the last row is {largest - 1}")
        with open_runs(self.flags.keep.db, self.environment) as reader:
            reconciled = self._reconciled(reader, prepared, digests)
        return Continuation(
            retry=self.retry, reconciled=reconciled, duration_ms=self.facts.duration_ms
        )

    def _reconciled(
        self, reader: StoreReader, prepared: PreparedSuite, digests: Mapping[str, str]
    ) -> Mapping[str | None, Reconciled]:
        """Return how the rows of each task have changed; empty if none has."""
        sizes = {part.id: judged_rows(part) for part in prepared.parts}
        changed = self.changed_files
        before = dict(zip(self.facts.tasks, self.facts.sizes, strict=True))
        if not changed and sizes == before and digests == self.stored.settings:
            return {}
        found = reconcile_tasks(reader, self.facts, prepared, digests, self.stored.settings)
        removed = [str(task) for task in before if task not in sizes]
        if removed or not all(one.is_same for one in found.values()):
            self._report_changes(reader, found, changed, removed)
        return found

    def _report_changes(
        self,
        reader: StoreReader,
        found: Mapping[str | None, Reconciled],
        changed: list[str],
        removed: list[str],
    ) -> None:
        """Print how the rows have changed.

        Raises:
            UsageError: --reconcile is not given.
        """
        names = f": {', '.join(map(_short, changed))}" if changed else ""
        lines = [f"the suite of {self.facts.id} has changed{names}"]
        for task, one in found.items():
            call = partial(_name_of_stored, reader, self.facts, task)
            text = summarize(one, call)
            lines += [text] if task is None else [f"task {task}: {text}"]
        lines += [f"task {task} was removed" for task in removed]
        if not self.flags.keep.reconcile:
            hint = "pass --reconcile to keep the unchanged rows and run the others"
            raise UsageError("\n".join([*lines, hint]))
        say("\n".join(lines))


def _name_of_stored(
    reader: StoreReader, facts: StoredRunFacts, task: str | None, index: int
) -> str:
    record = reader.record(facts, task, index)
    return "" if record is None else recorded_row_name(record)


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def find_run(suite: Path | None, flags: RunFlags) -> RunToContinue:
    """Return the stored run that flags name, and change to the folder in which it was started.

    Raises:
        UsageError: The run does not exist, or cannot be continued with these flags.
        StoreError: The database cannot be read.
    """
    retry = _retry(flags.keep)
    environment = read_environment(environ_with(flags.what.env_file))
    database = database_path(flags.keep.db, environment)
    with open_runs(flags.keep.db, environment) as reader:
        named = None if suite is None else str(suite.absolute())
        facts = reader.run(flags.begin.resume or LATEST, suite=named)
        if facts.state == "running":
            raise UsageError(
                f"{facts.id} is running in another process; wait until it ends, or stop it"
            )
        if PROGRAM in facts.flags:
            raise UsageError(
                f"{facts.id} cannot be continued from the command line: its suite is part of the program "
                f"{facts.flags[PROGRAM]}; continue it there, with "
                f'`session.run(suite, id="{facts.id}", resume=True)`'
            )
        stored = StoredFlags.read(facts.flags, facts.id)
        continuing = stored.with_flags(_absolute(flags, database))
        _enter(stored.directory, facts.id)
        has_datasets = facts.state != "finished" or _has_datasets(reader, facts)
    return RunToContinue(
        facts=facts,
        stored=stored,
        flags=continuing,
        retry=retry,
        environment=environment,
        names_database=flags.keep.db is not None,
        has_datasets=has_datasets,
    )


def _has_datasets(reader: StoreReader, facts: StoredRunFacts) -> bool:
    """Return whether the files of all datasets of a finished run are unchanged. Reads all of them."""
    from trioeval.columns.files import is_whole

    known = reader.datasets(facts)
    if not known:
        return True
    folders = {head.task: head.dataset_folder for head in map(Head.read, reader.heads(facts))}
    return all(
        is_whole(Path(folder), one.fingerprint, one.written, processed=one.is_processed)
        for task, one in known.items()
        if one.requested is not None and (folder := folders.get(task)) is not None
    )


def _retry(keep: StorageFlags) -> Retry:
    if keep.retry_errors:
        return Retry("errors")
    if keep.retry is None:
        return Retry()
    try:
        return parse_retry(keep.retry)
    except UsageError as error:
        raise UsageError(f"--retry: {error}") from None


def _absolute(flags: RunFlags, database: Path) -> RunFlags:
    """Return the flags with absolute paths, so that the working directory may change."""
    return attrs.evolve(
        flags,
        what=attrs.evolve(
            flags.what, env_file=tuple(path.absolute() for path in flags.what.env_file)
        ),
        keep=attrs.evolve(flags.keep, db=database.absolute()),
        output=attrs.evolve(
            flags.output,
            output=tuple(path.absolute() for path in flags.output.output),
            trace=None if flags.output.trace is None else flags.output.trace.absolute(),
        ),
    )


def _enter(directory: Path, run: str) -> None:
    """Change to the folder in which a run was started, since its flags name files relative to it."""
    try:
        os.chdir(directory)
    except OSError as error:
        msg = f"{run} was started in {directory}, which cannot be opened: {error.strerror}"
        raise UsageError(msg) from None


def report_finished(found: RunToContinue, outputs: tuple[Path, ...]) -> int:
    """Report that a run is complete, write the requested files, and return the exit code of the run."""
    facts, environment = found.facts, found.environment
    written = [("-o", path) for path in outputs]
    check_files(databases=databases(found.flags.keep.db, environment), written=written)
    check_not_suite_files(written, facts.files)
    check_outputs(outputs)
    unwritten = []
    with open_runs(found.flags.keep.db, environment) as reader:
        datasets = datasets_of(reader, facts)
        if outputs:
            unwritten = [
                *write_stored(
                    outputs,
                    results_of(
                        reader,
                        facts,
                        strip=environment.strip,
                        escape_formulas=environment.escape_formulas,
                    ),
                )
            ]
    for error in unwritten:
        say(error)
    ended = RunOutcome(
        totals=stored_totals(facts),
        needed=environment.pass_rate_threshold,
        failed_code=first(found.flags.output.fail_exit_code, environment.failed_exit_code),
        datasets=datasets,
        unwritten=bool(unwritten),
    )
    say(f"{facts.id} is finished: no row is left to run")
    say(ended.line)
    return ended.code
