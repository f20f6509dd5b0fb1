"""Speech and videos of the fake provider, called by the providers that call the real services."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from trioeval.errors import ProviderError
from trioeval.providers import Reply, Request, open_providers, resolve
from trioeval.providers.fake import FakeAddress, FakeSettings, serve_fake
from trioeval.providers.fake.media import MOST_VIDEOS, Videos, video
from trioeval.providers.fake.replies import FakeModel
from trioeval.providers.fake.requests import ModelRequest, find_route, read_operation, read_request
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpRequest
from trioeval.templates import Templates

pytestmark = pytest.mark.network

FAST = {"poll_interval_ms": 1}
VERTEX = {"headers": {"authorization": "Bearer t"}, "projectId": "p1", **FAST}


async def called(address: FakeAddress, entry: str, prompt: str = "a cat", **config: Any) -> Reply:
    """Return the reply to a prompt."""
    base = address.base_url if entry.startswith("openai") else address.url
    spec = resolve(
        entry,
        {"apiBaseUrl": base, **config},
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    async with open_providers([spec], Templates()) as [provider]:
        return await provider(Request(prompt=prompt))


@pytest.mark.parametrize(
    ("entry", "config", "mime"),
    [
        ("openai:tts:tts-1", {}, "audio/wav"),
        ("openai:speech:tts-1", {"response_format": "pcm"}, "audio/wav"),
        ("openai:video:sora-2", {"seconds": 4, **FAST}, "video/mp4"),
        ("google:video:veo-3.1-generate-preview", FAST, "video/mp4"),
        ("vertex:video:veo-3.1-generate-001", VERTEX, "video/mp4"),
    ],
)
def test_equal_prompts_have_equal_media(entry: str, config: dict[str, Any], mime: str) -> None:
    """Only creating a video is a request that counts: polls and downloads are free."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            address: FakeAddress = await nursery.start(serve_fake, FakeSettings(rpm=3))
            cat, again, dog = [
                await called(address, entry, prompt, **config)
                for prompt in ("a cat", "a cat", "a dog")
            ]
            assert [one.mime_type for one in cat.media] == [mime]
            assert cat.media == again.media
            assert cat.media != dog.media
            async with open_http() as client:
                stats = await client.send(HttpRequest(f"{address.url}/stats", {}, None, "GET"))
            assert json.loads(stats.body)["requests"] == 3
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_limits_and_faults_apply_to_media() -> None:
    """As to completions."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            address: FakeAddress = await nursery.start(serve_fake, FakeSettings(failure_rate=1))
            for entry in ("openai:tts:tts-1", "openai:video:sora-2"):
                with pytest.raises(ProviderError) as caught:
                    await called(address, entry)
                assert caught.value.kind == "server"
            nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/videos/video_1", 404),
        ("GET", "/v1/videos/video_1/content", 404),
        ("GET", "/v1beta/models/m/operations/video_1", 404),
        ("POST", "/v1/projects/p/models/m:fetchPredictOperation", 404),
        ("GET", "/v1/videos", 405),
        ("POST", "/v1/audio/speech", 400),
        ("GET", "/v1/audio", 404),
    ],
)
def test_an_unknown_job_is_not_found(method: str, path: str, status: int) -> None:
    """And a body without the needed fields is refused."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            address: FakeAddress = await nursery.start(serve_fake, FakeSettings())
            async with open_http() as client:
                body = b"{}" if method == "POST" else None
                reply = await client.send(HttpRequest(f"{address.url}{path}", {}, body, method))
            assert reply.status == status
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_job_is_finished_at_its_second_poll_and_forgotten_after_many() -> None:
    """Its video is not there before."""
    videos = Videos()
    ask = ModelRequest("sora-2", "a cat", 2, kind="video")
    created = videos.create(ask, "a cat", 1)
    name = created["id"]
    looks = [videos.look(name), videos.look(name)]
    assert [one and one["status"] for one in (created, *looks)] == [
        "queued",
        "in_progress",
        "completed",
    ]
    assert videos.content(name) == video("a cat")
    for number in range(2, MOST_VIDEOS + 2):
        videos.create(ask, "a cat", number)
    assert videos.look(name) is None
    assert videos.content(f"video_fake{2:08d}") is None


def test_the_paths_of_google_have_any_version_and_place() -> None:
    """The model or the id is taken from them."""
    place = "/v1/projects/p/locations/us-central1/publishers/google/models/veo-2.0-generate-001"
    found = [find_route(f"{place}:{name}") for name in ("predictLongRunning", "generateContent")]
    assert [one and (one[0].what, one[1]) for one in found] == [
        ("operation", "veo-2.0-generate-001"),
        None,
    ]
    assert read_operation(b'{"operationName": "a/operations/b"}') == "a/operations/b"
    assert [read_operation(body) for body in (b"", b"[]", b'{"operationName": 1}')] == ["", "", ""]


@pytest.mark.parametrize(
    ("kind", "body", "fault"),
    [
        ("speech", {"model": "m"}, "model and input"),
        ("video", {"model": "", "prompt": "a"}, "model and prompt"),
        ("images", {"model": "m", "prompt": "a", "n": 11}, "n must be a whole number"),
        ("operation", {"instances": []}, "a list of instances"),
        ("operation", [], "not an object"),
    ],
)
def test_a_wrong_body_is_refused(kind: Any, body: Any, fault: str) -> None:
    """With what would be right."""
    found = read_request(kind, json.dumps(body).encode(), "m")
    assert isinstance(found, str)
    assert fault in found
    model = FakeModel.of(FakeSettings(), Random(0), 0.0)  # noqa: S311 - for a test
    assert model.begin(0.0, json.dumps(body).encode(), kind, "m").status == 400
