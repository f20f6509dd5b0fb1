"""Limits that a Redis server keeps, for many processes and machines.

Every operation, also one about many leases, is one run of one script, which is atomic on the server: nothing
happens between checking for room and taking it. Instants are the server's, so the clocks of its clients do
not matter. The server keeps all state; the holds of a killed client end by their timeout, and a restarted
client finds everything as it was.

Rejected: the client's clock (the windows of two machines would overlap by the difference of their clocks),
and optimistic transactions (under contention most attempts fail).
"""

import contextlib
import functools
import hashlib
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import resources
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

import anyio
import attrs
import orjson
import trio
from anyio.abc import ByteStream
from coredis.connection import BaseConnection, Location, TCPLocation, UnixDomainSocketLocation
from coredis.exceptions import (
    AuthenticationError,
    AuthenticationRequiredError,
    AuthorizationError,
    NoScriptError,
    RedisError,
)
from coredis.pool import ConnectionPool

from trioeval.errors import LimitError
from trioeval.limits.denials import (
    Lack,
    check_pause,
    denied,
    kind_mismatch,
    request_denial,
    requirements_mismatch,
    terminal_denial,
    unavailable,
    unknown_limit,
)
from trioeval.limits.model import (
    Decision,
    Granted,
    LeaseRequest,
    LimitState,
    Settlement,
    SharedLimit,
)
from trioeval.nurseries import open_plain_nursery

# A connection to a Redis server that is reopened whenever it is lost.
#
# All requests of a process share it: they are pipelined and answered in order, so a request costs no
# connection, and a cancelled one only leaves its answer unread. coredis' pool is not used: there a request
# that is cancelled while it connects leaks its place in the pool, and a server that does not answer for a
# while would use up all of them (guarded by test_a_server_that_does_not_answer_occupies_no_connection).


_SCHEMES = ("redis://", "rediss://", "unix://")
_TLS = {"ssl_keyfile", "ssl_certfile", "ssl_check_hostname", "ssl_ca_certs", "ssl_cert_reqs"}
_NUMBER = re.compile(r"[0-9]{1,6}")
_ESCAPED = "in a password, write / ? # % as %2F %3F %23 %25"
_REFUSED_FOR = 5.0
"""Seconds for which a server that rejected the credentials gets no requests: otherwise each call of a run
would send one, which looks like an attack."""
_FAILURES = (
    RedisError,
    OSError,
    trio.TooSlowError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)


# It logs tracebacks of failed attempts, also if logging is not configured. The failures are reported here.
logging.getLogger("coredis").addHandler(logging.NullHandler())


class _RedisConnection(BaseConnection):
    """A connection over a stream that is already open.

    A connection that opens its own stream does not clean up if that fails.
    """

    def __init__(self, stream: ByteStream, location: Location, **settings: Any) -> None:
        super().__init__(location, **settings)
        self._opened = stream

    async def _connect(self) -> ByteStream:
        return self._opened

    def describe(self) -> str:
        return f"Redis at {self.location}"


@attrs.frozen
class _ClientRejection:
    """A server's rejection of this client, which does not pass by itself."""

    reason: str
    hint: str
    until: float
    """The instant from which requests are sent again."""


@attrs.define(eq=False, repr=False)
class _ConnectionAttempt:
    """An attempt to connect, which any number of requests may wait for."""

    over: trio.Event = attrs.field(factory=trio.Event)
    connection: BaseConnection | None = None
    failure: str = "it was cancelled"
    refusal: _ClientRejection | None = None
    """Set if the server rejects the credentials or the permissions."""


