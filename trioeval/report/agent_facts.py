"""What a row tells of the agent that worked on it: its attempts, how each ended, and where its files are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.report.dataset_text import shown_path
from trioeval.report.inert import inert

_LOGS = (("stdout", "stdout"), ("stderr", "stderr"), ("toolLog", "toolCalls"))
"""Where the name of a log stands, and what has to be there for there to be one."""
_LONG = 500  # characters of a message


@attrs.frozen(kw_only=True)
class AttemptFacts:
    """One attempt."""

    number: int
    failure: str | None
    """Kind and message; None of one that ended well."""
    exit_code: int | None
    duration_ms: float
    tokens: int | None
    cost: float | None
    """US dollars."""
    steps: int | None
    """Replies of a model."""
    logs: Sequence[Path]
    warnings: Sequence[str]

    @property
    def facts(self) -> Iterator[str]:
        """What it took, and how it ended, in a few words each."""
        yield "has ended" if self.failure is None else f"has failed: {inert(self.failure, _LONG)}"
        if self.exit_code is not None:
            yield f"exit code {self.exit_code}"
        yield f"{self.duration_ms:.0f} ms"
        if self.steps:
            yield "1 step" if self.steps == 1 else f"{self.steps} steps"
        if self.tokens:
            yield f"{self.tokens} tokens"
        if self.cost:
            yield f"{self.cost:.6f} US dollars"


@attrs.frozen(kw_only=True)
class AgentFacts:
    """The case of an agent."""

    message: str
    """What became of it, in a sentence."""
    gave_up: bool
    """Whether it was not done when its attempts were over."""
    folder: Path | None
    """None of one that was cut off."""
    attempts: Sequence[AttemptFacts]
    children_ended: int
    """Processes that it had started and that had to be ended."""

    @property
    def sentence(self) -> str:
        """What became of it."""
        ended = self.children_ended
        children = f", {'1 child' if ended == 1 else f'{ended} children'} had to be ended"
        return inert(self.message, _LONG) + (children if ended else "")


def agent_of(record: Mapping[str, Any]) -> AgentFacts | None:
    """What a row tells of its agent; None where it had none, or nothing that can be read is told.

    Args:
        record: As `row_json` made it, or somebody else.
    """
    response = record.get("response")
    try:
        told = (response or {})["metadata"]["agent"]
        folder = told.get("folder")
        return AgentFacts(
            message=str(told["message"]),
            gave_up="gaveUp" in told,
            folder=None if folder is None else Path(folder),
            attempts=[_attempt(one) for one in told["attempts"]],
            children_ended=int(told["childrenEnded"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None  # others call something else so


def _attempt(told: Mapping[str, Any]) -> AttemptFacts:
    failure, cost = told.get("failure"), told.get("cost")
    return AttemptFacts(
        number=int(told["number"]),
        failure=None if failure is None else f"{failure['kind']}: {failure['message']}",
        exit_code=_whole(told.get("exitCode")),
        duration_ms=float(told["durationMs"]),
        tokens=_whole(told.get("tokens")),
        cost=None if cost is None else float(cost),
        steps=_whole(told.get("steps")),
        logs=[Path(told[name]) for name, known in _LOGS if told.get(known)],
        warnings=[*map(str, told.get("warnings", ()))],
    )


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)


def agent_lines(agent: AgentFacts, near: Path | None = None) -> Iterator[str]:
    """What became of it, where its folder is, and each attempt with its files and warnings.

    Args:
        agent: It.
        near: The folder from which paths are shown that lie in there.
    """
    yield agent.sentence
    if agent.folder is not None:
        yield f"folder {shown_path(agent.folder, near)}"
    for attempt in agent.attempts:
        yield f"attempt {attempt.number} {', '.join(attempt.facts)}"
        yield from (f"  {shown_path(log, near)}" for log in attempt.logs)
        yield from (f"  warning: {inert(warning, _LONG)}" for warning in attempt.warnings)
