"""What the adapters of vendors share: options of a call, images, request bodies and streams."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.config import Key, is_json_list, read_config
from trioeval.providers.http.adapter import ServerEvent, read_events
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.replies import failure, is_success
from trioeval.providers.http.wire import HttpReply

# Keys of an entry's config that are different for one call.
#
# They are checked as the config is, but when the call is made: a prompt or a test may bring them.


def read_options(options: Mapping[str, Any], keys: Iterable[Key]) -> dict[str, Any]:
    """The values by snake_case key; null takes away what the config says.

    Args:
        options: As a request brings them.
        keys: Those that may differ from call to call.

    Raises:
        ProviderError: `bad_request`, with everything that is wrong.

    Example:
        >>> from trioeval.providers.config import is_text
        >>> read_options({"serviceTier": "flex"}, [Key("service_tier", "text", is_text)])
        {'service_tier': 'flex'}
    """
    values, problems = read_config(options, keys)
    if problems:
        told = "; ".join(map(_tell, problems))
        raise ProviderError("bad_request", f"the options of the call are not right: {told}")
    return values


def _tell(problem: Problem) -> str:
    key = problem.path.removeprefix(".config").removeprefix(".")
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{key}: {problem.message}{hint}"


# `data:` URIs, in which prompts carry images and documents.


_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w-]+=[^;,\s]*)*;base64,([A-Za-z0-9+/=_-]+)")


@attrs.frozen
class DataUri:
    """What a `data:` URI holds."""

    media_type: str
    """As `image/png`."""
    data: str = attrs.field(repr=False)
    """In base64."""


def read_data_uri(value: Any) -> DataUri | None:
    """The parts of a text that is a `data:` URI in base64; None if it is not one.

    Example:
        >>> read_data_uri("data:image/png;base64,iVBORw==").media_type
        'image/png'
    """
    found = _DATA_URI.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else DataUri(found[1], found[2])


def read_image_url(part: Any) -> str | None:
    """The URL of a part of a chat message that is an image; None if it is no such part."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None


# Bodies of requests, most of which is the same for every call: that part is written once.


@attrs.frozen
class PreparedBody:
    """The fields of a JSON object that do not change, as text.

    Example:
        >>> PreparedBody.of({"model": "m"}).complete({"messages": []})
        b'{"model":"m","messages":[]}'
    """

    _fixed: bytes
    """Between the braces."""

    @classmethod
    def of(cls, fixed: Mapping[str, Any]) -> "PreparedBody":
        """Write what is fixed; it must be JSON."""
        return cls(_write(fixed))

    def complete(self, fields: Mapping[str, Any]) -> bytes:
        """The object with these fields behind the others; none may be there already."""
        return b"{" + b",".join(filter(None, (self._fixed, _write(fields)))) + b"}"


def _write(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()[1:-1]


Join: TypeAlias = Callable[[Iterable[ServerEvent]], dict[str, Any] | None]
"""The object that the events of a stream tell of; None if they end too early."""


# Replies that came as a stream, as they would have come without one.
#
# A stream has as many parts as the answer has words, and the run waits while they are put together. So lists
# grow in place, and texts are joined once, at the end.


@attrs.define
class Texts:
    """Members of objects that are texts, and grow.

    Example:
        >>> block, texts = {"text": "Fo"}, Texts()
        >>> texts.add(block, "text", "ur")
        >>> texts.join()
        >>> block
        {'text': 'Four'}
    """

    _parts: dict[tuple[int, str], tuple[dict[str, Any], list[str]]] = attrs.field(factory=dict)
    """By object and member: the object, and the parts of its text, the first of which it holds."""

    def add(self, whole: dict[str, Any], name: str, part: str) -> None:
        """Put a part behind a text that is there."""
        _, parts = self._parts.get((id(whole), name), (whole, []))
        if not parts or parts[0] is not whole[name]:
            parts = [whole[name]]
            self._parts[id(whole), name] = whole, parts
        parts.append(part)

    def join(self) -> None:
        """Write the texts to where they belong, unless something else came to stand there."""
        for (_, name), (whole, parts) in self._parts.items():
            if whole[name] is parts[0]:
                whole[name] = "".join(parts)
        self._parts.clear()


def _is_metrics(value: Any) -> bool:
    return value == "ttft" or (is_json_list(value) and all(one == "ttft" for one in value))


METRICS = Key("metrics", '"ttft", or a list of it', _is_metrics)
"""The key of a config that asks for streams."""


def join_stream(endpoint: Endpoint, reply: HttpReply, join: Join) -> HttpReply:
    """The reply with one object as its body; the same reply, if it is no stream.

    Written as JSON once more, so that halves of surrogate pairs from two events become one character.

    Raises:
        ProviderError: `connection`, if the stream breaks off; `malformed_reply`, if what it holds cannot
            be written.
    """
    kind = reply.headers.get("content-type", "")
    if not is_success(reply) or not kind.lower().startswith("text/event-stream"):
        return reply
    data = join(read_events(reply.body))
    if data is None:
        message = "the stream ended before the reply was complete"
        raise failure("connection", message, endpoint, reply)
    try:
        return attrs.evolve(reply, body=json.dumps(data).encode())
    except RecursionError:
        message = "the stream is nested too deeply"
        raise failure("malformed_reply", message, endpoint, reply) from None


def load_event(event: ServerEvent) -> Any:
    """The parsed data of an event, None if it is no JSON; halves of surrogate pairs stay."""
    try:
        return json.loads(event.data)
    except (ValueError, RecursionError):
        return None
