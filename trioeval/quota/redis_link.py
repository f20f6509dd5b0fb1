"""A connection to a Redis server that is made anew whenever it is lost.

All requests of a process share it: they are written one behind another and answered in order, so a request
costs no connection and a cancelled one only leaves its answer unread. coredis' pool is not used: there a
request that is cancelled while it connects loses its place in the pool for ever, and a server that does not
answer for a while would leave none (guarded by test_a_server_that_does_not_answer_costs_no_connection).
"""

import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import attrs
import trio
from anyio.abc import ByteStream
from coredis.connection import BaseConnection, Location, TCPLocation, UnixDomainSocketLocation
from coredis.exceptions import (
    AuthenticationError,
    AuthenticationRequiredError,
    AuthorizationError,
    RedisError,
)
from coredis.pool import ConnectionPool

from trioeval.errors import QuotaError

_SCHEMES = ("redis://", "rediss://", "unix://")
_TLS = {"ssl_keyfile", "ssl_certfile", "ssl_check_hostname", "ssl_ca_certs", "ssl_cert_reqs"}
_NUMBER = re.compile(r"[0-9]{1,6}")
_ESCAPED = "in a password / ? # % are written %2F %3F %23 %25"
_REFUSED_FOR = 5.0
"""Seconds in which a server that does not know us is not asked again: each call of a run would, and who keeps
the server would take it for an attack."""
_FAILURES = (
    RedisError,
    OSError,
    trio.TooSlowError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)


# It writes tracebacks of attempts that fail, also where nobody has set up logging. We tell what failed.
logging.getLogger("coredis").addHandler(logging.NullHandler())


class _Connection(BaseConnection):
    """A connection over a stream that is open already.

    One that opens its own does not clean up if that fails.
    """

    def __init__(self, stream: ByteStream, location: Location, **settings: Any) -> None:
        super().__init__(location, **settings)
        self._opened = stream

    async def _connect(self) -> ByteStream:
        return self._opened

    def describe(self) -> str:
        return f"Redis at {self.location}"


@attrs.frozen
class _Refusal:
    """A server that answers, and wants nothing to do with us. It does not pass by itself."""

    reason: str
    hint: str
    until: float
    """The instant from which on requests are sent again."""


@attrs.define(eq=False)
class _Attempt:
    """An attempt to connect, for which any number may wait."""

    over: trio.Event = attrs.field(factory=trio.Event)
    connection: BaseConnection | None = None
    failure: str = "it was given up"
    refusal: _Refusal | None = None
    """Set if the server knows us, or our password, not."""


@attrs.define(eq=False)
class Link:
    """Sends commands, and connects when it must.

    Args:
        location: Where the server is.
        settings: Of its connections.
        request_timeout: Seconds, > 0, after which connecting, or a request, has failed.
        nursery: Where connections live, and attempts to make one: coredis turns a cancellation during one
            into an error of its own, so none may belong to whoever waits for it.
    """

    _location: Location
    _settings: dict[str, Any]
    _request_timeout: float
    _nursery: trio.Nursery
    _attempt: _Attempt | None = None
    """The last one for the connection of all requests."""
    _refusal: _Refusal | None = None
    """The last one of any attempt to connect."""

    async def request(self, command: bytes, *arguments: str | bytes | int) -> Any:
        """The answer to a command; texts of it are `str`.

        Raises:
            RedisError: The server refuses the command.
            QuotaError: `limiter_unavailable`: there is no answer, and nobody knows what became of it;
                `invalid_request`: the server refuses us.
        """
        connection = await self._connected()
        try:
            return await connection.create_request(command, *arguments, decode=True)
        except TimeoutError as error:
            # It may be dead without our knowing; behind another one the server may be there.
            connection.invalidate("no answer in time")
            raise self._unavailable(_reason(error)) from error
        except _FAILURES as error:
            if (refusal := _refusal(error)) is not None:
                raise self._refused(refusal) from error
            if isinstance(error, RedisError) and connection.usable:
                raise
            raise self._unavailable(_reason(error)) from error

    async def connect(self) -> BaseConnection:
        """Another connection, for oneself, which lives until it is invalidated or the link is closed.

        Raises:
            QuotaError: `limiter_unavailable`; `invalid_request`: the server refuses us.
        """
        attempt = self._begin()
        try:
            return await self._connection_of(attempt)
        except trio.Cancelled:
            self._nursery.start_soon(_discard, attempt)
            raise

    async def _connected(self) -> BaseConnection:
        attempt = self._attempt
        if attempt is not None and attempt.connection is not None and attempt.connection.usable:
            return attempt.connection
        if attempt is None or attempt.over.is_set():
            attempt = self._attempt = self._begin()
        return await self._connection_of(attempt)

    def _begin(self) -> _Attempt:
        if self._refusal is not None and trio.current_time() < self._refusal.until:
            raise self._refused(self._refusal)
        attempt = _Attempt()
        self._nursery.start_soon(self._make, attempt)
        return attempt

    async def _connection_of(self, attempt: _Attempt) -> BaseConnection:
        await attempt.over.wait()
        if attempt.connection is None:
            if attempt.refusal is not None:
                raise self._refused(attempt.refusal)
            raise self._unavailable(attempt.failure)
        return attempt.connection

    async def _make(self, attempt: _Attempt) -> None:
        try:
            with trio.fail_after(self._request_timeout):
                stream = await self._open()
            # Nothing is awaited between: whoever has the stream closes it.
            connection = _Connection(stream, self._location, **self._settings)
            await self._nursery.start(connection.run)
        except _FAILURES as error:
            attempt.failure, attempt.refusal = _reason(error), _refusal(error)
            self._refusal = attempt.refusal
        else:
            attempt.connection, self._refusal = connection, None
        finally:
            attempt.over.set()

    async def _open(self) -> ByteStream:
        if isinstance(self._location, UnixDomainSocketLocation):
            return await anyio.connect_unix(self._location.path)
        assert isinstance(self._location, TCPLocation)  # noqa: S101 - see `_SCHEMES`
        host, port = self._location.host, self._location.port
        context = self._settings.get("ssl_context")
        if context is None:
            return await anyio.connect_tcp(host, port)
        return await anyio.connect_tcp(
            host, port, ssl_context=context, tls_standard_compatible=False
        )

    def _unavailable(self, reason: str) -> QuotaError:
        return QuotaError("limiter_unavailable", f"{self}: {reason}")

    def _refused(self, refusal: _Refusal) -> QuotaError:
        message = f"{self} refuses us: {refusal.reason.rstrip('.')}; {refusal.hint}"
        return QuotaError("invalid_request", message)

    def __str__(self) -> str:
        user = self._settings.get("username")
        return f"Redis at {self._location}" + (f" (user {user!r})" if user else "")


