"""The commands and their flags.

`python -m trioeval suite.json` is `trioeval run suite.json`. This module imports only what parsing needs;
each command imports the rest when it is run, so that help and mistakes are answered fast.
"""

import difflib
import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Annotated

import cyclopts
from cyclopts import CycloptsPanel, Parameter
from cyclopts.validators import Number

from trioeval._version import __version__
from trioeval.cli.arguments import with_values
from trioeval.cli.commands import runs as run_commands
from trioeval.cli.flags import (
    NOT_PROVIDED,
    BeginFlags,
    Count,
    KeepFlags,
    LimitFlags,
    NotNegative,
    OutputFlags,
    PreviewFlags,
    RowFlags,
    RunFlags,
    WhatFlags,
)
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.progress.streams import guarded, is_github
from trioeval.cli.terminal import Exit, draw, open_console, printing, say, show, take_all_characters
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

app = cyclopts.App(
    name="trioeval",
    help="Run evaluations of language models on lanes that keep every provider's limits.",
    version=f"trioeval {__version__}",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)

_HELP = {"--help", "-h", "--version"}
_FOR_PEOPLE = {"compare", "preview", "runs", "show"}
_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]


@app.default
@app.command(name="run")
def run(
    suite: Path | None = None,
    /,
    *,
    what: WhatFlags = WhatFlags(),  # noqa: B008 - frozen
    rows: RowFlags = RowFlags(),  # noqa: B008
    limits: LimitFlags = LimitFlags(),  # noqa: B008
    keep: KeepFlags = KeepFlags(),  # noqa: B008
    begin: BeginFlags = BeginFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    interrupts: _Injected,
) -> int:
    """Run a suite and show its results.

    Parameters
    ----------
    suite
        The suite file: JSON, YAML or TOML.
    """
    from trioeval.cli.run.command import run_command  # noqa: PLC0415 - see above

    flags = RunFlags(what=what, rows=rows, limits=limits, keep=keep, begin=begin, output=output)
    return run_command(suite, flags, interrupts)


run_commands.add_to(app)
_GROUPS = {
    "agent": "For programs that are agents: submit a child run; wait for it.",
    "bus": "Post to the message bus of agents; read and follow it.",
    "cache": "Look into the cache of replies; empty it.",
    "limits": "Serve limits that programs share; show and change them.",
}
for _name, _help in _GROUPS.items():  # imported when one of their commands is given
    app.command(f"trioeval.cli.commands.{_name}:{_name}", name=_name, help=_help)


@app.command(name="preview")
def preview(
    suite: Path,
    /,
    *,
    wanted: PreviewFlags = PreviewFlags(),  # noqa: B008 - frozen
    interrupts: _Injected,
) -> int:
    """Make the first rows of a suite's datasets and show them; nothing is kept.

    Parameters
    ----------
    suite
        The suite file: JSON, YAML or TOML.
    """
    from trioeval.cli.commands.preview import preview as make_preview  # noqa: PLC0415 - see above

    return make_preview(suite, wanted, interrupts)


@app.command(name="init")
def init(folder: Path = Path(), /) -> int:
    """Write a starter suite that runs at once.

    Parameters
    ----------
    folder
        Where to; it is made if it is not there.
    """
    from trioeval.cli.commands.init import write_starter  # noqa: PLC0415 - see above

    return write_starter(folder)


@app.command(name="schema")
def schema() -> int:
    """Print the JSON Schema of suite files, for editors."""
    from importlib import resources  # noqa: PLC0415 - see above

    shipped = resources.files("trioeval.loading").joinpath("suite-schema.json")
    show(shipped.read_text("utf-8").rstrip("\n"))
    return Exit.OK


@app.command(name="fake-provider")
def fake_provider(
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 8765,
    latency: NotNegative = 0.0,
    jitter: _Share = 0.0,
    rpm: Count | None = None,
    burst: Count | None = None,
    tpm: Count | None = None,
    max_in_flight: Count | None = None,
    slow_from: Count | None = None,
    hints: str = "all",
    throttle_rate: _Share = 0.0,
    failure_rate: _Share = 0.0,
    disconnect_rate: _Share = 0.0,
    replay: Path | None = None,
    reply: Annotated[list[str] | None, Parameter(negative=())] = None,
    log: Path | None = None,
    seed: int = 0,
    interrupts: _Injected,
) -> int:
    """Serve a fake OpenAI-compatible provider until interrupted.

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port; 0 takes a free one and prints it.
    latency
        Seconds before each reply.
    jitter
        Share of the latency by which it varies to both sides.
    rpm
        Requests that are served per rolling minute; more get status 429.
    burst
        Requests that may come at once; with it the rpm come back evenly instead of by the minute.
    tpm
        Tokens that are served per rolling minute; more get status 429.
    max_in_flight
        Requests that are served at once; more get status 429.
    slow_from
        Requests at once above which the latency grows in proportion.
    hints
        What replies say of limits: all, only what is left, only seconds to wait, or nothing.
    throttle_rate
        Share of requests that get a status 429 that says nothing.
    failure_rate
        Share of requests that get status 500.
    disconnect_rate
        Share of replies that are broken off in the middle.
    replay
        Answer with the recorded replies of this JSONL file.
    reply
        Answer with this text; given several times, with one after another. The last one is repeated.
    log
        Add a line of JSON to this file for each completion that is over.
    seed
        Of everything that is drawn at random.
    """
    from trioeval.cli.commands.fake_provider import (  # noqa: PLC0415 - see above
        choose_hints,
        choose_replies,
        serve_until_interrupted,
    )
    from trioeval.providers.fake import FakeSettings  # noqa: PLC0415

    return serve_until_interrupted(
        FakeSettings(
            host=host,
            port=port,
            replies=choose_replies(replay, tuple(reply or ())),
            latency_s=latency,
            jitter=jitter,
            rpm=rpm,
            burst=burst,
            tpm=tpm,
            max_in_flight=max_in_flight,
            slow_from=slow_from,
            hints=choose_hints(hints),
            throttle_rate=throttle_rate,
            failure_rate=failure_rate,
            disconnect_rate=disconnect_rate,
            seed=seed,
        ),
        interrupts,
        log=log,
    )


