"""Messages between a worker and its coordinator: everything arrives unchanged, and nothing secret is sent."""

import pickle

import attrs
import pytest
import trio

from trioeval import errors
from trioeval.errors import (
    BudgetError,
    Fault,
    GradingError,
    LaneClosedError,
    Problem,
    ProviderError,
    SuiteError,
    TrioevalError,
)
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply
from trioeval.run import Row, collect, prepare
from trioeval.scaleout.messages import (
    Message,
    RejectedReply,
    StepFinder,
    WorkerWarning,
    pack,
    unpack,
)
from trioeval.usage import Usage

SUITE = {
    "providers": [{"id": "echo", "config": {"note": "a-note-of-the-provider"}}],
    "prompts": ["say {{word}}"],
    "defaultTest": {"metadata": {"secret": "a-note-of-the-test"}},
    "tests": [
        {"vars": {"word": word}, "assert": [{"type": "contains", "value": "a"}]} for word in "abc"
    ],
}


def test_rows_arrive_unchanged_without_sending_their_steps_and_providers() -> None:
    prepared = prepare(parse_suite(SUITE))
    rows: list[Row] = trio.run(collect, prepared)
    data = pack(rows)
    assert unpack(data, StepFinder.of(prepared)) == rows
    assert b"a-note-of-the-provider" not in data
    assert b"a-note-of-the-test" not in data


@pytest.mark.parametrize("output", [{}, [], "", 0, 0.0, False])
def test_an_empty_output_arrives_as_it_is(output: object) -> None:
    prepared = prepare(parse_suite(SUITE))
    row: Row = trio.run(collect, prepared)[0]
    row = attrs.evolve(row, output=output, reply=Reply(output=output))
    (found,) = unpack(pack([row]), StepFinder.of(prepared))
    assert isinstance(found, Row)
    assert found == row
    assert repr(found.output) == repr(output)


def test_calls_arrive_unchanged() -> None:
    key = CallKey("t", 3, "provider", b"0" * 16, "row")
    reply = Reply(output="x", usage=Usage(total=3), metadata={"a": [1]})
    call = CallRecord(key=key, provider="p", prompt="q", answer=reply, latency_ms=1.5)
    prepared = prepare(parse_suite(SUITE))
    messages: list[Message] = [call, RejectedReply(key), WorkerWarning("w")]
    assert unpack(pack(messages), StepFinder.of(prepared)) == messages


ERRORS = [
    ProviderError("server", "no", status=500, retry_after=2.0, usage=Usage(total=3), money=0.5),
    ProviderError("rate_limited", "no", fault=Fault.TRANSIENT, retries=7, body_excerpt="b"),
    GradingError("no", mishap=True, metadata={"a": 1}),
    LaneClosedError("lane", "reason"),
    BudgetError("requests", limit=1, used=1, wanted=1),
    SuiteError([Problem("$.a", "wrong")]),
    errors.StoreError("disk"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_keep_their_type_text_and_facts(error: TrioevalError) -> None:
    """Python itself would pass an exception's `args` to an initialiser that takes others."""
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)
