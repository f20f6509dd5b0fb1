"""The commands for runs that are in the store. Each is carried out by a module of its own."""

from pathlib import Path
from typing import Annotated, Literal

import attrs
import cyclopts
from cyclopts import Parameter
from cyclopts.validators import Number

from trioeval.cli.arguments import LATEST
from trioeval.cli.flags import (
    BeginFlags,
    Count,
    Database,
    EnvFiles,
    KeepFlags,
    LimitFlags,
    OutputFlags,
    Paths,
    RunFlags,
    Switch,
    WhatFlags,
)
from trioeval.cli.interrupts import Interrupts

_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Index = Annotated[int, Parameter(validator=Number(gte=0))]
_Outputs = Annotated[Paths, Parameter(name=["--output", "-o"])]
_Run = Annotated[
    str,
    Parameter(
        show_default=False, help="Its id, the beginning of it, or `latest`, which it is without."
    ),
]

runs = cyclopts.App(name="runs", help="List the runs that are kept; delete some.")


def resume(
    run: _Run = LATEST,
    /,
    *,
    env_file: EnvFiles = (),
    limits: LimitFlags = LimitFlags(),  # noqa: B008 - frozen
    keep: KeepFlags = KeepFlags(),  # noqa: B008
    output: OutputFlags = OutputFlags(),  # noqa: B008
    interrupts: _Injected,
) -> int:
    """Go on with a run where it was left off, with the flags that it was begun with."""
    from trioeval.cli.run.command import run_command  # noqa: PLC0415 - imports wait until they are needed

    flags = RunFlags(
        what=WhatFlags(env_file=env_file),
        limits=limits,
        keep=keep,
        begin=BeginFlags(resume=run),
        output=output,
    )
    return run_command(None, flags, interrupts)


@runs.default
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
    """List runs, the latest first; or draw what of one of them waits for what.

    Parameters
    ----------
    suite
        Only runs of this suite file.
    state
        Only runs in this state.
    limit
        At most so many.
    queue
        Not runs, but the line in which cases of agents wait for their turn.
    graph
        Draw the tasks and cases of this run, with how they stand: its id, the beginning of it, or `latest`.
    form
        How it is drawn: for a terminal, or for a document.
    json
        As JSON.
    """
    if queue:
        from trioeval.cli.commands.run_queue import show_queue  # noqa: PLC0415 - see above

        return show_queue(db, as_json=json)
    if graph is not None:
        from trioeval.cli.commands.run_graph import show_graph  # noqa: PLC0415 - see above

        return show_graph(db, graph, form=form, as_json=json)
    from trioeval.cli.commands.run_list import show_runs  # noqa: PLC0415 - see above

    return show_runs(db, suite=suite, state=state, limit=limit, as_json=json)


@runs.command(name="delete")
def delete_runs(run: str, /, *more: str, db: Database = None) -> int:
    """Delete runs for good.

    Parameters
    ----------
    run
        The id of one, the beginning of it, or `latest`.
    more
        Those of others.
    """
    from trioeval.cli.commands.run_list import delete  # noqa: PLC0415 - see above

    return delete(db, (run, *more))


@runs.command(name="prune")
def prune_runs(
    *,
    older_than: str | None = None,
    keep: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    db: Database = None,
) -> int:
    """Delete old runs for good; never one that is running.

    Parameters
    ----------
    older_than
        Those that were begun longer ago than this: `12h`, `30d`, `8w`.
    keep
        All but the latest so many.
    """
    from trioeval.cli.commands.run_list import prune  # noqa: PLC0415 - see above

    return prune(db, older_than=older_than, keep=keep)


