"""The commands for shared limits; `limits_admin` and `limits_serve` carry them out."""

from pathlib import Path
from typing import Annotated, Literal

import attrs
import cyclopts
from cyclopts import Parameter
from cyclopts.validators import Number

from trioeval.cli.flag_types import Count, Switch
from trioeval.cli.interrupts import Interrupts
from trioeval.limits.model import LONGEST_PAUSE

limits = cyclopts.App(name="limits")

_Injected = Annotated[Interrupts, Parameter(parse=False)]
_Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
_Pause = Annotated[float, Parameter(validator=Number(gte=0, lte=LONGEST_PAUSE))]
_Seconds = Annotated[float, Parameter(validator=Number(gte=0.1, lte=3600))]
_Namespace = Annotated[str | None, Parameter(show_default=False)]
_Keys = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class LimitsLocation:
    """The backend of the limits: a server or a file."""

    url: str | None = attrs.field(default=None, repr=False)
    """The URL of the limits, `http://…` or `redis://…`; by default TRIOEVAL_LIMITS_URL."""
    limits: Path | None = None
    """The file of the limits, instead; to change it, no other process may have it open."""
    namespace: _Namespace = None
    """The prefix of their keys in Redis; by default trioeval."""


@limits.command(name="serve")
def serve(
    *,
    limits: Path | None = None,
    redis: str | None = None,
    namespace: _Namespace = None,
    host: str = "127.0.0.1",
    port: _Port = 8770,
    token: str | None = None,
    interrupts: _Injected,
) -> int:
    """Serve limits over HTTP until interrupted.

    Parameters
    ----------
    limits
        The file of the limits; with Redis, limits to create there if they do not exist.
    redis
        Keep them in Redis at this URL instead of in this process.
        The prefix of their keys in Redis; by default trioeval.
        What their keys in Redis begin with; trioeval if not given.
    host
        The address to listen on.
    port
        The port; 0 takes a free one and prints it.
    token
        The token that clients must send; by default TRIOEVAL_LIMITS_TOKEN. Required if other hosts can
        connect.
    """
    from trioeval.cli.commands.limits_serve import run_limits_server

    return run_limits_server(
        limits=limits,
        redis=redis,
        namespace=namespace,
        host=host,
        port=port,
        token=token,
        interrupts=interrupts,
    )


@limits.command(name="show")
def show(
    keys: _Keys = (),
    /,
    *,
    place: LimitsLocation = LimitsLocation(),
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Show limits and their usage.

    Parameters
    ----------
    keys
        Only these limits.
    json
        As JSON.
    """
    from trioeval.cli.commands.limits_admin import checked_place, show_limits

    return show_limits(checked_place(place), keys, interrupts, as_json=json)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Change:
    """The changes of a limit; None changes nothing."""

    kind: Literal["rolling", "concurrency", "budget"] | None = None
    """The kind of the limit: an amount per window, at once, or in total."""
    capacity: Count | None = None
    """The capacity. A smaller one takes effect once that much is free."""
    window: float | None = None
    """Seconds of the window of a rolling limit."""
    timeout: float | None = None
    """Seconds after which a hold without an extension is returned, for a concurrency limit."""
    reset: float | None = None
    """Seconds after which a budget resets."""
    overage: Literal["debt", "deny"] | None = None
    """Treatment of usage beyond the reservation: it counts (debt) or not (deny)."""
    unit: str | None = None
    """The unit of its amounts, for people."""
    description: str | None = None
    """The purpose of the limit."""


@limits.command(name="set")
def change(
    key: str,
    /,
    *,
    wanted: Change = Change(),
    pause: _Pause | None = None,
    place: LimitsLocation = LimitsLocation(),
    interrupts: _Injected,
) -> int:
    """Create a limit, or change its definition.

    Parameters
    ----------
    key
        The limit.
    pause
        Grant nothing of it for so many seconds; 0 resumes it.
    """
    from trioeval.cli.commands.limits_admin import change_limit, checked_place

    return change_limit(checked_place(place), key, wanted, pause, interrupts)


@limits.command(name="remove")
def remove(
    key: str,
    /,
    *,
    place: LimitsLocation = LimitsLocation(),
    interrupts: _Injected,
) -> int:
    """Remove a limit. Calls that need it fail from then on.

    Parameters
    ----------
    key
        The limit.
    """
    from trioeval.cli.commands.limits_admin import checked_place, remove_limit

    return remove_limit(checked_place(place), key, interrupts)


@limits.command(name="watch")
def watch(
    keys: _Keys = (),
    /,
    *,
    url: str | None = None,
    namespace: _Namespace = None,
    every: _Seconds = 1.0,
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Show limits repeatedly until interrupted.

    Parameters
    ----------
    keys
        Only these limits.
    url
        The URL of the limits, `http://…` or `redis://…`; by default TRIOEVAL_LIMITS_URL.
    namespace
        The prefix of their keys in Redis; by default trioeval.
    every
        Seconds between two updates.
    json
        A line of JSON for each change.
    """
    from trioeval.cli.commands.limits_admin import checked_place, watch_limits

    place = checked_place(LimitsLocation(url=url, namespace=namespace))
    return watch_limits(place, keys, interrupts, every=every, as_json=json)
