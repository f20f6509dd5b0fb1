"""Agents on workers: cases are placed one by one, and continue where a lost worker has left them."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from session_workers import SessionCluster, SessionRun, run_on_sessions

from trioeval import ProviderError, Reply, Request
from trioeval.agent.journal import AgentJournal, ProcessIdentity, RunningAttempt
from trioeval.agent.open import AgentOptions
from trioeval.agent.protocols import AttemptEnded, AttemptStarted, CaseBlocked, CaseEnded
from trioeval.errors import UsageError
from trioeval.evaluation.journal import CallRecord
from trioeval.loading.load import parse_suite
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.scaleout.agents import AgentsFolder, WorkerAgents, shared_folder
from trioeval.scaleout.facts import agent_tasks, check_suite, differences, lane_uses, owned_lanes
from trioeval.scaleout.messages import AttemptGone, AttemptProcess, Message, WorkerFacts
from trioeval.scaleout.shards import is_case_group, owner_groups, with_case_groups
from trioeval.store.planner.planner import open_planner
from trioeval.testing.journals import MemoryJournal, WrittenRow

MOST = 3


class ScriptedCases:
    """An agent with scripts, a letter for each attempt: `o` success, `x` failure, `d` done."""

    def __init__(self, scripts: Mapping[str, str]) -> None:
        self.scripts = scripts
        self.played: Counter[tuple[str, int]] = Counter()

    async def __call__(self, request: Request) -> Reply:
        case, attempt = request.vars["name"], request.vars["attempt"]
        self.played[case, attempt] += 1
        await trio.lowlevel.checkpoint()
        await (
            trio.lowlevel.checkpoint_if_cancelled()
        )  # a worker that was lost meanwhile writes no file
        letter = (self.scripts[case] + "o" * MOST)[attempt]
        if letter == "x":
            raise ProviderError("bad_exit", f"failure of {case} in {attempt}")
        if letter == "d":
            Path(request.vars["done"]).touch()  # noqa: ASYNC240 - at once with its reply
        return Reply(output=f"{case} {attempt}", cost=0.5)


def suite_of(
    scripts: Mapping[str, str], needs: Mapping[str, Mapping[str, Any]], **top: Any
) -> dict[str, Any]:
    tests = [{"id": case, "vars": {"name": case}, **needs.get(case, {})} for case in scripts]
    task = {
        "id": "work",
        "type": "agent",
        "prompts": ["Do {{name}}."],
        "providers": ["agent"],
        "maxRestarts": MOST,
        "identicalFailures": MOST,
        "restartDelay": 0,
        "tests": tests,
    }
    return {"tasks": [task], **top}


def on_workers(
    suite: Mapping[str, Any], agent: ScriptedCases, folder: Path, **more: Any
) -> SessionRun:
    async def main() -> SessionRun:
        with trio.fail_after(60):
            return await run_on_sessions(suite, {"agent": agent}, folder=folder, **more)

    return trio.run(main)


def test_cases_within_a_distant_budget_use_all_slots(tmp_path: Path) -> None:
    """Each case is a shard with a lease on the budget."""
    scripts = {f"case-{number}": "d" for number in range(8)}
    live, all_work = 0, trio.Event()

    class Together(ScriptedCases):
        async def __call__(self, request: Request) -> Reply:
            nonlocal live
            live += 1
            if live == len(scripts):
                all_work.set()
            await all_work.wait()
            return await super().__call__(request)

    suite = suite_of(scripts, {})
    suite["providers"] = [{"id": "agent", "lane": {"maxConcurrency": len(scripts)}}]
    suite["evaluateOptions"] = {"budget": {"requests": 1000}}
    run = on_workers(suite, Together(scripts), tmp_path / "run")
    assert [row.status.value for row in run.rows] == ["pass"] * len(scripts)


def stories(journal: MemoryJournal) -> dict[int, tuple[Any, ...]]:
    """Return the rows of a journal without times, ids and paths."""
    found = {}
    for index, record in journal.records("work").items():
        agent = (record["response"] or {"metadata": {"agent": None}})["metadata"]["agent"]
        attempts = None
        if agent is not None:
            attempts = [
                agent["outcome"],
                agent["message"],
                [(one["ok"], one.get("failure", {}).get("message")) for one in agent["attempts"]],
                record["response"]["output"],
            ]
        outcome = record["metadata"]["trioeval"]["outcome"]
        found[index] = record["success"], outcome, record["error"], attempts
    return found


SCRIPTS = {"a": "xod", "b": "d", "c": "x", "d": "d", "e": "od"}
NEEDS: dict[str, dict[str, Any]] = {
    "b": {"dependsOn": ["a"]},
    "c": {"dependsOn": ["b"]},
    "d": {"dependsOn": ["c"]},
}


def test_cases_are_sent_when_the_others_that_they_need_are_done(tmp_path: Path) -> None:
    """Law BLOCK: the coordinator decides, on any worker."""
    agent, journal = ScriptedCases(SCRIPTS), MemoryJournal()
    ended: list[int] = []
    sent: dict[int, list[int]] = {}

    def on_message(cluster: SessionCluster, _worker: str, message: Message) -> None:
        for _name, shard in cluster.shards:
            for index in shard.rows:
                sent.setdefault(index, [*ended])
        if isinstance(message, Row):
            ended.append(message.index)

    run = on_workers(
        suite_of(SCRIPTS, NEEDS), agent, tmp_path / "run", journal=journal, on_message=on_message
    )
    statuses = [row.status.value for row in run.rows]
    assert statuses[:3] == ["pass", "pass", "fail"]
    assert run.rows[3].outcome == "blocked"
    assert statuses[4] == "pass"
    assert 0 in sent[1]
    assert 1 in sent[2]
    assert 3 not in sent, "a blocked case is not sent"
    blocked = [event.by for event in run.agents if isinstance(event, CaseBlocked)]
    assert ("a",) in blocked
    endings = {event.case: event.ending for event in run.agents if isinstance(event, CaseEnded)}
    assert endings == {"a": "done", "b": "done", "c": "failed", "d": "blocked", "e": "done"}
    started = [event.number for event in run.agents if isinstance(event, AttemptStarted)]
    assert len(started) == agent.played.total()


def test_the_planner_of_a_run_counts_cases_on_all_workers(tmp_path: Path) -> None:
    most = 0

    def on_message(cluster: SessionCluster, _worker: str, _message: Message) -> None:
        nonlocal most
        shards = cluster.events._shards.values()
        most = max(most, sum(len(shard.left) for shard in shards))

    async def main() -> SessionRun:
        async with open_planner(None, 1) as planner:
            run = await run_on_sessions(
                suite_of(dict.fromkeys("abcd", "od"), {}),
                {"agent": ScriptedCases(dict.fromkeys("abcd", "od"))},
                folder=tmp_path / "run",
                journal=MemoryJournal(),
                options=AgentOptions(planner=planner),
                on_message=on_message,
            )
            assert not await planner.snapshot()
            return run

    run = trio.run(main)
    assert [row.status.value for row in run.rows] == ["pass"] * 4
    assert most == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("losses", "dies_after"), [([3], 7), ([1, 9], 16), ([6, 7], 1), ([14, 25], 12)]
)
def test_lost_workers_and_a_killed_run_repeat_no_recorded_attempt(
    tmp_path: Path, losses: list[int], dies_after: int
) -> None:
    """Laws ONCE and RESUME: the recorded attempts of a case go with it to the next worker."""
    suite = suite_of(SCRIPTS, NEEDS)
    whole = MemoryJournal()
    on_workers(suite, ScriptedCases(SCRIPTS), tmp_path / "whole", journal=whole)
    journal, agent, seen = MemoryJournal(), ScriptedCases(SCRIPTS), 0

    def lose(cluster: SessionCluster, worker: str, _message: Message) -> None:
        nonlocal seen
        seen += 1
        if seen in losses:
            cluster.lose(worker)
            cluster.join(f"{worker}+")

    run = on_workers(suite, agent, tmp_path / "run", journal=journal, on_message=lose)
    assert [row.index for row in run.rows] == list(range(len(SCRIPTS)))
    _assert_alike(stories(journal), stories(whole))
    written = Counter(one.index for one in journal.writes if isinstance(one, WrittenRow))
    assert set(written.values()) == {1}, "law ONCE"
    calls = Counter(one.key for one in journal.writes if isinstance(one, CallRecord))
    assert set(calls.values()) == {1}, "law RESUME"
    events = [event for event in run.agents if isinstance(event, AttemptStarted | AttemptEnded)]
    assert set(Counter(event.run_id for event in events).values()) == {2}, "each attempt ends"

    # The run itself is killed.
    journal = MemoryJournal()

    async def cut_run() -> None:
        with trio.CancelScope() as scope:

            def die(_cluster: SessionCluster, _worker: str, _message: Message) -> None:
                if len(journal.writes) >= dies_after:
                    scope.cancel()

            await run_on_sessions(
                suite,
                {"agent": ScriptedCases(SCRIPTS)},
                folder=tmp_path / "cut",
                journal=journal,
                on_message=die,
            )

    trio.run(cut_run)
    cut = journal.cut(dies_after)
    known = {one.key for one in cut.earlier if isinstance(one, CallRecord)}
    on_workers(suite, ScriptedCases(SCRIPTS), tmp_path / "cut", journal=cut)
    assert not known & {one.key for one in cut.writes if isinstance(one, CallRecord)}, "law RESUME"
    _assert_alike(stories(cut), stories(whole))


def test_a_case_that_makes_progress_may_be_lost_with_any_number_of_workers(tmp_path: Path) -> None:
    """Each of its attempts ends on another worker, which is lost then."""
    agent, journal = ScriptedCases({"a": "xxxxd"}), MemoryJournal()

    def attempts() -> list[str]:
        return [
            one.answer.metadata["attempt"]["metadata"]["runId"]
            for one in journal.writes
            if isinstance(one, CallRecord)
            and isinstance(one.answer, Reply)
            and "attempt" in one.answer.metadata
        ]

    def lose(cluster: SessionCluster, worker: str, message: Message) -> None:
        answer = message.answer if isinstance(message, CallRecord) else None
        is_end = isinstance(answer, Reply) and "attempt" in answer.metadata
        if is_end and len(attempts()) < 5:
            cluster.lose(worker)
            cluster.join(f"{worker}+")

    suite = suite_of({"a": "xxxxd"}, {})
    # A lost worker is noticed before it begins another attempt, which might end the case.
    suite["tasks"][0] |= {"maxRestarts": 9, "identicalFailures": 9, "restartDelay": 0.3}
    run = on_workers(suite, agent, tmp_path / "run", journal=journal, on_message=lose)
    assert run.rows[0].error is None
    assert len(attempts()) == len({*attempts()}) == 5
    assert len({worker for worker, _shard in run.shards}) == 5


def _assert_alike(found: Mapping[int, Any], right: Mapping[int, Any]) -> None:
    """Compare rows: an agent may have reported that it is done in an attempt that was not recorded."""
    assert found.keys() == right.keys()
    for index, row in found.items():
        if row != right[index]:
            assert row[:3] == right[index][:3]
            assert row[3][2] == right[index][3][2][:-1]


# The records of processes.


class ListedProcesses(AgentJournal):
    """A journal that lists its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def started(self, attempt: RunningAttempt, /) -> None:
        self.calls.append(("started", attempt.run_id))

    def gone(self, run_id: str, /) -> None:
        self.calls.append(("gone", run_id))

    def left(self) -> list[RunningAttempt]:
        return []

    async def durable(self) -> None:
        await trio.lowlevel.checkpoint()


