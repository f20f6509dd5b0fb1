"""Videos are paid for when they are created: a later attempt, or execution of the run, polls the same job."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from loopback import Answer, Seen, as_json, serve
from stored_things import start_of

import trioeval
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.providers import Request, open_providers, resolve
from trioeval.run import RunOptions, run_with_options
from trioeval.store.store import open_store
from trioeval.templates import Templates
from trioeval.testing.journals import MemoryJournal

pytestmark = pytest.mark.network

MP4 = b"\0\0\0\x18ftypisom" + bytes(12)
JOB = {"id": "v1", "model": "sora-2"}
RUNNING = as_json({**JOB, "status": "in_progress"})
DONE = as_json({**JOB, "status": "completed", "size": "1280x720", "seconds": "8"})
VIDEO = Answer(200, MP4)
KEY = CallKey(None, 0, "provider", b"q" * 16, "r0")


@attrs.define
class Memory:
    """The record of one job, and all that was done with it."""

    name: str | None = None
    seen: list[str] = attrs.field(factory=list)

    def find(self) -> str | None:
        return self.name

    def note(self, name: str) -> None:
        self.seen.append(f"keep {name}")
        self.name = name

    async def keep(self, name: str) -> None:
        self.note(name)
        await trio.lowlevel.checkpoint()

    def drop(self) -> None:
        self.seen.append("drop")
        self.name = None


def sora(url: str, **config: Any) -> dict[str, Any]:
    """The entry of a video provider."""
    base = {"apiBaseUrl": f"{url}/v1", "apiKey": "sk-1", "poll_interval_ms": 1}
    return {"id": "openai:video:sora-2", "config": {**base, **config}}


async def call(
    answers: Sequence[Answer | None], job: Memory, **config: Any
) -> tuple[object, list[str]]:
    """Return the type or the failure of a call, and its requests; None in place of a reply cancels it."""
    left = [*answers]
    calling = trio.CancelScope()

    def respond(_seen: Seen) -> Answer | None:
        found = left.pop(0)
        if found is None:
            calling.cancel()
        return found

    templates, result = Templates(), None
    async with serve(respond) as server:
        entry = sora(server.url, **config)
        spec = resolve(
            entry["id"],
            entry["config"],
            environ={},
            directory=Path(),
            templates=templates,
            custom={},
        )
        assert spec.keeps_jobs
        async with open_providers([spec], templates) as [provider]:
            with calling:
                try:
                    reply = await provider(Request(prompt="a cat", job=job))
                    result = reply.media[0].mime_type
                except ProviderError as error:
                    result = error.kind
        return result, [f"{one.method} {one.target}" for one in server.seen]


POST, POLL, CONTENT = "POST /v1/videos", "GET /v1/videos/v1", "GET /v1/videos/v1/content"


def test_a_cancelled_call_is_continued_by_the_next_one() -> None:
    """The name is recorded before the first poll, and no second job is created."""
    job = Memory()
    assert trio.run(call, [RUNNING, None], job) == (None, [POST, POLL])
    assert (job.name, job.seen) == ("v1", ["keep v1"])
    assert trio.run(call, [RUNNING, DONE, VIDEO], job) == ("video/mp4", [POLL, POLL, CONTENT])
    assert job.seen == ["keep v1"]  # removed by the caller, after the reply is recorded


def test_a_job_that_takes_too_long_is_kept() -> None:
    """A retry of the lane waits for the same video."""
    job = Memory()

    async def main() -> None:
        found, _ = await call([RUNNING] * 9999, job, max_poll_time_ms=50)
        assert found == "attempt_timeout"

    trio.run(main)
    assert job.seen == ["keep v1"]


@pytest.mark.parametrize(
    ("answers", "kind", "dropped"),
    [
        ([as_json({**JOB, "status": "failed", "error": {"message": "no"}})], "server", True),
        ([DONE, Answer(404)], "not_found", True),
        ([DONE, Answer(200, b"<html>")], "malformed_reply", True),
        ([DONE, Answer(401)], "auth", False),
        ([DONE, Answer(302, b"", {"location": "ftp://x"})], "bad_request", False),
        ([Answer(403)], "permission", False),
    ],
)
def test_only_a_job_without_a_usable_video_is_dropped(
    answers: list[Answer],
    kind: str,
    dropped: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A wrong key can be corrected, and the video is still there."""
    job = Memory("v1")
    found, _ = trio.run(call, answers, job)
    assert (found, job.name) == (kind, None if dropped else "v1")


