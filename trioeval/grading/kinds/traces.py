"""Types that check the number, the durations and the errors of the spans of a trace."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError
from trioeval.grading.kind import Finding, Kind, Kinds, is_not_blank, is_number, is_text
from trioeval.grading.kinds.workspace_files import matches
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.text import number_text, quote

# Bounds of a count: values of the form {name or pattern, min?, max?}.


@attrs.frozen
class BoundedCount:
    """The things that are counted, and the bounds of their number."""

    name: str | None = None
    pattern: str | None = None
    least: float | None = None
    most: float | None = None

    def allows(self, count: int) -> bool:
        """Return whether a count is within the bounds."""
        few = self.least is not None and count < self.least
        return not few and (self.most is None or count <= self.most)

    @property
    def bounds(self) -> str:
        """The bounds in words.

        Example:
            >>> (
            ...     BoundedCount(most=3).bounds,
            ...     BoundedCount(least=1, most=3).bounds,
            ...     BoundedCount(least=1).bounds,
            ... )
            ('at most 3', '1 to 3', 'at least 1')
        """
        if self.most is None:
            return "any number" if self.least is None else f"at least {number_text(self.least)}"
        if self.least is None:
            return f"at most {number_text(self.most)}"
        return f"{number_text(self.least)} to {number_text(self.most)}"


def read_counted(
    value: Any, *, whole: bool = False, others: frozenset[str] = frozenset()
) -> BoundedCount | None:
    """Read an object with bounds; None if it is invalid.

    Args:
        value: Anything.
        whole: True if bounds must be whole numbers of at least 0.
        others: Further allowed keys.

    Example:
        >>> read_counted({"name": "a", "min": 2}).least
        2
        >>> read_counted({"name": "a", "min": 2, "max": 1}) is None
        True
    """
    known = {"name", "pattern", "min", "max"} | others
    if not isinstance(value, Mapping) or not known.issuperset(value):
        return None
    texts = [value.get(key) for key in ("name", "pattern")]
    if not all(text is None or is_not_blank(text) for text in texts):
        return None
    name, pattern = (None if text is None else text.strip() for text in texts)
    bounds = [value[key] for key in ("min", "max") if key in value]
    if not all(_is_bound(bound, whole=whole) for bound in bounds) or bounds != sorted(bounds):
        return None
    return BoundedCount(name, pattern, value.get("min"), value.get("max"))


def _is_bound(value: Any, *, whole: bool) -> bool:
    return is_number(value) and (not whole or (value >= 0 and value == int(value)))


# The trace of a reply, as a provider reports it: spans with names, times, status and attributes.
#
# A reply has it as `metadata.trace`: `{"spans": [{"name", "startTime", "endTime", "status", "attributes"}]}`.
# Times are milliseconds. The names and forms of OpenTelemetry's JSON are read as well: `startTimeUnixNano`,
# attributes as a list of keys with typed values, `STATUS_CODE_ERROR`.


_HOW = (
    'providers return one as metadata.trace of the reply: {"spans": [{"name": "search", '
    '"startTime": 0, "endTime": 12, "attributes": {}}]}'
)
_CODES: Mapping[str, int] = {"unset": 0, "ok": 1, "error": 2}
_ERROR = 2
_HTTP_ERROR = 400
_NANOS = 1e6  # in a millisecond
_FLAGS = ("error", "exception", "failed", "failure")
_SOUNDS_WRONG = re.compile("error|failed|failure|exception|timeout|abort", re.IGNORECASE)


@attrs.frozen
class ReplySpan:
    """A span of a trace."""

    name: str
    start: float | None = None
    """In milliseconds of any clock; None if unknown."""
    end: float | None = None
    code: float = 0
    """0 unset, 1 ok, 2 error, from 400 an HTTP error."""
    message: str = ""
    """The message of the status."""
    attributes: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def duration(self) -> float | None:
        """Milliseconds; None if unknown."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def is_error(self) -> bool:
        """True if its status, its attributes, or the message of its status report an error.

        Example:
            >>> (
            ...     ReplySpan("a", attributes={"http.status_code": "503"}).is_error,
            ...     ReplySpan("a").is_error,
            ... )
            (True, False)
        """
        attributes = self.attributes
        return (
            self.code == _ERROR
            or self.code >= _HTTP_ERROR
            or any(_is_set(attributes.get(key)) for key in _FLAGS)
            or _number(attributes.get("http.status_code")) >= _HTTP_ERROR
            or "ERROR" in (attributes.get("otel.status_code"), attributes.get("status.code"))
            or _SOUNDS_WRONG.search(self.message) is not None
        )


@attrs.frozen
class ReplyTrace:
    """The trace of one reply."""

    spans: tuple[ReplySpan, ...]
    id: str | None = None
    commands: frozenset[str] = frozenset()
    """Names of tools, in lower case, that run commands according to the provider."""


