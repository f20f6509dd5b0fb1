"""`trioeval run` as a whole: loads what the flags name, and runs it once or again and again.

What is wrong with a suite is told before Trio is imported.
"""

from collections.abc import Mapping
from pathlib import Path

from trioeval.cli.exits import Exit
from trioeval.cli.flags import RunFlags
from trioeval.cli.inputs import environ_with, load_inputs
from trioeval.cli.terminal import say
from trioeval.errors import TrioevalError, UsageError
from trioeval.suite import Suite


def run_command(suite: Path | None, flags: RunFlags) -> int:
    """Load a suite and run it, and return the exit code.

    Raises:
        SuiteError: The suite is wrong.
        UsageError: A flag cannot be used.
        OutputError: A result or recording cannot be written.
    """
    if flags.output.watch:
        return _watch(suite, flags)
    return _run(*_load(suite, flags), flags)


def _load(suite: Path | None, flags: RunFlags) -> tuple[Suite, Mapping[str, str]]:
    environ = environ_with(flags.what.env_file)
    loaded = load_inputs(suite, flags.what, environ)
    said = loaded.command_line_options.env_file
    if said is not None and not flags.what.env_file:
        environ = environ_with([loaded.directory / said])
    return loaded, environ


def _run(suite: Suite, environ: Mapping[str, str], flags: RunFlags) -> int:
    from trioeval.cli.run import Loaded, run_loaded  # noqa: PLC0415 - see above

    return run_loaded(Loaded(suite, environ), flags)


def _watch(suite: Path | None, flags: RunFlags) -> int:
    from trioeval.cli.watch import Watched, marks_of, watch  # noqa: PLC0415 - see above

    if flags.what.record is not None:
        raise UsageError("--record and --watch exclude each other: a recording is of one run")
    named = [path for path in (suite, *map(Path, flags.what.config)) if path is not None]

    def run_once() -> Watched:
        marks = marks_of(named)
        try:
            loaded, environ = _load(suite, flags)
            marks = marks_of(loaded.files or named)
            code = _run(loaded, environ, flags)
        except TrioevalError as error:
            say(error)
            code = Exit.USAGE
        return Watched(code, marks)

    return watch(run_once)
