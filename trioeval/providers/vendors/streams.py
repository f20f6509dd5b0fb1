"""Replies that came as a stream, as they would have come without one.

A stream has as many parts as the answer has words, and the run waits while they are put together. So lists
grow in place, and texts are joined once, at the end.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs

from trioeval.providers.answers import failure, is_success
from trioeval.providers.config import Key, is_json_list
from trioeval.providers.endpoint import Endpoint
from trioeval.providers.server_events import ServerEvent, read_events
from trioeval.providers.wire import HttpReply

Join: TypeAlias = Callable[[Iterable[ServerEvent]], dict[str, Any] | None]
"""The object that the events of a stream tell of; None if they end too early."""


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
