"""What a provider tells of what happened inside of it: spans with names, times, status and attributes.

A reply has them as `metadata.trace`: `{"spans": [{"name", "startTime", "endTime", "status", "attributes"}]}`.
Times are milliseconds. The names and forms of OpenTelemetry's JSON are read as well: `startTimeUnixNano`,
attributes as a list of keys with typed values, `STATUS_CODE_ERROR`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError
from trioeval.grading.subject import Subject
from trioeval.grading.text import quote

_HOW = (
    'a provider gives one as metadata.trace of its reply: {"spans": [{"name": "search", '
    '"startTime": 0, "endTime": 12, "attributes": {}}]}'
)
_CODES: Mapping[str, int] = {"unset": 0, "ok": 1, "error": 2}
_ERROR = 2
_HTTP_ERROR = 400
_NANOS = 1e6  # in a millisecond
_FLAGS = ("error", "exception", "failed", "failure")
_SOUNDS_WRONG = re.compile("error|failed|failure|exception|timeout|abort", re.IGNORECASE)


@attrs.frozen
class Span:
    """Something that took place, from when to when."""

    name: str
    start: float | None = None
    """Milliseconds since whenever; None where it is not known."""
    end: float | None = None
    code: float = 0
    """0 nothing said, 1 right, 2 error, from 400 an error of HTTP."""
    message: str = ""
    """What is said of the status."""
    attributes: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def duration(self) -> float | None:
        """Milliseconds; None where it is not known."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def is_error(self) -> bool:
        """Whether its status, its attributes, or the words of its status say that something went wrong.

        Example:
            >>> Span("a", attributes={"http.status_code": "503"}).is_error, Span("a").is_error
            (True, False)
        """
        told = self.attributes
        return (
            self.code == _ERROR
            or self.code >= _HTTP_ERROR
            or any(_is_set(told.get(key)) for key in _FLAGS)
            or _number(told.get("http.status_code")) >= _HTTP_ERROR
            or "ERROR" in (told.get("otel.status_code"), told.get("status.code"))
            or _SOUNDS_WRONG.search(self.message) is not None
        )


@attrs.frozen
class Trace:
    """All that is told of one reply."""

    spans: tuple[Span, ...]
    id: str | None = None
    commands: frozenset[str] = frozenset()
    """Names of tools, in lower case, that the provider itself says run commands."""


def trace_of(subject: Subject) -> Trace:
    """What the provider tells of how its reply came about.

    Raises:
        GradingError: It tells nothing, or something else than spans.

    Example:
        >>> trace = {"spans": [{"name": "search", "startTime": 5, "endTime": 7.5}]}
        >>> trace_of(Subject.of("x", metadata={"trace": trace})).spans[0].duration
        2.5
    """
    trace = subject.metadata.get("trace")
    if trace is None:
        msg = f"the reply has no trace; {_HOW}"
        raise GradingError(msg)
    match trace:
        case {"spans": list() | tuple() as spans}:
            metadata, name = trace.get("metadata"), trace.get("traceId")
        case _:
            msg = f"the trace of the reply has no list of spans: {quote(trace)}; {_HOW}"
            raise GradingError(msg)
    commands = metadata.get("commandToolNames") if isinstance(metadata, Mapping) else None
    return Trace(
        tuple(_span(place, span) for place, span in enumerate(spans)),
        name if isinstance(name, str) else None,
        frozenset(
            command.strip().lower()
            for command in (commands if isinstance(commands, list | tuple) else ())
            if isinstance(command, str) and command.strip()
        ),
    )


def _span(place: int, data: Any) -> Span:
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        msg = f"spans[{place}] of the trace has no name: {quote(data)}; {_HOW}"
        raise GradingError(msg)
    status = data.get("status")
    told = status if isinstance(status, Mapping) else {"code": status}
    code, message = data.get("statusCode", told.get("code")), data.get("statusMessage")
    message = told.get("message") if message is None else message
    return Span(
        data["name"],
        _time(place, data, "startTime"),
        _time(place, data, "endTime"),
        _code(code),
        message if isinstance(message, str) else "",
        _attributes(data.get("attributes")),
    )


def _time(place: int, data: Mapping[str, Any], key: str) -> float | None:
    for name, unit in ((key, 1.0), (f"{key}UnixNano", _NANOS)):
        if data.get(name) is not None:
            number = _number(data[name])
            if math.isnan(number):
                msg = f"{name} of spans[{place}] of the trace must be a number, got {quote(data[name])}"
                raise GradingError(msg)
            return number / unit
    return None


def _code(value: Any) -> float:
    if isinstance(value, str):
        value = _CODES.get(value.lower().removeprefix("status_code_"), value)
    number = _number(value)
    return 0 if math.isnan(number) else number


def _attributes(value: Any) -> Mapping[str, Any]:
    match value:
        case Mapping():
            return {str(key): member for key, member in value.items()}
        case list() | tuple():
            return {
                entry["key"]: _typed(entry.get("value"))
                for entry in value
                if isinstance(entry, Mapping) and isinstance(entry.get("key"), str)
            }
        case _:
            return {}


def _typed(value: Any) -> Any:
    """A value that stands behind the name of its type."""
    match value:
        case {"intValue": number}:
            return _number(number)
        case Mapping() if len(value) == 1:
            return next(iter(value.values()))
        case _:
            return value


def _is_set(value: Any) -> bool:
    return value is True or value == "true" or isinstance(value, Mapping | list | tuple)


def _number(value: Any) -> float:
    """A number, or the one that a text is; not a number for all else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def longest(spans: Sequence[Span]) -> list[Span]:
    """The three that took longest, longest first; of those whose duration is known.

    Example:
        >>> [span.name for span in longest([Span("a", 0, 1), Span("b", 0, 2), Span("c")])]
        ['b', 'a']
    """
    timed = [span for span in spans if span.duration is not None]
    return sorted(timed, key=lambda span: -(span.duration or 0))[:3]
