"""What each lane is doing, on stderr, while a suite runs."""

import sys
from collections.abc import Callable, Sequence

import attrs
import trio

from trioeval.cli.flags import ProgressMode
from trioeval.cli.terminal import say
from trioeval.report import inert
from trioeval.report.run_state import RunState

_PLAIN_EVERY = 5.0  # seconds between two lines elsewhere


@attrs.define
class Progress:
    """Shows how a run stands, again and again."""

    state: Callable[[], RunState]
    more: Callable[[], Sequence[str]]
    """Gives further lines, those of questions, datasets and agents; they are inert."""
    mode: ProgressMode | None

    async def show(self) -> None:
        """Draw until cancelled, or until nobody can see it."""
        while sys.stderr is not None:
            await trio.sleep(_PLAIN_EVERY)
            state = self.state()
            lanes = [
                f"{inert(lane.name, 50)}: {lane.in_flight}/{lane.limit}" for lane in state.lanes
            ]
            say("; ".join([f"{state.done}/{state.total} rows", *lanes, *self.more()]))
