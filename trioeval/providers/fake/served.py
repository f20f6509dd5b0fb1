"""What the fake provider tells of each completion that it was asked for, once that is over. Pure.

Who pays for replies wants to know which ones went out. The server knows; a client that was killed does not.
"""

import hashlib
import json

import attrs

from trioeval.providers.fake.completions import read_ask
from trioeval.providers.fake.tally import Ending


@attrs.frozen(kw_only=True)
class Served:
    """A request for a completion, and what became of its reply."""

    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    """Of the request."""
    status: int
    """That was decided; whether it was told depends on the ending."""
    ending: Ending
    seconds: float
    """From the arrival of the request until it was over."""
    busy_seconds: float
    """Those of them until the last of the reply was about to be sent; 0 if it was refused."""
    sent_bytes: int
    """Of the reply, with its head, that the operating system took before it was over."""

    def to_line(self, utc_at: float) -> str:
        """A line of JSON, with its end.

        Args:
            utc_at: When it was over, in seconds since 1970.
        """
        ask = read_ask(self.body)
        asked = {} if isinstance(ask, str) else {"model": ask.model, "prompt": ask.prompt}
        said = {
            "utc_at": utc_at,
            "seconds": self.seconds,
            "busy_seconds": self.busy_seconds,
            "digest": hashlib.sha256(self.body).hexdigest(),
            "status": self.status,
            "ending": self.ending,
            "bytes": self.sent_bytes,
            **asked,
        }
        return json.dumps(said, separators=(",", ":")) + "\n"
