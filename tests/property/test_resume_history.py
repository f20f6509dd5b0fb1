"""Rows that are rerun get the same context as in an uninterrupted run.

Suites with registers and conversations, as in `test_serialize`, are run once completely. Then any subset of
their rows is restored from records, and the rest is rerun.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_serialize import (
    BROKEN,
    CASES,
    HISTORY,
    LATER_WRITER,
    MODES,
    NAME_OF_PIECES,
    TWO_WRITERS,
    UNTRACED,
    Case,
    content,
    of,
    stores,
)

from trioeval import Reply, Request, Row, Status, collect, parse_suite
from trioeval.columns.result import DatasetResult
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.providers.base import KeptJob
from trioeval.report.row import row_json
from trioeval.run import PreparedSuite, RowsNotRun, RunOptions, run_with_options
from trioeval.run.prepare import prepare
from trioeval.testing import run_virtual

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # a whole suite for each example


@attrs.define(eq=False)
class Kept:
    """Recorded rows, read from their text."""

    texts: Mapping[int, str]
    read: list[int] = attrs.field(factory=list)

    def __contains__(self, index: object) -> bool:
        return index in self.texts

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.texts)

    def record(self, index: int) -> Mapping[str, Any]:
        self.read.append(index)
        found: Mapping[str, Any] = json.loads(self.texts[index])
        return found


@attrs.define(eq=False)
class Notes:
    """A journal that has rows, and no replies."""

    rows: Kept
    resumed: bool = True

    def begin(self, suite: PreparedSuite) -> None:
        pass

    async def end(self, *, finished: bool, duration: float) -> None:
        pass

    def dataset_ended(self, result: DatasetResult) -> None:
        pass

    def call(self, call: CallRecord) -> None:
        pass

    def recorded_reply(self, key: CallKey) -> RecordedReply | None:  # noqa: ARG002 - there are none
        return None

    def job(self, key: CallKey) -> KeptJob:
        raise AssertionError(key)

    def row(self, row: Row) -> None:
        pass

    def first_single_row(self, _task: str | None, rows: range) -> int:
        """Return every row separately."""
        return rows.start

    def rows_not_run(self, rows: RowsNotRun) -> None:
        raise AssertionError(rows)

    def superseding_record(self, row: Row) -> None:
        pass

    def reject(self, key: CallKey) -> None:
        pass

    def needs_new_reply(self, task: str | None, index: int) -> bool:  # noqa: ARG002 - there are none
        return False

    async def durable(self, row: Row | None = None, *, urgent: bool = True) -> None:
        pass

    def reused_rows(self, task: str | None) -> Kept:  # noqa: ARG002 - there is one
        return self.rows

    def dataset(self, task: str | None) -> None:
        pass

    def agents(self, task: str | None) -> None:
        pass


def kept_of(rows: list[Row], indices: frozenset[int]) -> Kept:
    return Kept(
        {
            row.index: json.dumps(row_json(row, "eval-1"), default=str)
            for row in rows
            if row.index in indices
        }
    )


def run_whole(prepared: PreparedSuite) -> list[Row]:
    return run_virtual(lambda: collect(prepared))


def run_rest(prepared: PreparedSuite, kept: Kept) -> tuple[list[Row], int]:
    """Return the emitted rows, and the number of all that are counted."""
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> int:
        summary = await run_with_options(prepared, RunOptions(emit=keep, journal=Notes(kept)))
        return summary.rows

    return rows, run_virtual(main)


SERIAL_LATER = of(
    ["{{q}}{{r}}"],
    stores("r", "1"),
    {"vars": {"q": "2"}, "options": {"runSerially": True}},
    stores("r", "3", runSerially=True),
    {"vars": {"q": "4"}},
)
TALK = of([HISTORY + "{{q}}"], *({"vars": {"q": text}} for text in "1234"), columns="left right")


@settings(UNTRACED, max_examples=25)
@given(CASES, MODES | st.just("all"), st.frozensets(st.integers(0, 20)), st.random_module())
@example(Case(TALK, (1,)), "auto", frozenset({0, 1, 4, 5, 7}), None)
@example(Case(TALK, (1,), silent=frozenset({1})), "all", frozenset(range(7)), None)
@example(Case(TALK, (1,), failing=frozenset({1})), "all", frozenset({2, 3, 4, 5}), None)
@example(Case(SERIAL_LATER, (1,)), "auto", frozenset({0}), None)
@example(Case(SERIAL_LATER, (1,)), "all", frozenset({0, 2}), None)
@example(Case(SERIAL_LATER, (1,)), "auto", frozenset({1, 2, 3}), None)
@example(Case(TWO_WRITERS, (9, 1, 1, 1, 1), frozenset({1})), "auto", frozenset({0, 1}), None)
@example(Case(LATER_WRITER, (9, 1)), "auto", frozenset({0, 2}), None)
@example(Case(BROKEN, (9,)), "auto", frozenset({0, 1}), None)
@example(Case(NAME_OF_PIECES, (9,)), "auto", frozenset({0}), None)
def test_rerun_rows_have_the_same_content(
    case: Case, mode: str, indices: frozenset[int], _random: object
) -> None:
    """This holds in every mode; kept rows are counted, not emitted."""
    whole = run_whole(case.prepared("all"))
    rows, counted = run_rest(case.prepared(mode), kept_of(whole, indices))
    assert [content(row) for row in rows] == [
        content(row) for row in whole if row.index not in indices
    ]
    assert counted == len(whole)


COMPARED = {
    "providers": [{"id": "mine", "label": "left"}, {"id": "mine", "label": "right"}],
    "prompts": [HISTORY + "{{q}}{{r}}"],
    "tests": [
        {
            **stores("r", "1"),
            "assert": [{"type": "contains", "value": "<"}, {"type": "max-score"}],
        },
        {"vars": {"q": "2"}},
        {
            "vars": {"q": "3"},
            "assert": [{"type": "contains", "value": "zzz"}, {"type": "max-score"}],
        },
        {"vars": {"q": "4"}, "providers": ["right"]},
    ],
}


@settings(UNTRACED, max_examples=15)
@given(
    st.frozensets(st.integers(0, 6)),
    st.frozensets(st.integers(0, 3), max_size=2),
    st.sampled_from(["all", "auto"]),
)
@example(frozenset(range(7)), frozenset(), "all")
@example(frozenset(range(7)), frozenset({0}), "all")
@example(frozenset({0, 2, 3, 4, 5}), frozenset(), "auto")
def test_rows_that_are_compared_are_kept_together(
    indices: frozenset[int], failing: frozenset[int], mode: str
) -> None:
    """A group with a missing row is rerun completely, and others see its rows as before."""
    case = Case(COMPARED, (1, 5, 2), failing=failing)
    whole = run_whole(case.prepared("all"))
    rows, counted = run_rest(case.prepared(mode), kept_of(whole, indices))
    kept = set(indices)
    for group in ({0, 1}, {4, 5}):
        if not group <= indices:
            kept -= group
    if 0 in failing:  # it is unknown whether its rows had an output before they were compared
        kept -= {0, 1}
    assert [content(row) for row in rows] == [
        content(row) for row in whole if row.index not in kept
    ]
    assert counted == len(whole)


def test_a_complete_task_makes_no_call_and_restores_nothing() -> None:
    """It only counts its rows."""
    requests: list[Request] = []

    async def ask(request: Request) -> Reply:  # noqa: ASYNC124 - answers at once
        requests.append(request)
        return Reply(output="x")

    prepared = prepare(parse_suite({**TALK}), providers={"mine": ask})
    whole = run_virtual(lambda: collect(prepared))
    count = len(requests)
    kept = kept_of(whole, frozenset(range(len(whole))))
    rows, counted = run_rest(prepared, kept)
    assert not rows
    assert counted == len(whole) == 8
    assert len(requests) == count
    assert sorted(kept.read) == list(range(8))


def test_an_interrupted_run_with_kept_rows_emits_all_others() -> None:
    """It emits every other row once, in order."""

    async def ask(request: Request) -> Reply:
        await trio.sleep(1)
        return Reply(output=request.prompt)

    tests = [{"vars": {"q": str(i)}} for i in range(10)]
    document = of(["{{q}}"], *tests, evaluateOptions={"maxConcurrency": 2, "maxEvalTimeMs": 1500})
    prepared = prepare(parse_suite(document), providers={"mine": ask})
    whole = [
        attrs.evolve(row, status=Status.PASS, outcome="done")
        for row in run_virtual(lambda: collect(prepared))
    ]
    rows, counted = run_rest(prepared, kept_of(whole, frozenset({0, 3, 4, 9})))
    assert [(row.index, row.outcome) for row in rows] == [
        (1, "done"),
        (2, "done"),
        (5, "interrupted"),
        (6, "interrupted"),
        (7, "not_run"),
        (8, "not_run"),
    ]
    assert counted == 10
