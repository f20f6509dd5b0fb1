"""Rejected replies and requests for new ones are known to the next execution of a run."""

from contextlib import nullcontext
from pathlib import Path

import attrs
import pytest
import trio
from stored_things import call_at, row_at, start_of

from trioeval import Status
from trioeval.evaluation.journal import CallKey, RecordedReply
from trioeval.evaluation.reconcile import Retry
from trioeval.providers import Reply
from trioeval.store.cache.cache import open_cache
from trioeval.store.store import open_store

Q, R = b"q" * 16, b"r" * 16


def test_a_reply_that_was_rejected_is_not_recalled(tmp_path: Path) -> None:
    """Replies to other requests of the row are, and so is a later one."""
    questions = [CallKey(None, 0, "provider", question) for question in (Q, R)]

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            run.call(call_at(0, "bad", Q))
            run.call(call_at(0, "good", R))
            run.reject(questions[0])
        async with open_store(tmp_path / "r.db") as store:
            run = await store.resume("eval-1", start_of())
            found = [run.recorded_reply(key) for key in questions]
            assert [paid and paid.reply.output for paid in found] == [None, "good"]
            run.call(call_at(0, "better", Q))
        async with open_store(tmp_path / "r.db") as store:
            run = await store.resume("eval-1", start_of())
            paid = run.recorded_reply(questions[0])
            assert paid is not None
            assert paid.reply.output == "better"

    trio.run(main)


@pytest.mark.parametrize(
    ("retry", "anew"),
    [
        (Retry("failed"), [0]),
        (Retry("rows", (range(1, 2),)), [1]),
        (Retry("errors"), []),
        (Retry(), []),
    ],
)
def test_rows_are_called_again_until_they_have_been_run(
    tmp_path: Path, retry: Retry, anew: list[int]
) -> None:
    """Rows get new replies until they have been run, even over a killed execution."""
    path = tmp_path / "r.db"
    rows = [
        row_at(0, status=Status.FAIL),
        row_at(1),
        row_at(2, status=Status.ERROR, outcome="failed", verdict=None),
    ]

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of())
            for row in rows:
                run.call(call_at(row.index))
                run.row(row)
            assert not any(run.needs_new_reply(None, index) for index in range(4))
        for requested in (retry, Retry()):
            async with open_store(path) as store:
                run = await store.resume("eval-1", start_of(), retry=requested)
                assert [index for index in range(4) if run.needs_new_reply(None, index)] == anew
                assert not run.needs_new_reply("no task", 0)
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of())
            for row in rows:
                run.row(row)
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of())
            assert not any(run.needs_new_reply(None, index) for index in range(4))

    trio.run(main)


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_reply_that_is_dropped_from_a_cache_is_requested_again(
    tmp_path: Path, where: str
) -> None:
    """A dropped entry is requested again by this process and the next one, without a warning."""
    path = None if where == "memory" else tmp_path / "c.db"
    warnings: list[Exception] = []
    texts = iter("abc")

    async def fetch() -> RecordedReply:
        await trio.lowlevel.checkpoint()
        return RecordedReply(Reply(output=next(texts)), 1.0, cached=False)

    async def main() -> str:
        async with open_cache(path, on_problem=warnings.append) as cache:
            await cache.reply(bytes(32), fetch, nullcontext)
            cache.drop(bytes(32))
            assert (await cache.reply(bytes(32), fetch, nullcontext)).reply.output == "b"
            cache.drop(bytes(32))
            cache.drop(b"x" * 32)
        async with open_cache(path, on_problem=warnings.append) as cache:
            return str((await cache.reply(bytes(32), fetch, nullcontext)).reply.output)

    assert trio.run(main) == "c"
    assert warnings == []


def test_replies_recovered_from_elsewhere_are_recalled_at_once_and_recorded_once(
    tmp_path: Path,
) -> None:
    """RESUME: those that a journal has and the store lacks; rejected ones stay rejected."""
    questions = [CallKey(None, index, "provider", Q) for index in range(4)]
    found = [call_at(index, f"reply {index}", Q) for index in range(4)]
    other = CallKey("no task of the run", 0, "provider", Q)
    foreign = attrs.evolve(found[0], key=other)

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            run.call(found[0])
            run.call(found[1])
            run.reject(questions[1])
        for new in (2, 0):
            async with open_store(tmp_path / "r.db") as store:
                run = await store.resume("eval-1", start_of())
                assert run.recover([*found, foreign], [questions[1], questions[3], other]) == new
                await run.durable()
                recalled = [run.recorded_reply(key) for key in questions]
                outputs = [paid and paid.reply.output for paid in recalled]
                assert outputs == ["reply 0", None, "reply 2", None]

    trio.run(main)


def test_recovered_jobs_are_those_of_their_rows(tmp_path: Path) -> None:
    """RESUME: a job that only a journal knows is paid, and is not created again."""
    begun, ended = (CallKey(None, index, "provider", Q, f"row {index}") for index in range(2))

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            run.job(ended).note("video-0")
        for _ in range(2):
            async with open_store(tmp_path / "r.db") as store:
                run = await store.resume("eval-1", start_of())
                run.recover_job(begun, "video-1")
                run.recover_job(ended, None)
                run.recover_job(attrs.evolve(begun, task="no task of the run"), "video-2")
                await run.durable()
                found = [run.recorded_jobs(None, index) for index in range(2)]
                assert found == [[(begun, "video-1")], []]

    trio.run(main)
