"""Datasets with cells that fail, are skipped, or are dropped; and the effects of lanes."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio
from dataset_scripted import (
    MemoryDatasetJournal,
    Provider,
    Values,
    built,
    busy,
    cell,
    dataset,
    refusal,
    seeds,
    transient,
    whole,
)

from trioeval.columns.events import (
    DatasetShutDown,
    GroupAbandoned,
    GroupOpened,
    GroupWritten,
    ManyTransientFailures,
    RowDropped,
)
from trioeval.columns.lanes import LOCAL
from trioeval.columns.makers.base import CellOrder, GroupOrder, Made
from trioeval.columns.model import ErrorWindow, Skip
from trioeval.errors import CallError, Fault, ProviderError
from trioeval.kernel import Calls, CallStarted, LaneSpec, Salvaged

SEED = whole("seed", seeds())


def lane(width: int = 4, **more: Any) -> LaneSpec:
    return LaneSpec("p", width, **{"adaptive": "off", **more})


def rows_of(values: Any) -> int:
    return int(values["seed"]) // 10


def test_co_30_a_skipped_cell_skips_its_dependents() -> None:
    """Both have the skip value without a call, and the row is written."""
    a, b = Provider("a", "p"), Provider("b", "p")
    found = built(
        dataset(
            SEED,
            a.col(
                "seed",
                skip=Skip(when="…", value="-"),
                skip_when=lambda row: rows_of(row) % 2 == 0,
                extras=["trace"],
            ),
            b.col("a", skip=Skip(value="none")),
            rows=4,
        ),
        lane(),
    )
    assert found.rows[0] == {"seed": 0, "a": "-", "trace": "-", "b": "none"}
    assert found.rows[1] == {"seed": 10, "a": 1, "trace": None, "b": 1}
    assert sorted(a.rows) == sorted(b.rows) == [1, 3]


def test_co_30_a_column_that_does_not_propagate_is_made() -> None:
    """It sees the skip value."""
    a, b = Provider("a", "p"), Provider("b", "p")
    found = built(
        dataset(
            SEED,
            a.col("seed", skip_when=lambda _row: True),
            b.col("a", skip=Skip(propagate=False)),
            rows=1,
        ),
        lane(),
    )
    assert (a.rows, b.rows, b.seen) == ([], [0], {0: {"a": None}})
    assert found.result.written == 1


def test_co_31_a_skip_condition_that_fails_follows_on_error() -> None:
    """The cell fails; or it is skipped, if `onError` says so."""

    def fails(row: Any) -> bool:
        if rows_of(row) == 1:
            raise ZeroDivisionError("1/0")
        return False

    for on_error, numbers in (("fail", [0, 2]), ("skip", [0, 1, 2])):
        a = Provider("a", "p")
        skip = Skip(when="…", on_error=on_error)  # type: ignore[arg-type]
        found = built(dataset(SEED, a.col("seed", skip=skip, skip_when=fails), rows=3), lane())
        assert found.numbers == numbers
        assert sorted(a.rows) == [0, 2]
        assert found.result.dropped == ({"failed": 1} if on_error == "fail" else {})
    [gone] = built(
        dataset(SEED, Provider("a", "p").col("seed", skip_when=fails), rows=3), lane()
    ).result.failures
    assert gone.error == "skip.when cannot be evaluated: 1/0"


def test_co_31_a_condition_that_fails_for_a_row_of_a_batch_drops_that_row() -> None:
    """The others are made."""

    def fails(row: Any) -> bool:
        return bool(1 // rows_of(row) and False)

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        return [(row, {"f": row}) for row in order.rows]

    found = built(dataset(SEED, whole("f", make, "seed", skip_when=fails), rows=3))
    assert found.numbers == [1, 2]
    assert found.result.dropped == {"failed": 1}


def test_co_33_a_fully_skipped_batch_makes_no_call() -> None:
    """It does not wait in the lane's queue, and does not count in the failure window."""
    requested: list[Any] = []

    async def make(order: GroupOrder, calls: Calls[Any]) -> Made:
        requested.append(tuple(order.rows))

        async def send() -> None:
            await trio.sleep(1)
            raise refusal()

        await calls("p", send)
        return []

    def skips(row: Any) -> bool:
        return rows_of(row) != 5

    f = whole("f", make, "seed", lane="p", skip=Skip(value=0), skip_when=skips)
    shutdown = ErrorWindow(calls=2, error_rate=1.0)
    found = built(dataset(SEED, f, rows=8, size=2, shutdown=shutdown), lane())
    assert requested == [(5,)]
    assert (
        found.result.written == 8 - 1
    )  # the other row of its group was skipped, and has its value
    assert not found.result.early_shutdown
    assert found.rows[0] == {"seed": 0, "f": 0}
    ats = {event.group.group: event.at for event in found.of(GroupWritten)}
    assert ats == {0: 0, 1: 0, 2: 1, 3: 0}


