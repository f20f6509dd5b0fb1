"""Opening shared limits, in memory, in Redis or over HTTP.

The clients of Redis and HTTP are imported only when they are needed.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

import attrs
import trio

from trioeval.errors import LimitError, UsageError
from trioeval.limits.backend import Backend, SharedLimits, create_missing, definitions_of
from trioeval.limits.limits_file import read_limits, shifted
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitState, SharedLimit, lease_ids
from trioeval.limits.remote import Wakes, open_remote
from trioeval.limits.remote_leases import after_failure

# Remote backends need optional packages: a missing one is reported before anything is opened.


Extra: TypeAlias = Literal["redis", "serve"]

_PACKAGES: Mapping[Extra, tuple[str, ...]] = {
    "redis": ("anyio", "coredis"),
    "serve": ("starlette",),
}


def is_installed(extra: Extra) -> bool:
    """Return whether the packages of an extra are installed, without importing them.

    Example:
        >>> is_installed("redis")
        True
    """
    try:
        return all(find_spec(package) is not None for package in _PACKAGES[extra])
    except ImportError:  # a finder that refuses the import
        return False


def install_command(extra: Extra) -> str:
    """Return the command that installs an extra.

    Example:
        >>> install_command("serve")
        "pip install 'trioeval[serve]'"
    """
    return f"pip install 'trioeval[{extra}]'"


@contextmanager
def requires_extra(extra: Extra) -> Iterator[None]:
    """Import packages of an extra in the block.

    Raises:
        UsageError: The extra is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{error}: {install_command(extra)}") from error


_log = logging.getLogger("trioeval.limits")


@attrs.frozen
class Batch:
    """The size and delay of batches of requests."""

    size: int = 128
    """Most leases in one request, 1 to 256."""
    flush: float = 0.002
    """Seconds that one waits for others, ≥ 0."""


@asynccontextmanager
async def open_limits(
    *,
    backend: Literal["memory", "redis", "http"] = "memory",
    url: str | None = None,
    namespace: str = "trioeval",
    limits: Sequence[SharedLimit] | None = None,
    limits_file: Path | None = None,
    unreachable: Literal["closed", "open"] = "closed",
    patience: float = 30.0,
    request_timeout: float = 2.0,
    batch: Batch | None = None,
    rng: Random,
    warn: Callable[[str], None] = _log.warning,
) -> AsyncGenerator[SharedLimits]:
    """Open limits for as long as the block; the lanes that use them must be done before it ends.

    Args:
        backend: Keeps the limits: this process, Redis, or `trioeval limits serve`.
        url: The URL of Redis or of the server, required by both.
        namespace: The prefix of the limits' keys in Redis.
        limits: In memory, the limits; elsewhere, those to create if they do not exist, now or later.
        limits_file: A file of further limits. It is read, not written. Its usage counts in memory only.
        unreachable: What happens to calls while the backend is unreachable for longer than `patience`: they
            fail (`closed`), or are made without a lease (`open`). Limits that could not be created are
            treated in the same way, and created once the backend answers.
        patience: Seconds, ≥ 0.
        request_timeout: Seconds that one request may take, > 0.
        batch: None sends each request alone; unused in memory.
        rng: Draws lease ids and the jitter of waits.
        warn: Called with problems that end no call, and with limits whose definitions differ from the given
            ones; must not raise.

    Raises:
        LimitError: `invalid_request`: the URL is missing or invalid, two limits have the same key, or one
            exists with another kind; `limiter_unavailable`: no answer arrived for `patience`, and
            `unreachable` is `closed`.
        SuiteError: The file of limits is invalid.
        UsageError: The packages for Redis are not installed.

    Example:
        >>> async def main():
        ...     calls = SharedLimit(key="calls", kind="rolling", capacity=1200, window=60)
        ...     async with open_limits(limits=[calls], rng=Random()) as limits:
        ...         return [state.limit.key for state in await limits.states()]
        >>> trio.run(main)
        ['calls']
    """
    states = [LimitState(limit=limit) for limit in limits or ()]
    if limits_file is not None:
        states += shifted(read_limits(limits_file), trio.current_time() - time.time())
    if backend == "memory":
        yield MemoryLimits(states)
        return
    made = definitions_of(states)
    if url is None:
        msg = f'the backend "{backend}" needs a url'
        raise LimitError("invalid_request", msg)
    async with (
        _open_backend(backend, url, namespace, request_timeout) as (keeper, wakes),
        _open_batched(keeper, batch) as batched,
        open_remote(
            batched,
            wakes=wakes,
            patience=patience,
            unreachable=unreachable,
            limits=made,
            warn=warn,
            ids=lease_ids(time.time, rng.getrandbits),
            spread=rng.random,
        ) as shared,
    ):
        try:
            # Also without limits to create: a run that no call could pass is not started.
            if made or unreachable == "closed":
                for difference in await _create_missing(keeper, made, patience, rng.random):
                    warn(difference)
        except LimitError as error:
            if error.reason != "limiter_unavailable" or unreachable == "closed":
                raise
            warn(f"limits could not be created: {error}")
        yield shared


@asynccontextmanager
async def _open_backend(
    backend: Literal["redis", "http"], url: str, namespace: str, request_timeout: float
) -> AsyncGenerator[tuple[Backend, Wakes | None]]:
    """Open a remote backend and its notifications of room."""
    if backend == "redis":
        with requires_extra("redis"):
            from trioeval.limits.redis import open_redis

        async with open_redis(
            url, namespace=namespace, request_timeout=request_timeout
        ) as redis_limits:
            yield redis_limits, redis_limits.wakes
    else:
        from trioeval.limits.http_client import open_http_limits

        async with open_http_limits(url, request_timeout=request_timeout) as http_limits:
            yield http_limits, None


@asynccontextmanager
async def _open_batched(backend: Backend, batch: Batch | None) -> AsyncGenerator[Backend]:
    """Open a batching front of a backend, if requested."""
    if batch is None:
        yield backend
    else:
        from trioeval.limits.batching import open_batching

        async with open_batching(backend, size=batch.size, flush=batch.flush) as batched:
            yield batched


async def _create_missing(
    backend: Backend, limits: Sequence[SharedLimit], patience: float, spread: Callable[[], float]
) -> Sequence[str]:
    """Create missing limits as soon as the backend answers; return the warnings."""
    give_up_at = trio.current_time() + patience
    failures = 0
    while True:
        try:
            return await create_missing(backend, limits)
        except LimitError as error:
            failures += 1
            again_at = trio.current_time() + after_failure(failures, spread())
            if error.reason != "limiter_unavailable" or again_at > give_up_at:
                raise
        await trio.sleep_until(again_at)
