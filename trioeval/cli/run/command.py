"""`trioeval run` as a whole: loads the suite that the flags name, and runs it once or repeatedly.

Errors in a suite are reported before Trio is imported.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trioeval.cli.environment import read_environment
from trioeval.cli.flags import RunFlags, attribute_errors_to_flags, check_flags, continues_run
from trioeval.cli.inputs import LoadedSuite, environ_with, load_inputs, with_unset
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.progress.streams import layered
from trioeval.cli.terminal import Exit, say
from trioeval.errors import SuiteError, TrioevalError, UsageError
from trioeval.loading.own_files import read_own_env_files

if TYPE_CHECKING:
    from trioeval.cli.run.resume import RunToContinue


DEFAULT_SUITES = tuple(
    f"promptfooconfig.{suffix}"
    for suffix in ("yaml", "yml", "json", "js", "cjs", "mjs", "ts", "cts", "mts")
)
"""The suite files of a folder, of which the first that exists is run if none is named."""


def run_command(suite: Path | None, flags: RunFlags, interrupts: Interrupts) -> int:
    """Load a suite and run it, and return the exit code.

    Raises:
        SuiteError: The suite is wrong.
        UsageError: A flag cannot be used.
        OutputError: A result file or recording cannot be written.
    """
    check_flags(flags)
    if suite is None and not flags.what.config and not continues_run(flags):
        suite = next(filter(Path.is_file, map(Path, DEFAULT_SUITES)), None)
        if suite is not None:
            say(f"suite: {suite}")
    with layered(flags.output.progress_mode, os.environ):
        return _run_command(suite, flags, interrupts)


def _run_command(suite: Path | None, flags: RunFlags, interrupts: Interrupts) -> int:
    if continues_run(flags):
        return _continue(suite, flags, interrupts)
    if flags.output.watch:
        return _watch(suite, flags, interrupts)
    with attribute_errors_to_flags(flags.what):
        loaded = load(suite, flags)
        if not loaded.suite.command_line_options.watch:
            return _run(loaded, flags, interrupts)
    return _watch(suite, flags, interrupts)


def _continue(suite: Path | None, flags: RunFlags, interrupts: Interrupts) -> int:
    from trioeval.cli.run.resume import find_run, report_finished

    outputs = tuple(path.absolute() for path in flags.output.output)
    found = find_run(suite, flags)
    if found.is_done:
        return report_finished(found, outputs)
    with attribute_errors_to_flags(found.flags.what):
        return _run(load(found.stored.suite, found.flags), found.flags, interrupts, found)


def load(
    suite: Path | None, flags: RunFlags, *, directory: Path | None = None, on_worker: bool = False
) -> LoadedSuite:
    """Load the suite of a command line and its environment.

    Args:
        suite: The suite file; None without one.
        flags: The flags.
        directory: The folder of a suite without a file; None is the working directory.
        on_worker: Whether environment files that the suite names may be missing.

    Raises:
        SuiteError: The suite is wrong.
        UsageError: A flag cannot be used.
    """
    environ = environ_with(flags.what.env_file)
    read_environment(environ)  # checks the settings before files are read
    loaded = load_inputs(suite, flags, environ, directory)
    if not flags.what.env_file:
        own = read_own_env_files(loaded, may_be_missing=on_worker)
        environ = with_unset(environ, own)
    return LoadedSuite(loaded, environ, suite)


def _run(
    loaded: LoadedSuite,
    flags: RunFlags,
    interrupts: Interrupts,
    found: "RunToContinue | None" = None,
) -> int:
    from trioeval.cli.run.run import run_loaded

    return run_loaded(loaded, flags, interrupts, found)


def _watch(suite: Path | None, flags: RunFlags, interrupts: Interrupts) -> int:
    from trioeval.cli.run.watch import WatchedRun, marks_of, watch

    if flags.what.record is not None:
        raise UsageError("--record and --watch exclude each other: a recording holds one run")
    named = [path for path in (suite, *map(Path, flags.what.config)) if path is not None]

    def run_once() -> WatchedRun:
        marks = marks_of(named)
        try:
            with attribute_errors_to_flags(flags.what):
                loaded = load(suite, flags)
                marks = marks_of(loaded.suite.files or named)
                code = _run(loaded, flags, interrupts)
        except TrioevalError as error:
            say(error)
            code = Exit.USAGE
            if isinstance(error, SuiteError):
                # A missing file may be created later, for example in the folder of a pattern.
                files = [path.absolute() for path in (*named, *error.files)]
                marks = {**marks, **marks_of({*files, *(file.parent for file in files)})}
        return WatchedRun(code, marks)

    return watch(run_once, interrupts)
