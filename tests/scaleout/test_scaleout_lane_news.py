"""The news of a lane of one worker reach the lanes of the others, through a real Redis server."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from patience import PATIENCE
from redis_server import RedisServer, needs_redis, open_server

from trioeval.errors import CallError, Fault
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Metered, Plan, collect
from trioeval.limits import Denied, LeaseRequest, LimitState, Requirement, SharedLimit
from trioeval.limits.backend import definitions_of
from trioeval.limits.redis import RedisLimits, RedisLink, open_link
from trioeval.loading.load import parse_suite
from trioeval.rates import Allowance, RateHint
from trioeval.run import prepare
from trioeval.scaleout.forwarding import MessageBatch
from trioeval.scaleout.lane_news import LaneNews, news_key
from trioeval.scaleout.lane_sharing import SharedLane, shared_lane
from trioeval.scaleout.messages import StepFinder
from trioeval.scaleout.run_redis import open_run_redis
from trioeval.scaleout.worker_redis import WorkerRedis, open_worker_redis

pytestmark = [needs_redis, pytest.mark.network, pytest.mark.slow]

SPEC = LaneSpec("a", 8, retries=0, max_retries=0)
LANE = shared_lane(SPEC, "r")
KEY = news_key("n", "r")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with open_server() as server:
        yield server


@attrs.frozen
class Worker:
    """The lanes of one worker, and their news."""

    lanes: Lanes
    news: LaneNews
    limits: RedisLimits
    link: RedisLink
    reported: set[str]
    """The lanes with a reported rate."""

    async def call(self, result: Metered[None] | CallError, *, times: int = 1) -> None:
        """Make calls at once that all have the same result."""

        async def send() -> Metered[None]:
            await trio.lowlevel.checkpoint()
            if isinstance(result, CallError):
                raise result
            return result

        async def perform(_job: Job[None], calls: Calls[None]) -> None:
            await calls("a", send)

        jobs = [Job(index, "a", None) for index in range(times)]
        await collect(Plan(jobs, ("a",)), perform, lanes=self.lanes, observe=self.news.observe)


@asynccontextmanager
async def worker(
    server: RedisServer, name: str, shared: SharedLane = LANE
) -> AsyncGenerator[Worker]:
    async with open_link(server.url, PATIENCE) as link, trio.open_nursery() as nursery:
        limits, lanes = RedisLimits(link, "n"), Lanes([SPEC])
        for limit in shared.limits:
            await limits.define(limit)
        reported: set[str] = set()
        news = LaneNews(lanes, {"a": shared}, limits, link, KEY, name, reported)
        nursery.start_soon(news.send_continuously)
        nursery.start_soon(news.listen)
        while await subscribers(link) < (1 if name == "first" else 2):
            await trio.lowlevel.checkpoint()
        yield Worker(lanes, news, limits, link, reported)
        nursery.cancel_scope.cancel()


async def subscribers(link: RedisLink) -> int:
    _channel, count = await link.request(b"PUBSUB", "NUMSUB", KEY)
    return int(count)


def refusal(retry_after: float | None) -> CallError:
    return CallError(Fault.RATE_LIMITED, "too many", retry_after=retry_after)


async def denial(limits: RedisLimits, name: str) -> Denied | None:
    ask = LeaseRequest(name, "job", tuple(Requirement(key.key, 1) for key in LANE.keys))
    (found,) = await limits.reserve([ask])
    return found if isinstance(found, Denied) else None


def test_a_wait_named_to_one_worker_pauses_the_lane_for_all_and_is_never_shortened(
    server: RedisServer,
) -> None:
    """RETRY_AFTER over all workers."""

    async def main() -> None:
        async with worker(server, "first") as first, worker(server, "second") as second:
            assert await denial(second.limits, "0") is None
            await first.call(refusal(40.0))
            number = 1
            while (found := await denial(second.limits, f"{number}")) is None:
                number += 1
            assert 30 < found.retry_after <= 41
            await second.call(refusal(5.0))
            await trio.testing.wait_all_tasks_blocked(0.05)
            found = await denial(second.limits, "last")
            assert found is not None
            assert 30 < found.retry_after <= 41

    trio.run(main)


def test_a_cut_of_one_worker_cuts_the_others_and_those_that_join_later(server: RedisServer) -> None:
    """AIMD: at most to the number that the first one has learned."""

    async def main() -> None:
        async with worker(server, "first") as first:
            async with worker(server, "second") as second:
                await first.call(refusal(None), times=8)
                cut = first.lanes["a"].throttle.limit.limit
                assert cut < 8
                while second.lanes["a"].throttle.limit.limit != cut:
                    await trio.lowlevel.checkpoint()
            async with worker(server, "third") as third:
                while third.lanes["a"].throttle.limit.limit != cut:
                    await trio.lowlevel.checkpoint()
            assert first.lanes["a"].throttle.limit.limit == cut

    trio.run(main)


def test_a_rate_that_a_server_reports_holds_over_all_workers_until_enough_is_left(
    server: RedisServer,
) -> None:
    def left(remaining: int) -> Metered[None]:
        allowance = Allowance(limit=120, remaining=remaining, reset_after=0.5, window=60)
        return Metered(None, hint=RateHint(requests=allowance))

    async def main() -> None:
        async with worker(server, "first") as first, worker(server, "second") as second:

            async def window() -> float | None:
                states = {one.limit.key: one.limit for one in await first.limits.states()}
                return states[LANE.reported_rate].window

            assert await window() == 1.0
            await first.call(left(3))
            while await window() != 1.0 * 2 * 60 / 120 or not await is_narrow(first):
                await trio.lowlevel.checkpoint()
            while not second.reported:
                await trio.lowlevel.checkpoint()
            assert first.reported == second.reported == {"a"}
            async with worker(server, "third") as third:
                while not third.reported:
                    await trio.lowlevel.checkpoint()
            await first.call(left(100))
            while await is_narrow(first) or second.reported:
                await trio.lowlevel.checkpoint()
            assert not first.reported

    async def is_narrow(one: Worker) -> bool:
        states = {state.limit.key: state for state in await one.limits.states()}
        state = states[LANE.reported_rate]
        return (state.pending_capacity or state.limit.capacity) == 2

    trio.run(main)


def test_a_lost_server_ends_no_worker_and_is_listened_to_again(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioeval.scaleout import lane_news

    monkeypatch.setattr(lane_news, "_RECONNECT", 0.05)

    async def main() -> None:
        async with worker(server, "first") as first:
            server.kill()
            await first.call(refusal(None), times=8)
            await trio.to_thread.run_sync(server.start)
            cut = first.lanes["a"].throttle.limit.limit
            assert cut > 1
            while True:
                # Its lane hears of a smaller limit as soon as it listens again.
                await first.link.request(b"PUBLISH", KEY, '{"by":"x","lane":"a","limit":1}')
                if first.lanes["a"].throttle.limit.limit == 1:
                    break

    trio.run(main)


LANE_OF = {"key": "a", "maxConcurrency": 4, "rpm": 120, "tpm": 1000}


def suite_on(server: RedisServer, **lane: Any) -> PreparedSuite:
    config = {"apiKey": "k", "apiBaseUrl": "http://127.0.0.1:9/v1"}
    provider = {"id": "openai:chat:m", "config": config, "lane": {"key": "a", **lane}}
    limits = {"backend": "redis", "url": server.url, "namespace": "n"}
    data = {"providers": [provider], "prompts": ["x"], "limits": limits}
    return prepare(parse_suite(data))


def test_commands_of_the_live_view_reach_the_shared_limits_of_all_workers(
    server: RedisServer,
) -> None:
    """PACE, WIDTH: the numbers of a lane and of its shared limits are the same after a command."""
    prepared, warnings = suite_on(server, **LANE_OF), list[str]()
    command = {"do": "retune", "lane": "a", "maxConcurrency": 9, "rpm": 30, "tpm": 500.0}
    (spec,) = (one for one in prepared.lane_specs if one.name == "a")
    expected = shared_lane(attrs.evolve(spec, max_concurrency=9, rpm=30, tpm=500), "r").limits

    def open_worker(session: str) -> AbstractAsyncContextManager[WorkerRedis]:
        return open_worker_redis(
            prepared,
            server.url,
            "r",
            session,
            has_shared_lanes=True,
            pack=MessageBatch(lambda _data: None).packed,
            warn=warnings.append,
        )

    async def main() -> None:
        find = StepFinder.of(prepared)
        async with (
            open_run_redis(prepared, "r", find, has_shared_lanes=True) as redis,
            open_link(server.url, PATIENCE) as link,
            trio.open_nursery() as nursery,
        ):
            assert redis is not None
            nursery.start_soon(redis.serve)
            limits = RedisLimits(link, "n")

            async def definitions() -> list[SharedLimit]:
                return definitions_of(await limits.states())

            async with open_worker("first") as first:
                assert redis.refusal(command) is None
                first.steer(command)
                redis.retune(command)
                while sorted(await definitions(), key=str) != sorted(expected, key=str):
                    await trio.lowlevel.checkpoint()
                async with open_worker("late") as late:
                    late.steer(command)
                    assert warnings == []
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_rate_is_refused_for_a_shared_lane_that_began_without_one(server: RedisServer) -> None:
    prepared = suite_on(server, maxConcurrency=4)

    async def main() -> None:
        find = StepFinder.of(prepared)
        async with open_run_redis(prepared, "r", find, has_shared_lanes=True) as redis:
            assert redis is not None
            text = redis.refusal({"do": "retune", "lane": "a", "rpm": 30})
            assert text is not None
            assert "set rpm in the suite" in text
            assert redis.refusal({"do": "retune", "lane": "a", "maxConcurrency": 30}) is None
            assert redis.refusal({"do": "pause", "lane": "a"}) is None

    trio.run(main)


def test_a_command_that_comes_while_an_earlier_one_is_executed_is_not_lost(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WIDTH: the shared limits have the numbers of the last command."""
    prepared, define, defined = suite_on(server, **LANE_OF), RedisLimits.define, list[int]()

    async def main() -> None:
        find = StepFinder.of(prepared)
        async with (
            open_run_redis(prepared, "r", find, has_shared_lanes=True) as redis,
            trio.open_nursery() as nursery,
        ):
            assert redis is not None

            async def slow(limits: RedisLimits, limit: SharedLimit, /) -> LimitState:
                if not defined:
                    redis.retune({"lane": "a", "maxConcurrency": 7})
                defined.append(limit.capacity)
                state = await define(limits, limit)
                if limit.capacity == 7:
                    nursery.cancel_scope.cancel()
                return state

            monkeypatch.setattr(RedisLimits, "define", slow)
            nursery.start_soon(redis.serve)
            redis.retune({"lane": "a", "maxConcurrency": 9})
            nursery.cancel_scope.deadline = trio.current_time() + PATIENCE

    trio.run(main)
    assert defined == [9, 7]
