"""The start of a run in its store: a new run, or the continuation of an earlier execution."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.report.results import utc
from trioeval.report.stored import RunStart, StoredRunFacts
from trioeval.run import PreparedSuite
from trioeval.store.run import StoredRun
from trioeval.store.run_start import new_run_id, run_start
from trioeval.store.store import Store

if TYPE_CHECKING:
    from trioeval.evaluation.reconcile import Reconciled, Retry


@attrs.frozen(kw_only=True)
class Continuation:
    """The continuation of a run."""

    retry: Retry
    reconciled: Mapping[str | None, Reconciled]
    """The changes of the rows of each task."""
    duration_ms: float = 0.0
    """The duration of earlier executions."""


def start_of(
    prepared: PreparedSuite, flags: Mapping[str, Any], facts: StoredRunFacts | None = None
) -> RunStart:
    """Return what is stored about a run before any call.

    Args:
        prepared: The suite.
        flags: The flags of its start, as JSON data.
        facts: The stored run to continue; None for a new run.
    """
    now = datetime.now(UTC)
    run = new_run_id(now) if facts is None else facts.id
    created = utc(now) if facts is None else facts.utc_created
    return run_start(prepared, run=run, utc_created=created, flags=flags)


async def begin(store: Store, start: RunStart, continued: Continuation | None = None) -> StoredRun:
    """Start or continue a run in the store, before any provider is called.

    Raises:
        UsageError: It is running elsewhere.
        StoreError: It cannot be stored.
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
