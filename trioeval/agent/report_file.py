"""The report of an attempt: a JSON file in which a program reports its usage, and its end.

    {"output": "…", "tokens": {"prompt": 10, "completion": 5, "total": 15}, "cost": 0.01,
     "error": {"kind": "auth", "message": "…"}}

All members are optional. Invalid parts are ignored, with a warning.
"""

import errno
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import attrs
import orjson

from trioeval.agent.case_folder import CaseFiles
from trioeval.agent.restarts import AttemptEnd, AttemptFailure, FailureKind, cost_of
from trioeval.agent.workspace import read_plain
from trioeval.providers.config import show
from trioeval.providers.secrets import hide_in
from trioeval.usage import Usage

# Invalid reports of attempts: reported once, at the end of the run.


@attrs.define(eq=False, repr=False)
class InvalidReports:
    """The invalid reports of a run."""

    _count: int = attrs.field(init=False, default=0)
    _first: str = attrs.field(init=False, default="")

    def add(self, case: str, number: int, warnings: Sequence[str]) -> None:
        """Add the warnings about the report of an attempt, if any."""
        if not warnings:
            return
        self._count += 1
        self._first = self._first or f"{case}, attempt {number}: {warnings[0]}"

    def report_to(self, warn: Callable[[str], None]) -> None:
        """Warn about the number of invalid reports and the first one, if any."""
        if self._count == 1:
            warn(f"a report of an agent is invalid: {self._first}")
        elif self._count:
            warn(
                f"{self._count} reports of agents are invalid (see `trioeval show`); "
                f"the first is that of {self._first}"
            )


LARGEST = 10 * 1024 * 1024
"""Maximum size of a report in bytes."""

LONGEST_MESSAGE = 2_000
"""Maximum characters of an error message."""
MOST_WARNINGS = 10
"""Maximum number of warnings that are listed; the rest is counted."""

_MOST_TOKENS = 2**53
_KEYS = ("output", "tokens", "cost", "error")
_TOKENS = ("prompt", "completion", "total", "cached", "reasoning")
_REPORTABLE: Mapping[str, FailureKind] = {
    kind: kind
    for kind in get_args(FailureKind)
    if kind not in ("exit", "timeout", "killed", "unexpected")
}
"""Kinds that a program may report; only its caller knows of the others."""


@attrs.frozen(kw_only=True)
class AttemptReport:
    """The valid parts of a program's report about its attempt."""

    has_output: bool = False
    output: Any = None
    """JSON data."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars, finite and ≥ 0."""
    failure: AttemptFailure | None = None
    warnings: tuple[str, ...] = ()
    """The problems of the report, as sentences."""


def read_report_file(path: Path, secrets: Sequence[str] = ()) -> AttemptReport:
    """Read a report, if it exists; see `read_report`. Blocks on the file; never raises."""
    try:
        data = read_plain(path, LARGEST + 1)
    except FileNotFoundError:
        return AttemptReport()
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        return _unusable(f"cannot be read: {reason}")
    if len(data) > LARGEST:
        return _unusable(f"is longer than {LARGEST} bytes")
    return read_report(data, secrets)


def read_report(data: bytes, secrets: Sequence[str] = ()) -> AttemptReport:
    """Parse a report.

    Args:
        data: JSON, if it is valid.
        secrets: Texts that messages hide, longest first. The output is not changed.

    Example:
        >>> read_report(b'{"tokens": {"prompt": 3, "completion": 2}, "cost": -1}')
        ... # doctest: +NORMALIZE_WHITESPACE
        AttemptReport(has_output=False, output=None,
            usage=Usage(prompt=3, completion=2, total=5, cached=None, cache_creation=None,
                reasoning=None, accepted_prediction=None, rejected_prediction=None),
            cost=None, failure=None,
            warnings=('the report: cost must be a number of at least 0, got -1',))
    """
    if not data.strip():
        return _unusable("is empty")
    try:
        report = orjson.loads(data)
        orjson.dumps(report)  # too deeply nested data could not be recorded
    except (ValueError, TypeError) as error:
        return _unusable(f"is not usable JSON: {error}")
    if not isinstance(report, dict):
        return _unusable(f"must be an object, got {show(hide_in(report, secrets))}")
    output = report.pop("output", None)
    report = hide_in(report, secrets)
    warnings = [f"the report: {show(name)} is not a key" for name in report if name not in _KEYS]
    return AttemptReport(
        has_output=output is not None,  # programs write null for a missing output
        output=output,
        usage=_read_tokens(report.get("tokens"), warnings),
        cost=_read_number("cost", report.get("cost"), _is_cost, "a number", warnings),
        failure=_read_error(report.get("error"), warnings),
        warnings=_first(warnings),
    )


