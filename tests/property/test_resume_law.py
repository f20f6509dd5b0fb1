"""RESUME: a run that is interrupted anywhere and resumed equals one uninterrupted run.

Suites are drawn with registers, conversations, judges and comparisons, and with providers that fail. They
are run, interrupted after any prefix of their writes, and resumed, several times.
"""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_serialize import HISTORY, UNTRACED

from trioeval import ProviderError, Reply, Request, Row, SuiteSummary, parse_suite
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.evaluation.reconcile import Retry
from trioeval.evaluation.status import has_ended
from trioeval.providers import Usage
from trioeval.run import PreparedSuite, RunOptions, run_with_options
from trioeval.run.journal import RunJournal
from trioeval.run.prepare import prepare
from trioeval.testing import run_virtual
from trioeval.testing.journals import MemoryJournal, WrittenRow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # several suites for each example


def chance(text: str, among: int) -> int:
    """Return the same number for the same text in every run."""
    return zlib.crc32(text.encode()) % among


@attrs.define
class World:
    """Providers that return equal replies to equal requests."""

    failing: frozenset[int] = frozenset()
    """Tests whose calls fail."""
    answered: int = 0
    """Completed requests."""

    async def pass_time(self, request: Request, most: int) -> None:
        """Wait some seconds; different requests never end at one instant."""
        await trio.sleep(chance(request.prompt, most * 2**16) / 2**16)
        self.answered += 1

    async def model(self, request: Request) -> Reply:
        """Wait, and return a reply that differs from all others."""
        await self.pass_time(request, 9)
        if request.test_idx in self.failing:
            raise ProviderError("bad_request", "no")
        place = 3 * request.test_idx + request.prompt_idx
        # Only the end: texts that quote each other would exceed the bound of immediate judging, and threads
        # do not take part in virtual time.
        output = f"<{place} {request.prompt[-60:]}>"
        return Reply(output=output, usage=Usage(total=3, prompt=1, completion=2), cost=0.5)

    async def judge(self, request: Request) -> Reply:
        """Fail, or reply incomprehensibly, now and then, but never for one of several concurrent requests.

        The replies of concurrent requests by then would be random in any run.
        """
        await self.pass_time(request, 5)
        luck = chance(request.prompt, 6)
        if "very" in request.prompt:
            luck = max(luck, 2)
        if luck == 0:
            raise ProviderError("bad_request", "no")
        verdict = {"pass": luck > 2, "score": luck / 8, "reason": f"because of {luck}"}
        usage = Usage(total=2, prompt=1, completion=1)
        return Reply(output="hm" if luck == 1 else json.dumps(verdict), usage=usage, cost=0.25)

    async def chooser(self, request: Request) -> Reply:
        """Choose the best output."""
        await self.pass_time(request, 7)
        return Reply(output=f"{chance(request.prompt, 2)}", cost=0.125)

    def prepared(self, document: Mapping[str, Any]) -> PreparedSuite:
        providers = {"mine": self.model, "judge": self.judge, "chooser": self.chooser}
        return prepare(parse_suite(document), providers=providers, environ={})


RUBRIC: dict[str, Any] = {"type": "llm-rubric", "value": "is {{q}} good?", "provider": "judge"}
BEST: dict[str, Any] = {"type": "select-best", "value": "the best", "provider": "chooser"}
RELIABLE = {**RUBRIC, "value": "is it very good?", "metric": "m", "config": {"repeat": 3}}
QUOTES = {"type": "contains", "value": "{{r}}"}
FAILS = {"type": "contains", "value": "zzz"}
HIGHEST = {"type": "max-score"}
ASSERTIONS: list[list[dict[str, Any]]] = [
    [],
    [RUBRIC],
    [RELIABLE, FAILS],
    [QUOTES],
    [FAILS],
    [BEST],
    [BEST, RUBRIC],
    [HIGHEST, RELIABLE],
    [QUOTES, BEST, HIGHEST],
]
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "storeOutputAs": st.sampled_from("rs"),
        "runSerially": st.booleans(),
        "disableConversationVar": st.booleans(),
    },
)
TESTS = st.fixed_dictionaries(
    {
        "vars": st.fixed_dictionaries({"q": st.sampled_from(["1", "see {{r}}", "2 {{s}}", "3"])}),
        "options": OPTIONS,
        "assert": st.sampled_from(ASSERTIONS),
    },
    optional={
        "metadata": st.fixed_dictionaries({"conversationId": st.sampled_from("ab")}),
        "providerOutput": st.sampled_from(["given", "given {{q}}"]),
    },
)


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return the suite without comparisons if tests have one output each."""
    if len(document["providers"]) * len(document["prompts"]) > 1:
        return document
    tests = []
    for test in document["tests"]:
        alone = [one for one in test["assert"] if one["type"] not in ("select-best", "max-score")]
        tests.append({**test, "assert": alone})
    return {**document, "tests": tests}


DOCUMENTS = st.fixed_dictionaries(
    {
        "providers": st.sampled_from(
            [
                [{"id": "mine", "label": "left"}],
                [{"id": "mine", "label": label} for label in ("left", "right")],
            ]
        ),
        "prompts": st.sampled_from(
            [
                ["{{q}}"],
                ["{{q}}", "and {{q}}"],
                ["{{q}}{{r}}", HISTORY + "{{q}}"],
                [HISTORY + "{{q}}"],
            ]
        ),
        "tests": st.lists(TESTS, min_size=1, max_size=4),
        "evaluateOptions": st.fixed_dictionaries(
            {
                "maxConcurrency": st.integers(1, 4),
                "repeat": st.integers(1, 2),
                "salvageRounds": st.integers(0, 1),
            }
        ),
    }
).map(comparable)


def row_content(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record without its times."""
    own = {
        name: value
        for name, value in record["metadata"]["trioeval"].items()
        if name not in ("waitMs", "waits")
    }
    return {**record, "metadata": {**record["metadata"], "trioeval": own}}


