"""Recorded attempts are read as they were written, and mixed with no others."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.agent.attempts import (
    attempt_end,
    attempt_reply,
    case_reply,
    reported_attempts,
    with_cut_attempt,
    with_row_outcome,
)
from trioeval.agent.case_folder import CaseFiles
from trioeval.agent.loop import LoopEnd
from trioeval.agent.report_file import InvalidReports, cut_off_attempt, set_aside
from trioeval.agent.restarts import AttemptEnd, AttemptFailure
from trioeval.providers import Reply
from trioeval.usage import Usage

KINDS = ("exit", "timeout", "killed", "auth", "invalid", "reported", "unexpected")
COUNTS = st.none() | st.integers(0, 2**53)
COSTS = st.none() | st.floats(0, 1e6)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-9, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ENDS = st.builds(
    AttemptEnd,
    output=JSON,
    failure=st.none() | st.builds(AttemptFailure, st.sampled_from(KINDS), st.text()),
    exit_code=st.none() | st.integers(-64, 255),
    usage=st.builds(Usage, prompt=COUNTS, completion=COUNTS, total=COUNTS, reasoning=COUNTS),
    cost=COSTS,
    duration_s=st.floats(0, 1e5),
    children_ended=COUNTS.map(lambda count: count or 0),
    metadata=st.dictionaries(st.text(), JSON, max_size=3),
)


@settings(max_examples=settings().max_examples // 2)
@given(ENDS, st.booleans())
def test_a_recorded_attempt_is_read_as_it_was_written(end: AttemptEnd, spent: bool) -> None:  # noqa: FBT001
    """This holds for the journal in memory and for JSON; usage is counted if it is recorded only there."""
    reply = attempt_reply(end, spent=spent)
    assert attempt_end(reply) == end
    read = attrs.evolve(reply, metadata=json.loads(json.dumps(reply.metadata)))
    assert attempt_end(read) == end
    assert (reply.usage, reply.cost) == ((end.usage, end.cost) if spent else (Usage(), None))


def test_a_reply_that_is_not_an_attempt_is_ignored() -> None:
    assert attempt_end(Reply(output="x")) is None
    assert attempt_end(Reply(output="x", metadata={"attempt": 3})) is None


@pytest.mark.slow
@given(st.lists(ENDS, max_size=4))
@settings(max_examples=settings().max_examples // 4)
def test_a_case_has_its_last_output_and_the_usage_of_all_attempts(
    ends: list[AttemptEnd],
) -> None:
    """The reply has them as JSON data; unknown facts are left out."""
    end = LoopEnd(ending="done", message="done", attempts=tuple(ends), children_ended=2)
    reply = case_reply(end, {"case": "calc"})
    assert reply.output == (ends[-1].output if ends else "")
    costs = [one.cost for one in ends if one.cost is not None]
    assert reply.cost == (sum(costs) if costs else None)
    totals = [one.usage.reported for one in ends if one.usage.reported is not None]
    assert reply.usage.total == (sum(totals) if totals else None)
    stored = json.loads(json.dumps(reply.metadata["agent"]))
    assert (stored["case"], stored["outcome"], stored["childrenEnded"]) == ("calc", "done", 2)
    assert "gaveUp" not in stored
    assert [one["ok"] for one in stored["attempts"]] == [one.failure is None for one in ends]


@pytest.mark.parametrize(("outcome", "words"), [("failed", "failed"), ("timed_out", "timed out")])
def test_a_case_whose_row_failed_is_not_called_interrupted(outcome: str, words: str) -> None:
    """Interrupted and finished attempts are not changed."""
    so_far = LoopEnd(ending="interrupted", message="interrupted after 1 attempt", attempts=())
    reply = case_reply(so_far, {"case": "interrupted"})
    stored = with_row_outcome(reply, outcome).metadata["agent"]
    assert (stored["outcome"], stored["message"]) == (outcome, f"{words} after 1 attempt")
    assert stored["case"] == "interrupted"
    assert with_row_outcome(reply, "interrupted") is reply
    done = case_reply(attrs.evolve(so_far, ending="done", message="done"), {})
    assert with_row_outcome(done, outcome) is done


def test_unusable_reports_are_logged_once() -> None:
    """Valid reports are not counted."""
    troubles, warnings = InvalidReports(), list[str]()
    troubles.add("t/a", 0, ())
    troubles.report_to(warnings.append)
    troubles.add("t/b", 1, ["it is empty", "it is small"])
    troubles.report_to(warnings.append)
    troubles.add("t/c", 0, ["it is late"])
    troubles.report_to(warnings.append)
    first = "t/b, attempt 1: it is empty"
    several = "2 reports of agents are invalid (see `trioeval show`)"
    assert warnings == [
        f"a report of an agent is invalid: {first}",
        f"{several}; the first is that of {first}",
    ]


def test_an_interrupted_attempt_is_listed_after_the_others(tmp_path: Path) -> None:
    """It has its reported usage for each of its starts; starts without a report are left out."""
    files = CaseFiles(tmp_path)
    files.logs.mkdir()
    assert cut_off_attempt(files, 0) is None
    files.report(0).write_text('{"tokens": 70, "cost": 0.5}')
    set_aside(files, 0)
    once = cut_off_attempt(files, 0)
    assert once is not None
    assert (once.usage.total, once.cost) == (70, 0.5)
    files.report(0).write_text('{"tokens": 5}')
    twice = cut_off_attempt(files, 0)
    assert twice is not None
    alone = with_cut_attempt(None, twice)
    assert (alone.usage.total, alone.cost) == (75, 0.5)
    assert alone.metadata["agent"]["message"] == "interrupted in attempt 0"
    so_far = LoopEnd(
        ending="interrupted", message="m", attempts=(AttemptEnd(output="x", cost=1.0),)
    )
    both = with_cut_attempt(case_reply(so_far, {}), twice)
    assert (both.output, both.usage.total, both.cost) == ("x", 75, 1.5)
    attempts = both.metadata["agent"]["attempts"]
    assert [(one["number"], one["ok"]) for one in attempts] == [(0, True), (1, False)]
    assert attempts[1]["failure"] == {"kind": "killed", "message": "cut off"}
    assert reported_attempts(both) == 2
