"""`trioeval runs --queue`: the line in which cases of agents wait for their turn."""

import json
import os
import sys
from pathlib import Path

from trioeval.agent.case_folder import ABOUT, CaseFiles, task_folder
from trioeval.cli.environment import agents_folder, database_path, read_environment
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.errors import AgentError, UsageError
from trioeval.report.run_list import queue_table, queued_json
from trioeval.store.planner.queue import read_queue, set_line_limit


def show_queue(db: Path | None, *, as_json: bool) -> int:
    """List the line, by order.

    Raises:
        UsageError: There is no database of runs.
        StoreError: It cannot be read.
    """
    path = _existing(db)
    problems: list[str] = []
    found = read_queue(path, warn=problems.append)
    for problem in problems:
        say(f"warning: {path}: {problem}; it does not begin until it is written anew")
    if as_json:
        show(json.dumps([queued_json(one) for one in found], indent=2))
    elif found:
        draw(queue_table(found), sys.stdout)
    elif not problems:
        say("nothing stands in the line; only suites that set maxConcurrentRootTasks use it")
    return Exit.OK


def cancel_case(db: Path | None, name: str) -> int:
    """Mark a case that waits as cancelled, so that it leaves the line and its agent is not started.

    Raises:
        UsageError: There is no such case, or it does not wait.
        AgentError: Its folder cannot be written to.
        StoreError: The database cannot be read.
    """
    path = _existing(db)
    named = [one for one in read_queue(path) if name in (one.submission.id, str(one.order))]
    if not named:
        raise UsageError(f"{name}: no such case stands in the line; see trioeval runs --queue")
    (entry,) = named
    if entry.state == "running":
        raise UsageError(f"{name}: it runs already; only a case that waits can be cancelled so")
    submission = entry.submission
    task, _, room = submission.task.rpartition("/")
    folder = agents_folder(path, submission.run) / task_folder(task or None) / room
    try:
        (folder / ABOUT).stat()  # who waits has made it
        CaseFiles(folder).cancelled.touch()
    except OSError as error:
        raise AgentError(f"{folder}: the case cannot be cancelled: {error}") from error
    say(f"{submission.task} is cancelled: its agent is not started, and it counts as not done")
    return Exit.OK


def limit_line(db: Path | None, most: int) -> int:
    """Set how many cases run at once, over all programs.

    Raises:
        UsageError: There is no database of runs.
        StoreError: It cannot be written to.
    """
    path = _existing(db)
    set_line_limit(path, most)
    say(
        f"{most} cases run at once from now on" if most else "suites say how many cases run at once"
    )
    return Exit.OK


def _existing(db: Path | None) -> Path:
    path = database_path(db, read_environment(os.environ))
    if not path.exists():
        raise UsageError(f"{path}: there is no database of runs here; --db PATH names another one")
    return path
