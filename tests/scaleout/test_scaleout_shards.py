"""The sizes of shards, the owners of lanes, and the addresses of clusters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import UsageError
from trioeval.scaleout.address import LocalWorkers, SchedulerAddress, read_address
from trioeval.scaleout.shards import (
    FIRST_ROWS,
    MOST_ROWS,
    SHARD_SECONDS,
    SHARDS_AT_ONCE,
    LaneUse,
    measured,
    next_rows,
    owner_groups,
    shard_rows,
)


@given(
    st.none() | st.floats(0, 1e6),
    st.integers(min_value=1, max_value=10**7),
    st.integers(1, 1000),
    st.integers(1, 5000),
)
def test_a_shard_is_never_empty_too_long_or_more_than_a_fair_part(
    row_seconds: float | None, waiting: int, workers: int, width: int
) -> None:
    size = shard_rows(row_seconds, waiting, workers, width)
    assert 1 <= size <= min(MOST_ROWS, waiting)
    fair = -(-waiting // (SHARDS_AT_ONCE * workers))
    assert size <= fair or (row_seconds is not None and size * row_seconds <= 0.1)
    if row_seconds is not None and size > max(width, FIRST_ROWS):
        assert size * row_seconds <= SHARD_SECONDS * (1 + 1e-9)


@given(st.integers(1, MOST_ROWS), st.integers(0, 5000))
def test_a_worker_has_one_to_two_shards_of_rows(size: int, running: int) -> None:
    """A shard is at least half a shard, so that slow rows do not lead to shards of single rows."""
    rows = next_rows(size, running)
    assert rows == 0 or size // 2 <= rows <= size
    assert running + rows <= max(running, SHARDS_AT_ONCE * size)
    assert rows or running > size


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 1000)), min_size=1))
def test_the_measured_duration_stays_between_those_of_single_shards(
    shards: list[tuple[float, int]],
) -> None:
    found = None
    for seconds, rows in shards:
        found = measured(found, seconds, rows)
    each = [seconds / rows for seconds, rows in shards]
    assert found is not None
    assert min(each) * (1 - 1e-9) <= found <= max(each) * (1 + 1e-9)


LANES = st.sampled_from("abcdef")


@given(st.lists(st.frozensets(LANES, min_size=1), max_size=8), st.frozensets(LANES))
def test_each_owned_lane_is_used_by_one_group_only(
    lanes: list[frozenset[str]], owned: frozenset[str]
) -> None:
    """Groups are as small as that allows: connected by common owned lanes."""
    uses = [LaneUse((None, str(number)), used) for number, used in enumerate(lanes)]
    found = owner_groups(uses, owned)
    for use in uses:
        assert (found[use.rows] is None) == (not use.lanes & owned)
    for one in uses:
        for other in uses:
            if one.lanes & other.lanes & owned:
                assert found[one.rows] == found[other.rows]
    # Within a group, everything is connected.
    groups = {group for group in found.values() if group is not None}
    for group in groups:
        members = [use.lanes & owned for use in uses if found[use.rows] == group]
        joined = set(members[0])
        for _ in members:
            joined |= {lane for lanes_ in members if lanes_ & joined for lane in lanes_}
        assert joined == set().union(*members)


def test_with_a_cap_of_all_calls_all_rows_have_one_owner() -> None:
    uses = [LaneUse((None, "a"), frozenset("a")), LaneUse(("t", "b"), frozenset("b"))]
    assert set(owner_groups(uses, (), is_capped=True).values()) == {"all"}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("local:1", LocalWorkers(1)),
        ("local:1024", LocalWorkers(1024)),
        ("dask://node7", SchedulerAddress("tcp://node7:8786")),
        ("dask://10.0.0.1:9000", SchedulerAddress("tcp://10.0.0.1:9000")),
        ("tcp://[::1]:9000", SchedulerAddress("tcp://[::1]:9000")),
        ("tls://node7:8786", SchedulerAddress("tls://node7:8786")),
    ],
)
def test_an_address_names_processes_of_this_machine_or_a_scheduler(
    text: str, right: LocalWorkers | SchedulerAddress
) -> None:
    assert read_address(text) == right


@pytest.mark.parametrize(
    "text",
    [
        *("", "local", "local:0", "local:1025", "local:-1", "local:٣", "dask://", "dask:8786"),
        *("http://x", "dask://x:99999", "dask://x:y", "tcp://x:1/path", "dask://user:key@x:1"),
        "dask://[x",
    ],
)
def test_any_other_address_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_address(text)
    assert "--on must be local:N" in str(caught.value)
    assert repr(text) in str(caught.value)
