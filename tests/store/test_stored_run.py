"""A stored run is read as it was written, by every reader, and resumes where it ended."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_things import ROWS, call_at, row_at, start_of, suite_of

import trioeval
from trioeval.errors import ProviderError, StoreError, UsageError
from trioeval.evaluation.identity import Identities
from trioeval.evaluation.journal import CallKey
from trioeval.evaluation.reconcile import Retry, reconcile
from trioeval.evaluation.row import RowIds
from trioeval.kernel.events import LaneClosed, LimitChanged, Throttled, Waiting, WaitReason
from trioeval.providers import Guardrails, Reply
from trioeval.report.formats.json import compact
from trioeval.run import RunOptions, Status, run_with_options
from trioeval.store.reader import read_store
from trioeval.store.records import read_reply, reply_facts, reply_json
from trioeval.store.run import StoredRun
from trioeval.store.store import Store, open_store
from trioeval.suite.expand import expand
from trioeval.usage import Usage


def write(path: Path, *puts: Any, **start: Any) -> None:
    """Write a finished run with some calls and rows."""

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of(**start))
            put_all(run, *puts)
            run.finish("finished", duration_ms=5.0)
        assert store.error is None

    trio.run(main)


@attrs.define
class Answers:
    """Replies with the prompt, at a price, and records its requests."""

    requests: list[str] = attrs.field(factory=list)

    async def __call__(self, request: Any) -> str:  # noqa: ASYNC124
        self.requests.append(request.prompt)
        return str(request.prompt)


def put_all(run: StoredRun, *puts: Any) -> None:
    for put in puts:
        (run.row if isinstance(put, trioeval.Row) else run.call)(put)


def test_a_run_of_a_suite_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Records are the same from the run, from its store, and as emitted."""
    shown: list[Any] = []
    path = tmp_path / "results.db"

    async def main() -> list[Any]:
        async with open_store(path) as store:
            run = store.begin(start_of(rows={None: 7}))

            async def emit(row: trioeval.Row) -> None:  # noqa: ASYNC124
                assert json.loads(run.record(row).text) == run.record(row).json
                shown.append(run.record(row).json)

            await run_with_options(
                suite_of(7), RunOptions(emit=emit, journal=run), providers={"echo": Answers()}
            )
            run.tests(None, iter([{"a": 1}, {"b": "x" * 50_000}]))
            run.finish("finished", duration_ms=5.0, derived=[{"m": 1.5}])
            await run.durable()
            return [*run.records(None)]

    records = trio.run(main)
    assert records == shown
    assert [record["testIdx"] for record in records] == [*range(7)]
    with read_store(path) as reader:
        run = reader.run("latest")
        assert [*reader.records(run)] == records
        assert [*reader.numbered(run)] == [*enumerate(records)]
        failed = [*reader.records(run, failed_only=True)]
        assert [record["testIdx"] for record in failed] == [0]
        assert reader.record(run, None, 3) == records[3]
        assert reader.record(run, None, 7) is None
        assert reader.record(run, "task", 0) is None
        assert [*reader.tests(run)] == [{"a": 1}, {"b": "x" * 50_000}]
        assert (run.state, run.rows, run.passed, run.failed, run.errors) == ("finished", 7, 6, 1, 0)
        assert (run.expected, run.outcomes, run.derived) == (7, {"done": 7}, [{"m": 1.5}])
        (call,) = reader.calls(run, None, 2)
        assert (call.role, call.prompt, call.execution) == ("provider", "say hello 2", 1)
        assert call.reply is not None
        assert call.reply["output"] == "say hello 2"
        identities = [*reader.identities(run)]
    steps = expand(suite_of(7))
    assert reconcile(identities, steps).is_same
    assert identities[4].content == Identities().of(steps[4], steps.providers[0]).content
    assert [one.name for one in tmp_path.iterdir()] == ["results.db"]


