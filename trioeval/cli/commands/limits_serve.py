"""`trioeval limits serve`: shared limits over HTTP, in the foreground."""

import os
import re
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trio

from trioeval.cli.commands.limits import LimitsLocation
from trioeval.cli.commands.limits_admin import TOKEN_VARIABLE, checked_place, open_place
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import TrioevalError, UsageError
from trioeval.limits.backend import create_missing, definitions_of
from trioeval.limits.limits_file import read_limits
from trioeval.limits.model import SharedLimit
from trioeval.limits.open import requires_extra
from trioeval.serving.access_rules import is_loopback
from trioeval.serving.token_files import forget_token, keep_token

if TYPE_CHECKING:
    from trioeval.limits.server import ServeSettings

_TOKEN = re.compile(r"[!-~]+")


def run_limits_server(
    *,
    limits: Path | None,
    redis: str | None,
    namespace: str | None,
    host: str,
    port: int,
    token: str | None,
    interrupts: Interrupts,
) -> int:
    """Serve, print the base URL on stdout, and return when a signal comes.

    Pending requests are answered then; a second signal cancels them.

    Raises:
        UsageError: The limits or the token are missing, a flag has no effect, or the address cannot be bound.
        LimitError: Redis cannot be used.
        SuiteError: The file of limits cannot be read.
        OutputError: The file of limits could not be written at the end.
    """
    with requires_extra("serve"):
        from trioeval.limits.server import ServeSettings

    if limits is None and redis is None:
        raise UsageError("nothing to serve: give --limits FILE, or --redis redis://host")
    if redis is not None and not redis.startswith(("redis://", "rediss://", "unix://")):
        raise UsageError("--redis must begin with redis://, rediss:// or unix://")
    given = _token(token, host)
    made = None if given is not None else secrets.token_urlsafe(24)
    settings = ServeSettings(host=host, port=port, token=given or made)
    place = checked_place(
        LimitsLocation(url=redis, limits=None if redis else limits, namespace=namespace)
    )
    missing: list[SharedLimit] = []
    if redis is not None:
        missing = definitions_of(read_limits(limits)) if limits else []
    interrupts.begin_run()
    failure = trio.run(_serve, place, missing, settings, made, interrupts)
    if isinstance(failure, OSError) and not isinstance(failure, TrioevalError):
        raise UsageError(f"cannot listen on {host}:{port}: {failure.strerror or failure}")
    if failure is not None:
        raise failure
    return Exit.OK


def _token(token: str | None, host: str) -> str | None:
    """Return the token that clients must send, if one is given.

    Raises:
        UsageError: It cannot be sent, or it is missing although other hosts can connect.
    """
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError("the token must consist of printable ASCII characters, without blanks")
    if token is None and not is_loopback(host):
        raise UsageError(
            f"--host {host} is reachable from other hosts: set {TOKEN_VARIABLE}, or give --token"
        )
    return token


async def _serve(
    place: LimitsLocation,
    missing: Sequence[SharedLimit],
    settings: "ServeSettings",
    made_token: str | None,
    interrupts: Interrupts,
) -> TrioevalError | OSError | None:
    """Serve until stopped; return the error that prevented it, if any. A generated token is in a file."""
    from trioeval.limits.server import serve_limits

    stop = trio.Event()
    failure: TrioevalError | OSError | None = None
    async with open_place(place) as backend:
        with trio.CancelScope() as scope:

            def heed(number: signal.Signals) -> None:
                if stop.is_set():
                    scope.cancel(number.name)
                stop.set()

            with interrupts.deliver_to(heed):
                async with trio.open_nursery() as nursery:
                    try:
                        for warning in await create_missing(backend, missing):
                            say(f"warning: {warning}")
                        serve = partial(serve_limits, backend, settings, stop=stop)
                        with _announced_url(made_token, await nursery.start(serve)) as where:
                            say(f"serving{where}; interrupt to stop")
                            await stop.wait()
                    except (TrioevalError, OSError) as error:
                        failure = error  # raised where no nursery wraps it
                        nursery.cancel_scope.cancel("it cannot be served")
    return failure


@contextmanager
def _announced_url(made: str | None, url: str) -> Iterator[str]:
    """Print the URL; programs of this user find the token for as long as the block.

    Yields:
        A note about the token.

    Raises:
        UsageError: The token file cannot be written.
    """
    if made is None:
        show(url)
        yield ""
        return
    try:
        path = keep_token(urlsplit(url).port or 0, made)
    except OSError as error:
        raise UsageError(
            f"the token of this server cannot be stored where only this user can read it "
            f"({error.strerror or error}): set {TOKEN_VARIABLE}, here and for its clients"
        ) from error
    try:
        show(url)
        yield f"; its token is in {path}"
    finally:
        forget_token(path, made)
