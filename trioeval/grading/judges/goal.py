"""Whether the steps that were taken reached a goal."""

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.grading.judges.rubric import SCHEMA, WANTED, found_by, read_verdict
from trioeval.grading.judges.shapes import is_text, text_kind
from trioeval.grading.kind import Finding, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.strict_reading import ask, names_of
from trioeval.grading.subject import Subject
from trioeval.grading.traces import trace_of
from trioeval.grading.trajectories import trajectory_summary


async def _judge(subject: Subject, value: Any, assertion: Assertion, outside: Outside) -> Finding:
    names = names_of(
        goal=_goal(value),
        output=subject.text,
        trajectory=trajectory_summary(trace_of(subject)),
    )
    read = functools.partial(read_verdict, threshold=assertion.threshold, lenient=outside.lenient)
    prompt = outside.grader.render(own_prompt("goal_success"), names)
    found = found_by(await ask(outside, prompt, read, wanted=WANTED, schema=SCHEMA))
    return attrs.evolve(found, negated=float(not found.holds))


def _goal(value: Any) -> str:
    goal: str = value["goal"] if isinstance(value, Mapping) else value
    return goal.strip()


def _is_goal(value: Any) -> bool:
    return is_text(value.get("goal") if isinstance(value, Mapping) else value)


KINDS: Kinds = {
    "trajectory:goal-success": text_kind(
        _judge, right='a goal: text that is not empty, or {"goal": text}', accepts=_is_goal
    ),
}
"""By name."""
