"""A provider over HTTP: a pure adapter, and one exchange between its two halves.

All that is known of a service's format is in the adapter's `build` and `parse`; they are tested without
a network.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Protocol, runtime_checkable

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.bounds import SLOW, has_more_marks, most_marks
from trioeval.providers.cache_key import Question
from trioeval.providers.config import Shared
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest, request_source

# Server-sent events: how services stream a reply.
#
# Pure. A stream is lines that end in LF, CR or both; an empty line ends an event. Only what providers use is
# kept of the format: the event's name and its data. Other than a browser, who reads a whole stream takes its
# end for the end of an event: services leave the last empty line out.
#
# Source: the "Server-sent events" section of the HTML standard.


_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@attrs.frozen
class ServerEvent:
    """One event of a stream."""

    data: str
    name: str = "message"


@attrs.define
class EventReader:
    r"""Cuts a stream into events, however its parts arrive, in time that grows with its length alone.

    Example:
        >>> reader = EventReader()
        >>> list(reader.feed(b"data: 1\n\nda"))
        [ServerEvent(data='1', name='message')]
        >>> list(reader.feed(b"ta: 2\r\n\r\n"))
        [ServerEvent(data='2', name='message')]
    """

    _open: list[bytes] = attrs.field(factory=list)
    """The line whose end has not come, in the parts it came in."""
    _is_first: bool = True
    """Whether no line has ended yet."""
    _after_cr: bool = False
    """Whether the last part ended in a CR, the LF of which may come with the next."""
    _data: list[str] = attrs.field(factory=list)
    _name: str = ""

    def feed(self, part: bytes) -> Iterator[ServerEvent]:
        """The events that are complete with this part of the stream."""
        if self._after_cr:
            if not part:
                return
            part = part.removeprefix(b"\n")
        self._after_cr = part.endswith(b"\r")
        *ended, rest = _LINE_END.split(part)
        if ended:
            ended[0] = b"".join((*self._open, ended[0]))
            self._open.clear()
        if rest:
            self._open.append(rest)
        for line in ended:
            if (event := self._line(line)) is not None:
                yield event

    def finish(self) -> Iterator[ServerEvent]:
        """The event that the end of the stream completes, if one is open."""
        # The first LF ends an open line, or is taken for that of a CRLF.
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> ServerEvent | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BYTE_ORDER_MARK), False
        if not line:
            event = ServerEvent("\n".join(self._data), self._name or "message")
            found = bool(self._data)
            self._data, self._name = [], ""
            return event if found else None
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None


def read_events(body: bytes) -> tuple[ServerEvent, ...]:
    r"""The events of a whole stream.

    Example:
        >>> read_events(b"data: 1")
        (ServerEvent(data='1', name='message'),)
    """
    reader = EventReader()
    return (*reader.feed(body), *reader.finish())


class Adapter(Protocol):
    """The pure half of a provider."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the requests go."""
        ...

    @property
    def streams(self) -> bool:
        """Whether replies are asked for as streams, to time their first token."""
        ...

    @property
    def show_thinking(self) -> bool:
        """Whether reasoning belongs to the output; besides the request, all that decides what is read."""
        ...

    def with_options(self, options: Mapping[str, Any], /) -> "Adapter":
        """The same with some keys of its config different.

        Raises:
            ProviderError: `bad_request`, if there is no such key, or it may not have this value.
        """
        ...

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that asks.

        Raises:
            ProviderError: `bad_request`, if the prompt cannot be sent.
        """
        ...

    def parse(self, reply: HttpReply, /) -> Reply:
        """What was answered; of a stream, all of its events.

        Raises:
            ProviderError: The reply tells of a failure, or is not what the service promises.
        """
        ...

    def speaks(self, event: ServerEvent, /) -> bool:
        """Whether an event of a stream holds a part of the answer, or of its reasoning."""
        ...


@runtime_checkable
class HasAdapter(Protocol):
    """Settings of a provider that asks one model of a service, over whatever client."""

    @property
    def adapter(self) -> Adapter:
        """What builds its requests."""
        ...


@attrs.frozen
class AdapterSettings:
    """The settings of a provider that is an adapter and nothing else."""

    adapter: Adapter

    @property
    def lane_key(self) -> str:
        """That of the endpoint."""
        return self.adapter.endpoint.lane_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those of the endpoint."""
        return self.adapter.endpoint.secrets

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator["HttpProvider"]:
        """The adapter with the client of the run."""
        yield HttpProvider(self.adapter, await shared.http())