def test_skipped_rows_are_left_out_of_a_batch() -> None:
    """The maker gets the others, and the row has the skip value."""
    requested: list[Any] = []

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        requested.append(tuple(order.rows))
        return [(row, {"f": row}) for row in order.rows]

    f = whole("f", make, "seed", skip=Skip(value=-1), skip_when=lambda row: rows_of(row) == 1)
    found = built(dataset(SEED, f, rows=3))
    assert requested == [(0, 2)]
    assert [found.rows[row]["f"] for row in range(3)] == [0, -1, 2]


def test_co_34_a_failed_row_makes_no_further_calls() -> None:
    """After a 400 for column 2 of row 3, column 3 is never called for it."""
    b = Provider("b", "p", says=lambda row, _: refusal("no such thing") if row == 3 else row)
    c = Provider("c", "p")
    found = built(dataset(SEED, b.col("seed"), c.col("b"), rows=6), lane())
    assert sorted(c.rows) == [0, 1, 2, 4, 5]
    assert found.numbers == [0, 1, 2, 4, 5]
    [gone] = found.result.failures
    assert (gone.row, gone.cause, gone.column, gone.attempts) == (3, "failed", "b", 1)
    assert found.result.first_error == "row 3, column 'b': no such thing"
    assert b.attempts[3] == 1


def test_a_provider_failure_is_reported_by_its_kind() -> None:
    """A report can count them by kind."""
    error = ProviderError("context_window", "too long")
    b = Provider("b", "p", says=lambda row, _: error if row == 0 else row)
    [gone] = built(dataset(SEED, b.col("seed"), rows=2), lane()).result.failures
    assert (gone.kind, gone.error) == ("context_window", "context_window: too long")


def test_co_35_a_call_of_a_dropped_row_is_cancelled() -> None:
    """Its other columns are not awaited, not paid for, and never written."""
    b = Provider("b", "p", says=lambda row, _: refusal() if row == 1 else row)
    c = Provider("c", "p", seconds=100.0)
    found = built(dataset(SEED, b.col("seed"), c.col("seed"), rows=2), lane())
    assert c.cancelled == [1]
    assert found.numbers == [0]
    assert found.ended_at == 100


def test_co_35_a_late_value_is_not_written() -> None:
    """The maker is shielded from cancellation, and returns its value later."""
    b = Provider("b", "p", says=lambda row, _: refusal() if row == 0 else row)

    async def stubborn(order: CellOrder, _calls: Calls[Any]) -> Values:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return {"c": order.row}

    async def clumsy(order: CellOrder, _calls: Calls[Any]) -> Values:
        try:
            await trio.sleep(5)
        finally:
            if order.row == 0:
                raise ValueError("while it cleaned up")
        return {"d": 1}

    async def in_a_nursery(order: CellOrder, calls: Calls[Any]) -> Values:
        found: list[Values] = []

        async def keep() -> None:
            found.append(await clumsy(order, calls))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
        return found[0]

    found = built(
        dataset(
            SEED,
            b.col("seed"),
            cell("c", stubborn, "seed"),
            cell("d", in_a_nursery, "seed"),
            rows=2,
        ),
        lane(),
    )
    assert found.numbers == [1]
    assert found.result.dropped == {"failed": 1}
    assert found.result.failures[0].column == "b"


def test_a_batch_in_flight_of_a_closed_group_is_cancelled() -> None:
    """A row that is dropped during its call is not written."""
    ended: list[int] = []

    async def slow(order: GroupOrder, _calls: Calls[Any]) -> Made:
        await trio.sleep(10)
        ended.append(order.group)
        return [(row, {"f": row}) for row in order.rows]

    b = Provider("b", "p", says=lambda row, _: refusal() if row in {0, 1, 2} else row)
    found = built(dataset(SEED, b.col("seed"), whole("f", slow, "seed"), rows=4, size=2), lane())
    assert ended == [1]
    assert found.rows == {3: {"seed": 30, "b": 3, "f": 3}}
    assert found.ended_at == 10