def play(
    prepared: PreparedSuite, journal: RunJournal, *, cancel_at: float = math.inf
) -> tuple[list[Row], SuiteSummary | None]:
    """Run a suite, which may be cancelled; return the emitted rows, and its end."""
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> SuiteSummary | None:
        with trio.move_on_at(cancel_at):
            return await run_with_options(prepared, RunOptions(emit=keep, journal=journal))
        return None

    return rows, run_virtual(main)


def recorded(journal: MemoryJournal) -> set[CallKey]:
    """Return the prompts whose replies are recorded."""
    return {
        write.key
        for write in journal.earlier
        if isinstance(write, CallRecord) and isinstance(write.answer, Reply)
    }


def requests(journal: MemoryJournal) -> list[CallRecord]:
    """Return the prompts of this execution."""
    return [write for write in journal.writes if isinstance(write, CallRecord)]


CUTS = st.lists(
    st.tuples(st.integers(0, 100), st.sampled_from([math.inf, math.inf, 3.5, 11.25, 20.75])),
    min_size=1,
    max_size=3,
)


SERIAL_ROWS_WRITE_FIRST = {
    "providers": [{"id": "mine", "label": "left"}],
    "prompts": ["{{q}}"],
    "tests": [
        {"vars": {"q": "see {{r}}"}, "options": {"storeOutputAs": "r"}},
        {
            "vars": {"q": "1"},
            "options": {"storeOutputAs": "r", "runSerially": True},
            "providerOutput": "given",
        },
    ],
    "evaluateOptions": {"maxConcurrency": 1, "repeat": 2},
}


@settings(UNTRACED, max_examples=25)
@given(DOCUMENTS, st.frozensets(st.integers(0, 4), max_size=2), CUTS, st.random_module())
@example(SERIAL_ROWS_WRITE_FIRST, frozenset(), [(50, math.inf)], None)
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    document: Mapping[str, Any],
    failing: frozenset[int],
    cuts: list[tuple[int, float]],
    _random: object,
) -> None:
    """RESUME: the rows are the same, every index comes once, and no recorded reply is requested again."""
    uninterrupted = MemoryJournal()
    whole, summary = play(World(failing).prepared(document), uninterrupted)
    assert summary is not None
    right = {index: row_content(one) for index, one in uninterrupted.records().items()}
    assert sorted(right) == [row.index for row in whole] == list(range(len(whole)))

    journal = MemoryJournal()
    for percent, cancel_at in cuts:
        play(World(failing).prepared(document), journal, cancel_at=cancel_at)
        assert not recorded(journal) & {call.key for call in requests(journal)}
        written = len(journal.writes)
        journal = journal.cut(len(journal.earlier) + math.ceil(written * percent / 100))

    world = World(failing)
    kept = {index for index in right if index in journal.reused_rows(None)}
    rows, ending = play(world.prepared(document), journal)
    found = {index: row_content(one) for index, one in journal.records().items()}
    assert found == right
    again = [row.index for row in rows]
    assert again == sorted(set(again))
    assert set(right) - kept <= set(again)
    assert not recorded(journal) & {call.key for call in requests(journal)}
    assert world.answered == len(requests(journal))
    assert ending is not None
    assert attrs.evolve(ending, duration=0.0) == attrs.evolve(summary, duration=0.0)


RETRIES = st.sampled_from(
    [
        Retry("failed"),
        Retry("errors"),
        Retry("rows", (range(99),)),
        Retry("rows", (range(1, 2), range(3, 6))),
    ]
)


@settings(UNTRACED, max_examples=15)
@given(DOCUMENTS, st.frozensets(st.integers(0, 4), max_size=2), RETRIES, CUTS, st.random_module())
def test_an_interrupted_retry_loses_no_result(
    document: Mapping[str, Any],
    failing: frozenset[int],
    retry: Retry,
    cuts: list[tuple[int, float]],
    _random: object,
) -> None:
    """RESUME: an earlier result counts until its row has finished again, over any number of interruptions."""
    journal = MemoryJournal()
    _, summary = play(World(failing).prepared(document), journal)
    assert summary is not None
    right = {index: row_content(one) for index, one in journal.records().items()}
    marked = journal.again(retry)
    kept = {index for index in right if index in marked.reused_rows(None)}

    journal = marked
    for percent, cancel_at in cuts:
        _, ending = play(World(failing).prepared(document), journal, cancel_at=cancel_at)
        if ending is not None:  # otherwise it was cancelled
            assert attrs.evolve(ending, duration=0.0) == attrs.evolve(summary, duration=0.0)
        written = len(journal.writes)
        journal = journal.cut(len(journal.earlier) + math.ceil(written * percent / 100))
        assert {index: row_content(one) for index, one in journal.records().items()} == right

    again, _ = play(World(failing).prepared(document), journal)
    assert {index: row_content(one) for index, one in journal.records().items()} == right
    done = {
        write.index
        for write in journal.earlier[len(marked.earlier) :]
        if isinstance(write, WrittenRow) and has_ended(write.outcome)
    }
    assert set(right) - kept - done <= {row.index for row in again}
    assert len(journal.cut(10**9).reused_rows(None)) == len(right)
