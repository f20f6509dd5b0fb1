"""Veo's videos: an operation that is created, polled until it is done, and downloaded.

The Gemini API returns the address of a video; only the id in it is used, so that the key goes to no other
host. Vertex returns the bytes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import quote

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Reply
from trioeval.providers.config import (
    Key,
    config_path,
    is_integer,
    is_json_list,
    is_json_object,
    is_text,
    show,
    to_snake,
)
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.http.polling import KEPT_KEYS, Polling, PollingProvider, get
from trioeval.providers.http.replies import field, is_success, objects, read_json, text
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.providers.media import decode_media, take_media
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.vendors.media_adapter import MediaAdapter
from trioeval.usage import Usage

RATIOS = ("16:9", "9:16")
MOST_REFERENCES = 3
EXTENSION_SECONDS = 7
"""Seconds by which a video is extended, whatever is requested."""
_SECONDS: Mapping[str, tuple[int, ...]] = {"veo-2": (5, 6, 8), "": (4, 6, 8)}
"""Lengths of videos in seconds, by the beginning of the model's name."""
_DEFAULT_SECONDS = 8
_ANY_SECONDS = (4, 5, 6, 8)

PRICES: Mapping[str, Mapping[str, float]] = {
    "veo-2.0": {"720p": 0.35},
    "veo-3.0": {"720p": 0.4, "1080p": 0.4},
    "veo-3.1": {"720p": 0.4, "1080p": 0.4, "4k": 0.6},
    "veo-3.1-fast": {"720p": 0.1, "1080p": 0.12, "4k": 0.3},
    "veo-3.1-lite": {"720p": 0.05, "1080p": 0.08},
}
"""US dollars for a second with sound, by the part of the model's name before `-generate`, by resolution."""

_HTTP_BY_CODE: Mapping[int, int] = {
    **dict.fromkeys((3, 9, 11), HTTPStatus.BAD_REQUEST),
    4: HTTPStatus.GATEWAY_TIMEOUT,
    5: HTTPStatus.NOT_FOUND,
    7: HTTPStatus.FORBIDDEN,
    8: HTTPStatus.TOO_MANY_REQUESTS,
    14: HTTPStatus.SERVICE_UNAVAILABLE,
    16: HTTPStatus.UNAUTHORIZED,
}
"""HTTP statuses of the codes of failed operations; all others are internal errors."""

_DOWNLOAD = re.compile(r"/(files/[\w.-]+):download(?:\?|$)")
_OPERATION = re.compile(r"(?:^projects/.+)?/operations/[^/]+$")


@attrs.frozen
class OperationPolling(Polling):
    """Operations of the Gemini API."""

    def find_unfinished(self, reply: HttpReply) -> str | None:
        """Return the name of an operation that is not done."""
        data = read_json(reply.body) if is_success(reply) else None
        name = text(data, "name")
        return name if field(data, "done") is not True and not field(data, "error") else None

    def poll(self, endpoint: Endpoint, job: str) -> HttpRequest:
        """Return the request for the operation, whose name is a path."""
        return get(endpoint, quote(job, safe="/"))

    def downloads(self, endpoint: Endpoint, answer: Reply) -> Sequence[HttpRequest]:
        """Return a request for each video that is a file of the service."""
        paths = [_DOWNLOAD.search(uri) for uri in _uris(answer.raw)]
        return [get(endpoint, f"{path[1]}:download?alt=media") for path in paths if path]


@attrs.frozen
class VertexPolling(OperationPolling):
    """Operations of Vertex, which are fetched by a method of the model, and have the bytes of videos."""

    def poll(self, endpoint: Endpoint, job: str) -> HttpRequest:
        """Return the request for the operation."""
        return HttpRequest(
            endpoint.url(f"models/{endpoint.model}:fetchPredictOperation"),
            endpoint.headers,
            json.dumps({"operationName": job}).encode(),
            max_reply_bytes=endpoint.max_reply_bytes,
        )


def _is_image(value: Any) -> bool:
    if not is_text(value):
        return False
    try:
        return decode_media(value).kind == "image"
    except ValueError:
        return False


def _is_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        named = value.get("referenceType", "asset")
        return (
            value.keys() <= {"image", "referenceType"}
            and _is_image(value.get("image"))
            and is_text(named)
        )
    return _is_image(value)


def _are_references(value: Any) -> bool:
    return is_json_list(value) and len(value) <= MOST_REFERENCES and all(map(_is_reference, value))


def _has_no_instances(value: Any) -> bool:
    return is_json_object(value) and "instances" not in value


def _is_seconds(value: Any) -> bool:
    return is_integer(value) and value in _ANY_SECONDS


_RIGHT_SECONDS = "4, 5, 6 or 8"
_RIGHT_IMAGE = "an image in base64, or file://<path>"