def test_conditions_drop_rows_with_their_causes() -> None:
    """Cases: `dropWhen` and validations; a condition that cannot be evaluated is a failure."""

    def odd(row: Any) -> bool:
        if row["a"] == 4:
            raise KeyError("quality")
        return bool(row["a"] % 2)

    a = Provider("a", "p")
    drops = [("filtered", odd), ("validation", lambda row: row["a"] == 2)]
    found = built(dataset(SEED, a.col("seed", drops=drops), rows=6), lane())
    assert found.numbers == [0]
    assert found.result.dropped == {"failed": 1, "filtered": 3, "validation": 1}
    assert found.result.lost == 1
    assert sorted(event.row.row for event in found.of(RowDropped)) == [1, 2, 3, 4, 5]


def test_a_condition_of_a_batch_drops_its_rows() -> None:
    """Even all of them may be dropped as intended."""

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        return [(row, {"f": row}) for row in order.rows]

    f = whole("f", make, "seed", drops=[("filtered", lambda row: row["f"] < 3)])
    found = built(dataset(SEED, f, rows=4, size=2))
    assert found.numbers == [3]
    assert (found.result.groups, found.result.error) == (2, None)


def test_a_drop_may_make_a_batch_ready() -> None:
    """The row was the last one that lacked something."""
    b = Provider(
        "b", "p", seconds=lambda row: 1.0 + row, says=lambda row, _: refusal() if row == 2 else row
    )
    at: list[Any] = []

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        at.append((trio.current_time(), tuple(order.rows)))
        return [(row, {"f": row}) for row in order.rows]

    found = built(dataset(SEED, b.col("seed"), whole("f", make, "b"), rows=3), lane())
    assert at == [(3, (0, 1))]
    assert found.result.written == 2


def test_co_36_a_cell_succeeds_after_two_transient_failures() -> None:
    """The row is written."""
    a = Provider("a", "p", says=lambda row, attempt: transient() if attempt < 2 else row)
    found = built(dataset(SEED, a.col("seed"), rows=3), lane())
    assert found.result.written == 3
    assert set(a.attempts.values()) == {3}


def test_co_37_a_repeated_transient_failure_is_tried_six_times() -> None:
    """It is retried retries + 1 + rounds times, then the row is dropped."""
    a = Provider("a", "p", says=lambda row, _: transient("out of order") if row == 1 else row)
    found = built(dataset(SEED, a.col("seed"), rows=3, salvage_rounds=2), lane(retries=3))
    assert a.attempts == {0: 1, 1: 6, 2: 1}
    [gone] = found.result.failures
    assert (gone.row, gone.attempts, gone.error) == (1, 6, "out of order")
    assert found.numbers == [0, 2]


def test_co_37_a_round_starts_when_its_group_has_nothing_else_to_do() -> None:
    """Other groups continue meanwhile; the round does not wait for them."""
    quick = Provider(
        "a",
        "p",
        seconds=lambda row: {0: 1.0, 1: 20.0}.get(row, 100.0),
        says=lambda row, attempt: transient() if row == 0 and attempt < 1 else row,
    )
    found = built(dataset(SEED, quick.col("seed"), rows=4, size=2), lane(retries=0))
    assert [at for at, row in quick.starts if row == 0] == [0, 20]
    assert [(event.at, event.group.group) for event in found.of(GroupWritten)] == [
        (21, 0),
        (100, 1),
    ]
    assert [event.at for event in found.kernel if isinstance(event, Salvaged)] == [20]


def test_a_dropped_row_that_was_set_aside_is_not_retried() -> None:
    """Its other column fails permanently before its round."""
    a = Provider("a", "p", says=lambda row, _: transient() if row == 0 else row)
    b = Provider("b", "p", seconds=30.0, says=lambda row, _: refusal() if row == 0 else row)
    found = built(dataset(SEED, a.col("seed"), b.col("seed"), rows=2), lane(retries=0))
    assert a.attempts == {0: 1, 1: 1}
    assert found.result.failures[0].column == "b"
    assert found.numbers == [1]


