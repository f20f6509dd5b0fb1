"""The commands and their flags.

`python -m trioeval suite.json` is `trioeval run suite.json`. This module imports only what parsing
needs. Each command imports the rest when it runs, so that help and usage errors appear quickly.
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
from cyclopts import Group, Parameter
from cyclopts.validators import Number

from trioeval._version import __version__
from trioeval.cli.arguments import SUITE_SUFFIXES, with_values
from trioeval.cli.commands import runs as run_commands
from trioeval.cli.flags import (
    NOT_PROVIDED,
    Count,
    InitFlags,
    LimitFlags,
    NotNegative,
    OutputFlags,
    PreviewFlags,
    RowFlags,
    RunFlags,
    StartFlags,
    StorageFlags,
    SuiteFlags,
    shown_default,
)
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.progress.streams import guarded, is_github
from trioeval.cli.short_help import HELP, HELP_ALL, parsed_help, short_help
from trioeval.cli.terminal import Exit, open_console, printing, replace_unencodable, say, show
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
    help="Evaluate language models with suites of tests, within the rate limits of every provider.",
    default_parameter=Parameter(show_default=shown_default),
    version=f"trioeval {__version__}",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)

_PRINTED_BY_PARSER = {*HELP, HELP_ALL, "--version"}
_EPILOGUE = "A default applies where neither the suite nor the environment sets the value."
_TOOLS = Group("Tools", sort_key=2)
_AGENTS = Group("Agents and shared limits", sort_key=3)
_PROGRAM = Group("Help and version", sort_key=9)
_FOR_PEOPLE = {"compare", "preview", "runs", "show"}
app["--help"].group = (_PROGRAM,)
app["--version"].group = (_PROGRAM,)
_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]


@app.default
@app.command(name="run", group=run_commands.RUN_COMMANDS, help_epilogue=_EPILOGUE)
def run(
    suite: Annotated[Path | None, Parameter(show_default=False)] = None,
    /,
    *,
    what: SuiteFlags = SuiteFlags(),  # noqa: B008 - frozen
    rows: RowFlags = RowFlags(),  # noqa: B008
    limits: LimitFlags = LimitFlags(),  # noqa: B008
    keep: StorageFlags = StorageFlags(),  # noqa: B008
    begin: StartFlags = StartFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    interrupts: _Injected,
) -> int:
    """Run a suite and show its results.

    Parameters
    ----------
    suite
        The suite file: JSON, YAML or TOML.
    """
    from trioeval.cli.run.command import run_command

    flags = RunFlags(what=what, rows=rows, limits=limits, keep=keep, begin=begin, output=output)
    return run_command(suite, flags, interrupts)


run_commands.add_to(app, epilogue=_EPILOGUE)
_COMMAND_GROUPS = {
    "agent": (_AGENTS, "Commands for programs that are agents: submit child runs, wait for them."),
    "bus": (_AGENTS, "Post to the message bus of agents; read and follow it."),
    "cache": (_TOOLS, "Inspect, empty or export the cache of replies."),
    "limits": (_AGENTS, "Serve, show and change limits that programs share."),
}
for _name, (
    _group,
    _help,
) in _COMMAND_GROUPS.items():  # imported when one of their commands is given
    app.command(f"trioeval.cli.commands.{_name}:{_name}", name=_name, group=_group, help=_help)


@app.command(name="preview", group=_TOOLS)
def preview(
    suite: Path,
    /,
    *,
    given: PreviewFlags = PreviewFlags(),  # noqa: B008 - frozen
    interrupts: _Injected,
) -> int:
    """Generate the first rows of a suite's datasets and show them, without storing anything.

    Parameters
    ----------
    suite
        The suite file: JSON, YAML or TOML.
    """
    from trioeval.cli.commands.preview import preview as make_preview

    return make_preview(suite, given, interrupts)


@app.command(name="init", group=_TOOLS)
def init(
    folder: Annotated[Path | None, Parameter(show_default="the current folder")] = None,
    /,
    *,
    flags: InitFlags = InitFlags(),  # noqa: B008 - frozen
) -> int:
    """Write a starter suite that runs at once, or with --csv a suite for a table of questions.

    Parameters
    ----------
    folder
        The folder of the suite; created if it does not exist.
    """
    from trioeval.cli.commands.init import write_suite

    return write_suite(folder, flags)


@app.command(name="schema", group=_TOOLS)
def schema() -> int:
    """Print the JSON Schema of suite files, for editors."""
    from importlib import resources

    shipped = resources.files("trioeval.loading").joinpath("suite-schema.json")
    show(shipped.read_text("utf-8").rstrip("\n"))
    return Exit.OK


@app.command(name="fake-provider", group=_TOOLS)
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
        The share of the latency by which it varies, up and down.
    rpm
        Requests per rolling minute; requests above that get status 429.
    burst
        Requests that may arrive at once. With a burst, --rpm refills evenly instead of per rolling minute.
    tpm
        Tokens per rolling minute; requests above that get status 429.
    max_in_flight
        Concurrent requests; requests above that get status 429.
    slow_from
        Concurrent requests above which the latency grows in proportion.
    hints
        Headers about limits: all; limits, only what is left; retry_after, only seconds to wait; or none.
    throttle_rate
        The share of requests that get a status 429 without headers.
    failure_rate
        The share of requests that get status 500.
    disconnect_rate
        The share of replies whose connection is closed in the middle.
    replay
        Reply from this recording, a JSONL file.
    reply
        Reply with this text. Given several times, the texts are used in order and the last one is repeated.
    log
        Append a JSON line to this file for each finished completion.
    seed
        The seed of all random choices.
    """
    from trioeval.cli.commands.fake_provider import (
        choose_hints,
        choose_replies,
        serve_until_interrupted,
    )
    from trioeval.providers.fake import FakeSettings

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
    except cyclopts.CycloptsError as error:
        say(_parser_message(error))
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
        if isinstance(error, SuiteError) and (near := _near_words(arguments)):
            say(f"  did you mean {near}?")
        return Exit.USAGE
    except ExceptionGroup as group:
        return _explain(group)


