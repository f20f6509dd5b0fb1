"""How a run begins in its store: anew, or where an earlier execution of it left off."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import attrs

from trioeval.evaluation.reconcile import Reconciled, Retry
from trioeval.run import PreparedSuite
from trioeval.store import RunFacts, RunStart, Store, StoredRun
from trioeval.store.beginning import run_start


@attrs.frozen(kw_only=True)
class Continued:
    """How a run goes on that was begun before."""

    retry: Retry
    reconciled: Mapping[str | None, Reconciled]
    """What has become of the rows of each task."""
    duration_ms: float = 0.0
    """Of its earlier executions."""


def start_of(
    prepared: PreparedSuite, flags: Mapping[str, Any], facts: RunFacts | None = None
) -> RunStart:
    """What is written down of the run of a suite before anything is called.

    Args:
        prepared: The suite.
        flags: What it was asked for with, as JSON data.
        facts: Of the run that goes on; None for a new one.
    """
    now = datetime.now(UTC)
    run = f"eval-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}" if facts is None else facts.id
    created = utc(now) if facts is None else facts.utc_created
    return run_start(prepared, run=run, utc_created=created, flags=flags)


async def begin(store: Store, start: RunStart, continued: Continued | None = None) -> StoredRun:
    """Begin a run, or go on with it: nothing is asked before the file says so.

    Raises:
        UsageError: It is under way elsewhere.
        StoreError: It cannot be written down.
    """
    if continued is not None:
        return await store.resume(
            start.id, start, retry=continued.retry, reconciled=continued.reconciled
        )
    run = store.begin(start)
    await run.durable()
    if store.error is not None:
        raise store.error
    return run


def utc(instant: datetime) -> str:
    """An instant as JavaScript writes it."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