def test_a_run_in_a_temporary_file_is_like_any_other(tmp_path: Path) -> None:
    """A store without a path leaves no file."""

    async def main() -> Path:
        async with open_store(None) as store:
            run = store.begin(start_of())
            run.row(row_at(0))
            await run.durable()
            assert len([*run.records(None)]) == 1
            return store.path

    assert not trio.run(main).parent.exists()


def test_rows_are_read_by_index_in_any_order_of_arrival(tmp_path: Path) -> None:
    """Rows are read in index order, across pages and for one prompt alone."""
    rows = [row_at(index) for index in range(1001)]
    write(tmp_path / "r.db", *rows[::-2], *rows[1::2])
    with read_store(tmp_path / "r.db") as reader:
        run = reader.run("latest")
        assert [one.index for one in reader.identities(run)] == [*range(1001)]
        assert [one.index for one in reader.outcomes(run)] == [*range(1001)]
        assert (
            sum(1 for _ in reader.records(run))
            == sum(1 for _ in reader.records(run, None, 0))
            == 1001
        )
        assert [*reader.records(run, None, 1)] == []


def test_a_row_replaces_its_earlier_record(tmp_path: Path) -> None:
    """A row replaces its earlier record and scores."""
    first, second = row_at(0), attrs.evolve(row_at(1), index=0, verdict=None, graded=())

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            for commit in ((first, first), (row_at(2), second, second)):
                put_all(run, *commit)
                await run.durable()

    trio.run(main)
    with read_store(tmp_path / "r.db") as reader:
        run = reader.run("latest")
        assert [record["vars"]["number"] for record in reader.records(run)] == [1, 2]
        found = reader._connection.execute("SELECT row FROM scores").fetchall()
        assert found == [(2,), (2,)]
        assert run.rows == 2


TEXTS = st.text(st.characters(), max_size=20)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
REPLIES = st.builds(
    Reply,
    output=JSONS,
    usage=st.builds(
        Usage, prompt=st.none() | st.integers(0), total=st.none() | st.integers(0, 2**70)
    ),
    cost=st.none() | st.floats(0, 1e9),
    finish_reason=st.none() | TEXTS,
    is_refusal=st.booleans(),
    guardrails=st.none() | st.builds(Guardrails, flagged=st.booleans(), reason=st.none() | TEXTS),
    log_probs=st.none() | st.lists(st.floats(max_value=0)).map(tuple),
    first_token=st.none() | st.floats(0, 1e9),
    raw=st.none() | JSONS,
    metadata=st.dictionaries(TEXTS, JSONS, max_size=3),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=5))
def test_a_recorded_reply_is_restored_unchanged(replies: list[Reply]) -> None:
    """A recorded reply is reused by the next execution unchanged."""

    async def main() -> None:
        async with open_store(None) as store:
            run = store.begin(start_of())
            for index, reply in enumerate(replies):
                run.call(call_at(index, reply))
                assert run.recorded_reply(CallKey(None, index, "provider", b"q" * 16)) is None
            await run.durable()
            assert store.error is None
            run.release()
            again = await store.resume("eval-1", start_of())
            for index, reply in enumerate(replies):
                paid = again.recorded_reply(CallKey(None, index, "provider", b"q" * 16))
                assert paid is not None
                assert (paid.reply, paid.latency_ms, paid.cached) == (reply, 12.5, False)

    trio.run(main)


@pytest.mark.parametrize(
    "reply",
    [Reply(output={1}), Reply(output="x", raw=object()), Reply(output="x", metadata={"a": {1: 2}})],
)
def test_a_reply_that_json_cannot_hold_is_stored_in_part_and_not_recalled(
    tmp_path: Path, reply: Reply
) -> None:
    """A reply that JSON cannot hold is stored in part and not reused."""
    write(tmp_path / "r.db", call_at(0, reply))

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = await store.resume("eval-1", start_of())
            assert run.recorded_reply(CallKey(None, 0, "provider", b"q" * 16)) is None

    trio.run(main)
    with read_store(tmp_path / "r.db") as reader:
        (call,) = reader.calls(reader.run("latest"), None, 0)
        assert call.reply is not None
        assert "left_out" in call.reply


