"""Generated runs of any size: rows are created when they are read, so none is stored."""

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from finished import headed, records_of, results_of, rows_of

import trioeval
from trioeval.kernel.events import (
    CallEnded,
    CallStarted,
    LimitChanged,
    Throttled,
    Waiting,
    WaitReason,
)
from trioeval.report.activity import Activity
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo
from trioeval.report.totals import Totals
from trioeval.suite.expand import expand

_WORDS = """capital river answer because which largest city province therefore question number people
live there according last census mountain lake bridge between both sides""".split()  # noqa: SIM905
_SUITE = {
    "description": "General knowledge, spring",
    "providers": [
        {"id": "mine", "label": "openai:gpt-6-mini"},
        {"id": "mine", "label": "anthropic:haiku-5"},
    ],
    "prompts": [{"raw": "Answer in a sentence: {{question}}", "label": "one sentence"}],
    "tests": [
        {
            "vars": {"question": "Which?"},
            "assert": [
                {"type": "contains", "value": "a", "metric": "names it"},
                {"type": "equals", "value": "The largest city is there."},
            ],
        }
    ],
}


async def _answers(request: trioeval.Request) -> trioeval.Reply:
    usage = trioeval.Usage(prompt=2, completion=3, total=5)
    return trioeval.Reply(output="an answer", usage=usage, cost=0.5, finish_reason="stop")


def made_results(tests: int, *, seed: int = 0, activity: bool = True, words: int = 40) -> Results:
    """Return a run of two columns: of ten rows about seven pass, two fail and one is an error.

    Args:
        tests: The number of tests; there are twice as many rows.
        seed: Another seed gives other outputs of the same tests.
        activity: Whether it has the activity of lanes.
        words: The length of an output, about.
    """
    suite, rows = rows_of(_SUITE, _answers)
    pattern = records_of(rows)

    def read(column: int | None) -> Iterator[Mapping[str, Any]]:
        for test_idx in range(tests):
            for number, record in enumerate(pattern):
                if column is None or column == number:
                    yield _row(record, test_idx, seed, words)

    totals = Totals.of(expand(suite).columns)
    for record in read(None):
        totals.add(RowRecord.of(record))
    empty = results_of({"providers": ["echo"], "prompts": ["x"]})
    return attrs.evolve(
        empty,
        head=attrs.evolve(headed(suite), eval_id=f"e{seed}"),
        totals=totals,
        records=read,
        info=RunInfo(
            utc_exported="2026-01-01T00:00:01+00:00",
            duration_ms=44_000.0,
            activity=[made_activity()] if activity else [],
        ),
    )


def _row(pattern: Mapping[str, Any], test_idx: int, seed: int, words: int) -> dict[str, Any]:
    known = random.Random(test_idx)  # noqa: S311 - no secrets
    chance = random.Random(f"{seed} {test_idx} {pattern['promptIdx']}")  # noqa: S311
    question = f"Question {test_idx}: which {' '.join(known.choices(_WORDS, k=8))}?"
    answer = " ".join(
        ["The", *chance.choices(_WORDS, k=chance.randint(words // 2, words * 3 // 2))]
    )
    ending = chance.random()
    record = copy.deepcopy(dict(pattern))
    record["testIdx"], record["vars"] = test_idx, {"question": question}
    record["testCase"]["vars"] = {"question": question}
    record["prompt"]["raw"] = f"Answer in a sentence: {question}"
    record["latencyMs"] = round(300 + chance.lognormvariate(6, 0.7))
    tokens = len(answer) // 4
    record["tokenUsage"]["total"] = record["response"]["tokenUsage"]["total"] = 20 + tokens
    record["cost"] = 0.000_02 * tokens
    record["response"]["output"] = answer
    graded = record["gradingResult"]
    for part, passed in zip(graded["componentResults"], (True, ending < 0.7), strict=True):
        part["pass"], part["score"] = passed, float(passed)
        part["reason"] = "as it should be" if passed else 'the output does not equal "The largest…"'
    record["success"] = graded["pass"] = ending < 0.7
    record["score"] = graded["score"] = 1.0 if ending < 0.7 else 0.5
    record["namedScores"] = {"names it": round(chance.random(), 3)}
    record["metadata"]["trioeval"]["waits"] = {"tokens": 1.5, "slot": 0.25}
    record["failureReason"] = 0 if ending < 0.7 else 1
    record["error"] = None if ending < 0.7 else 'the output does not equal "The largest…"'
    if ending > 0.9:
        record |= {"failureReason": 2, "response": None, "gradingResult": None, "score": 0.0}
        record |= {"error": "server: the upstream is overloaded", "namedScores": {}}
    return record


def made_activity() -> Mapping[str, Any]:
    """Return the activity of two lanes in 44 seconds."""
    activity = Activity(began_at=0.0)
    for lane, most, why in (
        ("openai:gpt-6-mini", 8, WaitReason.TOKENS),
        ("anthropic:haiku-5", 4, WaitReason.PACE),
    ):
        at = 0.0
        activity.observe(LimitChanged(at, lane, most, most))
        for number in range(300):
            at = number * 0.145
            activity.observe(CallStarted(at, number, lane))
            if number >= most:
                _end(activity, at + 0.01, lane, number - most)
            if number in {90, 91, 92}:
                activity.observe(Throttled(at, number, lane, None, at + 1))
                activity.observe(LimitChanged(at, lane, most // 2, most // 2))
            if number % 20 == 10:
                activity.observe(Waiting(at + 0.02, lane, why, None, number))
            if number % 50 == 40:
                activity.observe(Waiting(at + 0.05, lane, WaitReason.SLOT, None, number))
    return activity.json(44.0)


def _end(activity: Activity, at: float, lane: str, number: int) -> None:
    activity.observe(CallEnded(at, number, lane, tokens=90, money=0.001))
