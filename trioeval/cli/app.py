"""Runs the command line and turns errors into messages and exit codes.

`python -m trioeval suite.json` is `trioeval run suite.json`. This module imports neither the parser nor what
a command needs, so that a suite without flags starts early and help and usage errors appear quickly.
"""

import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType

from trioeval.cli.arguments import SUITE_SUFFIXES
from trioeval.cli.flags import NOT_PROVIDED, RunFlags
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.progress.streams import guarded, is_github
from trioeval.cli.short_help import COMMANDS, short_help
from trioeval.cli.terminal import Exit, replace_unencodable, say, show
from trioeval.errors import (
    BusError,
    CursorExpiredError,
    CursorNotFoundError,
    LimitError,
    OutputError,
    StoreError,
    SuiteError,
    TrioevalError,
    leaves,
)

_FOR_PEOPLE = {"compare", "preview", "runs", "show", "simulate"}


def run_command_line(arguments: Sequence[str], interrupts: Interrupts | None = None) -> int:
    """Parse the arguments, run the command, and return the exit code.

    Args:
        arguments: Without the name of the program.
        interrupts: The signals of this process; None leaves them to the caller.
    """
    interrupts = Interrupts() if interrupts is None else interrupts
    replace_unencodable(sys.stdout)
    try:
        interrupts.begin_loading()
        # These commands print foreign text for people; the stdout of all others is for programs.
        for_people = {*arguments[:1]} <= _FOR_PEOPLE and "--json" not in arguments
        with guarded(stdout=for_people) if is_github(os.environ) else nullcontext():
            return _run_command_line(arguments, interrupts)
    except KeyboardInterrupt:  # raised at most once, and never by a run
        say(f"{_interrupted(arguments)}; exit {interrupts.code}")
        return interrupts.code


def _run_command_line(arguments: Sequence[str], interrupts: Interrupts) -> int:
    for argument in itertools.takewhile(lambda argument: argument != "--", arguments):
        if why := NOT_PROVIDED.get(argument.partition("=")[0]):
            say(f"{argument}: {why}")
            return Exit.USAGE
    try:
        return _run_parsed(arguments, interrupts)
    except (CursorExpiredError, CursorNotFoundError) as error:
        say(error)
        return Exit.USAGE
    except (BusError, OutputError, StoreError) as error:
        say(error)
        return Exit.FAULT
    except LimitError as error:
        say(error)
        return Exit.FAULT if error.reason == "limiter_unavailable" else Exit.USAGE
    except TrioevalError as error:
        say(error)
        if isinstance(error, SuiteError):
            from trioeval.cli.near_words import near_words

            if near := near_words(arguments):
                say(f"  did you mean {near}?")
        return Exit.USAGE
    except ExceptionGroup as group:
        return _explain(group)


def _run_parsed(arguments: Sequence[str], interrupts: Interrupts) -> int:
    if (text := short_help(arguments)) is not None:
        show(text.removesuffix("\n"))
        return Exit.OK
    if len(arguments) == 1 and arguments[0].lower().endswith(SUITE_SUFFIXES):
        from trioeval.cli.run.command import run_command

        return run_command(Path(arguments[0]), RunFlags(), interrupts)  # the parser takes longer
    from trioeval.cli.parser import run_parsed

    return run_parsed(arguments, interrupts)


def _interrupted(arguments: Sequence[str]) -> str:
    """Return the message about an interrupt outside of a run."""
    name = next(iter(arguments), "")
    runs = name in {"run", "resume"} or name.startswith("-") or name not in COMMANDS
    return "interrupted before the run started" if runs else "interrupted before it finished"


def _explain(group: ExceptionGroup[Exception]) -> int:
    """Print the errors of a group and return the exit code. Only this function looks into groups."""
    expected = group.subgroup(TrioevalError)
    if expected is not None and group.split(TrioevalError)[1] is None:
        say("\n".join(str(leaf) for leaf in leaves(expected)))
        return Exit.FAULT
    report_fault(type(group), group)
    return Exit.FAULT


def report_fault(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None = None
) -> None:
    """Print the traceback of an exception that is a bug of the program. Used as `sys.excepthook`."""
    say("".join(traceback.format_exception(kind, error, trace or error.__traceback__)))
    say("this is a fault of trioeval; please report it with the lines above")
