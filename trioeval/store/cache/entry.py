"""What is kept of a reply: its JSON text, how long the call took, and when it was."""

import json

import attrs

from trioeval.errors import ProviderError
from trioeval.evaluation.journal import Paid
from trioeval.providers.bounds import has_more_marks, most_marks
from trioeval.store.records import read_reply, reply_json

_COPIES = 3
"""How often a value of a reply may be kept: as output, as it was received, and in what is known of it."""
_TIMES = 8
"""How many times its bytes a kept reply may have: twice, each byte in ASCII as up to three, and the rest."""
_FIRST_ERROR = 400
"""HTTP statuses from here on are failures."""


@attrs.frozen
class Entry:
    """A reply in the cache."""

    text: str = attrs.field(repr=False)
    """The reply as JSON, in ASCII."""
    latency_ms: float
    """Of the call that it came from."""
    utc_created: float
    """When it was kept: seconds since 1970."""

    def paid(self, most_bytes: int) -> Paid:
        """The reply, each time one of its own.

        Args:
            most_bytes: That the reply may have had when it came. What is kept holds it twice, as output and
                as it was received, and each time in ASCII; it may have many times as many bytes, and more
                is no reply that was kept.

        Raises:
            ProviderError: `malformed_reply`: it is larger than that; nothing of it was read.
            ValueError: The text is none of a reply.
        """
        marks = _COPIES * most_marks(most_bytes)
        if len(self.text) > _TIMES * most_bytes or has_more_marks(self.text.encode(), marks):
            what = "the reply in the cache is larger than a reply may be"
            hint = "ask again with --refresh, or give its provider a larger bound"
            raise ProviderError(
                "malformed_reply", f"{what} (maxResponseBytes: {most_bytes}); {hint}"
            )
        return Paid(read_reply(json.loads(self.text)), self.latency_ms, cached=True)

    def is_fresh(self, now: float, ttl: float) -> bool:
        """Whether it may be used: a clock that was put back makes no entry too old, or good for ever.

        Example:
            >>> entry = Entry("", 0.0, 100.0)
            >>> [entry.is_fresh(now, 10) for now in (95, 109.9, 110, 89)], entry.is_fresh(100, 0)
            ([True, True, False, False], False)
        """
        return abs(now - self.utc_created) < ttl


def to_entry(paid: Paid, now: float) -> Entry | None:
    """What is kept of a reply; None if nothing.

    Not kept is what is empty, what JSON cannot hold, and what a server said that would not take the
    prompt: none of it is worth what asking again costs. A refusal of the model is an answer like others.
    """
    reply = paid.reply
    if reply.output is None or reply.output in ("", [], {}):
        return None
    http = reply.metadata.get("http")
    status = http.get("status") if isinstance(http, dict) else None
    if isinstance(status, int) and status >= _FIRST_ERROR:
        return None
    data = reply_json(reply)
    if data is None:
        return None
    return Entry(json.dumps(data, separators=(",", ":")), paid.latency_ms, now)
