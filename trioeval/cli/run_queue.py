"""`trioeval runs --queue`: the line in which cases of agents wait for their turn."""

import json
import os
import sys
from pathlib import Path

from trioeval.cli.environment import read_environment
from trioeval.cli.exits import Exit
from trioeval.cli.places import database_path
from trioeval.cli.terminal import draw, say, show
from trioeval.errors import UsageError
from trioeval.report.queue_list import queue_table, queued_json
from trioeval.store.agent_queue import read_queue


def show_queue(db: Path | None, *, as_json: bool) -> int:
    """List the line, by order.

    Raises:
        UsageError: There is no database of runs.
        StoreError: It cannot be read.
    """
    path = database_path(db, read_environment(os.environ))
    if not path.exists():
        raise UsageError(f"{path}: there is no database of runs here; --db PATH names another one")
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