@attrs.define(eq=False, repr=False)
class RedisLink:
    """A connection that sends commands, and reconnects when necessary.

    Args:
        location: The server's address.
        settings: The settings of its connections.
        request_timeout: Seconds, > 0, after which connecting, or a request, has failed.
        nursery: Runs connections, and attempts to connect: coredis turns a cancellation during an attempt
            into an error of its own, so no attempt may belong to a request that waits for it.
    """

    _location: Location
    _settings: dict[str, Any]
    _request_timeout: float
    _nursery: trio.Nursery
    _attempt: _ConnectionAttempt | None = None
    """The last attempt for the connection of all requests."""
    _refusal: _ClientRejection | None = None
    """The last rejection of any attempt to connect."""

    async def request(
        self, command: bytes, *arguments: str | bytes | int, decode: bool = True
    ) -> Any:
        """Return the answer to a command.

        Args:
            command: The command.
            *arguments: Its arguments.
            decode: Whether the texts of the answer are `str`, and not `bytes`.

        Raises:
            RedisError: The server rejects the command.
            LimitError: `limiter_unavailable`: no answer arrived, and the outcome is unknown;
                `invalid_request`: the server rejects this client.
        """
        connection = await self._connected()
        try:
            return await connection.create_request(command, *arguments, decode=decode)
        except TimeoutError as error:
            # The connection may be dead unnoticed; a new one may health the server.
            connection.invalidate("no answer in time")
            raise self._unavailable(_reason(error)) from error
        except _FAILURES as error:
            if (refusal := _refusal(error)) is not None:
                raise self._refused(refusal) from error
            if isinstance(error, RedisError) and connection.usable:
                raise
            raise self._unavailable(_reason(error)) from error

    async def connect(self) -> BaseConnection:
        """Open another connection for the caller, which lives until it is invalidated or the link is closed.

        Raises:
            LimitError: `limiter_unavailable`; `invalid_request`: the server rejects this client.
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

    def _begin(self) -> _ConnectionAttempt:
        if self._refusal is not None and trio.current_time() < self._refusal.until:
            raise self._refused(self._refusal)
        attempt = _ConnectionAttempt()
        self._nursery.start_soon(self._make, attempt)
        return attempt

    async def _connection_of(self, attempt: _ConnectionAttempt) -> BaseConnection:
        await attempt.over.wait()
        if attempt.connection is None:
            if attempt.refusal is not None:
                raise self._refused(attempt.refusal)
            raise self._unavailable(attempt.failure)
        return attempt.connection

    async def _make(self, attempt: _ConnectionAttempt) -> None:
        try:
            with trio.fail_after(self._request_timeout):
                stream = await self._open()
            # Nothing is awaited in between: the owner of the stream closes it.
            connection = _RedisConnection(stream, self._location, **self._settings)
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

    def _unavailable(self, reason: str) -> LimitError:
        return unavailable(f"{self}: {reason}")

    def _refused(self, refusal: _ClientRejection) -> LimitError:
        message = f"{self} rejects this client: {refusal.reason.rstrip('.')}; {refusal.hint}"
        return LimitError("invalid_request", message)

    def __str__(self) -> str:
        user = self._settings.get("username")
        return f"Redis at {self._location}" + (f" (user {user!r})" if user else "")


def _refusal(error: BaseException) -> _ClientRejection | None:
    """Return the server's rejection of this client; None for any other failure."""
    cause: BaseException | None = error
    until = trio.current_time() + _REFUSED_FOR
    while cause is not None:
        match cause:
            case AuthenticationError():
                hint = "write user and password into its URL: redis://user:password@host"
                return _ClientRejection(_reason(error), hint, until)
            case AuthorizationError():
                hint = "its ACL must allow scripts, and the keys and channels of the namespace"
                return _ClientRejection(_reason(error), hint, until)
        cause = cause.__cause__
    return None


def _reason(error: BaseException) -> str:
    """Return the cause of a failure: coredis reports "unable to connect" for all of them."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, AuthenticationRequiredError):
        return "it demands a password"
    return str(error) or "no answer in time"


async def _discard(attempt: _ConnectionAttempt) -> None:
    await attempt.over.wait()
    if attempt.connection is not None:
        attempt.connection.invalidate("no request waits for it")


def _read_url(url: str, request_timeout: float) -> tuple[Location, dict[str, Any]]:
    """Return the address of a server, and its connection settings. Messages omit the URL: it may be secret.

    Raises:
        LimitError: `invalid_request`.
    """
    wrong = _mistake(url)
    if wrong is not None:
        raise LimitError("invalid_request", f"the URL of a Redis server {wrong}")
    try:
        # Not connected: only its parser of URLs is used.
        pool = ConnectionPool.from_url(url, decode_components=True, stream_timeout=request_timeout)
    except OSError as error:
        message = f"the certificates of a Redis server cannot be used: {error.strerror or error}"
        raise LimitError("invalid_request", message) from error
    assert pool.location is not None  # noqa: S101 - there is a host, or a path
    return pool.location, dict(pool.connection_kwargs)


def _mistake(url: str) -> str | None:
    """Return the problem of a server's URL."""
    if not url.startswith(_SCHEMES):
        return "must begin with one of " + ", ".join(f"{scheme}…" for scheme in _SCHEMES)
    try:
        parts = urlsplit(url)
        port = parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        port, options = 0, []
    if port == 0:
        return f"must have a port from 1 to 65535, or none, and options like ?db=0; {_ESCAPED}"
    is_unix, database = parts.scheme == "unix", parts.path.strip("/")
    if is_unix and not database:
        return "must have a path after unix://, for example unix:///run/redis.sock"
    if not is_unix and not parts.hostname:
        return f"must name a host; {_ESCAPED}"
    if not is_unix and database and not _NUMBER.fullmatch(database):
        return f"may have only the number of a database after its host; {_ESCAPED}"
    known = {"db"} | (_TLS if parts.scheme == "rediss" else set())
    if parts.fragment or not {name for name, _ in options} <= known:
        return f"may have only these options: {', '.join(sorted(known))}; {_ESCAPED}"
    if not all(_NUMBER.fullmatch(value) for name, value in options if name == "db"):
        return "must have a number for db"
    return None


