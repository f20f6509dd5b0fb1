"""Tasks of questions in virtual time: the results of each question, and of the task."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from asked_questions import RIGHT, WRONG, Pupil, Ran, asked, calls_tool, quiz
from journalled import Notes

from trioeval import Reply, Row, Status
from trioeval.errors import ProviderError, SuiteError
from trioeval.grading.patterns import compile_javascript
from trioeval.kernel.reservations import Permits
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import Decision, LeaseRequest, LimitKey, SharedLimit
from trioeval.limits.remote import open_remote
from trioeval.providers import Usage
from trioeval.question_eval import question_of
from trioeval.report.row import row_json
from trioeval.suite.filters import Filters


def test_qe_30_one_of_two_answered_right(tmp_path: Path) -> None:
    """A single wrong answer fails the task; usage is reported."""
    ran = asked(quiz(tmp_path), Pupil(says=lambda number, _: WRONG if number else RIGHT))
    assert ran.outcomes == ["correct", "incorrect"]
    assert ran.end == {"status": "fail", "reason": "incorrect_answers"}
    assert [question.tokens_total for question in ran.questions] == [15, 15]
    right, wrong = ran.rows
    assert (right.status, right.score, right.error) == (Status.PASS, 1.0, None)
    assert (wrong.status, wrong.score) == (Status.FAIL, 0.0)
    assert wrong.error == 'the answer "Red" is wrong; correct: "Blue"'
    question = question_of(wrong)
    assert question is not None
    assert (question.agent_answer, question.answer_listed) == ("Red", True)


@pytest.mark.parametrize(("workers", "seconds"), [(2, 0.15), (1, 0.3)])
def test_qe_31_workers_are_the_number_of_concurrent_questions(
    tmp_path: Path, workers: int, seconds: float
) -> None:
    """Two calls of 150 ms take as long as one with two workers; results are the same."""
    ran = asked(quiz(tmp_path, entry={"workers": workers}), Pupil(takes=lambda _: 0.15))
    assert ran.ended_at == pytest.approx(seconds)
    assert ran.outcomes == ["correct", "correct"]


def test_workers_affect_only_the_duration(tmp_path: Path) -> None:
    """One worker is sequential: the rows and the events of each question are the same."""

    def shown(workers: int) -> Any:
        pupil = Pupil(says=lambda n, _: [RIGHT, WRONG, "?", ProviderError("auth", "no")][n % 4])
        ran = asked(quiz(tmp_path, 3, entry={"workers": workers}), pupil)
        lives = [[event.name for event in question.events] for question in ran.questions]
        return lives, [attrs.evolve(question, events=(), wait_s=None) for question in ran.questions]

    assert shown(1) == shown(2) == shown(3)


def test_qe_32_results_are_in_question_order(tmp_path: Path) -> None:
    """Calls that end in reverse order change nothing."""
    pupil = Pupil(takes=lambda number: 4.0 - number, says=lambda n, _: f"<answer>{n}</answer>")
    ran = asked(quiz(tmp_path, 4, entry={"workers": 4}), pupil)
    assert [row.index for row in ran.rows] == [0, 1, 2, 3]
    assert [question.agent_answer for question in ran.questions] == ["0", "1", "2", "3"]
    assert [question.answer_listed for question in ran.questions] == [False] * 4
    ends = [event.index for event in ran.events if event.name == "incorrect"]
    assert ends == [3, 2, 1, 0]


def test_qe_33_a_call_that_raises_affects_no_other_question(tmp_path: Path) -> None:
    """The task is an error, and all results exist."""
    pupil = Pupil(says=lambda n, _: ProviderError("bad_request", "no") if n == 1 else RIGHT)
    ran = asked(quiz(tmp_path, 3), pupil)
    assert ran.outcomes == ["correct", "runtime_error", "correct"]
    assert ran.end == {"status": "error", "reason": "runtime_error"}
    error = ran.questions[1].run_error
    assert error is not None
    assert (error.kind, error.message, error.retryable) == ("bad_request", "no", False)


def _steps(pupil_steps: dict[int, int], **more: Any) -> Callable[[int, int], Any]:
    """Return a model that calls a tool several times before it answers."""

    def says(number: int, step: int) -> Any:
        if step < pupil_steps.get(number, 0):
            return calls_tool("glance")
        return more.get(f"q{number}", RIGHT)

    return says


@pytest.fixture
def tools(tmp_path: Path) -> list[dict[str, Any]]:
    """Return a tool that runs in a process; with virtual time, models call an unknown tool instead."""
    (tmp_path / "look.py").write_text(
        "def look(arguments):\n"
        "    if arguments.get('fails'):\n"
        "        raise ValueError('it is dark')\n"
        "    return {'seen': arguments}\n"
    )
    return [{"name": "look", "target": f"file://{tmp_path}/look.py:look"}]


def test_qe_34_a_budget_stop_beside_a_wrong_answer(tmp_path: Path, tools: Any) -> None:
    """The budget determines the reason of the failure."""
    document = quiz(tmp_path, entry={"tools": tools, "budget": {"maxSteps": 1}})
    ran = asked(document, Pupil(says=_steps({0: 1}, q1=WRONG)))
    assert ran.outcomes == ["budget_exceeded", "incorrect"]
    assert ran.end == {"status": "fail", "reason": "budget_exceeded"}
    assert [row.status for row in ran.rows] == [Status.FAIL, Status.FAIL]


def test_qe_35_a_runtime_error_comes_before_a_budget_stop(tmp_path: Path, tools: Any) -> None:
    """Both together make the task an error."""
    document = quiz(tmp_path, entry={"tools": tools, "budget": {"maxSteps": 1}})
    ran = asked(document, Pupil(says=_steps({0: 1}, q1=ProviderError("server", "down", retries=0))))
    assert ran.outcomes == ["budget_exceeded", "runtime_error"]
    assert ran.end == {"status": "error", "reason": "runtime_error"}
    error = ran.questions[1].run_error
    assert error is not None
    assert error.retryable


def test_qe_36_the_number_of_steps_is_bounded_without_interruption(
    tmp_path: Path, tools: Any
) -> None:
    """Two complete steps are made, and the third is not started."""
    document = quiz(tmp_path, 1, entry={"tools": tools, "budget": {"maxSteps": 2}})
    pupil = Pupil(says=_steps({0: 5}))
    ran = asked(document, pupil)
    assert ran.outcomes == ["budget_exceeded"]
    (question,) = ran.questions
    assert (question.steps, question.attempts, pupil.over) == (2, 2, 2)
    assert question.tokens_total == 30
    assert question.run_error is not None
    assert question.run_error.kind == "budget_exceeded"
    assert question.run_error.message == "2 steps made, 2 allowed (budget.maxSteps)"
    (row,) = ran.rows
    assert row.reply is not None
    assert row.reply.usage.total == 30
    assert row_json(row, "e")["tokenUsage"]["numRequests"] == 2


def test_qe_37_the_time_budget_stops_between_steps(tmp_path: Path, tools: Any) -> None:
    """A call of 30 seconds ends, and no further call is made after the 5 allowed seconds."""
    document = quiz(tmp_path, 1, entry={"tools": tools, "budget": {"maxSeconds": 5}})
    pupil = Pupil(says=_steps({0: 5}), takes=lambda _: 30.0)
    ran = asked(document, pupil)
    assert ran.outcomes == ["budget_exceeded"]
    assert (pupil.over, ran.ended_at) == (1, 30)
    assert ran.questions[0].wall_time_s == 30


def test_the_token_budget_stops_between_steps_and_includes_its_bound(
    tmp_path: Path, tools: Any
) -> None:
    """After 30 tokens of 30 there is another step, but not after 45."""
    document = quiz(tmp_path, 1, entry={"tools": tools, "budget": {"maxTokens": 30}})
    ran = asked(document, Pupil(says=_steps({0: 9})))
    assert (ran.questions[0].steps, ran.questions[0].tokens_total) == (3, 45)
    document = quiz(tmp_path, 1, entry={"tools": tools, "budget": {"maxTokens": 30}})
    ran = asked(document, Pupil(says=_steps({0: 2})))
    assert ran.outcomes == ["correct"]


def test_qe_38_the_hard_limit_interrupts_a_call(tmp_path: Path) -> None:
    """It ends after ten of thirty seconds."""
    document = quiz(tmp_path, 1, evaluateOptions={"timeoutMs": 10_000})
    ran = asked(document, Pupil(takes=lambda _: 30.0))
    assert ran.outcomes == ["runtime_error"]
    (question,) = ran.questions
    assert question.run_error is not None
    assert (question.run_error.kind, ran.ended_at) == ("timed_out", 10.0)
    assert question.wall_time_s == 10.0


def test_qe_39_fail_fast_skips_the_rest(tmp_path: Path) -> None:
    """The third of ten fails: none of the other seven starts."""
    pupil = Pupil(says=lambda n, _: ProviderError("bad_request", "no") if n == 2 else RIGHT)
    ran = asked(quiz(tmp_path, 10, entry={"failFast": True}), pupil)
    assert ran.outcomes == ["correct", "correct", "runtime_error", *["skipped"] * 7]
    assert sorted(pupil.asked) == [0, 1, 2]
    assert ran.end == {"status": "error", "reason": "runtime_error"}
    assert [row.outcome for row in ran.rows[3:]] == ["not_run"] * 7
    assert ran.rows[3].error == "skipped: row 2 failed first (failFast)"
    assert ran.names(9) == ["queued", "skipped"]


def test_a_wrong_answer_does_not_fail_fast(tmp_path: Path) -> None:
    """A reply without an answer does not either: both are results."""
    ran = asked(quiz(tmp_path, 3, entry={"failFast": True}), Pupil(says=lambda *_: "no idea"))
    assert ran.outcomes == ["parse_error"] * 3
    assert ran.questions[0].parse_error is not None
    assert ran.questions[0].parse_error.kind == "missing_answer"
    assert ran.end == {"status": "fail", "reason": "incorrect_answers"}


def test_fail_fast_stops_only_its_own_task(tmp_path: Path) -> None:
    """Another task of the same suite runs to its end."""
    document = quiz(tmp_path, 3, entry={"failFast": True})
    (first,) = document["tasks"]
    document["tasks"].append({**first, "id": "other", "failFast": False})
    pupil = Pupil(says=lambda n, _: ProviderError("bad_request", "") if n == 0 else RIGHT)
    ran = asked(document, pupil)
    by_task = {
        task: [q.outcome for row in ran.rows if row.task == task and (q := question_of(row))]
        for task in ("quiz", "other")
    }
    assert by_task["quiz"][0] == by_task["other"][0] == "runtime_error"
    assert "skipped" in by_task["quiz"]
    assert by_task["other"][1:] == ["correct", "correct"]


def test_qe_40_missing_questions_and_an_unreadable_file(tmp_path: Path) -> None:
    """A task without questions is an error; an unreadable file is reported before the run."""
    pupil = Pupil()
    ran = asked(quiz(tmp_path), pupil, filters=Filters(pattern=compile_javascript("nothing")))
    assert ran.end == {"status": "error", "reason": "no_questions"}
    assert [event.name for event in ran.events] == [
        "run_start",
        "task_start",
        "task_end",
        "run_end",
    ]
    assert (ran.rows, pupil.requests) == ([], [])
    for text in ('{"version": 1, "questions": []}', "not json"):
        document = quiz(tmp_path)
        (tmp_path / "questions.json").write_text(text)
        with pytest.raises(SuiteError) as caught:
            asked(document, Pupil())
        assert "questions.json" in str(caught.value)


@attrs.define
class _Limits:
    """A function that opens limits in memory during the run, and keeps a reference."""

    limits: list[SharedLimit]
    uses: list[LimitKey]
    opened: MemoryLimits | None = None

    def __call__(self, prepared: Any) -> dict[str, Permits]:
        self.opened = MemoryLimits(self.limits)
        return {
            spec.name: self.opened.permits(spec.name, self.uses) for spec in prepared.lane_specs
        }


def _two_at_once() -> _Limits:
    limit = SharedLimit(key="pupils:concurrency", kind="concurrency", capacity=2, timeout=60)
    return _Limits([limit], [LimitKey("pupils:concurrency", "slots")])


def test_qe_41_a_cancelled_run_leaves_results_and_no_leases(tmp_path: Path) -> None:
    """Two run and three wait for the limit: five are cancelled at once, and nothing is held."""
    limits = _two_at_once()

    async def around(go: Callable[..., Awaitable[None]], ran: Ran) -> None:
        with trio.move_on_after(3):
            await go()
        ran.ended_at = trio.current_time()

    document = quiz(tmp_path, 5, entry={"workers": 5}, evaluateOptions={"maxConcurrency": 5})
    pupil = Pupil(takes=lambda _: 60.0)
    ran = asked(document, pupil, permits=limits, around=around)
    assert ran.outcomes == ["cancelled"] * 5
    assert ran.ended_at == 3
    assert len(pupil.requests) == 2
    kinds = {question.run_error and question.run_error.kind for question in ran.questions}
    assert kinds == {"interrupted"}
    assert ran.end == {"status": "error", "reason": "cancelled"}
    assert repr(limits.opened) == "<MemoryLimits: 0 leases, 0 waiting>"


class _CountingLimits(MemoryLimits):
    """A limit server that counts its requests."""

    def __init__(self, limits: Sequence[SharedLimit]) -> None:
        super().__init__(limits)
        self.reserved: list[LeaseRequest] = []

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        self.reserved += asks
        return await super().reserve(asks)


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize(
    ("key", "reason"), [("unknown:tokens", "unknown_limit_key"), ("few:tokens", "exceeds_capacity")]
)
def test_ql_16_and_17_a_limit_that_never_allows_a_call_is_a_runtime_error(
    tmp_path: Path, key: str, reason: str, *, is_remote: bool
) -> None:
    """The question ends at once, with the reason of the limit server, which is called once."""
    small = SharedLimit(key="few:tokens", kind="budget", capacity=10)
    uses, permits, requests = [LimitKey(key, "tokens")], dict[str, Permits](), list[LeaseRequest]()

    async def around(go: Callable[..., Awaitable[None]], _ran: Ran) -> None:
        backend = _CountingLimits([small])
        if not is_remote:
            permits["pupil"] = backend.permits("pupil", uses)
            await go()
            return
        async with open_remote(backend) as limits:
            permits["pupil"] = limits.permits("pupil", uses)
            await go()
        requests.extend(backend.reserved)

    pupil = Pupil()
    ran = asked(quiz(tmp_path, 1), pupil, permits=lambda _: permits, around=around)
    assert (ran.outcomes, ran.ended_at, pupil.requests) == (["runtime_error"], 0, [])
    assert ran.questions[0].run_error is not None
    assert ran.questions[0].run_error.kind == reason
    assert ran.end == {"status": "error", "reason": "runtime_error"}
    assert len(requests) == is_remote


def test_a_closed_lane_cancels_its_remaining_questions(tmp_path: Path) -> None:
    """A refused key is an error of its question; the others are not run."""
    document = quiz(tmp_path, 4, providers=[{"id": "pupil", "lane": {"breakerThreshold": 1}}])
    ran = asked(document, Pupil(says=lambda *_: ProviderError("auth", "wrong key")))
    assert ran.outcomes == ["runtime_error", "cancelled", "cancelled", "cancelled"]
    error = ran.questions[3].run_error
    assert error is not None
    assert error.kind == "lane_closed"
    assert ran.rows[3].outcome == "not_run"


def test_the_deadline_cancels_questions(tmp_path: Path) -> None:
    """Each question names the deadline, started or not."""
    document = quiz(tmp_path, 3, evaluateOptions={"maxEvalTimeMs": 1500})
    ran = asked(document, Pupil())
    assert ran.outcomes == ["correct", "cancelled", "cancelled"]
    kinds = [question.run_error and question.run_error.kind for question in ran.questions]
    assert kinds == [None, "deadline", "deadline"]


def test_the_budget_of_the_run_leaves_questions_for_later(tmp_path: Path) -> None:
    """They were not started, and have no result."""
    document = quiz(tmp_path, 3, evaluateOptions={"budget": {"requests": 1}})
    ran = asked(document, Pupil())
    assert ran.outcomes == ["correct", "cancelled", "cancelled"]
    error = ran.questions[2].run_error
    assert error is not None
    assert error.kind == "budget_exhausted"


def test_a_stop_of_the_run_stops_a_task_that_may_fail_fast(tmp_path: Path) -> None:
    """Running questions end; the rest is cancelled, not skipped."""
    stop = trio.Event()

    async def around(go: Callable[..., Awaitable[None]], _ran: Ran) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await trio.sleep(1.5)
            stop.set()

    ran = asked(quiz(tmp_path, 4, entry={"failFast": True}), Pupil(), around=around, stop=stop)
    assert ran.outcomes == ["correct", "correct", "cancelled", "cancelled"]


def test_a_failure_after_the_stop_of_a_run_skips_no_question(tmp_path: Path) -> None:
    """It did not stop the others, because the run was stopped already; an earlier failure does."""
    stop = trio.Event()

    async def around(go: Callable[..., Awaitable[None]], _ran: Ran) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await trio.sleep(1.5)
            stop.set()

    def outcomes(failed_at: float) -> list[str]:
        nonlocal stop
        stop = trio.Event()
        pupil = Pupil(
            says=lambda number, _: RIGHT if number else ProviderError("bad_request", "no"),
            takes=lambda number: 2.0 if number else failed_at,
        )
        document = quiz(tmp_path, 4, entry={"failFast": True, "workers": 2})
        return asked(document, pupil, around=around, stop=stop).outcomes

    assert outcomes(1.75) == ["runtime_error", "correct", "cancelled", "cancelled"]
    assert outcomes(1.25) == ["runtime_error", "correct", "skipped", "skipped"]


def test_an_interrupted_tool_counts_as_called(tmp_path: Path) -> None:
    """Calls of a tool are counted when they start."""
    (tmp_path / "slow.py").write_text("import time\n\ndef slow(_arguments):\n    time.sleep(30)\n")
    tools = [{"name": "slow", "target": f"file://{tmp_path}/slow.py:slow"}]
    document = quiz(tmp_path, 1, entry={"tools": tools}, evaluateOptions={"timeoutMs": 500})
    pupil = Pupil(says=lambda *_: calls_tool("slow"), takes=lambda _: 0.0)
    ran = asked(document, pupil, run=trio.run)
    assert ran.questions[0].tool_calls == {"slow": 1}
    assert ran.names(0)[-2:] == ["tool_start", "runtime_error"]


def test_an_empty_reply_is_retried_and_its_usage_counts(tmp_path: Path) -> None:
    """It is not a step."""
    document = quiz(tmp_path, 1, evaluateOptions={"salvageRounds": 1})

    def says(_number: int, step: int) -> Any:
        return Reply(output=None, usage=Usage(total=4), cost=0.25) if step == 0 else RIGHT

    ran = asked(document, Pupil(says=says))
    assert ran.outcomes == ["correct"]
    (question,) = ran.questions
    assert (question.steps, question.tokens_total, question.attempts) == (1, 19, 2)
    assert ran.rows[0].reply is not None
    assert ran.rows[0].reply.cost == 0.75
    names = [event.name for event in question.events]
    once = ["scheduled", "reserving", "running"]
    assert names == ["queued", *once, *once, "parsing", "correct"]


def test_a_question_that_is_retried_continues_where_it_failed(tmp_path: Path, tools: Any) -> None:
    """Its completed steps are not repeated."""

    def says(_number: int, step: int) -> Any:
        plan = [calls_tool("glance"), ProviderError("server", "down", retries=0), RIGHT]
        return plan[step]

    document = quiz(tmp_path, 1, entry={"tools": tools}, evaluateOptions={"salvageRounds": 1})
    pupil = Pupil(says=says)
    ran = asked(document, pupil)
    assert ran.outcomes == ["correct"]
    assert (ran.questions[0].steps, ran.questions[0].tool_calls) == (2, {"glance": 1})
    assert pupil.asked[0] == 3
    assert ran.questions[0].wall_time_s == 3


def test_uncounted_tokens_are_estimated(tmp_path: Path) -> None:
    """The estimate is a quarter of the characters of prompt and reply."""
    pupil = Pupil(says=lambda *_: Reply(output=RIGHT))
    ran = asked(quiz(tmp_path, 1), pupil)
    length = len(pupil.requests[0].prompt) + len(RIGHT)
    assert ran.questions[0].tokens_total == -(-length // 4)


def test_models_do_not_get_the_correct_answers(tmp_path: Path) -> None:
    """They are neither in the prompt nor among the variables."""
    pupil = Pupil()
    asked(quiz(tmp_path, 1), pupil)
    (request,) = pupil.requests
    assert request.vars == {"question": "Colour 0?", "answers": ["Red", "Blue"]}
    assert "correct" not in request.prompt


def test_templates_in_a_question_are_text(tmp_path: Path) -> None:
    """They are sent unchanged."""
    document = quiz(tmp_path, 1)
    file = tmp_path / "questions.json"
    file.write_text(file.read_text().replace('"Red"', '"{{env.HOME}} {% if %}"'))
    pupil = Pupil()
    assert asked(document, pupil).outcomes == ["correct"]
    assert "{{env.HOME}} {% if %}" in pupil.requests[0].prompt


def test_the_output_of_a_transform_is_parsed(tmp_path: Path) -> None:
    """A provider that returns data configures how to extract the text."""
    document = quiz(tmp_path, 1, providers=[{"id": "pupil", "transform": "output.said"}])
    ran = asked(document, Pupil(says=lambda *_: Reply(output={"said": RIGHT})))
    assert ran.outcomes == ["correct"]
    assert ran.rows[0].output == RIGHT


def test_qe_50_the_events_of_a_question_without_waits(tmp_path: Path) -> None:
    """There are six events, in order, which are stored with the row."""
    ran = asked(quiz(tmp_path, 1), Pupil())
    life = ["queued", "scheduled", "reserving", "running", "parsing", "correct"]
    assert ran.names(0) == life
    assert [event.name for event in ran.questions[0].events] == life
    assert list(ran.questions[0].events) == [event for event in ran.events if event.index == 0]
    assert [event.sequence for event in ran.events] == list(range(len(ran.events)))
    assert {event.job for event in ran.events if event.index == 0} == {"quiz-1"}
    assert ran.events[-3].details == {"answer": "Blue"}


def test_all_questions_are_queued_first(tmp_path: Path) -> None:
    """They are queued in index order, before any of them is scheduled."""
    ran = asked(quiz(tmp_path, 5, entry={"workers": 3}), Pupil())
    names = [event.name for event in ran.events]
    assert names[:7] == ["run_start", "task_start", *["queued"] * 5]
    assert [event.index for event in ran.events[2:7]] == [0, 1, 2, 3, 4]


def test_qe_51_a_limit_without_room_is_reported_once(tmp_path: Path) -> None:
    """The event contains the delay and the limit; then the question is reserved."""
    limit = SharedLimit(key="pupils:rpm", kind="rolling", capacity=1, window=60)
    limits = _Limits([limit], [LimitKey("pupils:rpm", "requests")])
    ran = asked(quiz(tmp_path, 2), Pupil(), permits=limits)
    wait = "waiting_rate_limit"
    life = ["queued", "scheduled", "reserving", wait, "reserving", "running", "parsing", "correct"]
    assert ran.names(1) == life
    (waited,) = [event for event in ran.events if event.name == wait]
    assert waited.details["keys"] == ["pupils:rpm"]
    assert waited.details["retry_after_ms"] == 59_000
    assert ran.questions[1].wait_s == 59
    assert ran.ended_at == 61


def test_a_wait_for_a_full_lane_is_reported_as_such(tmp_path: Path) -> None:
    """With more workers than slots the second question waits for its lane, not for a limit."""
    document = quiz(
        tmp_path,
        1,
        entry={"workers": 4},
        providers=[{"id": "pupil", "lane": {"rpm": 60}}],
        evaluateOptions={"salvageRounds": 0},
    )
    pupil = Pupil(says=lambda _, step: ProviderError("server", "down") if step == 0 else RIGHT)
    ran = asked(document, pupil)
    waits = [event for event in ran.events if event.name.startswith("waiting")]
    assert waits[0].name == "waiting_lane"
    assert waits[0].details["why"] == "backoff"
    assert ran.outcomes == ["correct"]


def test_a_question_that_was_refused_as_rate_limited_waits_for_a_rate(tmp_path: Path) -> None:
    """The event is named after the cause, a rate limit. The next question reports its wait."""
    pupil = Pupil(
        says=lambda number, step: (
            ProviderError("rate_limited", "slow down", retry_after=5.0)
            if (number, step) == (0, 0)
            else RIGHT
        ),
        takes=lambda number: 1.0 + number / 2,
    )
    ran = asked(quiz(tmp_path, 3, entry={"workers": 2}), pupil)
    waited = next(event for event in ran.events if event.name.startswith("waiting"))
    assert (waited.name, waited.index) == ("waiting_rate_limit", 0)
    wait_ms = waited.details["retry_after_ms"]
    assert waited.details["why"] == "backoff"
    assert isinstance(wait_ms, float)
    assert wait_ms >= 5000
    late = [event.details for event in ran.events if event.name == "scheduled"][2]
    assert late == {"waited_ms": 4500, "reasons": ["blocked"]}
    assert ran.questions[2].wait_s == 4.5


def test_qe_52_tools_are_reported_with_their_duration_and_error(tmp_path: Path, tools: Any) -> None:
    """Each start has its finish; a failure contains the reason, and the model continues."""

    def says(_number: int, step: int) -> Any:
        replies = [calls_tool("look", "glance"), calls_tool("look", fails=True), RIGHT]
        return replies[step]

    pupil = Pupil(says=says, takes=lambda _: 0.0)
    ran = asked(quiz(tmp_path, 1, entry={"tools": tools}), pupil, run=trio.run)
    details_of_events: list[tuple[str, dict[str, Any]]] = [
        (event.name, dict(event.details)) for event in ran.events if "tool_" in event.name
    ]
    took = [
        details.pop("duration_ms") for name, details in details_of_events if name == "tool_finish"
    ]
    assert [ms > 0 for ms in took] == [True, True, True]
    unknown = 'the call of glance names an unknown function; offered functions are: "look"'
    assert details_of_events[:5] == [
        ("tool_start", {"name": "look"}),
        ("tool_finish", {"name": "look"}),
        ("tool_start", {"name": "glance"}),
        ("tool_finish", {"name": "glance", "error": unknown}),
        ("tool_start", {"name": "look"}),
    ]
    assert "it is dark" in details_of_events[5][1]["error"]
    assert ran.outcomes == ["correct"]
    assert ran.questions[0].tool_calls == {"look": 2, "glance": 1}
    assert ran.names(0)[3:6] == ["running", "tool_start", "tool_finish"]
    first, second, third = (request.prompt for request in pupil.requests)
    asked_first, said, seen, refused = json.loads(second)
    assert asked_first == {"role": "user", "content": first}
    assert [call["id"] for call in said["tool_calls"]] == ["call-0", "call-1"]
    assert (seen["tool_call_id"], json.loads(seen["content"])) == ("call-0", {"seen": {}})
    assert refused == {"role": "tool", "tool_call_id": "call-1", "content": unknown}
    assert "it is dark" in json.loads(third)[-1]["content"]


def test_qe_53_an_observer_that_raises_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run continues without it."""
    seen = []

    def observe(event: Any) -> None:
        seen.append(event)
        if event.name == "running":
            raise RuntimeError("no more")

    with caplog.at_level(logging.ERROR):
        ran = asked(quiz(tmp_path, 3), Pupil(), questions=observe)
    assert ran.outcomes == ["correct"] * 3
    assert len(caplog.records) == 1
    assert [event.name for event in seen].count("running") == 1
    assert [event.name for event in ran.questions[2].events][-2:] == ["parsing", "correct"]


