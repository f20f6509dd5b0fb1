"""Fixed: the limit belongs to the job, and its clock stands while the job waits for a lane.

The same jobs as in `limit_around_queue_broken.py`. Nothing in the body measures time.
"""

import trio

from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Outcome, Plan, collect
from trioeval.testing import run_virtual


async def judged(job: Job[str], calls: Calls[str]) -> str:
    await calls("model", trio.sleep, 1 + job.index / 4)
    await calls("judge", trio.sleep, 2)
    return job.payload


async def main() -> list[Outcome[str]]:
    plan = Plan.of(Job(index, "model", f"answer {index}", timeout=4) for index in range(4))
    lanes = Lanes([LaneSpec("model", max_concurrency=4), LaneSpec("judge", max_concurrency=1)])
    return await collect(plan, judged, lanes=lanes)


if __name__ == "__main__":
    for outcome in run_virtual(main):
        print(outcome)
