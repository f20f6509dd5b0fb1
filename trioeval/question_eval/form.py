"""Tasks of type `question_eval`: a file of questions, or the rows of a task, and how they are asked.

Such a task is a suite whose one prompt is that of questions and whose tests are the questions. It has from
the top of the file who is asked and how hard: what the top says of prompts, tests and their judging is not
for questions.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind
from trioeval.documents.structure import Hook, camel, object_hook, strict_converter
from trioeval.grading import quote
from trioeval.question_eval.answer import question_prompt
from trioeval.question_eval.model import Question, QuestionBudget, QuestionSettings, Tool
from trioeval.question_eval.question_file import read_question_file
from trioeval.suite.model import UNREADABLE, Prompt, RowsOfTask, Suite, Test, TestOptions
from trioeval.suite.rows_of_task import read_questions_of
from trioeval.suite.sources.code import python_target

# Questions as tests of a suite, and back.


_LABEL = "question"
_OPTIONS = TestOptions(disable_var_expansion=True)

QUESTION_PROMPT = Prompt(
    raw=question_prompt("{{question}}", ["{{answers}}"]),
    label=_LABEL,
    id=hashlib.sha256(_LABEL.encode()).hexdigest(),
)
"""The one prompt of a task of questions, to be shown and compared: what is sent is `question_prompt` of a
question, as questions are no templates."""


def as_test(question: Question) -> Test:
    """The test that stands for a question.

    Example:
        >>> sky = Question(question="Sky?", answers=("Red", "Blue"), correct_answers=("Blue",))
        >>> as_question(as_test(sky)) == sky
        True
    """
    variables = {
        "question": question.question,
        "answers": list(question.answers),
        "correctAnswers": list(question.correct_answers),
    }
    return Test(description=question.id, vars=variables, options=_OPTIONS)


def as_question(test: Test) -> Question:
    """The question that such a test stands for."""
    return Question(
        id=test.description,
        question=test.vars["question"],
        answers=tuple(test.vars["answers"]),
        correct_answers=tuple(test.vars["correctAnswers"]),
    )


FILE_KEY = "questionsFile"
_OTHER_NAME = "concurrency"
ROWS_KEY = "questions"
SETTINGS = (FILE_KEY, ROWS_KEY, "budget", "workers", _OTHER_NAME, "failFast", "tools")
"""Keys of an entry that only tasks of this type have."""
FROM_THE_TOP = (
    "commandLineOptions",
    "env",
    "evaluateOptions",
    "lanes",
    "metadata",
    "nunjucksFilters",
    "providers",
    "quota",
    "tags",
)
"""What such a task has from the top of the file."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What all vendors take."""


def question_suite(
    said: Mapping[str, Any], around: Around, structure: Callable[[], Suite]
) -> tuple[Suite, list[Mistake]]:
    """The suite of such a task, and everything that is wrong with it.

    Args:
        said: What its entry says under `SETTINGS`, in either spelling.
        around: What its files are read against.
        structure: Gives the suite that the rest of the entry is.
    """
    suite = UNREADABLE
    mistakes = Mistakes()
    settings: QuestionSettings | None = None
    rows_of: RowsOfTask | None = None
    with mistakes.below():
        suite = structure()
    with mistakes.below():
        settings, rows_of = read_settings(said, around)
    suite = attrs.evolve(
        suite,
        # What prompts they get means those of other tasks.
        providers=tuple(attrs.evolve(entry, prompts=None) for entry in suite.providers),
        tests=() if settings is None else tuple(map(as_test, settings.questions)),
        settings=suite.settings if settings is None else settings,
        rows_of=rows_of,
        # Hooks are for tests.
        command_line_options=attrs.evolve(suite.command_line_options, extension=()),
    )
    return suite, mistakes


def read_settings(
    said: Mapping[str, Any], around: Around
) -> tuple[QuestionSettings, RowsOfTask | None]:
    """How questions are asked, with the questions; or with the rows that they will be.

    Args:
        said: As in `question_suite`.
        around: What the file and the tools are read against.

    Raises:
        MistakenError: Everything that is wrong with the settings and in the file.
    """
    named, mistakes = _one_name(said)
    settings: QuestionSettings | None = None
    questions: tuple[Question, ...] = ()
    rows_of: RowsOfTask | None = None
    rows = named.pop(ROWS_KEY, None)
    mistakes += _source_mistakes(said)
    if rows is not None:
        with mistakes.below(ROWS_KEY):
            rows_of = read_questions_of(rows)
    try:
        settings = _settings_hook(around)(named, QuestionSettings)
    except MistakenError as error:
        mistakes += (_as_said(part, said) for part in error.parts)
    file = _file_of(said, around) if settings is None else settings.file
    if file is not None:
        with mistakes.below():
            questions = read_question_file(file)
    if mistakes or settings is None:
        raise MistakenError(*mistakes)
    return attrs.evolve(settings, questions=questions), rows_of


