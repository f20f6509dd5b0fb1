"""Veo: operations that are polled and downloaded, at the Gemini API and at Vertex."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, redirect, serve

from trioeval import load_suite
from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import Reply, Request, open_providers, resolve
from trioeval.providers.fake.media import picture
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.resolve import ProviderSpec
from trioeval.templates import Templates

pytestmark = pytest.mark.network

MP4 = b"\0\0\0\x18ftypisom" + bytes(12)
MODEL = "veo-3.1-generate-preview"
NAME = f"models/{MODEL}/operations/op1"
RUNNING = {"name": NAME}
VIDEO = "https://generativelanguage.googleapis.com/v1beta/files/abc:download?alt=media"
IMAGE = b64encode(picture("a cat")).decode()
POST = f"POST /v1beta/models/{MODEL}:predictLongRunning"
POLL = f"GET /v1beta/{NAME}"
DOWNLOAD = "GET /v1beta/files/abc:download?alt=media"
TOKEN = {"authorization": "Bearer ya29.token"}


def encoded(data: bytes) -> str:
    """Base64."""
    return b64encode(data).decode()


def ended(*uris: str, **response: Any) -> dict[str, Any]:
    """Return a finished operation of the Gemini API."""
    samples = [{"video": {"uri": uri}} for uri in uris]
    videos = {"generatedSamples": samples, **response}
    return {"name": NAME, "done": True, "response": {"generateVideoResponse": videos}}


def spec_of(entry: str = f"google:video:{MODEL}", **config: Any) -> ProviderSpec:
    """Return the spec of an entry."""
    environ = {"GEMINI_API_KEY": "key-12345678", "GOOGLE_CLOUD_PROJECT": "proj-1"}
    return resolve(
        entry, config, environ=environ, directory=Path(), templates=Templates(), custom={}
    )


def problems(entry: str = f"google:video:{MODEL}", **config: Any) -> list[str]:
    """Return the problems of an entry."""
    with pytest.raises(SuiteError) as caught:
        spec_of(entry, **config)
    return [str(one) for one in caught.value.problems]


def sent(entry: str = f"google:video:{MODEL}", **config: Any) -> tuple[str, Any]:
    """Return the URL and the body of a request."""
    settings = spec_of(entry, **config).settings
    assert isinstance(settings, AdapterSettings)
    request = settings.adapter.build(Request(prompt="a cat"))
    return request.url, json.loads(request.body or b"")


def asked(
    answers: Sequence[Answer], entry: str = f"google:video:{MODEL}", **config: Any
) -> tuple[Reply | ProviderError, list[Seen]]:
    """Return the reply to a prompt or its failure, and the requests."""
    left = [*answers]

    async def main() -> tuple[Reply | ProviderError, list[Seen]]:
        async with serve(lambda _: left.pop(0)) as server:
            spec = spec_of(entry, apiBaseUrl=server.url, pollIntervalMs=1, **config)
            async with open_providers([spec], Templates()) as [provider]:
                try:
                    return await provider(Request(prompt="a cat")), server.seen
                except ProviderError as error:
                    return error, server.seen

    return trio.run(main)


def steps(seen: Sequence[Seen]) -> list[str]:
    """Return method and path of each request."""
    return [f"{one.method} {one.target}" for one in seen]


def test_a_video_is_created_polled_and_downloaded() -> None:
    """The address in the reply names only the file: its host is never called."""
    evil = VIDEO.replace("generativelanguage.googleapis.com", "169.254.169.254")
    answers = [
        as_json(RUNNING),
        as_json({"error": {"code": 503}}, 503),
        as_json({**RUNNING, "metadata": {"progress": 50}}),
        as_json(ended(evil)),
        Answer(500),
        Answer(200, MP4),
    ]
    reply, seen = asked(answers, durationSeconds=4)
    assert isinstance(reply, Reply)
    assert steps(seen) == [POST, POLL, POLL, POLL, DOWNLOAD, DOWNLOAD]
    assert {one.headers["x-goog-api-key"] for one in seen} == {"key-12345678"}
    assert (reply.media[0].mime_type, reply.media[0].read()) == ("video/mp4", MP4)
    assert reply.output == reply.media[0].uri
    assert reply.cost == pytest.approx(1.6)
    shown = {name: reply.metadata[name] for name in ("operationName", "videoUri", "resolution")}
    assert shown == {"operationName": NAME, "videoUri": evil, "resolution": "720p"}


def test_a_redirect_of_the_download_gets_no_key() -> None:
    """Files of the service may be at another host."""

    async def main() -> None:
        async with serve(lambda _: Answer(200, MP4)) as files:
            moved = redirect(302, f"{files.url}/x?signed=1")
            left = [as_json(ended(VIDEO)), moved]
            async with serve(lambda _: left.pop(0)) as server:
                spec = spec_of(apiBaseUrl=server.url, pollIntervalMs=1)
                async with open_providers([spec], Templates()) as [provider]:
                    reply = await provider(Request(prompt="a cat"))
            assert reply.media[0].read() == MP4
            [seen] = files.seen
            assert "x-goog-api-key" not in seen.headers

    trio.run(main)


@pytest.mark.parametrize(
    ("body", "kind", "fault"),
    [
        ({"name": NAME, "done": True, "error": {"code": 3, "message": "no"}}, "bad_request", "no"),
        (
            {"name": NAME, "done": True, "error": {"code": 8, "message": "later"}},
            "rate_limited",
            "later",
        ),
        ({"name": NAME, "done": True, "error": {"code": 13, "message": "x"}}, "server", "x"),
        ({"done": True, "error": "broken"}, "server", "broken"),
        (ended(), "empty_reply", "the reply has no video"),
        (ended("https://elsewhere.example/v.mp4"), "malformed_reply", "is not a file of the"),
        ({"predictions": []}, "malformed_reply", "the reply is not an operation"),
    ],
)
def test_an_operation_without_a_video_is_an_error(
    body: Mapping[str, Any], kind: str, fault: str
) -> None:
    """Its code decides whether the lane tries again."""
    error, _ = asked([as_json(body)])
    assert isinstance(error, ProviderError)
    assert (error.kind, fault in str(error)) == (kind, True)


def test_a_filtered_video_is_a_refusal() -> None:
    """It is a reply, not an error."""
    reasons = ["unsafe"]
    reply, _ = asked([as_json(ended(raiMediaFilteredReasons=reasons))])
    assert isinstance(reply, Reply)
    assert (reply.refusal, reply.finish_reason, reply.media) == ("unsafe", "content_filter", ())


def test_a_video_that_takes_too_long_is_an_error() -> None:
    """The limit has its own key, in both spellings."""
    error, _ = asked([as_json(RUNNING)] * 9999, maxPollTimeMs=50)
    assert isinstance(error, ProviderError)
    assert error.kind == "attempt_timeout"


def test_the_parameters_have_promptfoos_defaults() -> None:
    """All images are inputs of the instance, with the type of their bytes."""
    _, body = sent()
    assert body == {
        "parameters": {"aspectRatio": "16:9", "resolution": "720p", "durationSeconds": 8},
        "instances": [{"prompt": "a cat"}],
    }
    url, body = sent(
        aspectRatio="9:16",
        duration=6,
        negativePrompt="dogs",
        personGeneration="allow_adult",
        seed=7,
        image=f"data:image/jpeg;base64,{IMAGE}",
        lastImage=IMAGE,
        referenceImages=[IMAGE, {"image": IMAGE, "referenceType": "style"}],
    )
    inline = {"bytesBase64Encoded": IMAGE, "mimeType": "image/png"}
    assert url.endswith(f"/v1beta/models/{MODEL}:predictLongRunning")
    assert body["parameters"] == {
        "aspectRatio": "9:16",
        "resolution": "720p",
        "durationSeconds": 6,
        "negativePrompt": "dogs",
        "personGeneration": "allow_adult",
        "seed": 7,
    }
    assert body["instances"] == [
        {
            "prompt": "a cat",
            "image": inline,
            "lastFrame": inline,
            "referenceImages": [
                {"image": inline, "referenceType": "asset"},
                {"image": inline, "referenceType": "style"},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("entry", "config", "fault"),
    [
        (MODEL, {"aspectRatio": "4:3"}, '.config.aspectRatio: must be 16:9 or 9:16, got "4:3"'),
        (MODEL, {"durationSeconds": 5}, "must be one of 4, 6, 8 for veo-3.1-generate-preview"),
        ("veo-2.0-generate-001", {"duration": 4}, ".config.duration: must be one of 5, 6, 8"),
        ("veo-2.0-generate-001", {"resolution": "1080p"}, "must be 720p for veo-2.0-generate"),
        (
            "veo-3.0-generate-001",
            {"resolution": "1080p", "aspectRatio": "9:16"},
            "must be 720p for veo-3.0-generate-001 with the ratio 9:16",
        ),
        (MODEL, {"image": encoded(MP4)}, ".config.image: must be an image in base64"),
        (MODEL, {"image": "cat.png"}, ".config.image: must be an image in base64"),
        (MODEL, {"referenceImages": [IMAGE] * 4}, "a list of at most 3 images"),
        (MODEL, {"sourceVideo": NAME}, ".config.sourceVideo: must be the https:// address"),
        (MODEL, {"extendVideoId": NAME}, ".config.extendVideoId: must be the https:// address"),
        (
            MODEL,
            {"sourceVideo": VIDEO, "durationSeconds": 4},
            ".config.durationSeconds: must be 8 for a video that is extended",
        ),
        (MODEL, {"passthrough": {"instances": []}}, "must be an object without instances"),
    ],
)
def test_a_value_that_the_model_does_not_have_is_refused(
    entry: str, config: Mapping[str, Any], fault: str
) -> None:
    """Before anything is paid."""
    [problem] = problems(f"google:video:{entry}", **config)
    assert fault in problem


def test_a_video_is_extended_by_its_address() -> None:
    """It costs the seconds that are added."""
    _, body = sent(sourceVideo=VIDEO)
    assert body["instances"][0]["video"] == {"uri": VIDEO}
    assert body["parameters"]["durationSeconds"] == 8
    reply, _ = asked([as_json(ended(VIDEO)), Answer(200, MP4)], extendVideoId=VIDEO)
    assert isinstance(reply, Reply)
    assert reply.cost == pytest.approx(2.8)


def test_an_image_may_be_a_file_of_the_suite(tmp_path: Path) -> None:
    """Its bytes are sent."""
    (tmp_path / "cat.png").write_bytes(picture("a cat"))
    file = tmp_path / "suite.yaml"
    entry = {"id": f"google:video:{MODEL}", "config": {"image": "file://cat.png"}}
    file.write_text(json.dumps({"providers": [entry], "prompts": ["Hi"], "tests": [{"vars": {}}]}))
    [found] = load_suite(file).providers
    assert found.config == {"image": f"data:image/png;base64,{IMAGE}"}


VERTEX = "vertex:video:veo-3.1-generate-001"
PLACE = "/v1/projects/proj-1/locations/us-central1/publishers/google/models/veo-3.1-generate-001"


def test_vertex_fetches_the_operation_and_returns_the_bytes() -> None:
    """The body has no address, and the raw reply no bytes."""
    name = f"{PLACE[4:]}/operations/op1"
    video = {"bytesBase64Encoded": encoded(MP4), "mimeType": "video/mp4"}
    done = {"name": name, "done": True, "response": {"videos": [video]}}
    answers = [as_json({"name": name}), as_json({"name": name}), as_json(done)]
    reply, seen = asked(answers, VERTEX, headers=TOKEN)
    assert isinstance(reply, Reply)
    fetch = f"POST {PLACE}:fetchPredictOperation"
    assert steps(seen) == [f"POST {PLACE}:predictLongRunning", fetch, fetch]
    assert json.loads(seen[1].body) == {"operationName": name}
    assert reply.media[0].read() == MP4
    assert encoded(MP4) not in json.dumps(reply.raw)
    assert reply.cost == pytest.approx(3.2)
    filtered = {"name": name, "done": True, "response": {"raiMediaFilteredReasons": ["unsafe"]}}
    reply, _ = asked([as_json(filtered)], VERTEX, headers=TOKEN)
    assert isinstance(reply, Reply)
    assert reply.refusal == "unsafe"


def test_vertex_extends_a_video_by_its_bytes_or_its_place() -> None:
    """The length is the service's."""
    _, body = sent(VERTEX, sourceVideo="gs://b/v.mp4", durationSeconds=6)
    assert body["instances"][0]["video"] == {"gcsUri": "gs://b/v.mp4", "mimeType": "video/mp4"}
    assert body["parameters"] == {"aspectRatio": "16:9", "resolution": "720p"}
    _, body = sent(VERTEX, sourceVideo=encoded(MP4))
    inline = {"bytesBase64Encoded": encoded(MP4), "mimeType": "video/mp4"}
    assert body["instances"][0]["video"] == inline
    [problem] = problems(VERTEX, extendVideoId="v1")
    assert "Vertex extends no videos by their ids; use sourceVideo" in problem
    [problem] = problems(VERTEX, sourceVideo=f"{PLACE[4:]}/operations/op1")
    assert "must be a gs:// address, a video in base64, or file://<path>" in problem


