"""Tasks whose tests are the rows of an earlier task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.evaluation.row import TaskRows
from trioeval.grading import Assertion
from trioeval.providers import Reply, Request
from trioeval.question_eval.model import QuestionSettings
from trioeval.report.stored import RunStart
from trioeval.run import Row, RunOptions, Status, collect, prepare, run_suite, run_with_options
from trioeval.run.rows_of_task import value_of, with_rows
from trioeval.store.store import open_store
from trioeval.suite.model import Prompt, ProviderEntry, RowsOfTask, Suite, Task, Test
from trioeval.templates import Templates

ECHO = ProviderEntry(id="echo")


def prompt(raw: str) -> Prompt:
    return Prompt(raw=raw, label=raw, id=raw)


def first(*words: str, **more: Any) -> Task:
    tests = tuple(Test(vars={"word": word}) for word in words)
    return Task(
        id="first",
        suite=Suite(providers=(ECHO,), prompts=(prompt("<{{ word }}>"),), tests=tests, **more),
    )


def second(
    variables: Mapping[str, str] | None = None, raw: str = "{{ text }}!", **more: Any
) -> Task:
    rows_of = RowsOfTask(
        task="first", vars={"text": "output"} if variables is None else variables, **more
    )
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
    variables = {"a": "vars.word", "b": "{{ vars.word }} from {{ provider }}"}
    rows = await collect(suite_of(first("x"), second(variables, raw="{{ a }}|{{ b }}")))
    assert outputs(rows) == ["x|x from echo"]


@pytest.mark.trio
async def test_only_the_wanted_number_of_rows_is_used() -> None:
    assert outputs(await collect(suite_of(first("a", "b", "c"), second(limit=2)))) == [
        "<a>!",
        "<b>!",
    ]


@pytest.mark.trio
@pytest.mark.parametrize(
    "text", ["{{ 1 + 1 }}", "file:///etc/passwd", "{% raw %}", "{{ env.HOME }}", "a\n"]
)
@pytest.mark.attack("texts of models")
async def test_contents_of_rows_are_data(text: str) -> None:
    """It is not rendered as a template, and does not name a file."""

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
async def test_a_task_without_source_rows_has_no_rows() -> None:
    async def fails(_request: Request) -> Reply:  # noqa: ASYNC124
        raise ValueError("no")

    broken = first("a", "b")
    broken = attrs.evolve(
        broken, suite=attrs.evolve(broken.suite, providers=(ProviderEntry(id="fails"),))
    )
    rows = await collect(suite_of(broken, second()), providers={"fails": fails})
    assert [row.task for row in rows] == ["first", "first"]


@pytest.mark.trio
async def test_tests_are_reported_as_soon_as_they_are_known() -> None:
    counts: list[tuple[str | None, int | None]] = []
    prepared = prepare(suite_of(first("a", "b"), second()))
    assert [part.rows for part in prepared.parts] == [2, None]
    assert prepared.size == 2

    async def emit(row: Row) -> None:  # noqa: ASYNC124
        if row.task == "second":
            assert counts

    await run_with_options(
        prepared, RunOptions(emit=emit, settled=lambda part: counts.append((part.id, part.rows)))
    )
    assert counts == [("second", 2)]


def questions_suite(variables: Mapping[str, str]) -> Suite:
    return Suite(
        providers=(ECHO,),
        prompts=(prompt("q"),),
        tests=(),
        settings=QuestionSettings(file=Path("q.yaml")),
        rows_of=RowsOfTask(task="first", question=variables),
    )


def questions(rows: Sequence[Mapping[str, Any]]) -> Suite:
    variables = {"question": "q", "answers": "options", "correctAnswers": "right"}
    return with_rows(questions_suite(variables), rows, Templates())


def test_rows_become_questions_with_numbers_as_text() -> None:
    suite = questions([{"q": "2 + 2?", "options": [3, 4, 5.5], "right": 4}])
    assert isinstance(suite.settings, QuestionSettings)
    [question] = suite.settings.questions
    assert question.answers == ("3", "4", "5.5")
    assert question.correct_answers == ("4",)
    assert len(suite.tests) == 1
    assert suite.tests[0].is_data


def test_all_errors_of_a_row_as_a_question_are_reported_at_once() -> None:
    """It keeps its position, and the other rows are still questions."""
    suite = questions(
        [
            {"q": "", "options": ["a", "b", "A"], "right": "a"},
            {"q": "x", "options": ["a", "b"], "right": "b"},
            {"q": ["x"], "options": None, "right": "z"},
        ]
    )
    faults = [test.fault for test in suite.tests]
    assert faults[1] is None
    assert suite.tests[1].vars["correctAnswers"] == ["b"]
    assert str(faults[0]).splitlines() == [
        "row 0 of task first is not a valid question:",
        "question: must not be blank",
        'answers[2]: "A" is the same answer as "a"',
    ]
    assert str(faults[2]).startswith(
        "row 2 of task first is not a valid question:\nquestion: must be text"
    )
    assert [test.is_data for test in suite.tests] == [True] * 3


def test_rows_with_one_id_are_one_question_and_errors() -> None:
    """It would be unclear which of them the id means."""
    rows = [{"q": "x", "o": ["a", "b"], "r": "a", "n": name} for name in ("one", "two", "one")]
    variables = {"question": "q", "answers": "o", "correctAnswers": "r", "id": "n"}
    suite = with_rows(questions_suite(variables), rows, Templates())
    assert [test.description for test in suite.tests[:2]] == ["one", "two"]
    assert [test.fault is None for test in suite.tests] == [True, True, False]


@pytest.mark.trio
async def test_a_row_that_is_not_a_question_is_a_separate_error() -> None:
    """It ends without a call and with the reason; the run continues with the others."""
    prompts: list[str] = []

    async def right(request: Request) -> str:  # noqa: ASYNC124 - as providers are
        prompts.append(request.prompt)
        return "<answer>yes</answer>"

    entry = ProviderEntry(id="right")
    variables = {
        "question": "vars.word",
        "answers": "vars.choices",
        "correctAnswers": "vars.choice",
    }
    texts = [("sure?", ["yes", "no"]), ("", ["yes", "no"]), ("really?", ["yes", "no"])]
    tests = tuple(
        Test(vars={"word": word, "choices": {"of": choices}, "choice": "yes"})
        for word, choices in texts
    )
    made = Suite(providers=(ECHO,), prompts=(prompt("{{ word }}"),), tests=tests)
    quiz = attrs.evolve(
        questions_suite({**variables, "answers": "vars.choices.of"}), providers=(entry,)
    )
    rows = await collect(
        suite_of(
            Task(id="first", suite=made), Task(id="second", suite=quiz, depends_on=("first",))
        ),
        providers={"right": right},
    )
    found = [row for row in rows if row.task == "second"]
    assert [row.status for row in found] == [Status.PASS, Status.ERROR, Status.PASS]
    assert "row 1 of task first is not a valid question:\nquestion: must not be blank" in str(
        found[1].error
    )
    assert len(prompts) == 2


@pytest.mark.trio
async def test_a_row_that_makes_no_test_is_a_separate_error() -> None:
    """The error names the row and the variable; the run continues with the others."""
    variables = {"text": "output", "more": "{{ vars.word.parts | join }}"}
    tests = tuple(Test(vars={"word": {"parts": parts}}) for parts in (["a"], "a", ["b"]))
    made = Suite(providers=(ECHO,), prompts=(prompt("-"),), tests=tests)
    rows = await collect(
        suite_of(Task(id="first", suite=made), second(variables, raw="{{ text }}{{ more }}"))
    )
    found = [row for row in rows if row.task == "second"]
    assert [row.output for row in found] == ["-a", None, "-b"]
    assert found[1].status is Status.ERROR
    assert "row 1 of task first is not a valid test:\nvars.more: " in str(found[1].error)


def test_tests_of_rows_can_be_taken_from_the_end() -> None:
    """Negative indices work as for any sequence, and each test belongs to its own row."""
    [late] = prepare(suite_of(first("a"), second({"text": "n"}))).parts[1:]
    assert late.prepare_with_rows is not None
    tests = late.prepare_with_rows([{"n": 0}, {"n": 1}, {"n": 2}]).suite.tests
    assert [test.vars["text"] for test in (tests[-1], *tests[:2])] == [2, 0, 1]


@pytest.mark.parametrize(
    "config",
    [{"apiKey": "sk-0123456789"}, {"headers": {"Authorization": "Bearer sk-0123456789"}}],
)
def test_keys_of_providers_exist_when_the_rows_do(config: Mapping[str, Any]) -> None:
    """The displayed suite hides them, but the suite that runs contains them."""
    config = {**config, "apiBaseUrl": "http://127.0.0.1:9/v1"}
    entry = ProviderEntry(id="openai:chat:some", config=config)
    exam = second()
    exam = attrs.evolve(exam, suite=attrs.evolve(exam.suite, providers=(entry,)))
    [late] = prepare(suite_of(first("a"), exam), environ={}).parts[1:]
    assert late.prepare_with_rows is not None
    settled = late.prepare_with_rows([{"output": "x"}])
    assert settled.lane_names == late.prepared.lane_names
    assert settled.specs == late.prepared.specs
    assert "sk-0123456789" in settled.specs[0].secrets
    assert "sk-0123456789" not in str(settled.suite)


def test_a_dotted_name_is_a_path_unless_a_column_has_it() -> None:
    assert value_of({"a": {"b": 1}}, "a.b") == 1
    assert value_of({"a.b": 2, "a": {"b": 1}}, "a.b") == 2
    assert value_of({"a": 3}, "a.b") is None


@attrs.define
class Counted:
    """Echoes prompts and counts calls."""

    prompts: list[str] = attrs.field(factory=list)

    async def __call__(self, request: Request) -> Reply:  # noqa: ASYNC124 - as providers are
        self.prompts.append(request.prompt)
        return Reply(output=request.prompt)


async def resumed_twice(
    path: Path, once: Suite, again: Suite, counted: Counted
) -> list[tuple[str | None, int, Status]]:
    """Run a suite, resume it as another one, and return the calls of the second execution."""
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
            await run_with_options(prepared, RunOptions(emit=emit, journal=run))
            run.finish("finished", duration_ms=1, derived={})
    return ran


def of_counted(task: Task) -> Task:
    return attrs.evolve(
        task, suite=attrs.evolve(task.suite, providers=(ProviderEntry(id="counted"),))
    )


@pytest.mark.trio
async def test_a_continued_run_repeats_no_call_of_its_rows(tmp_path: Path) -> None:
    counted = Counted()
    suite = suite_of(of_counted(first("a", "b")), of_counted(second()))
    assert await resumed_twice(tmp_path / "r.db", suite, suite, counted) == []
    assert len(counted.prompts) == 4


@pytest.mark.trio
async def test_a_row_of_a_changed_test_is_run_again(tmp_path: Path) -> None:
    counted = Counted()
    once = suite_of(of_counted(first("a", "b")), of_counted(second({"text": "vars.word"})))
    again = suite_of(
        of_counted(first("a", "b")), of_counted(second({"text": "{{ vars.word | upper }}"}))
    )
    ran = await resumed_twice(tmp_path / "r.db", once, again, counted)
    assert ran == [("second", 0, Status.NOT_GRADED), ("second", 1, Status.NOT_GRADED)]
    assert counted.prompts[-2:] == ["A!", "B!"]


def test_rows_of_an_earlier_execution_look_like_those_of_this_one() -> None:
    left, again = TaskRows(), TaskRows()

    async def emit(row: Row) -> None:  # noqa: ASYNC124
        left.add(row)
        from trioeval.report.row import row_json

        again.add_record(row.index, row_json(row, eval_id="x"))

    async def main() -> None:
        await run_suite(suite_of(first("a", "b")), emit=emit)

    trio.run(main)
    assert left.rows() == again.rows()
    assert [row["output"] for row in left.rows()] == ["<a>", "<b>"]


@pytest.mark.trio
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.attack("texts of models")
async def test_contents_of_rows_do_not_become_code(tmp_path: Path, *, nested: bool) -> None:
    """The loader does not check these texts: code is used unchanged, and reads variables."""
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
