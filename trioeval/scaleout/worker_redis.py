"""The Redis server of a run, as one worker uses it: the limits of its lanes, its news, and its journal."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from coredis.exceptions import RedisError

from trioeval.errors import LimitError, UsageError
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel import Event, Lanes, LaneSpec
from trioeval.limits.redis import RedisLimits, open_link
from trioeval.run.run_suite import make_lanes
from trioeval.run.shared_limits import open_suite_limits
from trioeval.scaleout.lane_news import LaneNews, news_key
from trioeval.scaleout.lane_sharing import (
    LaneLimits,
    SharedLane,
    most_of,
    most_tokens,
    reported_rates,
    retuned,
    shared_lanes,
    with_shared_lanes,
)
from trioeval.scaleout.messages import Message
from trioeval.scaleout.stream_journal import JournalKeys, WorkerJournal


@attrs.define(eq=False, repr=False)
class WorkerRedis:
    """The server of a run for one worker. Obtained from `open_worker_redis`."""

    lanes: Lanes
    """The lanes of the worker."""
    journal: WorkerJournal
    _news: LaneNews
    _specs: dict[str, LaneSpec]
    """The lanes with shared limits, as they are now."""
    _most_tokens: dict[str, int]
    """See `LaneLimits`."""

    def observe(self, event: Event) -> None:
        """Note what the lanes learn; an observer of the runs on them."""
        self._news.observe(event)

    def steer(self, command: Mapping[str, Any]) -> None:
        """Follow a command that its lane has executed; the shared limits follow by the coordinator."""
        lane = command["lane"]
        if lane in self._specs:
            spec = self._specs[lane] = retuned(self._specs[lane], command)
            if (most := most_tokens(spec)) is not None:
                self._most_tokens[lane] = most

    async def serve(self) -> None:
        """Pass on what the lanes learn, and follow the journal, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.journal.serve)
            nursery.start_soon(self._news.send_continuously)
            nursery.start_soon(self._news.listen)


@asynccontextmanager
async def open_worker_redis(
    prepared: PreparedSuite,
    url: str,
    run_id: str,
    session: str,
    *,
    has_shared_lanes: bool,
    pack: Callable[[Sequence[Message]], tuple[bytes, bool]],
    warn: Callable[[str], None],
) -> AsyncGenerator[WorkerRedis]:
    """Open the server of a run, and the lanes of a worker.

    Args:
        prepared: The suite, whose limits are in Redis.
        url: The address of the server.
        run_id: The id of the run.
        session: The id of the worker's session.
        has_shared_lanes: Whether the limits of its lanes are kept there.
        pack: Returns messages as bytes without keys, and whether there were keys.
        warn: Called with failures that end no call.

    Raises:
        UsageError: The server is unreachable, or too old.
        LimitError: It rejects the limits of the suite.
    """
    settings = prepared.suite.limits
    if settings is None:
        msg = "the suite has no limits"
        raise RuntimeError(msg)
    shared = shared_lanes(prepared, run_id) if has_shared_lanes else ()
    async with open_link(url, settings.request_timeout_ms / 1000) as link:
        keys = JournalKeys(settings.namespace, run_id)
        journal = WorkerJournal(link, keys, session, warn, pack)
        try:
            await journal.open()
        except (LimitError, RedisError) as error:
            raise UsageError(f"the journal of the run needs Redis 6.2 or later: {error}") from error
        counted = with_shared_lanes(prepared, shared)
        async with open_suite_limits(counted, warn=_of_definitions(shared, warn)) as limits:
            most, reported, own = most_of(shared), set[str](), None
            if limits is not None:
                own = LaneLimits(limits, reported_rates(shared), most, reported)
            lanes = make_lanes(counted, limits=own)
            news = LaneNews(
                lanes,
                {lane.lane: lane for lane in shared},
                RedisLimits(link, keys.namespace),
                link,
                news_key(keys.namespace, keys.run_id),
                session,
                reported,
            )
            specs = {one.name: one for one in prepared.lane_specs}
            tuned = {one.lane: specs[one.lane] for one in shared}
            yield WorkerRedis(lanes, journal, news, tuned, most)


def _of_definitions(
    shared: Sequence[SharedLane], warn: Callable[[str], None]
) -> Callable[[str], None]:
    """Return `warn` without warnings of limits of lanes: a worker has learned them, or they were retuned."""
    own = [repr(key.key) for lane in shared for key in lane.keys]

    def warn_of_others(text: str) -> None:
        if not any(key in text for key in own):
            warn(text)

    return warn_of_others