@pytest.mark.parametrize("seed", range(8))
def test_co_38_random_transient_failures_lose_no_row(seed: int) -> None:
    """With 20 % random 500s over 60 rows, 60 are written."""
    rng = random.Random(seed)  # noqa: S311 - chance, not secrets
    fails = {row: rng.random() < 0.2 for row in range(60)}
    a = Provider(
        "a", "p", says=lambda row, attempt: transient() if fails[row] and attempt < 5 else row
    )
    draws = [
        [rng.random() < 0.2 for _ in range(5)] for _ in range(60)
    ]  # and then the call succeeds
    b = Provider(
        "b",
        "p",
        says=lambda row, attempt: transient() if any(draws[row][attempt : attempt + 1]) else row,
    )
    found = built(dataset(SEED, a.col("seed"), b.col("a"), rows=60, size=10), lane(8))
    assert found.result.written == 60
    assert found.result.outcome == "complete"


def test_co_39_a_server_with_capacity_8_serves_32_concurrent_calls() -> None:
    """It refuses calls beyond its capacity, for 0.2 seconds: all 100 rows are written."""
    in_flight = 0

    async def make(order: CellOrder, calls: Calls[Any]) -> Values:
        async def send() -> None:
            nonlocal in_flight
            if in_flight >= 8:
                raise busy(0.2)
            in_flight += 1
            await trio.sleep(0.1)
            in_flight -= 1

        await calls("p", send)
        return {"a": order.row}

    found = built(
        dataset(SEED, cell("a", make, "seed", lane="p"), rows=100, size=10), LaneSpec("p", 32)
    )
    assert (found.result.written, found.result.outcome) == (100, "complete")


def test_co_40_temporary_refusals_use_no_rounds() -> None:
    """With three times as many refusals as rows, no row is dropped."""
    a = Provider("a", "p", says=lambda row, attempt: busy() if attempt < 3 else row)
    spec = dataset(SEED, a.col("seed"), rows=20, salvage_rounds=2)
    found = built(spec, LaneSpec("p", 4, patience=3600.0))
    assert found.result.written == 20
    assert set(a.attempts.values()) == {4}


def test_co_41_an_isolated_refusal_delays_its_own_request_only() -> None:
    """With 20 % of 60 rows that take 20 ms each, the total is below 3 seconds."""
    a = Provider(
        "a",
        "p",
        seconds=0.02,
        says=lambda row, attempt: busy() if row % 5 == 0 and not attempt else row,
    )
    found = built(dataset(SEED, a.col("seed"), rows=60), LaneSpec("p", 4))
    assert found.result.written == 60
    assert found.ended_at < 3


def test_a_request_that_is_always_refused_drops_only_its_row() -> None:
    """The lane serves the others meanwhile, so the refusals are specific to the one request."""
    a = Provider("a", "p", seconds=0.05, says=lambda row, _: busy() if row == 3 else row)
    journal = MemoryDatasetJournal()

    async def number(order: GroupOrder, _calls: Calls[Any]) -> Made:
        return [(row, {"c": row}) for row in order.rows]

    turns = whole("c", number, "a", ordered=True)
    spec = dataset(SEED, a.col("seed"), turns, rows=60, size=10)
    found = built(spec, lane(4), journal=journal)
    assert found.numbers == [row for row in range(60) if row != 3]
    assert (found.result.outcome, found.result.dropped) == ("complete", {"failed": 1})
    [gone] = [event.row for event in found.of(RowDropped)]
    assert (gone.row, gone.column, gone.error) == (3, "a", "429")
    assert gone.attempts == a.attempts[3] < 12
    again = built(spec, lane(4), journal=journal.cut(len(journal.all)))
    assert again.result.dropped == {"failed": 1}
    assert a.attempts[3] == gone.attempts


@pytest.mark.parametrize("error", [busy(), busy(3.0), transient()])
def test_max_retries_limits_the_requests_of_a_cell_over_all_rounds(error: CallError) -> None:
    a = Provider("a", "p", says=lambda row, _: error if row == 3 else row)
    spec = dataset(SEED, a.col("seed"), rows=12, salvage_rounds=2)
    found = built(spec, lane(4, max_retries=2, patience=3600.0))
    assert a.attempts[3] == 3
    assert (found.result.written, found.result.dropped) == (11, {"failed": 1})