def test_infinities_and_tuples_of_a_reply_are_restored() -> None:
    """Infinities and tuples of a reply are stored as Python's JSON has them."""
    reply = Reply(output=[math.inf, (1, 2)], log_probs=(-math.inf,))
    data = reply_json(reply)
    assert data is not None
    again = read_reply(json.loads(json.dumps(data)))
    assert (again.output, again.log_probs) == ([math.inf, [1, 2]], (-math.inf,))
    with pytest.raises(ValueError, match="not a valid reply"):
        read_reply(["no"])
    assert "output" not in reply_facts(Reply(output=b"x"))


def test_only_good_replies_of_earlier_executions_are_recalled(tmp_path: Path) -> None:
    """Only the last successful reply of the same row, role and request is reused."""
    bad = ProviderError("server", "no\0\ud800", status=500, retry_after=2.0)
    write(
        tmp_path / "r.db",
        call_at(0, "first"),
        call_at(0, "last"),
        call_at(0, bad),
        call_at(1, bad),
        call_at(2, "other", b"r" * 16),
    )

    async def main() -> list[Any]:
        async with open_store(tmp_path / "r.db") as store:
            run = await store.resume("eval-1", start_of())
            assert run.resumed
            run.call(call_at(1, "of now"))
            await run.durable()
            keys = [CallKey(None, index, "provider", b"q" * 16) for index in range(4)]
            keys += [CallKey(None, 0, "grader", b"q" * 16), CallKey("t", 0, "provider", b"q" * 16)]
            return [
                None if (paid := run.recorded_reply(key)) is None else paid.reply.output
                for key in keys
            ]

    assert trio.run(main) == ["last", None, None, None, None, None]
    with read_store(tmp_path / "r.db") as reader:
        calls = reader.calls(reader.run("latest"), None, 1)
        assert [call.execution for call in calls] == [1, 2]
        assert calls[0].error == {
            "kind": "server",
            "message": "no\0\ud800",
            "status": 500,
            "retry_after": 2.0,
        }


OUTCOMES = ["done", "failed", "timed_out", "interrupted", "not_run", "blocked"]


@pytest.mark.parametrize(
    ("retry", "kept"),
    [
        (Retry(), {0, 1, 2, 4, 5}),
        (Retry("failed"), {1, 2, 4, 5}),
        (Retry("errors"), {0, 1, 2}),
        (Retry("timeouts"), {0, 1, 2, 4}),
        (Retry("rows", (range(1, 3),)), {0, 4, 5}),
    ],
)
def test_a_retry_runs_exactly_the_requested_rows(
    tmp_path: Path, retry: Retry, kept: set[int]
) -> None:
    """A retry runs exactly the requested rows again."""
    path = tmp_path / "r.db"
    verdicts = [row_at(0, status=Status.FAIL), row_at(1), row_at(2)]
    others = [
        row_at(3 + place, outcome=outcome, verdict=None, status=Status.ERROR)
        for place, outcome in enumerate(OUTCOMES[1:], 1)
    ]
    write(path, *verdicts, *others, *(call_at(index) for index in range(9)))
    anew = {"failed": {0}, "rows": {1, 2}}.get(retry.which, set())

    async def look(store: Store, requests: Retry) -> set[int]:  # noqa: ASYNC124
        run = await store.resume("eval-1", start_of(), retry=requests)
        rows = run.reused_rows(None)
        assert len(rows) == len(kept)
        for index in kept:
            assert rows.record(index)["id"].endswith(f"test-{index % 3}-prompt-0-repeat-0")
        with pytest.raises(KeyError):
            rows.record(3)
        recalled = {
            index
            for index in range(9)
            if run.recorded_reply(CallKey(None, index, "provider", b"q" * 16))
        }
        assert recalled == set(range(9)) - anew
        run.release()
        return {index for index in range(20) if index in rows}

    async def main() -> None:
        async with open_store(path) as store:
            assert await look(store, retry) == kept
        # Like a process that was killed at once: a plain resume continues the retry.
        async with open_store(path) as store:
            assert await look(store, Retry()) == kept

    trio.run(main)


