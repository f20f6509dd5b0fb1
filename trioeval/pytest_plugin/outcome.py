"""The results of items: from the record of a row, or from all rows of a task."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.pytest_plugin.keys import Key
from trioeval.report.formats.json import compact
from trioeval.report.formats.markdown import without_commands
from trioeval.report.records import RowRecord
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters, inert_lines

Ending: TypeAlias = Literal["passed", "failed", "skipped"]

_UNASKED = frozenset({"not_run", "blocked"})
"""Outcomes of rows that never started."""

_REASON = 4000  # characters of a reason
_SHOWN = 2000  # characters of a prompt or an output
_LISTED = 10  # rows of a task that are listed
_BRIEF = 200  # characters of their reasons
_NAME = 80  # characters of the names of a row and of a provider


@attrs.frozen(kw_only=True)
class ItemResult:
    """The result of an item."""

    ending: Ending
    text: str = attrs.field(default="", converter=without_commands)
    """The reason as inert text; its first line is a summary."""
    properties: Sequence[tuple[str, object]] = ()
    """Properties for report files."""


def result_of_row(record: RowRecord) -> ItemResult:
    """Return the result of the item of a row.

    A row that never started is skipped, as is one of a question task that failed fast. Any other row without
    a verdict fails.
    """
    status = record.status
    properties = [*_properties(record)]
    if status.is_success:
        return ItemResult(ending="passed", properties=properties)
    reason = inert_lines(record.error or "no reason given", _REASON)
    if record.outcome in _UNASKED or record.question.get("outcome") == "skipped":
        return ItemResult(
            ending="skipped", text=escape_control_characters(reason, _BRIEF), properties=properties
        )
    if not status.has_verdict:
        reason = f"no verdict: {reason}"
    lines = [reason, *_shown(record)]
    return ItemResult(ending="failed", text="\n".join(lines), properties=properties)


def result_of_task(
    name: str, records: Iterable[RowRecord], trouble: str | None, *, is_dataset: bool
) -> ItemResult:
    """Return the result of the item of a whole task.

    Args:
        name: The name of the task.
        records: Its rows.
        trouble: The problem of its dataset; None if there is none.
        is_dataset: Whether the task makes a dataset, and has no rows.
    """
    rows = 0
    failed: list[str] = []
    skipped: list[str] = []
    for record in records:
        rows += 1
        result = result_of_row(record)
        if result.ending != "passed":
            why = escape_control_characters(result.text.partition(chr(10))[0], _BRIEF)
            of = f" ({escape_control_characters(record.name, _NAME)})" if record.name else ""
            line = f"row {record.number}{of}, {escape_control_characters(record.provider, _NAME)}: {why}"
            (failed if result.ending == "failed" else skipped).append(line)
    if trouble is not None:
        return ItemResult(ending="failed", text=escape_control_characters(trouble, _REASON))
    if failed:
        task = escape_control_characters(name, _BRIEF)
        first = f"{len(failed)} of {counted(rows, 'row')} of {task} did not pass"
        more = [f"… and {len(failed) - _LISTED} more"] if len(failed) > _LISTED else []
        return ItemResult(ending="failed", text="\n".join([first, *failed[:_LISTED], *more]))
    if skipped or not (rows or is_dataset):
        why = skipped[0] if skipped else "the task has no rows"
        text = f"{len(skipped)} of {counted(rows, 'row')} not run: {why}"
        return ItemResult(ending="skipped", text=text)
    return ItemResult(ending="passed", properties=[("rows", rows)])


def _properties(record: RowRecord) -> Iterator[tuple[str, object]]:
    found = {
        "provider": escape_control_characters(record.provider),
        "score": record.score,
        "latency_ms": record.latency_ms,
        "tokens": record.usage.get("total"),
        "cost": record.cost,
    }
    return ((name, value) for name, value in found.items() if value is not None)


def _shown(record: RowRecord) -> Iterator[str]:
    """Yield the prompt and the output."""
    for name, value in (("prompt", record.prompt), ("output", record.output)):
        if value is not None:
            text = inert_lines(value if isinstance(value, str) else compact(value), _SHOWN)
            yield "\n    ".join([f"{name}:", *text.splitlines()])


# The results that the thread of the host passes to the thread of pytest.


LOOK = 0.5  # seconds of each wait; a wait without a timeout cannot be interrupted on some systems


@attrs.define(eq=False, repr=False)
class ItemResults:
    """The results of the items of one file. One thread adds them, another one waits."""

    _news: threading.Condition = attrs.field(init=False, factory=threading.Condition)
    _results: dict[Key, ItemResult] = attrs.field(init=False, factory=dict)
    _requested: Key | None = attrs.field(init=False, default=None)
    _failure: str | None = attrs.field(init=False, default=None)
    _is_over: bool = attrs.field(init=False, default=False)

    def add(self, results: Mapping[Key, ItemResult]) -> None:
        """Add the results of some items."""
        with self._news:
            self._results |= results
            self._news.notify_all()

    def end(self, failure: str | None = None) -> None:
        """End the results.

        Args:
            failure: The reason for missing results; None if all were added.
        """
        with self._news:
            self._failure, self._is_over = failure, True
            self._news.notify_all()

    @property
    def requested(self) -> Key | None:
        """The item that is waited for."""
        with self._news:
            return self._requested

    def wait(self, key: Key) -> ItemResult:
        """Return the result of an item. Can be interrupted."""
        with self._news:
            self._requested = key
            try:
                while key not in self._results and not self._is_over:
                    self._news.wait(LOOK)
            finally:
                self._requested = None
            if key in self._results:
                return self._results[key]
            if self._failure is not None:
                return ItemResult(ending="failed", text=self._failure)
            return ItemResult(ending="skipped", text="the run ended before this row")