def test_max_retries_loses_no_row_if_everything_is_refused() -> None:
    """These refusals concern the lane, and another run may succeed."""
    a = Provider("a", "p", says=lambda _row, _attempt: busy())
    spec = dataset(SEED, a.col("seed"), rows=4, salvage_rounds=2)
    found = built(spec, lane(4, max_retries=2, patience=3600.0))
    assert found.result.not_run == {"rate_limited": 4}
    assert set(a.attempts.values()) == {3}


@pytest.mark.parametrize("seed", range(6))
def test_refusals_that_all_requests_share_drop_no_row(seed: int) -> None:
    """Half of all requests are refused, by chance."""

    def says(row: int, attempt: int) -> object:
        """Return the values of a row, independent of the order in which Trio runs jobs."""
        return busy() if random.Random(f"{seed} {row} {attempt}").random() < 0.5 else row  # noqa: S311

    a = Provider("a", "p", seconds=0.05, says=says)
    found = built(dataset(SEED, a.col("seed"), rows=300, size=50), lane(16, adaptive="off"))
    assert found.result.written == 300


def test_co_42_a_lane_that_only_refuses_is_closed() -> None:
    """Rows that do not need it are written; the others can be made when the run is resumed."""
    a = Provider("a", "bad", seconds=0.1, says=lambda _row, _: busy())
    b = Provider("b", "good", seconds=50.0)
    found = built(
        dataset(
            SEED,
            a.col("seed", skip_when=lambda row: rows_of(row) >= 4),
            b.col("seed"),
            rows=8,
            size=2,
        ),
        LaneSpec("bad", 2, patience=60.0),
        LaneSpec("good", 2),
    )
    assert found.numbers == [4, 5, 6, 7]
    assert found.result.not_run == {"lane": 4}
    assert found.result.outcome == "incomplete"
    assert sorted(b.rows) == list(range(8))
    assert {event.group: event.reason for event in found.of(GroupAbandoned)} == {
        0: "lane",
        1: "lane",
    }


def test_co_42_a_closed_lane_ends_every_group_and_never_hangs() -> None:
    """Each group is opened, found to be lost, and closed, so memory stays bounded."""
    a = Provider("a", "bad", says=lambda _row, _: CallError(Fault.FATAL, "wrong key"))
    spec = dataset(SEED, a.col("seed"), rows=400, size=2, max_open_cells=8)
    found = built(spec, LaneSpec("bad", 1))
    assert found.result.dropped == {"failed": 3}
    assert found.result.not_run == {"lane": 397}
    assert len(found.of(GroupOpened)) == 200
    assert len(a.rows) == 3


def test_co_43_a_refused_row_and_one_that_times_out() -> None:
    """The first is written in the end, the second is dropped."""
    a = Provider(
        "a",
        "p",
        seconds=lambda row: 60.0 if row == 1 else 1.0,
        says=lambda row, attempt: busy() if row == 0 and attempt < 9 else row,
    )
    found = built(dataset(SEED, a.col("seed"), rows=2, timeout=30.0), LaneSpec("p", 2))
    assert found.numbers == [0]
    [gone] = found.result.failures
    assert (gone.row, gone.cause, gone.kind) == (1, "failed", "attempt_timeout")
    assert gone.error == "timed out after 30 s of working time (timeoutMs)"


def test_co_45_queue_time_does_not_count_for_the_timeout() -> None:
    """After 400 seconds behind a slow lane, with a timeout of 60, nothing is dropped."""
    a = Provider("a", "p", seconds=50.0)
    found = built(dataset(SEED, a.col("seed"), rows=9, timeout=60.0), lane(1))
    assert (found.result.written, found.ended_at) == (9, 450)


def test_an_unclassified_failure_drops_its_row() -> None:
    """Any exception of a maker is a failure of its cell, also from within a nursery."""

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        if order.row == 0:
            raise KeyError("x")
        if order.row == 1:
            raise ExceptionGroup("several", [ValueError("one"), ValueError("two")])
        return {"a": 1}

    found = built(dataset(SEED, cell("a", make, "seed"), rows=3))
    assert [one.error for one in found.result.failures] == ["KeyError: 'x'", "ValueError: one"]
    assert found.numbers == [2]


