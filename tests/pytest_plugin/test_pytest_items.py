"""Items, their results, and the rows that run for them, without pytest."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
import trio
from hostile import assert_inert_log

from trioeval.loading.load import parse_suite
from trioeval.pytest_plugin.host import Host
from trioeval.pytest_plugin.items import SuiteSession
from trioeval.pytest_plugin.keys import Key, RowKey, TaskKey
from trioeval.pytest_plugin.loading import (
    CollectedSuite,
    Names,
    PluginSettings,
    PytestSession,
    WantedFile,
    load_file,
    named_items,
)
from trioeval.pytest_plugin.outcome import ItemResult, ItemResults, result_of_row, result_of_task
from trioeval.pytest_plugin.suite_run import FileRun, chosen
from trioeval.report.records import RowRecord
from trioeval.report.row import row_json
from trioeval.run import Row, collect, prepare


def records(**suite: Any) -> list[RowRecord]:
    """Return the records of a suite's rows."""
    found = trio.run(collect, parse_suite({"providers": ["echo"], **suite}))
    return [RowRecord.of(row_json(row, "r")) for row in found]


def rows(**suite: Any) -> list[Row]:
    return trio.run(collect, parse_suite({"providers": ["echo"], **suite}))


EQUALS = {"assert": [{"type": "equals", "value": "good"}]}


def test_every_end_of_a_row_has_one_of_its_item() -> None:
    """Only rows that never started are skipped."""
    good, bad = rows(
        prompts=["{{x}}"], defaultTest=EQUALS, tests=[{"vars": {"x": x}} for x in ("good", "bad")]
    )
    assert result_of_row(RowRecord.of(row_json(good, "r"))).ending == "passed"
    told = result_of_row(RowRecord.of(row_json(bad, "r")))
    assert (told.ending, told.text.splitlines()[1:]) == (
        "failed",
        ["prompt:", "    bad", "output:", "    bad"],
    )
    for outcome, ending in {
        "failed": "failed",
        "timed_out": "failed",
        "interrupted": "failed",
        "blocked": "skipped",
        "not_run": "skipped",
    }.items():
        row = attrs.evolve(
            bad, outcome=outcome, status=type(bad.status).ERROR, error="\x1b[2Jwhy", verdict=None
        )
        told = result_of_row(RowRecord.of(row_json(row, "r")))
        assert told.ending == ending
        assert "\x1b" not in told.text
        assert told.text.startswith("no verdict: " if ending == "failed" else "[2Jwhy")


def test_a_task_ends_as_the_worst_of_its_rows() -> None:
    """The list of failed rows is bounded."""
    found = records(
        prompts=["{{x}}"],
        defaultTest=EQUALS,
        tests=[{"vars": {"x": x}} for x in ("good", *map(str, range(20)))],
    )
    told = result_of_task("t", found, None, is_dataset=False)
    lines = told.text.splitlines()
    assert told.ending == "failed"
    assert (lines[0], len(lines), lines[-1]) == (
        "20 of 21 rows of t did not pass",
        12,
        "… and 10 more",
    )
    assert result_of_task("t", found[:1], None, is_dataset=False).ending == "passed"
    assert result_of_task("t", [], None, is_dataset=False).ending == "skipped"
    assert result_of_task("t", [], None, is_dataset=True).ending == "passed"
    assert result_of_task("t", [], "2 rows lost", is_dataset=True).ending == "failed"


def test_what_a_row_cannot_be_without_is_run_with_it() -> None:
    """Dependencies come whole: earlier tasks, and earlier cases of the same agent; nothing else does."""
    cases = [{"id": "a"}, {"id": "b", "dependsOn": "a"}, {"id": "c", "dependsOn": "b"}, {"id": "d"}]
    tests = [{"vars": {"x": x}} for x in "12"]
    asked = {"type": "prompt_eval", "prompts": ["{{x}}"], "tests": tests}
    suite = parse_suite(
        {
            "providers": ["echo", {"id": "echo", "label": "other"}],
            "tasks": [
                {"id": "one", **asked},
                {"id": "two", **asked, "dependsOn": "one"},
                {"id": "alone", **asked},
                {"id": "work", "type": "agent", "prompts": ["Do it."], "tests": cases},
            ],
        }
    )
    prepared = prepare(suite)

    def left(*keys: Key) -> dict[str | None, list[tuple[int, int]]]:
        parts = chosen(prepared, keys).parts
        return {
            part.id: [(step.test_idx, step.prompt_idx) for step in part.prepared.steps]
            for part in parts
        }

    assert left(RowKey("two", 1, 0)) == {
        "one": [(0, 0), (0, 1), (1, 0), (1, 1)],
        "two": [(1, 0)],
    }
    assert left(RowKey("work", 2, 1)) == {"work": [(0, 1), (1, 1), (2, 1)]}
    assert left(TaskKey("alone")) == {"alone": [(0, 0), (0, 1), (1, 0), (1, 1)]}
    assert len(left(TaskKey("alone"))) == 1