def test_a_row_is_kept_until_its_retry_has_ended(tmp_path: Path) -> None:
    """An earlier result counts until its rerun has finished, and its mark until then too."""
    path = tmp_path / "r.db"
    gone = {"verdict": None, "graded": (), "output": None, "reply": None, "status": Status.ERROR}
    write(
        path,
        row_at(0),
        row_at(1, outcome="failed", status=Status.ERROR),
        row_at(2),
        row_at(3, **gone),
    )

    async def go_on(retry: Retry, *rows: trioeval.Row) -> tuple[set[int], int]:
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of(), retry=retry)
            kept = {index for index in range(9) if index in run.reused_rows(None)}
            for row in rows:
                before = [*run.records(None)]
                run.row(row)
                await run.durable(row)
                data = run.superseding_record(row)
                assert (data is None) == (row.outcome == "done" or row.index == 4)
                assert data is None or data == run.record(row).json == before[row.index]
                assert (
                    json.loads(run.record(row).text)
                    == run.record(row).json
                    == [*run.records(None)][row.index]
                )
            run.finish("interrupted", duration_ms=1)
            return kept, run.standing_rows

    def records() -> list[Any]:
        with read_store(path) as reader:
            return [*reader.records(reader.run("latest"))]

    first = records()
    cut = [
        row_at(index, outcome=outcome, **gone)
        for index, outcome in enumerate(["not_run", "interrupted", "blocked", "not_run", "not_run"])
    ]
    rows = Retry("rows", (range(2),))
    assert trio.run(go_on, rows, *cut) == ({2, 3}, 4)
    assert records()[:4] == first
    assert len(records()) == 5
    # A plain resume continues with all of it, however often it is cut.
    assert trio.run(go_on, Retry(), cut[0]) == (set(), 1)
    assert trio.run(go_on, Retry(), row_at(0, outcome="done", status=Status.FAIL), cut[1]) == (
        set(),
        1,
    )
    assert records()[1:4] == first[1:]
    assert trio.run(go_on, Retry()) == ({0}, 0)
    assert trio.run(go_on, Retry("none")) == ({0, 1, 2, 3}, 0)
    assert trio.run(go_on, Retry()) == ({0, 1, 2, 3}, 0)


def test_rows_and_calls_follow_their_tests_to_other_positions(tmp_path: Path) -> None:
    """Rows and calls follow their tests when tests are inserted, removed or changed."""
    path = tmp_path / "r.db"
    old = suite_of(6)

    async def first() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of())

            async def emit(_row: trioeval.Row) -> None: ...

            await run_with_options(
                old, RunOptions(emit=emit, journal=run), providers={"echo": Answers()}
            )

    trio.run(first)
    tests = [*old.tests]
    changed = attrs.evolve(tests[4], assertions=tests[4].assertions[:1])
    new = attrs.evolve(tests[0], vars={"word": "new", "number": 9})
    suite = attrs.evolve(old, tests=(new, tests[0], tests[1], tests[3], changed, tests[5]))
    with read_store(path) as reader:
        found = reconcile(reader.identities(reader.run("latest")), expand(suite))
    echo = Answers()

    async def second() -> list[Any]:
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of(), reconciled={None: found})
            kept = run.reused_rows(None)
            assert {index for index in range(9) if index in kept} == {1, 2, 3, 5}
            assert kept.record(3)["vars"]["number"] == 3

            async def emit(_row: trioeval.Row) -> None: ...

            await run_with_options(
                suite, RunOptions(emit=emit, journal=run), providers={"echo": echo}
            )
            return [*run.records(None)]

    records = trio.run(second)
    assert [record["vars"]["number"] for record in records] == [9, 0, 1, 3, 4, 5]
    assert [record["testIdx"] for record in records] == [*range(6)]
    assert records[3]["id"] == "eval-1-test-3-prompt-0-repeat-0"
    assert [len(record["testCase"]["assert"]) for record in records] == [2, 2, 2, 2, 1, 2]
    assert echo.requests == ["say new 9"]
    with read_store(path) as reader:
        run = reader.run("latest")
        prompts = [[call.prompt for call in reader.calls(run, None, index)] for index in range(7)]
    assert prompts[3] == ["say hello 3"]
    assert prompts[6] == []