class VeoAdapter(MediaAdapter):
    """Veo's operations at the Gemini API: one prompt, one operation, one video."""

    call_keys = (
        Key("aspectRatio", " or ".join(RATIOS), lambda one: one in RATIOS),
        Key("resolution", "text, such as 720p", is_text),
        Key("durationSeconds", _RIGHT_SECONDS, _is_seconds),
        Key("duration", _RIGHT_SECONDS, _is_seconds),
        Key("personGeneration", "text", is_text),
        Key("negativePrompt", "text", is_text),
        Key("seed", "a whole number", is_integer),
        Key("image", _RIGHT_IMAGE, _is_image),
        Key("lastFrame", _RIGHT_IMAGE, _is_image),
        Key("lastImage", _RIGHT_IMAGE, _is_image),
        Key(
            "referenceImages",
            f"a list of at most {MOST_REFERENCES} images, or of objects with image and referenceType",
            _are_references,
        ),
        Key("sourceVideo", "text", is_text),
        Key("extendVideoId", "text", is_text),
        Key("passthrough", "an object without instances", _has_no_instances),
    )
    entry_keys = KEPT_KEYS
    other_keys = OtherKeys(sends=False)
    keeps_jobs = True
    polling: ClassVar[Polling] = OperationPolling("video", is_kept=True)
    sends_source_bytes: ClassVar[bool] = False
    """True if a video to be extended is sent, instead of its address at the service."""

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint, and the problems of values that the model does not have."""
        endpoint, problems = super().locate(service, model, values, environ)
        return endpoint, [*problems, *_model_faults(model, values)]

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - the same for every service
        layers: Sequence[Mapping[str, Any]],
    ) -> list[Problem]:
        """Return the problems of a video to be extended."""
        given = {name: value for layer in layers for name, value in layer.items()}
        return [Problem(config_path(key), fault) for key, fault in cls.source_faults(given)]

    @classmethod
    def source_faults(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the faults of a video to be extended, each with its key."""
        key = "extendVideoId" if given.get("extend_video_id") else "sourceVideo"
        source = given.get("extend_video_id") or given.get("source_video")
        if source is None:
            return
        if not source.startswith("https://") or _OPERATION.search(source):
            right = "the https:// address of a video that Veo has made: videoUri in the metadata of its reply"
            yield key, f"must be {right}, got {show(source)}"
        if _seconds(given) != _DEFAULT_SECONDS:
            yield "durationSeconds", f"must be {_DEFAULT_SECONDS} for a video that is extended"

    def connect(self, client: HttpClient) -> PollingProvider:
        """Return a provider that polls operations."""
        return PollingProvider(self, client, self.polling)

    @property
    def url(self) -> str:
        """The URL of the model's method."""
        return self.endpoint.url(f"models/{self.endpoint.model}:predictLongRunning")

    @property
    def source(self) -> str | None:
        """The video to be extended."""
        return self.given.get("extend_video_id") or self.given.get("source_video")

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the parameters, which are an object of the body."""
        given = self.named
        parameters: dict[str, Any] = {
            "aspectRatio": given.get("aspect_ratio", RATIOS[0]),
            "resolution": given.get("resolution", "720p"),
        }
        if self.source is None or not self.sends_source_bytes:
            parameters["durationSeconds"] = _seconds(given)
        for key in ("negativePrompt", "personGeneration", "seed"):
            if (value := given.get(to_snake(key))) is not None:
                parameters[key] = value
        return {"parameters": parameters, **self.passthrough}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the prompt, with images and video, as the only instance."""
        return {"instances": [{"prompt": prompt, **self.inputs}]}

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """The fields for images and for a video to be extended."""
        given = self.named
        inputs: dict[str, Any] = {}
        last = given.get("last_frame") or given.get("last_image")
        for name, image in (("image", given.get("image")), ("lastFrame", last)):
            if image is not None:
                inputs[name] = _inline(image)
        if references := given.get("reference_images"):
            inputs["referenceImages"] = [_reference(one) for one in references]
        if self.source is not None:
            inputs["video"] = self.source_field(self.source)
        return inputs

    def source_field(self, source: str) -> Mapping[str, Any]:
        """Return the field for a video to be extended."""
        return {"uri": source}

    def find_failure(self, reply: HttpReply, data: Mapping[str, Any]) -> HttpReply | None:
        """Return the error of a failed operation, with an HTTP status in place of its code."""
        error = data.get("error")
        if not error:
            return None
        if not isinstance(error, dict):
            return reply
        code = _HTTP_BY_CODE.get(error.get("code", 0), HTTPStatus.INTERNAL_SERVER_ERROR)
        return attrs.evolve(
            reply, body=json.dumps({"error": {**error, "code": int(code)}}).encode()
        )

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the finished operation; the provider adds videos that are files of the service."""
        if data.get("done") is not True:
            raise self.failure("malformed_reply", "the reply is not an operation", reply)
        found = [*_videos(data)]
        if not found:
            reasons = _reasons(data)
            if reasons:
                return Reply(refusal=reasons[0], finish_reason="content_filter")
            raise self.failure("empty_reply", "the reply has no video", reply)
        body = self.body["parameters"]
        names = ("aspectRatio", "resolution", "durationSeconds")
        metadata = {name: body[name] for name in names if name in body}
        try:
            media = tuple(
                take_media(one, name)
                for one in found
                for name in ("bytesBase64Encoded", "encodedVideo")
                if text(one, name)
            )
        except ValueError as error:
            raise self.unusable(error, reply) from None
        uris = _uris(data)
        if uris:
            metadata["videoUri"] = uris[0]
        if not media and not all(map(_DOWNLOAD.search, uris or ("",))):
            fault = "the video is not in the reply, and its address is not a file of the service"
            raise self.failure("malformed_reply", fault, reply, advice="")
        output = "\n".join(one.uri for one in media)
        return Reply(
            output=output, media=media, metadata={"operationName": data.get("name"), **metadata}
        )

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the seconds of all videos."""
        if self.endpoint.price is not None:
            return super().cost(usage, data)
        name, dash, _ = self.endpoint.model.partition("-generate")
        parameters = self.body["parameters"]
        price = PRICES.get(name, {}).get(str(parameters.get("resolution", "720p")).lower())
        if not dash or price is None or parameters.get("generateAudio") is False:
            return None
        seconds = EXTENSION_SECONDS if self.source else parameters.get("durationSeconds")
        return price * seconds * len([*_videos(data)]) if is_integer(seconds) else None