def test_co_63_many_permanent_failures_end_the_dataset() -> None:
    """Complete rows are written, incomplete groups are listed, nothing new is opened."""
    bad = {2, 3}
    a = Provider("a", "p", says=lambda row, _: refusal() if row in bad else row)
    spec = dataset(
        SEED,
        a.col("seed"),
        rows=20,
        size=4,
        max_open_cells=8,
        shutdown=ErrorWindow(calls=2, error_rate=0.5),
    )
    found = built(spec, lane(2))
    assert found.result.early_shutdown
    assert found.numbers == [0, 1]
    assert found.result.partial_groups == ()
    assert found.result.dropped == {"failed": 2}
    assert found.result.not_run == {"early_shutdown": 16}
    assert len(found.of(DatasetShutDown)) == 1


def test_co_63_started_rows_are_finished_and_the_rest_is_dropped() -> None:
    """A running row is finished; one that needs a call that has not started is not."""
    a = Provider(
        "a",
        "p",
        seconds=lambda row: 50.0 if row > 2 else 1.0 + row,
        says=lambda row, _: refusal() if row in {1, 2} else row,
    )
    local: list[int] = []

    async def last(order: CellOrder, _calls: Calls[Any]) -> Values:
        local.append(order.row)
        return {"z": 1}

    spec = dataset(
        SEED,
        a.col("seed"),
        cell("z", last, "a"),
        rows=9,
        size=8,
        shutdown=ErrorWindow(calls=3, error_rate=0.5),
    )
    found = built(spec, lane(4))
    assert found.numbers == sorted(local) == [0, 3, 4, 5]
    assert sorted(a.rows) == [0, 1, 2, 3, 4, 5]
    assert found.result.partial_groups == (0,)
    assert found.result.dropped == {"early_shutdown": 3, "failed": 2}
    assert found.result.not_run == {}


def test_co_63_a_disabled_shutdown_never_ends_early() -> None:
    """All rows are made."""
    a = Provider("a", "p", says=lambda _row, _: refusal())
    shutdown = ErrorWindow(calls=2, error_rate=0.5, enabled=False)
    found = built(dataset(SEED, a.col("seed"), rows=9, shutdown=shutdown), lane(2))
    assert len(a.rows) == 9
    assert found.result.dropped == {"failed": 9}


def test_co_64_transient_failures_and_refusals_never_end_it() -> None:
    """Only permanent failures count."""
    a = Provider(
        "a",
        "p",
        says=lambda row, attempt: transient() if row % 2 else busy() if attempt < 2 else row,
    )
    shutdown = ErrorWindow(calls=2, error_rate=0.5)
    found = built(dataset(SEED, a.col("seed"), rows=30, shutdown=shutdown), LaneSpec("p", 4))
    assert not found.result.early_shutdown
    assert found.result.dropped == {"failed": 15}
    assert found.result.written == 15
    assert len(found.of(ManyTransientFailures)) >= 1


def test_co_65_a_dataset_without_rows_has_no_file_and_a_first_cause() -> None:
    """The run has failed, and reports the first cause."""
    a = Provider("a", "p", says=lambda row, _: refusal(f"no {row}"))
    found = built(dataset(SEED, a.col("seed"), rows=4, size=2), lane(1))
    assert found.result.outcome == "failed"
    assert found.result.first_error == "row 0, column 'a': no 0"
    assert [file.rows for file in found.output.written.values()] == [(), ()]
    early = built(
        dataset(
            SEED,
            a.col("seed"),
            rows=99,
            size=2,
            max_open_cells=4,
            shutdown=ErrorWindow(calls=2, error_rate=1.0),
        ),
        lane(1),
    )
    assert early.result.outcome == "failed"
    assert early.result.error is not None
    assert "row 0, column 'a': no 0" in early.result.error


def test_co_50_a_fast_lane_runs_ahead_of_a_slow_column() -> None:
    """Column A is as fast as alone, although it shares rows with the slow B."""

    def ends(*names: str) -> float:
        a = Provider("a", "open", seconds=0.05)
        b = Provider("b", "slow", seconds=0.2)
        cols = {"a": a.col("seed"), "b": b.col("seed")}
        built(
            dataset(SEED, *[cols[name] for name in names], rows=60, size=10),
            LaneSpec("open", 10),
            LaneSpec("slow", 2),
        )
        return a.ends[-1][0]

    assert ends("a", "b") <= 1.1 * ends("a")