def run_command_line(arguments: Sequence[str], interrupts: Interrupts | None = None) -> int:
    """Parse the arguments, run the command, and return the exit code.

    Args:
        arguments: Without the name of the program.
        interrupts: The signals of this process; None leaves them to the caller.
    """
    interrupts = Interrupts() if interrupts is None else interrupts
    take_all_characters(sys.stdout)
    try:
        interrupts.begin_loading()
        # Each of these prints for people what others have written; elsewhere stdout is for programs.
        for_people = {*arguments[:1]} <= _FOR_PEOPLE and "--json" not in arguments
        with guarded(stdout=for_people) if is_github(os.environ) else nullcontext():
            return _run_command_line(arguments, interrupts)
    except KeyboardInterrupt:  # comes once, and never from a run
        say(f"{_interrupted(arguments)}; exit {interrupts.code}")
        return interrupts.code


def _run_command_line(arguments: Sequence[str], interrupts: Interrupts) -> int:
    for argument in itertools.takewhile(lambda argument: argument != "--", arguments):
        if why := NOT_PROVIDED.get(argument.partition("=")[0]):
            say(f"{argument}: {why}")
            return Exit.USAGE
    try:
        asks, code = not _HELP.isdisjoint(arguments), None
        command, bound, injected = app.parse_args(
            with_values(arguments),
            exit_on_error=False,
            print_error=False,
            console=open_console(sys.stdout) if asks else None,
        )
        # Commands print by `show` and its kin; help and version are printed by the parser.
        with printing() if asks else nullcontext():
            code = command(*bound.args, **bound.kwargs, **dict.fromkeys(injected, interrupts))
    except cyclopts.CycloptsError as error:
        _tell_mistake(error)
        return Exit.USAGE
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
        if isinstance(error, SuiteError) and (near := _near_command(arguments)):
            say(f'  did you mean the command "{near}"?')
        return Exit.USAGE
    except ExceptionGroup as group:
        return _explain(group)
    return code if isinstance(code, int) else Exit.OK


def _interrupted(arguments: Sequence[str]) -> str:
    """What an interrupt has kept from being done."""
    name = next(iter(arguments), "")
    runs = name in {"run", "resume"} or name.startswith("-") or name not in app
    return "interrupted before the run began" if runs else "interrupted before it was done"


def _tell_mistake(error: cyclopts.CycloptsError) -> None:
    """Tell why a command line cannot be read."""
    if not isinstance(error, cyclopts.UnusedCliTokensError):
        draw(CycloptsPanel(error), sys.stderr)
        return
    tokens = [*(error.root_input_tokens or ())]
    if near := _near_command(tokens):
        say(f'there is no command "{tokens[0]}"; did you mean "{near}"?')
        return
    rest = " ".join(error.unused_tokens or ())
    say(f"{rest}: a command takes one suite, or folder; other suites are added with -c")


def _near_command(arguments: Sequence[str]) -> str | None:
    """The command that the first argument may stand for, if that is neither one nor a file."""
    try:
        if not arguments or arguments[0] in app or Path(arguments[0]).exists():
            return None
    except (OSError, ValueError):  # too long for a name
        return None
    names = [name for name in app if name[0] != "-"]
    return next(iter(difflib.get_close_matches(arguments[0], names, n=1)), None)


def _explain(group: ExceptionGroup[Exception]) -> int:
    """What a run as a whole died of. The only place that looks into groups."""
    expected = group.subgroup(TrioevalError)
    if expected is not None and group.split(TrioevalError)[1] is None:
        say("\n".join(str(leaf) for leaf in leaves(expected)))
        return Exit.FAULT
    report_fault(type(group), group)
    return Exit.FAULT


def report_fault(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None = None
) -> None:
    """Print the traceback of an exception that is a fault of the program, as `sys.excepthook`."""
    say("".join(traceback.format_exception(kind, error, trace or error.__traceback__)))
    say("this is a fault of trioeval; please report it with the lines above")
