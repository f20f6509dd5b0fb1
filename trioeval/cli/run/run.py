"""`trioeval run`: prepares and runs a loaded suite, or reports what is wrong with it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.cli.environment import (
    EnvironmentSettings,
    cache_path,
    database_path,
    databases,
    read_environment,
)
from trioeval.cli.flags import RunFlags, SuiteFlags
from trioeval.cli.inputs import (
    LoadedSuite,
    NamedFile,
    check_files,
    check_not_suite_files,
    environ_with,
    read_earlier,
)
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.logs import shown_logs
from trioeval.cli.progress.progress import RunProgress, open_progress
from trioeval.cli.run.execution import Execution
from trioeval.cli.run.start import start_of
from trioeval.cli.run.storage import RunStorage
from trioeval.cli.settings import (
    earlier_files,
    filters_of,
    resolve_settings,
    runs_one_by_one,
    unused_option_warnings,
    with_flags,
)
from trioeval.cli.stored_flags import stored_flags
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import UsageError
from trioeval.report.files import check_outputs
from trioeval.run import PreparedSuite, prepare
from trioeval.run.same_rows import task_digest
from trioeval.suite.expand import expand
from trioeval.suite.filters import select_tests
from trioeval.suite.model import Suite
from trioeval.suite.sizes import TooManyRowsError
from trioeval.text_safety import escape_control_characters

if TYPE_CHECKING:
    from trioeval.cli.run.resume import RunToContinue
    from trioeval.cli.run.scale_out import ScaleOut

_NEW_OBJECTS = 50_000
"""New objects between two garbage collections of a run: more would interrupt its calls for too long."""


def run_loaded(
    loaded: LoadedSuite, given: RunFlags, interrupts: Interrupts, found: RunToContinue | None = None
) -> int:
    """Run a suite and return the exit code.

    Args:
        loaded: The suite.
        given: The flags.
        interrupts: The signals that end it.
        found: The stored run to continue; None for a new run.

    Raises:
        SuiteError: Its providers or files of seeds are wrong.
        UsageError: A flag cannot be used.
        OutputError: A result file or recording cannot be written.
        StoreError: The run cannot be stored.
        DatasetError: A dataset cannot be written to its folder; the run is not started either.
    """
    from trioeval.evaluation.suite_files import CodeFiles, named_files

    suite = loaded.suite
    environment = read_environment({**loaded.environ, **suite.env})
    # Environment files that a suite names must not choose which files are written.
    own_environment = read_environment(environ_with(given.what.env_file))
    flags = resolve_settings(suite, given)
    plans = flags.output.plan
    if plans and given.output.output:
        raise UsageError("--plan and -o exclude each other: a plan has no results to write")
    _check_files(suite, flags, own_environment)
    changed = with_flags(suite, flags, environment)
    try:
        prepared = prepare_with_flags(loaded, changed, flags, environment)
    except TooManyRowsError as error:
        if not plans:
            raise
        from trioeval.cli.run.plan import size_lines

        return _show_plan(size_lines(error))
    known = all(part.rows is not None for part in prepared.parts)
    if known and not prepared.size and not flags.rows.allow_empty and _has_rows(suite):
        raise UsageError("no rows match the filters (pass --allow-empty to accept this)")
    warnings = (*unused_option_warnings(suite, given), *environment.warnings, *prepared.warnings)
    for warning in () if flags.output.quiet else warnings:
        say(f"warning: {warning}")
    _warn_of_cut_recordings(prepared)
    _check_recorded(prepared, flags.what)
    if "columns" in prepared.task_types:
        from trioeval.columns.open import check_folders, read_seeds

        prepared = attrs.evolve(prepared, opened=read_seeds(prepared))
        if found is None and not plans:
            check_folders(prepared)
    scale_out = _scale_out(loaded, given, flags, prepared)
    if plans:
        from trioeval.cli.run.plan import plan_lines

        return _show_plan(plan_lines(prepared))
    storage = RunStorage(
        database=database_path(flags.keep.db, own_environment)
        if flags.begin.write is not False
        else None,
        durability=flags.keep.durability or "normal",
        wal=own_environment.wal,
        is_cached=changed.evaluate_options.cache and _has_replies_to_cache(prepared),
        cache=cache_path(own_environment),
        cache_ttl_s=environment.cache_ttl_s,
        # What a recording lacks cannot be replayed: everything is asked for it.
        refresh=flags.keep.refresh or flags.what.record is not None,
        reconcile=flags.keep.reconcile,
        named=flags.keep.db is not None if found is None else found.names_database,
    )
    sources = CodeFiles(suite.directory)
    digests = {part.id or "": task_digest(part, sources) for part in prepared.parts}
    if found is None:
        stored = stored_flags(loaded.named, given, flags.output.output, digests)
    else:
        # Flags given now hold for this execution only; the next one uses those of the start again.
        stored = attrs.evolve(found.stored, settings=digests)
    execution = Execution(
        prepared,
        flags,
        environment,
        storage,
        continued=None if found is None else found.continued(prepared, digests),
        start=start_of(prepared, stored.json(), None if found is None else found.facts),
        interrupts=interrupts,
        progress=_progress(suite, flags, environment),
        environ=os.environ,
        scale_out=scale_out,
    )
    check_not_suite_files(_written(flags), [*execution.start.files, *named_files(suite)])
    return _execute(execution)


def _scale_out(
    loaded: LoadedSuite, given: RunFlags, flags: RunFlags, prepared: PreparedSuite
) -> ScaleOut | None:
    """Return the cluster of `--on`; None without it.

    Raises:
        UsageError: It cannot be used.
    """
    if given.begin.on is None:
        return None
    from trioeval.cli.run.scale_out import ScaleOut

    return ScaleOut.of(loaded.named, given, flags, prepared)


def prepare_with_flags(
    loaded: LoadedSuite, suite: Suite, flags: RunFlags, environment: EnvironmentSettings
) -> PreparedSuite:
    """Prepare a suite with the filters of flags.

    Raises:
        SuiteError: Its providers, transforms or files are wrong.
    """
    filters = filters_of(loaded.suite, flags.rows)
    if earlier := earlier_files(flags.rows):
        filters = attrs.evolve(filters, earlier=read_earlier(earlier))
    return prepare(
        suite,
        environ=loaded.environ,
        max_concurrency=flags.limits.max_concurrency,
        replay=flags.what.replay,
        select=lambda one: select_tests(
            one, attrs.evolve(filters, range=filters_of(one, flags.rows).range)
        ),
        first_n=filters.first_n,
        tasks=flags.rows.task,
        one_by_one=runs_one_by_one(loaded.suite, flags, environment),
    )


def _show_plan(lines: Iterable[str]) -> int:
    for line in lines:
        show(line)
    return Exit.OK


def _has_rows(suite: Suite) -> bool:
    return any(map(expand, (suite, *(task.suite for task in suite.tasks))))


def _execute(execution: Execution) -> int:
    flags = execution.flags
    check_outputs(flags.output.output)
    if "agent" in execution.prepared.task_types:
        from trioeval.session.agents import check_workspaces

        check_workspaces(execution.prepared, execution.storage.database)
    if flags.output.trace is not None:
        from trioeval.cli.run.observers import check_trace

        check_trace(flags.output.trace)
    if flags.output.otel:
        from trioeval.cli.run.observers import check_telemetry

        check_telemetry()
    recording: AbstractContextManager[Recorder | None] = nullcontext()
    if (record := flags.what.record) is not None:
        from trioeval.providers.local.record import Recorder

        recording = Recorder.create(record)
    # Loaded objects live as long as the process, so the garbage collector need not visit them again.
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    with shown_logs(flags.output.log), recording as recorder:
        execution.recorder = recorder
        execution.interrupts.begin_run()
        code = trio.run(execution.run, restrict_keyboard_interrupt_to_checkpoints=True)
    if code != Exit.FAULT and recorder is not None and recorder.error is not None:
        raise recorder.error  # it could not be closed
    return code


def _progress(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> RunProgress:
    """Return the progress of a run."""
    if not flags.output.progress:
        return RunProgress()
    mode, strip = flags.output.progress_mode, environment.strip
    return open_progress(mode, os.environ, sys.stderr, suite=suite.file, strip=strip)


def _check_files(suite: Suite, flags: RunFlags, environment: EnvironmentSettings) -> None:
    """Raise if a file is named twice."""
    read = {
        "the suite": suite.file,
        "--replay": flags.what.replay,
        "--assertions": flags.what.assertions,
        "--model-outputs": flags.what.model_outputs,
    }
    named = [(name, path) for name, path in read.items() if path is not None]
    named += (("--env-file", path) for path in flags.what.env_file)
    earlier = dict.fromkeys(one.path for one in earlier_files(flags.rows))
    named += (("the earlier results", path) for path in earlier)
    # Also for a run that is not stored: an existing database must not be overwritten.
    check_files(named, databases=databases(flags.keep.db, environment), written=_written(flags))


def _written(flags: RunFlags) -> list[NamedFile]:
    single = {"--record": flags.what.record, "--trace": flags.output.trace}
    found = [(name, path) for name, path in single.items() if path is not None]
    return [*found, *(("-o", path) for path in flags.output.output)]


def _check_recorded(prepared: PreparedSuite, flags: SuiteFlags) -> None:
    """Warn that a recording leaves out agent programs, whose work is more than replies.

    Raises:
        UsageError: A recording is to be replayed in place of such a program.
    """
    suites = (part.prepared.suite for part in prepared.parts)
    agents = (suite for suite in suites if suite.settings.type == "agent")
    programs = [one.id for suite in agents for one in suite.providers if one.id.startswith("exec:")]
    if not programs:
        return
    program = escape_control_characters(programs[0], 80)
    which = f"{program} is an agent program, whose work is more than replies"
    if flags.replay is not None:
        raise UsageError(f"--replay: {which}; run its task without --replay")
    if flags.record is not None:
        say(f"warning: --record leaves out programs: {which}")


def _has_replies_to_cache(prepared: PreparedSuite) -> bool:
    return any(
        not spec.is_instant_and_free for part in prepared.parts for spec in part.prepared.specs
    )


def _warn_of_cut_recordings(prepared: PreparedSuite) -> None:
    replayed = [
        spec.settings
        for part in prepared.parts
        for spec in part.prepared.specs
        if spec.id.startswith("replay:")
    ]
    if not replayed:
        return
    from trioeval.providers.local.replay import ReplaySettings

    cut = (one.file for one in replayed if isinstance(one, ReplaySettings) and one.is_cut)
    for file in dict.fromkeys(cut):
        say(f"{file}: the last line is cut off and ignored")
