"""The common part of all shards, whether they consist of rows or of groups of a dataset."""

import attrs

from trioeval.agent.journal import RunningAttempt
from trioeval.evaluation.journal import CallKey, RecordedReply
from trioeval.rates import Budget


@attrs.frozen(kw_only=True)
class PlacedWork:
    """Work that is placed on a worker."""

    number: int
    """Its number in the run; each placement has its own."""
    task: str | None
    replies: tuple[tuple[CallKey, RecordedReply], ...] = ()
    """The recorded replies to its calls, which are not requested again."""
    anew: frozenset[int] = frozenset()
    """The rows that ignore recorded and cached replies."""
    budget: Budget | None = None
    """The budget of its calls, in which all that it may not use counts as used; None without one."""
    processes: tuple[RunningAttempt, ...] = ()
    """The attempts at its rows whose processes may still run, because their workers were lost."""
    jobs: tuple[tuple[CallKey, str], ...] = ()
    """The jobs at services that its calls have created, as long as they have no reply."""