def attempt_of(index: int, number: int = 0) -> RunningAttempt:
    identity = ProcessIdentity(pid=number, started=0, host="h", mark="0" * 32)
    return RunningAttempt(
        run_id=f"{index}-{number}",
        index=index,
        row="",
        number=number,
        agent="a",
        process=identity,
    )


def test_processes_of_a_case_go_with_it_until_they_have_ended() -> None:
    """They are recorded in the journal of their task in the step in which they arrive."""
    journal = ListedProcesses()
    agents = WorkerAgents(lambda task: journal if task == "work" else None)
    agents.take(AttemptProcess("work", attempt_of(1)))
    agents.take(AttemptProcess("work", attempt_of(1, 1)))
    agents.take(AttemptProcess("other", attempt_of(1)))
    assert [one.number for one in agents.processes("work", 1)] == [0, 1]
    assert not agents.processes("work", 2)
    agents.take(AttemptGone("work", 1, "1-0"))
    agents.take(AttemptGone("work", 1, "1-0"))
    assert [one.number for one in agents.processes("work", 1)] == [1]
    assert journal.calls == [
        ("started", "1-0"),
        ("started", "1-1"),
        ("gone", "1-0"),
        ("gone", "1-0"),
    ]


def test_a_folder_is_recognized_only_by_workers_that_see_the_same_files(tmp_path: Path) -> None:
    with shared_folder(tmp_path / "run") as folder:
        assert folder.path == tmp_path / "run"
        assert folder.obstacle() is None
        assert AgentsFolder(tmp_path, folder.proof).obstacle() == "No such file or directory"
        assert AgentsFolder(folder.path, "other").obstacle() == "it is another folder there"
        own = WorkerFacts(session="", versions=())
        [text] = differences("tcp://w:1", own, attrs.evolve(own, obstacle="no"))
        assert "worker tcp://w:1 cannot use the folder in which agents work: no" in text
    assert not [*folder.path.iterdir()]


