"""Rows that depend on others, on workers that are lost: the rows are those of one process."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_cluster import Change, Model, SimulatedCluster, plain, run_locally, run_simulated

from trioeval.evaluation.journal import CallKey
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel import Failed, Plan, StopReason
from trioeval.loading.load import parse_suite
from trioeval.run import Row, collect, prepare
from trioeval.scaleout.blocks import BlockJobs, RowBlock, SentTask
from trioeval.scaleout.chain_queues import ChainQueues
from trioeval.scaleout.chains import Chains
from trioeval.scaleout.coordinator import Coordinator
from trioeval.scaleout.forwarding import ForwardedJob, MessageBatch
from trioeval.scaleout.messages import AnyShard, Shard, unpack
from trioeval.testing.journals import MemoryJournal

TURNS = "{{word}} after {% for turn in _conversation %}{{turn.output}} {% endfor %}"


@st.composite
def dependent_suites(draw: st.DrawFn) -> dict[str, Any]:
    """Return a suite whose rows may read what others leave."""
    tests: list[dict[str, Any]] = []
    for number in range(draw(st.integers(2, 8))):
        word = draw(st.sampled_from(["plain", "{{a}}", "{{b}}"]))
        options: dict[str, Any] = {}
        if (register := draw(st.sampled_from([None, None, "a", "b"]))) is not None:
            options["storeOutputAs"] = register
        if draw(st.integers(0, 6)) == 0:
            options["runSerially"] = True
        test: dict[str, Any] = {"vars": {"word": f"{word} {number}"}, "options": options}
        if draw(st.integers(0, 5)) == 0:
            test["assert"] = [{"type": "max-score"}, {"type": "contains", "value": "a"}]
        if draw(st.booleans()):
            test["metadata"] = {"conversationId": draw(st.sampled_from("xy"))}
        tests.append(test)
    several = draw(st.booleans()) or any("assert" in test for test in tests)
    prompts = ["{{word}}", TURNS]
    lane = draw(st.sampled_from([{}, {"rpm": 6000}, {"maxConcurrency": 1}]))
    model = {"id": "model", "lane": lane}
    return {
        "providers": [model, {"id": "model", "label": "b"}] if several else [model],
        "prompts": draw(st.sampled_from([prompts[:1], prompts[1:], prompts])),
        "tests": tests,
        "evaluateOptions": {
            "registerScope": draw(st.sampled_from(["suite", "column"])),
            "serialize": draw(st.sampled_from(["auto", "conversation", "register", "all"])),
        },
    }


NAMES = st.sampled_from(["first", "second", "third"])
CHANGES = st.lists(
    st.tuples(st.floats(0, 12), st.sampled_from(["join", "join", "lose"]), NAMES), max_size=8
)


def model_of(suite: dict[str, Any], seconds: float) -> Model:
    return Model(lambda prompt: seconds * (1 + len(prompt) % 3))


def losses(changes: Sequence[Change]) -> int:
    return sum(what == "lose" for _, what, _ in changes)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(dependent_suites(), CHANGES, st.floats(0.01, 2.0))
def test_dependent_rows_are_those_of_one_process_whatever_workers_are_lost(
    suite: dict[str, Any], changes: list[Change], seconds: float
) -> None:
    """Laws ORDER, BLOCK, ONCE and RESUME."""
    local, sent = model_of(suite, seconds), model_of(suite, seconds)
    right = run_locally(suite, local)
    run = run_simulated(suite, sent, changes)
    assert [row.index for row in run.rows] == [row.index for row in right]
    crashed = {row.index for row in run.rows if row.error_kind == "worker_crashed"}
    if not crashed:
        assert plain(run.rows) == plain(right)
        assert sent.paid == local.paid, "no reply is paid twice"
    assert not crashed or losses(changes) >= 3


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(dependent_suites(), CHANGES, st.data())
def test_a_killed_run_with_dependent_rows_is_continued_on_workers(
    suite: dict[str, Any], changes: list[Change], data: st.DataObject
) -> None:
    """Law RESUME: run, kill after any write, resume = one uninterrupted run."""
    local, sent = model_of(suite, 0.1), model_of(suite, 0.1)
    whole = MemoryJournal()
    right = run_locally(suite, local, whole)
    first = MemoryJournal()
    run_simulated(suite, sent, journal=first)
    cut = first.cut(data.draw(st.integers(0, len(first.writes))))
    kept = {*cut.reused_rows(None).by_index}
    paid_before = len([one for one in cut.earlier if hasattr(one, "answer")])
    again = model_of(suite, 0.1)
    run = run_simulated(suite, again, [one for one in changes if one[1] == "join"], journal=cut)
    assert {row.index for row in run.rows} | kept == {row.index for row in right}
    records, wanted = cut.records(), whole.records()
    assert {
        index: (one["response"], one["gradingResult"], one["prompt"])
        for index, one in records.items()
    } == {
        index: (one["response"], one["gradingResult"], one["prompt"])
        for index, one in wanted.items()
    }
    assert again.paid.total() == local.paid.total() - paid_before


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(dependent_suites(), st.floats(0, 6))
def test_after_a_stop_dependent_rows_end_in_order(suite: dict[str, Any], stop_at: float) -> None:
    """Laws DRAIN and TOTAL: what ran has its result, and the rest can be resumed."""
    journal = MemoryJournal()
    run = run_simulated(suite, model_of(suite, 1.0), journal=journal, stop_at=stop_at)
    assert [row.index for row in run.rows] == [*range(len(run.rows))]
    assert {row.cut for row in run.rows} <= {None, StopReason.STOP}
    local, left = model_of(suite, 1.0), model_of(suite, 1.0)
    right = MemoryJournal()
    run_locally(suite, local, right)
    resumed = journal.cut(len(journal.writes))
    run_simulated(suite, left, journal=resumed)
    assert {index: one["response"] for index, one in resumed.records().items()} == {
        index: one["response"] for index, one in right.records().items()
    }


def conversation(turns: int, **more: Any) -> dict[str, Any]:
    return {
        "providers": ["model"],
        "prompts": [TURNS],
        "tests": [{"vars": {"word": number}} for number in range(turns)],
        **more,
    }


def test_what_is_serial_runs_as_one_shard() -> None:
    """A conversation is sent once, as are serial rows."""
    suite = conversation(20)
    model = model_of(suite, 1.0)
    run = run_simulated(suite, model, workers=("first", "second"))
    assert [len(shard.rows) for shard in run.shards] == [20]
    assert {count for _, count in model.alone} == {1}


def test_conversations_run_side_by_side() -> None:
    tests = [
        {"vars": {"word": number}, "metadata": {"conversationId": number % 4}}
        for number in range(20)
    ]
    suite = conversation(0, tests=tests, evaluateOptions={"serialize": "conversation"})
    model = model_of(suite, 1.0)
    run = run_simulated(suite, model, workers=("first", "second"))
    assert max(count for _, count in model.alone) == 4
    assert plain(run.rows) == plain(run_locally(suite, model_of(suite, 1.0)))


def test_the_rest_of_a_conversation_is_placed_again_with_its_turns() -> None:
    """Only its unfinished rows are sent, with the reply that has arrived."""
    suite = conversation(10)
    model = Model(lambda _prompt: 1.0)
    run = run_simulated(suite, model, [(3.5, "lose", "first")], workers=("first", "second"))
    first, second = run.shards
    assert [*first.rows] == [*range(10)]
    assert [*second.rows] == [*range(3, 10)]
    assert plain(run.rows) == plain(run_locally(suite, Model(lambda _prompt: 1.0)))
    assert {*model.paid.values()} == {1}


def test_serial_rows_run_alone_over_all_workers_and_first() -> None:
    """Law SERIAL."""
    tests: list[dict[str, Any]] = [
        {"vars": {"word": f"{number}"}, "options": {"runSerially": number % 5 == 3}}
        for number in range(20)
    ]
    suite = {"providers": ["model"], "prompts": ["say {{word}}"], "tests": tests}
    model = Model(lambda _prompt: 1.0)
    run = run_simulated(suite, model, workers=("first", "second"))
    started = [prompt for prompt, _ in model.alone]
    assert started[:4] == ["say 3", "say 8", "say 13", "say 18"]
    assert {count for _, count in model.alone[:4]} == {1}
    assert plain(run.rows) == plain(run_locally(suite, Model(lambda _prompt: 1.0)))


def test_a_turn_that_three_workers_lose_is_an_error_and_the_conversation_goes_on() -> None:
    suite = conversation(4)
    model = Model(lambda prompt: 1000.0 if prompt.startswith("1 ") else 1.0)
    changes = [
        (at, what, name)
        for number in range(3)
        for at, what, name in [
            (10.0 * number + 5, "lose", f"w{number}"),
            (10.0 * number + 6, "join", f"w{number + 1}"),
        ]
    ]
    run = run_simulated(suite, model, changes, workers=("w0",))
    assert [row.error_kind for row in run.rows] == [None, "worker_crashed", None, None]


def test_rows_of_another_task_are_the_tests_of_a_task_on_workers() -> None:
    """The coordinator makes the tests, and sends the rows to each worker once."""
    suite = {
        "providers": ["model"],
        "tasks": [
            {
                "id": "first",
                "type": "prompt_eval",
                "prompts": ["say {{word}}"],
                "tests": [{"vars": {"word": f"{number}"}} for number in range(12)],
            },
            {
                "id": "second",
                "type": "prompt_eval",
                "prompts": ["judge {{said}} of {{word}}"],
                "tests": {"fromTask": "first", "vars": {"said": "output", "word": "vars.word"}},
            },
        ],
    }
    changes = [(0.0, "join", "second"), (2.5, "lose", "first"), (3.0, "join", "third")]
    run = run_simulated(suite, Model(lambda _prompt: 1.0), changes)
    right = run_locally(suite, Model(lambda _prompt: 1.0))
    key = lambda row: (row.task, row.index)  # noqa: E731
    assert plain(sorted(run.rows, key=key)) == plain(sorted(right, key=key))
    assert len(run.rows) == 24


class Silent(SimulatedCluster):
    """Workers that run nothing, until the run is stopped."""

    def submit(self, worker: str, shard: AnyShard) -> None:
        assert isinstance(shard, Shard)  # no dataset is made here
        self.sent.append((worker, shard))

    def stop(self) -> None:
        for _, shard in self.sent:
            self.events.on_shard_end(shard.number, None)


def test_the_job_of_a_lost_call_is_recorded_and_sent_with_its_row() -> None:
    """A video is paid when it is created, so the call of another worker finds it again."""
    key, other = (CallKey(None, 0, "provider", bytes([number]) * 16) for number in (1, 2))
    suite = {
        "providers": [
            {
                "id": "openai:video:sora-2",
                "config": {"apiKey": "k", "apiBaseUrl": "http://127.0.0.1:9/v1"},
            }
        ],
        "prompts": ["film {{word}}"],
        "tests": [{"vars": {"word": number}} for number in range(3)],
    }

    class Filming(Silent):
        """Its first worker creates two jobs, of which one ends, and is lost."""

        def submit(self, worker: str, shard: AnyShard) -> None:
            super().submit(worker, shard)
            if len(self.sent) > 1:
                return
            names: dict[CallKey, str] = {}
            batch = MessageBatch(lambda data: self.events.on_messages(unpack(data, self.steps)))
            for one in (key, other):
                ForwardedJob(one, batch, names).note(f"video {one.question[0]}")
            assert ForwardedJob(key, batch, names).find() == "video 1"
            ForwardedJob(other, batch, names).drop()
            batch.flush()
            self.nursery.start_soon(self._die, worker)

        async def _die(self, worker: str) -> None:
            await trio.sleep(1)
            self.lose(worker)
            self.join("second")

    journal = MemoryJournal()
    run = run_simulated(suite, Model(lambda _: 1.0), journal=journal, kind=Filming, stop_at=5)
    assert [job for shard in run.shards for job in shard.jobs] == [(key, "video 1")]
    assert journal.job(key).find() == "video 1"
    assert journal.job(other).find() is None
    again = run_simulated(
        suite, Model(lambda _: 1.0), journal=journal.cut(2), kind=Silent, stop_at=5
    )
    jobs = {job for shard in again.shards for job in shard.jobs}
    assert jobs == {(key, "video 1"), (other, "video 2")}


# Rows that are compared with each other, while events follow each other as drawn.


def compared_suite() -> PreparedSuite:
    """Return a suite with three groups of two compared rows, of which a block may have only one."""
    compared = [{"type": "max-score"}, {"type": "contains", "value": "say"}]
    suite = {
        "providers": ["echo", {"id": "echo", "label": "b"}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": str(number)}, "assert": compared} for number in range(3)],
    }
    return prepare(parse_suite(suite))


COMPARED = compared_suite()
COMPARED_ROWS: list[Row] = trio.run(collect, COMPARED)


@attrs.define(eq=False)
class ComparedBody:
    """The body of the task on this machine, of which no job is performed."""

    def plan(self) -> Plan[Any]:
        return Plan(BlockJobs(len(COMPARED_ROWS), 1), (None,))

    async def perform(self, *_: Any) -> object:
        raise AssertionError

    def rows(self, outcome: Any, _waits: Any = None) -> Sequence[Row]:
        assert isinstance(outcome, Failed)
        return [attrs.evolve(COMPARED_ROWS[outcome.index], outcome="failed")]

    def unstarted(self, _jobs: range) -> None:
        raise AssertionError

    def on_emitted(self, _row: Row) -> None:
        raise AssertionError


@attrs.define(eq=False)
class RecordingCluster:
    """Shards that were sent, whose rows arrive when a test says so."""

    sent: list[tuple[str, Shard]] = attrs.field(factory=list)

    def submit(self, worker: str, shard: AnyShard) -> None:
        assert isinstance(shard, Shard)  # no dataset is made here
        self.sent.append((worker, shard))

    def cancel(self, _number: int) -> None: ...

    def stop(self) -> None: ...

    def add_task(self, _part: Any) -> None:
        raise AssertionError

    def shut_down(self, _number: int, _lane: str) -> None:
        raise AssertionError


@attrs.define(eq=False)
class Played:
    """A coordinator to which events happen, each of which two numbers choose."""

    size: int
    """The rows of a block."""
    cluster: RecordingCluster = attrs.field(factory=RecordingCluster)
    queues: ChainQueues = attrs.field(init=False)
    coordinator: Coordinator = attrs.field(init=False)
    task: SentTask = attrs.field(init=False)
    recorded: list[int] = attrs.field(factory=list)
    blocks: list[RowBlock] = attrs.field(factory=list)
    opened: int = 0

    def __attrs_post_init__(self) -> None:
        chains = Chains.of(COMPARED)
        assert chains is not None
        self.queues = ChainQueues(chains)
        self.coordinator = Coordinator(self.cluster, COMPARED, trio.Event(), print)
        self.coordinator._queues.append(self.queues)
        self.task = SentTask(
            self.coordinator,
            None,
            ComparedBody(),
            row_of=int,
            group_of=lambda _: None,
            size=self.size,
            queues=self.queues,
        )
        self.task.start(self._record)

    def _record(self, row: Row) -> Row:
        self.recorded.append(row.index)
        return row

    def open(self, _first: int, _second: int) -> None:
        blocks = BlockJobs(len(COMPARED_ROWS), self.size)
        if self.opened < len(blocks):
            self.blocks.append(RowBlock(self.task, blocks.jobs(self.opened)))
            self.opened += 1
            self.coordinator.send(self.blocks[-1])

    def close(self, first: int, _second: int) -> None:
        if self.blocks:
            self.coordinator.close(self.blocks.pop(first % len(self.blocks)))

    def join(self, first: int, _second: int) -> None:
        self.coordinator.on_worker(f"worker {first}")

    def lose(self, first: int, _second: int) -> None:
        self.coordinator.on_loss(f"worker {first}")

    def send(self, _first: int, _second: int) -> None:
        self.coordinator._send()

    def stop(self, _first: int, _second: int) -> None:
        self.coordinator._stop.set()
        self.coordinator._give_up_waiting()

    def row(self, first: int, second: int) -> None:
        if self.cluster.sent:
            before = len(self.recorded)
            shard = self._shard(first)
            self.coordinator.on_messages([COMPARED_ROWS[shard.rows[second % len(shard.rows)]]])
            found = self.recorded[before:]
            assert not found or found == [found[0] // 2 * 2, found[0] // 2 * 2 + 1]

    def end(self, first: int, _second: int) -> None:
        if self.cluster.sent:
            self.coordinator.on_shard_end(self._shard(first).number, None)

    def _shard(self, first: int) -> Shard:
        return self.cluster.sent[-1 - first % len(self.cluster.sent)][1]


Happening = tuple[str, int, int]
HAPPENINGS = st.tuples(
    st.sampled_from(
        [
            *("open", "open", "close", "join", "lose", "stop"),
            *("send", "send", "row", "row", "row", "end"),
        ]
    ),
    st.integers(0, 5),
    st.integers(0, 5),
)


async def play(happenings: Sequence[Happening], size: int) -> list[int]:  # noqa: ASYNC124 - in a run
    """Let events happen, and then the end of all blocks; return the rows that were recorded."""
    played = Played(size)
    for what, first, second in [*happenings, *([("close", 0, 0)] * 6), ("send", 0, 0)]:
        getattr(played, what)(first, second)
    assert {*Counter(played.recorded).values()} <= {1}, "law ONCE"
    assert not played.coordinator._rows
    assert not any(shard.left for shard in played.coordinator._shards.values())
    assert not [row for chain in played.queues._by_key.values() for row in chain._held]
    return played.recorded


@settings(max_examples=150)
@given(st.lists(HAPPENINGS, max_size=40), st.sampled_from([1, 2, 3]))
def test_compared_rows_are_recorded_together_whatever_events_follow_each_other(
    happenings: list[Happening], size: int
) -> None:
    """Law ONCE: also if a block ends while a result of it waits for those of another block."""
    trio.run(play, happenings, size)


def test_a_block_ends_while_a_result_of_it_waits_for_that_of_another_block() -> None:
    happenings = [("open", 0, 0), ("open", 0, 0), ("join", 0, 0), ("send", 0, 0)]
    happenings += [("row", 0, 0), ("close", 0, 0), ("row", 0, 1)]
    assert not trio.run(play, happenings, 1)


def test_a_block_ends_after_its_rows_have_been_given_up() -> None:
    """The chain of these rows is over before their block is."""
    happenings = [("open", 0, 0), ("stop", 0, 0), ("send", 0, 0)]
    assert not trio.run(play, happenings, 2)
