"""Tasks of type `question_eval`: their settings, with a file of questions or the rows of a task.

Such a task is a suite whose only prompt is that of questions and whose tests are the questions. It takes
providers and limits from the top of the file, but not prompts, tests and assertions. A file of questions is
read strictly:

    version: 1
    questions:
      - id: sky
        question: Which colour is a clear sky at noon?
        answers: [Red, Blue]
        correct_answers: [Blue]

Nothing is converted: an answer that is a number must be written as text, otherwise it would be unclear if
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
from trioeval.documents.files import FileContext
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
"""The only prompt of a task of questions, for display and comparison. The sent prompt is `question_prompt` of
the question, because questions are not templates."""


def as_test(question: Question) -> Test:
    """Return the test for a question.

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
    """Return the question of such a test."""
    return Question(
        id=test.description,
        question=test.vars["question"],
        answers=tuple(test.vars["answers"]),
        correct_answers=tuple(test.vars["correctAnswers"]),
    )


# Files of questions; all mistakes are reported at once.


VERSION = 1


@attrs.frozen(kw_only=True)
class _QuestionFile:
    """The content of a file of questions."""

    version: int
    questions: tuple[Question, ...]


def read_question_file(file: Path) -> tuple[Question, ...]:
    """Return the questions of a file: JSON or YAML, by its extension.

    Args:
        file: Absolute, or relative to the working directory.

    Raises:
        MistakenError: Everything that is wrong with it, with places in the file.
    """
    return structured(read_placed(file, read_json_or_yaml), file, questions_in)


def questions_in(data: Any) -> tuple[Question, ...]:
    """Return the questions in the data of such a file.

    Raises:
        MistakenError: Everything that is wrong with it.

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
    """Return a stripped text that is not blank; `hint` is for blank text."""
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
    """Return a hook for a non-empty list.

    Args:
        empty: The message for an empty list.
        structure: The hook for each entry.
        same: Yields duplicate entries.
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


def _object(noun: str, model: type, hooks: Mapping[str, Hook]) -> Hook:
    """Return an `object_hook` that reports a missing key at its own place."""
    structure = object_hook(strict_converter(), model, hooks=hooks)
    keys = fields_by_key(model)

    def hook(value: Any, target: Any) -> Any:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"{noun} must be an object, got {kind(value)}"))
        given = set(map(camel, value))
        return structure(value | {key: None for key in keys if key not in given}, target)

    return hook


def _question(value: Any, target: Any) -> Any:
    """Return a question; mistakes in its answers are reported together with others."""
    mistakes, found = Mistakes(), None
    with mistakes.below():
        found = _read_question(value, target)
    if isinstance(value, dict):
        mistakes += _wrong_answers(value)
    mistakes.raise_any()
    return found