def test_calls_follow_rows_that_were_never_recorded(tmp_path: Path) -> None:
    """Calls of unrecorded rows follow the row's id."""
    path = tmp_path / "r.db"
    old = suite_of(4)
    steps = [*expand(old)]
    ids = [RowIds(expand(old))(index) for index in range(4)]
    calls = [
        attrs.evolve(call_at(index), key=CallKey(None, index, "provider", b"q" * 16, ids[index]))
        for index in range(4)
    ]
    write(path, *calls, attrs.evolve(row_at(3), step=steps[3]), rows={None: 4})
    tests = old.tests
    new = attrs.evolve(tests[0], vars={"word": "new", "number": 9})
    suite = attrs.evolve(old, tests=(new, tests[0], tests[2], tests[3]))
    with read_store(path) as reader:
        facts = reader.run("latest")
        assert [*reader.started_rows(facts)] == [(index, ids[index]) for index in range(3)]
        found = reconcile(
            reader.identities(facts),
            expand(suite),
            started_rows=reader.started_rows(facts),
            expected=4,
        )

    async def resume() -> list[Any]:
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of(), reconciled={None: found})
            now = RowIds(expand(suite))
            keys = [CallKey(None, index, "provider", b"q" * 16, now(index)) for index in range(4)]
            others = [attrs.evolve(key, row=ids[1]) for key in keys]
            assert not any(run.recorded_reply(key) for key in others)
            return [run.recorded_reply(key) is not None for key in keys]

    assert trio.run(resume) == [False, True, True, True]
    with read_store(path) as reader:
        run = reader.run("latest")
        prompts = [[call.prompt for call in reader.calls(run, None, index)] for index in range(4)]
    assert prompts == [[], ["prompt 0"], ["prompt 2"], ["prompt 3"]]


def test_tasks_are_added_and_removed_with_their_rows(tmp_path: Path) -> None:
    """A resumed run has the present tasks of its suite, in order."""
    path = tmp_path / "r.db"

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of(heads=[{"task": "a"}, {"task": "b"}], rows={"a": 1, "b": 2}))
            for task, index in (("a", 0), ("b", 0), ("b", 1)):
                run.row(row_at(index, task=task))
            await run.durable()
            run.release()
            run = await store.resume(
                "eval-1", start_of(heads=[{"task": "c"}, {"task": "b"}], rows={"c": 4})
            )
            assert [len(run.reused_rows(task)) for task in ("a", "b", "c")] == [0, 2, 0]

    trio.run(main)
    with read_store(path) as reader:
        run = reader.run("latest")
        assert (run.tasks, run.sizes, run.rows, run.state) == (("c", "b"), (4, 2), 2, "died")
        counts = "SELECT state, expected, rows, passed, failed, errors FROM runs"
        assert reader._connection.execute(counts).fetchall() == [("open", 6, 2, 1, 1, 0)]
        assert [*reader.records(run, "a")] == []


def test_events_of_lanes_are_recorded(tmp_path: Path) -> None:
    """Events of lanes are recorded with their instants; events of jobs are not."""
    path = tmp_path / "r.db"

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of())
            now = trio.current_time()
            for event in (
                Waiting(now + 1, "l", WaitReason.BLOCKED, now + 3, None),
                Waiting(now + 1, "l", WaitReason.PAUSED, None, None),
                Waiting(now + 1, "l", WaitReason.SLOT, None, None),
                Waiting(now + 1, "l", WaitReason.BLOCKED, None, 4),
                Throttled(now + 2, 7, "l", None, -math.inf),
                LimitChanged(now + 3, "l", 2, 4),
                LaneClosed(now + 4, "l", "401\0"),
            ):
                run.observe(event)

    trio.run(main, clock=trio.testing.MockClock())  # the clock does not advance
    with read_store(path) as reader:
        lines = reader._connection.execute(
            "SELECT round(at_s), lane, kind, row, round(until_s), concurrency, reason FROM lane_events"
        ).fetchall()
    assert lines == [
        (1, "l", "blocked", None, 3, None, None),
        (1, "l", "paused", None, None, None, None),
        (2, "l", "throttled", 7, None, None, None),
        (3, "l", "limit_changed", None, None, 2, None),
        (4, "l", "closed", None, None, None, "401\\x00"),
    ]


