"""The early end of a run: who requested it, and why rows did not run."""

import signal

import attrs
import trio

from trioeval.cli.terminal import say
from trioeval.errors import StoreError
from trioeval.kernel import StopReason
from trioeval.question_eval import question_of
from trioeval.run import Row


@attrs.define(eq=False, repr=False)
class StopRequests:
    """Receives every request to end a run early; each may arrive at any time, and repeatedly."""

    event: trio.Event = attrs.field(factory=trio.Event)
    """Set when no more rows are to start."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """The scope of the run, cancelled when running rows are not to finish."""
    signals: list[signal.Signals] = attrs.field(factory=list)
    steered: bool = False
    """True if a viewer has stopped the run."""
    lost_workers: bool = False
    """True if the run was stopped because its workers failed."""
    cuts: set[StopReason | None] = attrs.field(factory=set)
    """The reasons why rows did not run to their end; None for rows that did."""
    failed_fast: dict[str | None, None] = attrs.field(factory=dict)
    """The question tasks that stopped starting questions after a failure."""

    def stop(self) -> None:
        """Start no more rows. The caller reports the reason."""
        self.event.set()

    def interrupt(self, number: signal.Signals) -> None:
        """Handle a signal: the first one lets running rows finish, the second one cancels them."""
        self.signals.append(number)
        if len(self.signals) == 1:
            self.event.set()
            say("stopping: running rows may finish; interrupt again to cancel them")
        else:
            self.scope.cancel(f"second signal: {number.name}")

    def stop_from_outside(self, process: int | None) -> None:
        """Start no more rows because a viewer asks for it, from the process of this id if it is known."""
        if not self.steered:
            self.steered = True
            named = "" if process is None else f" (process {process})"
            say(f"stopping at the request of a viewer{named}: running rows may finish")
        self.event.set()

    def cancel_from_outside(self, process: int | None) -> None:
        """Cancel the run because a viewer asks for it."""
        self.stop_from_outside(process)
        self.scope.cancel("a viewer has asked")

    def workers_failed(self) -> None:
        """Start no more rows because no worker can run them. The caller reports the reason."""
        self.lost_workers = True
        self.event.set()

    def store_failed(self, error: StoreError) -> None:
        """Start no more rows because the store has failed and could not record them."""
        say(f"{error}\nstopping: running rows may finish")
        self.event.set()

    def take(self, row: Row) -> None:
        """Record why a row did not run to its end."""
        if (found := question_of(row)) is not None and found.outcome == "skipped":
            self.failed_fast[row.task] = None
        else:
            self.cuts.add(row.cut)