@pytest.mark.parametrize(
    ("limits", "is_spread"),
    [({}, True), ({"maxConcurrentRuns": 0}, True), ({"maxConcurrentRuns": 2}, False)],
)
def test_programs_run_on_all_workers_unless_their_attempts_are_limited_together(
    limits: dict[str, int],
    is_spread: bool,  # noqa: FBT001 - a parameter
) -> None:
    task = {**suite_of({"a": "d"}, {})["tasks"][0], "providers": ["exec:true"]}
    prepared = prepare(parse_suite({"tasks": [task], "agents": limits}, environ={}), environ={})
    groups = owner_groups(lane_uses(prepared), owned_lanes(prepared))
    found = [*with_case_groups(groups, agent_tasks(prepared)).values()]
    assert [is_case_group(group) for group in found] == [is_spread]


# Cases that read what others leave, and cases that run alone.

TURNS = "{{name}} {{word}} after {% for turn in _conversation %}{{turn.output}} {% endfor %}"


class DigestingCases(ScriptedCases):
    """An agent whose output depends on everything that its prompt shows; it is done after a script."""

    def __init__(self, scripts: Mapping[str, str], alone: Collection[str] = ()) -> None:
        super().__init__(scripts)
        self.alone = alone
        self.running = 0
        self.ended = 0

    async def __call__(self, request: Request) -> Reply:
        self.running += 1
        is_alone = request.vars["name"] in self.alone
        try:
            assert not is_alone or self.running == 1, "law SERIAL"
            await trio.sleep(0.001)
            assert not is_alone or self.running == 1, "law SERIAL"
            found = await super().__call__(request)
            self.ended += 1
        except ProviderError:
            self.ended += 1
            raise
        finally:
            self.running -= 1
        shown = request.prompt.splitlines()[
            -1
        ]  # an attempt that continues another has a line before
        return attrs.evolve(found, output=hashlib.sha256(shown.encode()).hexdigest()[:8])


