"""The commands for limits that several programs share; `limits_admin` and `limits_serve` carry them out."""

from pathlib import Path
from typing import Annotated, Literal

import attrs
import cyclopts
from cyclopts import Parameter
from cyclopts.validators import Number

from trioeval.cli.flags import Count, Switch
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
class Place:
    """Where limits are kept: by a server, or in a file."""

    url: str | None = attrs.field(default=None, repr=False)
    """Where they are kept, `http://…` or `redis://…`; TRIOEVAL_LIMITS_URL if not given."""
    limits: Path | None = None
    """The file that they are kept in, instead; to change it, nobody else may have it open."""
    namespace: _Namespace = None
    """What their keys in Redis begin with; trioeval if not given."""


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
        The file that they are kept in; over Redis, those that are made there if they are not there yet.
    redis
        Keep them in Redis at this URL instead of in this process.
    namespace
        What their keys in Redis begin with; trioeval if not given.
    host
        The address to listen on.
    port
        The port; 0 takes a free one and prints it.
    token
        What clients have to send; TRIOEVAL_LIMITS_TOKEN if not given. Needed where others can connect.
    """
    from trioeval.cli.commands.limits_serve import run_limits_server  # noqa: PLC0415 - imports wait until they are needed

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
    place: Place = Place(),
    json: Switch = False,
    interrupts: _Injected,
) -> int:
    """Show limits and how they stand.

    Parameters
    ----------
    keys
        Only these limits.
    json
        As JSON.
    """
    from trioeval.cli.commands.limits_admin import checked_place, show_limits  # noqa: PLC0415 - see above

    return show_limits(checked_place(place), keys, interrupts, as_json=json)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Change:
    """What is to be said of a limit; None leaves it as it is."""

    kind: Literal["rolling", "concurrency", "budget"] | None = None
    """What it limits: so much in a window, so much at once, or so much in all."""
    capacity: Count | None = None
    """How much there is. A smaller one holds as soon as so much of it is free."""
    window: float | None = None
    """Seconds of the window of a rolling limit."""
    timeout: float | None = None
    """Seconds after which a hold that nobody extends comes back, of a concurrency limit."""
    reset: float | None = None
    """Seconds after which a budget begins anew."""
    overage: Literal["debt", "deny"] | None = None
    """Whether what was used beyond its reservation counts."""
    unit: str | None = None
    """What is counted, for people."""
    description: str | None = None
    """What it is for."""


@limits.command(name="set")
def change(
    key: str,
    /,
    *,
    wanted: Change = Change(),
    pause: _Pause | None = None,
    place: Place = Place(),
    interrupts: _Injected,
) -> int:
    """Make a limit, or change what is said of it.

    Parameters
    ----------
    key
        The limit.
    pause
        Grant nothing of it for so many seconds; 0 opens it again.
    """
    from trioeval.cli.commands.limits_admin import change_limit, checked_place  # noqa: PLC0415 - see above

    return change_limit(checked_place(place), key, wanted, pause, interrupts)


@limits.command(name="remove")
def remove(
    key: str,
    /,
    *,
    place: Place = Place(),
    interrupts: _Injected,
) -> int:
    """Remove a limit. Calls that need it fail from then on.

    Parameters
    ----------
    key
        The limit.
    """
    from trioeval.cli.commands.limits_admin import checked_place, remove_limit  # noqa: PLC0415 - see above

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
    """Show limits again and again until interrupted.

    Parameters
    ----------
    keys
        Only these limits.
    url
        Where they are kept, `http://…` or `redis://…`; TRIOEVAL_LIMITS_URL if not given.
    namespace
        What their keys in Redis begin with; trioeval if not given.
    every
        Seconds between two looks.
    json
        A line of JSON for each change.
    """
    from trioeval.cli.commands.limits_admin import checked_place, watch_limits  # noqa: PLC0415 - see above

    place = checked_place(Place(url=url, namespace=namespace))
    return watch_limits(place, keys, interrupts, every=every, as_json=json)
