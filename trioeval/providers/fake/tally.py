"""What the fake provider has seen: the numbers behind `/stats`."""

from collections import Counter
from typing import Any, Literal, TypeAlias, assert_never

import attrs

KEPT_STARTS = 100_000
"""How many instants of requests are kept; later requests are only counted."""

Ending: TypeAlias = Literal["sent", "cut", "abandoned"]
"""A reply went out whole, was cut by the fake, or found its client gone."""


@attrs.define(eq=False)
class Tally:
    """Counts since the start or the last reset.

    Every request ends in exactly one way: `requests` is the sum of `by_status`, `disconnects`,
    `abandoned` and what is not answered yet.
    """

    opened_at: float
    """The instant that all times count from."""
    requests: int = 0
    in_flight: int = 0
    """Requests that were let in and are not over yet; refused ones never are."""
    busy: int = 0
    """Those of them whose reply is not ready yet. A client may have a reply, and ask again, before the server
    comes to see that it is over."""
    max_in_flight: int = 0
    disconnects: int = 0
    abandoned: int = 0
    last_reply_at: float | None = None
    _statuses: Counter[int] = attrs.field(factory=Counter)
    _started_at: list[float] = attrs.field(factory=list)

    def arrive(self, now: float) -> None:
        """A request is there."""
        self.requests += 1
        if len(self._started_at) < KEPT_STARTS:
            self._started_at.append(now - self.opened_at)

    def let_in(self) -> None:
        """The request is being worked on."""
        self.in_flight += 1
        self.busy += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def reply(self) -> None:
        """A request that was let in keeps the provider busy no more; once for each."""
        self.busy -= 1

    def leave(self, now: float, *, status: int, ending: Ending, let_in: bool) -> None:
        """The request is over.

        Args:
            now: When.
            status: That was decided for it.
            ending: How it went; a status counts only if it was sent.
            let_in: Whether it was in flight.
        """
        if let_in:
            self.in_flight -= 1
        match ending:
            case "sent":
                self._statuses[status] += 1
                self.last_reply_at = now - self.opened_at
            case "cut":
                self.disconnects += 1
            case "abandoned":
                self.abandoned += 1
            case _:
                assert_never(ending)

    def to_json(self) -> dict[str, Any]:
        """A snapshot; times are seconds since the start or the last reset."""
        return {
            "requests": self.requests,
            "ok": self._statuses[200],
            "by_status": {str(status): self._statuses[status] for status in sorted(self._statuses)},
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "disconnects": self.disconnects,
            "abandoned": self.abandoned,
            "first_request_at": self._started_at[0] if self._started_at else None,
            "last_reply_at": self.last_reply_at,
            "started_at": list(self._started_at),
        }