@st.composite
def dependent_cases(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str], Collection[str]]:
    """Return a task of cases that may read what others leave, their scripts, and those that run alone."""
    needs: dict[str, dict[str, Any]] = {}
    for name in "abcde"[: draw(st.integers(2, 5))]:
        word = draw(st.sampled_from(["plain", "{{x}}", "{{y}}"]))
        options: dict[str, Any] = {}
        if (register := draw(st.sampled_from([None, None, "x", "y"]))) is not None:
            options["storeOutputAs"] = register
        if draw(st.integers(0, 4)) == 0:
            options["runSerially"] = True
        needs[name] = {"vars": {"name": name, "word": word}, "options": options}
        if draw(st.booleans()):
            needs[name]["metadata"] = {"conversationId": draw(st.sampled_from("pq"))}
    scripts = {name: draw(st.sampled_from(["d", "d", "od", "xd"])) for name in needs}
    suite = suite_of(
        scripts, needs, evaluateOptions={"serialize": draw(st.sampled_from(["all", "auto"]))}
    )
    prompts = ["{{name}} {{word}}", TURNS]
    suite["tasks"][0]["prompts"] = draw(st.sampled_from([prompts[:1], prompts[1:], prompts]))
    if draw(st.booleans()):
        suite["tasks"][0]["providers"] = ["agent", {"id": "agent", "label": "b"}]
    alone = {name for name, test in needs.items() if test["options"].get("runSerially")}
    return suite, scripts, alone