def _first(warnings: Sequence[str]) -> tuple[str, ...]:
    rest = len(warnings) - MOST_WARNINGS
    more = (f"the report: and {rest} more like these",) if rest > 0 else ()
    return (*warnings[:MOST_WARNINGS], *more)


def shortened(text: str) -> str:
    """Return a text cut to the maximum length of a message."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


def _unusable(fault: str) -> AttemptReport:
    return AttemptReport(warnings=(f"the report {fault}",))


def _read_tokens(tokens: Any, warnings: list[str]) -> Usage:
    if tokens is None:
        return Usage()
    if _is_count(tokens):
        return Usage(total=tokens)
    if not isinstance(tokens, Mapping):
        warnings.append(
            f"the report: tokens must be an object, or their number, got {show(tokens)}"
        )
        return Usage()
    warnings += [
        f"the report: {show(name)} is not a key of tokens" for name in tokens if name not in _TOKENS
    ]
    read = {
        name: _read_number(
            f"tokens.{name}", tokens.get(name), _is_count, "a whole number", warnings
        )
        for name in _TOKENS
    }
    if read["total"] is None and read["prompt"] is not None and read["completion"] is not None:
        read["total"] = read["prompt"] + read["completion"]
    return Usage(**read)


def _read_number(
    name: str, value: Any, is_right: Callable[[Any], bool], right: str, warnings: list[str]
) -> Any:
    if value is None or is_right(value):
        return value
    warnings.append(f"the report: {name} must be {right} of at least 0, got {show(value)}")
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_TOKENS


def _is_cost(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _read_error(reported: Any, warnings: list[str]) -> AttemptFailure | None:
    if reported is None:
        return None
    if isinstance(reported, str):
        reported = {"message": reported}
    if not isinstance(reported, Mapping):
        warnings.append(f"the report: error must be an object or text, got {show(reported)}")
        return AttemptFailure("reported", show(reported))
    kind, message = reported.get("kind"), reported.get("message")
    text = shortened(message) if isinstance(message, str) else ""
    if isinstance(kind, str) and kind in _REPORTABLE:
        return AttemptFailure(_REPORTABLE[kind], text or kind)
    named = f"{shortened(kind)}: {text}" if isinstance(kind, str) and text else text or show(kind)
    return AttemptFailure("reported", named)


# Reports of interrupted attempts: their usage counts, although the attempt is started again.
#
# The report of such an attempt is set aside before the next program may write its own. Blocks on files.


CUT_OFF = "cutOff"
"""In the metadata of an attempt: the number of its interrupted starts with a report."""


def set_aside(files: CaseFiles, number: int) -> None:
    """Move the report of an interrupted attempt aside, so that there is none when it starts again."""
    report = files.report(number)
    # Anything but a file is reported when it is read.
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        if report.is_symlink() or not report.is_file():
            report.unlink()
            return
        aside = next(path for path in _set_aside_paths(files, number) if not path.exists())
        report.rename(aside)


def with_cut_off(end: AttemptEnd, files: CaseFiles, number: int) -> AttemptEnd:
    """Return the end of an attempt, including the usage of its interrupted starts."""
    found: list[AttemptReport] = []
    for path in _set_aside_paths(files, number):
        if not path.exists():
            break
        found.append(read_report_file(path))
    if not found:
        return end
    return attrs.evolve(
        end,
        usage=Usage.sum((end.usage, *(one.usage for one in found))),
        cost=cost_of((end.cost, *(one.cost for one in found))),
        metadata={**end.metadata, CUT_OFF: len(found)},
    )


def cut_off_attempt(files: CaseFiles, number: int) -> AttemptEnd | None:
    """Return the end of an attempt that was started and interrupted; None without any report of it."""
    report = files.report(number)
    found = AttemptEnd(failure=AttemptFailure("killed", "cut off"))
    if report.exists():
        own = read_report_file(report)
        found = attrs.evolve(found, usage=own.usage, cost=own.cost)
    elif not next(_set_aside_paths(files, number)).exists():
        return None
    return with_cut_off(found, files, number)


def _set_aside_paths(files: CaseFiles, number: int) -> Iterator[Path]:
    """Return the paths of reports that were set aside, in order."""
    report = files.report(number)
    return (report.with_suffix(f".cut-{count}.json") for count in itertools.count(1))
