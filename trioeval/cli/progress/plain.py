"""Progress as lines, for files and terminals that cannot draw."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import trio

from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.progress.table import (
    by_business,
    clock,
    in_flight,
    left,
    named,
    pass_rate,
    wait_words,
    worker_words,
)
from trioeval.cli.terminal import say
from trioeval.report.run_state import LaneState, RunSnapshot, WorkerState
from trioeval.report.text import cut_middle
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

EVERY = 5.0  # seconds between two lines, and before the first, so that short runs have none
_EARLY = (0.25, 0.5, 1.0)  # seconds after which a run may be known to take longer than that
_LANES = 5  # lanes of a line
_WORKERS = 4  # workers of a line
_NAME = 50  # characters of a name


@attrs.define(eq=False, repr=False)
class PlainProgress(RunProgress):
    """Progress that prints a line now and then."""

    every: float = EVERY
    """Seconds between two lines, and before the first; of a long run the first comes earlier."""

    async def show(
        self, state: Callable[[], RunSnapshot], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Print the state of the run, until cancelled."""
        began = trio.current_time()
        for early in _EARLY:
            await trio.sleep_until(began + early)
            if (left := state().eta_s) is not None and left > self.every:
                say(plain_line(state(), more()))
                break
        await trio.sleep_until(began + self.every)
        while True:
            say(plain_line(state(), more()))
            await trio.sleep(self.every)


def plain_line(state: RunSnapshot, more: Iterable[str] = ()) -> str:
    """Return the state of a run on one line; of many lanes only the busiest."""
    lanes = named(state.lanes)
    busy = sorted(lanes, key=by_business, reverse=True)[:_LANES]
    parts = [", ".join(_run(state))]
    parts += [_lane(lane, is_one=len(lanes) == 1) for lane in lanes if lane in busy]
    if hidden := len(lanes) - len(busy):
        parts.append(counted(hidden, "more lane"))
    parts += _workers(state.workers)
    return "; ".join([*parts, *(line.strip() for line in more)])


def _run(state: RunSnapshot) -> Iterator[str]:
    if state.stopping:
        yield "stopping"
    if state.total:  # runs of datasets have no rows
        yield f"{state.done}/{state.total} rows"
    if (passed := pass_rate(state)) is not None:
        yield f"{passed} passed"
    if state.not_graded:
        yield f"{state.not_graded} not graded"
    yield clock(state.elapsed_s)
    if state.eta_s is not None and state.total:
        yield f"{clock(state.eta_s)} left"


def _workers(workers: Sequence[WorkerState]) -> Iterator[str]:
    if workers:
        shown = [worker_words(worker) for worker in workers[:_WORKERS]]
        more = [f"{len(workers) - _WORKERS} more"] if len(workers) > _WORKERS else []
        yield f"{counted(len(workers), 'worker')}: {', '.join([*shown, *more])}"


def _lane(lane: LaneState, *, is_one: bool) -> str:
    facts = [f"{in_flight(lane)} in flight"]
    facts += [f"{lane.queued} queued"] if lane.queued else []
    if waits := wait_words(lane):
        facts.append(waits if lane.mood == "closed" else f"waits: {waits}")
    if lane.rows and not is_one:
        facts += [f"{lane.done}/{lane.rows} rows"]
        facts += [f"{time} left"] if (time := left(lane)) else []
    return f"{cut_middle(escape_control_characters(lane.name), _NAME)}: {', '.join(facts)}"