def test_co_51_two_model_columns_share_one_slot_without_deadlock() -> None:
    """Neither holds what the other needs."""
    a, b = Provider("a", "p"), Provider("b", "q")
    found = built(
        dataset(SEED, a.col("seed"), b.col("a"), rows=6, size=2),
        LaneSpec("p", 1),
        LaneSpec("q", 1),
        cap=1,
    )
    assert found.result.written == 6
    assert found.ended_at == 12


def test_co_53_columns_of_one_lane_take_turns() -> None:
    """The first four starts are of all three columns."""
    started: list[str] = []
    cols = [Provider(name, "p") for name in "abc"]

    def takes(name: str) -> Callable[[int], float]:
        def seconds(_row: int) -> float:
            started.append(name)
            return 1.0

        return seconds

    for col in cols:
        col.seconds = takes(col.name)
    built(dataset(SEED, *[col.col("seed") for col in cols], rows=12), lane(4))
    assert set(started[:4]) == {"a", "b", "c"}
    assert all(Counter(started[: 3 * n]) == dict.fromkeys("abc", n) for n in range(1, 13))


def test_co_54_a_judge_starts_before_all_rows_are_written() -> None:
    """The first judge's call comes before the last one of the writer; both share a lane."""
    a, b = Provider("a", "p"), Provider("b", "p")
    built(dataset(SEED, a.col("seed"), b.col("a"), rows=100, size=50), lane(4))
    assert b.starts[0][0] < a.starts[-1][0]
    # Within a group they alternate from then on.
    assert b.starts[0][0] <= 2


def test_co_55_columns_share_a_lane_and_a_single_one_uses_all_of_it() -> None:
    """Two columns converge to half of it each; the remaining one takes all."""
    a = Provider("a", "p")
    b = Provider("b", "p", seconds=1.0)
    found = built(
        dataset(
            SEED, a.col("seed"), b.col("seed", skip_when=lambda row: rows_of(row) >= 8), rows=24
        ),
        lane(4),
    )
    by_time: dict[float, Counter[str]] = {}
    for col in (a, b):
        for at, _ in col.starts:
            by_time.setdefault(at, Counter())[col.name] += 1
    assert [dict(by_time[at]) for at in sorted(by_time)] == [{"a": 2, "b": 2}] * 4 + [{"a": 4}] * 4
    assert found.ended_at == 8


def test_co_56_a_waiting_job_holds_no_slot() -> None:
    """It holds neither a slot nor a call; and few jobs are started and waiting."""
    a, b = Provider("a", "p"), Provider("b", "q", seconds=5.0)

    async def both(order: CellOrder, calls: Calls[Any]) -> Values:
        made = dict(await a.make(order, calls))
        return {**made, **await b.make(order, calls)}

    col = cell("a", both, "seed", lane="p", outputs=["b"])
    found = built(dataset(SEED, col, rows=40), LaneSpec("p", 4), LaneSpec("q", 1), max_live_jobs=10)
    assert found.result.written == 40
    assert a.most <= 4
    assert b.most == 1
    # While the second lane is busy, the first one continues with as many jobs as may be started.
    assert len([at for at, _ in a.starts if at < 5]) == 10
    started = [event for event in found.kernel if isinstance(event, CallStarted)]
    assert len(started) == 80
    assert {event.lane for event in started} == {"p", "q"}
    assert LOCAL not in {event.lane for event in started}


def test_older_groups_come_first_on_a_lane() -> None:
    """So they finish, and their memory is released."""
    a = Provider("a", "p")
    built(dataset(SEED, a.col("seed"), rows=12, size=3), lane(1))
    assert a.rows == list(range(12))


def test_a_local_transient_failure_is_retried_as_well() -> None:
    """A worker may report a crash to a maker without a provider."""
    tries: Counter[int] = Counter()

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        tries[order.row] += 1
        if tries[order.row] < 2:
            raise transient("worker crashed")
        return {"a": order.row}

    found = built(dataset(SEED, cell("a", make, "seed"), rows=3))
    assert found.result.written == 3
    assert set(tries.values()) == {2}


def test_the_lane_determines_the_back_off() -> None:
    """Between attempts a job waits as its lane requires, and holds nothing."""
    a = Provider("a", "p", says=lambda row, attempt: transient() if attempt < 1 else row)
    built(dataset(SEED, a.col("seed"), rows=2), lane(1, retry_delay=1e-6, max_retry_delay=1e-6))
    assert a.rows == [0, 1, 0, 1]