async def run_locally(
    suite: Mapping[str, Any], agent: ScriptedCases, folder: Path
) -> MemoryJournal:
    """Run a suite in one process."""
    journal = MemoryJournal()
    prepared = prepare(parse_suite(suite, environ={}), providers={"agent": agent}, environ={})
    options = RunOptions(
        emit=_ignore, run_id="r", journal=journal, agents=AgentOptions(folder=folder)
    )
    await run_with_options(prepared, options)
    return journal


async def _ignore(_row: Row) -> None:
    """Ignore an emitted row."""


def seen_by_cases(journal: MemoryJournal) -> dict[int, tuple[Any, ...]]:
    """Return the prompt of each case, and how it ended."""
    records = journal.records("work")
    return {
        index: (records[index]["prompt"]["raw"], *story[:3], story[3] and story[3][3])
        for index, story in stories(journal).items()
    }


def check_dependent_cases(
    folder: Path,
    given: tuple[dict[str, Any], dict[str, str], Collection[str]],
    losses: Collection[int],
    dies_after: int,
) -> None:
    """Run cases on workers that are lost, and continue a run that is killed."""
    suite, scripts, alone = given
    right = seen_by_cases(
        trio.run(run_locally, suite, DigestingCases(scripts, alone), folder / "local")
    )
    journal, agent = MemoryJournal(), DigestingCases(scripts, alone)
    seen, left = 0, sorted(losses)

    def lose(cluster: SessionCluster, worker: str, _message: Message) -> None:
        nonlocal seen
        seen += 1
        if left and seen >= left[0] and attempts_in(journal) == agent.ended:
            del left[0]
            cluster.lose(worker)
            cluster.join(f"{worker}+")

    run = on_workers(suite, agent, folder / "run", journal=journal, on_message=lose)
    assert [row.index for row in run.rows] == [*range(len(right))], "law TOTAL, law ORDER"
    assert seen_by_cases(journal) == right, "law BLOCK"
    calls = Counter(one.key for one in journal.writes if isinstance(one, CallRecord))
    assert {*calls.values()} == {1}, "law ONCE"

    # The run itself is killed.
    journal, agent = MemoryJournal(), DigestingCases(scripts, alone)
    died_after: int | None = None

    async def cut_run() -> None:
        with trio.CancelScope() as scope:

            def die(_cluster: SessionCluster, _worker: str, _message: Message) -> None:
                nonlocal died_after
                is_time = len(journal.writes) >= dies_after and not scope.cancel_called
                if is_time and attempts_in(journal) == agent.ended:
                    died_after = len(journal.writes)
                    scope.cancel()

            await run_on_sessions(
                suite, {"agent": agent}, folder=folder / "cut", journal=journal, on_message=die
            )

    trio.run(cut_run)
    cut = journal.cut(len(journal.writes) if died_after is None else died_after)
    known = {one.key for one in cut.earlier if isinstance(one, CallRecord)}
    on_workers(suite, DigestingCases(scripts, alone), folder / "cut", journal=cut)
    assert not known & {one.key for one in cut.writes if isinstance(one, CallRecord)}, "law RESUME"
    assert seen_by_cases(cut) == right, "law RESUME"


