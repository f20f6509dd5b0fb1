"""The commands that show and change shared limits.

If the backend is unreachable for a while, `watch` warns once and retries.
"""

import json
import math
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from trioeval.cli.commands.limits import Change, LimitsLocation
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, draw, has_reader, open_console, say, show
from trioeval.errors import LimitError, SuiteError, UsageError
from trioeval.limits.backend import Backend
from trioeval.limits.file import file_states
from trioeval.limits.json import DEFINITION, from_json, limit_data
from trioeval.limits.model import LimitState, SharedLimit
from trioeval.limits.open import requires_extra

if TYPE_CHECKING:
    from rich.table import Table

URL_VARIABLE = "TRIOEVAL_LIMITS_URL"
TOKEN_VARIABLE = "TRIOEVAL_LIMITS_TOKEN"  # noqa: S105 - the name of it

NAMESPACE = "trioeval"
"""The default prefix of keys in Redis."""

_REDIS = ("redis://", "rediss://", "unix://")
_HTTP = ("http://", "https://")

T = TypeVar("T")


def checked_place(
    location: LimitsLocation, environ: Mapping[str, str] = os.environ
) -> LimitsLocation:
    """Return the place given by flags, or else by the environment.

    Raises:
        UsageError: No place is given, or two are; or it has no namespaces.
    """
    if location.url is not None and location.limits is not None:
        raise UsageError("--url and --limits exclude each other")
    url = location.url
    if location.limits is None:
        url = url or environ.get(URL_VARIABLE)
        if not url:
            raise UsageError(
                f"give the limits with --url http://host:8770, or redis://host (or {URL_VARIABLE})"
            )
        if not url.startswith(_REDIS + _HTTP):
            raise UsageError(
                f"the URL of limits must begin with http://, https://, {', '.join(_REDIS)}"
            )
    if location.namespace is not None and (url is None or url.startswith(_HTTP)):
        raise UsageError("--namespace is only for limits in Redis")
    return attrs.evolve(location, url=url)