@attrs.frozen
class HttpProvider:
    """Asks a service over HTTP."""

    adapter: Adapter
    _client: HttpClient = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. A checkpoint, unless the prompt cannot be sent.

        Raises:
            ProviderError: See `Adapter.build`, `Adapter.parse` and `HttpClient.send`; or
                `attempt_timeout`.
        """
        adapter = self.adapter
        if request.options:
            adapter = adapter.with_options(request.options)
            request = attrs.evolve(request, options={})
        ready = adapter.build(request)
        if adapter.streams:
            return await self._stream(adapter, ready)
        endpoint = adapter.endpoint
        ready = attrs.evolve(ready, max_reply_bytes=endpoint.max_reply_bytes)
        return await read_reply(adapter, await exchange(self._client, ready, endpoint.timeout))

    def cache_question(self, request: Request, /) -> Question:
        """See `Cacheable`: what the adapter sends decides, over whatever client."""
        return ask_for(self.adapter, request)

    async def _stream(self, adapter: Adapter, ready: HttpRequest) -> Reply:
        started_at = trio.current_time()
        first_at: float | None = None
        events = EventReader()

        most = most_marks(SLOW)

        def speaks(event: ServerEvent) -> bool:
            # Other lanes would wait while so many values are parsed, and no part of an answer has them.
            return not has_more_marks(event.data.encode(), most) and adapter.speaks(event)

        def listen(part: bytes) -> None:
            nonlocal first_at
            if first_at is None and any(map(speaks, events.feed(part))):
                first_at = trio.current_time()

        endpoint = adapter.endpoint
        ready = attrs.evolve(ready, max_reply_bytes=endpoint.max_reply_bytes)
        answer = await exchange(self._client, ready, endpoint.timeout, heard=listen)
        reply = await read_reply(adapter, answer)
        if first_at is None or answer.status >= HTTPStatus.BAD_REQUEST:
            return reply
        return attrs.evolve(reply, first_token=first_at - started_at)


def ask_for(adapter: Adapter, request: Request) -> Question:
    """All that decides the reply to a request.

    Raises:
        ProviderError: See `Adapter.build`.
    """
    if request.options:
        adapter = adapter.with_options(request.options)
        request = attrs.evolve(request, options={})
    endpoint = adapter.endpoint
    return Question(
        name=f"{endpoint.service.family}:{endpoint.model}",
        service=endpoint.service.family,
        request=adapter.build(request),
        account=endpoint.credential,
        reading={"showThinking": adapter.show_thinking},
    )


async def read_reply(adapter: Adapter, reply: HttpReply) -> Reply:
    """What was answered. A checkpoint only if the reply is large: others need not wait for its reading.

    Raises:
        ProviderError: See `Adapter.parse`.
    """
    if len(reply.body) < SLOW:
        return adapter.parse(reply)
    # Left alone when cancelled: it ends by itself.
    return await trio.to_thread.run_sync(adapter.parse, reply, abandon_on_cancel=True)


async def exchange(
    client: HttpClient,
    request: HttpRequest,
    timeout: float,  # noqa: ASYNC109 - declared in the suite, and told as the failure of one attempt
    *,
    heard: Callable[[bytes], object] | None = None,
) -> HttpReply:
    """One exchange within its time. Always a checkpoint.

    Args:
        client: Who sends it.
        request: What is sent.
        timeout: Seconds, > 0.
        heard: Told of each part of the body when it arrives.

    Raises:
        ProviderError: See `HttpClient.send`; or `attempt_timeout`.
    """
    with trio.move_on_after(timeout):
        return await client.send(request, heard=heard)
    source = request_source(request.method, request.url)
    msg = f"no whole reply from {source} within {timeout:g} seconds (timeoutMs)"
    raise ProviderError("attempt_timeout", msg)
