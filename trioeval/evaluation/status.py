"""The status of a row, also of one that another program recorded."""

import enum
from collections.abc import Mapping
from typing import Any

UNFINISHED_OUTCOMES = frozenset({"interrupted", "not_run", "blocked"})
"""Outcomes of jobs that did not run to their end: they say nothing about the provider."""


def has_ended(outcome: str) -> bool:
    """Return whether a row ran to its end: it is kept until another one that did replaces it.

    Args:
        outcome: The outcome of its job, as in `Row.outcome`.

    Example:
        >>> has_ended("failed"), has_ended("not_run")
        (True, False)
    """
    return outcome not in UNFINISHED_OUTCOMES


class Status(enum.Enum):
    """The status of a row: exactly one of these."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    """Assertions did not hold."""
    ERROR = "error"
    """The row has no verdict: no reply, no grading, or a timeout."""
    NOT_GRADED = "not_graded"
    """The row has a reply, and nothing to grade it: no assertion, no question, no agent."""
    NOT_RUN = "not_run"
    """It did not run to its end: the run was stopped before, or a dependency failed."""

    __hash__ = (
        object.__hash__
    )  # members are single objects; that of enums is slow, and rows are counted

    @classmethod
    def without_verdict(cls, outcome: str) -> "Status":
        """Return the status of a row without a verdict, by the outcome of its job, as in `Row.outcome`.

        Example:
            >>> Status.without_verdict("timed_out"), Status.without_verdict("interrupted")
            (<Status.ERROR: 'error'>, <Status.NOT_RUN: 'not_run'>)
        """
        return cls.NOT_RUN if outcome in UNFINISHED_OUTCOMES else cls.ERROR

    @classmethod
    def of_verdict(cls, passed: bool, *grounds: object) -> "Status":  # noqa: FBT001 - as it is called
        """Return the status of a row with a verdict.

        A verdict without any grounds is a success for readers of result files, and is counted apart here.

        Args:
            passed: Whether the verdict is a pass.
            *grounds: Everything that may have graded the row: assertions, their verdicts, metrics, a
                question, an agent. Empty values do not count.

        Example:
            >>> Status.of_verdict(True, ["equals"]), Status.of_verdict(True, [], {})
            (<Status.PASS: 'pass'>, <Status.NOT_GRADED: 'not_graded'>)
        """
        if not passed:
            return cls.FAIL
        return cls.PASS if any(grounds) else cls.NOT_GRADED

    @property
    def has_verdict(self) -> bool:
        """True if the row has a verdict, which is a success if nothing graded it."""
        return self in _WITH_VERDICT

    @property
    def is_graded(self) -> bool:
        """True if the row passed or failed."""
        return self in _GRADED

    @property
    def is_success(self) -> bool:
        """True if the row passed, or has a reply and was not graded; promptfoo calls both a success."""
        return self in _SUCCESSES

    @property
    def failure_reason(self) -> int:
        """Its number in result files, as promptfoo has it."""
        if self.is_success:
            return _SUCCESS
        return _FAILURE if self is Status.FAIL else _ERROR

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name.replace("_", " ")


_GRADED = frozenset({Status.PASS, Status.FAIL})
_SUCCESSES = frozenset({Status.PASS, Status.NOT_GRADED})
_WITH_VERDICT = _GRADED | _SUCCESSES
_SUCCESS, _FAILURE, _ERROR = range(3)  # values of `failureReason`


def recorded_status(record: Mapping[str, Any], outcome: str | None = None) -> Status:
    """Return the status of a row by its record, or by that of another program.

    Args:
        record: The row as JSON.
        outcome: The outcome of its job if it is at hand.

    Example:
        >>> recorded_status({"failureReason": 2}), recorded_status({"success": True})
        (<Status.ERROR: 'error'>, <Status.NOT_GRADED: 'not_graded'>)
    """
    if outcome is None:
        own = _object(_object(record.get("metadata")).get("trioeval"))
        outcome = str(own.get("outcome") or "done")
    if outcome in UNFINISHED_OUTCOMES:
        return Status.NOT_RUN
    reason = record.get("failureReason")
    if reason == _ERROR:
        return Status.ERROR
    is_known = isinstance(reason, int) and reason in {_SUCCESS, _FAILURE}
    return Status.of_verdict(
        reason == _SUCCESS if is_known else bool(record.get("success")),
        _object(record.get("testCase")).get("assert"),
        record.get("question"),
        record.get("namedScores"),
        _object(record.get("gradingResult")).get("componentResults"),
        has_agent(_object(record.get("response")).get("metadata")),
    )


def has_agent(metadata: Any) -> bool:
    """Return whether a reply with this metadata is that of an agent, whose result is a verdict."""
    return isinstance(_object(metadata).get("agent"), Mapping)


_NOTHING: Mapping[str, Any] = {}


def _object(value: Any) -> Mapping[str, Any]:
    # The exact type first: isinstance with Mapping is slow.
    return value if type(value) is dict or isinstance(value, Mapping) else _NOTHING
