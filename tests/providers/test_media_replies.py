"""Images, audio and video of providers: requests, replies, costs, and replies that must not be trusted."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, serve

from trioeval.errors import ProviderError, UsageError
from trioeval.providers import OpenProvider, Reply, Request, open_providers, resolve
from trioeval.providers.base import Media
from trioeval.providers.fake.media import picture
from trioeval.providers.local.record import record_call
from trioeval.providers.local.recordings import parse_recordings
from trioeval.providers.media import (
    decode_media,
    file_names,
    from_json,
    locate,
    media_type,
    pcm_to_wav,
    read_media,
    with_bytes,
)
from trioeval.templates import Templates

pytestmark = pytest.mark.network

PNG = picture("a cat")
CAT = read_media(PNG)
MP4 = b"\0\0\0\x18ftypisom" + bytes(12)
MP3 = b"ID3" + bytes(20)


def encoded(data: bytes) -> str:
    """Base64."""
    return b64encode(data).decode()


@asynccontextmanager
async def opened(
    entry: str, answers: Mapping[str, Answer | list[Answer]], **config: Any
) -> AsyncGenerator[tuple[OpenProvider, list[Seen]]]:
    """Open a provider against a server that answers by path; a list is one answer after the other."""
    templates = Templates()

    def respond(seen: Seen) -> Answer | None:
        found = answers[seen.target.partition("?")[0]]
        return found.pop(0) if isinstance(found, list) else found

    async with serve(respond) as server:
        base = server.url if entry.startswith("google") else f"{server.url}/v1"
        spec = resolve(
            entry,
            {"apiBaseUrl": base, "apiKey": "sk-1", **config},
            environ={},
            directory=Path(),
            templates=templates,
            custom={},
        )
        async with open_providers([spec], templates) as [provider]:
            yield provider, server.seen


def asked(
    entry: str, answers: Mapping[str, Answer | list[Answer]], prompt: str = "a cat", **config: Any
) -> tuple[Reply, list[Seen]]:
    """Return the reply to a prompt, and the requests."""

    async def main() -> tuple[Reply, list[Seen]]:
        with trio.fail_after(30):
            async with opened(entry, answers, **config) as (provider, seen):
                return await provider(Request(prompt=prompt)), seen

    return trio.run(main)


def refused(
    entry: str, answers: Mapping[str, Answer | list[Answer]], **config: Any
) -> ProviderError:
    """Return the failure of a request."""

    async def main() -> ProviderError:
        with trio.fail_after(30):
            async with opened(entry, answers, **config) as (provider, _):
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="a cat"))
                return caught.value

    return trio.run(main)


IMAGES = "/v1/images/generations"


def test_an_image_is_requested_in_base64_and_its_uri_is_the_output() -> None:
    """Neither the output nor the raw body has its bytes; the cost is that of the table."""
    body = {"created": 1, "data": [{"b64_json": encoded(PNG), "revised_prompt": "a grey cat"}]}
    reply, (seen,) = asked(
        "openai:image:dall-e-3", {IMAGES: as_json(body)}, quality="hd", size="1792x1024"
    )
    assert json.loads(seen.body) == {
        "model": "dall-e-3",
        "n": 1,
        "size": "1792x1024",
        "quality": "hd",
        "response_format": "b64_json",
        "prompt": "a cat",
    }
    assert reply.output == CAT.uri == f"trioeval://media/{CAT.sha256}.png"
    assert reply.media == (CAT,)
    assert reply.media[0].read() == PNG
    assert reply.cost == pytest.approx(0.12)
    assert reply.raw["data"][0]["b64_json"] == CAT.uri
    assert reply.metadata["revisedPrompts"] == ["a grey cat"]


def test_gpt_image_counts_tokens_and_costs_by_quality_and_number() -> None:
    """These models refuse the key response_format, and return base64 anyway."""
    usage = {"input_tokens": 5, "output_tokens": 272, "total_tokens": 277}
    body = {"data": [{"b64_json": encoded(PNG)}, {"b64_json": encoded(MP4)}], "usage": usage}
    answers = {IMAGES: as_json(body)}
    reply, (seen,) = asked("openai:image:gpt-image-1", answers, quality="low", n=2)
    assert "response_format" not in json.loads(seen.body)
    assert reply.usage.prompt == 5
    assert reply.usage.completion == 272
    assert reply.cost == pytest.approx(0.022)
    assert reply.output.splitlines() == [one.uri for one in reply.media]
    assert [one.kind for one in reply.media] == ["image", "video"]  # whatever was requested
    priced = {"input": 5, "output": 40}
    reply, _ = asked("openai:image:gpt-image-1", answers, quality="low", n=2, price=priced)
    assert reply.cost == pytest.approx((5 * 5 + 272 * 40) / 1e6)


@pytest.mark.parametrize(
    ("image", "fault"),
    [
        ({"b64_json": "%%%"}, "not valid base64"),
        ({"b64_json": "iVBORw0KGgo=="}, "not valid base64"),
        ({"b64_json": encoded(b"<svg xmlns='http://www.w3.org/2000/svg'>")}, "not an image"),
        ({"b64_json": encoded(b"<!doctype html><script>")}, "not an image"),
        ({"url": "http://169.254.169.254/latest"}, "returned a URL instead"),
        ({}, "no image"),
        ({"b64_json": 5}, "no image"),
    ],
)
def test_an_image_that_cannot_be_used_is_an_error(image: Mapping[str, Any], fault: str) -> None:
    """Nothing is fetched from a URL in a reply."""
    error = refused("openai:image:gpt-image-1", {IMAGES: as_json({"data": [image]})})
    assert error.kind == "malformed_reply"
    assert fault in str(error)


def test_a_reply_larger_than_the_limit_is_an_error() -> None:
    """The limit of media is higher than that of texts, and maxResponseBytes changes it."""
    body = {"data": [{"b64_json": encoded(PNG + bytes(9_000_000))}]}
    reply, _ = asked("openai:image:gpt-image-1", {IMAGES: as_json(body)})
    assert reply.media[0].size == len(PNG) + 9_000_000
    error = refused("openai:image:gpt-image-1", {IMAGES: as_json(body)}, maxResponseBytes=1_000_000)
    assert "maxResponseBytes: 1000000" in str(error)


def test_the_type_is_that_of_the_bytes_whatever_the_service_declares() -> None:
    """A JPEG that is called a PNG is a JPEG; a document that is called a PNG is refused."""
    parts: list[Any] = [
        {"text": "Here:"},
        {"inlineData": {"mimeType": "image/png", "data": encoded(MP3)}},
    ]
    path = "/v1beta/models/gemini-2.5-flash-image:generateContent"
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    reply, _ = asked("google:gemini-2.5-flash-image", {path: as_json(body)})
    assert reply.media[0].mime_type == "audio/mpeg"
    parts[1]["inlineData"] = {"mimeType": "image/png", "data": encoded(b"%PDF-1.7")}
    error = refused("google:gemini-2.5-flash-image", {path: as_json(body)})
    assert "begin with b'%PDF-1.7'" in str(error)


def test_images_of_gemini_are_requested_and_taken_out_of_the_parts() -> None:
    """The text is the output, or else the URI; the price of the image is added to that of the prompt."""
    parts: list[Any] = [{"inlineData": {"mimeType": "image/png", "data": encoded(PNG)}}]
    path = "/v1beta/models/gemini-3-pro-image:generateContent"
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 1290, "totalTokenCount": 1390}
    body = {"candidates": [{"content": {"parts": parts}}], "usageMetadata": usage}
    answers = {path: as_json(body)}
    config = {"imageAspectRatio": "16:9", "imageSize": "4K"}
    reply, (seen,) = asked("google:gemini-3-pro-image", answers, **config)
    assert json.loads(seen.body)["generationConfig"] == {
        "responseModalities": ["TEXT", "IMAGE"],
        "imageConfig": {"aspectRatio": "16:9", "imageSize": "4K"},
    }
    assert reply.output == reply.text == CAT.uri
    assert reply.cost == pytest.approx(0.24 + 100 * 2 / 1e6)
    assert encoded(PNG) not in json.dumps(reply.raw)
    parts.insert(0, {"text": "A cat."})
    reply, _ = asked("google:gemini-3-pro-image", {path: as_json(body)})
    assert (reply.output, reply.media) == ("A cat.", (CAT,))


def test_audio_of_gemini_without_a_header_becomes_a_wav_file() -> None:
    """The rate is in the declared type."""
    inline = {"mimeType": "audio/L16;codec=pcm;rate=16000", "data": encoded(bytes(8))}
    path = "/v1beta/models/gemini-2.5-flash-preview-tts:generateContent"
    body = {"candidates": [{"content": {"parts": [{"inlineData": inline}]}}]}
    reply, _ = asked(
        "google:gemini-2.5-flash-preview-tts",
        {path: as_json(body)},
        responseModalities=["AUDIO"],
    )
    assert reply.media[0].read() == pcm_to_wav(bytes(8), 16000)


def test_imagen_returns_predictions() -> None:
    """The number and the shape of the images are parameters."""
    path = "/v1beta/models/imagen-4.0-fast-generate-001:predict"
    body = {"predictions": [{"bytesBase64Encoded": encoded(PNG), "mimeType": "image/png"}]}
    reply, (seen,) = asked(
        "google:image:imagen-4.0-fast-generate-001", {path: as_json(body)}, aspectRatio="1:1"
    )
    sent = json.loads(seen.body)
    assert sent["instances"] == [{"prompt": "a cat"}]
    assert sent["parameters"]["sampleCount"] == 1
    assert (reply.output, reply.cost) == (CAT.uri, 0.02)
    filtered = {"predictions": [{"raiFilteredReason": "unsafe"}]}
    reply, _ = asked("google:image:4.0-fast-generate-001", {path: as_json(filtered)})
    assert reply.refusal == "unsafe"


def test_speech_is_the_body_of_the_reply() -> None:
    """It costs by the characters of the prompt."""
    speech = Answer(200, MP3, {"content-type": "text/html"})
    reply, (seen,) = asked("openai:tts:tts-1", {"/v1/audio/speech": speech}, format="mp3")
    assert json.loads(seen.body) == {
        "model": "tts-1",
        "voice": "alloy",
        "response_format": "mp3",
        "input": "a cat",
    }
    assert reply.media[0].mime_type == "audio/mpeg"
    assert reply.output == reply.media[0].uri
    assert reply.cost == pytest.approx(5 * 15e-6)
    samples = Answer(200, bytes(8), {})
    path = {"/v1/audio/speech": samples}
    reply, _ = asked("openai:speech:gpt-4o-mini-tts", path, response_format="pcm")
    assert reply.media[0].read() == pcm_to_wav(bytes(8), 24000)
    assert reply.cost is None
    error = refused("openai:tts:tts-1", {"/v1/audio/speech": Answer(200, b"<html>", {})})
    assert error.kind == "malformed_reply"


def test_the_image_tool_of_responses_returns_media() -> None:
    """Its image stands in the output as a URI."""
    call = {"type": "image_generation_call", "id": "ig_1", "result": encoded(PNG)}
    body = {"id": "r1", "status": "completed", "output": [call]}
    reply, _ = asked("openai:responses:gpt-5", {"/v1/responses": as_json(body)})
    assert (reply.output, reply.text, reply.media) == (CAT.uri, CAT.uri, (CAT,))


def test_a_video_is_polled_and_downloaded() -> None:
    """A job that was paid for outlives failures of polls and of the download."""
    job = {"id": "video_1", "model": "sora-2", "size": "1280x720", "seconds": "4"}
    answers: dict[str, Answer | list[Answer]] = {
        "/v1/videos": as_json({**job, "status": "queued"}),
        "/v1/videos/video_1": [
            as_json({"error": {"message": "later"}}, 503),
            as_json({**job, "status": "in_progress"}),
            as_json({**job, "status": "completed"}),
        ],
        "/v1/videos/video_1/content": [
            Answer(500),
            Answer(200, MP4, {"content-type": "video/mp4"}),
        ],
    }
    reply, seen = asked("openai:video:sora-2", answers, seconds=4, poll_interval_ms=1)
    assert [one.method for one in seen] == ["POST", *5 * ["GET"]]
    assert reply.media[0].mime_type == "video/mp4"
    assert reply.output == reply.media[0].uri
    assert reply.cost == pytest.approx(0.4)


def test_a_video_that_failed_or_takes_too_long_is_an_error() -> None:
    """The time of the job has its own limit."""
    failed = {"id": "v", "status": "failed", "error": {"code": "x", "message": "no video"}}
    error = refused("openai:video:sora-2", {"/v1/videos": as_json(failed)})
    assert "no video" in str(error)
    running = as_json({"id": "v", "status": "in_progress"})
    error = refused(
        "openai:video:sora-2",
        {"/v1/videos": running, "/v1/videos/v": running},
        poll_interval_ms=1,
        max_poll_time_ms=50,
    )
    assert error.kind == "attempt_timeout"
    assert "raise max_poll_time_ms" in str(error)


def test_a_cancelled_video_ends_at_once() -> None:
    """Cancellation is not a failure."""
    running = as_json({"id": "v", "status": "in_progress"})

    async def main() -> None:
        async with opened("openai:video:sora-2", {"/v1/videos": running}) as (provider, _):
            with trio.move_on_after(0.2) as scope:
                await provider(Request(prompt="a cat"))
            assert scope.cancelled_caught

    trio.run(main)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", "audio/wav"),
        (b"RIFF\0\0\0\0AVI ", None),
        (b"\xff\xfb\x90", "audio/mpeg"),
        (b"\xff\xf1\x50", "audio/aac"),
        (b"\0\0\0\x18ftypM4A ", "audio/mp4"),
        (MP4, "video/mp4"),
        (b"\x1aE\xdf\xa3", "video/webm"),
        (b"", None),
        (b"\xff", None),
        (b"<svg/>", None),
    ],
)
def test_formats_are_recognised_by_their_first_bytes(data: bytes, found: str | None) -> None:
    """Documents that browsers run are not among them."""
    assert media_type(data) == found


def test_media_refuses_other_bytes_and_other_data() -> None:
    """Bytes of own providers are checked like those of services; stored data is checked again."""
    with pytest.raises(UsageError, match="not an image, audio or video"):
        read_media(b"text")
    facts = CAT.to_json()
    assert from_json(facts) == CAT
    for wrong in ({"sha256": "../../x"}, {"mimeType": "text/html"}, {"bytes": -1}, {"bytes": "1"}):
        with pytest.raises(ValueError, match="not valid media"):
            from_json({**facts, **wrong})
    assert file_names(f"{CAT.uri} {CAT.uri} trioeval://media/../x.png") == [CAT.file]


def test_a_file_that_was_changed_is_not_read(tmp_path: Path) -> None:
    """Neither one of another size, nor one of other bytes."""
    stored = Media(CAT.mime_type, CAT.sha256, CAT.size)
    path = tmp_path / CAT.file
    with pytest.raises(ValueError, match="No such file"):
        locate([stored], tmp_path)
    path.write_bytes(PNG[:-1])
    with pytest.raises(ValueError, match=f"not {CAT.size}"):
        locate([stored], tmp_path)
    path.write_bytes(PNG[:-1] + b"x")
    locate([stored], tmp_path)
    with pytest.raises(ValueError, match="not the file that was stored"):
        stored.read()
    path.write_bytes(PNG)
    prompt = f"{CAT.uri} {CAT.uri}#data {CAT.uri}#base64"
    sent = with_bytes(Request(prompt=prompt, media=(stored,))).prompt
    assert sent == f"{CAT.uri} data:image/png;base64,{encoded(PNG)} {encoded(PNG)}"
    path.unlink()
    with pytest.raises(ProviderError, match="media cannot be sent"):
        with_bytes(Request(prompt=prompt, media=(stored,)))


def test_a_recording_has_the_bytes() -> None:
    """A replay returns the same media without any file of the recorded run."""
    reply = Reply(output=CAT.uri, media=(CAT,))
    line = record_call("m", Request(prompt="a cat"), reply, 0.1)
    (recording,), problems = parse_recordings([line.encode()], "r.jsonl")
    assert not problems
    assert recording.reply().media == (CAT,)
    assert recording.reply().media[0].read() == PNG
    _, (problem,) = parse_recordings(
        [b'{"prompt": "a", "output": "b", "media": ["data:image/png;base64,AAAA"]}'], "r.jsonl"
    )
    assert "media must be a list of data: URIs" in str(problem)


def test_a_data_uri_is_decoded_by_its_bytes() -> None:
    """The type before the comma is only a hint."""
    assert decode_media(f"data:audio/wav;base64,{encoded(PNG)}") == CAT


@pytest.mark.parametrize("kind", ["image:gpt-image-1", "speech:tts-1", "video:sora-2"])
def test_keys_without_an_effect_are_warnings(kind: str) -> None:
    """As for all other kinds."""
    config = {"apiKey": "k", "functionToolCallbacks": {}}
    spec = resolve(
        f"openai:{kind}", config, environ={}, directory=Path(), templates=Templates(), custom={}
    )
    assert [one.path for one in spec.settings.warnings] == [".config.functionToolCallbacks"]
