"""The things to be made of a dataset, and how what may be made changes."""

from collections.abc import Sequence
from typing import NamedTuple

import attrs

PREPARE = -1
FINISH = -2


class MakeJob(NamedTuple):
    """One thing to be made."""

    producer: int
    """Its place in the graph, or `PREPARE`, or `FINISH`."""
    group: int
    row: int | None = None
    """Of a cell; None of a whole group."""


@attrs.frozen
class Change:
    """What something that happened has changed. A job is in none or one of the three."""

    ready: tuple[MakeJob, ...] = ()
    """May be made now; each job is named once."""
    removed: tuple[MakeJob, ...] = ()
    """Were named as ready, are not begun, and are not to be made any more."""
    never: tuple[MakeJob, ...] = ()
    """Were never named as ready, and never will be."""


NOTHING = Change()


def in_order(jobs: Sequence[MakeJob]) -> tuple[MakeJob, ...]:
    """By group, then `PREPARE`, the graph and `FINISH`, then row."""
    return tuple(sorted(jobs, key=_standing) if len(jobs) > 1 else jobs)


def _standing(job: MakeJob) -> tuple[int, bool, int, int]:
    return (job.group, job.producer == FINISH, job.producer, -1 if job.row is None else job.row)