def test_an_observer_of_the_kernel_that_raises_loses_no_event(tmp_path: Path) -> None:
    """The events of questions are recorded by the run itself."""

    def observe(_event: Any) -> None:
        raise RuntimeError("no")

    ran = asked(quiz(tmp_path, 1), Pupil(), observe=observe)
    assert ran.names(0)[-2:] == ["parsing", "correct"]


def test_recorded_steps_are_not_repeated(tmp_path: Path, tools: Any) -> None:
    """A question that was interrupted continues with its second step, and stops at the same step."""
    document = quiz(tmp_path, 1, entry={"tools": tools, "budget": {"maxSeconds": 2.5}})
    pupil = Pupil(says=_steps({0: 9}), takes=lambda _: 1.0)
    whole = asked(document, pupil)
    assert whole.questions[0].steps == 3
    for cut_at in (0.5, 1.5, 2.5):
        notes = Notes()

        async def around(
            go: Callable[..., Awaitable[None]], _ran: Ran, cut_at: float = cut_at
        ) -> None:
            with trio.move_on_after(cut_at):
                await go()

        first = Pupil(says=_steps({0: 9}))
        ran = asked(document, first, around=around, journal=notes)
        assert ran.outcomes == ["cancelled"]
        second = Pupil(says=_steps({0: 9}))
        again = asked(document, second, journal=notes.next())
        assert first.over + second.over == 3
        (one,), (other,) = whole.questions, again.questions
        assert (one.outcome, one.steps, one.tokens_total) == (
            other.outcome,
            other.steps,
            other.tokens_total,
        )
        assert one.attempts == other.attempts


