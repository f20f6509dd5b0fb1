"""How an attempt ended, as the reply that is written down, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.agents.attempts import AttemptEnd, AttemptFailure
from trioeval.agents.loop import LoopEnd, LoopEnding
from trioeval.providers import Reply, Usage

_KEY, _AGENT = "attempt", "agent"
_CUT: LoopEnding = "interrupted"
_ROW_ENDS = frozenset({"failed", "timed_out"})
"""How a row may end although its agent has not: what is in the place of its marker is none, or time is up."""


def reply_of(end: AttemptEnd, *, spent: bool) -> Reply:
    """What is written down of an attempt.

    Args:
        end: How it ended.
        spent: Whether what it used is part of it, and is not written down already with its single calls.
    """
    failure = end.failure
    told = {
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
        "exitCode": end.exit_code,
        "durationS": end.duration_s,
        "usage": attrs.asdict(end.usage),
        "cost": end.cost,
        "childrenEnded": end.children_ended,
        "metadata": dict(end.metadata),
    }
    usage, cost = (end.usage, end.cost) if spent else (Usage(), None)
    return Reply(output=end.output, usage=usage, cost=cost, metadata={_KEY: told})


def end_of(reply: Reply) -> AttemptEnd | None:
    """How the attempt ended; None of what was not written by `reply_of`."""
    told = reply.metadata.get(_KEY)
    if not isinstance(told, Mapping):
        return None
    failure = told["failure"]
    return AttemptEnd(
        output=reply.output,
        failure=None if failure is None else AttemptFailure(**failure),
        exit_code=told["exitCode"],
        usage=Usage(**told["usage"]),
        cost=told["cost"],
        duration_s=told["durationS"],
        children_ended=told["childrenEnded"],
        metadata=told["metadata"],
    )


def spent_by(ends: Sequence[AttemptEnd]) -> tuple[Usage, float | None]:
    """What attempts have used together."""
    costs = [end.cost for end in ends if end.cost is not None]
    return Usage.sum(end.usage for end in ends), sum(costs) if costs else None


def attempts_json(ends: Sequence[AttemptEnd], first: int = 0) -> list[dict[str, Any]]:
    """What rows tell of attempts.

    Args:
        ends: How they ended.
        first: The number of the first of them.
    """
    return [
        {
            "number": number,
            "ok": end.failure is None,
            **({} if end.failure is None else {"failure": attrs.asdict(end.failure)}),
            **({} if end.exit_code is None else {"exitCode": end.exit_code}),
            "durationMs": end.duration_s * 1000,
            **({} if end.usage.total is None else {"tokens": end.usage.total}),
            **({} if end.cost is None else {"cost": end.cost}),
            **dict(end.metadata),
        }
        for number, end in enumerate(ends, first)
    ]


def answer_of(ended: LoopEnd, about: dict[str, Any]) -> Reply:
    """What a case comes to: the output of its last attempt, and what all of them used.

    Args:
        ended: What became of it.
        about: What else rows tell of the case.
    """
    usage, cost = spent_by(ended.attempts)
    told = {
        **about,
        "outcome": ended.ending,
        "message": ended.message,
        **({} if ended.gave_up is None else {"gaveUp": ended.gave_up}),
        "attempts": attempts_json(ended.attempts),
        "childrenEnded": ended.children_ended,
    }
    output = ended.attempts[-1].output if ended.attempts else ""
    return Reply(output=output, usage=usage, cost=cost, metadata={_AGENT: told})


def attempts_told(reply: Reply | None) -> int:
    """How many attempts are told with what a case has come to."""
    told = None if reply is None else reply.metadata.get(_AGENT)
    return len(told["attempts"]) if isinstance(told, Mapping) else 0


def with_cut_attempt(reply: Reply | None, end: AttemptEnd) -> Reply:
    """What a case has come to, with an attempt behind all others that was cut off.

    Args:
        reply: What is known of the case; None of one of which no attempt has come to its end.
        end: What is known of the attempt.
    """
    number = attempts_told(reply)
    if reply is None:
        message = f"{_CUT} in attempt {number}"
        reply = answer_of(LoopEnd(ending=_CUT, message=message, attempts=()), {})
    told = dict(reply.metadata[_AGENT])
    told["attempts"] = [*told["attempts"], *attempts_json([end], number)]
    costs = [cost for cost in (reply.cost, end.cost) if cost is not None]
    return attrs.evolve(
        reply,
        usage=Usage.sum((reply.usage, end.usage)),
        cost=sum(costs) if costs else None,
        metadata={**reply.metadata, _AGENT: told},
    )


def ended_as(reply: Reply, outcome: str) -> Reply:
    """What a case has come to whose row ended otherwise than its agent: what is told says so too.

    Args:
        reply: What is known of the case; of one that did not come to its end what it came to so far.
        outcome: Of the row.

    Example:
        >>> so_far = {"outcome": "interrupted", "message": "interrupted after 2 attempts"}
        >>> reply = Reply(output="", metadata={"agent": so_far})
        >>> ended_as(reply, "timed_out").metadata["agent"]
        {'outcome': 'timed_out', 'message': 'timed out after 2 attempts'}
    """
    told = reply.metadata.get(_AGENT)
    if outcome not in _ROW_ENDS or not isinstance(told, Mapping) or told["outcome"] != _CUT:
        return reply
    message = told["message"].replace(_CUT, outcome.replace("_", " "), 1)
    agent = {**told, "outcome": outcome, "message": message}
    return attrs.evolve(reply, metadata={**reply.metadata, _AGENT: agent})
