"""The requests that the fake provider understands: completions, images, speech and videos."""

import json
import re
from typing import Any, Literal, TypeAlias

import attrs

RequestKind: TypeAlias = Literal["chat", "images", "speech", "video", "operation"]
"""The API of a paid request; a video is a job of OpenAI's, or an operation of Google's."""

CHARACTERS_PER_TOKEN = 4
MOST_IMAGES = 10


Purpose: TypeAlias = (
    RequestKind | Literal["realtime", "job", "fetch", "content", "stats", "reset", "health"]
)
"""The API of a paid request, or the purpose of another one."""


@attrs.frozen
class Route:
    """A method and a kind of path of the fake provider."""

    method: str
    what: Purpose
    pattern: re.Pattern[str]


def _route(method: str, what: Purpose, pattern: str) -> Route:
    return Route(method, what, re.compile(pattern))


ROUTES = (
    _route("POST", "chat", "(?:/v1)?/chat/completions"),
    _route("POST", "images", "/v1/images/generations"),
    _route("POST", "speech", "/v1/audio/speech"),
    _route("POST", "video", "/v1/videos"),
    _route("GET", "job", "/v1/videos/(?P<name>[^/]+)"),
    _route("GET", "content", "/v1/videos/(?P<name>[^/]+)/content"),
    _route("GET", "realtime", "/v1/realtime"),
    _route("POST", "operation", ".*/models/(?P<name>[^/:]+):predictLongRunning"),
    _route("POST", "fetch", ".*/models/(?P<name>[^/:]+):fetchPredictOperation"),
    _route("GET", "job", ".*/models/[^/:]+/operations/(?P<name>[^/:]+)"),
    _route("GET", "content", ".*/files/(?P<name>[^/:]+):download"),
    _route("POST", "reset", "/reset"),
    _route("GET", "stats", "/stats"),
    _route("GET", "health", "/health"),
)
"""All paths; those of Google may have any version, project and region."""


def find_route(path: str) -> tuple[Route, str] | None:
    """Return the route of a path, and the model or id in it; None if there is none.

    Example:
        >>> route, name = find_route("/v1/videos/video_1/content")
        >>> route.method, route.what, name
        ('GET', 'content', 'video_1')
    """
    for route in ROUTES:
        if found := route.pattern.fullmatch(path):
            return route, found.groupdict().get("name") or ""
    return None


@attrs.frozen
class ModelRequest:
    """The relevant parts of a request."""

    model: str
    prompt: str
    """The text of the last user message."""
    tokens: int
    """Tokens of all messages."""
    kind: RequestKind = "chat"
    streams: bool = False
    """True if the reply is requested as a stream."""
    with_usage: bool = False
    """True if the stream must end with the usage."""
    images: int = 1
    """Number of images, if these are requested."""
    fields: dict[str, Any] = attrs.field(factory=dict)
    """Fields that the reply repeats: the size and the length of a video, the format of speech."""


def read_request(kind: RequestKind, body: bytes, model: str = "") -> ModelRequest | str:
    """Return the request in a body, or the fault of the body.

    Args:
        kind: The API.
        body: The body.
        model: The model in the path of an operation; all others have it in the body.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return "the body is not JSON"
    if not isinstance(data, dict):
        return "the body is not an object"
    if kind == "chat":
        return _read_chat(data)
    match kind, data:
        case "operation", {"instances": [{"prompt": str(prompt)}, *_]}:
            pass
        case "speech", {"model": str(model), "input": str(prompt)} if model:
            pass
        case "images" | "video", {"model": str(model), "prompt": str(prompt)} if model:
            pass
        case _:
            return _RIGHT_BODIES[kind]
    count = data.get("n", 1)
    if type(count) is not int or not 1 <= count <= MOST_IMAGES:
        return f"n must be a whole number from 1 to {MOST_IMAGES}"
    names = ("size", "seconds", "response_format")
    fields = {name: data[name] for name in names if isinstance(data.get(name), str)}
    return ModelRequest(model, prompt, count_tokens(prompt), kind=kind, images=count, fields=fields)


def read_operation(body: bytes) -> str:
    """Return the name of the operation that a body asks for; "" if it names none."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    name = data.get("operationName") if isinstance(data, dict) else None
    return name if isinstance(name, str) else ""


_RIGHT_BODIES = {
    "images": "the body must be an object with model and prompt, which are texts",
    "video": "the body must be an object with model and prompt, which are texts",
    "speech": "the body must be an object with model and input, which are texts",
    "operation": "the body must be an object with a list of instances, which have a prompt",
}


def _read_chat(data: dict[str, Any]) -> ModelRequest | str:
    model, messages = data.get("model"), data.get("messages")
    if not isinstance(model, str) or not model:
        return "model must be text"
    if not isinstance(messages, list) or not messages:
        return "messages must be a non-empty list"
    if not all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in messages):
        return "messages must be objects with a role"
    texts = [_text(item.get("content")) for item in messages]
    user_texts = [
        text for text, item in zip(texts, messages, strict=True) if item["role"] == "user"
    ]
    options = data.get("stream_options")
    return ModelRequest(
        model,
        user_texts[-1] if user_texts else texts[-1],
        sum(map(count_tokens, texts)),
        streams=bool(data.get("stream")),
        with_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def count_tokens(text: str) -> int:
    """Return a quarter of the number of characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