def test_rows_are_stored_before_their_end_is_reported(tmp_path: Path) -> None:
    """The journal contains the row before the event of its outcome is reported."""
    notes, seen = Notes(), []

    def observe(event: Any) -> None:
        if event.name == "correct":
            seen.append([row.index for row in notes.rows])

    asked(quiz(tmp_path, 3), Pupil(), journal=notes, questions=observe)
    assert seen == [[0], [0, 1], [0, 1, 2]]


def test_an_outcome_is_reported_when_its_row_is_stored_and_not_in_order(tmp_path: Path) -> None:
    """Replies and rows take time to store; a long first question delays no other."""
    notes, seen = Notes(lasts=0.25), []

    def observe(event: Any) -> None:
        if event.name == "correct":
            safe = [row.index for row in notes.writes[: notes.durable_at] if isinstance(row, Row)]
            seen.append((trio.current_time(), event.index, event.at, safe))

    pupil = Pupil(takes=lambda number: [10.0, 1.0, 2.0][number])
    ran = asked(quiz(tmp_path, 3, entry={"workers": 3}), pupil, journal=notes, questions=observe)
    assert seen == [
        (1.5, 1, 1.25, [1]),
        (2.5, 2, 2.25, [1, 2]),
        (10.5, 0, 10.25, [1, 2, 0]),
    ]
    assert [row.index for row in ran.rows] == [0, 1, 2]


