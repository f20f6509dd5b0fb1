"""Questions with answers to choose from, and what a suite file says of how they are asked, as frozen data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.structure import Count, NotNegative, Number
from trioeval.suite.limit_settings import QuotaSettings


@attrs.frozen(kw_only=True)
class Question:
    """One question."""

    id: str | None = None
    question: str
    answers: tuple[str, ...]
    """What there is to choose from; different from each other after `normalized`."""
    correct_answers: tuple[str, ...]
    """Those that are right; each is one of `answers`."""


@attrs.frozen(kw_only=True)
class QuestionBudget:
    """What one question may use; looked at before each step of a model, and never in the middle of one."""

    max_tokens: Number = 0
    """Of prompts and replies together, ≥ 0; 0 does not bound them."""
    max_seconds: NotNegative = 0
    """Seconds of work, ≥ 0: calls and tools, and not the waits for them; 0 does not bound them."""
    max_steps: Number = 0
    """Calls of the model, ≥ 0; 0 does not bound them."""


@attrs.frozen(kw_only=True)
class Tool:
    """A function of the suite's own that a model may call while it answers."""

    name: str
    target: str
    """`file://tools.py:add`, with an absolute path."""
    description: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    """JSON schema of its arguments, which are an object."""


@attrs.frozen(kw_only=True)
class QuestionSettings:
    """How the questions of a task are asked."""

    file: Path | None = None
    """The file of questions; absolute. None takes the rows of an earlier task."""
    questions: tuple[Question, ...] = attrs.field(default=(), repr=False)
    """What stands in it, in its order; never empty where it was read."""
    budget: QuestionBudget = QuestionBudget()
    workers: Count | None = None
    """Questions under way at once on each lane of the task, ≥ 1; None takes the quota's `workers`, or 1."""
    fail_fast: bool = False
    """Start no more questions after the first that failed to run, or exceeded its budget."""
    tools: tuple[Tool, ...] = ()
    """What a model may call while it answers; their names differ."""


def workers_of(questions: QuestionSettings, quota: QuotaSettings | None) -> int:
    """Questions under way at once on each lane of the task, ≥ 1.

    Example:
        >>> settings = QuestionSettings(file=Path("q.yaml"))
        >>> workers_of(settings, None), workers_of(settings, QuotaSettings(workers=5))
        (1, 5)
    """
    if questions.workers is not None:
        return questions.workers
    return (QuotaSettings() if quota is None else quota).workers
