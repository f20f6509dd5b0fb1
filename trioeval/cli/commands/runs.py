"""The commands for stored runs. Each is implemented by its own module."""

from pathlib import Path
from typing import Annotated, Literal

import attrs
import cyclopts
from cyclopts import Group, Parameter
from cyclopts.validators import Number

from trioeval.cli.arguments import LATEST
from trioeval.cli.flag_types import (
    ClusterName,
    Count,
    Database,
    EnvFiles,
    LaneOwner,
    LimitGroup,
    Linger,
    OmitZeroCounters,
    OutputGroup,
    Paths,
    SentPaths,
    StorageGroup,
    Switch,
)
from trioeval.cli.flags import (
    LimitFlags,
    OutputFlags,
    RunFlags,
    StartFlags,
    StorageFlags,
    SuiteFlags,
)
from trioeval.cli.interrupts import Interrupts

_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Index = Annotated[int, Parameter(validator=Number(gte=0))]
_Outputs = Annotated[Paths, Parameter(name=["--output", "-o"])]
_Run = Annotated[
    str,
    Parameter(
        show_default=False,
        help="The id of a run, the beginning of an id, or `latest`, the default.",
    ),
]

RUN_COMMANDS = Group("Run and look", sort_key=0)
RESULT_COMMANDS = Group("Results", sort_key=1)

stored_runs = cyclopts.App(name="runs", group=RUN_COMMANDS, help="List stored runs; delete some.")


def resume(
    run: _Run = LATEST,
    /,
    *,
    env_file: EnvFiles = (),
    limits: LimitGroup = LimitFlags(),  # noqa: B008 - frozen
    keep: StorageGroup = StorageFlags(),  # noqa: B008
    output: OutputGroup = OutputFlags(),  # noqa: B008
    on: ClusterName = None,
    lane_owner: LaneOwner = False,
    send: SentPaths = (),
    linger: Linger = 0.0,
    interrupts: _Injected,
) -> int:
    """Continue an interrupted run with the flags that it was started with."""
    from trioeval.cli.run.command import run_command

    flags = RunFlags(
        what=SuiteFlags(env_file=env_file),
        limits=limits,
        keep=keep,
        begin=StartFlags(resume=run, on=on, lane_owner=lane_owner, send=send, linger=linger),
        output=output,
    )
    return run_command(None, flags, interrupts)


@stored_runs.default
def list_runs(
    *,
    suite: Path | None = None,
    state: Literal["running", "finished", "interrupted", "died"] | None = None,
    limit: Count = 20,
    queue: Switch = False,
    graph: str | None = None,
    form: Annotated[Literal["text", "mermaid", "dot"], Parameter(name="--format")] = "text",
    json: Switch = False,
    db: Database = None,
) -> int:
    """List stored runs, the latest first, or draw the dependencies of one run.

    Parameters
    ----------
    suite
        Only runs of this suite file.
    state
        Only runs in this state.
    limit
        The most runs to list.
    queue
        Show the queue of waiting agent cases instead of runs.
    graph
        Draw the tasks and cases of this run with their states: an id, the beginning of one, or `latest`.
    form
        The form of the drawing: for a terminal, or for a document.
    json
        Print JSON.
    """
    if queue:
        from trioeval.cli.commands.run_queue import show_queue

        return show_queue(db, as_json=json)
    if graph is not None:
        from trioeval.cli.commands.run_graph import show_graph

        return show_graph(db, graph, form=form, as_json=json)
    from trioeval.cli.commands.run_list import show_runs

    return show_runs(db, suite=suite, state=state, limit=limit, as_json=json)


@stored_runs.command(name="delete")
def delete_runs(run: str, /, *more: str, db: Database = None) -> int:
    """Delete runs permanently.

    Parameters
    ----------
    run
        The id of a run, the beginning of an id, or `latest`.
    more
        Further runs.
    """
    from trioeval.cli.commands.run_list import delete

    return delete(db, (run, *more))


@stored_runs.command(name="prune")
def prune_runs(
    *,
    older_than: str | None = None,
    keep: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    db: Database = None,
) -> int:
    """Delete old runs permanently, but none that is running.

    Parameters
    ----------
    older_than
        Delete runs that started longer ago than this: `12h`, `30d`, `8w`.
    keep
        Keep this many of the latest runs.
    """
    from trioeval.cli.commands.run_list import prune

    return prune(db, older_than=older_than, keep=keep)


