"""The JSON messages about leases over HTTP: requests, decisions and settlements, read and written. Pure.

Requests are read strictly: an unknown field may be a misspelt one, and an ignored limit is worse than a
rejected request. Answers are read leniently, since a newer server may send more; an answer that cannot be
understood at all counts as none, so the outcome of its request is unknown.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast, get_args

import attrs
import orjson

from trioeval.errors import Problem, SuiteError
from trioeval.limits.denials import MAX_REQUIREMENTS
from trioeval.limits.json import DEFINITION, from_json, limit_data, snake
from trioeval.limits.model import (
    LONGEST_NAME,
    MOST,
    Actual,
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
    TerminalReason,
    TransientReason,
    Unknown,
)

BATCH = 256
"""Most items of one request."""

LONGEST_JOB = 1024
"""Most characters of the name of a job, which is only for messages."""

INVALID = "invalid_request"
FAILED = "backend_error"

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

_TERMINAL: frozenset[str] = frozenset(get_args(TerminalReason))
_TRANSIENT: frozenset[str] = frozenset(get_args(TransientReason))


class MalformedError(ValueError):
    """A request that is invalid; a server answers it with status 400.

    Args:
        problems: All of its problems.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = (
            f"{one.path}: {one.message}{(one.hint and f' ({one.hint})') or ''}" for one in problems
        )
        super().__init__("; ".join(lines))


@attrs.frozen
class PauseRequest:
    """A request to grant nothing of a limit for a while."""

    key: str
    seconds: float


# --- requests, as a server reads them ------------------------------------------------------------