def _run_parsed(arguments: Sequence[str], interrupts: Interrupts) -> int:
    if (text := short_help(arguments)) is not None:
        show(text.removesuffix("\n"))
        return Exit.OK
    if len(arguments) == 1 and arguments[0].lower().endswith(SUITE_SUFFIXES):
        return run(Path(arguments[0]), interrupts=interrupts)  # reading all flags takes longer
    code = None
    is_help = not _PRINTED_BY_PARSER.isdisjoint(arguments)
    command, bound, injected = app.parse_args(
        with_values(parsed_help(arguments)),
        exit_on_error=False,
        print_error=False,
        console=open_console(sys.stdout) if is_help else None,
    )
    # Commands print with `show` and `draw`; the parser prints help and version, and its reader may go away.
    with printing() if is_help else nullcontext():
        code = command(*bound.args, **bound.kwargs, **dict.fromkeys(injected, interrupts))
    return code if isinstance(code, int) else Exit.OK


def _interrupted(arguments: Sequence[str]) -> str:
    """Return the message about an interrupt outside of a run."""
    name = next(iter(arguments), "")
    runs = name in {"run", "resume"} or name.startswith("-") or name not in app
    return "interrupted before the run started" if runs else "interrupted before it finished"


def _parser_message(error: cyclopts.CycloptsError) -> str:
    """Return why a command line cannot be parsed, and what to do."""
    tokens = [*(error.root_input_tokens or ())]
    chain = [*(error.command_chain or ())]
    if isinstance(error, cyclopts.UnknownOptionError):
        return _unknown_flag(error, chain)
    if isinstance(error, cyclopts.UnusedCliTokensError):
        return _unused_words(tokens, [*(error.unused_tokens or ())])
    message = str(error).strip()
    if isinstance(error, cyclopts.MissingArgumentError):
        page = " ".join(["trioeval", *chain, "--help"])
        return f"{message}\n  {page} describes the arguments and flags"
    return message


def _unknown_flag(error: cyclopts.UnknownOptionError, chain: Sequence[str]) -> str:
    flag = (error.token.keyword or error.token.value).partition("=")[0]
    known = [name for one in error.argument_collection if one.parse for name in one.names]
    near = difflib.get_close_matches(flag, known, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else None
    page = " ".join(["trioeval", *chain, HELP_ALL])
    return f"unknown flag {flag}; {hint or f'{page} lists every flag'}"


def _unused_words(tokens: Sequence[str], unused: Sequence[str]) -> str:
    """Return the message for words that no command takes."""
    if near := _near_command(tokens):
        return f'unknown command "{tokens[0]}"; did you mean "{near}"?'
    rest = " ".join(unused)
    if tokens[0] not in app or tokens[0] == "run":
        return f"{rest}: a run takes one suite file; add others with -c"
    more = [name for name in app[tokens[0]] if name[0] != "-"]
    if more:
        near = next(iter(difflib.get_close_matches(unused[0], more, n=1)), None)
        hint = f'did you mean "{near}"?' if near else f"it has {', '.join(more)}"
        return f'unknown command "{unused[0]}" of trioeval {tokens[0]}; {hint}'
    return f"{rest}: unexpected; trioeval {tokens[0]} --help describes the arguments"


def _near_words(arguments: Sequence[str]) -> str | None:
    """Return the command or the suite file that a first argument which is neither may stand for."""
    if near := _near_command(arguments):
        return f'the command "{near}"'
    words = arguments[1:] if arguments and arguments[0] == "run" else arguments
    try:
        if not words or words[0].startswith("-") or Path(words[0]).exists():
            return None
        folder = Path(words[0]).parent
        files = [str(path) for path in folder.iterdir() if path.suffix in SUITE_SUFFIXES]
    except (OSError, ValueError):  # no such folder, or too long for a name
        return None
    return next(iter(difflib.get_close_matches(words[0], files, n=1, cutoff=0.8)), None)


def _near_command(arguments: Sequence[str]) -> str | None:
    """Return the command that the first argument may stand for, if that is neither one nor a file."""
    try:
        if not arguments or arguments[0] in app or Path(arguments[0]).exists():
            return None
    except (OSError, ValueError):  # too long for a name
        return None
    if arguments[0] == "help":
        return "--help"
    names = [name for name in app if name[0] != "-"]
    return next(iter(difflib.get_close_matches(arguments[0], names, n=1)), None)


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