@asynccontextmanager
async def open_place(
    place: LimitsLocation, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[Backend]:
    """Open the backend of a place.

    Raises:
        UsageError: A package for it is not installed.
        LimitError: The URL is invalid.
        SuiteError: The file cannot be read.
    """
    if place.limits is not None:
        from trioeval.limits.file import open_file_limits

        async with open_file_limits(place.limits) as backend:
            yield backend
    elif place.url is not None and place.url.startswith(_HTTP):
        from trioeval.limits.http_client import open_http_limits

        token = environ.get(TOKEN_VARIABLE) or None
        async with open_http_limits(place.url, token=token) as backend:
            yield backend
    else:
        namespace = NAMESPACE if place.namespace is None else place.namespace
        with requires_extra("redis"):
            from trioeval.limits.redis import open_redis

        async with open_redis(place.url or "", namespace=namespace) as backend:
            yield backend


def ask_place(
    place: LimitsLocation, action: Callable[[Backend], Awaitable[T]], interrupts: Interrupts
) -> T | None:
    """Run an action on the limits of a place.

    Returns:
        The result of the action; None if a signal came first.

    Raises:
        TrioevalError: An error of the action, or of opening the place.
    """

    async def ask() -> T:
        async with open_place(place) as backend:
            return await action(backend)

    return interrupts.run(ask)


_WIDEST = 80  # characters of a key


def chosen(states: Sequence[LimitState], keys: Sequence[str]) -> list[LimitState]:
    """Return the limits with these keys, in the order of the keys; all limits without keys.

    Raises:
        UsageError: A key is unknown.
    """
    if not keys:
        return list(states)
    by_key = {state.limit.key: state for state in states}
    unknown = [key for key in keys if key not in by_key]
    if unknown:
        known = ", ".join(by_key) or "none"
        raise UsageError(f"unknown limit {', '.join(unknown)}; known limits are {known}")
    return [by_key[key] for key in keys]


def limits_table(states: Iterable[LimitState]) -> "Table":
    """Return a table of limits and their usage."""
    from rich.table import Table
    from rich.text import Text

    table = Table("limit", "kind")
    for name in ("capacity", "span", "in use", "free"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for state in states:
        limit = state.limit
        table.add_row(
            Text(_plain(limit.key)),
            limit.kind,
            Text(f"{limit.capacity:,} {_plain(limit.unit)}".rstrip()),
            _span(limit),
            f"{in_use(state):,}",
            f"{max(0, limit.capacity - in_use(state)):,}",
            standing(state),
        )
    return table


def limit_line(state: LimitState) -> str:
    """Return a limit and its usage as one line.

    Example:
        >>> limit_line(
        ...     LimitState(limit=SharedLimit(key="llm:rpm", kind="rolling", capacity=60, window=60))
        ... )
        'llm:rpm: 0 of 60 in use (rolling, 60 s), active'
    """
    limit = state.limit
    details = ", ".join(part for part in (limit.kind, _span(limit)) if part)
    of = f"{in_use(state):,} of {limit.capacity:,} {_plain(limit.unit)}".rstrip()
    return f"{_plain(limit.key)}: {of} in use ({details}), {standing(state)}"


def limit_record(state: LimitState) -> dict[str, Any]:
    """Return a limit and its usage as JSON data."""
    return {
        **limit_data(state.limit),
        "status": state.status,
        "pendingCapacity": state.pending_capacity,
        "used": state.used,
        "outstanding": state.outstanding,
        "debt": state.debt,
        "pausedSeconds": state.paused_for,
    }


def in_use(state: LimitState) -> int:
    """Return the amount of a limit that is in use."""
    return state.used + state.outstanding


def standing(state: LimitState) -> str:
    """Return the state of a limit in words.

    Example:
        >>> limit = SharedLimit(key="llm:rpm", kind="rolling", capacity=60, window=60)
        >>> standing(LimitState(limit=limit, paused_until=1042.5, paused_for=117.25))
        'paused for 118 s'
    """
    words = [
        "active" if state.pending_capacity is None else f"decreasing to {state.pending_capacity:,}"
    ]
    if state.paused_until is not None:
        left = "" if state.paused_for is None else f" for {math.ceil(state.paused_for):,} s"
        words = [f"paused{left}", *words[state.pending_capacity is None :]]
    if state.debt:
        words.append(f"debt {state.debt:,}")
    return ", ".join(words)


def _span(limit: SharedLimit) -> str:
    return "" if limit.span is None else f"{limit.span:g} s"


# The reports have one as well, but importing them takes longer than the whole command.
def _plain(text: str) -> str:
    """Return a text of others without control characters."""
    return "".join(one if one.isprintable() else "�" for one in text[:_WIDEST])


_FLAG_BY_NAME = {key: f"--{field.name}" for key, field in DEFINITION.items() if key != "key"}


def show_limits(
    place: LimitsLocation, keys: tuple[str, ...], interrupts: Interrupts, *, as_json: bool
) -> int:
    """Show limits and their usage.

    Raises:
        UsageError: A key is unknown.
        LimitError: The backend is unreachable, or refuses.
        SuiteError: The file of limits cannot be read.
    """
    states = _states(place, interrupts)
    if states is None:
        return interrupts.code
    found = chosen(states, keys)
    if as_json:
        show(json.dumps([limit_record(state) for state in found], indent=2, ensure_ascii=False))
    elif found:
        draw(limits_table(found), sys.stdout)
    else:
        say("no limits")
    return Exit.OK


def _states(place: LimitsLocation, interrupts: Interrupts) -> Sequence[LimitState] | None:
    if place.limits is not None:
        return file_states(place.limits)
    return ask_place(place, lambda backend: backend.states(), interrupts)


def remove_limit(place: LimitsLocation, key: str, interrupts: Interrupts) -> int:
    """Remove a limit.

    Raises:
        LimitError: The limit does not exist, or the backend refuses.
        SuiteError: The file of limits cannot be read.
        OutputError: It cannot be written.
    """

    async def carry_out(backend: Backend) -> str:
        await backend.remove(key)
        return f"{key} is removed"

    message = ask_place(place, carry_out, interrupts)
    if message is None:
        return interrupts.code
    say(message)
    return Exit.OK


def changed(known: SharedLimit | None, key: str, change: Change) -> SharedLimit:
    """Return the changed definition of a limit.

    Raises:
        UsageError: The result is not a valid limit; with all its problems.

    Example:
        >>> known = SharedLimit(key="slots", kind="concurrency", capacity=8, timeout=30)
        >>> changed(known, "slots", Change(capacity=2)) == attrs.evolve(known, capacity=2)
        True
    """
    definition = {"key": key, **attrs.asdict(change)}
    given = {name: definition[field.name] for name, field in DEFINITION.items()}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        return from_json((limit_data(known) if known else {}) | given, SharedLimit)
    except SuiteError as error:
        problems = [
            f"{_FLAG_BY_NAME.get(one.path.removeprefix('$.'), 'KEY')}: {one.message}"
            + (f"\n  {one.hint}" if one.hint else "")
            for one in error.problems
        ]
        raise UsageError("\n".join(problems)) from None


def change_limit(
    place: LimitsLocation, key: str, change: Change, pause: float | None, interrupts: Interrupts
) -> int:
    """Create a limit, change its definition, or pause it.

    Raises:
        UsageError: No change is given, or the result is invalid; or a file is to be paused.
        LimitError: The backend refuses.
        SuiteError: The file of limits cannot be read.
        OutputError: It cannot be written.
    """
    if change == Change() and pause is None:
        flags = ", ".join([*_FLAG_BY_NAME.values(), "--pause"])
        raise UsageError(f"nothing to change: give one of {flags}")
    if place.limits is not None and pause is not None:
        raise UsageError(
            "--pause needs --url: a file of limits grants nothing, so it cannot be paused"
        )

    async def carry_out(backend: Backend) -> LimitState:
        known = {state.limit.key: state for state in await backend.states()}.get(key)
        state = known
        if change != Change():
            state = await backend.define(changed(known.limit if known else None, key, change))
        if pause is not None:
            state = await backend.pause(key, pause)
        assert state is not None  # noqa: S101 - one of both was to be done
        return state

    state = ask_place(place, carry_out, interrupts)
    if state is None:
        return interrupts.code
    say(limit_line(state))
    return Exit.OK


def watch_limits(
    place: LimitsLocation,
    keys: Sequence[str],
    interrupts: Interrupts,
    *,
    every: float,
    as_json: bool,
) -> int:
    """Show limits until a signal comes.

    Raises:
        UsageError: A key is unknown.
        LimitError: The first request failed.
        OutputError: The lines cannot be written.
    """

    async def look_on(backend: Backend) -> None:
        first = chosen(await backend.states(), keys)
        if as_json or not sys.stdout.isatty():
            await _follow(backend, first, keys, every, _Lines(as_json=as_json).print_changes)
        else:
            await _redraw(backend, first, keys, every)

    ask_place(place, look_on, interrupts)
    return Exit.OK


async def _follow(
    backend: Backend,
    states: Sequence[LimitState],
    keys: Sequence[str],
    every: float,
    show: Callable[[Sequence[LimitState]], bool],
) -> None:
    """Report the states of limits repeatedly, until `show` returns False."""
    is_away = False
    while show(states) and has_reader(sys.stdout):
        await trio.sleep(every)
        try:
            found = await backend.states()
        except LimitError as error:
            if error.reason != "limiter_unavailable":
                raise
            if not is_away:
                say(f"{error.message}; trying again")
            is_away = True
        else:
            states = [state for state in found if not keys or state.limit.key in keys]
            is_away = False


async def _redraw(
    backend: Backend, states: Sequence[LimitState], keys: Sequence[str], every: float
) -> None:
    from rich.live import Live

    with Live(console=open_console(sys.stdout), auto_refresh=False) as live:

        def draw(states: Sequence[LimitState]) -> bool:
            try:
                live.update(limits_table(states), refresh=True)
            except OSError:  # the terminal is gone
                return False
            return True

        await _follow(backend, states, keys, every, draw)


@attrs.define
class _Lines:
    """Prints a line for each change."""

    as_json: bool
    _reported: dict[str, LimitState] = attrs.field(init=False, factory=dict)

    def print_changes(self, states: Sequence[LimitState]) -> bool:
        """Print a line for each limit that has changed; return False if stdout is closed."""
        utc_now = datetime.now(UTC).isoformat(timespec="seconds")
        is_read = True
        for state in states:
            if self._reported.get(state.limit.key) != state:
                self._reported[state.limit.key] = state
                if self.as_json:
                    line = json.dumps({"utc": utc_now, **limit_record(state)}, ensure_ascii=False)
                else:
                    line = f"{utc_now} {limit_line(state)}"
                is_read = show(line) and is_read
        return is_read
