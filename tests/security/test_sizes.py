"""Suites of a few lines that expand to a billion rows: counted at once, refused before anything runs."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import trioeval
from trioeval.cli.run.plan import plan_lines
from trioeval.errors import PlanError, SuiteError
from trioeval.evaluation.reconcile import Retry
from trioeval.loading.load import load_suite, parse_suite
from trioeval.report.stored import RunStart
from trioeval.run import PreparedSuite, RunOptions, prepare, run_with_options
from trioeval.store.reader import read_store
from trioeval.store.store import open_store
from trioeval.suite.expand import expand
from trioeval.suite.filters import Filters, select_tests
from trioeval.suite.model import Suite
from trioeval.suite.sizes import TooManyRowsError, count_rows, rows_by_column

pytestmark = pytest.mark.attack("sizes")

DIGITS = [str(digit) for digit in range(10)]
NINE = dict.fromkeys("abcdefghi", DIGITS)
MANY = [{"vars": {"x": str(number)}} for number in range(2000)]
BASE: Mapping[str, Any] = {"providers": ["echo"], "prompts": ["{{a}}"]}

SUITES: Mapping[str, tuple[Mapping[str, Any], int, str]] = {
    "nine variables": (
        {**BASE, "tests": [{"vars": NINE}]},
        10**9,
        "1 prompt × 1 provider × tests[0] with " + " × ".join(["10"] * 9) + " of vars a, b, c, d,",
    ),
    "one of many tests": (
        {**BASE, "tests": [*MANY[:5], {"vars": NINE}, *MANY[:5]]},
        10**9 + 10,
        "most of them 1,000,000,000 rows: 1 prompt × 1 provider × tests[5] with 10 × 10",
    ),
    "the default test": (
        {**BASE, "defaultTest": {"vars": NINE}, "tests": [{"vars": {"z": "1"}}] * 2},
        2 * 10**9,
        "2 tests with 10 × 10",
    ),
    "repeats": (
        {**BASE, "tests": [{"vars": {"a": "1"}}], "evaluateOptions": {"repeat": 10**9}},
        10**9,
        "tests[0] × repeat 1,000,000,000",
    ),
    "repeats of a test": (
        {**BASE, "tests": [{"vars": {"a": DIGITS}, "options": {"repeat": 10**8}}]},
        10**9,
        "with 10 of var a × repeat 100,000,000",
    ),
    "scenarios": (
        {**BASE, "scenarios": [{"config": MANY, "tests": MANY}]},
        4_000_000,
        "4,000,000 tests of scenarios",
    ),
    "scenarios that all differ": (
        {
            **BASE,
            "scenarios": [
                {
                    "config": [{"vars": {f"v{number}": DIGITS}} for number in range(1000)],
                    "tests": MANY,
                }
            ],
        },
        20_000_000,
        "2,000,000 tests of scenarios with 10 of var v0",
    ),
    "prompts and providers": (
        {
            "providers": [{"id": "echo", "label": str(number)} for number in range(1001)],
            "prompts": [f"prompt {number}" for number in range(1001)],
            "tests": [{"vars": {"a": "1"}}],
        },
        1001**2,
        "1,001 prompts × 1,001 providers",
    ),
    "variables of many names": (
        {**BASE, "tests": [{"vars": {f"variable {n} {'x' * 90}": ["1", "2"] for n in range(30)}}]},
        2**30,
        "… (18 more) of vars variable 0 xxx",
    ),
}


def prepared(document: Mapping[str, Any], **how: Any) -> PreparedSuite:
    return prepare(parse_suite(document), environ={}, **how)


@pytest.mark.parametrize("raised", [0, 10**7])
def test_an_untrusted_suite_only_lowers_its_bound(raised: int) -> None:
    """A higher bound is ignored with a warning, and the user's own bound has precedence."""
    suite = {**BASE, "tests": [{"vars": {"a": DIGITS}, "options": {"repeat": 200_000}}]}
    raising = parse_suite({**suite, "evaluateOptions": {"maxRows": raised}}, trusted=False)
    assert [one.path for one in raising.warnings] == ["$.evaluateOptions.maxRows"]
    with pytest.raises(TooManyRowsError, match="a run may have 1,000,000"):
        prepare(raising)
    assert len(prepare(raising, max_rows=3 * 10**6).steps) == 2 * 10**6
    assert not parse_suite({**suite, "evaluateOptions": {"maxRows": raised}}).warnings
    lowering = parse_suite({**suite, "evaluateOptions": {"maxRows": 5}}, trusted=False)
    assert not lowering.warnings
    with pytest.raises(TooManyRowsError, match="a run may have 5;"):
        prepare(lowering)