def attempts_in(journal: MemoryJournal) -> int:
    """Return the number of recorded attempts; a case that is done in another one has no output."""
    answers = (one.answer for one in journal.writes if isinstance(one, CallRecord))
    return sum(isinstance(one, Reply) and "attempt" in one.metadata for one in answers)


def test_cases_get_what_earlier_ones_left_on_any_worker(tmp_path: Path) -> None:
    scripts = {"a": "d", "b": "od", "c": "d"}
    needs: dict[str, dict[str, Any]] = {
        "a": {"vars": {"name": "a", "word": "{{x}}"}, "options": {"storeOutputAs": "y"}},
        "b": {"vars": {"name": "b", "word": "{{x}} {{y}}"}},
        "c": {
            "vars": {"name": "c", "word": "first"},
            "options": {"runSerially": True, "storeOutputAs": "x"},
        },
    }
    suite = suite_of(scripts, needs)
    suite["tasks"][0]["prompts"] = [TURNS]
    check_dependent_cases(tmp_path, (suite, scripts, "c"), [2], 3)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    dependent_cases(),
    st.sets(st.integers(1, 30), max_size=4),
    st.integers(0, 40),
)
def test_dependent_cases_are_those_of_one_process_whatever_workers_are_lost(
    given_cases: tuple[dict[str, Any], dict[str, str], Collection[str]],
    losses: Collection[int],
    dies_after: int,
) -> None:
    """Laws ORDER, TOTAL, BLOCK, SERIAL, ONCE and RESUME."""
    with TemporaryDirectory() as folder:
        check_dependent_cases(Path(folder), given_cases, losses, dies_after)


@pytest.mark.parametrize(
    ("changed", "more", "text"),
    [
        (
            {"assert": [{"type": "max-score"}, {"type": "contains", "value": "x"}]},
            {},
            r"select-best, max-score, such as case b\) of task work",
        ),
        (
            {},
            {"extensions": ["file://hooks.py:each"]},
            "beforeEach of hooks.py:each for the agents",
        ),
        ({}, {"extensions": ["file://hooks.py:afterEach"]}, None),
        ({"options": {"storeOutputAs": "x"}}, {}, None),
        ({"options": {"runSerially": True}}, {}, None),
    ],
)
def test_comparisons_of_cases_and_changes_before_them_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    more: dict[str, Any],
    text: str | None,
) -> None:
    """Each case is sent alone, in a folder that was made for it."""
    monkeypatch.chdir(tmp_path)
    Path("hooks.py").write_text("def each(*_):\n    return None\n\n\nafterEach = each\n")
    suite = suite_of({"a": "d", "b": "d"}, {"b": changed})
    suite |= more
    suite["tasks"][0] |= {"providers": ["exec:true", {"id": "exec:true", "label": "b"}]}
    prepared = prepare(parse_suite(suite, environ={}), environ={})
    if text is None:
        check_suite(prepared)
        return
    with pytest.raises(UsageError, match=text):
        check_suite(prepared)
