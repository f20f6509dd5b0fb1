"""The Realtime API of the fake provider: the events of a session, and its WebSocket.

A response is the chat completion for the messages so far, so the configured replies, limits and faults are
the same; a refused one is an event `error`. Spoken replies have a tone whose pitch follows from their text.
"""

import hashlib
import json
from binascii import b2a_base64
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import attrs
import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

from trioeval.providers.fake.replies import FakeReply, error_body, to_json

RATE = 24_000
"""Samples a second."""
_LENGTH = RATE // 10
_LOUD = 8000
_CHUNK_BYTES = 64 * 1024


def tone(text: str) -> bytes:
    """Return a tenth of a second of 16-bit samples; equal texts have equal tones.

    Example:
        >>> len(tone("a")), tone("a") == tone("b")
        (4800, False)
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    half = 20 + digest[0] + digest[1]
    samples = (_LOUD if place // half % 2 else -_LOUD for place in range(_LENGTH))
    return b"".join(one.to_bytes(2, "little", signed=True) for one in samples)


@attrs.define(eq=False)
class FakeSession:
    """The state of one session. Pure."""

    model: str
    _speaks: bool = True
    _messages: list[dict[str, Any]] = attrs.field(factory=list)
    _items: int = 0

    @classmethod
    def of(cls, target: str) -> "FakeSession":
        """Return the session for the target of a handshake, whose query names the model.

        Example:
            >>> FakeSession.of("/v1/realtime?model=m-1").model
            'm-1'
        """
        return cls(parse_qs(target.partition("?")[2]).get("model", [""])[0])

    def take(self, message: str) -> bytes | Sequence[dict[str, Any]]:
        """Return the events for an event of the client; for a requested response, the request of a chat."""
        try:
            event = json.loads(message)
        except (ValueError, RecursionError):
            return [_error("the event is not JSON")]
        match event:
            case {"type": "session.update", "session": {**session}}:
                self._speaks = session.get("output_modalities", ["audio"]) != ["text"]
                if session.get("instructions"):
                    self._messages[:0] = [{"role": "system", "content": session["instructions"]}]
                return [{"type": "session.updated", "session": session}]
            case {"type": "conversation.item.create", "item": {"role": str(role)} as item}:
                words = _texts(item.get("content"))
                self._messages.append({"role": role, "content": words})
                return [self._added(item)]
            case {"type": "conversation.item.create", "item": {"type": str()} as item}:
                return [self._added(item)]
            case {"type": "response.create"}:
                return to_json({"model": self.model, "messages": self._messages})
            case _:
                return [_error("the event is not supported")]

    def respond(self, answer: FakeReply) -> Iterator[str]:
        """Yield the events for a decided reply; a body that is not a completion is sent as it is."""
        try:
            data = json.loads(answer.body)
            if answer.status != HTTPStatus.OK:
                yield json.dumps({"type": "error", "error": data["error"]})
                return
            message, usage = data["choices"][0]["message"], data["usage"]
        except (ValueError, LookupError, TypeError):
            yield answer.body.decode("utf-8", "replace")
            return
        yield from map(json.dumps, self._response(data["id"], message, usage))

    def _response(
        self, name: str, message: dict[str, Any], usage: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        words, speaks = message.get("content") or message.get("refusal"), self._speaks
        yield {"type": "response.created", "response": {"id": name, "status": "in_progress"}}
        items: list[dict[str, Any]] = []
        if words:
            what = "output_audio_transcript" if speaks else "output_text"
            yield {"type": f"response.{what}.delta", "delta": words}
            part = {"type": "output_text", "text": words}
            if speaks:
                part = {"type": "output_audio", "transcript": words}
                audio = b2a_base64(tone(words), newline=False).decode()
                yield {"type": "response.output_audio.delta", "delta": audio}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        items += [
            {"type": "function_call", "call_id": call["id"], **call["function"]}
            for call in message.get("tool_calls", ())
        ]
        for item in items:
            yield {"type": "response.output_item.done", "item": item}
        completion = usage["completion_tokens"]
        heard = completion if speaks and words else 0
        counts = {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": completion,
            "total_tokens": usage["total_tokens"],
            "input_token_details": {"text_tokens": usage["prompt_tokens"], "audio_tokens": 0},
            "output_token_details": {"text_tokens": completion - heard, "audio_tokens": heard},
        }
        response = {"id": name, "status": "completed", "output": items, "usage": counts}
        yield {"type": "response.done", "response": response}

    def _added(self, item: dict[str, Any]) -> dict[str, Any]:
        self._items += 1
        return {"type": "conversation.item.added", "item": {"id": f"item_{self._items}", **item}}


def _error(message: str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(error_body(message, "invalid_request_error"))
    return {"type": "error", **error}


def _texts(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    texts = (one.get("text") for one in parts if isinstance(one, dict))
    return "".join(one for one in texts if isinstance(one, str))


@attrs.define(eq=False, repr=False)
class FakeSocket:
    """The server's side of a WebSocket whose handshake is done."""

    _stream: trio.SocketStream
    _send_all: Callable[[bytes], Awaitable[None]]
    """Sends bytes, and counts them."""
    _session: FakeSession
    _frames: Connection
    _arrived: deque[str] = attrs.field(factory=deque)
    _parts: list[str] = attrs.field(factory=list)

    @classmethod
    def of(
        cls,
        stream: trio.SocketStream,
        send_all: Callable[[bytes], Awaitable[None]],
        target: str,
        early: bytes,
    ) -> "FakeSocket":
        """Return the socket of a connection.

        Args:
            stream: The connection.
            send_all: Sends bytes.
            target: The target of the handshake.
            early: Bytes that have arrived after it.
        """
        frames = Connection(ConnectionType.SERVER, trailing_data=early)
        return cls(stream, send_all, FakeSession.of(target), frames)

    async def serve(self, respond: Callable[[bytes], Awaitable[bool]]) -> None:
        """Serve the session until the client closes it.

        Args:
            respond: Serves the request of a chat through `deliver`; False ends the session.

        Raises:
            trio.BrokenResourceError: The client has disconnected.
        """
        await self._say([json.dumps({"type": "session.created", "session": {}})])
        await self._sort()
        while True:
            while not self._arrived:
                await self._fill()
            found = self._session.take(self._arrived.popleft())
            if not isinstance(found, bytes):
                await self._say(map(json.dumps, found))
            elif not await respond(found):
                return

    async def deliver(self, answer: FakeReply, reply: Callable[[], None]) -> None:
        """Send the events of a decided reply after its delay; half of them if it is cut.

        Args:
            answer: The reply.
            reply: Called when it is about to be sent.
        """
        with trio.move_on_after(answer.delay):
            while True:
                await self._fill()
        events = [*self._session.respond(answer)]
        reply()
        await self._say(events[: len(events) // 2] if answer.is_cut else events)

    async def _say(self, messages: "Iterator[str] | Sequence[str]") -> None:
        data = b"".join(self._frames.send(TextMessage(data=one)) for one in messages)
        if data:
            await self._send_all(data)

    async def _fill(self) -> None:
        """Read more bytes."""
        data = await self._stream.receive_some(_CHUNK_BYTES)
        if not data:
            raise trio.BrokenResourceError("the client disconnected")
        self._frames.receive_data(bytes(data))
        await self._sort()

    async def _sort(self) -> None:
        """Handle the frames that have arrived."""
        for event in self._frames.events():
            match event:
                case TextMessage(data=part, message_finished=is_whole):
                    self._parts.append(part)
                    if is_whole:
                        self._arrived.append("".join(self._parts))
                        self._parts.clear()
                case BytesMessage(message_finished=True):
                    self._arrived.append("")
                case Ping():
                    await self._answer(event.response())
                case CloseConnection():
                    await self._answer(event.response())
                    raise trio.BrokenResourceError("the client closed the session")
                case _:
                    pass

    async def _answer(self, event: Event) -> None:
        await self._send_all(self._frames.send(event))
