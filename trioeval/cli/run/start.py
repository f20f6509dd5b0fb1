"""How a run begins in its store: anew, or where an earlier execution of it left off."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from trioeval.evaluation.reconcile import Reconciled, Retry
from trioeval.report import Head
from trioeval.run import PreparedSuite
from trioeval.store import RunStart, Store, StoredRun
from trioeval.store.beginning import run_start


@attrs.frozen(kw_only=True)
class Continued:
    """A run that was begun before, and how it goes on."""

    id: str
    utc_created: str
    duration_ms: float
    """Of its earlier executions."""
    retry: Retry
    reconciled: Mapping[str | None, Reconciled]
    """What has become of the rows of each task."""


@attrs.frozen(kw_only=True)
class Beginning:
    """What is written down of a run before anything is called."""

    heads: Sequence[Head]
    keys: Mapping[str | None, Sequence[str]] = attrs.field(repr=False)
    """Of each task, texts that must not stand in what is told of it."""
    start: RunStart
    continued: Continued | None

    @property
    def duration_ms(self) -> float:
        """Of earlier executions."""
        return 0.0 if self.continued is None else self.continued.duration_ms

    async def begin(self, store: Store) -> StoredRun:
        """Begin the run, or go on with it: nothing is asked before the file says so.

        Raises:
            UsageError: It is under way elsewhere.
            StoreError: It cannot be written down.
        """
        if self.continued is None:
            run = store.begin(self.start)
            await run.durable()
            if store.error is not None:
                raise store.error
            return run
        return await store.resume(
            self.continued.id,
            self.start,
            retry=self.continued.retry,
            reconciled=self.continued.reconciled,
        )


def beginning_of(
    prepared: PreparedSuite, flags: Mapping[str, Any], continued: Continued | None
) -> Beginning:
    """The beginning of a run of a suite.

    Args:
        prepared: The suite.
        flags: What it was asked for with, as JSON data.
        continued: The run that goes on; None for a new one.
    """
    now = datetime.now(UTC)
    run = f"eval-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}" if continued is None else continued.id
    created = utc(now) if continued is None else continued.utc_created
    start = run_start(prepared, run=run, utc_created=created, flags=flags)
    return Beginning(
        heads=[*map(Head.read, start.heads)], keys=start.keys, start=start, continued=continued
    )


def utc(instant: datetime) -> str:
    """An instant as JavaScript writes it."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