def _refusal(error: BaseException) -> _Refusal | None:
    """What the server says if it does not know us, or we must not; None for whatever else went wrong."""
    cause: BaseException | None = error
    until = trio.current_time() + _REFUSED_FOR
    while cause is not None:
        match cause:
            case AuthenticationError():
                hint = "write user and password into its URL: redis://user:password@host"
                return _Refusal(_reason(error), hint, until)
            case AuthorizationError():
                hint = "its ACL must allow scripts, and the keys and channels of the namespace"
                return _Refusal(_reason(error), hint, until)
        cause = cause.__cause__
    return None


def _reason(error: BaseException) -> str:
    """What is behind a failure: coredis says "unable to connect" of all of them."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, AuthenticationRequiredError):
        return "it demands a password"
    return str(error) or "no answer in time"


async def _discard(attempt: _Attempt) -> None:
    await attempt.over.wait()
    if attempt.connection is not None:
        attempt.connection.invalidate("nobody waits for it any more")


def _read_url(url: str, request_timeout: float) -> tuple[Location, dict[str, Any]]:
    """Where a server is, and how its connections are made. Nothing of the URL is told: it may be secret.

    Raises:
        QuotaError: `invalid_request`.
    """
    wrong = _mistake(url)
    if wrong is not None:
        raise QuotaError("invalid_request", f"the URL of a Redis server {wrong}")
    try:
        # It is not used, but it reads URLs.
        pool = ConnectionPool.from_url(url, decode_components=True, stream_timeout=request_timeout)
    except OSError as error:
        message = f"the certificates of a Redis server cannot be used: {error.strerror or error}"
        raise QuotaError("invalid_request", message) from error
    assert pool.location is not None  # noqa: S101 - there is a host, or a path
    return pool.location, dict(pool.connection_kwargs)


def _mistake(url: str) -> str | None:
    """What is wrong with the URL of a server."""
    if not url.startswith(_SCHEMES):
        return "begins with one of " + ", ".join(f"{scheme}…" for scheme in _SCHEMES)
    try:
        parts = urlsplit(url)
        port = parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        port, options = 0, []
    if port == 0:
        return f"has a port from 1 to 65535, or none, and options like ?db=0; {_ESCAPED}"
    is_unix, database = parts.scheme == "unix", parts.path.strip("/")
    if is_unix and not database:
        return "has a path behind unix://, as unix:///run/redis.sock"
    if not is_unix and not parts.hostname:
        return f"names its host; {_ESCAPED}"
    if not is_unix and database and not _NUMBER.fullmatch(database):
        return f"has the number of a database behind its host, or nothing; {_ESCAPED}"
    known = {"db"} | (_TLS if parts.scheme == "rediss" else set())
    if parts.fragment or not {name for name, _ in options} <= known:
        return f"may have of options only {', '.join(sorted(known))}; {_ESCAPED}"
    if not all(_NUMBER.fullmatch(value) for name, value in options if name == "db"):
        return "has a number for db"
    return None


@contextlib.asynccontextmanager
async def open_link(url: str, request_timeout: float) -> AsyncIterator[Link]:
    """A link to a server, which need not be there yet: it is connected to when something is asked.

    Args:
        url: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, or `unix:///path[?db=…]`.
        request_timeout: Seconds, > 0, after which connecting, or a request, has failed.

    Raises:
        QuotaError: `invalid_request`: the URL is none of these, or says what is not known.
    """
    location, settings = _read_url(url, request_timeout)

    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield Link(location, settings, request_timeout, nursery)
        except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
            failure = error
        finally:
            nursery.cancel_scope.cancel("the link to Redis is closed")
    if failure is not None:
        raise failure