def _wrong_answers(given: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield duplicate answers, and correct answers that are not among the answers."""
    first: dict[str, str] = {}
    for place, text in _texts(given.get("answers")):
        key = normalized(text)
        if key in first:
            message = f"{quote(text)} is the same answer as {quote(first[key])}"
            yield Mistake(message, "remove one of them", at=("answers", place))
        first.setdefault(key, text)
    key = next((key for key in given if camel(key) == "correctAnswers"), "")
    for place, text in _texts(given.get(key)) if first else ():
        if normalized(text) not in first:
            hint = nearest(text, first.values())
            yield Mistake(f"{quote(text)} is not one of the answers", hint, at=(key, place))


def _texts(entries: Any) -> Iterator[tuple[int, str]]:
    """Yield the non-blank texts of a list, stripped, with their places."""
    for place, text in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(text, str) and text.strip():
            yield place, text.strip()


def _same_ids(entries: Sequence[Any]) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for place, entry in enumerate(entries):
        given = entry.get("id") if isinstance(entry, dict) else None
        name = given.strip() if isinstance(given, str) else ""
        if name and first.setdefault(name, place) != place:
            where = show_path(("questions", first[name]))
            yield Mistake(f"{where} has the same id, {quote(name)}", at=(place, "id"))


_read_question = _object(
    "a question",
    Question,
    hooks={
        "id": partial(_stripped, hint="leave the id out, or give the question a name"),
        "question": _stripped,
        "answers": _entries("no answers are given", _stripped),
        "correct_answers": _entries("no correct answers are given", _stripped),
    },
)
_read_questions = _entries("no questions are given", _question, _same_ids)
_read_file = _object(
    "a question file",
    _QuestionFile,
    hooks={"version": _version, "questions": _read_questions},
)


FILE_KEY = "questionsFile"
ROWS_KEY = "questions"
SETTINGS = (*fields_by_key(QuestionSettings), *other_names(QuestionSettings), ROWS_KEY)
"""Keys that only tasks of this type have."""
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
"""Keys that such a task takes from the top of the file."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names that all vendors accept."""


def question_suite(
    given: Mapping[str, Any], context: FileContext, structure: Callable[[], Suite]
) -> tuple[Suite, list[Mistake]]:
    """Return the suite of such a task, and everything that is wrong with it."""
    suite = UNREADABLE
    mistakes = Mistakes()
    settings: QuestionSettings | None = None
    rows_of: RowsOfTask | None = None
    with mistakes.below():
        suite = structure()
    with mistakes.below():
        settings, rows_of = read_settings(given, context)
    suite = attrs.evolve(
        suite,
        # `prompts` of a provider refers to other tasks.
        providers=tuple(attrs.evolve(entry, prompts=None) for entry in suite.providers),
        tests=() if settings is None else tuple(map(as_test, settings.questions)),
        settings=suite.settings if settings is None else settings,
        rows_of=rows_of,
        # Hooks are for tests.
        command_line_options=attrs.evolve(suite.command_line_options, extension=()),
    )
    return suite, mistakes


def read_settings(
    given: Mapping[str, Any], context: FileContext
) -> tuple[QuestionSettings, RowsOfTask | None]:
    """Return the settings with the questions, or with the task whose rows they will be.

    Raises:
        MistakenError: Everything that is wrong with the settings and in the file.
    """
    named = dict(given)
    mistakes = Mistakes(_source_mistakes(given))
    settings: QuestionSettings | None = None
    questions: tuple[Question, ...] = ()
    rows_of: RowsOfTask | None = None
    rows = named.pop(ROWS_KEY, None)
    if rows is not None:
        with mistakes.below(ROWS_KEY):
            rows_of = read_questions_of(rows)
    with mistakes.below():
        settings = _settings_hook(context)(named, QuestionSettings)
    file = _file_of(given, context) if settings is None else settings.file
    if file is not None:
        with mistakes.below():
            questions = read_question_file(file)
    if mistakes or settings is None:
        raise MistakenError(*mistakes)
    return attrs.evolve(settings, questions=questions), rows_of


def _source_mistakes(given: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield a mistake unless there is exactly one source of questions."""
    file = next((key for key in given if camel(key) == FILE_KEY), None)
    if file is None and ROWS_KEY not in given:
        hint = f'name a question file, or write "{ROWS_KEY}" to use the rows of a task'
        yield Mistake(f'"{FILE_KEY}" is missing', hint)
    elif file is not None and ROWS_KEY in given:
        message = f"both {file} and {ROWS_KEY} are given: write one of them"
        yield Mistake(message, at=(ROWS_KEY,), key=True)


def _file_of(given: Mapping[str, Any], context: FileContext) -> Path | None:
    """Return the question file when other settings are wrong; None if it is wrong as well."""
    named = next((part for key, part in given.items() if camel(key) == FILE_KEY), None)
    try:
        return context.file(named) if isinstance(named, str) else None
    except MistakenError:
        return None


def _settings_hook(context: FileContext) -> Hook:
    """Return the hook for all settings except the questions."""
    converter = strict_converter()
    register = converter.register_structure_hook
    register(QuestionBudget, object_hook(converter, QuestionBudget))
    register(Tool, _tool_hook(converter, context))
    return object_hook(
        converter,
        QuestionSettings,
        hooks={"file": lambda value, _wanted: _file(value, context)},
        check=_same_tools,
    )


def _same_tools(settings: QuestionSettings) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for place, tool in enumerate(settings.tools):
        if first.setdefault(tool.name, place) != place:
            message = f"tools[{first[tool.name]}] has the same name, {quote(tool.name)}"
            yield Mistake(message, at=("tools", place, "name"))


def _file(value: Any, context: FileContext) -> Path:
    if not isinstance(value, str) or not value.strip():
        raise MistakenError(Mistake(f"must be a file name, got {kind(value)}"))
    return context.file(value)


def _tool_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for a tool, whose function must exist."""

    def name(value: Any, _wanted: Any) -> str:
        if not isinstance(value, str):
            raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
        if not _TOOL_NAME.fullmatch(value):
            message = f"{quote(value)} is not a valid tool name"
            hint = "use 1 to 64 ASCII letters, digits, _ and -"
            raise MistakenError(Mistake(message, hint))
        return value

    def target(value: Any, _wanted: Any) -> str:
        return python_target(value, context, "tools")

    def parameters(value: Any, _wanted: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        if value.get("type", "object") != "object":
            message = f'must be "object", got {kind(value["type"])}'
            raise MistakenError(Mistake(message, at=("type",)))
        return value

    # One hook per field, so that a mistake in one does not hide those in the others.
    hooks = {"name": name, "target": target, "parameters": parameters}
    return object_hook(converter, Tool, hooks=hooks)