def test_cyclic_links_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two links to their own folder make a tree of 2^40 paths: a pattern stops at its bound."""
    monkeypatch.setattr("trioeval.documents.files._MOST_FILES", 50)
    (tmp_path / "a.txt").write_text("a")
    for name in ("x", "y"):
        (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(SuiteError, match="matches more than 50 files"):
        parse_suite({**BASE, "prompts": ["file://**/*.txt"]}, directory=tmp_path)


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_of_too_many_rows_is_refused_with_its_factors(name: str) -> None:
    """The message has the count, the factors and a remedy; nothing is expanded."""
    document, rows, factors = SUITES[name]
    with pytest.raises(TooManyRowsError) as refused:
        prepared(document)
    assert refused.value.rows == rows
    message = str(refused.value)
    assert f"{rows:,} rows: " in message
    assert factors in message
    assert "raise --max-rows" in message


@pytest.mark.parametrize(
    "name", [name for name in SUITES if "scenarios" not in name and "prompts" not in name]
)
def test_the_whole_plan_of_any_number_of_rows_is_counted(name: str) -> None:
    """Rows of lanes, and tests, are counted by multiplication."""
    document, rows, _ = SUITES[name]
    lines = [*plan_lines(prepared(document, max_rows=0))]
    assert lines[0].startswith(f"{rows} rows of ")
    assert any(f": {rows} rows, 4 at once" in line for line in lines)
    assert len(lines) < 300


@pytest.mark.parametrize(
    "name", [name for name in SUITES if name not in {"prompts and providers", "repeats"}]
)
def test_the_first_tests_of_any_suite_are_five(name: str) -> None:
    """`-n` counts as a plan does: each set of variables is a test."""
    document, _, _ = SUITES[name]
    filters = Filters(first_n=5)
    found = prepared(
        {**document, "evaluateOptions": {"repeat": 2}},
        select=lambda suite: select_tests(suite, filters),
        first_n=5,
        max_rows=10**9,
    )
    repeats = 10**8 if name == "repeats of a test" else 2
    assert len(found.steps) == 5 * repeats
    assert sum(1 for _ in found.steps.spans) <= 5
    first, last = found.steps[0], found.steps[-1]
    assert (first.repeat_index, last.repeat_index) == (0, repeats - 1)


JUDGED: Mapping[str, Any] = {
    **BASE,
    "tests": [
        {"vars": NINE, "assert": [{"type": "llm-rubric", "value": "kind", "provider": "echo"}]}
    ],
}


def test_calls_of_judges_are_counted_too() -> None:
    """There is one call per row."""
    lines = [*plan_lines(prepared(JUDGED, max_rows=0))]
    assert any(
        "1000000000 rows, 1000000000 judge calls (at most 2000000000)" in one for one in lines
    )


QUESTIONS = {
    "version": 1,
    "questions": [{"question": "?", "answers": ["a", "b"], "correctAnswers": ["a"]}],
}


def of_task(folder: Path, **task: Any) -> Suite:
    (folder / "questions.json").write_text(json.dumps(QUESTIONS))
    file = folder / "suite.json"
    file.write_text(json.dumps({"providers": ["echo"], "tasks": [{"id": "t", **task}]}))
    return load_suite(file)


TASKS: list[Mapping[str, Any]] = [
    {"type": "prompt_eval", "prompts": ["x"], "tests": [{"vars": NINE}]},
    {
        "type": "question_eval",
        "questionsFile": "questions.json",
        "evaluateOptions": {"repeat": 10**9},
    },
    {
        "type": "agent",
        "prompts": ["Do it."],
        "tests": [{"id": "case"}],
        "evaluateOptions": {"repeat": 10**9},
    },
    {
        "type": "columns",
        "rows": 10**9,
        "columns": [{"name": "a", "type": "sampler", "sampler": "uniform", "low": 0, "high": 1}],
    },
]


@pytest.mark.parametrize("task", TASKS, ids=[str(task["type"]) for task in TASKS])
def test_tasks_of_all_types_are_bounded(task: Mapping[str, Any], tmp_path: Path) -> None:
    """Questions, cases and rows of datasets count like rows; a higher bound admits them."""
    suite = of_task(tmp_path, **task)
    with pytest.raises(TooManyRowsError, match=r"tasks\[0\].*1,000,000,000 rows"):
        prepare(suite, environ={})
    assert any("1000000000" in line for line in plan_lines(prepare(suite, environ={}, max_rows=0)))


def test_tasks_are_bounded_together(tmp_path: Path) -> None:
    """Each alone would be accepted, but not all together."""
    task = {"type": "prompt_eval", "prompts": ["x"], "tests": [{"vars": {"a": DIGITS}}]}
    document = {
        "providers": ["echo"],
        "tasks": [{"id": name, **task} for name in "abc"],
        "evaluateOptions": {"maxRows": 29},
    }
    file = tmp_path / "suite.json"
    file.write_text(json.dumps(document))
    with pytest.raises(TooManyRowsError, match="30 rows: 10 of task a \\+ 10 of task b"):
        prepare(file, environ={})
    assert prepare(file, environ={}, max_rows=30).size == 30
    assert prepare(file, environ={}, tasks=["a"]).size == 10


@pytest.mark.parametrize("bound", [99, 100, 0])
def test_the_bound_of_a_suite_is_exact(bound: int) -> None:
    """Exactly that many rows are run."""
    document = {
        **BASE,
        "tests": [{"vars": {"a": DIGITS, "b": DIGITS}}],
        "evaluateOptions": {"maxRows": bound},
    }
    if bound == 99:
        with pytest.raises(TooManyRowsError, match="a run may have 99"):
            prepared(document)
    else:
        assert len(prepared(document).steps) == 100


@pytest.mark.parametrize(
    ("repeat", "error"),
    [(2**31, TooManyRowsError), (10**18, TooManyRowsError), (10**30, PlanError)],
)
def test_more_rows_than_can_be_numbered_are_refused_without_a_bound(
    repeat: int, error: type[Exception]
) -> None:
    """Their results would overwrite each other."""
    document = {**BASE, "tests": [{"vars": {"a": "1"}}], "evaluateOptions": {"repeat": repeat}}
    with pytest.raises(error):
        prepared(document, max_rows=0)


def test_code_is_not_run_for_millions_of_tests(tmp_path: Path) -> None:
    """`transformVars` reads each test of a scenario: too many are refused when the suite is loaded."""
    scenario = {"config": MANY, "tests": MANY}
    default = {"options": {"transformVars": "({...vars, y: '1'})"}}
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({**BASE, "scenarios": [scenario], "defaultTest": default}))
    with pytest.raises(SuiteError, match="4,000,000 tests of scenarios"):
        load_suite(file)


def bomb(levels: int, width: int) -> str:
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join([*lines, "providers: [echo]", "prompts: [x]", f"tests: *a{levels - 1}"])


@pytest.mark.parametrize(("levels", "width"), [(10, 9), (30, 2), (4, 300), (100, 100)])
def test_multiplying_aliases_are_refused(levels: int, width: int, tmp_path: Path) -> None:
    """A billion laughs: the values are counted before they are expanded."""
    file = tmp_path / "bomb.yaml"
    file.write_text(bomb(levels, width))
    with pytest.raises(SuiteError, match="aliases expand"):
        load_suite(file)


COUNTED = st.fixed_dictionaries(
    {
        "providers": st.sampled_from([["echo"], ["echo", {"id": "echo", "label": "b"}]]),
        "prompts": st.sampled_from([["{{a}}"], ["{{a}}", "b {{b}}"]]),
        "tests": st.lists(
            st.fixed_dictionaries(
                {
                    "vars": st.dictionaries(
                        st.sampled_from("abc"), st.sampled_from([DIGITS[:3], "x"])
                    )
                },
                optional={"options": st.sampled_from([{"repeat": 3}, {"runSerially": True}])},
            ),
            min_size=1,
            max_size=3,
        ),
    }
)


@settings(max_examples=60)
@given(COUNTED, st.none() | st.integers(1, 9), st.data())
def test_counts_equal_the_number_of_rows(
    document: Mapping[str, Any], first_n: int | None, data: st.DataObject
) -> None:
    """The closed form equals a count of the rows, also by column for any part of them."""
    steps = expand(parse_suite(document), first_n=first_n)
    rows = [step.prompt_idx for step in steps]
    counted = count_rows(steps)
    assert counted.rows == len(rows)
    factors = [int(part) for part in counted.factors.replace(",", " ").split() if part.isdigit()]
    assert not rows or math.prod(factors) > 0
    start = data.draw(st.integers(0, len(rows)))
    part = range(start, data.draw(st.integers(start, len(rows))))
    wanted = {column: rows[start : part.stop].count(column) for column in set(rows)}
    assert rows_by_column(steps, part) == {column: n for column, n in wanted.items() if n}


def huge(rows: int, *, lanes: int = 1) -> PreparedSuite:
    """Create a suite of the given number of rows, with providers named after their index."""
    names = [f"p{number}" for number in range(lanes)]
    numbers = [str(number) for number in range(100)]
    tests = rows // lanes // 100
    document = {
        "providers": [{"id": name, "lane": {"maxConcurrency": 8}} for name in names],
        "prompts": ["{{a}}{{b}}"],
        "tests": [{"vars": {"a": numbers, "b": [str(number) for number in range(tests)]}}],
    }
    return prepare(parse_suite(document), environ={}, providers=dict.fromkeys(names, echo))


async def echo(request: trioeval.Request) -> str:
    """Reply at once."""
    await trio.lowlevel.checkpoint()
    return request.prompt


async def stopped(suite: PreparedSuite, path: Path, after: int, *, goes_on: bool) -> list[int]:
    """Run until a number of rows has been emitted; return the indices of all emitted rows, in order."""
    stop, seen = trio.Event(), list[int]()
    start = RunStart(id="eval-1", utc_created="2026-01-01T00:00:00.000Z")

    async def emit(row: trioeval.Row) -> None:  # noqa: ASYNC124
        seen.append(row.index)
        if len(seen) == after:
            stop.set()

    async def emit_many(rows: Any) -> None:  # noqa: ASYNC124
        seen.extend(rows.indices)

    async with open_store(path) as store:
        run = await store.resume("eval-1", start) if goes_on else store.begin(start)
        summary = await run_with_options(
            suite, RunOptions(emit=emit, emit_many=emit_many, journal=run, stop=stop)
        )
        assert store.error is None
    assert summary.rows == len(suite.steps)
    return seen


def test_rows_that_never_started_are_a_range_and_cost_nothing(tmp_path: Path) -> None:
    """Of 200,000 rows, stopped after the first 20, those that never started are one line, and all are known.

    More than 20 rows run, because rows are emitted when they are on disk: the speed of the disk decides.
    """
    path, suite = tmp_path / "results.db", huge(200_000)
    seen = trio.run(lambda: stopped(suite, path, 20, goes_on=False))
    assert seen == [*range(200_000)]
    with read_store(path) as reader:
        run = reader.run("latest")
        (left,) = reader.never_began(run)
        listed = sum(1 for _ in reader.outcomes(run))
        assert listed + len(left.rows) == 200_000
        assert 20 <= run.not_graded <= listed <= run.not_graded + 100
        assert path.stat().st_size < 2**20 + 2**12 * listed
        assert (run.rows, run.state) == (200_000, "interrupted")
        assert run.not_run + run.not_graded == 200_000
        assert left.error == "not run: the run was stopped"
        assert left.columns == {0: len(left.rows)}


def test_a_run_that_left_ranges_continues_to_the_same_end(tmp_path: Path) -> None:
    """RESUME, twice, over two lanes: every index once and in order; in the end every row exists."""
    path, suite = tmp_path / "results.db", huge(1200, lanes=2)

    async def main() -> None:
        seen = await stopped(suite, path, 30, goes_on=False)
        assert seen == [*range(1200)]
        for after in (40, 10**9):
            with read_store(path) as reader:
                run = reader.run("latest")
                kept = {one.index for one in reader.outcomes(run) if one.status.has_verdict}
                assert run.rows == 1200
                covered = [row for one in reader.never_began(run) for row in one.rows]
                rows = [one.index for one in reader.outcomes(run)]
                assert sorted([*covered, *rows]) == [*range(1200)]
            again = await stopped(suite, path, after, goes_on=True)
            assert again == sorted({*range(1200)} - kept)

    trio.run(main)
    with read_store(path) as reader:
        run = reader.run("latest")
        assert (run.not_graded, run.not_run, run.state) == (1200, 0, "finished")
        assert not reader.never_began(run)
        outputs = [one["response"]["output"] for one in reader.records(run)]
        assert outputs == [f"{step.vars['a']}{step.vars['b']}" for step in suite.steps]


def test_rows_that_wait_for_a_rerun_are_in_no_range(tmp_path: Path) -> None:
    """A stopped retry removes nothing: earlier results stay, and are still to be rerun."""
    path, suite = tmp_path / "results.db", huge(400)
    trio.run(lambda: stopped(suite, path, 10**9, goes_on=False))

    async def retried() -> None:
        stop = trio.Event()
        stop.set()
        start = RunStart(id="eval-1", utc_created="2026-01-01T00:00:00.000Z")

        async def emit(_row: object) -> None:  # noqa: ASYNC124
            pass

        async with open_store(path) as store:
            which = Retry("rows", (range(50, 390),))
            run = await store.resume("eval-1", start, retry=which)
            await run_with_options(
                suite, RunOptions(emit=emit, emit_many=emit, journal=run, stop=stop)
            )

    trio.run(retried)
    with read_store(path) as reader:
        run = reader.run("latest")
        assert (run.not_graded, run.not_run, run.state) == (400, 0, "interrupted")
        assert not reader.never_began(run)
