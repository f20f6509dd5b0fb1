# Apart from `cli.run.execution`: what is remembered of an early end is also asked when it is explained.
"""What ends a run before all of its rows were run, by whose wish, and what is remembered of it."""

import signal

import attrs
import trio

from trioeval.cli.terminal import say
from trioeval.errors import StoreError
from trioeval.kernel import Cut
from trioeval.question_eval.result import question_of
from trioeval.run import Row


@attrs.define
class Stopping:
    """Takes all that may end a run early; each of them may come at any time, and again."""

    event: trio.Event = attrs.field(factory=trio.Event)
    """Set when no more rows are started."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Around the run; cancelled when nobody waits for the rows under way."""
    signals: list[signal.Signals] = attrs.field(factory=list)
    steered: bool = False
    """Whether who watches the run has stopped it."""
    cuts: set[Cut | None] = attrs.field(factory=set)
    """What kept rows from running to their end; None of those that nothing did."""
    failed_fast: dict[str | None, None] = attrs.field(factory=dict)
    """The tasks of questions whose own failure kept questions from being started."""

    def stop(self) -> None:
        """Start no more rows; why is told elsewhere."""
        self.event.set()

    def interrupt(self, number: signal.Signals) -> None:
        """The first signal lets what runs finish, the second cancels it; more change nothing."""
        self.signals.append(number)
        if len(self.signals) == 1:
            self.event.set()
            say("stopping: rows under way may finish; interrupt again to cancel them")
        else:
            self.scope.cancel(f"second signal: {number.name}")

    def stop_from_outside(self, process: int | None) -> None:
        """Who watches the run asks for it, from the process of this number if that is known."""
        if not self.steered:
            self.steered = True
            named = "" if process is None else f" (process {process})"
            say(f"stopping, as who watches the run has asked{named}: rows under way may finish")
        self.event.set()

    def cancel_from_outside(self, process: int | None) -> None:
        """Likewise, and does not wait for rows under way."""
        self.stop_from_outside(process)
        self.scope.cancel("who watches the run has asked")

    def cannot_keep(self, error: StoreError) -> None:
        """The store fails: pay for nothing more that cannot be kept."""
        say(f"{error}\nstopping: rows under way may finish")
        self.event.set()

    def take(self, row: Row) -> None:
        """Remember what cut a row, if anything did."""
        if (found := question_of(row)) is not None and found.outcome == "skipped":
            self.failed_fast[row.task] = None
        else:
            self.cuts.add(row.cut)