def show(
    run: Annotated[str, Parameter(show_default=False)] = LATEST,
    index: Annotated[_Index | None, Parameter(show_default=False)] = None,
    /,
    *,
    failed: Switch = False,
    limit: Count = 50,
    rows: _Index = 10,
    task: str | None = None,
    db: Database = None,
) -> int:
    """Show the rows of a run or dataset, or everything about one row.

    Parameters
    ----------
    run
        The id of a run, the beginning of an id, or `latest`, the default; or the folder of a dataset.
    index
        The number of one row: shows its status and reason, assertions, prompt, output, calls and waits.
    failed
        Show only rows that failed, ended in an error or were not run.
    limit
        The most tests whose rows are shown.
    rows
        The number of first rows of each dataset.
    task
        Show only this task of the suite.
    """
    from trioeval.cli.commands.show import show_row, show_run

    if index is not None:
        return show_row(db, run, index, task=task)
    return show_run(db, run, failed=failed, limit=limit, rows=rows, task=task)


def export(
    run: _Run = LATEST,
    /,
    *,
    output: _Outputs = (),
    omit_zero_counters: OmitZeroCounters = False,
    db: Database = None,
) -> int:
    """Write result files of a stored run.

    Parameters
    ----------
    output
        A result file, in the formats of `run`. Repeatable.
    """
    from trioeval.cli.commands.exchange import export_run

    return export_run(db, run, output, omit_zero_counters=omit_zero_counters)


def import_files(file: Path, /, *more: Path, db: Database = None) -> int:
    """Store the results of a file, written by promptfoo or trioeval, as a run.

    Parameters
    ----------
    file
        A result file: .json or .jsonl.
    more
        Further result files.
    """
    from trioeval.cli.commands.exchange import import_results

    return import_results(db, (file, *more))


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class CompareFlags:
    """The flags of `trioeval compare`."""

    by: Literal["row", "test"] = "row"
    """Match rows by provider, prompt and test, or by the test alone, to compare models."""
    changed: Switch = False
    """Show every changed row, not only the first ones."""
    fail_if: Literal["worse", "different"] | None = None
    """Exit with 100 if the later run is significantly worse, or significantly different."""
    confidence: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.95
    """The confidence level of intervals and of --fail-if."""
    cluster: str | None = None
    """A metadata key or variable of the tests. Rows with the same value are not independent observations;
    neither are repeats of a test."""
    bootstrap: Annotated[
        int | None,
        Parameter(validator=Number(gte=100, lte=100_000), show_default="off"),
    ] = None
    """Compute intervals of scores and metrics from this many resamples instead of Student's t."""
    output: _Outputs = ()
    """Write a report (.html) of the later run beside the earlier one. Repeatable."""
    json: Switch = False
    """Print JSON."""


def compare(
    before: str,
    after: str,
    /,
    *,
    flags: CompareFlags = CompareFlags(),
    db: Database = None,
) -> int:
    """Compare two runs row by row.

    Parameters
    ----------
    before
        The earlier run: its id, the beginning of an id, `latest`, or `latest~1` for the run before that.
    after
        The later run.
    """
    from trioeval.cli.commands.compare import compare_runs

    return compare_runs(db, before, after, flags)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ViewFlags:
    """The flags of `trioeval view`."""

    host: str = "127.0.0.1"
    """The address to listen on; an address that other machines can reach needs a token."""
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 8642
    """The port; 0 takes a free one and prints it."""
    token: Annotated[str | None, Parameter(show_default="TRIOEVAL_VIEW_TOKEN")] = attrs.field(
        default=None, repr=False
    )
    """The token that browsers must send. Without it and TRIOEVAL_VIEW_TOKEN, a random token is created and
    printed if one is needed."""
    open_browser: Annotated[bool, Parameter(name="--open")] = False
    """Open the page in a browser on this machine."""


def view(
    *,
    options: ViewFlags = ViewFlags(),
    db: Database = None,
    interrupts: _Injected,
) -> int:
    """Serve a page that shows and controls runs in progress, until interrupted."""
    from trioeval.cli.commands.view import view_runs

    return view_runs(db, options, interrupts)


def add_to(app: cyclopts.App, *, epilogue: str) -> None:
    """Add these commands to the program.

    Args:
        app: The program.
        epilogue: The last line of the help of `resume`.
    """
    app.command(resume, name="resume", group=RUN_COMMANDS, help_epilogue=epilogue)
    app.command(show, name="show", group=RUN_COMMANDS)
    app.command(stored_runs)
    app.command(view, name="view", group=RUN_COMMANDS)
    app.command(compare, name="compare", group=RESULT_COMMANDS)
    app.command(export, name="export", group=RESULT_COMMANDS)
    app.command(import_files, name="import", group=RESULT_COMMANDS)
