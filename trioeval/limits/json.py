"""Limits as JSON data, described once on the fields of the model, read and written by one converter.

Suite files, limits files and HTTP requests are all checked here. All problems are reported at once, each with
its path. Keys are written in camelCase; snake_case is read as well.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import attrs
import cattrs

from trioeval.errors import Problem, SuiteError
from trioeval.limits.model import (
    KEY,
    MISSING,
    MOST,
    MOST_SECONDS,
    Instant,
    LimitState,
    Rule,
    SharedLimit,
    value_text,
)

T = TypeVar("T")
Fields: TypeAlias = Mapping[str, "attrs.Attribute[Any]"]
"""The JSON fields of a model, by their keys."""

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def fields_of(model: type) -> Fields:
    """Return the fields of a model that are in JSON, by their keys."""
    fields = {
        field.metadata.get(KEY, re.sub("_(.)", lambda part: part[1].upper(), field.name)): field
        for field in attrs.fields(model)
    }
    return {key: field for key, field in fields.items() if key is not None}


DEFINITION = fields_of(SharedLimit)
_STANDING = fields_of(LimitState)
_TOLD_WITH = {"window": "reset", "timeout": "reset", "status": "used"}
"""Fields whose problems are reported with another field: spans stay together, the status comes later."""


def from_json(data: Any, target: type[T], at: str = "$") -> T:
    """Read a limit, the state of a limit, or a tuple of either, with unique keys.

    A pause is ignored: the data does not contain the time of its `pausedSeconds`. The start of a
    budget's period is given in Unix time.

    Args:
        data: Plain data, as read from JSON or YAML.
        target: `SharedLimit`, `LimitState`, or a tuple of one of them.
        at: Its path in the document, for messages.

    Raises:
        SuiteError: With all problems.

    Example:
        >>> rpm = {"key": "llm:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
        >>> from_json(rpm, SharedLimit).window
        60.0
        >>> from_json({"key": "llm:rpm", "kind": "rolling", "capacity": 0}, SharedLimit, "$[2]")
        Traceback (most recent call last):
        ...
        trioeval.errors.SuiteError: $[2].capacity: 0 is too small
          a whole number from 1 to 2^53-1
        $[2].windowSeconds: is missing
          a rolling limit needs the length of its window, in seconds
    """
    try:
        return _CONVERTER.structure(data, target)
    except SuiteError as error:
        placed = [attrs.evolve(one, path=at + one.path[1:]) for one in error.problems]
        raise SuiteError(placed) from None


def limit_data(limit: SharedLimit) -> dict[str, Any]:
    """Return the definition of a limit as plain data; values that are not set are left out.

    Example:
        >>> limit_data(SharedLimit(key="llm:rpm", kind="rolling", capacity=60, window=60))
        {'key': 'llm:rpm', 'kind': 'rolling', 'capacity': 60, 'windowSeconds': 60}
    """
    is_hold = limit.kind == "concurrency"
    return _data(attrs.evolve(limit, overage="debt") if is_hold else limit, DEFINITION)


def state_data(state: LimitState) -> dict[str, Any]:
    """Return the state of a limit as plain data, without its pause; zeros and defaults are left out.

    Args:
        state: The state; the start of its period in Unix time.
    """
    data = limit_data(state.limit) | _data(attrs.evolve(state, paused_for=None), _STANDING)
    if state.began_at is not None:
        began_at = datetime.fromtimestamp(state.began_at, UTC)
        data["beganAt"] = began_at.isoformat().replace("+00:00", "Z")
    return data


def _data(model: SharedLimit | LimitState, fields: Fields) -> dict[str, Any]:
    values = {key: getattr(model, field.name) for key, field in fields.items()}
    return {key: value for key, value in values.items() if value != fields[key].default}


def snake(key: str) -> str:
    """Return a key in snake_case.

    Example:
        >>> snake("windowSeconds")
        'window_seconds'
    """
    return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), key)


def _wrong(message: str, hint: str) -> SuiteError:
    return SuiteError([Problem("$", message, hint)])


def _limit_or_state(data: Any, target: Any) -> SharedLimit | LimitState:
    fields = DEFINITION if target is SharedLimit else {**DEFINITION, **_STANDING}
    spelled, problems = _spellings(data, fields)
    given: dict[str, Any] = {
        fields[key].name: data[spelling]
        for key, spelling in spelled.items()
        if data[spelling] is not None
    }
    found: dict[str, Any] = {}
    broken: list[Rule] = []
    for field in fields.values():
        if field.name in given:
            try:
                wanted_type: Any = field.type
                found[field.name] = _CONVERTER.structure(given[field.name], wanted_type)
            except SuiteError as error:
                broken += ((field.name, one.message, one.hint or "") for one in error.problems)
        elif field.default is attrs.NOTHING:
            broken.append((field.name, "is missing", field.metadata[MISSING]))
    broken += SharedLimit.broken_rules(given)
    key_by_name = {field.name: key for key, field in fields.items()}
    order = [*key_by_name]
    broken.sort(key=lambda rule: order.index(_TOLD_WITH.get(rule[0], rule[0])))
    if not broken:
        names = [field.name for field in DEFINITION.values() if field.name in found]
        right: SharedLimit | LimitState
        right = limit = SharedLimit(**{name: found.pop(name) for name in names})
        if target is LimitState:
            found.pop("paused_for", None)
            usual = "decreasing" if "pending_capacity" in found else "active"
            right = LimitState(limit=limit, **{"status": usual, **found})
            broken += right.broken_rules()
        if not broken and not problems:
            return right
    for name, message, hint in broken:
        key = key_by_name[name]
        problems.append(Problem(_below(spelled.get(key, key)), message, hint))
    raise SuiteError(problems)


def _spellings(data: Any, fields: Fields) -> tuple[dict[str, str], list[Problem]]:
    """Return the spelling of each known key, and the problems of other keys."""
    if not isinstance(data, dict):
        raise _wrong(f"{value_text(data)} is not a limit", "an object with key, kind, …")
    key_by_snake = {snake(key): key for key in fields}
    spelled: dict[str, str] = {}
    problems: list[Problem] = []
    for spelling in data:
        key = key_by_snake.get(str(spelling), str(spelling))
        if key not in fields:
            close = difflib.get_close_matches(key, fields, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"known keys are {', '.join(fields)}"
            problems.append(Problem(_below(str(spelling)), "is not a key of a limit", hint))
        elif key in spelled:
            message = f"is the same key as {spelled[key]}"
            problems.append(Problem(_below(spelling), message, "write one of them"))
        else:
            spelled[key] = spelling
    return spelled, problems


def _below(key: str) -> str:
    return f"$.{key}" if _PLAIN.fullmatch(key) else f"$[{json.dumps(key)}]"


def _list(data: Any, target: Any) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise _wrong(f"{value_text(data)} is not a list", "a list of limits")
    problems: list[Problem] = []
    found: dict[int, SharedLimit | LimitState] = {}
    for place, part in enumerate(data):
        try:
            found[place] = from_json(part, get_args(target)[0], f"$[{place}]")
        except SuiteError as error:
            problems += error.problems
    first: dict[str, int] = {}
    for place, one in found.items():
        key = one.key if isinstance(one, SharedLimit) else one.limit.key
        if first.setdefault(key, place) != place:
            message = f"[{first[key]}] also has the key {value_text(key)}"
            problems.append(Problem(f"$[{place}].key", message, "one limit for each key"))
    if problems:
        raise SuiteError(problems)
    return tuple(found.values())


def _text(value: Any, _wanted: Any) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(f"{value_text(value)} is not a text", "put it in quotes")


def _whole(value: Any, target: Any) -> int:
    least = get_args(target)[1]
    hint = f"a whole number from {least} to 2^53-1"
    if type(value) is not int:
        raise _wrong(f"{value_text(value)} is not a whole number", hint)
    if value < least:
        raise _wrong(f"{value} is too small", hint)
    if value > MOST:
        raise _wrong(f"{value_text(value)} is too large", hint)
    return value


def _seconds(value: Any, _wanted: Any) -> float:
    hint = f"seconds, more than 0 and at most {MOST_SECONDS:,}"
    if type(value) not in {int, float}:
        raise _wrong(f"{value_text(value)} is not a number", hint)
    if not 0 < value <= MOST_SECONDS:
        raise _wrong(f"{value_text(value)} is out of range", hint)
    return float(value)


def _instant(value: Any, _wanted: Any) -> float:
    try:
        instant = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        instant = None
    if instant is None or instant.tzinfo is None:
        hint = "date, time and offset, like 2026-11-22T08:54:56Z"
        raise _wrong(f"{value_text(value)} is not an instant", hint)
    return instant.timestamp()


def _choice(value: Any, target: Any) -> str:
    choices = get_args(target)
    if value in choices:
        return str(value)
    raise _wrong(f"{value_text(value)} is not known", f"one of {', '.join(choices)}")


_CONVERTER = cattrs.Converter()
_CONVERTER.register_structure_hook(str, _text)
_CONVERTER.register_structure_hook(float, _seconds)
_HOOKS: Mapping[Callable[[Any], bool], Callable[[Any, Any], Any]] = {
    lambda target: target in {SharedLimit, LimitState}: _limit_or_state,
    lambda target: get_origin(target) is tuple: _list,
    lambda target: target == Instant: _instant,
    lambda target: get_origin(target) is Annotated and get_args(target)[0] is int: _whole,
    lambda target: get_origin(target) is Literal: _choice,
}
for _is_wanted, _hook in _HOOKS.items():
    _CONVERTER.register_structure_hook_func(_is_wanted, _hook)
