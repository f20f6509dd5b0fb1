"""An entry of the cache: the JSON text of a reply, the latency of its call, and its time."""

import json

import attrs

from trioeval.errors import ProviderError
from trioeval.evaluation.journal import RecordedReply
from trioeval.providers.base import Media
from trioeval.providers.bounds import has_more_marks, most_marks
from trioeval.store.records import read_reply, reply_json

_COPIES = 4
"""The number of copies of a value in an entry: as output, as received, as a part such as the text or the
arguments of a tool, and in the metadata."""
_TIMES = 13
"""The largest ratio of an entry to its reply's bytes: four copies, each byte in ASCII as up to three, and the
rest."""
_FIRST_ERROR = 400
"""The first HTTP status that is a failure."""


@attrs.frozen
class CacheEntry:
    """An entry of the cache."""

    text: str = attrs.field(repr=False)
    """The reply as JSON, in ASCII."""
    latency_ms: float
    """Milliseconds of its call."""
    utc_created: float
    """The time of its creation: seconds since 1970."""
    media: tuple[Media, ...] = attrs.field(default=(), eq=False, repr=False)
    """Its media, until their files are written; an entry of the file has none."""

    def paid(self, most_bytes: int) -> RecordedReply:
        """Return the reply, a new object each time.

        Args:
            most_bytes: The bytes that the reply was allowed when it arrived. An entry has it several times,
                as output and as received for example, and each time in ASCII; it may have many times as many
                bytes, and more cannot be a stored reply.

        Raises:
            ProviderError: `malformed_reply`: it is larger than that; nothing of it was parsed.
            ValueError: The text is not that of a reply.
        """
        marks = _COPIES * most_marks(most_bytes)
        if len(self.text) > _TIMES * most_bytes or has_more_marks(self.text.encode(), marks):
            message = "the reply in the cache exceeds the size limit of replies"
            hint = "call again with --refresh, or raise the limit of its provider"
            raise ProviderError(
                "malformed_reply", f"{message} (maxResponseBytes: {most_bytes}); {hint}"
            )
        return RecordedReply(read_reply(json.loads(self.text)), self.latency_ms, cached=True)

    def is_fresh(self, now: float, ttl: float) -> bool:
        """Return whether it may be used: a clock set back makes no entry too old, or valid for ever.

        Example:
            >>> entry = CacheEntry("", 0.0, 100.0)
            >>> [entry.is_fresh(now, 10) for now in (95, 109.9, 110, 89)], entry.is_fresh(100, 0)
            ([True, True, False, False], False)
        """
        return abs(now - self.utc_created) < ttl


def to_entry(paid: RecordedReply, now: float) -> CacheEntry | None:
    """Return the entry for a reply; None if it is not cacheable.

    Not cacheable are empty replies, values that JSON cannot hold, and notices of a server that would not
    process the prompt: none of them saves anything. A refusal of the model is an ordinary reply.
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
    text = json.dumps(data, separators=(",", ":"))
    return CacheEntry(text, paid.latency_ms, now, reply.media)
