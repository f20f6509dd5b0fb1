"""The first rows that did not pass, with the reason of each, as far as a terminal shows them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading import output_text
from trioeval.report.inert import inert
from trioeval.report.json_text import shallow
from trioeval.report.records import name_of_test, status_of
from trioeval.tasks import Status

_NAME = 60  # characters of the name of a test
_REASON = 300  # of a reason
_EXPECTED = 120  # of what was expected
_TELLING = 20  # of the beginning of a value, by which it is known again


@attrs.frozen(kw_only=True)
class Failure:
    """A row that failed, or ended as an error. Its texts are harmless, and cut."""

    index: int
    prompt_idx: int
    status: Status
    name: str
    reason: str
    expected: str | None
    """What an assertion says was to be there; None where the reason says it, or none does."""


@attrs.define
class Failures:
    """Takes rows in index order, and keeps the first of those that did not pass."""

    most: int
    """Rows that are kept, ≥ 1."""
    count: int = 0
    """All that failed or ended as errors."""
    left: int = 0
    """Rows that have no verdict because they were not run to their end."""
    first: list[Failure] = attrs.field(factory=list)

    def add(self, index: int, record: Mapping[str, Any]) -> None:
        """Take note of a row.

        Args:
            index: Of the row, in its task.
            record: As `row_json` made it.
        """
        status = status_of(record)
        if status is Status.PASS:
            return
        if status is Status.NOT_RUN:
            self.left += 1
            return
        self.count += 1
        if len(self.first) == self.most:
            return
        graded = record["gradingResult"]
        reason = str((graded or {}).get("reason") or record["error"] or "it says no reason")
        self.first.append(
            Failure(
                index=index,
                prompt_idx=record["promptIdx"],
                status=status,
                name=inert(name_of_test(record), _NAME),
                reason=inert(reason, _REASON),
                expected=_expected((graded or {}).get("componentResults", ()), reason),
            )
        )


def _expected(parts: Sequence[Mapping[str, Any]], reason: str) -> str | None:
    """What the first assertion that does not hold says, if the reason does not."""
    failed = next((part for part in parts if not part["pass"]), None)
    said = (failed or {}).get("assertion") or {}
    if "value" not in said:
        return None
    value = output_text(shallow(said["value"]))
    # Reasons quote, and cut: the beginning tells whether this one does.
    quoted = json.dumps(shallow(said["value"]), ensure_ascii=False, default=str)[:_TELLING]
    return None if quoted in reason else inert(f"{said.get('type', '')} {value}", _EXPECTED)
