"""Questions with answers to choose from, and what a suite file says of how they are asked, as frozen data."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import attrs

from trioeval.documents.structure import ALSO, NOT_IN_FILES, TEXT, Count, Form, NotNegative, Number
from trioeval.suite.model import CodeDigests, LimitsSettings, TaskSettings, TaskType
from trioeval.suite.plain import plain_data
from trioeval.text import KEY


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

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """What a model is told of it and what it does, as JSON data; the folder of its file is left out."""
        digest = None if sources is None else sources(self.target)
        target = self.target.rpartition("/")[2]
        return self.name, target, digest, self.description, plain_data(self.parameters)


@attrs.frozen(kw_only=True)
class QuestionSettings(TaskSettings):
    """How the questions of a task are asked."""

    type: ClassVar[TaskType] = "question_eval"

    file: Annotated[Path, Form(TEXT)] | None = attrs.field(
        default=None, metadata={KEY: "questionsFile"}
    )
    """The file of questions; absolute. None takes the rows of an earlier task."""
    questions: tuple[Question, ...] = attrs.field(default=(), repr=False, metadata=NOT_IN_FILES)
    """What stands in it, in its order; never empty where it was read."""
    budget: QuestionBudget = QuestionBudget()
    workers: Count | None = attrs.field(default=None, metadata={ALSO: "concurrency"})
    """Questions in progress at once on each lane of the task, ≥ 1; by default `workers` of `limits`, or 1."""
    fail_fast: bool = False
    """Start no more questions after the first that failed to run, or exceeded its budget."""
    tools: tuple[Tool, ...] = ()
    """What a model may call while it answers; their names differ."""

    @property
    def row_tokens(self) -> int | None:
        """Most tokens of one question; None does not bound them."""
        return self.budget.max_tokens or None

    def rows_at_once(self, limits: LimitsSettings | None) -> int:
        """Questions under way at once on each lane of the task, ≥ 1.

        Example:
            >>> settings = QuestionSettings(file=Path("q.yaml"))
            >>> settings.rows_at_once(None), settings.rows_at_once(LimitsSettings(workers=5))
            (1, 5)
        """
        if self.workers is not None:
            return self.workers
        return (LimitsSettings() if limits is None else limits).workers

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """The budget of a question and its tools; the questions themselves are rows."""
        return plain_data(self.budget), [tool.identity(sources) for tool in self.tools]

    def code(self) -> Iterator[str]:
        """The functions that are its tools."""
        yield from (tool.target for tool in self.tools)
