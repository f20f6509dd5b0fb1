"""Replies of judges are paid for once, and are reported however the row ends."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio

import trioeval
from trioeval import Reply, Request, Row, Status, parse_suite
from trioeval.errors import ProviderError
from trioeval.testing import run_virtual

GOOD = json.dumps({"pass": True, "score": 1, "reason": "r", "steps": ["a"], "index": 0})

PANEL = {"type": "llm-rubric", "value": "x", "config": {"repeat": 5}}
CRITERIA = {"type": "g-eval", "value": ["x", "y"]}
CHOICES = {
    "type": "select-best",
    "value": "x",
    "config": {"repeat": 3, "swap": True},
    "rubricPrompt": "{{outputs[0]}}",
}


class Judge:
    """Returns numbered replies; one of its requests fails transiently, or none."""

    def __init__(self, fails: int, seconds: float = 0.0) -> None:
        self.fails = fails
        self.seconds = seconds
        self.prompts: list[str] = []
        self.paid: list[str] = []

    async def __call__(self, request: Request) -> Reply:
        self.prompts.append(request.prompt)
        number = len(self.prompts)
        await trio.sleep(self.seconds)
        if number == self.fails:
            raise ProviderError("server", "503")
        reply = self.says(request.prompt) | {"reason": f"r{number}"}
        self.paid.append(json.dumps(reply))
        return Reply(output=self.paid[-1], cost=0.25)

    def says(self, prompt: str) -> dict[str, Any]:
        return {"pass": True, "score": 1, "steps": ["a"], "index": int(prompt != "abc")}


def rows_of(
    assertion: Mapping[str, Any],
    judge: Any,
    *,
    rounds: int = 0,
    lane: Mapping[str, Any] | None = None,
    prompts: tuple[str, ...] = ("abc",),
    options: Mapping[str, Any] | None = None,
) -> list[Row]:
    async def model(request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(output=request.prompt)

    provider = {"id": "judge", "lane": {"maxConcurrency": 1, "retries": 0, **(lane or {})}}
    suite = parse_suite(
        {
            "providers": ["model"],
            "prompts": list(prompts),
            "evaluateOptions": {"salvageRounds": rounds, **(options or {})},
            "tests": [{"assert": [{**assertion, "provider": provider}]}],
        },
        environ={},
    )
    providers = {"model": model, "judge": judge}
    return run_virtual(lambda: trioeval.collect(suite, providers=providers))


@pytest.mark.parametrize("fails", [1, 4])
@pytest.mark.parametrize("width", [1, 9])
@pytest.mark.parametrize(("assertion", "paid"), [(PANEL, 5), (CRITERIA, 4), (CHOICES, 6)])
def test_recorded_replies_are_not_requested_again(
    assertion: Mapping[str, Any], paid: int, width: int, fails: int
) -> None:
    """With a transient failure and one more round, each question is paid for once, each reply reported."""
    judge = Judge(fails)
    prompts = ("abc", "d") if assertion is CHOICES else ("abc",)
    lane = {"maxConcurrency": width}
    rows = rows_of(assertion, judge, rounds=1, lane=lane, prompts=prompts)
    assert len(judge.paid) == paid
    assert rows[0].spent.cost == paid * 0.25
    assert rows[0].verdict is not None
    (part,) = rows[0].verdict.parts
    assert sorted(part.metadata["graderReplies"]) == sorted(judge.paid)
    assert part.spent.cost == paid * 0.25


def test_a_reply_that_cannot_be_read_is_not_paid_for_twice() -> None:
    """Only the calls after it are repeated."""

    class Rambling(Judge):
        def says(self, prompt: str) -> dict[str, Any]:
            return super().says(prompt) if "could not be used" in prompt else {}

    judge = Rambling(fails=4)
    (row,) = rows_of({**PANEL, "config": {"repeat": 3}}, judge, rounds=1)
    assert row.status is Status.PASS
    assert len(judge.paid) == 6
    assert len(judge.prompts) == 7


@pytest.mark.parametrize(("assertion", "paid"), [(PANEL, 3), (CRITERIA, 3), (CHOICES, 3)])
def test_a_row_with_a_failed_judge_reports_all_replies(
    assertion: Mapping[str, Any], paid: int
) -> None:
    """The failed judge and its error are reported as well; without weight, in the verdict."""
    prompts = ("abc", "d") if assertion is CHOICES else ("abc",)
    judge = Judge(4)
    rows = rows_of(assertion, judge, prompts=prompts)
    assert {row.status for row in rows} == {Status.ERROR}
    for row in rows:
        assert (row.details["grader"], row.details["errorKind"]) == ("judge", "server")
        assert sorted(row.details["graderReplies"]) == sorted(judge.paid[:paid])
    judge = Judge(4)
    rows = rows_of({**assertion, "weight": 0}, judge, prompts=prompts)
    assert rows[0].verdict is not None
    metadata = rows[0].verdict.parts[0].metadata
    assert sorted(metadata["graderReplies"]) == sorted(judge.paid[:paid])


def test_replies_before_an_unusable_one_are_reported() -> None:
    """They are reported in addition to those of the question that failed."""
    replies = [GOOD, GOOD, "prose", "more prose"]

    async def judge(_request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(output=replies.pop(0))

    (row,) = rows_of({**PANEL, "config": {"repeat": 3}}, judge)
    assert row.status is Status.ERROR
    assert row.details["graderReplies"] == [GOOD, GOOD, "prose", "more prose"]


@pytest.mark.parametrize("limit", ["maxEvalTimeMs", "timeoutMs"])
@pytest.mark.parametrize("assertion", [PANEL, CHOICES])
def test_an_interrupted_row_reports_its_replies(assertion: Mapping[str, Any], limit: str) -> None:
    """This holds for any cause of the interruption."""
    prompts = ("abc", "d") if assertion is CHOICES else ("abc",)
    judge = Judge(0, seconds=1)
    rows = rows_of(assertion, judge, prompts=prompts, options={limit: 2500})
    assert {(row.status, row.outcome) for row in rows} <= {
        (Status.NOT_RUN, "interrupted"),
        (Status.ERROR, "timed_out"),
    }
    assert [row.details for row in rows] == [{"graderReplies": judge.paid[:2]}] * len(rows)


def test_a_tie_reports_the_choices() -> None:
    """It explains the error."""
    replies = ['{"index": 0}', '{"index": 0}']

    async def judge(_request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(output=replies.pop(0))

    both = {**CHOICES, "config": {"swap": True}}
    for row in rows_of(both, judge, prompts=("abc", "d")):
        assert row.status is Status.ERROR
        assert row.details["choices"] == [0, 1]
        assert row.details["renderedGradingPrompt"] == "d"
        assert row.details["graderReplies"] == ['{"index": 0}'] * 2


def test_judgements_of_a_panel_are_in_the_order_of_their_calls() -> None:
    """The order is the same every time, whatever the number of concurrent calls."""
    for width in (1, 9):
        for _ in range(4):
            judge = Judge(0)
            (row,) = rows_of(PANEL, judge, lane={"maxConcurrency": width})
            assert row.verdict is not None
            (part,) = row.verdict.parts
            assert part.metadata["graderReplies"] == judge.paid
            assert [one.reason for one in part.parts] == [f"r{number}" for number in range(1, 6)]
