# Apart from `cli.commands.quota`: loaded when it is used.
"""`trioeval quota watch`: how shared limits stand, again and again.

On a terminal a table is drawn anew in its place; elsewhere a line is printed for each limit that has changed.
Whoever keeps them may be away for a while: that is said once, and they are asked again.
"""

import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import attrs
import trio

from trioeval.cli.commands.quota_target import Place, ask_place
from trioeval.cli.commands.quota_view import chosen, limit_line, limit_record, limits_table
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, has_reader, open_console, say, show
from trioeval.errors import QuotaError
from trioeval.limits.backend import Backend
from trioeval.limits.model import LimitState


def watch_limits(
    place: Place, keys: Sequence[str], interrupts: Interrupts, *, every: float, as_json: bool
) -> int:
    """Show limits until a signal comes.

    Raises:
        UsageError: There is no such limit.
        QuotaError: The first look failed: nobody is there, or refuses to tell.
        OutputError: The lines cannot be written.
    """

    async def look_on(backend: Backend) -> None:
        first = chosen(await backend.states(), keys)
        if as_json or not sys.stdout.isatty():
            await _follow(backend, first, keys, every, _Lines(as_json=as_json).tell)
        else:
            await _redraw(backend, first, keys, every)

    ask_place(place, look_on, interrupts)
    return Exit.OK


async def _follow(
    backend: Backend,
    states: Sequence[LimitState],
    keys: Sequence[str],
    every: float,
    tell: Callable[[Sequence[LimitState]], bool],
) -> None:
    """Tell how limits stand again and again, until nobody listens."""
    is_away = False
    while tell(states) and has_reader(sys.stdout):
        await trio.sleep(every)
        try:
            found = await backend.states()
        except QuotaError as error:
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
    from rich.live import Live  # noqa: PLC0415 - only where there is a terminal

    with Live(console=open_console(sys.stdout), auto_refresh=False) as live:

        def draw(states: Sequence[LimitState]) -> bool:
            try:
                live.update(limits_table(states), refresh=True)
            except OSError:  # the terminal has gone
                return False
            return True

        await _follow(backend, states, keys, every, draw)


@attrs.define
class _Lines:
    """Tells what has changed."""

    as_json: bool
    _told: dict[str, LimitState] = attrs.field(init=False, factory=dict)

    def tell(self, states: Sequence[LimitState]) -> bool:
        """Print a line for each limit that has changed; whether anybody reads them."""
        utc_now = datetime.now(UTC).isoformat(timespec="seconds")
        is_read = True
        for state in states:
            if self._told.get(state.limit.key) != state:
                self._told[state.limit.key] = state
                if self.as_json:
                    line = json.dumps({"utc": utc_now, **limit_record(state)}, ensure_ascii=False)
                else:
                    line = f"{utc_now} {limit_line(state)}"
                is_read = show(line) and is_read
        return is_read
