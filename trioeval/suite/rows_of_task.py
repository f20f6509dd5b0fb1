"""Tests and questions that are rows of an earlier task (`fromTask`), and checks of the columns they name."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import cattrs

from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest, read_each
from trioeval.documents.paths import DocumentPath
from trioeval.documents.structure import (
    Count,
    Hook,
    SomeText,
    camel,
    object_hook,
    snake,
    some_text,
    strict_converter,
)
from trioeval.grading import Assertion, AsWritten, quote
from trioeval.grading.grade import is_code
from trioeval.suite.model import UNREADABLE, RowsOfTask, Suite
from trioeval.templates import Templates, is_template
from trioeval.templates.variables import GLOBAL_NAMES

FROM_TASK = "fromTask"
ROW_NAMES = ("vars", "output", "provider", "score", "pass", "prompt", "error")
"""The columns of rows of tasks other than datasets; those of `vars` are written after a dot."""


@attrs.frozen(kw_only=True)
class QuestionsOfTask:
    """Questions that are rows of an earlier task, as written in a suite file."""

    from_task: SomeText
    """The id of an earlier task; implies `dependsOn`."""
    question: SomeText
    """The column of the question texts."""
    answers: SomeText
    """The column of the answers to choose from: lists."""
    correct_answers: SomeText
    """The column of the correct answers: lists, or one answer each."""
    id: SomeText | None = None
    """The column of the ids of the questions."""
    limit: Count | None = None
    """The number of rows used, from the first, ≥ 1; None uses all."""


def names_task(value: Any) -> bool:
    """Return whether a value is an object with the key `fromTask`, whatever its value.

    Example:
        >>> names_task({"from_task": 5}), names_task([])
        (True, False)
    """
    return isinstance(value, dict) and any(camel(key) == FROM_TASK for key in value)


def tasks_named(entry: Mapping[str, Any]) -> Iterator[tuple[DocumentPath, str]]:
    """Yield the tasks whose rows an entry of `tasks` takes, with the paths that name them.

    Example:
        >>> list(tasks_named({"tests": {"fromTask": "a"}}))
        [(('tests', 'fromTask'), 'a')]
    """
    places: list[tuple[DocumentPath, Any]] = [
        (("tests",), entry.get("tests")),
        (("questions",), entry.get("questions")),
    ]
    columns = entry.get("columns")
    for place, column in enumerate(columns if isinstance(columns, list) else ()):
        places.append((("columns", place), column))
    for at, value in places:
        for key, part in value.items() if isinstance(value, dict) else ():
            if camel(key) == FROM_TASK and isinstance(part, str) and part.strip():
                yield (*at, key), part


def suite_of_rows(
    data: Mapping[str, Any],
    converter: cattrs.Converter,
    templates: Templates,
    structure: Callable[[Mapping[str, Any]], Suite],
) -> tuple[Suite, list[Mistake]]:
    """Return the suite of a task whose tests may be the rows of an earlier one, and its mistakes.

    Such tests are `{"fromTask": …}`. If the rest has mistakes, the suite contains only the rows.
    """
    tests = data.get("tests")
    if not names_task(tests):
        try:
            return structure(data), []
        except MistakenError as error:
            return UNREADABLE, [*error.parts]
    mistakes = Mistakes()
    rows_of: RowsOfTask | None = None
    read = object_hook(converter, RowsOfTask, hooks={"vars": _vars_hook(templates)})
    with mistakes.below("tests"):
        rows_of = read(tests, RowsOfTask)
    if data.get("scenarios") is not None:
        message = f"scenarios and tests of {FROM_TASK} exclude each other"
        mistakes.append(Mistake(message, "move them to a separate task", at=("scenarios",)))
    suite = UNREADABLE
    with mistakes.below():
        suite = structure({key: part for key, part in data.items() if key != "tests"})
    mistakes += _made_code(data, suite, rows_of)
    return attrs.evolve(suite, tests=(), rows_of=rows_of), mistakes


def _made_code(
    data: Mapping[str, Any], suite: Suite, rows_of: RowsOfTask | None
) -> Iterator[Mistake]:
    """Yield a mistake for code of assertions with templates over rows: what a model wrote must not run."""
    if rows_of is not None:
        for one in _templates_in_code(rows_of.assertions, suite):
            yield one.below("tests")
    if suite.default_test is not None:
        key = next((key for key in data if camel(key) == "defaultTest"), "defaultTest")
        for one in _templates_in_code(suite.default_test.assertions, suite):
            yield one.below(key)


def _templates_in_code(assertions: Sequence[Assertion], suite: Suite) -> Iterator[Mistake]:
    for place, assertion in enumerate(assertions):
        for one in _templates_in_code(assertion.assertions, suite):
            yield one.below("assert", place)
        value = assertion.value
        if not isinstance(value, str) or isinstance(value, AsWritten):
            continue
        if is_template(value) and is_code(assertion, suite.kinds):
            message = f"code must not contain templates over rows of {FROM_TASK}: their contents would run"
            hint = "remove the templates, and read context['vars'] in the code"
            yield Mistake(message, hint, at=("assert", place, "value"))


def read_questions_of(value: Any) -> RowsOfTask:
    """Read questions that are rows: `{"fromTask": …, "question": …, "answers": …, "correctAnswers": …}`.

    Raises:
        MistakenError: All of its mistakes.
    """
    structure = object_hook(strict_converter(), QuestionsOfTask)
    found: QuestionsOfTask = structure(value, QuestionsOfTask)
    parts = {key: getattr(found, snake(key)) for key in _PARTS}
    named = {key: part for key, part in parts.items() if part is not None}
    return RowsOfTask(task=found.from_task, question=named, limit=found.limit)


_PARTS = ("question", "answers", "correctAnswers", "id")


def unknown_columns(
    entry: Mapping[str, Any],
    suite: Suite,
    source: Callable[[str], Collection[str] | None],
    templates: Templates,
) -> Iterator[Mistake]:
    """Yield a mistake for each name that is not a column of the rows that a task takes."""
    if suite.rows_of is not None:
        known = source(suite.rows_of.task)
        if known is None:
            return
        if suite.rows_of.question:
            yield from _unknown(entry, ("questions",), suite.rows_of.question, known)
        for name, written in (suite.rows_of.vars or {}).items():
            at: DocumentPath = ("tests", "vars", name)
            for used in sorted(_names_in(written, templates)):
                yield from (one.below(*at) for one in _missing(used, known))
    for seed in suite.settings.sources():
        known = source(seed.task)
        if known is not None:
            found = _unknown(entry["columns"][seed.place], ("columns",), seed.columns, known)
            yield from (one.below("columns", seed.place) for one in found)


def _unknown(
    entry: Mapping[str, Any], at: tuple[str], names: Mapping[str, str], known: Collection[str]
) -> Iterator[Mistake]:
    """Yield a mistake for each unknown name in an object, or in a list of names that map to themselves."""
    written = entry[at[0]]
    for place, (key, name) in enumerate(names.items()):
        spelled: str | int = place
        if isinstance(written, dict):
            spelled = next(one for one in written if one == key or camel(one) == key)
        yield from (one.below(*at, spelled) for one in _missing(name, known))


def is_made(written: str) -> bool:
    """Return whether a variable is a template over the row, not a column.

    Example:
        >>> is_made("{{ a }}"), is_made("a")
        (True, False)
    """
    return "{{" in written or "{%" in written


def _names_in(written: str, templates: Templates) -> Collection[str]:
    return templates.references(written) - GLOBAL_NAMES if is_made(written) else {written}


def _missing(name: str, known: Collection[str]) -> Iterator[Mistake]:
    if name not in known and name.partition(".")[0] not in known:
        hint = nearest(name, known)
        if known is ROW_NAMES and hint.startswith("known are"):
            hint = f'write "vars.{name}" for a variable; {hint}'
        yield Mistake(f"the rows have no {quote(name)}", hint)


def _vars_hook(templates: Templates) -> Hook:
    def hook(value: Any, _wanted: Any) -> Mapping[str, str]:
        if not isinstance(value, dict):
            hint = 'for example {"question": "problem", "answer": "{{ answer }}"}'
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}", hint))
        return read_each(value.items(), read)

    def read(_name: str, written: Any) -> str:
        text = some_text(written)
        if is_made(text) and (fault := templates.syntax_error(text)):
            raise MistakenError(Mistake(fault))
        return text

    return hook
