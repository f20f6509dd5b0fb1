"""Where shared limits are kept, as the commands are told it, and how they are reached."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from trioeval.cli.interrupts import Interrupts
from trioeval.errors import TrioevalError, UsageError
from trioeval.limits.backend import Backend
from trioeval.limits.open import needing

URL_VARIABLE = "TRIOEVAL_QUOTA_URL"
TOKEN_VARIABLE = "TRIOEVAL_QUOTA_TOKEN"  # noqa: S105 - the name of it

_REDIS = ("redis://", "rediss://", "unix://")
_HTTP = ("http://", "https://")

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Place:
    """A server, or a file. Exactly one of them."""

    url: str | None = attrs.field(default=None, repr=False)
    """May hold a password."""
    file: Path | None = None
    namespace: str = "trioeval"
    """In Redis."""


def place_of(
    url: str | None,
    file: Path | None,
    namespace: str | None,
    environ: Mapping[str, str] = os.environ,
) -> Place:
    """The place that flags name, or else the environment.

    Raises:
        UsageError: None is named, or two are; or it has no namespaces.
    """
    if url is not None and file is not None:
        raise UsageError("--url and --limits exclude each other: limits are kept in one place")
    if file is None:
        url = url or environ.get(URL_VARIABLE)
        if not url:
            raise UsageError(
                f"say where the limits are kept: --url http://host:8770, or redis://host (or {URL_VARIABLE})"
            )
        if not url.startswith(_REDIS + _HTTP):
            raise UsageError(
                f"the URL of limits must begin with http://, https://, {', '.join(_REDIS)}"
            )
    if namespace is None:
        return Place(url=url, file=file)
    if url is None or url.startswith(_HTTP):
        raise UsageError("--namespace is for limits in Redis: elsewhere there are none")
    return Place(url=url, file=file, namespace=namespace)


@asynccontextmanager
async def open_place(
    place: Place, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[Backend]:
    """The backend of a place.

    Raises:
        UsageError: A package for it is not installed.
        QuotaError: The URL is not valid.
        SuiteError: The file cannot be read.
    """
    if place.file is not None:
        from trioeval.limits.file import open_filed  # noqa: PLC0415 - each way imports its own

        async with open_filed(place.file) as backend:
            yield backend
    elif place.url is not None and place.url.startswith(_HTTP):
        from trioeval.limits.http_client import open_http_limits  # noqa: PLC0415

        token = environ.get(TOKEN_VARIABLE) or None
        async with open_http_limits(place.url, token=token) as backend:
            yield backend
    else:
        with needing("redis"):
            from trioeval.limits.redis import open_redis  # noqa: PLC0415

        async with open_redis(place.url or "", namespace=place.namespace) as backend:
            yield backend


def ask_place(
    place: Place, action: Callable[[Backend], Awaitable[T]], interrupts: Interrupts
) -> T | None:
    """Do something with the limits of a place.

    Returns:
        What came of it; None if a signal came first.

    Raises:
        TrioevalError: What it, or reaching the place, raised.
    """
    interrupts.begin_run()
    done = trio.run(_ask, place, action, interrupts)
    if isinstance(done, TrioevalError):
        raise done
    return done


async def _ask(
    place: Place, action: Callable[[Backend], Awaitable[T]], interrupts: Interrupts
) -> T | TrioevalError | None:
    with trio.CancelScope() as scope, interrupts.told_to(lambda number: scope.cancel(number.name)):
        async with open_place(place) as backend:
            try:
                return await action(backend)
            except TrioevalError as error:
                return error  # raised where no nursery of the backend wraps it
    return None
