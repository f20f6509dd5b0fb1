"""The commands and their flags.

This module imports only what parsing needs. Each command imports the rest when it runs, so that help and
usage errors appear quickly.
"""

import difflib
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Group, Parameter
from cyclopts.validators import Number

from trioeval._version import __version__
from trioeval.cli.arguments import with_values
from trioeval.cli.commands import runs as run_commands
from trioeval.cli.flag_types import (
    Count,
    InitGroup,
    LimitGroup,
    NotNegative,
    OutputGroup,
    PreviewGroup,
    RowGroup,
    Share,
    SimulateGroup,
    StartGroup,
    StorageGroup,
    SuiteGroup,
    resolve_types,
    shown_default,
)
from trioeval.cli.flags import (
    InitFlags,
    LimitFlags,
    OutputFlags,
    PreviewFlags,
    RowFlags,
    RunFlags,
    SimulateFlags,
    StartFlags,
    StorageFlags,
    SuiteFlags,
)
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.near_words import near_command
from trioeval.cli.short_help import HELP, HELP_ALL, parsed_help
from trioeval.cli.terminal import Exit, open_console, printing, say, show

resolve_types()
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
app["--help"].group = (_PROGRAM,)
app["--version"].group = (_PROGRAM,)
_Injected = Annotated[Interrupts, Parameter(parse=False)]


@app.default
@app.command(name="run", group=run_commands.RUN_COMMANDS, help_epilogue=_EPILOGUE)
def run(
    suite: Annotated[Path | None, Parameter(show_default=False)] = None,
    /,
    *,
    what: SuiteGroup = SuiteFlags(),  # noqa: B008 - frozen
    rows: RowGroup = RowFlags(),  # noqa: B008
    limits: LimitGroup = LimitFlags(),  # noqa: B008
    keep: StorageGroup = StorageFlags(),  # noqa: B008
    begin: StartGroup = StartFlags(),  # noqa: B008
    output: OutputGroup = OutputFlags(),  # noqa: B008
    interrupts: _Injected,
) -> int:
    """Run a suite and show its results.

    Parameters
    ----------
    suite
        The suite file: JSON, YAML or TOML. Without one, promptfooconfig.yaml (or .yml, .json, .js, .ts) here.
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
    given: PreviewGroup = PreviewFlags(),  # noqa: B008 - frozen
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


@app.command(name="simulate", group=_TOOLS)
def simulate(
    suite: Path,
    /,
    *,
    given: SimulateGroup = SimulateFlags(),  # noqa: B008 - frozen
    interrupts: _Injected,
) -> int:
    """Forecast the duration, cost and refusals of a run on a virtual clock, and compare settings of lanes.

    Parameters
    ----------
    suite
        The suite file: JSON, YAML or TOML.
    """
    from trioeval.cli.commands.simulate import simulate_command

    return simulate_command(suite, given, interrupts)


@app.command(name="init", group=_TOOLS)
def init(
    folder: Annotated[Path | None, Parameter(show_default="the current folder")] = None,
    /,
    *,
    flags: InitGroup = InitFlags(),  # noqa: B008 - frozen
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
    jitter: Share = 0.0,
    rpm: Count | None = None,
    burst: Count | None = None,
    tpm: Count | None = None,
    max_in_flight: Count | None = None,
    slow_from: Count | None = None,
    hints: str = "all",
    throttle_rate: Share = 0.0,
    failure_rate: Share = 0.0,
    disconnect_rate: Share = 0.0,
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


def run_parsed(arguments: Sequence[str], interrupts: Interrupts) -> int:
    """Parse the arguments, run their command, and return the exit code."""
    code = None
    is_help = not _PRINTED_BY_PARSER.isdisjoint(arguments)
    try:
        command, bound, injected = app.parse_args(
            with_values(parsed_help(arguments)),
            exit_on_error=False,
            print_error=False,
            console=open_console(sys.stdout) if is_help else None,
        )
        # Commands print with `show` and `draw`; the parser prints help, and its reader may go away.
        with printing() if is_help else nullcontext():
            code = command(*bound.args, **bound.kwargs, **dict.fromkeys(injected, interrupts))
    except cyclopts.CycloptsError as error:
        say(_parser_message(error))
        return Exit.USAGE
    return code if isinstance(code, int) else Exit.OK


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
    if near := near_command(tokens):
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