class VertexVeoAdapter(VeoAdapter):
    """Veo's operations at Vertex."""

    polling = VertexPolling("video", is_kept=True)
    sends_source_bytes = True

    @classmethod
    def source_faults(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the faults of a video to be extended, each with its key."""
        source = given.get("source_video")
        right = "sourceVideo: a gs:// address, a video in base64, or file://<path>"
        if given.get("extend_video_id") and source is None:
            yield "extendVideoId", f"Vertex extends no videos by their ids; use {right}"
        elif source is not None and not source.startswith("gs://"):
            try:
                is_video = decode_media(source).kind == "video"
            except ValueError:
                is_video = False
            if not is_video:
                yield "sourceVideo", f"must be {right.partition(': ')[2]}, got {show(source)}"

    @property
    def source(self) -> str | None:
        """The video to be extended."""
        return self.given.get("source_video")

    def source_field(self, source: str) -> Mapping[str, Any]:
        """Return the field for a video to be extended."""
        if source.startswith("gs://"):
            return {"gcsUri": source, "mimeType": "video/mp4"}
        return _inline(source)


def _seconds(given: Mapping[str, Any]) -> int:
    found = given.get("duration_seconds")
    found = given.get("duration") if found is None else found
    return _DEFAULT_SECONDS if found is None else int(found)


def _model_faults(model: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of values that a model does not have."""
    right = next(one for begin, one in _SECONDS.items() if model.startswith(begin))
    is_extension = values.get("source_video") or values.get("extend_video_id")
    for key, name in (("durationSeconds", "duration_seconds"), ("duration", "duration")):
        seconds = values.get(name)
        if _is_seconds(seconds) and seconds not in right and not is_extension:
            listed = ", ".join(map(str, right))
            yield Problem(config_path(key), f"must be one of {listed} for {model}, got {seconds}")
    resolution = values.get("resolution")
    path = config_path("resolution")
    if model.startswith("veo-2") and resolution not in (None, "720p"):
        yield Problem(path, f"must be 720p for {model}, got {show(resolution)}")
    upright = values.get("aspect_ratio") == RATIOS[1]
    is_older = model.startswith("veo-3") and not model.startswith("veo-3.1")
    if is_older and upright and resolution == "1080p":
        yield Problem(path, f"must be 720p for {model} with the ratio {RATIOS[1]}, got 1080p")


def _inline(encoded: str) -> Mapping[str, Any]:
    """Return the field for an image or video in base64; its type is that of its bytes."""
    found = decode_media(encoded)
    plain = encoded.partition(";base64,")[2] if encoded.startswith("data:") else encoded
    return {"bytesBase64Encoded": plain, "mimeType": found.mime_type}


def _reference(one: Any) -> Mapping[str, Any]:
    named = one if isinstance(one, Mapping) else {"image": one}
    kind = named.get("referenceType", "asset")
    return {"image": _inline(named["image"]), "referenceType": kind}


def _videos(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the videos in a finished operation."""
    yield from objects(data, "response", "videos")
    for one in objects(data, "response", "generateVideoResponse", "generatedSamples"):
        if isinstance(video := one.get("video"), dict):
            yield video


def _uris(data: Any) -> list[str]:
    """Return the addresses of the videos in a finished operation."""
    return [uri for one in _videos(data) if (uri := text(one, "uri") or text(one, "gcsUri"))]


def _reasons(data: Mapping[str, Any]) -> list[str]:
    """Return the reasons of the filter."""
    found = []
    for path in (("response",), ("response", "generateVideoResponse")):
        listed = field(data, *path, "raiMediaFilteredReasons")
        found += [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return found
