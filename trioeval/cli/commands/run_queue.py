"""`trioeval runs --queue`: the queue in which cases of agents wait for their turn."""

import json
import os
import sys
from pathlib import Path

from trioeval.agent.case_folder import ABOUT, CaseFiles, task_folder
from trioeval.cli.environment import database_path, read_environment
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.errors import AgentError, UsageError
from trioeval.report.run_list import queue_table, queued_json
from trioeval.session.agents import agents_folder
from trioeval.store.planner.queue import read_queue, set_line_limit
from trioeval.text import counted


def show_queue(db: Path | None, *, as_json: bool) -> int:
    """List the queue, in order.

    Raises:
        UsageError: The database of runs does not exist.
        StoreError: It cannot be read.
    """
    path = _existing(db)
    problems: list[str] = []
    found = read_queue(path, warn=problems.append)
    for problem in problems:
        say(f"warning: {path}: {problem}; it does not start until it is submitted again")
    if as_json:
        show(json.dumps([queued_json(one) for one in found], indent=2))
    elif found:
        draw(queue_table(found), sys.stdout)
    elif not problems:
        say("the queue is empty; only suites with maxConcurrentRootTasks use it")
    return Exit.OK


def cancel_case(db: Path | None, name: str) -> int:
    """Mark a waiting case as cancelled, so that it leaves the queue and its agent is not started.

    Raises:
        UsageError: The case is not in the queue, or it is running.
        AgentError: Its folder cannot be written to.
        StoreError: The database cannot be read.
    """
    path = _existing(db)
    named = [one for one in read_queue(path) if name in (one.submission.id, str(one.order))]
    if not named:
        raise UsageError(f"{name}: not in the queue; see trioeval runs --queue")
    (entry,) = named
    if entry.state == "running":
        raise UsageError(f"{name}: already running; only a waiting case can be cancelled")
    submission = entry.submission
    task, _, room = submission.task.rpartition("/")
    folder = agents_folder(path, submission.run) / task_folder(task or None) / room
    try:
        (folder / ABOUT).stat()  # created by the waiting case
        CaseFiles(folder).cancelled.touch()
    except OSError as error:
        raise AgentError(f"{folder}: the case cannot be cancelled: {error}") from error
    say(f"{submission.task} is cancelled: its agent is not started, and it counts as not done")
    return Exit.OK


def limit_line(db: Path | None, most: int) -> int:
    """Set how many cases run at once, over all programs.

    Raises:
        UsageError: The database of runs does not exist.
        StoreError: It cannot be written to.
    """
    path = _existing(db)
    set_line_limit(path, most)
    say(
        f"{counted(most, 'case')} may run at once from now on"
        if most
        else "the suites' settings apply to the number of cases at once"
    )
    return Exit.OK


def _existing(db: Path | None) -> Path:
    path = database_path(db, read_environment(os.environ))
    if not path.exists():
        raise UsageError(f"{path}: no database of runs; use --db PATH for another one")
    return path
