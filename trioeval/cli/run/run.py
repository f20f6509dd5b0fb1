# Apart from `cli.run.command`: loaded when it is used.
"""`trioeval run`: from suite files and flags to a run, or to what is wrong with them."""

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import attrs
import trio

from trioeval.agent.model import AgentSettings
from trioeval.cli.environment import (
    EnvironmentSettings,
    cache_path,
    database_path,
    databases,
    read_environment,
)
from trioeval.cli.flags import RunFlags
from trioeval.cli.inputs import Named, check_files, check_spared, environ_with, read_earlier
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.logs import shown_logs
from trioeval.cli.output import check_outputs
from trioeval.cli.progress.log import RunLog
from trioeval.cli.progress.progress import open_log
from trioeval.cli.run.agents import check_workspaces
from trioeval.cli.run.execution import Execution
from trioeval.cli.run.observers import check_telemetry, check_trace
from trioeval.cli.run.plan import plan_lines, size_lines
from trioeval.cli.run.resume import Found
from trioeval.cli.run.start import Beginning, beginning_of
from trioeval.cli.run.storage import Keeping
from trioeval.cli.settings import (
    RunSettings,
    earlier_files,
    filters_of,
    said_in_vain,
    settle,
    with_flags,
)
from trioeval.cli.stored_flags import stored_flags
from trioeval.cli.terminal import Exit, say, show
from trioeval.columns.open import check_folders, read_seeds
from trioeval.errors import UsageError
from trioeval.evaluation.suite_files import CodeFiles, named_files
from trioeval.providers import Recorder
from trioeval.providers.local.replay import ReplaySettings
from trioeval.report import inert
from trioeval.run import PreparedSuite, prepare
from trioeval.run.same_rows import task_digest
from trioeval.suite.expand import expand
from trioeval.suite.filters import Filters, select_tests
from trioeval.suite.model import Suite
from trioeval.suite.sizes import TooManyRowsError


@attrs.frozen
class Loaded:
    """A suite, and what it is run in."""

    suite: Suite
    environ: Mapping[str, str]
    named: Path | None = None
    """The suite file, as it was named."""


def run_loaded(
    loaded: Loaded, flags: RunFlags, interrupts: Interrupts, found: Found | None = None
) -> int:
    """Run a suite and return the exit code.

    Args:
        loaded: The suite.
        flags: What it is run with.
        interrupts: The signals that end it.
        found: The stored run that goes on; None for a new one.

    Raises:
        SuiteError: Its providers are wrong, or files of seeds.
        UsageError: A flag cannot be used.
        OutputError: A result or recording cannot be written.
        StoreError: The run cannot be kept.
        DatasetError: A dataset cannot be begun in its folder; the run is not begun either.
    """
    suite, environ = loaded.suite, loaded.environ
    environment = read_environment({**environ, **suite.env})
    settings = settle(suite, flags, environment)
    if settings.plan and flags.output.output:
        raise UsageError("--plan and -o exclude each other: a plan has no results")
    _check_files(suite, flags, settings, _of_process(flags))
    changed = with_flags(suite, flags, environment)
    try:
        prepared = _prepared(changed, _filters(suite, flags), flags, settings, environ)
    except TooManyRowsError as error:
        return _tell_size(error, settings)
    known = all(part.rows is not None for part in prepared.parts)
    if known and not prepared.size and not settings.allow_empty and _has_rows(suite):
        raise UsageError("the filters leave no row to run; --allow-empty makes that no mistake")
    warnings = (*said_in_vain(suite, flags), *environment.warnings, *prepared.warnings)
    for warning in () if settings.quiet else warnings:
        say(f"warning: {warning}")
    _tell_cut_recordings(prepared)
    _check_recorded(prepared, settings)
    prepared = attrs.evolve(prepared, opened=read_seeds(prepared))
    if settings.plan:
        for line in plan_lines(prepared):
            show(line)
        return Exit.OK
    if found is None:
        check_folders(prepared)
    keeping = _keeping(changed, settings, flags, _of_process(flags))
    if found is not None:
        keeping = attrs.evolve(keeping, named=found.names_database)
    check_workspaces(prepared, keeping.database)
    sources = CodeFiles(suite.directory)
    digests = {part.id or "": task_digest(part, sources) for part in prepared.parts}
    if found is None:
        continued, said = None, stored_flags(loaded.named, flags, settings.outputs, digests)
    else:
        # What is given now is of this execution alone: the next one goes by the beginning again.
        continued = found.continued(prepared, digests)
        said = attrs.evolve(found.stored, settings=digests)
    beginning = beginning_of(prepared, said.json(), continued)
    check_spared(_written(settings), [*beginning.start.files, *named_files(suite)])
    return _run_prepared(prepared, settings, keeping, beginning, interrupts)


def _filters(suite: Suite, flags: RunFlags) -> Filters:
    """Which tests are run, earlier results among what decides that."""
    filters = filters_of(suite, flags.rows)
    if earlier := earlier_files(suite, flags.rows):
        filters = attrs.evolve(filters, earlier=read_earlier(earlier))
    return filters


