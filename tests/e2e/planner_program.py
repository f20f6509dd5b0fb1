"""A program with tasks in a queue that it shares with other programs.

    python planner_program.py DATABASE NAME LIMIT COUNT LOG [HANGING]

It submits NAME-0, NAME-1, … one after the other, writes to LOG when each starts and ends, and prints those
that started. The one with the number HANGING never ends.
"""

import os
import sys
from pathlib import Path

import trio

from trioeval.agent.planner import Submission, planner_turn
from trioeval.store.planner.owners import PlannerSettings
from trioeval.store.planner.planner import AgentPlanner, open_planner

database, name, limit, count, log, *hanging = sys.argv[1:]
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def work(  # noqa: ASYNC114
    planner: AgentPlanner,
    number: int,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    submission = Submission(id=f"{name}-{number}", run=name, task=f"t/{number}")
    async with planner_turn(planner, submission) as turn:
        task_status.started()
        await turn.wait_started()
        os.write(file, f"start {submission.id}\n".encode())
        print(submission.id, flush=True)
        await trio.sleep(600 if [str(number)] == hanging else 0.01)
        os.write(file, f"end {submission.id}\n".encode())
        turn.done = True


async def main() -> None:
    settings = PlannerSettings(heartbeat=0.05, poll=0.02)
    async with open_planner(Path(database), int(limit), settings=settings) as planner:
        print("ready", flush=True)
        sys.stdin.readline()
        async with trio.open_nursery() as nursery:
            for number in range(int(count)):
                await nursery.start(work, planner, number)


trio.run(main)
