"""Jobs of services: replies that are prepared in the background, polled, and perhaps downloaded.

The service returns the name of a job at once, under which it is polled until it has ended. A job whose reply
is no longer needed is cancelled, because it would continue and charge for it; only a job whose name never
arrived cannot be cancelled.

A video is charged for when it is created, and cannot be cancelled. Such a job is *kept*: its name is recorded
with the call, a transient failure of a poll or of the download is tried again until the time is over, and a
later attempt, or a later execution of the run, polls it instead of creating another one.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

import attrs
import trio

from trioeval.errors import Fault, ProviderError, UsageError
from trioeval.providers.base import KeptJob, Reply, Request
from trioeval.providers.config import Key, is_positive
from trioeval.providers.http.adapter import Adapter, HttpProvider, read_reply
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.failures import failure_text
from trioeval.providers.http.replies import is_success, read_json, text
from trioeval.providers.http.wire import HttpReply, HttpRequest, request_source
from trioeval.providers.media import read_media

PERIOD_MS = 1000
"""Milliseconds between two polls."""

KEPT_MS, LONGEST_MS = 10_000, 600_000
"""Milliseconds between two polls of a kept job, and for all of it, if the config has no others."""

CANCEL_GRACE = 10.0
"""Maximum seconds for cancelling a job."""

_MILLISECONDS = "a number of milliseconds above 0"
KEPT_KEYS = (
    Key("poll_interval_ms", _MILLISECONDS, is_positive),
    Key("max_poll_time_ms", _MILLISECONDS, is_positive),
)
"""Config keys of kept jobs."""

_SERVER_ERROR = HTTPStatus.INTERNAL_SERVER_ERROR
_GONE = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
"""Statuses of a job that the service does not know any more."""


@attrs.frozen
class Polling:
    """One kind of job: its place at the service, and the statuses until which it is polled."""

    name: str
    """The kind of reply, for messages."""
    path: str = ""
    """The path of jobs below the base URL; a name follows, and `/cancel` after it cancels."""
    unfinished: frozenset[str] = frozenset()
    """The statuses of a job in progress."""
    is_kept: bool = attrs.field(default=False, kw_only=True)
    """True if a job is paid for when it is created: it is polled again instead of cancelled."""

    def find_unfinished(self, reply: HttpReply) -> str | None:
        """Return the name of the job that a reply describes, if that is in progress.

        Returns:
            "" if it has no name; None if nothing is unfinished.
        """
        data = read_json(reply.body) if is_success(reply) else None
        return (text(data, "id") or "") if text(data, "status") in self.unfinished else None

    def poll(self, endpoint: Endpoint, job: str) -> HttpRequest:
        """Return the request for the status of a job."""
        return get(endpoint, f"{self.path}/{quote(job, safe='')}")

    def downloads(self, endpoint: Endpoint, answer: Reply) -> Sequence[HttpRequest]:  # noqa: ARG002
        """Return the requests for the media of a job that ended; none if its reply has everything."""
        return ()


def _is_gone(reply: HttpReply) -> bool:
    return reply.status in _GONE


def get(endpoint: Endpoint, path: str) -> HttpRequest:
    """Return a GET request for a path below the base URL."""
    most = endpoint.max_reply_bytes
    return HttpRequest(endpoint.url(path), endpoint.headers, None, "GET", max_reply_bytes=most)


@attrs.frozen
class PollingProvider(HttpProvider):
    """A provider whose replies are jobs.

    A poll that fails is a failure of the call, and cancels the job, unless jobs are kept.
    """

    _polling: Polling

    async def _ask(self, adapter: Adapter, ready: HttpRequest, request: Request) -> Reply:
        polling, longest = self._polling, adapter.endpoint.timeout
        if polling.is_kept:
            longest = adapter.given.get("max_poll_time_ms", LONGEST_MS) / 1000
        with trio.move_on_after(longest):
            return await self._reply(adapter, ready, request.job if polling.is_kept else None)
        source = request_source(ready.method, ready.url)
        title = f"no finished {polling.name} within {longest:g} seconds from"
        advice = "raise max_poll_time_ms" if polling.is_kept else "raise timeoutMs"
        raise ProviderError("attempt_timeout", failure_text(title, source, advice=advice))

    async def _reply(self, adapter: Adapter, ready: HttpRequest, kept: KeptJob | None) -> Reply:
        """Return the reply of a job: of the one that an earlier attempt created, if there is one."""
        job = None if kept is None else kept.find()
        reply = None if job is None else await self._wait_ended(adapter, job)
        if reply is None or _is_gone(reply):
            reply = await self._client.send(ready)
            job = self._polling.find_unfinished(reply)
            if job:
                if kept is not None:
                    await kept.keep(job)
                reply = await self._wait_ended(adapter, job)
        is_over = is_success(reply) or _is_gone(reply)
        try:
            answer = await read_reply(adapter, reply)
            wanted = () if answer.is_refusal else self._polling.downloads(adapter.endpoint, answer)
            for one in wanted:
                is_over = False  # the media are still there if they cannot be requested
                reply = await self._downloaded(adapter, one)
                is_over = is_success(reply) or _is_gone(reply)
                answer = _with_media(adapter, answer, reply)
        except ProviderError:
            # Without a usable reply another attempt needs another job.
            if kept is not None and job and is_over:
                kept.drop()
            raise
        return answer

    async def _wait_ended(self, adapter: Adapter, job: str) -> HttpReply:
        """Return the reply with the result of a job, or with a failure."""
        polling, endpoint = self._polling, adapter.endpoint
        look = polling.poll(endpoint, job)
        has_ended = polling.is_kept
        try:
            while True:
                await self._pause(adapter)
                reply = await self._patiently(adapter, look)
                if polling.find_unfinished(reply) is None:
                    has_ended = has_ended or is_success(reply)
                    return reply
        finally:
            if not has_ended:
                stop = HttpRequest(f"{look.url}/cancel", endpoint.headers, b"{}")
                # The service must be notified even if the run is cancelled, or it continues to charge.
                with trio.move_on_after(CANCEL_GRACE, shield=True), suppress(ProviderError):
                    await self._client.send(stop)

    async def _downloaded(self, adapter: Adapter, wanted: HttpRequest) -> HttpReply:
        """Return the reply with media, after redirects; credentials are sent to the first host only."""
        from trioeval.providers.generic.http import OriginGuard, send_following

        endpoint = adapter.endpoint
        guard = OriginGuard(
            frozenset(name.lower() for name in endpoint.headers),
            frozenset(endpoint.secrets),
            elsewhere=True,
        )
        return await send_following(partial(self._patiently, adapter), wanted, guard)

    async def _pause(self, adapter: Adapter) -> None:
        default = KEPT_MS if self._polling.is_kept else PERIOD_MS
        await trio.sleep(adapter.given.get("poll_interval_ms", default) / 1000)

    async def _patiently(self, adapter: Adapter, ask: HttpRequest) -> HttpReply:
        """Return the reply to a request; for a kept job, after all transient failures."""
        while self._polling.is_kept:
            try:
                reply = await self._client.send(ask)
            except ProviderError as error:
                if error.fault is not Fault.TRANSIENT:
                    raise
            else:
                if reply.status != HTTPStatus.TOO_MANY_REQUESTS and reply.status < _SERVER_ERROR:
                    return reply
            await self._pause(adapter)
        return await self._client.send(ask)


def _with_media(adapter: Adapter, answer: Reply, content: HttpReply) -> Reply:
    if not is_success(content):
        raise adapter.billed(_failure_of(adapter, content), content)
    try:
        media = read_media(content.body)
    except UsageError as error:
        message = f"the media in the reply cannot be used: {error}"
        raise adapter.failure("malformed_reply", message, content, advice="") from None
    every = (*answer.media, media)
    return attrs.evolve(answer, output="\n".join(one.uri for one in every), media=every)


def _failure_of(adapter: Adapter, content: HttpReply) -> ProviderError:
    try:
        refused = adapter.fail(content, {})
    except ProviderError as error:
        return error
    return adapter.failure("malformed_reply", f"no media: {refused.text}", content)