def _prepared(
    suite: Suite,
    filters: Filters,
    flags: RunFlags,
    settings: RunSettings,
    environ: Mapping[str, str],
) -> PreparedSuite:
    """What is run of a suite.

    Raises:
        SuiteError: As for `prepare`.
    """
    return prepare(
        suite,
        environ=environ,
        max_concurrency=settings.max_concurrency,
        replay=settings.replay,
        select=lambda one: select_tests(
            one, attrs.evolve(filters, range=filters_of(one, flags.rows).range)
        ),
        first_n=filters.first_n,
        tasks=flags.rows.task,
        one_by_one=settings.one_by_one,
    )


def _tell_size(error: TooManyRowsError, settings: RunSettings) -> int:
    """Show how many rows a suite has that is too large to be run; the exit code of a plan.

    Raises:
        TooManyRowsError: It was to be run.
    """
    if not settings.plan:
        raise error
    for line in size_lines(error):
        show(line)
    return Exit.OK


def _of_process(flags: RunFlags) -> EnvironmentSettings:
    """The environment without what files say that a suite names: it does not choose what is written to."""
    return read_environment(environ_with(flags.what.env_file))


def _keeping(
    suite: Suite, settings: RunSettings, flags: RunFlags, environment: EnvironmentSettings
) -> Keeping:
    """Where the run is kept.

    Args:
        suite: What is run, as flags change it.
        settings: How.
        flags: Those that were given.
        environment: That of the process: a suite does not choose what is written to.
    """
    database = database_path(flags.keep.db, environment) if settings.write else None
    return Keeping(
        database=database,
        durability=flags.keep.durability or "normal",
        wal=environment.wal,
        is_cached=suite.evaluate_options.cache,
        cache=cache_path(environment),
        cache_ttl_s=settings.environment.cache_ttl_s,
        # What a recording lacks cannot be replayed: everything is asked for it.
        refresh=flags.keep.refresh or settings.record is not None,
        reconcile=flags.keep.reconcile,
        named=flags.keep.db is not None,
    )


def _has_rows(suite: Suite) -> bool:
    return any(map(expand, (suite, *(task.suite for task in suite.tasks))))


def _run_prepared(
    prepared: PreparedSuite,
    settings: RunSettings,
    keeping: Keeping,
    beginning: Beginning,
    interrupts: Interrupts,
) -> int:
    check_outputs(settings.outputs)
    check_trace(settings.trace)
    check_telemetry(on=settings.otel)
    recording = nullcontext() if settings.record is None else Recorder.create(settings.record)
    # What is loaded by now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    with shown_logs(settings.log), recording as recorder:
        execution = Execution(
            prepared,
            settings,
            keeping,
            beginning,
            recorder,
            interrupts,
            _log(prepared.suite.file, settings),
            os.environ,
        )
        interrupts.begin_run()
        code = trio.run(execution.run, restrict_keyboard_interrupt_to_checkpoints=True)
    if code != Exit.FAULT and recorder is not None and recorder.error is not None:
        raise recorder.error  # it could not be closed
    return code


def _log(suite: Path | None, settings: RunSettings) -> RunLog:
    """What tells of a run of a suite with this file."""
    if not settings.progress:
        return RunLog()
    mode, strip = settings.progress_mode, settings.environment.strip
    return open_log(mode, os.environ, sys.stderr, suite=suite, strip=strip)


def _check_files(
    suite: Suite, flags: RunFlags, settings: RunSettings, environment: EnvironmentSettings
) -> None:
    """Refuse a file that is named twice.

    Args:
        suite: What is run.
        flags: Those that were given.
        settings: What became of them.
        environment: That of the process, which says where databases are.
    """
    read = {
        "the suite": suite.file,
        "--replay": settings.replay,
        "--assertions": flags.what.assertions,
        "--model-outputs": flags.what.model_outputs,
    }
    named = [(name, path) for name, path in read.items() if path is not None]
    named += (("--env-file", path) for path in flags.what.env_file)
    earlier = dict.fromkeys(one.path for one in earlier_files(suite, flags.rows))
    named += (("the earlier results", path) for path in earlier)
    # Also where this run is kept nowhere: what is there already is worth as much.
    check_files(named, databases=databases(flags.keep.db, environment), written=_written(settings))


def _written(settings: RunSettings) -> list[Named]:
    recorded = [] if settings.record is None else [("--record", settings.record)]
    traced = [] if settings.trace is None else [("--trace", settings.trace)]
    return [*recorded, *traced, *(("-o", path) for path in settings.outputs)]


def _check_recorded(prepared: PreparedSuite, settings: RunSettings) -> None:
    """Tell that programs which work on cases are in no recording, since what they did is not their replies.

    Raises:
        UsageError: A recording is to stand for one.
    """
    suites = (part.prepared.suite for part in prepared.parts)
    agents = (suite for suite in suites if isinstance(suite.settings, AgentSettings))
    programs = [one.id for suite in agents for one in suite.providers if one.id.startswith("exec:")]
    if not programs:
        return
    which = f"{inert(programs[0], 80)} is an agent, and what it does is no reply"
    if settings.replay is not None:
        raise UsageError(f"--replay: {which}; run its task without a recording")
    if settings.record is not None:
        say(f"warning: --record leaves out programs: {which}")


def _tell_cut_recordings(prepared: PreparedSuite) -> None:
    replayed = [spec.settings for part in prepared.parts for spec in part.prepared.specs]
    cut = (one.file for one in replayed if isinstance(one, ReplaySettings) and one.is_cut)
    for file in dict.fromkeys(cut):
        say(f"{file}: the last line is cut off, and left out")