def trace_of(subject: Subject) -> ReplyTrace:
    """Return the trace of the provider's reply.

    Raises:
        GradingError: The trace is missing or has no spans.

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
    return ReplyTrace(
        tuple(_span(place, span) for place, span in enumerate(spans)),
        name if isinstance(name, str) else None,
        frozenset(
            command.strip().lower()
            for command in (commands if isinstance(commands, list | tuple) else ())
            if isinstance(command, str) and command.strip()
        ),
    )


def _span(place: int, data: Any) -> ReplySpan:
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        msg = f"spans[{place}] of the trace has no name: {quote(data)}; {_HOW}"
        raise GradingError(msg)
    status = data.get("status")
    fields = status if isinstance(status, Mapping) else {"code": status}
    code, message = data.get("statusCode", fields.get("code")), data.get("statusMessage")
    message = fields.get("message") if message is None else message
    return ReplySpan(
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
    """Return the value under the name of its type."""
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
    """Return a number, or the number in a text; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def longest(spans: Sequence[ReplySpan]) -> list[ReplySpan]:
    """Return the three longest spans, longest first, of those with a known duration.

    Example:
        >>> [
        ...     span.name
        ...     for span in longest([ReplySpan("a", 0, 1), ReplySpan("b", 0, 2), ReplySpan("c")])
        ... ]
        ['b', 'a']
    """
    timed = [span for span in spans if span.duration is not None]
    return sorted(timed, key=lambda span: -(span.duration or 0))[:3]


_ALL = "*"
_SHOWN = 3


def _span_count(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    counted = BoundedCount(least=value.get("min"), most=value.get("max"))
    count = len(_fitting(subject, value["pattern"]))
    return Finding(
        holds=counted.allows(count),
        reason=f"found {_spans_text(count)} matching {quote(value['pattern'])}, expected {counted.bounds}",
    )


def _span_duration(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    pattern, most, rank = value.get("pattern", _ALL), value["max"], value.get("percentile")
    spans = [span for span in _fitting(subject, pattern) if span.duration is not None]
    durations = sorted(span.duration for span in spans if span.duration is not None)
    if not durations:
        reason = f"no span that matches {quote(pattern)} has a start and an end"
        return Finding(holds=True, reason=reason)
    if rank is None:
        taken, statistic = durations[-1], "the longest"
    else:
        taken = durations[max(0, math.ceil(rank / 100 * len(durations)) - 1)]
        statistic = f"percentile {number_text(rank)}"
    slowest = ", ".join(
        f"{span.name} {number_text(span.duration or 0)} ms" for span in longest(spans)
    )
    return Finding(
        holds=taken <= most,
        reason=(
            f"{statistic} of {_spans_text(len(durations))} is {number_text(taken)} ms, expected at most "
            f"{number_text(most)} ms; slowest: {slowest}"
        ),
    )


def _error_spans(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    bounds: Mapping[str, Any] = value if isinstance(value, Mapping) else {"max_count": value or 0}
    pattern = bounds.get("pattern", _ALL)
    most, share = bounds.get("max_count"), bounds.get("max_percentage")
    if most is None and share is None:
        most = 0
    spans = _fitting(subject, pattern)
    if not spans:
        return Finding(holds=True, reason=f"no span matches {quote(pattern)}")
    wrong = [span for span in spans if span.is_error]
    percentage = len(wrong) / len(spans) * 100
    matching = [
        *([] if most is None else [f"at most {number_text(most)}"]),
        *([] if share is None else [f"at most {number_text(share)} %"]),
    ]
    return Finding(
        holds=(most is None or len(wrong) <= most) and (share is None or percentage <= share),
        reason=(
            f"{len(wrong)} of {_spans_text(len(spans))} that match {quote(pattern)} have errors "
            f"({percentage:.1f} %), expected {' and '.join(matching)}{_shown(wrong)}"
        ),
    )


def _spans_text(count: int) -> str:
    """Return a number of spans as text."""
    return "1 span" if count == 1 else f"{count} spans"


def _shown(spans: Sequence[ReplySpan]) -> str:
    if not spans:
        return ""
    names = [f"{span.name} ({span.message})" if span.message else span.name for span in spans]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f": {', '.join(names[:_SHOWN])}{more}"


def _fitting(subject: Subject, pattern: str) -> list[ReplySpan]:
    return [span for span in trace_of(subject).spans if matches(span.name, pattern)]


def _counts_spans(value: Any) -> bool:
    counted = read_counted(value)
    return counted is not None and counted.pattern is not None and counted.name is None


def _bounds_durations(value: Any) -> bool:
    if not _has_keys(value, "pattern", "max", "percentile") or not is_number(value.get("max")):
        return False
    rank = value.get("percentile")
    return _is_pattern(value) and (rank is None or (is_number(rank) and 0 <= rank <= 100))  # noqa: PLR2004 - percent


def _bounds_errors(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return value is None or is_number(value)
    bounds = [value.get(key) for key in ("max_count", "max_percentage")]
    return (
        _has_keys(value, "pattern", "max_count", "max_percentage")
        and _is_pattern(value)
        and all(bound is None or is_number(bound) for bound in bounds)
    )


def _has_keys(value: Any, *keys: str) -> bool:
    return isinstance(value, Mapping) and set(keys).issuperset(value)


def _is_pattern(value: Mapping[str, Any]) -> bool:
    return is_text(value.get("pattern", _ALL))


KINDS: Kinds = {
    "trace-error-spans": Kind(
        'a number, or {"pattern"?, "max_count"?, "max_percentage"?}',
        _bounds_errors,
        _error_spans,
        bare=True,
    ),
    "trace-span-count": Kind('an object {"pattern", "min"?, "max"?}', _counts_spans, _span_count),
    "trace-span-duration": Kind(
        'an object {"pattern"?, "max" in ms, "percentile"? from 0 to 100}',
        _bounds_durations,
        _span_duration,
    ),
}