def read_body(body: bytes) -> object:
    """Return the JSON of a request.

    Raises:
        MalformedError: The body is not JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedError([Problem("$", f"the body is not JSON: {error}")]) from None


def read_lease_request(data: object, at: str = "$") -> LeaseRequest:
    """Read a request for a lease. The backend checks its amounts.

    Raises:
        MalformedError: It has another form.

    Example:
        >>> read_lease_request({"lease_id": "a", "requirements": [{"key": "rpm", "amount": 1}]})
        LeaseRequest(lease_id='a', job_id='', requirements=(Requirement(key='rpm', amount=1),))
    """
    form = _RequestForm(data, at, needed=("lease_id", "requirements"), others=("job_id",))
    lease_id, job_id = form.text("lease_id"), form.text("job_id", most=LONGEST_JOB)
    parts = form.items("requirements", ("key", "amount"))
    form.bound("requirements", len(parts), MAX_REQUIREMENTS)
    requirements = tuple(Requirement(part.text("key"), part.whole("amount")) for part in parts)
    form.check(*parts)
    return LeaseRequest(lease_id, job_id, requirements)


def read_settlement(data: object, at: str = "$") -> Settlement:
    """Read the end of a lease.

    Raises:
        MalformedError: It has another form.

    Example:
        >>> read_settlement({"lease_id": "a", "actuals": [{"key": "tpm", "actual_amount": 7}]})
        Settlement(lease_id='a', job_id='', actuals=(Actual(key='tpm', amount=7),))
    """
    form = _RequestForm(data, at, needed=("lease_id",), others=("job_id", "actuals"))
    lease_id, job_id = form.text("lease_id"), form.text("job_id", most=LONGEST_JOB)
    parts = form.items("actuals", ("key", "actual_amount")) if "actuals" in form.fields else []
    form.bound("actuals", len(parts), MAX_REQUIREMENTS)
    actuals = tuple(Actual(part.text("key"), part.amount("actual_amount")) for part in parts)
    form.check(*parts)
    return Settlement(lease_id, job_id, actuals)


def read_batch(data: object, read: Callable[[object, str], T]) -> list[T | MalformedError]:
    """Read the items of a batch; an invalid item gives its error instead.

    Raises:
        MalformedError: The batch is not a list of 1 to 256 items.
    """
    form = _RequestForm(data, "$", needed=("requests",))
    items = form.listed("requests")
    form.check()
    if not 1 <= len(items) <= BATCH:
        message = f"must have 1 to {BATCH} items, has {len(items)}"
        raise MalformedError([Problem("$.requests", message)])
    found: list[T | MalformedError] = []
    for number, item in enumerate(items):
        try:
            found.append(read(item, f"$.requests[{number}]"))
        except MalformedError as error:
            found.append(error)
    return found


def read_extended(data: object) -> list[str]:
    """Read the leases to extend: one in `lease_id`, or 1 to 256 in `lease_ids`.

    Raises:
        MalformedError: It has neither, or both.
    """
    if isinstance(data, dict) and "lease_ids" in data:
        form = _RequestForm(data, "$", needed=("lease_ids",))
        items = form.listed("lease_ids")
        form.check()
        texts = [item for item in items if isinstance(item, str) and len(item) <= LONGEST_NAME]
        if not 1 <= len(items) <= BATCH or len(texts) < len(items):
            expected = f"1 to {BATCH} texts of at most {LONGEST_NAME} characters"
            message = f"must be a list of {expected}, got {_seen(items)}"
            raise MalformedError([Problem("$.lease_ids", message)])
        return items
    form = _RequestForm(data, "$", needed=("lease_id",), others=("job_id",))
    lease_id = form.text("lease_id")
    form.text("job_id", most=LONGEST_JOB)
    form.check()
    return [lease_id]


def read_pause(data: object) -> PauseRequest:
    """Read the limit to pause, and for how many seconds.

    Raises:
        MalformedError: It has another form.
    """
    form = _RequestForm(data, "$", needed=("key", "seconds"))
    key, seconds = form.text("key"), form.number("seconds")
    form.check()
    return PauseRequest(key, seconds)


# --- answers, as a server writes them ------------------------------------------------------------


def decision_json(decision: Decision | MalformedError) -> Json:
    """Return the JSON of a decision.

    Example:
        >>> decision_json(Denied("no_capacity", terminal=False, retry_after=0.25, keys=("rpm",)))[
        ...     "retry_after_ms"
        ... ]
        250
    """
    match decision:
        case Granted(reserved_at=reserved_at):
            return {"granted": True, "reserved_at": reserved_at}
        case Denied():
            return {
                "granted": False,
                "reason": decision.reason,
                "terminal": decision.terminal,
                "retry_after_ms": milliseconds(decision.retry_after),
                "keys": list(decision.keys),
                "message": decision.message,
            }
        case Unknown(message=message):
            return error_json(FAILED, message)
        case MalformedError():
            return error_json(INVALID, str(decision))


def error_json(error: str, message: str = "") -> Json:
    """Return the JSON of a request that was not carried out."""
    return {"error": error, "message": message} if message else {"error": error}


def milliseconds(seconds: float) -> int:
    """Return a wait for the wire, rounded up; an infinite one becomes very long.

    Example:
        >>> milliseconds(0.1), milliseconds(0.0101), milliseconds(float("inf")) > 10**12
        (100, 11, True)
    """
    if not seconds * 1000 < MOST:
        return MOST
    return max(0, math.ceil(round(seconds * 1000, 3)))


# --- requests, as a client writes them -----------------------------------------------------------


def lease_request_json(ask: LeaseRequest) -> Json:
    """Return the JSON that `read_lease_request` reads."""
    return {
        "lease_id": ask.lease_id,
        "job_id": ask.job_id[:LONGEST_JOB],
        "requirements": [{"key": item.key, "amount": item.amount} for item in ask.requirements],
    }


def settlement_json(settlement: Settlement) -> Json:
    """Return the JSON that `read_settlement` reads."""
    return {
        "lease_id": settlement.lease_id,
        "job_id": settlement.job_id[:LONGEST_JOB],
        "actuals": [{"key": it.key, "actual_amount": it.amount} for it in settlement.actuals],
    }


def to_body(data: object) -> bytes:
    """Encode JSON as it is sent."""
    return orjson.dumps(data)


# --- answers, as a client reads them -------------------------------------------------------------


def read_decision(data: object) -> Decision:
    """Read a server's decision; `Unknown` for an answer without one.

    Example:
        >>> read_decision({"granted": True, "reserved_at": 2.5})
        Granted(reserved_at=2.5)
        >>> read_decision({"error": "backend_error", "message": "no connection"})
        Unknown(message='no connection')
    """
    members: Mapping[str, Any] = data if isinstance(data, dict) else {}
    message = str(members.get("message") or "")
    match members:
        case {"granted": True, "reserved_at": int() | float() as reserved_at}:
            return Granted(float(reserved_at))
        case {"granted": False, "reason": str() as reason} if reason in _TERMINAL | _TRANSIENT:
            wait, keys = members.get("retry_after_ms"), members.get("keys")
            return Denied(
                cast("TerminalReason | TransientReason", reason),
                terminal=reason in _TERMINAL,
                retry_after=max(0.0, wait / 1000) if isinstance(wait, int | float) else 0.0,
                keys=tuple(map(str, keys)) if isinstance(keys, list) else (),
                message=message,
            )
        case {"error": "invalid_request"}:
            return Denied("invalid_request", terminal=True, message=message)
        case {"error": str() as error}:
            return Unknown(message or error)
        case _:
            return Unknown(f"invalid answer from the server: {_seen(data)}")


# --- fields ---------------------------------------------------------------------------------------


class _RequestForm:
    """An object of a request, whose problems are collected."""

    def __init__(
        self, data: object, at: str, *, needed: Sequence[str], others: Sequence[str] = ()
    ) -> None:
        self._at = at
        self.problems: list[Problem] = []
        self.fields: Mapping[str, Any] = {}
        if not isinstance(data, dict):
            self._wrong("", f"must be an object, got {_seen(data)}")
            return
        self.fields = data
        known = (*needed, *others)
        for name in data:
            if name not in known:
                self._wrong(
                    f".{name}", f"is not a known field; known fields are {', '.join(known)}"
                )
        for name in needed:
            if name not in data:
                self._wrong(f".{name}", "is required")

    def check(self, *parts: "_RequestForm") -> None:
        """Raise if the request, or one of its parts, has problems."""
        problems = [*self.problems, *(one for part in parts for one in part.problems)]
        if problems:
            raise MalformedError(problems)

    def text(self, name: str, *, most: int = LONGEST_NAME) -> str:
        value = self.fields.get(name, "")
        if not isinstance(value, str):
            self._wrong(f".{name}", f"must be text, got {_seen(value)}")
        elif len(value) > most:
            self._wrong(f".{name}", f"has {len(value):,} characters, at most {most} are allowed")
        else:
            return value
        return ""

    def bound(self, name: str, count: int, most: int) -> None:
        if count > most:
            self._wrong(f".{name}", f"has {count:,} items, at most {most} are allowed")

    def whole(self, name: str) -> int:
        value = self.fields.get(name, 1)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and abs(value) > MOST:  # JSON of a whole number beyond 64 bits
            self._wrong(f".{name}", f"must be at most 2^53-1, got {_seen(value)}")
        else:
            self._wrong(f".{name}", f"must be a whole number, got {_seen(value)}")
        return 1

    def amount(self, name: str) -> int:
        value = self.whole(name)
        if not 0 <= value <= MOST:
            self._wrong(f".{name}", f"must be 0 to 2^53-1, got {value}")
        return value

    def number(self, name: str) -> float:
        value = self.fields.get(name, 0)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        self._wrong(f".{name}", f"must be a number, at least 0, got {_seen(value)}")
        return 0.0

    def listed(self, name: str) -> list[Any]:
        value = self.fields.get(name, [])
        if isinstance(value, list):
            return value
        self._wrong(f".{name}", f"must be a list, got {_seen(value)}")
        return []

    def items(self, name: str, needed: Sequence[str]) -> list["_RequestForm"]:
        at = f"{self._at}.{name}"
        return [
            _RequestForm(item, f"{at}[{number}]", needed=needed)
            for number, item in enumerate(self.listed(name))
        ]

    def _wrong(self, where: str, message: str) -> None:
        self.problems.append(Problem(f"{self._at}{where}", message))


_SHOWN = 40


def _seen(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


# The JSON messages about limits over HTTP, in snake_case: definitions and states, written and read back.
# Pure.
#
# Definitions that a client sends are checked in `limits.json`, like those of files.


_DEFINED = frozenset(map(snake, DEFINITION))


def limit_json(limit: SharedLimit) -> Json:
    """Return the definition of a limit, as a client sends it.

    Example:
        >>> limit_json(SharedLimit(key="rpm", kind="rolling", capacity=60, window=60))
        {'key': 'rpm', 'kind': 'rolling', 'capacity': 60, 'window_seconds': 60}
    """
    return {snake(name): value for name, value in limit_data(limit).items()}


def state_json(state: LimitState) -> Json:
    """Return the state of a limit, as a server sends it; without instants and capacities that are None."""
    members: Json = {
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
    return {name: value for name, value in members.items() if value is not None}


def read_state(data: object) -> LimitState | None:
    """Read the state of a limit that a server sent; None if it is invalid.

    Unknown fields are ignored, since a newer server may send more.
    """
    if not isinstance(data, dict):
        return None
    defined = {name: value for name, value in data.items() if name in _DEFINED}
    paused_until, began_at = data.get("paused_until"), data.get("began_at")
    paused_for = data.get("paused_seconds")
    try:
        pending = None if data.get("pending_capacity") is None else _whole(data, "pending_capacity")
        return LimitState(
            limit=from_json(defined, SharedLimit),
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
