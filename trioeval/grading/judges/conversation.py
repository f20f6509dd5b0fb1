"""Judges of conversations: the relevance of replies, and the goal of an agent.

Each reply is judged in a window of turns that ends with it.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.judges.moderate import last_user_text
from trioeval.grading.judges.rubric import SCHEMA, WANTED, found_by, read_verdict
from trioeval.grading.judges.shapes import EPSILON, NOT_LOOKED_AT, object_of, prompt_of, text_kind
from trioeval.grading.kind import Finding, Kinds, is_anything, is_not_blank
from trioeval.grading.kinds.measures import config_check
from trioeval.grading.kinds.traces import trace_of
from trioeval.grading.kinds.trajectories import trajectory_summary
from trioeval.grading.model import Assertion
from trioeval.grading.reply_json import objects_in
from trioeval.grading.services import ExternalServices, JudgeReply, own_prompt
from trioeval.grading.strict_reading import (
    JudgeReading,
    UnusableReplyError,
    ask,
    names_of,
    reading_metadata,
    reason_of,
)
from trioeval.grading.subject import Subject
from trioeval.text import number_text, output_text, quote

# Whether the steps of an agent reached a goal.


async def _goal_judge(
    subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    names = names_of(
        goal=_goal(value),
        output=subject.text,
        trajectory=trajectory_summary(trace_of(subject)),
    )
    read = functools.partial(read_verdict, threshold=assertion.threshold, lenient=outside.lenient)
    prompt = outside.grader.render(own_prompt("goal_success"), names)
    found = found_by(await ask(outside, prompt, read, expected=WANTED, schema=SCHEMA))
    return attrs.evolve(found, negated=float(not found.holds))


def _goal(value: Any) -> str:
    goal: str = value["goal"] if isinstance(value, Mapping) else value
    return goal.strip()


def _is_goal(value: Any) -> bool:
    return is_not_blank(value.get("goal") if isinstance(value, Mapping) else value)


THRESHOLD = 0.5
WINDOW = 5

RELEVANT_SCHEMA = object_of(
    {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": ["yes", "no"]}}
)

Turn = Mapping[str, Any]


def read_relevant(answer: JudgeReply) -> tuple[bool, str]:
    """Return the verdict in a reply, and the reason.

    Raises:
        UnusableReplyError: The verdict is neither yes nor no.
    """
    found = next(iter(objects_in(answer)), None)
    if found is None:
        msg = "it has no JSON object"
        raise UnusableReplyError(msg)
    verdict = found.get("verdict")
    word = verdict.strip().lower() if isinstance(verdict, str) else None
    if word not in ("yes", "no"):
        msg = f"its verdict must be yes or no, got {quote(verdict)}"
        raise UnusableReplyError(msg)
    return word == "yes", reason_of(found, "the judge gives no reason")


def turns_of(subject: Subject) -> list[Turn]:
    """Return the turns of a conversation; the last one is judged.

    Raises:
        GradingError: The variable `_conversation` is not a list of turns.
    """
    last = {"input": last_user_text(prompt_of(subject)), "output": subject.text}
    before = subject.vars.get("_conversation") or []
    if not isinstance(before, list | tuple) or not all(
        isinstance(turn, Mapping) and {"input", "output"} <= turn.keys() for turn in before
    ):
        msg = (
            f"the variable _conversation must be a list of inputs with outputs, got {quote(before)}"
        )
        raise GradingError(msg)
    # Turns recorded by the run itself have prompts, and end before the turn that is judged.
    whole = before and "prompt" not in before[-1]
    return [*before] if whole else [*before, last]


def windows_of(turns: Sequence[Turn], size: int) -> list[Sequence[Turn]]:
    """Return, for each turn, the last `size` turns up to it.

    Example:
        >>> [len(window) for window in windows_of([{}] * 4, 3)]
        [1, 2, 3, 3]
    """
    return [turns[max(0, end - size) : end] for end in range(1, len(turns) + 1)]


def _transcript(window: Sequence[Turn]) -> str:
    turns = [
        f"{role}: {output_text(turn[key])}"
        for turn in window
        for role, key in (("User", "input"), ("Assistant", "output"))
    ]
    return "\n\n".join(turns)


async def _judge_window(
    window: Sequence[Turn], outside: ExternalServices
) -> JudgeReading[tuple[bool, str]]:
    messages = [{"input": turn["input"], "output": turn["output"]} for turn in window]
    names = names_of(messages=messages, __transcript=_transcript(window))
    prompt = outside.grader.render(own_prompt("conversation_relevance"), names)
    expected = 'one JSON object {"reason": text, "verdict": "yes" or "no"}'
    return await ask(outside, prompt, read_relevant, expected=expected, schema=RELEVANT_SCHEMA)


async def _judge(
    subject: Subject, _value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    windows = windows_of(turns_of(subject), _window_size(assertion))
    found: list[JudgeReading[tuple[bool, str]]] = await outside.together(
        [functools.partial(_judge_window, window, outside) for window in windows]
    )
    relevant = sum(read.value[0] for read in found)
    score = relevant / len(found)
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    reason = (
        f"{relevant} of {len(found)} replies are relevant; the threshold is {number_text(least)}"
    )
    faults = [
        f"reply {number}: {read.value[1]}"
        for number, read in enumerate(found, 1)
        if not read.value[0]
    ]
    return Finding(
        score >= least - EPSILON,
        "\n".join([reason, *faults]),
        score=score,
        metadata=reading_metadata(*found),
    )


def _window_size(assertion: Assertion) -> int:
    size: Any = (assertion.config or {}).get("windowSize")
    if size is None:
        return WINDOW
    if not _is_size(size):
        msg = f"config.windowSize must be a whole number of at least 1, got {quote(size)}"
        raise GradingError(msg)
    return size


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_check = config_check("windowSize")


def _problems(assertion: Assertion) -> Iterator[Problem]:
    yield from _check(assertion)
    size = (assertion.config or {}).get("windowSize")
    if size is not None and not _is_size(size):
        message = f"must be a whole number of at least 1, got {quote(size)}"
        yield Problem(".config.windowSize", message)


KINDS: Kinds = {
    "trajectory:goal-success": text_kind(
        _goal_judge, right='a goal: text that is not empty, or {"goal": text}', accepts=_is_goal
    ),
    "conversation-relevance": attrs.evolve(
        text_kind(_judge, right=NOT_LOOKED_AT, accepts=is_anything, bare=True), check=_problems
    ),
}
"""By name."""
