"""The observers of the runs of a session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from trioeval.errors import UsageError
from trioeval.evaluation.journal import CallRecord, RecordObserver
from trioeval.kernel import Event
from trioeval.kernel.events import guarded
from trioeval.run import Row
from trioeval.session.run import Run

T = TypeVar("T")


class SessionObserver:
    """Observer of all runs of a session; a subclass defines the methods that it needs.

    Each is called synchronously, inside of `trio.run`. A method that raises is logged and not called again.
    """

    def on_run_start(self, run: Run, /) -> None:
        """Handle the start of a run, before its first call."""

    def on_event(self, run: Run, event: Event, /) -> None:
        """Handle an event of a lane or a job of a run."""

    def on_call(self, run: Run, call: CallRecord, /) -> None:
        """Handle the end of a call to a provider or a judge."""

    def on_row(self, run: Run, row: Row, /) -> None:
        """Handle the end of a row, perhaps before its turn in `Run.rows`."""

    def on_run_end(self, run: Run, /) -> None:
        """Handle the end of a run, whose `summary` is known."""


@attrs.define(eq=False, repr=False)
class RunObservers(RecordObserver):
    """The observers of one run."""

    run: Run
    on_start: Sequence[Callable[[Run], None]]
    on_events: Sequence[Callable[[Event], None]]
    on_calls: Sequence[Callable[[CallRecord], None]]
    on_rows: Sequence[Callable[[Row], None]]
    on_end: Sequence[Callable[[Run], None]]

    @classmethod
    def of(cls, run: Run, observers: Iterable[SessionObserver]) -> RunObservers:
        """Return the observers of a run."""
        several = tuple(observers)

        def bound(name: str, *, of_run: bool = True) -> list[Callable[..., None]]:
            """Return the method of each observer that defines it."""
            found = []
            for one in several:
                if getattr(type(one), name) is not getattr(SessionObserver, name):
                    method = getattr(one, name)
                    call = guarded(functools.partial(method, run) if of_run else method)
                    found += [] if call is None else [call]
            return found

        return cls(
            run,
            bound("on_run_start", of_run=False),
            bound("on_event"),
            bound("on_call"),
            bound("on_row"),
            bound("on_run_end", of_run=False),
        )

    def started(self) -> None:
        """Notify them of the start of the run."""
        for notify in self.on_start:
            notify(self.run)

    def observe(self, event: Event) -> None:
        """Notify the run and them of an event of the kernel."""
        self.run.observe(event)
        for notify in self.on_events:
            notify(event)

    def on_call(self, call: CallRecord, /) -> None:
        """Notify them of the end of a call."""
        for notify in self.on_calls:
            notify(call)

    def on_row(self, row: Row, /) -> None:
        """Notify the run and them of the end of a row."""
        self.run.on_row(row)
        for notify in self.on_rows:
            notify(row)

    def ended(self) -> None:
        """Notify them of the end of the run."""
        for notify in self.on_end:
            notify(self.run)


def checked_observers(observers: object, kind: type[T]) -> tuple[T, ...]:
    """Return observers of this type as they were given; for anything else, events would be lost.

    Raises:
        UsageError: They are something else.
    """
    message = f"observers must be a list of {kind.__name__} objects, got"
    if not isinstance(observers, Iterable):
        raise UsageError(f"{message} {observers!r}")
    several = tuple(observers)
    for one in several:
        if not isinstance(one, kind):
            raise UsageError(f"{message} {one!r} in it")
    return several
