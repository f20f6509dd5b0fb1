"""Limits as JSON data: what definitions must look like, whoever writes them, and how they are written.

Suite files, limits files and what comes over HTTP are all checked here. Everything that is wrong is told at
once, each with its place. Keys are written in camelCase; snake_case is read as well.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.limits.model import LONGEST_NAME, MOST, MOST_SECONDS, Kind, Limit, LimitState, Overage

T = TypeVar("T")

_SPANS: dict[str, str] = {
    "rolling": "windowSeconds",
    "concurrency": "timeoutSeconds",
    "budget": "resetSeconds",
}
"""The span that each kind of limit may have."""
_DEFINITION = ("key", "kind", "capacity", *_SPANS.values(), "overage", "unit", "description")
_STANDING = (
    "status",
    "pendingCapacity",
    "used",
    "outstanding",
    "debt",
    "pausedSeconds",
    "beganAt",
)
_STATUSES = ("active", "decreasing")
_LONGEST_QUOTE = 60
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def limit_of(data: Any, at: str = "$") -> Limit:
    """A limit from its definition.

    Args:
        data: Plain data, as JSON and YAML give it.
        at: Where it stands in its document, for messages.

    Raises:
        SuiteError: With everything that is wrong with it.

    Example:
        >>> limit_of(
        ...     {"key": "llm:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
        ... ).window
        60.0
        >>> limit_of({"key": "llm:rpm", "kind": "rolling", "capacity": 0}, "$[2]")
        Traceback (most recent call last):
        ...
        trioeval.errors.SuiteError: $[2].capacity: 0 is too small
          a whole number from 1 to 2^53-1
        $[2].windowSeconds: is missing
          a rolling limit needs the length of its window, in seconds
    """
    return _told(_definition, data, at)


def state_of(data: Any, at: str = "$") -> LimitState:
    """A limit and how it stands, from its definition alone or with what was written of it.

    A pause is passed over: it is not known since when it was so long. The beginning of a budget's period is
    given in Unix time.

    Raises:
        SuiteError: With everything that is wrong with it.
    """
    return _told(_standing, data, at)


def limits_of(data: Any, at: str = "$") -> tuple[Limit, ...]:
    """Limits from a list of definitions, of which no two have the same key.

    Raises:
        SuiteError: With everything that is wrong with all of them.
    """
    return _told(_listed(_definition, lambda limit: limit.key), data, at)


def states_of(data: Any, at: str = "$") -> tuple[LimitState, ...]:
    """The same, with how they stand.

    Raises:
        SuiteError: With everything that is wrong with all of them.
    """
    return _told(_listed(_standing, lambda state: state.limit.key), data, at)


def limit_data(limit: Limit) -> dict[str, Any]:
    """The definition of a limit as plain data; what it does not have is left out.

    Example:
        >>> limit_data(Limit(key="llm:rpm", kind="rolling", capacity=60, window=60))
        {'key': 'llm:rpm', 'kind': 'rolling', 'capacity': 60, 'windowSeconds': 60}
    """
    is_hold = limit.kind == "concurrency"
    told: dict[str, Any] = {
        "key": limit.key,
        "kind": limit.kind,
        "capacity": limit.capacity,
        "windowSeconds": limit.window,
        "timeoutSeconds": limit.timeout,
        "resetSeconds": limit.reset,
        "overage": None if limit.overage == "debt" or is_hold else limit.overage,
        "unit": limit.unit or None,
        "description": limit.description or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def state_data(state: LimitState) -> dict[str, Any]:
    """A limit and how it stands as plain data, without its pause; what is 0 or as usual is left out.

    Args:
        state: It; the beginning of its period in Unix time.
    """
    began_at = None if state.began_at is None else datetime.fromtimestamp(state.began_at, UTC)
    told: dict[str, Any] = {
        "status": None if state.status == "active" else state.status,
        "pendingCapacity": state.pending_capacity,
        "used": state.used or None,
        "outstanding": state.outstanding or None,
        "debt": state.debt or None,
        "beganAt": None if began_at is None else began_at.isoformat().replace("+00:00", "Z"),
    }
    given = {name: value for name, value in told.items() if value is not None}
    return limit_data(state.limit) | given


@attrs.define(eq=False)
class _Object:
    """One object of the data, and what is wrong with it."""

    at: str
    values: dict[str, Any]
    """By camelCase key; those that are null are not there."""
    spelled: dict[str, str]
    """The keys as they are written, by camelCase key."""
    problems: list[Problem]

    def wrong(self, name: str, message: str, hint: str) -> None:
        """Something is wrong with a value."""
        path = _below(self.at, self.spelled.get(name, name))
        self.problems.append(Problem(path, message, hint))

    def missing(self, name: str, hint: str) -> None:
        """A value is not there, unless it is, and wrong."""
        if name not in self.values:
            self.wrong(name, "is missing", hint)

    def text(self, name: str) -> str:
        """A text; empty if there is none."""
        value = self.values.get(name, "")
        if not isinstance(value, str):
            self.wrong(name, f"{_seen(value)} is not a text", "put it in quotes")
            return ""
        return value

    def whole(self, name: str, least: int) -> int | None:
        """A whole number."""
        value = self.values.get(name)
        hint = f"a whole number from {least} to 2^53-1"
        if value is None:
            return None
        if type(value) is not int:
            self.wrong(name, f"{_seen(value)} is not a whole number", hint)
        elif value < least:
            self.wrong(name, f"{value} is too small", hint)
        elif value > MOST:
            self.wrong(name, f"{_seen(value)} is too large", hint)
        else:
            return value
        return None

    def seconds(self, name: str) -> float | None:
        """A number of seconds."""
        value = self.values.get(name)
        if value is None:
            return None
        hint = f"seconds, more than 0 and at most {MOST_SECONDS:,}"
        if type(value) not in {int, float}:
            self.wrong(name, f"{_seen(value)} is not a number", hint)
        elif not 0 < value <= MOST_SECONDS:
            self.wrong(name, f"{_seen(value)} is out of range", hint)
        else:
            return float(value)
        return None

    def instant(self, name: str) -> float | None:
        """An instant, in Unix time."""
        value = self.values.get(name)
        if value is None:
            return None
        try:
            instant = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            instant = None
        if instant is None or instant.tzinfo is None:
            hint = "date, time and offset, like 2026-11-22T08:54:56Z"
            self.wrong(name, f"{_seen(value)} is not an instant", hint)
            return None
        return instant.timestamp()

    def choice(self, name: str, choices: Sequence[str], usual: str) -> str:
        """One of some words."""
        value = self.values.get(name)
        if value is None:
            return usual
        if value not in choices:
            self.wrong(name, f"{_seen(value)} is not known", f"one of {', '.join(choices)}")
            return usual
        return str(value)


def _told(read: Callable[[Any, str, list[Problem]], T | None], data: Any, at: str) -> T:
    problems: list[Problem] = []
    value = read(data, at, problems)
    if problems or value is None:
        raise SuiteError(problems)
    return value


def _listed(
    read: Callable[[Any, str, list[Problem]], T | None], key_of: Callable[[T], str]
) -> Callable[[Any, str, list[Problem]], tuple[T, ...] | None]:
    def read_all(data: Any, at: str, problems: list[Problem]) -> tuple[T, ...] | None:
        if not isinstance(data, list | tuple):
            problems.append(Problem(at, f"{_seen(data)} is not a list", "a list of limits"))
            return None
        found = [read(part, f"{at}[{place}]", problems) for place, part in enumerate(data)]
        first: dict[str, int] = {}
        for place, one in enumerate(found):
            if one is not None and first.setdefault(key_of(one), place) != place:
                message = f"[{first[key_of(one)]}] has the key {_seen(key_of(one))} as well"
                problems.append(Problem(f"{at}[{place}].key", message, "one limit for each key"))
        return tuple(one for one in found if one is not None)

    return read_all


def _definition(data: Any, at: str, problems: list[Problem]) -> Limit | None:
    one = _object(data, at, _DEFINITION, problems)
    return None if one is None else _limit(one)


def _standing(data: Any, at: str, problems: list[Problem]) -> LimitState | None:
    one = _object(data, at, (*_DEFINITION, *_STANDING), problems)
    if one is None:
        return None
    before = len(problems)
    limit = _limit(one)
    pending = one.whole("pendingCapacity", 1)
    usual = "active" if pending is None else "decreasing"
    status = one.choice("status", _STATUSES, usual)
    used, outstanding, debt = (one.whole(name, 0) or 0 for name in ("used", "outstanding", "debt"))
    one.seconds("pausedSeconds")
    began_at = one.instant("beganAt")
    if limit is None or len(problems) > before:
        return None
    if status != usual:
        hint = "a limit is decreasing while it has a pendingCapacity, and otherwise active"
        one.wrong("status", f"{_seen(status)} does not go with the pending capacity", hint)
    if pending is not None and pending >= limit.capacity:
        hint = f"less than the capacity, {limit.capacity}"
        one.wrong("pendingCapacity", f"{pending} is no decrease", hint)
    if outstanding and limit.kind != "budget":
        one.wrong("outstanding", f"is not for a {limit.kind} limit", "write it in used")
    if began_at is not None and limit.reset is None:
        one.wrong("beganAt", "is only for a budget that begins anew", "give it resetSeconds")
    return LimitState(
        limit=limit,
        status="decreasing" if pending is not None else "active",
        pending_capacity=pending,
        used=used,
        outstanding=outstanding,
        debt=debt,
        began_at=began_at,
    )


def _key(one: _Object) -> str:
    before = len(one.problems)
    one.missing("key", "a name")
    key = one.text("key")
    if len(one.problems) == before and not key.strip():
        one.wrong("key", "is blank", "a name")
    elif key != key.strip():
        one.wrong("key", f"{_seen(key)} has blanks around it", _seen(key.strip()))
    elif len(key) > LONGEST_NAME:
        one.wrong("key", f"has {len(key):,} characters", f"a name of at most {LONGEST_NAME}")
    return key


def _limit(one: _Object) -> Limit | None:
    before = len(one.problems)
    key = _key(one)
    kinds = get_args(Kind)
    one.missing("kind", f"one of {', '.join(kinds)}")
    kind: Any = one.choice("kind", kinds, "")
    one.missing("capacity", "how much there is: a whole number from 1 to 2^53-1")
    capacity = one.whole("capacity", 1)
    spans = {name: one.seconds(name) for name in _SPANS.values()}
    if kind in kinds:
        for name in spans:
            if name in one.values and name != _SPANS[kind]:
                one.wrong(name, f"is not for a {kind} limit", f"it may have {_SPANS[kind]}")
    if kind == "rolling":
        one.missing("windowSeconds", "a rolling limit needs the length of its window, in seconds")
    elif kind == "concurrency":
        one.missing(
            "timeoutSeconds", "a concurrency limit needs the seconds until a lost hold comes back"
        )
    overage: Any = one.choice("overage", get_args(Overage), "debt")
    if kind == "concurrency" and "overage" in one.values:
        hint = "a hold is one, whatever was used: leave it out"
        one.wrong("overage", "is not for a concurrency limit", hint)
    unit, description = one.text("unit"), one.text("description")
    if len(one.problems) > before or capacity is None:
        return None
    return Limit(
        key=key,
        kind=kind,
        capacity=capacity,
        window=spans["windowSeconds"],
        timeout=spans["timeoutSeconds"],
        reset=spans["resetSeconds"],
        overage=overage,
        unit=unit,
        description=description,
    )


def _object(data: Any, at: str, known: Sequence[str], problems: list[Problem]) -> _Object | None:
    if not isinstance(data, dict):
        problems.append(Problem(at, f"{_seen(data)} is not a limit", "an object with key, kind, …"))
        return None
    one = _Object(at, {}, {}, problems)
    camel_by_snake = {_snake(name): name for name in known}
    for key, value in data.items():
        name = camel_by_snake.get(str(key), str(key))
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(known)}"
            problems.append(Problem(_below(at, str(key)), "is not a key of a limit", hint))
        elif name in one.spelled:
            message = f"is the same as {one.spelled[name]}"
            problems.append(Problem(_below(at, str(key)), message, "write one of them"))
        else:
            one.spelled[name] = str(key)
            if value is not None:
                one.values[name] = value
    return one


def _below(at: str, key: str) -> str:
    return f"{at}.{key}" if _PLAIN.fullmatch(key) else f"{at}[{json.dumps(key)}]"


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def _seen(value: Any) -> str:
    """A value as messages show it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    match value:
        case None | bool() | int() | float() | str():
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a value of type {type(value).__name__}"