def _source_mistakes(said: Mapping[str, Any]) -> Iterator[Mistake]:
    """Whether there is one source of questions."""
    file = next((key for key in said if camel(key) == FILE_KEY), None)
    if file is None and ROWS_KEY not in said:
        hint = f'name a file of questions, or write "{ROWS_KEY}" for the rows of a task'
        yield Mistake(f'"{FILE_KEY}" is missing', hint)
    elif file is not None and ROWS_KEY in said:
        message = f"{file} and {ROWS_KEY} are both given: write one of them"
        yield Mistake(message, at=(ROWS_KEY,), key=True)


def _one_name(said: Mapping[str, Any]) -> tuple[dict[str, Any], Mistakes]:
    """The same with `workers` for `concurrency`, its other name."""
    found = {key: part for key, part in said.items() if key != _OTHER_NAME}
    mistakes = Mistakes()
    if _OTHER_NAME in said and "workers" in said:
        message = f"workers and {_OTHER_NAME} are the same key: write one of them"
        mistakes.append(Mistake(message, at=(_OTHER_NAME,), key=True))
    elif _OTHER_NAME in said:
        found["workers"] = said[_OTHER_NAME]
    return found, mistakes


def _as_said(mistake: Mistake, said: Mapping[str, Any]) -> Mistake:
    """The same mistake under the name that the entry uses."""
    if mistake.at == ("workers",) and _OTHER_NAME in said:
        return attrs.evolve(mistake, at=(_OTHER_NAME,))
    return mistake


def _file_of(said: Mapping[str, Any], around: Around) -> Path | None:
    """The file of questions, where other settings are wrong; None if it is wrong as well."""
    named = next((part for key, part in said.items() if camel(key) == FILE_KEY), None)
    try:
        return around.file(named) if isinstance(named, str) else None
    except MistakenError:
        return None


def _settings_hook(around: Around) -> Hook:
    """For all but the questions."""
    converter = strict_converter()
    register = converter.register_structure_hook
    register(QuestionBudget, object_hook(converter, QuestionBudget))
    register(Tool, _tool_hook(converter, around))
    structure = object_hook(
        converter,
        QuestionSettings,
        hooks={"file": lambda value, _wanted: _file(value, around)},
    )

    def hook(value: Any, wanted: Any) -> QuestionSettings:
        settings: QuestionSettings = structure(value, wanted)
        first: dict[str, int] = {}
        for place, tool in enumerate(settings.tools):
            if first.setdefault(tool.name, place) != place:
                message = f"tools[{first[tool.name]}] has the name {quote(tool.name)} as well"
                raise MistakenError(Mistake(message, at=("tools", place, "name")))
        return settings

    return hook


def _file(value: Any, around: Around) -> Path:
    if not isinstance(value, str) or not value.strip():
        raise MistakenError(Mistake(f"must be the name of a file, got {kind(value)}"))
    return around.file(value)


def _tool_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For a tool, whose function must be there."""

    def name(value: Any, _wanted: Any) -> str:
        if not isinstance(value, str):
            raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
        if not _TOOL_NAME.fullmatch(value):
            message = f"{quote(value)} is no name that a model can call"
            hint = "use 1 to 64 letters of ASCII, digits, _ and -"
            raise MistakenError(Mistake(message, hint))
        return value

    def target(value: Any, _wanted: Any) -> str:
        return python_target(value, around, "tools")

    def parameters(value: Any, _wanted: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        if value.get("type", "object") != "object":
            message = f'must be "object", got {kind(value["type"])}'
            raise MistakenError(Mistake(message, at=("type",)))
        return value

    # One for each field, so that what is wrong with one hides nothing of the others.
    hooks = {"name": name, "target": target, "parameters": parameters}
    return object_hook(converter, Tool, hooks=hooks)
