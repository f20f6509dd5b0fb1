"""Requests are read strictly, answers leniently; written messages are read back."""

from collections.abc import Callable
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.limits import (
    Actual,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.limits.model import MOST
from trioeval.limits.wire import (
    BATCH,
    MalformedError,
    decision_json,
    lease_request_json,
    limit_json,
    milliseconds,
    read_batch,
    read_body,
    read_decision,
    read_extended,
    read_lease_request,
    read_pause,
    read_settlement,
    read_state,
    settlement_json,
    state_json,
    to_body,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
amounts = st.integers(1, MOST)
requirements = st.lists(st.builds(Requirement, texts, amounts), max_size=4).map(tuple)
actuals = st.lists(st.builds(Actual, texts, st.integers(0, MOST)), max_size=4).map(tuple)
seconds = st.integers(0, 10**12).map(lambda number: number / 1000)
spans = st.integers(1, 10**12).map(lambda number: number / 1000)
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda key: key == key.strip() and key
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def sent(data: object) -> object:
    """Return data as it arrives."""
    return read_body(to_body(data))


def problems(read: Callable[[Any], object], data: object) -> list[str]:
    with pytest.raises(MalformedError) as caught:
        read(data)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


@given(st.builds(LeaseRequest, texts, texts, requirements))
def test_a_lease_request_is_read_back_unchanged(ask: LeaseRequest) -> None:
    """This holds for a request that no backend would grant too, since the wire format does not decide."""
    assert read_lease_request(sent(lease_request_json(ask))) == ask


@given(st.builds(Settlement, texts, texts, actuals))
def test_a_settlement_is_read_back_unchanged(settlement: Settlement) -> None:
    """Amounts up to the largest are exact."""
    assert read_settlement(sent(settlement_json(settlement))) == settlement


@given(
    st.builds(Granted, seconds)
    | st.builds(
        Denied,
        st.sampled_from(["no_capacity", "limit_decreasing"]),
        terminal=st.just(value=False),
        retry_after=seconds,
        keys=st.lists(texts, max_size=3).map(tuple),
        message=texts,
    )
    | st.builds(
        Denied,
        st.sampled_from(["exceeds_capacity", "budget_exhausted", "lease_expired"]),
        terminal=st.just(value=True),
        keys=st.lists(texts, max_size=3).map(tuple),
        message=texts,
    )
    | st.builds(Unknown, texts.filter(bool))
)
def test_a_decision_is_read_back_unchanged(decision: Granted | Denied | Unknown) -> None:
    """The client gets the server's decision, to the millisecond."""
    assert read_decision(sent(decision_json(decision))) == decision


@given(st.floats(0, 1e9))
def test_a_wait_is_never_written_shorter_than_it_is(wait: float) -> None:
    """An early retry would be denied again. A microsecond is lost to rounding."""
    written = milliseconds(wait)
    assert wait * 1000 - 1e-3 <= written < wait * 1000 + 1


def test_an_infinite_wait_is_written_as_a_long_one() -> None:
    """JSON has no infinity; a wait that is over is 0."""
    assert milliseconds(float("inf")) == MOST
    assert milliseconds(-1.0) == 0


limits = st.one_of(
    st.builds(
        SharedLimit,
        key=keys,
        kind=st.just("rolling"),
        capacity=amounts,
        window=spans,
        overage=st.sampled_from(["debt", "deny"]),
        unit=texts,
        description=texts,
    ),
    st.builds(SharedLimit, key=keys, kind=st.just("concurrency"), capacity=amounts, timeout=spans),
    st.builds(
        SharedLimit, key=keys, kind=st.just("budget"), capacity=amounts, reset=st.none() | spans
    ),
)


@given(limits, st.none() | amounts, amounts, amounts, amounts, st.none() | seconds)
def test_a_state_is_read_back_unchanged(  # noqa: PLR0917
    limit: SharedLimit,
    pending: int | None,
    used: int,
    outstanding: int,
    debt: int,
    paused_until: float | None,
) -> None:
    """A definition is the part that a client may send."""
    state = LimitState(
        limit=limit,
        status="active" if pending is None else "decreasing",
        pending_capacity=pending,
        used=used,
        outstanding=outstanding,
        debt=debt,
        paused_until=paused_until,
        began_at=None if limit.reset is None else debt / 8,
    )
    assert read_state(sent(state_json(state))) == state
    assert limit_json(limit).items() <= state_json(state).items()
    assert read_state(sent(limit_json(limit))) == LimitState(limit=limit)


@given(json_values)
def test_any_json_is_read_or_rejected(data: object) -> None:
    """Invalid requests are malformed; invalid answers are unknown."""
    for read in (read_lease_request, read_settlement, read_extended, read_pause):
        with pytest.raises(MalformedError):
            read(data)
    with pytest.raises(MalformedError):
        read_batch(data, read_lease_request)
    assert isinstance(read_decision(data), Unknown)
    assert read_state(data) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_rejected(body: bytes) -> None:
    """Any bytes are JSON, or malformed."""
    try:
        data = read_body(body)
    except MalformedError:
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(body)
    else:
        assert data == orjson.loads(body)


RIGHT = {"lease_id": "a", "job_id": "j", "requirements": [{"key": "rpm", "amount": 1}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"priority": 1},
            "$.priority: is not a known field; known fields are lease_id, requirements, job_id",
        ),
        ({"lease_id": 7}, "$.lease_id: must be text, got 7"),
        ({"job_id": None}, "$.job_id: must be text, got None"),
        ({"requirements": {}}, "$.requirements: must be a list, got {}"),
        ({"requirements": [5]}, "$.requirements[0]: must be an object, got 5"),
        (
            {"requirements": [{"key": "rpm", "amount": True}]},
            "$.requirements[0].amount: must be a whole number, got True",
        ),
        (
            {"requirements": [{"key": "rpm", "amount": 1.0}]},
            "$.requirements[0].amount: must be a whole number, got 1.0",
        ),
        ({"requirements": [{"key": "rpm"}]}, "$.requirements[0].amount: is required"),
    ],
)
def test_a_malformed_request_is_reported_with_its_path(
    change: dict[str, object], message: str
) -> None:
    """The message has the path, the problem and a valid form."""
    assert read_lease_request(RIGHT) == LeaseRequest("a", "j", (Requirement("rpm", 1),))
    assert problems(read_lease_request, {**RIGHT, **change}) == [message]