def show(
    run: Annotated[str, Parameter(show_default=False)] = LATEST,
    index: _Index | None = None,
    /,
    *,
    failed: Switch = False,
    limit: Count = 50,
    rows: _Index = 10,
    task: str | None = None,
    db: Database = None,
) -> int:
    """Show the rows of a run or of a dataset, or everything that is known of one row.

    Parameters
    ----------
    run
        Its id, the beginning of it, or `latest`, which it is without; or the folder of a dataset.
    index
        A row: what was asked and answered, how it was judged, and what it waited for.
    failed
        Only rows that did not pass.
    limit
        Rows of at most so many tests.
    rows
        The first rows of each dataset.
    task
        Only this task of the suite.
    """
    from trioeval.cli.commands.show import show_row, show_run  # noqa: PLC0415 - see above

    if index is not None:
        return show_row(db, run, index, task=task)
    return show_run(db, run, failed=failed, limit=limit, rows=rows, task=task)


def export(run: _Run = LATEST, /, *, output: _Outputs = (), db: Database = None) -> int:
    """Write result files of a run that is kept.

    Parameters
    ----------
    output
        A file, as for `run`; may be given several times.
    """
    from trioeval.cli.commands.exchange import export_run  # noqa: PLC0415 - see above

    return export_run(db, run, output)


def import_files(file: Path, /, *more: Path, db: Database = None) -> int:
    """Keep the results of a file, of promptfoo or of trioeval, as a run.

    Parameters
    ----------
    file
        A result file: .json or .jsonl.
    more
        Others.
    """
    from trioeval.cli.commands.exchange import import_results  # noqa: PLC0415 - see above

    return import_results(db, (file, *more))


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class CompareFlags:
    """What is asked of a comparison."""

    by: Literal["row", "test"] = "row"
    """What makes two rows the same: provider, prompt and test, or the test alone, to compare models."""
    changed: Switch = False
    """Show every row that is not as it was, not only the first ones."""
    fail_if: Literal["worse", "different"] | None = None
    """Exit with 100 if the later run is worse, or better or worse, beyond chance."""
    confidence: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.95
    """Of intervals and of that decision."""
    cluster: str | None = None
    """A key of the tests' metadata, or a variable: rows that have the same value are no independent
    observations; repeats of a test never are."""
    bootstrap: Annotated[int | None, Parameter(validator=Number(gte=100, lte=100_000))] = None
    """Draw the intervals of scores and metrics, so many times, in place of Student's."""
    output: _Outputs = ()
    """Write the later run as a report with the earlier one beside it: .html; may be given several times."""
    json: Switch = False
    """As JSON."""


def compare(
    before: str,
    after: str,
    /,
    *,
    asked: CompareFlags = CompareFlags(),
    db: Database = None,
) -> int:
    """Compare two runs row by row.

    Parameters
    ----------
    before
        The earlier one: its id, the beginning of it, `latest`, or `latest~1` for the one before that.
    after
        The later one.
    """
    from trioeval.cli.commands.compare import compare_runs  # noqa: PLC0415 - see above

    return compare_runs(db, before, after, asked)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ViewFlags:
    """Where pages are served, and to whom."""

    host: str = "127.0.0.1"
    """The address to listen on; one that other machines reach needs a token."""
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 8642
    """The port; 0 takes a free one and prints it."""
    token: str | None = attrs.field(default=None, repr=False)
    """What a browser has to show; TRIOEVAL_VIEW_TOKEN if not given. Without both, a random one is made and
    printed where it is needed."""
    open_browser: Annotated[bool, Parameter(name="--open")] = False
    """Open the page in the browser of this machine."""


def view(
    *,
    terms: ViewFlags = ViewFlags(),
    db: Database = None,
    interrupts: _Injected,
) -> int:
    """Serve a page that shows runs while they go on, and steers them, until interrupted."""
    from trioeval.cli.commands.view import view_runs  # noqa: PLC0415 - see above

    return view_runs(db, terms, interrupts)


def add_to(app: cyclopts.App) -> None:
    """Make them commands."""
    app.command(resume, name="resume")
    app.command(runs)
    app.command(show, name="show")
    app.command(export, name="export")
    app.command(import_files, name="import")
    app.command(compare, name="compare")
    app.command(view, name="view")
