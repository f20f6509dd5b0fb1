"""Multiple-choice questions, and their settings in a suite file, as frozen data."""

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
    """The choices; they differ after `normalized`."""
    correct_answers: tuple[str, ...]
    """The correct answers; each is one of `answers`."""


@attrs.frozen(kw_only=True)
class QuestionBudget:
    """The limits of one question; checked before each step of a model, and never during one."""

    max_tokens: Number = 0
    """The maximum tokens of all prompts and replies, ≥ 0; 0 means no limit."""
    max_seconds: NotNegative = 0
    """The maximum seconds of work (calls and tools, without waits), ≥ 0; 0 means no limit."""
    max_steps: Number = 0
    """The maximum number of calls of the model, ≥ 0; 0 means no limit."""


@attrs.frozen(kw_only=True)
class Tool:
    """A function of the suite that a model may call while it answers."""

    name: str
    target: str
    """`file://tools.py:add`, with an absolute path."""
    description: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    """The JSON schema of its arguments, which are an object."""

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """Return the description for models and the code as JSON data, without the folder of its file."""
        digest = None if sources is None else sources(self.target)
        target = self.target.rpartition("/")[2]
        return self.name, target, digest, self.description, plain_data(self.parameters)


@attrs.frozen(kw_only=True)
class QuestionSettings(TaskSettings):
    """The settings of a task of questions."""

    type: ClassVar[TaskType] = "question_eval"

    file: Annotated[Path, Form(TEXT)] | None = attrs.field(
        default=None, metadata={KEY: "questionsFile"}
    )
    """The file of questions; absolute. None takes the rows of an earlier task."""
    questions: tuple[Question, ...] = attrs.field(default=(), repr=False, metadata=NOT_IN_FILES)
    """The questions of the file, in order; never empty if it was read."""
    budget: QuestionBudget = QuestionBudget()
    workers: Count | None = attrs.field(default=None, metadata={ALSO: "concurrency"})
    """Concurrent questions on each lane of the task, ≥ 1; None takes `workers` of `limits`, or 1."""
    fail_fast: bool = False
    """Start no more questions after the first that failed with an error or exceeded its budget."""
    tools: tuple[Tool, ...] = ()
    """The tools that a model may call while it answers; their names differ."""

    @property
    def row_tokens(self) -> int | None:
        """The maximum tokens of one question; None means no limit."""
        return self.budget.max_tokens or None

    def rows_at_once(self, limits: LimitsSettings | None) -> int:
        """Return the concurrent questions on each lane of the task, ≥ 1.

        Example:
            >>> settings = QuestionSettings(file=Path("q.yaml"))
            >>> settings.rows_at_once(None), settings.rows_at_once(LimitsSettings(workers=5))
            (1, 5)
        """
        if self.workers is not None:
            return self.workers
        return (LimitsSettings() if limits is None else limits).workers

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """Return the budget of a question and its tools; the questions themselves are rows."""
        return plain_data(self.budget), [tool.identity(sources) for tool in self.tools]

    def code(self) -> Iterator[str]:
        """Yield the functions that are its tools."""
        yield from (tool.target for tool in self.tools)
