"""In which ways a call can fail, and what each means for its lane."""

import enum
from collections.abc import Mapping
from typing import Literal, TypeAlias

ProviderErrorKind: TypeAlias = Literal[
    "auth",
    "permission",
    "not_found",
    "unsupported",
    "bad_request",
    "context_window",
    "rate_limited",
    "overloaded",
    "quota_exhausted",
    "server",
    "connection",
    "tls",
    "attempt_timeout",
    "malformed_reply",
    "empty_reply",
    "bad_exit",
    "worker_crashed",
    "replay_miss",
    "unexpected",
]
"""The closed set of ways in which a call can fail."""


class Fault(enum.Enum):
    """What a failed call means for its lane: who is to blame, and whether to call again."""

    RATE_LIMITED = "rate_limited"
    """Too many calls: call again later, and less often."""
    TRANSIENT = "transient"
    """A mishap of the server or the network: call again."""
    REFUSED = "refused"
    """This request will never be served; others may be."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The account will not be served any more in this run."""
    FATAL = "fatal"
    """The provider refuses whoever calls like this: a wrong key, a model that is not there."""


FAULT_BY_KIND: Mapping[ProviderErrorKind, Fault] = {
    "auth": Fault.FATAL,
    "permission": Fault.FATAL,
    "not_found": Fault.FATAL,
    "unsupported": Fault.REFUSED,
    "bad_request": Fault.REFUSED,
    "context_window": Fault.REFUSED,
    "rate_limited": Fault.RATE_LIMITED,
    "overloaded": Fault.RATE_LIMITED,
    "quota_exhausted": Fault.QUOTA_EXHAUSTED,
    "server": Fault.TRANSIENT,
    "connection": Fault.TRANSIENT,
    "tls": Fault.FATAL,
    "attempt_timeout": Fault.TRANSIENT,
    "malformed_reply": Fault.TRANSIENT,
    "empty_reply": Fault.TRANSIENT,
    "bad_exit": Fault.REFUSED,
    "worker_crashed": Fault.TRANSIENT,
    "replay_miss": Fault.REFUSED,
    "unexpected": Fault.REFUSED,
}
"""What each kind of failure means for the lane."""

ONCE_MORE: frozenset[ProviderErrorKind] = frozenset(
    {"malformed_reply", "empty_reply", "worker_crashed"}
)
"""Kinds that are worth one more call, and no further one."""
