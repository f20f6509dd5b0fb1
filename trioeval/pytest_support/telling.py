"""What becomes of an item: from the record of a row, or from what is known of a task that is over."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.report import inert
from trioeval.report.github import without_commands
from trioeval.report.inert import inert_lines
from trioeval.report.json_text import compact
from trioeval.report.records import own_of, status_of
from trioeval.tasks import Status

Ending: TypeAlias = Literal["passed", "failed", "skipped"]

_UNASKED = frozenset({"not_run", "blocked"})
"""Outcomes of rows that were never begun."""

_REASON = 4000  # characters of a reason
_SHOWN = 2000  # characters of a prompt, or of an answer
_LISTED = 10  # rows of a task that are told one by one
_BRIEF = 200  # characters of their reasons


@attrs.frozen(kw_only=True)
class Told:
    """How an item ends."""

    ending: Ending
    text: str = attrs.field(default="", converter=without_commands)
    """Why, in inert text; its first line says most."""
    properties: Sequence[tuple[str, object]] = ()
    """What else is told of it in files of reports."""


def told_of_row(record: Mapping[str, Any]) -> Told:
    """What becomes of the item of a row.

    A row that was never begun is skipped, also that of a question whose task failed fast. Any other one
    without a verdict fails: nobody knows whether it is well.

    Args:
        record: Of the row, as `trioeval.report.row_json` makes it.
    """
    status = status_of(record)
    properties = [*_properties(record)]
    if status is Status.PASS:
        return Told(ending="passed", properties=properties)
    reason = inert_lines(record["error"] or "no reason is known", _REASON)
    unasked = own_of(record)["outcome"] in _UNASKED
    if unasked or record.get("question", {}).get("outcome") == "skipped":
        return Told(ending="skipped", text=inert(reason, _BRIEF), properties=properties)
    if not status.has_verdict:
        reason = f"no verdict: {reason}"
    lines = [reason, *_shown(record)]
    return Told(ending="failed", text="\n".join(lines), properties=properties)


def told_of_task(
    name: str, records: Iterable[Mapping[str, Any]], trouble: str | None, *, is_dataset: bool
) -> Told:
    """What becomes of the item of a task as a whole.

    Args:
        name: What it is called.
        records: Its rows.
        trouble: What is wrong with the dataset that it builds; None if nothing is.
        is_dataset: Whether it builds one, and has no rows.
    """
    rows = 0
    failed: list[str] = []
    skipped: list[str] = []
    for record in records:
        rows += 1
        told = told_of_row(record)
        if told.ending != "passed":
            test, prompt = record["testIdx"], record["promptIdx"]
            line = f"test {test}, column {prompt}: {inert(told.text.partition(chr(10))[0], _BRIEF)}"
            (failed if told.ending == "failed" else skipped).append(line)
    if trouble is not None:
        return Told(ending="failed", text=inert(trouble, _REASON))
    if failed:
        first = f"{len(failed)} of {rows} rows of {inert(name, _BRIEF)} did not pass"
        more = [f"… and {len(failed) - _LISTED} more"] if len(failed) > _LISTED else []
        return Told(ending="failed", text="\n".join([first, *failed[:_LISTED], *more]))
    if skipped or not (rows or is_dataset):
        why = skipped[0] if skipped else "it has no rows"
        return Told(ending="skipped", text=f"{len(skipped)} of {rows} rows were not run: {why}")
    return Told(ending="passed", properties=[("rows", rows)])


def _properties(record: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    provider = record["provider"]
    found = {
        "provider": inert(provider["label"] or provider["id"]),
        "score": record["score"],
        "latency_ms": record["latencyMs"],
        "tokens": (record["tokenUsage"] or {}).get("total"),
        "cost": record["cost"],
    }
    return ((name, value) for name, value in found.items() if value is not None)


def _shown(record: Mapping[str, Any]) -> Iterator[str]:
    """What was asked, and what was answered, as far as it helps."""
    response = record["response"]
    shown = {
        "prompt": record["prompt"]["raw"],
        "output": None if response is None else response["output"],
    }
    for name, value in shown.items():
        if value is not None:
            text = inert_lines(value if isinstance(value, str) else compact(value), _SHOWN)
            yield "\n    ".join([f"{name}:", *text.splitlines()])
