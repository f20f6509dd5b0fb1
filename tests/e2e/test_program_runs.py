"""Runs that a program stores can be shown, exported and continued like those of the command line."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trioeval
from trioeval.cli import run_command_line
from trioeval.run import Row, RunOptions, run_with_options
from trioeval.store.reader import read_store
from trioeval.store.run import StoredRun
from trioeval.store.store import Store

KEY = "sk-proj-0123456789abcdefghijklmnop"


def suite_of(*words: str) -> dict[str, Any]:
    return {
        "description": "words",
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": word}, "assert": [{"type": "contains", "value": "h"}]}
            for word in words
        ],
    }


SEVERAL = {
    "providers": ["echo"],
    "tasks": [
        {"id": "a", "type": "prompt_eval", "prompts": ["a {{x}}"], "tests": [{"vars": {"x": 1}}]},
        {
            "id": "b",
            "type": "prompt_eval",
            "dependsOn": ["a"],
            "prompts": ["b {{x}}"],
            "tests": [{"vars": {"x": 1}}, {"vars": {"x": 2}}],
        },
    ],
}


async def ignore(_row: Row) -> None:
    """Ignore rows, which are checked later in the store."""


def start_of(run: str = "eval-mine") -> trioeval.store.RunStart:
    return trioeval.store.RunStart(id=run, utc_created="2026-01-01T00:00:00.000Z")


def keep(path: Path, suite: Any, run: str = "eval-mine", **how: Any) -> None:
    """A program that stores a run as in the guide."""

    async def main() -> None:
        async with trioeval.store.open_store(path) as store:
            kept = store.begin(start_of(run))
            await run_with_options(suite, RunOptions(emit=ignore, journal=kept, **how))

    trio.run(main)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIOEVAL_DB", "mine.db")
    return tmp_path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(line: str) -> tuple[int, str, str]:
        code = run_command_line(line.split())
        stderr = capsys.readouterr()
        return code, stderr.out, stderr.err

    return run


Command = Callable[[str], tuple[int, str, str]]


def test_a_run_of_a_program_is_read_like_any_other(folder: Path, command: Command) -> None:
    """Its suite, its tests and its end are stored, without a suite file."""
    keep(folder / "mine.db", trioeval.parse_suite(suite_of("hi", "ho", "x")))
    keep(folder / "mine.db", trioeval.parse_suite(suite_of("hi", "ho", "hx")), "eval-2")
    code, shown, _ = command("show eval-mine")
    assert code == 0
    assert shown.startswith("eval-mine of words: finished, started 2026-01-01 00:00 UTC; 3 rows: ")
    assert "word=ho   FAIL" not in shown
    code, _, stderr = command("export eval-mine -o x.json -o x.html -o x.csv")
    assert (code, stderr) == (
        0,
        "".join(f"wrote x.{one}: 3 rows of eval-mine\n" for one in ("json", "html", "csv")),
    )
    document = json.loads((folder / "x.json").read_text())
    assert document["config"]["prompts"][0]["raw"] == "say {{word}}"
    assert [test["vars"]["word"] for test in document["config"]["tests"]] == ["hi", "ho", "x"]
    assert document["metadata"]["trioevalVersion"] == trioeval.__version__
    code, compared, _ = command("compare eval-mine eval-2")
    assert (code, compared.splitlines()[-1]) == (0, "4 rows: 2 same, 1 new, 1 gone")
    with read_store(folder / "mine.db") as reader:
        facts = reader.run("eval-mine")
        assert (facts.expected, facts.description, facts.state) == (3, "words", "finished")


def test_the_tasks_of_a_program_are_stored_separately(folder: Path, command: Command) -> None:
    """This holds for a continued run as well."""
    path = folder / "mine.db"
    keep(path, trioeval.parse_suite(SEVERAL))

    async def again() -> trioeval.SuiteSummary:
        async with trioeval.store.open_store(path) as store:
            run = await store.resume("eval-mine", start_of())
            suite = trioeval.parse_suite(SEVERAL)
            return await run_with_options(suite, RunOptions(emit=_refuse, journal=run))

    assert trio.run(again).not_graded == 3
    with read_store(path) as reader:
        facts = reader.run("eval-mine")
        assert facts.tasks == ("a", "b")
        assert [len([*reader.records(facts, task)]) for task in facts.tasks] == [1, 2]
    code, shown, _ = command("show --task b")
    assert (code, "b 2" in shown, "a 1" in shown) == (0, True, False)


async def _refuse(row: Row) -> None:  # noqa: ASYNC124
    pytest.fail(f"row {row.index} was run again")


def test_keys_of_a_program_are_hidden(folder: Path) -> None:
    """This is the same as for a run of the command line."""
    suite = suite_of(KEY)
    suite["env"] = {"MY_API_KEY": KEY}
    keep(folder / "mine.db", trioeval.parse_suite(suite))
    assert KEY.encode() not in (folder / "mine.db").read_bytes()


def test_a_suite_of_a_program_is_continued_there(folder: Path, command: Command) -> None:
    """The command line reports this, and names the call."""
    keep(folder / "mine.db", trioeval.parse_suite(suite_of("hi")))
    code, _, stderr = command("resume eval-mine")
    assert code == 2
    assert stderr == (
        "eval-mine cannot be continued from the command line: its suite is part of the program "
        f"{Path(sys.argv[0]).absolute()}; continue it there, with `session.run(suite, "
        'id="eval-mine", resume=True)`\n'
    )


def test_a_run_without_a_suite_is_reported(folder: Path, command: Command) -> None:
    """A program started a run and ran nothing in it, so no result can be shown."""

    async def main() -> None:
        async with trioeval.store.open_store(folder / "mine.db") as store:
            store.begin(start_of())

    trio.run(main)
    code, _, stderr = command("show eval-mine")
    assert code == 1
    assert stderr.startswith("the run has no results to show: the program that started it")


@attrs.define
class Cutting:
    """A provider that replies, and after some replies ends the run in one of several ways."""

    scope: trio.CancelScope
    after: int
    prompts: list[str] = attrs.field(factory=list)

    async def __call__(self, request: Any) -> str:
        self.prompts.append(request.prompt)
        if len(self.prompts) > self.after:
            self.scope.cancel()
            await trio.sleep_forever()
        return str(request.prompt)


def test_a_suite_file_of_a_program_is_continued_by_the_command_line(
    folder: Path, command: Command
) -> None:
    """`resume` runs only the rest of a stopped run."""
    (folder / "s.json").write_text(json.dumps(suite_of("hi", "ho", "h")))
    stop = trio.Event()

    async def main() -> None:
        async with trioeval.store.open_store(folder / "mine.db") as store:
            run = store.begin(start_of())
            await run_with_options(
                folder / "s.json", RunOptions(emit=ignore, journal=run, stop=stop)
            )

    stop.set()
    trio.run(main)
    with read_store(folder / "mine.db") as reader:
        facts = reader.run("eval-mine")
        assert (facts.state, facts.outcomes) == ("interrupted", {"not_run": 3})
    code, _, stderr = command("resume eval-mine --no-progress")
    assert code == 0
    assert re.match(r"3 rows in \d+\.\d s: 3 passed,", stderr.splitlines()[-1])
    with read_store(folder / "mine.db") as reader:
        assert (reader.run("eval-mine").state, reader.run("eval-mine").executions) == (
            "finished",
            2,
        )


def test_a_cancelled_run_can_continue_at_once(folder: Path) -> None:
    """This works in the same process and store, and no recorded reply is requested again."""
    suite = trioeval.parse_suite({**suite_of("hi", "ho", "hx"), "providers": ["own"]})
    suite = attrs.evolve(suite, evaluate_options=trioeval.suite.EvaluateOptions(max_concurrency=1))

    async def main() -> tuple[Cutting, Cutting, trioeval.SuiteSummary]:
        async with trioeval.store.open_store(folder / "mine.db") as store:
            run = store.begin(start_of())
            with trio.CancelScope() as scope:
                first = Cutting(scope, 1)
                await run_with_options(
                    suite, RunOptions(emit=ignore, journal=run), providers={"own": first}
                )
            assert scope.cancelled_caught or scope.cancel_called
            run = await store.resume("eval-mine", start_of())
            second = Cutting(trio.CancelScope(), 9)
            summary = await run_with_options(
                suite, RunOptions(emit=ignore, journal=run), providers={"own": second}
            )
            return first, second, summary

    first, second, summary = trio.run(main)
    assert (first.prompts, second.prompts) == (["say hi", "say ho"], ["say ho", "say hx"])
    assert (summary.passed, summary.errors) == (3, 0)
    with read_store(folder / "mine.db") as reader:
        facts = reader.run("eval-mine")
        assert (facts.state, facts.executions, facts.passed) == ("finished", 2, 3)


def test_rows_of_a_suite_that_changed_are_run_again(folder: Path) -> None:
    """Rows are kept if provider, prompt and variables are the same, whatever their positions."""
    keep(folder / "mine.db", trioeval.parse_suite(suite_of("hi", "ho", "hx")))
    emitted: list[Any] = []

    async def emit(row: Row) -> None:  # noqa: ASYNC124
        emitted.append(row.output)

    async def main() -> None:
        suite = trioeval.parse_suite(suite_of("hey", "ho", "ha", "hu"))
        async with trioeval.store.open_store(folder / "mine.db") as store:
            run = await store.resume("eval-mine", start_of())
            await run_with_options(suite, RunOptions(emit=emit, journal=run))

    trio.run(main)
    assert emitted == ["say hey", "say ha", "say hu"]
    with read_store(folder / "mine.db") as reader:
        facts = reader.run("eval-mine")
        outputs = [record["response"]["output"] for record in reader.records(facts)]
        assert (facts.state, outputs) == ("finished", ["say hey", "say ho", "say ha", "say hu"])


def test_a_finished_run_is_not_run_again(folder: Path) -> None:
    """It must be resumed, because others may continue it; its recorded end is unchanged."""

    async def main() -> None:
        suite = trioeval.parse_suite(suite_of("hi"))
        async with trioeval.store.open_store(folder / "mine.db") as store:
            run = store.begin(start_of())
            await run_with_options(suite, RunOptions(emit=ignore, journal=run))
            with pytest.raises(trioeval.UsageError, match=r"eval-mine is over; .* store\.resume"):
                await run_with_options(suite, RunOptions(emit=_refuse, journal=run))

    trio.run(main)
    with read_store(folder / "mine.db") as reader:
        assert reader.run("eval-mine").state == "finished"


async def _fails_to_emit(run: StoredRun) -> None:
    async def emit(_row: Row) -> None:  # noqa: ASYNC124
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_with_options(
            trioeval.parse_suite(suite_of("hi")), RunOptions(emit=emit, journal=run)
        )


async def _is_no_suite(run: StoredRun) -> None:
    suite = trioeval.parse_suite({**suite_of("hi"), "providers": ["nothing:at:all"]})
    with pytest.raises(trioeval.SuiteError):
        await run_with_options(suite, RunOptions(emit=ignore, journal=run))


async def _is_cancelled_before(run: StoredRun) -> None:
    with trio.move_on_after(0):
        await run_with_options(
            trioeval.parse_suite(suite_of("hi")), RunOptions(emit=ignore, journal=run)
        )


async def _meets_its_deadline(run: StoredRun) -> None:
    options = trioeval.suite.EvaluateOptions(max_eval_time_ms=1)
    suite = trioeval.parse_suite({**suite_of("hi"), "providers": ["own"]})
    suite = attrs.evolve(suite, evaluate_options=options)

    async def never(_request: Any) -> str:
        await trio.sleep_forever()

    await run_with_options(suite, RunOptions(emit=ignore, journal=run), providers={"own": never})


@pytest.mark.parametrize(
    "ends", [_fails_to_emit, _is_no_suite, _is_cancelled_before, _meets_its_deadline]
)
def test_a_run_is_released_whatever_ended_it(
    folder: Path, ends: Callable[[StoredRun], Any]
) -> None:
    """It can continue in the same store at once."""

    async def main() -> trioeval.SuiteSummary:
        async with trioeval.store.open_store(folder / "mine.db") as store:
            await ends(store.begin(start_of()))
            return await _again(store)

    assert trio.run(main).passed == 1


async def _again(store: Store) -> trioeval.SuiteSummary:
    run = await store.resume("eval-mine", start_of())
    suite = trioeval.parse_suite(suite_of("hi"))
    return await run_with_options(suite, RunOptions(emit=ignore, journal=run))


def test_a_late_end_of_an_execution_does_not_affect_the_next_one(folder: Path) -> None:
    """Its end does not end a run that is continued meanwhile."""

    async def main() -> None:
        async with trioeval.store.open_store(folder / "mine.db") as store:
            late = store.begin(start_of())
            await _is_cancelled_before(late)
            run = await store.resume("eval-mine", start_of())
            late.finish("finished", duration_ms=5.0)
            await run.durable()
            with read_store(folder / "mine.db") as reader:
                assert reader.run("eval-mine").state == "running"

    trio.run(main)
