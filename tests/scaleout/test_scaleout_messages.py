"""Messages between a worker and its coordinator: everything arrives unchanged, and nothing secret is sent."""

import pickle

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

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
from trioeval.scaleout.forwarding import MessageBatch
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


@pytest.mark.parametrize(
    ("linger", "expected"),
    [(0.0, [(0.0, 2), (1.01, 1)]), (2.0, [(2.0, 3)])],
    ids=["at once", "2 s"],
)
def test_replies_are_sent_at_once_or_wait_for_others_as_long_as_the_user_says(
    autojump_clock: trio.testing.MockClock, linger: float, expected: list[tuple[float, int]]
) -> None:
    """A warning waits for others in any case; a flush for another reason sends everything."""
    find = StepFinder.of(prepare(parse_suite(SUITE)))
    sent: list[tuple[float, int]] = []

    async def main() -> None:
        def send(data: bytes) -> None:
            sent.append((round(trio.current_time(), 3), len(unpack(data, find))))

        batch = MessageBatch(send, linger)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(batch.send_continuously)
            await trio.testing.wait_all_tasks_blocked()
            batch.add(WorkerWarning("a warning"))
            batch.add(WorkerWarning("a reply"))
            batch.flush_reply()
            await trio.sleep(1)
            batch.add(WorkerWarning("a warning"))
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        batch.add(WorkerWarning("the end of a shard"))
        batch.flush()

    trio.run(main, clock=autojump_clock)
    assert sent == [*expected, (3.0, 1)]


@pytest.fixture(scope="module")
def echoed() -> tuple[Row, StepFinder]:
    """Return a row, and what reads it."""
    prepared = prepare(parse_suite(SUITE))
    return trio.run(collect, prepared)[0], StepFinder.of(prepared)


@given(st.lists(st.tuples(st.integers(0, 80), st.booleans()), min_size=1, max_size=30))
def test_rows_wait_for_others_and_nothing_else_waits_for_them(
    echoed: tuple[Row, StepFinder], added: list[tuple[int, bool]]
) -> None:
    """The messages are given by the milliseconds before each, and whether it is a row."""
    row, find = echoed
    latest: list[float] = []
    sent: list[float] = []

    def send(data: bytes) -> None:
        sent.extend(trio.current_time() for _ in unpack(data, find))

    async def main() -> float:
        began_at = trio.current_time()
        batch = MessageBatch(send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(batch.send_continuously)
            for before_ms, is_row in added:
                await trio.sleep(before_ms / 1000)
                batch.add(row if is_row else WorkerWarning("w"))
                latest.append(trio.current_time() + (0.1 if is_row else 0.01))
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        return sent[-1] - began_at

    seconds = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(sent) == len(latest)
    assert all(at < limit + 1e-6 for at, limit in zip(sent, latest, strict=True))
    others = sum(not is_row for _, is_row in added)
    assert len({*sent}) <= others + seconds / 0.1 + 1e-6