def test_outcomes_of_a_cancelled_run_are_reported_once_before_its_task_ends(tmp_path: Path) -> None:
    """This holds although single rows are no longer awaited."""
    notes = Notes(lasts=0.25)

    async def around(go: Callable[..., Awaitable[None]], _ran: Ran) -> None:
        with trio.move_on_after(3.5):
            await go()

    document = quiz(tmp_path, 6, entry={"workers": 2})
    ran = asked(document, Pupil(takes=lambda _: 2.0), around=around, journal=notes)
    assert ran.outcomes == ["correct"] * 2 + ["cancelled"] * 4
    assert [ran.names(index)[-1] for index in range(6)] == ran.outcomes
    details_of_events = [
        event.index for event in ran.events if event.name in {"correct", "cancelled"}
    ]
    assert sorted(str(index) for index in details_of_events) == list("012345")
    assert ran.events[-2].name == "task_end"


def test_a_recorded_reply_is_parsed_without_a_reservation(tmp_path: Path) -> None:
    """A resumed question with a recorded reply makes no call."""
    document = quiz(tmp_path, 2)
    notes = Notes()
    asked(document, Pupil(), journal=notes)
    again = Pupil()
    ran = asked(document, again, journal=notes.next(keeps=lambda row: row.index == 0))
    assert not again.asked
    assert ran.names(1) == ["queued", "scheduled", "parsing", "correct"]
    assert ran.names(0) == []
    assert ran.end == {"status": "pass", "reason": None}
    assert ran.questions[0].attempts == 1