def test_vertex_is_called_for_the_prefix_google_on_request() -> None:
    """`vertexai: true` is promptfoo's key for it."""
    url, _ = sent(f"google:video:{MODEL}", vertexai=True, region="europe-west4")
    host = "https://europe-west4-aiplatform.googleapis.com/v1/projects/proj-1"
    assert url.startswith(f"{host}/locations/europe-west4/publishers/google/models/veo")


def test_imagen_of_vertex_returns_predictions() -> None:
    """Its region is us-central1 by default, and its model may be short."""
    place = "/v1/projects/proj-1/locations/us-central1/publishers/google/models"
    body = {"predictions": [{"bytesBase64Encoded": IMAGE}]}
    entry = "vertex:image:4.0-fast-generate-001"

    async def main() -> tuple[Reply, list[Seen]]:
        async with serve(lambda _: as_json(body)) as server:
            spec = spec_of(entry, apiBaseUrl=server.url, headers=TOKEN)
            async with open_providers([spec], Templates()) as [provider]:
                return await provider(Request(prompt="a cat")), server.seen

    reply, [seen] = trio.run(main)
    assert seen.target == f"{place}/imagen-4.0-fast-generate-001:predict"
    assert seen.headers["authorization"] == TOKEN["authorization"]
    assert json.loads(seen.body)["parameters"]["safetySetting"] == "block_some"
    assert (reply.media[0].mime_type, reply.cost) == ("image/png", 0.02)
    url, _ = sent("vertex:image:gemini-2.5-flash-image")
    assert url.endswith("/gemini-2.5-flash-image:generateContent")
