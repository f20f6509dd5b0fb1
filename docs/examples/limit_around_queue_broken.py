"""Broken: a time limit around the queue. A busy judge turns good jobs into failed ones.

Each job works less than four seconds: one or a little more for the model, and two for the judge.
The judge takes one call at a time, and the limit of four runs while a job waits for it.
"""

import trio

from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Outcome, Plan, collect
from trioeval.testing import run_virtual


async def judged(job: Job[str], calls: Calls[str]) -> str:
    with trio.fail_after(4):  # the wait for the judge eats the limit
        await calls("model", trio.sleep, 1 + job.index / 4)
        await calls("judge", trio.sleep, 2)
    return job.payload


async def main() -> list[Outcome[str]]:
    plan = Plan.of(Job(index, "model", f"answer {index}") for index in range(4))
    lanes = Lanes([LaneSpec("model", max_concurrency=4), LaneSpec("judge", max_concurrency=1)])
    return await collect(plan, judged, lanes=lanes)


if __name__ == "__main__":
    for outcome in run_virtual(main):
        print(outcome)
