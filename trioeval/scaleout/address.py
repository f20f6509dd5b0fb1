"""The cluster that a run is performed on, as `--on` names it. Pure."""

import re
from typing import TypeAlias
from urllib.parse import urlsplit

import attrs

from trioeval.errors import UsageError

_PORT = 8786
"""The port of a Dask scheduler by default."""
_MOST = 1024
_LOCAL = re.compile(r"local:(\d{1,9})", re.ASCII)
_SCHEMES = {"dask": "tcp", "tcp": "tcp", "tls": "tls"}


@attrs.frozen
class LocalWorkers:
    """Worker processes on this machine, which the run starts and ends."""

    count: int

    def __str__(self) -> str:
        return f"local:{self.count}"


@attrs.frozen
class SchedulerAddress:
    """A Dask cluster that exists already."""

    url: str
    """The address of its scheduler, as Dask writes it."""

    def __str__(self) -> str:
        return self.url


ClusterAddress: TypeAlias = LocalWorkers | SchedulerAddress


def read_address(text: str, flag: str = "--on") -> ClusterAddress:
    """Return the cluster that a text names.

    Args:
        text: `local:4`, `dask://host:8786`, `tcp://host:8786` or `tls://host:8786`.
        flag: The name of the flag or argument in messages.

    Raises:
        UsageError: It names none.

    Example:
        >>> read_address("local:4"), read_address("dask://scheduler")
        (LocalWorkers(count=4), SchedulerAddress(url='tcp://scheduler:8786'))
    """
    found = _LOCAL.fullmatch(text)
    if found is not None and 1 <= int(found[1]) <= _MOST:
        return LocalWorkers(int(found[1]))
    if found is None:
        try:
            url = urlsplit(text)
            scheme, host, port = _SCHEMES.get(url.scheme), url.hostname, url.port or _PORT
        except ValueError:
            scheme, host, port = None, None, _PORT
        if (
            scheme is not None
            and host
            and text == f"{url.scheme}://{url.netloc}"
            and "@" not in text
        ):
            named = f"[{host}]" if ":" in host else host
            return SchedulerAddress(f"{scheme}://{named}:{port}")
    msg = (
        f"{flag} must be local:N with 1 to {_MOST} processes, or the address of a Dask scheduler "
        f"such as dask://host:{_PORT}, got {text!r}"
    )
    raise UsageError(msg)
