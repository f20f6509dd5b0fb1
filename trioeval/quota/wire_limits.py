"""What is said of limits over HTTP, in snake_case: definitions and states, written and read back. Pure.

Definitions that a client sends are checked where those of files are, in `limit_json`.
"""

import re

from trioeval.errors import SuiteError
from trioeval.quota.limit_json import limit_data, limit_of
from trioeval.quota.limits import Limit, LimitState
from trioeval.quota.wire import Json

_DEFINED = frozenset(
    (
        "key",
        "kind",
        "capacity",
        "window_seconds",
        "timeout_seconds",
        "reset_seconds",
        "overage",
        "unit",
        "description",
    )
)


def limit_json(limit: Limit) -> Json:
    """The definition of a limit, as a client sends it.

    Example:
        >>> limit_json(Limit(key="rpm", kind="rolling", capacity=60, window=60))
        {'key': 'rpm', 'kind': 'rolling', 'capacity': 60, 'window_seconds': 60}
    """
    return {_snake(name): value for name, value in limit_data(limit).items()}


def state_json(state: LimitState) -> Json:
    """A limit and how it stands, as a server tells it; an instant or a capacity that is not is left out."""
    told: Json = {
        **limit_json(state.limit),
        "overage": None if state.limit.kind == "concurrency" else state.limit.overage,
        "status": state.status,
        "pending_capacity": state.pending_capacity,
        "used": state.used,
        "outstanding": state.outstanding,
        "debt": state.debt,
        "paused_until": state.paused_until,
        "paused_seconds": state.paused_for,
        "began_at": state.began_at,
    }
    return {name: value for name, value in told.items() if value is not None}


def read_state(data: object) -> LimitState | None:
    """How a limit stands, as a server told it; None for what does not say it.

    What is not known of it is passed over, since a newer server may say more.
    """
    if not isinstance(data, dict):
        return None
    defined = {name: value for name, value in data.items() if name in _DEFINED}
    paused_until, began_at = data.get("paused_until"), data.get("began_at")
    paused_for = data.get("paused_seconds")
    try:
        pending = None if data.get("pending_capacity") is None else _whole(data, "pending_capacity")
        return LimitState(
            limit=limit_of(defined),
            status="active" if pending is None else "decreasing",
            pending_capacity=pending,
            used=_whole(data, "used"),
            outstanding=_whole(data, "outstanding"),
            debt=_whole(data, "debt"),
            paused_until=None if paused_until is None else float(paused_until),
            paused_for=None if paused_for is None else float(paused_for),
            began_at=None if began_at is None else float(began_at),
        )
    except (SuiteError, TypeError, ValueError):
        return None


def _whole(data: Json, name: str) -> int:
    value = data.get(name, 0)
    if not isinstance(value, int):
        raise TypeError(name)
    return value


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