HOSTILE = [
    "a\0b",
    "\ud800 and \udfff",
    "\x1b[31m",
    "ü" * 9000,
    "x" * 100_000,
    {"\0": ["\ud800"]},
    2**90,
]


def test_hostile_outputs_are_restored_and_break_no_view(tmp_path: Path) -> None:
    """Hostile outputs are restored exactly, and every view remains readable."""
    path = tmp_path / "r.db"
    rows = [row_at(index, output) for index, output in enumerate(HOSTILE)]
    calls = [
        attrs.evolve(call_at(i, output), prompt=str(output)) for i, output in enumerate(HOSTILE)
    ]
    write(path, *rows, *calls, description="\ud800", suite="/a\0b")
    with read_store(path) as reader:
        run = reader.run("latest")
        outputs = [record["response"]["output"] for record in reader.records(run)]
        assert outputs == HOSTILE
        found = [reader.calls(run, None, index)[0] for index in range(len(HOSTILE))]
        assert [call.reply and call.reply["output"] for call in found] == HOSTILE
        assert [call.prompt for call in found] == [*map(str, HOSTILE)]
        for view in ("runs", "results", "calls", "scores", "lane_events"):
            reader._connection.execute(f"SELECT * FROM {view}").fetchall()  # noqa: S608
        shown = reader._connection.execute("SELECT output FROM results").fetchall()
    assert shown[0] == ("[compressed: trioeval show eval-1 0]",)
    assert shown[2] == ("\x1b[31m",)


@pytest.mark.slow
def test_a_reply_of_50_mb_is_a_reply(tmp_path: Path) -> None:
    """A reply of 50 MB is written, reused and read."""
    output = "0123456789" * 5_000_000
    write(tmp_path / "r.db", call_at(0, output), row_at(0, output))

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = await store.resume("eval-1", start_of())
            paid = run.recorded_reply(CallKey(None, 0, "provider", b"q" * 16))
            assert paid is not None
            assert paid.reply.output == output
            assert run.reused_rows(None).record(0)["response"]["output"] == output

    trio.run(main)


def test_an_object_that_cannot_be_serialized_affects_only_its_own_row(tmp_path: Path) -> None:
    """An object that cannot be serialized affects only its row."""

    class Bomb:
        def __repr__(self) -> str:
            raise RuntimeError("boom")

    write(tmp_path / "r.db", row_at(0, Bomb()), call_at(0, Bomb()), row_at(1))
    with read_store(tmp_path / "r.db") as reader:
        run = reader.run("latest")
        first, second = reader.records(run)
        assert "cannot be stored" in first["error"]
        assert second["response"]["output"] == "say hello 1"


