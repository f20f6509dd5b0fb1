"""The limits that a suite shares with others, opened for its run, and what its lanes ask of them."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random

from trioeval.evaluation.lanes import merge_lane_limits
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel.reservations import Permits
from trioeval.limits.backend import SharedLimits


@asynccontextmanager
async def open_suite_limits(
    prepared: PreparedSuite, *, warn: Callable[[str], None] | None = None
) -> AsyncGenerator[SharedLimits | None]:
    """The limits of a suite, for as long as the block; None where no lane of it counts against one.

    Args:
        prepared: The suite.
        warn: Told of what goes wrong and ends no call, and of limits that are kept otherwise than the suite
            says; must not raise. None logs it.

    Raises:
        LimitError: Whoever keeps the limits cannot be asked, or does not take those of the suite.
        SuiteError: The file of limits is wrong.
    """
    settings = prepared.suite.limits
    if settings is None or not prepared.lane_limits:
        yield None
        return
    from trioeval.limits.open import Batch, open_limits  # noqa: PLC0415 - only suites with limits

    batch = settings.batch
    told = logging.getLogger("trioeval").warning if warn is None else warn
    async with open_limits(
        backend=settings.backend,
        url=settings.url,
        namespace=settings.namespace,
        limits=settings.limits,
        limits_file=settings.limits_file,
        unreachable=settings.unreachable,
        patience=settings.patience_ms / 1000,
        request_timeout=settings.request_timeout_ms / 1000,
        batch=None if batch is None else Batch(batch.size, batch.flush_ms / 1000),
        rng=Random(),  # noqa: S311 - no secret: ids of leases have to differ, and no more
        warn=told,
    ) as limits:
        yield limits


def permits_of(limits: SharedLimits, *suites: PreparedSuite) -> dict[str, Permits]:
    """What the calls of each lane ask before they start; of lanes without shared limits, nothing.

    Raises:
        SuiteError: Suites count something else of the calls of a lane against the same limit.
    """
    merged = merge_lane_limits(prepared.lane_limits for prepared in suites)
    return {lane: limits.permits(lane, keys) for lane, keys in merged.items()}