def test_a_job_that_the_service_has_forgotten_is_created_anew() -> None:
    """Services delete jobs after days."""
    job = Memory("v0")
    found, seen = trio.run(call, [Answer(404), RUNNING, DONE, VIDEO], job)
    assert (found, job.name) == ("video/mp4", "v1")
    assert seen == ["GET /v1/videos/v0", POST, POLL, CONTENT]


def test_a_request_that_fails_replaces_no_job() -> None:
    """Google answers a wrong key with status 400, for polls as well; with the right key the job is found."""
    job = Memory("v0")
    found, seen = trio.run(call, [Answer(400), Answer(400)], job)
    assert (found, job.name) == ("bad_request", "v0")
    assert seen == ["GET /v1/videos/v0", POST]


def test_a_killed_run_finds_its_video_again() -> None:
    """RESUME: the second execution creates no job, and pays what an uninterrupted run pays."""
    seen: list[str] = []
    dying = trio.CancelScope()

    def respond(request: Seen) -> Answer | None:
        seen.append(f"{request.method} {request.target}")
        if len(seen) == 2:
            dying.cancel()
            return None
        return {POST: RUNNING, POLL: DONE, CONTENT: VIDEO}[seen[-1]]

    async def execute(url: str, journal: MemoryJournal) -> list[trioeval.Row]:
        rows: list[trioeval.Row] = []

        async def emit(row: trioeval.Row) -> None:
            rows.append(row)
            await trio.lowlevel.checkpoint()

        suite = trioeval.parse_suite(
            {"providers": [sora(url)], "prompts": ["a {{x}}"], "tests": [{"vars": {"x": "cat"}}]}
        )
        await run_with_options(suite, RunOptions(emit=emit, journal=journal))
        return rows

    async def main() -> None:
        async with serve(respond) as server:
            first = MemoryJournal()
            with dying:
                await execute(server.url, first)
            second = first.cut(10**9)
            [row] = await execute(server.url, second)
            assert seen == [POST, POLL, POLL, CONTENT]
            assert row.reply is not None
            assert (row.reply.media[0].mime_type, row.reply.cost) == ("video/mp4", 0.8)
            third = second.cut(10**9)
            [call] = [one for one in second.writes if isinstance(one, CallRecord)]
            assert third.job(call.key).find() is None

    trio.run(main)


def test_the_store_has_the_job_until_it_is_dropped(tmp_path: Path) -> None:
    """It is found by the same call of the same row, in this execution and the next one."""
    path = tmp_path / "r.db"

    async def execution(body: Callable[[Any], Any], *, first: bool = False) -> None:
        async with open_store(path) as store:
            run = store.begin(start_of()) if first else await store.resume("eval-1", start_of())
            await body(run)

    async def begin(run: Any) -> None:
        job = run.job(KEY)
        assert job.find() is None
        await job.keep("models/veo/operations/1")
        assert run.job(KEY).find() == "models/veo/operations/1"

    async def find(run: Any, name: str | None, *, drop: bool) -> None:
        await trio.lowlevel.checkpoint()
        assert run.job(KEY).find() == name
        assert run.job(attrs.evolve(KEY, row="r1")).find() is None
        assert run.job(attrs.evolve(KEY, question=b"r" * 16)).find() is None
        if drop:
            run.job(KEY).drop()
            assert run.job(KEY).find() is None

    async def main() -> None:
        await execution(begin, first=True)
        await execution(partial(find, name="models/veo/operations/1", drop=False))
        await execution(partial(find, name="models/veo/operations/1", drop=True))
        await execution(partial(find, name=None, drop=True))

    trio.run(main)
