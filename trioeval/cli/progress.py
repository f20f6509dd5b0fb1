"""What each lane is doing, on stderr, while a suite runs.

On a terminal the lines are redrawn in place; elsewhere a line is printed now and then. All of it is made
from kernel events and the rows that come out; the run does not know that it is watched.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from trioeval.cli.terminal import open_console, say
from trioeval.kernel import CallEnded, CallStarted, Event, Lanes, Waiting, Why
from trioeval.report import inert
from trioeval.tasks import Status
from trioeval.tasks.columns.making import OWN_LANES

_REFRESH = 0.125  # seconds between two pictures on a terminal
_PLAIN_EVERY = 5.0  # seconds between two lines elsewhere


@attrs.define
class _LaneState:
    in_flight: int = 0
    calls: int = 0
    waits: Waiting | None = None


@attrs.define
class Progress:
    """Collects what is shown. `observe` goes to the run, `add` gets its rows."""

    total: int
    """Rows of the run."""
    lanes: Lanes
    kept: Callable[[], int] = lambda: 0
    """Rows that are there already and whose turn has not come."""
    more: Callable[[], Sequence[str]] = lambda: ()
    """Gives further lines, those of questions."""
    counts: Counter[Status] = attrs.field(factory=Counter)
    _states: dict[str, _LaneState] = attrs.field(factory=dict)

    def observe(self, event: Event) -> None:
        """Take note of an event of the kernel."""
        match event:
            case CallStarted():
                state = self._state(event.lane)
                state.in_flight += 1
                state.calls += 1
                state.waits = None
            case CallEnded():
                self._state(event.lane).in_flight -= 1
            case Waiting():
                self._state(event.lane).waits = event
            case _:
                pass

    def expect(self, rows: int) -> None:
        """More rows are known to come."""
        self.total += rows

    def add(self, status: Status) -> None:
        """Take note of a row."""
        self.counts[status] += 1

    def lines(self, now: float) -> list[str]:
        """The picture: a line for the run and one for each lane."""
        kept = self.kept()
        done = self.counts.total() + kept
        found = ", ".join(f"{self.counts[status]} {status.value}" for status in Status)
        found += f", {kept} there already" if kept else ""
        # A run that makes nothing but datasets has no rows to tell of.
        shown = [f"{done}/{self.total} rows: {found}"] if done or self.total else []
        for name, lane in self.lanes.items():
            if name in OWN_LANES:
                continue  # nobody is asked there
            state = self._state(name)
            line = f"  {inert(name, 50)}: {state.in_flight}/{lane.spec.width} in flight, {state.calls} calls"
            shown.append(line + _waits_for(state.waits, now))
        return [*shown, *self.more()]

    async def show(self) -> None:
        """Draw until cancelled, or until nobody can see it."""
        if sys.stderr is not None and sys.stderr.isatty():
            try:
                await self._redraw()
            except OSError:  # the terminal has gone; the run has not
                return
        while True:
            await trio.sleep(_PLAIN_EVERY)
            say("; ".join(line.strip() for line in self.lines(trio.current_time())))

    async def _redraw(self) -> None:
        from rich.live import Live  # noqa: PLC0415 - only where there is a terminal
        from rich.text import Text  # noqa: PLC0415

        def picture() -> Text:
            return Text(
                "\n".join(self.lines(trio.current_time())), no_wrap=True, overflow="ellipsis"
            )

        console = open_console(sys.stderr)
        if console.is_dumb_terminal:
            return
        with Live(console=console, transient=True, auto_refresh=False) as live:
            while True:
                live.update(picture(), refresh=True)
                await trio.sleep(_REFRESH)

    def _state(self, lane: str) -> _LaneState:
        return self._states.setdefault(lane, _LaneState())


_WORDS: Mapping[Why, str] = {
    Why.GATE: "another row has to run alone",
    Why.WINDOW: "earlier rows come first",
    Why.TURN: "others came before",
    Why.PAUSED: "it is paused",
    Why.BLOCKED: "the provider asked for it",
    Why.PACE: "its rate",
    Why.TOKENS: "its rate of tokens",
    Why.SLOT: "all slots are taken",
    Why.BUDGET: "the rest of the budget is reserved",
    Why.CAP: "all slots of the run are taken",
    Why.QUOTA: "a limit that others share",
    Why.BACKOFF: "a row is asked again",
}


def _waits_for(wait: Waiting | None, now: float) -> str:
    if wait is None or wait.why is Why.TURN:
        return ""
    if wait.until is None:
        return f", waiting: {_WORDS[wait.why]}"
    left = wait.until - now
    return f", waiting {left:.1f} s: {_WORDS[wait.why]}" if left > 0 else ""