def test_runs_are_ordered_by_their_start_whatever_the_clock_was(tmp_path: Path) -> None:
    """Runs are ordered by their start, whatever the clock showed."""
    path = tmp_path / "r.db"
    for number, created in enumerate(("2026-03-01T00:00:00Z", "2025-01-01T00:00:00Z", "no time")):
        write(
            path, row_at(0), run_id=f"eval-{number}x", utc_created=created, suite=f"/s{number % 2}"
        )
    with read_store(path) as reader:
        assert [run.id for run in reader.runs()] == ["eval-2x", "eval-1x", "eval-0x"]
        assert [run.id for run in reader.runs(suite="/s0", limit=1)] == ["eval-2x"]
        assert reader.run("latest~1").id == reader.run("eval-1").id == "eval-1x"
        assert reader.run("latest~1", suite="/s0").id == "eval-0x"
        assert reader.runs(state="died") == []
        for name, message in (
            ("eval-", "'eval-' is a prefix of 3 runs"),
            ("nothing", "run 'nothing' not found; the last ones are eval-2x, eval-1x, eval-0x"),
            ("latest~3", "latest~3 does not exist: there are 3 runs"),
        ):
            with pytest.raises(UsageError, match=message):
                reader.run(name)
        with pytest.raises(UsageError, match="contains no runs of /s9"):
            reader.run("latest", suite="/s9")
        reader.delete(reader.run("eval-1"))
        pruned = reader.prune(older_than_s=3600, keep=1)
        assert [run.id for run in pruned] == ["eval-0x"]
        assert reader.prune() == []
        assert [run.id for run in reader.runs()] == ["eval-2x"]
        tables = ("run", "part", "result", "record", "score", "call", "event", "test")
        left = [
            reader._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in tables
        ]
    assert left == [1, 1, 1, 1, 2, 0, 0, 0]


def test_a_record_from_elsewhere_is_stored_unchanged(tmp_path: Path) -> None:
    """A record from another program is stored unchanged."""
    record = {
        "vars": {"a": 1},
        "success": True,
        "score": 1,
        "testIdx": 4,
        "promptIdx": 2,
        "extra": [1],
    }
    bare: dict[str, Any] = {"gradingResult": {"componentResults": [1, {}]}}
    records: tuple[dict[str, Any], ...] = (record, {}, bare)

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            for index, one in enumerate(records):
                run.take(None, index, one)
            await run.durable()
            assert store.error is None

    trio.run(main)
    with read_store(tmp_path / "r.db") as reader:
        run = reader.run("latest")
        assert [*reader.records(run, None, 2)] == [record]
        assert (run.passed, run.failed, run.not_graded) == (0, 2, 1)


def test_a_run_has_only_one_execution_at_a_time(tmp_path: Path) -> None:
    """A run in progress can be neither started, resumed nor deleted again."""
    path = tmp_path / "r.db"

    async def main() -> None:
        async with open_store(path) as store, open_store(path) as other:
            run = store.begin(start_of())
            await run.durable()
            with pytest.raises(UsageError, match="the run eval-1 is being run by another process"):
                other.begin(start_of())
            with pytest.raises(UsageError, match="the run eval-1 is being run by another process"):
                await other.resume("eval-1", start_of())
            with pytest.raises(StoreError, match="run eval-2 not found"):
                await other.resume("eval-2", start_of("eval-2"))
            with read_store(path) as reader:
                assert reader.run("latest").state == "running"
                assert reader.prune(keep=0) == []
                with pytest.raises(UsageError, match="is being run"):
                    reader.delete(reader.run("latest"))

    trio.run(main)
    with read_store(path) as reader:
        assert reader.run("latest").state == "died"
        assert [run.id for run in reader.prune(keep=0)] == ["eval-1"]


def test_a_wait_for_one_row_does_not_wait_for_later_ones(tmp_path: Path) -> None:
    """Waiting for one row does not wait for later writes."""
    rows = itertools.cycle(ROWS)

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            first = row_at(0)
            run.row(first)
            await run.durable()
            for index in range(1, 3000):
                run.row(attrs.evolve(next(rows), index=index))
            done = store._writer.done
            await run.durable(first)
            await run.durable(row_at(9999))
            assert store._writer.done - done < 2999
            await run.durable()
            assert len([*run.records(None)]) == 3000

    trio.run(main)


def test_the_compact_text_of_a_record_is_stored_unchanged(tmp_path: Path) -> None:
    """Numbers that JSON lacks are null from the beginning."""

    async def main() -> None:
        async with open_store(tmp_path / "r.db") as store:
            run = store.begin(start_of())
            row = row_at(0, {"a": math.nan})
            run.row(row)
            await run.durable()
            assert compact(run.record(row).json) == run.record(row).text
            (record,) = run.records(None)
            assert record["response"]["output"] == {"a": None}

    trio.run(main)
