"""Tasks of type `question_eval`: a file of questions, or the rows of a task, and how they are asked.

Such a task is a suite whose one prompt is that of questions and whose tests are the questions. It has from
the top of the file who is asked and how hard: what the top says of prompts, tests and their judging is not
for questions. A file of questions is read strictly:

    version: 1
    questions:
      - id: sky
        question: Which colour is a clear sky at noon?
        answers: [Red, Blue]
        correct_answers: [Blue]

Nothing is converted: an answer that is a number has to be written as text, or nobody would know whether
1.50 and 1.5 are two answers.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.documents import read_json_or_yaml
from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest
from trioeval.documents.paths import show_path
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import (
    Hook,
    camel,
    fields_by_key,
    object_hook,
    other_names,
    strict_converter,
)
from trioeval.grading import quote
from trioeval.question_eval.answer import normalized, question_prompt
from trioeval.question_eval.model import Question, QuestionBudget, QuestionSettings, Tool
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


# Files of questions, in which everything that is wrong is told at once.


VERSION = 1


@attrs.frozen(kw_only=True)
class _QuestionFile:
    """What stands in one."""

    version: int
    questions: tuple[Question, ...]


def read_question_file(file: Path) -> tuple[Question, ...]:
    """The questions of a file: JSON if it is called so, and else YAML.

    Args:
        file: Absolute, or against the working directory.

    Raises:
        MistakenError: All that is wrong with it, placed in it.
    """
    return structured(read_placed(file, read_json_or_yaml), file, questions_in)


def questions_in(data: Any) -> tuple[Question, ...]:
    """The questions of plain data of the shape of such a file.

    Raises:
        MistakenError: All that is wrong with it.

    Example:
        >>> sky = {"question": "Sky? ", "answers": ["Red", "Blue"], "correctAnswers": ["blue"]}
        >>> questions_in({"version": 1, "questions": [sky]})[0].question
        'Sky?'
    """
    found: _QuestionFile = _read_file(data, _QuestionFile)
    return found.questions


def _version(value: Any, _wanted: Any) -> int:
    hint = f'write "version": {VERSION}'
    if value is None or (type(value) is int and value == 0):
        raise MistakenError(Mistake("is required", hint))
    if type(value) is not int:
        raise MistakenError(Mistake(f"must be the whole number {VERSION}, got {kind(value)}"))
    if value != VERSION:
        raise MistakenError(Mistake(f"unsupported version {value}", hint))
    return value


def _stripped(value: Any, _wanted: Any, hint: str | None = None) -> str:
    """A stripped text that is not blank; `hint` is what is said of one that is."""
    match value:
        case None:
            raise MistakenError(Mistake("is required"))
        case str() if stripped := value.strip():
            return stripped
        case str():
            raise MistakenError(Mistake("must not be blank", hint))
        case _:
            quotes = "write it in quotes" if isinstance(value, int | float) else None
            raise MistakenError(Mistake(f"must be text, got {kind(value)}", quotes))


def _entries(
    empty: str,
    structure: Hook,
    same: Callable[[Sequence[Any]], Iterable[Mistake]] = lambda _entries: (),
) -> Hook:
    """A hook for a list that has entries.

    Args:
        empty: What is said of one that has none.
        structure: The hook of each.
        same: Mistakes in how entries go together.
    """

    def hook(value: Any, _wanted: Any) -> tuple[Any, ...]:
        if value is None:
            raise MistakenError(Mistake("is required"))
        if not isinstance(value, list):
            raise MistakenError(Mistake(f"must be a list, got {kind(value)}"))
        if not value:
            raise MistakenError(Mistake(empty))
        mistakes = Mistakes(same(value))
        found: list[Any] = []
        for place, entry in enumerate(value):
            with mistakes.below(place):
                found.append(structure(entry, None))
        mistakes.raise_any()
        return tuple(found)

    return hook


def _object(what: str, model: type, hooks: Mapping[str, Hook]) -> Hook:
    """An `object_hook` that tells of a key that is missing at its own place."""
    structure = object_hook(strict_converter(), model, hooks=hooks)
    keys = fields_by_key(model)

    def hook(value: Any, wanted: Any) -> Any:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"{what} must be an object, got {kind(value)}"))
        given = set(map(camel, value))
        return structure(value | {key: None for key in keys if key not in given}, wanted)

    return hook


def _question(value: Any, wanted: Any) -> Any:
    """A question; what is wrong with its answers is told also where something else is wrong."""
    mistakes, found = Mistakes(), None
    with mistakes.below():
        found = _read_question(value, wanted)
    if isinstance(value, dict):
        mistakes += _wrong_answers(value)
    mistakes.raise_any()
    return found


def _wrong_answers(said: Mapping[str, Any]) -> Iterator[Mistake]:
    """Answers that are the same, and correct ones that are none of them."""
    first: dict[str, str] = {}
    for place, text in _texts(said.get("answers")):
        key = normalized(text)
        if key in first:
            message = f"{quote(text)} is the same answer as {quote(first[key])}"
            yield Mistake(message, "leave one of them out", at=("answers", place))
        first.setdefault(key, text)
    key = next((key for key in said if camel(key) == "correctAnswers"), "")
    for place, text in _texts(said.get(key)) if first else ():
        if normalized(text) not in first:
            hint = nearest(text, first.values())
            yield Mistake(f"{quote(text)} is none of the answers", hint, at=(key, place))


def _texts(entries: Any) -> Iterator[tuple[int, str]]:
    """The texts of a list that are not blank, stripped, with their places."""
    for place, text in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(text, str) and text.strip():
            yield place, text.strip()


def _same_ids(entries: Sequence[Any]) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for place, entry in enumerate(entries):
        said = entry.get("id") if isinstance(entry, dict) else None
        name = said.strip() if isinstance(said, str) else ""
        if name and first.setdefault(name, place) != place:
            where = show_path(("questions", first[name]))
            yield Mistake(f"{where} has the id {quote(name)} as well", at=(place, "id"))


_read_question = _object(
    "a question",
    Question,
    hooks={
        "id": partial(_stripped, hint="leave the id out, or name the question"),
        "question": _stripped,
        "answers": _entries("there are no answers", _stripped),
        "correct_answers": _entries("there are no correct answers", _stripped),
    },
)
_read_questions = _entries("there are no questions", _question, _same_ids)
_read_file = _object(
    "a file of questions",
    _QuestionFile,
    hooks={"version": _version, "questions": _read_questions},
)


FILE_KEY = "questionsFile"
ROWS_KEY = "questions"
SETTINGS = (*fields_by_key(QuestionSettings), *other_names(QuestionSettings), ROWS_KEY)
"""Keys of an entry that only tasks of this type have."""
FROM_THE_TOP = (
    "commandLineOptions",
    "env",
    "evaluateOptions",
    "lanes",
    "metadata",
    "nunjucksFilters",
    "providers",
    "limits",
    "tags",
)
"""What such a task has from the top of the file."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What all vendors take."""


def question_suite(
    said: Mapping[str, Any], around: Around, structure: Callable[[], Suite]
) -> tuple[Suite, list[Mistake]]:
    """The suite of such a task, and everything that is wrong with it."""
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

    Raises:
        MistakenError: Everything that is wrong with the settings and in the file.
    """
    named = dict(said)
    mistakes = Mistakes(_source_mistakes(said))
    settings: QuestionSettings | None = None
    questions: tuple[Question, ...] = ()
    rows_of: RowsOfTask | None = None
    rows = named.pop(ROWS_KEY, None)
    if rows is not None:
        with mistakes.below(ROWS_KEY):
            rows_of = read_questions_of(rows)
    with mistakes.below():
        settings = _settings_hook(around)(named, QuestionSettings)
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
    return object_hook(
        converter,
        QuestionSettings,
        hooks={"file": lambda value, _wanted: _file(value, around)},
        check=_same_tools,
    )


def _same_tools(settings: QuestionSettings) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for place, tool in enumerate(settings.tools):
        if first.setdefault(tool.name, place) != place:
            message = f"tools[{first[tool.name]}] has the name {quote(tool.name)} as well"
            yield Mistake(message, at=("tools", place, "name"))


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
