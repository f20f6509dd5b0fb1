"""The pending jobs of a plan, lane by lane."""

from trioeval.kernel import Job, Plan
from trioeval.kernel.backlog import Backlog


def test_jobs_that_the_walk_passes_wait_in_order_for_their_lane() -> None:
    """Jobs that the walk passes are handed out later in order, once each."""
    jobs = [Job(i, "b" if i == 10_000 else "a", None) for i in range(10_001)]
    backlog = Backlog(Plan.of(jobs))
    looks = 0
    while backlog.has("b") is None:
        looks += 1
    assert looks == 10  # a stride is a thousand jobs
    assert [backlog.pop("a") for _ in range(10_000)] == jobs[:10_000]
    assert backlog.has("a") is False
    assert backlog.pop("b") == jobs[10_000]
    assert backlog.has("b") is False


def test_serial_jobs_are_left_out() -> None:
    """Serial jobs are not in the backlog."""
    backlog = Backlog(Plan.of([Job(i, "a", None) for i in range(4)], serial_indices=[0, 2]))
    assert [job.index for job in (backlog.pop("a"), backlog.pop("a")) if job] == [1, 3]
    assert backlog.pop("a") is None
