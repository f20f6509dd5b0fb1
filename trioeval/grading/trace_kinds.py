"""Types that count, time and look for errors among the spans of a trace."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.grading.counts import Counted, read_counted
from trioeval.grading.globs import matches
from trioeval.grading.kind import Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, quote
from trioeval.grading.traces import Span, longest, trace_of

_ALL = "*"
_SHOWN = 3


def _span_count(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    counted = Counted(least=value.get("min"), most=value.get("max"))
    count = len(_fitting(subject, value["pattern"]))
    return Finding(
        holds=counted.allows(count),
        reason=f"{count} spans fit {quote(value['pattern'])}, expected {counted.bounds}",
    )


def _span_duration(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    pattern, most, rank = value.get("pattern", _ALL), value["max"], value.get("percentile")
    spans = [span for span in _fitting(subject, pattern) if span.duration is not None]
    durations = sorted(span.duration for span in spans if span.duration is not None)
    if not durations:
        reason = f"no span that fits {quote(pattern)} has a start and an end"
        return Finding(holds=True, reason=reason)
    if rank is None:
        taken, what = durations[-1], "the longest"
    else:
        taken = durations[max(0, math.ceil(rank / 100 * len(durations)) - 1)]
        what = f"percentile {number_text(rank)}"
    slowest = ", ".join(
        f"{span.name} {number_text(span.duration or 0)} ms" for span in longest(spans)
    )
    return Finding(
        holds=taken <= most,
        reason=(
            f"{what} of {len(durations)} spans is {number_text(taken)} ms, expected at most "
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
        return Finding(holds=True, reason=f"no span fits {quote(pattern)}")
    wrong = [span for span in spans if span.is_error]
    percentage = len(wrong) / len(spans) * 100
    wanted = [
        *([] if most is None else [f"at most {number_text(most)}"]),
        *([] if share is None else [f"at most {number_text(share)} %"]),
    ]
    return Finding(
        holds=(most is None or len(wrong) <= most) and (share is None or percentage <= share),
        reason=(
            f"{len(wrong)} of {len(spans)} spans that fit {quote(pattern)} have errors "
            f"({percentage:.1f} %), expected {' and '.join(wanted)}{_shown(wrong)}"
        ),
    )


def _shown(spans: Sequence[Span]) -> str:
    if not spans:
        return ""
    told = [f"{span.name} ({span.message})" if span.message else span.name for span in spans]
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f": {', '.join(told[:_SHOWN])}{more}"


def _fitting(subject: Subject, pattern: str) -> list[Span]:
    return [span for span in trace_of(subject).spans if matches(span.name, pattern)]


def _counts_spans(value: Any) -> bool:
    counted = read_counted(value)
    return counted is not None and counted.pattern is not None and counted.name is None


def _bounds_durations(value: Any) -> bool:
    if not _has_keys(value, "pattern", "max", "percentile") or not _is_number(value.get("max")):
        return False
    rank = value.get("percentile")
    return _is_pattern(value) and (rank is None or (_is_number(rank) and 0 <= rank <= 100))  # noqa: PLR2004 - percent


def _bounds_errors(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return value is None or _is_number(value)
    bounds = [value.get(key) for key in ("max_count", "max_percentage")]
    return (
        _has_keys(value, "pattern", "max_count", "max_percentage")
        and _is_pattern(value)
        and all(bound is None or _is_number(bound) for bound in bounds)
    )


def _has_keys(value: Any, *keys: str) -> bool:
    return isinstance(value, Mapping) and set(keys).issuperset(value)


def _is_pattern(value: Mapping[str, Any]) -> bool:
    pattern = value.get("pattern", _ALL)
    return isinstance(pattern, str) and pattern != ""


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


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