def test_all_problems_of_a_request_are_reported_at_once() -> None:
    """The message does not stop at the first problem."""
    wrong = {"lease": "a", "requirements": [{"key": 1, "amount": "x"}]}
    assert problems(read_lease_request, wrong) == [
        "$.lease: is not a known field; known fields are lease_id, requirements, job_id",
        "$.lease_id: is required",
        "$.requirements[0].key: must be text, got 1",
        "$.requirements[0].amount: must be a whole number, got 'x'",
    ]


@pytest.mark.parametrize("amount", [-1, MOST + 1])
def test_usage_is_neither_negative_nor_too_large(amount: int) -> None:
    """Negative usage would create room."""
    wrong = {"lease_id": "a", "actuals": [{"key": "tpm", "actual_amount": amount}]}
    assert problems(read_settlement, wrong) == [
        f"$.actuals[0].actual_amount: must be 0 to 2^53-1, got {amount}"
    ]


def test_ql_31_an_invalid_item_of_a_batch_is_reported_in_its_position() -> None:
    """The other items are read nevertheless."""
    first, second, third = read_batch(
        {"requests": [RIGHT, {"lease_id": "b"}, {**RIGHT, "lease_id": "c"}]}, read_lease_request
    )
    assert isinstance(first, LeaseRequest)
    assert isinstance(third, LeaseRequest)
    assert third.lease_id == "c"
    assert isinstance(second, MalformedError)
    assert str(second) == "$.requests[1].requirements: is required"
    assert decision_json(second) == {"error": "invalid_request", "message": str(second)}
    assert read_decision(decision_json(second)) == Denied(
        "invalid_request", terminal=True, message=str(second)
    )


@pytest.mark.parametrize("count", [0, BATCH + 1])
def test_a_batch_has_1_to_256_items(count: int) -> None:
    """Any other batch is rejected as a whole."""
    message = f"$.requests: must have 1 to 256 items, has {count}"
    assert problems(
        lambda data: read_batch(data, read_lease_request), {"requests": [RIGHT] * count}
    ) == [message]


def test_one_or_many_leases_are_extended() -> None:
    """Both forms are accepted, and no other."""
    assert read_extended({"lease_id": "a", "job_id": "j"}) == ["a"]
    assert read_extended({"lease_ids": ["a", "b"]}) == ["a", "b"]
    assert problems(read_extended, {"lease_ids": ["a", 1]}) == [
        "$.lease_ids: must be a list of 1 to 256 texts of at most 256 characters, got ['a', 1]"
    ]
    assert problems(read_extended, {"lease_ids": ["a"], "lease_id": "a"}) == [
        "$.lease_id: is not a known field; known fields are lease_ids"
    ]


@pytest.mark.parametrize("wait", [-1, "5", True])
def test_a_pause_is_a_number_of_seconds(wait: object) -> None:
    """It is at least 0, which resumes the limit."""
    assert read_pause({"key": "rpm", "seconds": 0}).seconds == 0
    assert problems(read_pause, {"key": "rpm", "seconds": wait}) == [
        f"$.seconds: must be a number, at least 0, got {wait!r}"
    ]


@pytest.mark.parametrize(
    "answer",
    [
        {"granted": False, "reason": "backend_error", "retry_after_ms": 5},
        {"error": "backend_error"},
        {"granted": False, "reason": "full_moon"},
        {"granted": True},
        {"granted": "yes", "reserved_at": 1},
        {},
        None,
        [],
    ],
)
def test_an_invalid_decision_is_an_unknown_outcome(answer: object) -> None:
    """A denial would lead to a new id, and so to a double reservation."""
    assert isinstance(read_decision(answer), Unknown)


def test_unknown_fields_of_an_answer_are_ignored() -> None:
    """A newer server may send more."""
    assert read_decision({"granted": True, "reserved_at": 1, "zone": "eu"}) == Granted(1.0)
    state = LimitState(limit=SharedLimit(key="a", kind="budget", capacity=5), used=3)
    assert read_state({**state_json(state), "zone": "eu"}) == state
    assert read_state({**state_json(state), "kind": "sliding"}) is None
    assert read_state(attrs.asdict(state)) is None
