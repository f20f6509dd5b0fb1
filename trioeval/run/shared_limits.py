"""The shared limits of a suite, opened for its run, and the permits that its lanes need."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from trioeval.evaluation.lanes import merge_lane_limits
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel.reservations import Permits

if TYPE_CHECKING:
    from trioeval.limits.backend import SharedLimits


@asynccontextmanager
async def open_suite_limits(
    prepared: PreparedSuite, *, warn: Callable[[str], None] | None = None
) -> AsyncGenerator[SharedLimits | None]:
    """Open the shared limits of a suite for the duration of the block; None if no lane uses them.

    Args:
        prepared: The suite.
        warn: Called with failures that end no call, and with limits that differ from those of the suite; must
            not raise. None logs them.

    Raises:
        LimitError: The limit server is unreachable, or rejects the limits of the suite.
        SuiteError: The limits file is not valid.
    """
    settings = prepared.suite.limits
    if settings is None or not prepared.lane_limits:
        yield None
        return
    from trioeval.limits.open import Batch, open_limits

    batch = settings.batch
    report = logging.getLogger("trioeval").warning if warn is None else warn
    async with open_limits(
        backend=settings.backend,
        url=settings.url,
        namespace=settings.namespace,
        limits=settings.define,
        limits_file=settings.file,
        unreachable=settings.unreachable,
        patience=settings.patience_ms / 1000,
        request_timeout=settings.request_timeout_ms / 1000,
        batch=None if batch is None else Batch(batch.size, batch.flush_ms / 1000),
        rng=Random(),  # noqa: S311 - no secret: lease ids only have to be unique
        warn=report,
    ) as limits:
        yield limits


def permits_of(limits: SharedLimits, *suites: PreparedSuite) -> dict[str, Permits]:
    """Return the permits that the calls of each lane need before they start.

    Raises:
        SuiteError: Suites count different amounts of the calls of a lane against the same limit.
    """
    merged = merge_lane_limits(prepared.lane_limits for prepared in suites)
    return {lane: limits.permits(lane, keys) for lane, keys in merged.items()}
