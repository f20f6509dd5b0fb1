"""Spans and events of a run. Needs the extra `otel`; imported only where it is asked for."""

from trioeval.kernel import Event
from trioeval.tasks.journal import Journal


class Telemetry:
    """Turns what happens in a run into spans, as it happens. See `open_telemetry`."""

    def observe(self, event: Event) -> None:
        """Take note of an event of the kernel."""
        raise NotImplementedError

    def told_of(self, journal: Journal) -> Journal:
        """The same journal, of whose calls and rows this hears as well."""
        raise NotImplementedError
