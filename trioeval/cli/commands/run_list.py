"""`trioeval runs`: lists stored runs, and deletes some."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from trioeval.cli.environment import existing_database, read_environment
from trioeval.cli.flags import read_age
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.errors import UsageError
from trioeval.report.run_list import run_json, runs_table
from trioeval.store.run_list import read_run_list
from trioeval.text import counted


def show_runs(
    db: Path | None,
    *,
    suite: Path | None,
    state: Literal["running", "finished", "interrupted", "died"] | None,
    limit: int,
    as_json: bool,
) -> int:
    """List runs, the latest first.

    Raises:
        UsageError: The database of runs does not exist.
        StoreError: It cannot be read.
    """
    with read_run_list(existing_database(db, read_environment(os.environ))) as reader:
        named = None if suite is None else str(suite.absolute())
        found = reader.runs(suite=named, state=state, limit=limit)
    if as_json:
        show(json.dumps([run_json(run) for run in found], indent=2))
    elif found:
        draw(runs_table(found), sys.stdout)
    else:
        say("no runs")
    return Exit.OK


def delete(db: Path | None, names: Sequence[str]) -> int:
    """Delete runs permanently, with the folders of their agents and processes that these left running.

    Raises:
        UsageError: A run does not exist or is running; then none is deleted.
        StoreError: The database cannot be written to.
    """
    from trioeval.cli.commands.agent_folders import Leftovers, report_deleted
    from trioeval.cli.stored_results import open_runs

    with open_runs(db, read_environment(os.environ)) as reader:
        runs = [reader.run(name) for name in names]
        if running := [run.id for run in runs if run.state == "running"]:
            raise UsageError(f"{', '.join(running)}: still running, so nothing was deleted")
        is_complete = True
        for run in {run.id: run for run in runs}.values():
            left = Leftovers()
            reader.delete(run, left.end)
            is_complete = report_deleted(reader.path, [run], left.ended) and is_complete
    return Exit.OK if is_complete else Exit.FAULT


def prune(db: Path | None, *, older_than: str | None, keep: int | None) -> int:
    """Delete old runs permanently, as `delete` does, but none that is running.

    Raises:
        UsageError: No flag selects runs.
        StoreError: The database cannot be written to.
    """
    from trioeval.cli.commands.agent_folders import Leftovers, report_deleted
    from trioeval.cli.stored_results import open_runs

    if older_than is None and keep is None:
        raise UsageError("select the runs to delete: --older-than AGE, --keep N, or both")
    age = None if older_than is None else read_age(older_than, "--older-than")
    with open_runs(db, read_environment(os.environ)) as reader:
        left = Leftovers()
        deleted = reader.prune(keep=keep, older_than_s=age, end=left.end)
    is_complete = report_deleted(reader.path, deleted, left.ended)
    say(f"{counted(len(deleted), 'run')} deleted")
    return Exit.OK if is_complete else Exit.FAULT
