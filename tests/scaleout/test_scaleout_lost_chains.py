"""Rows that depend on others, on workers that are lost: the rows are those of one process."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_cluster import Change, Model, SimulatedCluster, plain, run_locally, run_simulated

from trioeval.evaluation.journal import CallKey
from trioeval.kernel import StopReason
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
