"""`trioeval quota serve`: shared limits over HTTP, in the foreground."""

import ipaddress
import os
import re
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from trioeval.cli.exits import Exit
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.quota_place import TOKEN_VARIABLE, Place, open_place, place_of
from trioeval.cli.terminal import say, show
from trioeval.errors import TrioevalError, UsageError
from trioeval.quota.extras import needing
from trioeval.quota.limits import Limit
from trioeval.quota.limits_file import read_limits
from trioeval.quota.making import made_of, make_missing

if TYPE_CHECKING:
    from trioeval.quota.serve import ServeSettings

_TOKEN = re.compile(r"[!-~]+")


def serve_limits(
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

    Requests under way are answered then; a second signal cuts them off.

    Raises:
        UsageError: It is not said which limits, or who may use them; something is said that is without
            effect; or the address cannot be bound.
        QuotaError: Redis cannot be used.
        SuiteError: The file of limits cannot be read.
        OutputError: It could not be written at the end.
    """
    with needing("serve"):
        from trioeval.quota.serve import ServeSettings  # noqa: PLC0415 - an extra

    if limits is None and redis is None:
        raise UsageError("say which limits to serve: --limits FILE, or --redis redis://host")
    if redis is not None and not redis.startswith(("redis://", "rediss://", "unix://")):
        raise UsageError("--redis must begin with redis://, rediss:// or unix://")
    settings = ServeSettings(host=host, port=port, token=_token(token, host))
    place = place_of(redis, None if redis else limits, namespace)
    missing: list[Limit] = []
    if redis is not None:
        missing = made_of(read_limits(limits)) if limits else []
    interrupts.begin_run()
    failure = trio.run(_serve, place, missing, settings, interrupts)
    if isinstance(failure, OSError) and not isinstance(failure, TrioevalError):
        raise UsageError(f"cannot listen on {host}:{port}: {failure.strerror or failure}")
    if failure is not None:
        raise failure
    return Exit.OK


def _token(token: str | None, host: str) -> str | None:
    """What clients have to send.

    Raises:
        UsageError: It cannot be sent, or there is none although others can connect.
    """
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError("the token must be of printable ASCII characters, without blanks")
    if token is None and not _is_loopback(host):
        raise UsageError(
            f"--host {host} can be reached from elsewhere: set {TOKEN_VARIABLE}, or give --token"
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(
    place: Place, missing: Sequence[Limit], settings: "ServeSettings", interrupts: Interrupts
) -> TrioevalError | OSError | None:
    """Returns why it could not serve; None once it has."""
    from trioeval.quota.serve import serve_quota  # noqa: PLC0415 - an extra

    stop = trio.Event()
    failure: TrioevalError | OSError | None = None
    async with open_place(place) as backend:
        with trio.CancelScope() as scope:

            def heed(number: signal.Signals) -> None:
                if stop.is_set():
                    scope.cancel(number.name)
                stop.set()

            with interrupts.told_to(heed):
                async with trio.open_nursery() as nursery:
                    try:
                        for warning in await make_missing(backend, missing):
                            say(f"warning: {warning}")
                        url = await nursery.start(
                            partial(serve_quota, backend, settings, stop=stop)
                        )
                    except (TrioevalError, OSError) as error:
                        failure = error  # raised where no nursery wraps it
                    else:
                        show(url)
                        say("serving; interrupt to stop")
    return failure
