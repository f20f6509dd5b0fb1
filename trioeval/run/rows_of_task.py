"""Tests that are the rows of an earlier task.

The rows are only known when that task has ended: before, everything that can be checked is checked with one
placeholder test, and the tests themselves are made when their turn comes. The contents of rows are data:
models wrote them, so no text in them is a template or names a file. A row that is not a valid test ends as an
error, and affects no other row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.agent import is_agent
from trioeval.documents.mistakes import MistakenError
from trioeval.documents.paths import show_path
from trioeval.errors import TemplateError
from trioeval.question_eval import is_question_eval
from trioeval.sequences import LazySequence
from trioeval.suite.model import RowsOfTask, Suite, Test, TestOptions
from trioeval.templates import Templates

if TYPE_CHECKING:
    from trioeval.agent.model import Case
    from trioeval.question_eval.model import Question

_OPTIONS = TestOptions(disable_var_expansion=True)
_STANDS_FOR_ALL = "?"


def with_placeholder_test(suite: Suite) -> Suite:
    """Return a suite with one placeholder test for rows that are not known yet; any other suite unchanged."""
    rows_of = suite.rows_of
    if rows_of is None:
        return suite
    if is_question_eval(suite.settings):
        from trioeval.question_eval.model import Question

        choices = (_STANDS_FOR_ALL, f"{_STANDS_FOR_ALL}{_STANDS_FOR_ALL}")
        question = Question(question=_STANDS_FOR_ALL, answers=choices, correct_answers=choices[:1])
        return _with_questions(suite, [question], {})
    variables = dict.fromkeys(rows_of.vars or (), _STANDS_FOR_ALL)
    case = _case(0) if is_agent(suite.settings) else None
    return attrs.evolve(suite, tests=(_test(rows_of, variables, case),))


def with_rows(suite: Suite, rows: Sequence[Mapping[str, Any]], templates: Templates) -> Suite:
    """Return a suite whose tests are rows, without `rows_of`.

    Args:
        suite: A suite with `rows_of`.
        rows: The rows of that task.
        templates: Renders its variables.
    """
    rows_of = suite.rows_of
    if rows_of is None:
        return suite
    rows = rows if rows_of.limit is None else rows[: rows_of.limit]
    if is_question_eval(suite.settings):
        found = _with_questions(suite, *_questions(rows_of, rows))
        return attrs.evolve(found, rows_of=None)
    are_cases = is_agent(suite.settings)
    tests = _RowTests(rows_of, rows, templates.for_data(), are_cases)
    return attrs.evolve(suite, tests=tests, rows_of=None)


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted name in a row; None if it does not exist.

    Example:
        >>> value_of({"vars": {"x": 1}, "a.b": 2}, "vars.x"), value_of({"a.b": 2}, "a.b")
        (1, 2)
    """
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _test(rows_of: RowsOfTask, variables: Mapping[str, Any], case: Case | None) -> Test:
    return Test(
        vars=variables, assertions=rows_of.assertions, options=_OPTIONS, is_data=True, extra=case
    )


def _case(number: int) -> Case:
    from trioeval.agent.model import Case

    return Case(name=f"case-{number + 1}")


@attrs.frozen(eq=False, repr=False)
class _RowTests(LazySequence[Test]):
    """One test per row, made on access."""

    rows_of: RowsOfTask
    rows: Sequence[Mapping[str, Any]]
    templates: Templates
    are_cases: bool

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, index: int) -> Test:
        row = self.rows[index]
        wanted = self.rows_of.vars
        case = _case(index) if self.are_cases else None
        if wanted is None:
            return _test(self.rows_of, dict(row), case)
        found: dict[str, Any] = {}
        faults = []
        for name, source in wanted.items():
            try:
                found[name] = self._value(row, source)
            except TemplateError as error:
                faults.append(f"vars.{name}: {error}")
        test = _test(self.rows_of, found, case)
        if not faults:
            return test
        return attrs.evolve(test, fault=_fault(self.rows_of, index, "is not a valid test", faults))

    def _value(self, row: Mapping[str, Any], source: str) -> Any:
        if "{{" in source or "{%" in source:
            return self.templates.render(source, row)
        return value_of(row, source)


def _fault(rows_of: RowsOfTask, number: int, problem: str, faults: Sequence[str]) -> str:
    """Return the message for a row that is not a valid test."""
    return "\n".join([f"row {number} of task {rows_of.task} {problem}:", *faults])


def _with_questions(
    suite: Suite, questions: Sequence[Question], faults: Mapping[int, str]
) -> Suite:
    """Return a suite with other questions.

    Args:
        suite: The suite.
        questions: The questions.
        faults: The reasons why some of them are not valid, by index.
    """
    from trioeval.question_eval.form import as_test

    settings = suite.settings
    if not is_question_eval(settings):
        return suite
    return attrs.evolve(
        suite,
        settings=attrs.evolve(settings, questions=tuple(questions)),
        tests=tuple(
            attrs.evolve(as_test(one), is_data=True, fault=faults.get(place))
            for place, one in enumerate(questions)
        ),
    )


def _questions(
    rows_of: RowsOfTask, rows: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Question], Mapping[int, str]]:
    """Return a question for each row, and the reasons why some are not valid, by index."""
    from trioeval.question_eval.form import questions_in

    fields = rows_of.question
    entries = [
        {key: _as_question_part(key, value_of(row, name)) for key, name in fields.items()}
        for row in rows
    ]
    mistakes: dict[int, list[str]] = {}
    for place, messages in _mistakes(entries):
        mistakes.setdefault(place, []).append(messages)
    good = [entry for place, entry in enumerate(entries) if place not in mistakes]
    valid = iter(questions_in(_document(good)) if good else ())
    questions = [
        _shown(entry) if place in mistakes else next(valid) for place, entry in enumerate(entries)
    ]
    return questions, {
        place: _fault(rows_of, place, "is not a valid question", messages)
        for place, messages in mistakes.items()
    }


def _mistakes(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yield the mistakes of entries, with their indices."""
    from trioeval.question_eval.form import questions_in

    if not entries:
        return
    try:
        questions_in(_document(entries))
    except MistakenError as error:
        for part in error.parts:
            _, place, *at = part.at
            key = show_path(tuple(at)).removeprefix("$.")
            yield int(place), f"{key}: {part.message}"


def _document(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    from trioeval.question_eval.form import VERSION

    return {"version": VERSION, "questions": list(entries)}


def _shown(entry: Mapping[str, Any]) -> Question:
    """Return a placeholder for a row that is not a valid question: it is never sent."""
    from trioeval.question_eval.model import Question

    text = entry["question"]
    return Question(question=text if isinstance(text, str) else "", answers=(), correct_answers=())


def _as_question_part(key: str, value: Any) -> Any:
    """Return numbers as text, and one correct answer as a list."""
    if key in ("answers", "correctAnswers"):
        return [_text(one) for one in (value if isinstance(value, list) else [value])]
    return _text(value)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
