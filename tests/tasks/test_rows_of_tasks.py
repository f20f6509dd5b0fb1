"""Tasks whose tests are the rows of an earlier task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.errors import InputError
from trioeval.grading import Assertion
from trioeval.providers import Reply, Request
from trioeval.store import RunStart, open_store
from trioeval.suite import Prompt, ProviderEntry, Suite, Task, Templates, Test
from trioeval.suite.column_models import RowsOfTask
from trioeval.suite.question_models import QuestionSettings
from trioeval.tasks import Row, Status, collect, prepare, run_suite
from trioeval.tasks.rows_left import RowsLeft
from trioeval.tasks.rows_of import value_of, with_rows

ECHO = ProviderEntry(id="echo")


def prompt(raw: str) -> Prompt:
    return Prompt(raw=raw, label=raw, id=raw)


def first(*words: str, **more: Any) -> Task:
    tests = tuple(Test(vars={"word": word}) for word in words)
    return Task(
        id="first",
        suite=Suite(providers=(ECHO,), prompts=(prompt("<{{ word }}>"),), tests=tests, **more),
    )


def second(said: Mapping[str, str] | None = None, raw: str = "{{ text }}!", **more: Any) -> Task:
    rows_of = RowsOfTask(task="first", vars={"text": "output"} if said is None else said, **more)
    suite = Suite(providers=(ECHO,), prompts=(prompt(raw),), tests=(), rows_of=rows_of)
    return Task(id="second", suite=suite, depends_on=("first",))


def suite_of(*tasks: Task) -> Suite:
    return Suite(providers=(), prompts=(), tests=(), tasks=tasks)


def outputs(rows: Sequence[Row], task: str = "second") -> list[Any]:
    return [row.output for row in rows if row.task == task]


@pytest.mark.trio
async def test_each_row_of_the_first_task_is_a_test_of_the_second() -> None:
    rows = await collect(suite_of(first("a", "b", "c"), second()))
    assert outputs(rows) == ["<a>!", "<b>!", "<c>!"]
    assert [row.index for row in rows if row.task == "second"] == [0, 1, 2]


@pytest.mark.trio
async def test_variables_are_dotted_names_or_templates_over_the_row() -> None:
    said = {"a": "vars.word", "b": "{{ vars.word }} from {{ provider }}"}
    rows = await collect(suite_of(first("x"), second(said, raw="{{ a }}|{{ b }}")))
    assert outputs(rows) == ["x|x from echo"]


@pytest.mark.trio
async def test_only_so_many_rows_are_taken_as_are_wanted() -> None:
    assert outputs(await collect(suite_of(first("a", "b", "c"), second(limit=2)))) == [
        "<a>!",
        "<b>!",
    ]


@pytest.mark.trio
@pytest.mark.parametrize(
    "text", ["{{ 1 + 1 }}", "file:///etc/passwd", "{% raw %}", "{{ env.HOME }}", "a\n"]
)
async def test_what_stands_in_a_row_is_data(text: str) -> None:
    """It is no template, and names no file."""

    async def model(_request: Request) -> Reply:  # noqa: ASYNC124 - as providers are
        return Reply(output=text)

    writes = first("a")
    writes = attrs.evolve(
        writes, suite=attrs.evolve(writes.suite, providers=(ProviderEntry(id="model"),))
    )
    rows = await collect(suite_of(writes, second()), providers={"model": model})
    assert outputs(rows) == [f"{text}!"]
    assert rows[-1].vars == {"text": text}


@pytest.mark.trio
async def test_a_task_whose_rows_are_missing_has_none() -> None:
    async def fails(_request: Request) -> Reply:  # noqa: ASYNC124
        raise ValueError("no")

    broken = first("a", "b")
    broken = attrs.evolve(
        broken, suite=attrs.evolve(broken.suite, providers=(ProviderEntry(id="fails"),))
    )
    rows = await collect(suite_of(broken, second()), providers={"fails": fails})
    assert [row.task for row in rows] == ["first", "first"]


@pytest.mark.trio
async def test_the_tests_are_told_of_as_soon_as_they_are_known() -> None:
    told: list[tuple[str | None, int | None]] = []
    prepared = prepare(suite_of(first("a", "b"), second()))
    assert [part.rows for part in prepared.parts] == [2, None]
    assert prepared.size == 2

    async def emit(row: Row) -> None:  # noqa: ASYNC124
        if row.task == "second":
            assert told

    await run_suite(prepared, emit=emit, settled=lambda part: told.append((part.id, part.rows)))
    assert told == [("second", 2)]


def questions(rows: Sequence[Mapping[str, Any]]) -> Suite:
    said = {"question": "q", "answers": "options", "correctAnswers": "right"}
    suite = Suite(
        providers=(ECHO,),
        prompts=(prompt("q"),),
        tests=(),
        questions=QuestionSettings(file=Path("q.yaml")),
        rows_of=RowsOfTask(task="first", question=said),
    )
    return with_rows(suite, rows, Templates())


def test_rows_become_questions_with_numbers_as_text() -> None:
    suite = questions([{"q": "2 + 2?", "options": [3, 4, 5.5], "right": 4}])
    assert suite.questions is not None
    [question] = suite.questions.questions
    assert question.answers == ("3", "4", "5.5")
    assert question.correct_answers == ("4",)
    assert len(suite.tests) == 1
    assert suite.tests[0].is_data


def test_everything_that_is_wrong_with_rows_as_questions_is_told_at_once() -> None:
    rows = [
        {"q": "", "options": ["a", "b"], "right": "a"},
        {"q": "x", "options": ["a"], "right": "z"},
    ]
    with pytest.raises(InputError, match="rows of task first are no questions") as caught:
        questions(rows)
    assert "questions[0].question" in str(caught.value)
    assert "questions[1]" in str(caught.value)


def test_a_name_with_points_goes_down_unless_a_column_has_it() -> None:
    assert value_of({"a": {"b": 1}}, "a.b") == 1
    assert value_of({"a.b": 2, "a": {"b": 1}}, "a.b") == 2
    assert value_of({"a": 3}, "a.b") is None


@attrs.define
class Counted:
    """Echoes, and counts."""

    asked: list[str] = attrs.field(factory=list)

    async def __call__(self, request: Request) -> Reply:  # noqa: ASYNC124 - as providers are
        self.asked.append(request.prompt)
        return Reply(output=request.prompt)


async def resumed_twice(
    path: Path, once: Suite, again: Suite, counted: Counted
) -> list[tuple[str | None, int, Status]]:
    """Run a suite, and go on with the run as another one; what the second execution ran."""
    ran: list[tuple[str | None, int, Status]] = []

    async def emit(row: Row) -> None:  # noqa: ASYNC124
        ran.append((row.task, row.index, row.status))

    for time, suite in enumerate((once, again)):
        prepared = prepare(suite, providers={"counted": counted})
        start = RunStart(
            id="run", utc_created="2026-01-01", heads=[{"task": part.id} for part in prepared.parts]
        )
        ran.clear()
        async with open_store(path) as store:
            run = store.begin(start) if time == 0 else await store.resume("run", start)
            await run_suite(prepared, emit=emit, journal=run)
            run.finish("finished", duration_ms=1, derived={})
    return ran


def of_counted(task: Task) -> Task:
    return attrs.evolve(
        task, suite=attrs.evolve(task.suite, providers=(ProviderEntry(id="counted"),))
    )


@pytest.mark.trio
async def test_a_run_that_goes_on_asks_for_none_of_the_rows_again(tmp_path: Path) -> None:
    counted = Counted()
    suite = suite_of(of_counted(first("a", "b")), of_counted(second()))
    assert await resumed_twice(tmp_path / "r.db", suite, suite, counted) == []
    assert len(counted.asked) == 4


@pytest.mark.trio
async def test_a_row_of_another_test_than_before_is_run_again(tmp_path: Path) -> None:
    counted = Counted()
    once = suite_of(of_counted(first("a", "b")), of_counted(second({"text": "vars.word"})))
    again = suite_of(
        of_counted(first("a", "b")), of_counted(second({"text": "{{ vars.word | upper }}"}))
    )
    ran = await resumed_twice(tmp_path / "r.db", once, again, counted)
    assert ran == [("second", 0, Status.PASS), ("second", 1, Status.PASS)]
    assert counted.asked[-2:] == ["A!", "B!"]


def test_rows_that_an_earlier_execution_left_look_like_those_of_this_one() -> None:
    left, again = RowsLeft(), RowsLeft()

    async def emit(row: Row) -> None:  # noqa: ASYNC124
        left.add(row)
        from trioeval.report import row_json

        again.add_record(row.index, row_json(row, eval_id="x"))

    async def main() -> None:
        await run_suite(suite_of(first("a", "b")), emit=emit)

    trio.run(main)
    assert left.rows() == again.rows()
    assert [row["output"] for row in left.rows()] == ["<a>", "<b>"]


@pytest.mark.trio
@pytest.mark.parametrize("nested", [False, True])
async def test_what_stands_in_a_row_does_not_become_code(tmp_path: Path, *, nested: bool) -> None:
    """Also where nobody looked at the suite before: code runs as it stands, and reads variables."""
    made = tmp_path / "made"
    evil = f"' or open({str(made)!r}, 'w').close() or '"
    codes = ("output == '{{ text }}' or True", "'open' in context['vars']['text']")
    assertions = tuple(Assertion(type="python", value=code) for code in codes)
    if nested:
        assertions = (Assertion(type="assert-set", assertions=assertions),)
    rows = await collect(
        suite_of(first(evil), second({"text": "vars.word"}, assertions=assertions))
    )
    assert not made.exists()
    assert rows[-1].status is Status.PASS, rows[-1]