@contextlib.asynccontextmanager
async def open_link(url: str, request_timeout: float) -> AsyncIterator[RedisLink]:
    """Open a link to a server, which need not run yet: the link connects when a command is sent.

    Args:
        url: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, or `unix:///path[?db=…]`.
        request_timeout: Seconds, > 0, after which connecting, or a request, has failed.

    Raises:
            LimitError: `invalid_request`: the URL has another form, or unknown options.
    """
    location, settings = _read_url(url, request_timeout)
    async with open_plain_nursery() as nursery:
        try:
            yield RedisLink(location, settings, request_timeout, nursery)
        finally:
            nursery.cancel_scope.cancel("the link to Redis is closed")


_MICRO = 1_000_000
_RECONNECT = 1.0
"""Seconds between attempts to listen again."""


@functools.cache
def _script() -> tuple[str, str]:
    """Return the script that runs on the server, and its SHA-1 there."""
    text = (resources.files("trioeval.limits") / "lua" / "limits.lua").read_text(encoding="utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@attrs.define(eq=False, repr=False)
class RedisLimits:
    """The limits of one namespace on a Redis server. A `Backend`.

    Args:
        namespace: The prefix of all keys there: without braces, and not blank.
        now: Returns the instant in seconds, for tests; None for the server's clock.
    """

    _link: RedisLink
    namespace: str
    _now: Callable[[], float] | None = None

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        """Decide about each request, in order. One round trip."""
        wrong = [request_denial(ask) for ask in asks]
        sent = [ask for ask, mistake in zip(asks, wrong, strict=True) if mistake is None]
        items = [(one.lease_id, [(r.key, r.amount) for r in one.requirements]) for one in sent]
        answers = iter(await self._run("reserve", items) if sent else ())
        return [
            mistake if mistake is not None else _decision(ask, next(answers))
            for ask, mistake in zip(asks, wrong, strict=True)
        ]

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        """End leases. One round trip."""
        items = [(one.lease_id, [(a.key, a.amount) for a in one.actuals]) for one in settlements]
        await self._run("complete", items)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        """Postpone the expiry of the holds of leases. One round trip."""
        return [answer == 1 for answer in await self._run("extend", list(lease_ids))]

    async def states(self) -> Sequence[LimitState]:
        """Return all limits, by key."""
        states = [_state(row) for row in await self._run("states", [])]
        return sorted(states, key=lambda state: state.limit.key)

    async def define(self, limit: SharedLimit, /) -> LimitState:
        """Create or change a limit.

        Raises:
            LimitError: `invalid_request`: its key exists with another kind, or it is out of range.
        """
        limit.check()
        span = _micro(limit.span or 0.0)
        items = (limit.key, limit.kind, limit.capacity, span)
        labels = (limit.overage, limit.unit, limit.description)
        is_done, answer = await self._run("define", [*items, *labels])
        if not is_done:
            raise kind_mismatch(limit, answer)
        return _state(answer)

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        """Grant nothing of a limit for `seconds`; 0 resumes it.

        Raises:
            LimitError: `unknown_limit_key`; `invalid_request`: `seconds` is out of range.
        """
        return await self._pause(key, seconds, at_least=False)

    async def pause_at_least(self, key: str, seconds: float, /) -> LimitState:
        """Grant nothing of a limit for `seconds`, or until a longer pause ends.

        Raises:
            LimitError: As for `pause`.
        """
        return await self._pause(key, seconds, at_least=True)

    async def _pause(self, key: str, seconds: float, *, at_least: bool) -> LimitState:
        check_pause(key, seconds)
        is_done, answer = await self._run("pause", [key, _micro(seconds), at_least])
        if not is_done:
            raise unknown_limit(key)
        return _state(answer)

    async def remove(self, key: str, /) -> None:
        """Remove a limit, and what leases have taken of it.

        Raises:
            LimitError: `unknown_limit_key`.
        """
        if not await self._run("remove", [key]):
            raise unknown_limit(key)

    async def wakes(self, on_wake: Callable[[tuple[str, ...]], None]) -> NoReturn:
        """Listen for room, so that waiting calls ask again at once. Runs until cancelled.

        Notifications are not reliable: they are lost while the connection is, and there are none of room that
        appears by itself. Waiters must retry after `retry_after` all the same.

        Args:
            on_wake: Called synchronously with the keys that have room again; with no keys whenever listening
                starts, since notifications may have been missed before.
        """
        while True:
            with contextlib.suppress(LimitError, RedisError):
                await self._listen(on_wake)
            await trio.sleep(_RECONNECT)

    async def _listen(self, on_wake: Callable[[tuple[str, ...]], None]) -> None:
        connection = await self._link.connect()
        try:
            connection.send_command(b"SUBSCRIBE", f"{self._tag}:room")
            async with contextlib.aclosing(connection.push_messages) as messages:
                async for message in messages:
                    match message:
                        case [b"subscribe", *_]:
                            on_wake(())
                        case [b"message", _, bytes() as keys]:
                            on_wake(tuple(orjson.loads(keys)))
        finally:
            connection.invalidate("listening has ended")

    @property
    def _tag(self) -> str:
        return "{" + self.namespace + "}"

    async def _run(self, operation: str, items: Sequence[object]) -> Any:
        text, name = _script()
        now = "" if self._now is None else _micro(self._now())
        rest = (1, self._tag, operation, now, orjson.dumps(items))
        try:
            try:
                return await self._link.request(b"EVALSHA", name, *rest)
            except NoScriptError:
                # A restarted server has forgotten the script; this loads it again.
                return await self._link.request(b"EVAL", text, *rest)
        except RedisError as error:
            # Loading, read-only, out of memory: nothing was done, and it may pass.
            raise unavailable(f"{self._link}: {error}") from error


@contextlib.asynccontextmanager
async def open_redis(
    url: str,
    *,
    namespace: str = "trioeval",
    request_timeout: float = 2.0,
    now: Callable[[], float] | None = None,
) -> AsyncIterator[RedisLimits]:
    """Open the limits of a Redis server. No command is sent before the first operation.

    Args:
        url: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, or `unix:///path[?db=…]`.
        namespace: Shared by all clients of the limits; no braces, not blank.
        request_timeout: Seconds, > 0, after which the outcome of a request is unknown.
        now: Returns the instant in seconds, for tests; None for the server's clock.

    Raises:
        LimitError: `invalid_request`: the URL or the namespace is invalid.
    """
    if not namespace.strip() or "{" in namespace or "}" in namespace:
        msg = f"the namespace {namespace!r} must not be blank or contain braces"
        raise LimitError("invalid_request", msg)
    async with open_link(url, request_timeout) as link:
        yield RedisLimits(link, namespace, now)


def _micro(seconds: float) -> int:
    return round(seconds * _MICRO)


def _decision(ask: LeaseRequest, answer: Sequence[Any]) -> Decision:
    match answer:
        case [1, reserved_at]:
            return Granted(reserved_at / _MICRO)
        case [_, "invalid_request", *_]:
            return requirements_mismatch(ask.lease_id)
        case [_, ("exceeds_capacity" | "budget_exhausted") as reason, _, lacks]:
            return terminal_denial(reason, [_lack(*one) for one in lacks])
        case [_, reason, retry_after, keys]:
            return denied(reason, keys, retry_after / _MICRO)
    msg = f"unexpected answer from Redis: {answer!r}"  # only a script that is not ours sends one
    raise unavailable(msg)


def _lack(key: str, amount: int, capacity: int, left: int, anew: int) -> Lack:
    return Lack(key, amount, capacity, left, math.inf if anew < 0 else anew / _MICRO)


def _state(row: Sequence[Any]) -> LimitState:
    key, kind, capacity, span, overage, unit, description, *standing = row
    pending, used, outstanding, debt, paused, began, closed = standing
    seconds = span / _MICRO or None
    return LimitState(
        limit=SharedLimit(
            key=key,
            kind=kind,
            capacity=capacity,
            window=seconds if kind == "rolling" else None,
            timeout=seconds if kind == "concurrency" else None,
            reset=seconds if kind == "budget" else None,
            overage=overage,
            unit=unit,
            description=description,
        ),
        status="decreasing" if pending else "active",
        pending_capacity=pending or None,
        used=used,
        outstanding=outstanding,
        debt=debt,
        paused_until=paused / _MICRO if paused else None,
        paused_for=closed / _MICRO if closed else None,
        began_at=began / _MICRO if kind == "budget" and span else None,
    )