def test_names_are_parts_of_ids_that_pytest_and_github_leave_alone() -> None:
    """Names have no character that an environment variable cannot hold."""
    names = Names("cp1252")
    assert [names.only(name) for name in (":::", "a::::b", "::", "é中")] == [
        ":",
        "a:b",
        ":#2",
        "é\\u4e2d",
    ]
    assert names.only("##" + "[echo]") == "##\\[echo]"


@pytest.mark.parametrize("text", ["::error::x", "a\n  ::add-mask::x", "a\r::x::", "a ##[group]x"])
def test_no_reason_is_a_command_of_github(text: str) -> None:
    """Workflow commands are broken, indented or not, on any line."""
    told = ItemResult(ending="failed", text=text)
    assert_inert_log(told.text)
    assert told.text.replace("\\", "") == text


def test_every_item_has_a_name_of_its_own_and_a_line(tmp_path: Path) -> None:
    """Names are unique, also for equal tests, or tests without variables."""
    path = tmp_path / "a.trioeval.yaml"
    path.write_text(
        "providers: [echo]\nprompts: [p]\ntests:\n"
        "  - vars: {x: 1}\n  - vars: {x: 1}\n  - {vars: {}, options: {repeat: 2}}\n"
    )
    items = [*named_items(load_file(path, None))]
    assert [item.name for item in items] == [
        "x:1[echo]",
        "x:1[echo]#2",
        "test[echo]",
        "test[echo-repeat 2]",
    ]
    assert [item.path for item in items] == [f"$.tests[{place}]" for place in (0, 1, 2, 2)]


@pytest.mark.parametrize(("failure", "ending"), [(None, "skipped"), ("the disk is full", "failed")])
def test_what_is_never_told_is_no_success(failure: str | None, ending: str) -> None:
    """A waiting thread gets the failure of the run."""
    answers, key = ItemResults(), RowKey(None, 0, 0)
    answers.add({key: ItemResult(ending="passed")})
    answers.end(failure)
    assert answers.wait(key).ending == "passed"
    assert answers.wait(RowKey(None, 1, 0)).ending == ending


async def leave(_run: FileRun) -> None:
    raise SystemExit(3)


def test_nobody_waits_for_a_thread_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the end, items of all files get the failure."""
    path = tmp_path / "a.trioeval.json"
    path.write_text('{"providers": ["echo"], "prompts": ["p"], "tests": [{"vars": {"x": 1}}]}')
    key = RowKey(None, 0, 0)
    wanted = {file: WantedFile(file, "f", frozenset([key])) for file in two_of(path)}
    host = Host(PytestSession(tmp_path, "s", PluginSettings(is_cached=False)), wanted)
    monkeypatch.setattr(FileRun, "serve", leave)
    for file in wanted:
        assert host.wait(file, key).ending == "failed"
    host.close(at_once=True)
    (tmp_path / "results.db").unlink()
    (tmp_path / "results.db").mkdir()
    host = Host(PytestSession(tmp_path, "s", PluginSettings(is_cached=False)), wanted)
    for file in wanted:
        assert "this is a folder" in host.wait(file, key).text
    host.close(at_once=True)


def two_of(path: Path) -> list[CollectedSuite]:
    return [load_file(path, None), load_file(path, None)]


@attrs.define
class Closing:
    """A host that records how it is closed, and is interrupted."""

    at_once: list[bool] = attrs.field(factory=list)

    def close(self, *, at_once: bool) -> None:
        self.at_once.append(at_once)
        raise KeyboardInterrupt


def test_a_session_that_broke_off_starts_nothing_more(
    tmp_path: Path,
) -> None:
    """The host is closed in any case; after a further interrupt pytest reports the rest."""
    session = SuiteSession(PytestSession(tmp_path, "s", PluginSettings()))
    session.host = host = cast("Any", Closing())
    about = SimpleNamespace(config=SimpleNamespace(pluginmanager=pytest.PytestPluginManager()))
    session.pytest_sessionfinish(cast("Any", about), pytest.ExitCode.TESTS_FAILED)
    loop = session.pytest_runtestloop()
    next(loop)
    with pytest.raises(StopIteration):
        loop.send("done")
    session.pytest_sessionfinish(cast("Any", about), pytest.ExitCode.OK)
    assert host.at_once == [True, False]
