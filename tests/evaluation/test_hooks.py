"""Extensions of a suite, as real Python files in real processes."""

import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply, Request
from trioeval.run import Row, Status, prepare, run_suite
from trioeval.suite.model import Suite
from trioeval.suite.plain import plain_prompt, plain_suite, plain_test

pytestmark = pytest.mark.slow


def suite_of(folder: Path, code: str, *names: str, **more: Any) -> Suite:
    """A suite on `echo` with the extensions of one file; without names, all functions of it."""
    (folder / "hooks.py").write_text(textwrap.dedent(code))
    return parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["say {{word}}"],
            "tests": [{"vars": {"word": "hi"}}],
            "extensions": [f"file://hooks.py:{name}" for name in names],
            **more,
        },
        directory=folder,
    )


def ran(suite: Suite, warnings: list[str] | None = None, **providers: Any) -> list[Row]:
    rows: list[Row] = []

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        rows.append(row)

    async def main() -> None:
        messages: list[str] = [] if warnings is None else warnings
        prepared = prepare(suite, providers=providers or None)
        with trio.fail_after(60):
            await run_suite(prepared, emit=emit, run_id="eval-1", warn=messages.append)

    trio.run(main)
    return rows


def wrong(suite: Suite) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        prepare(suite)
    return [str(problem) for problem in caught.value.problems]


def test_before_all_may_change_tests_prompts_and_the_default_test(tmp_path: Path) -> None:
    """The returned suite is checked like a file; unchanged parts stay the same objects."""
    suite = suite_of(
        tmp_path,
        """
        def beforeAll(context, options):
            assert options == {"hookName": "beforeAll"}
            suite = context["suite"]
            suite["tests"].append({"vars": {"word": "there"}, "assert": [{"type": "equals", "value": "x"}]})
            suite["prompts"].append({"raw": "{{word}}!", "label": "loud"})
            suite["defaultTest"]["metadata"]["seen"] = True
            suite["defaultTest"]["assert"].append({"type": "contains", "value": "!"})
            return context
        """,
        "beforeAll",
    )
    rows = ran(suite)
    assert [row.output for row in rows] == ["say hi", "hi!", "say there", "there!"]
    assert [row.status.value for row in rows] == ["fail", "pass", "fail", "fail"]
    assert all(row.step.test.metadata == {"seen": True} for row in rows)
    assert prepare(suite).suite.tests[0] is suite.tests[0]


def test_hooks_always_have_the_parts_that_they_may_add_to(tmp_path: Path) -> None:
    """Tests of rows, and the default test, have them even if the suite has none of them."""
    code = """
        PARTS = ["assert", "metadata", "options", "vars"]

        def everything(event, context):
            for name in {"beforeAll": ["suite", "defaultTest"], "afterAll": ["suite", "defaultTest"],
                         "beforeEach": ["test"], "afterEach": ["result", "testCase"]}[event]:
                context = context[name]
            assert sorted(context) == PARTS, context

        def beforeEach(context, options):
            context["test"]["assert"].append({"type": "equals", "value": "say b"})
            context["test"]["options"]["suffix"] = ""
            context["test"]["metadata"]["k"] = context["test"]["vars"].setdefault("word", "b")
            return context
        """
    suite = suite_of(tmp_path, code, "everything", "beforeEach", tests=[{"vars": {}}])
    warnings: list[str] = []
    (row,) = ran(suite, warnings)
    assert (row.status, row.step.test.metadata, warnings) == (Status.PASS, {"k": "b"}, [])


def test_extensions_have_several_forms(tmp_path: Path) -> None:
    """The function may be a method, of a file with any kind of path, or the default one of the file."""
    code = """
        def get_transform(event, context):
            add(context, "file")
            return context

        def add(context, name):
            if "test" in context and "result" not in context:
                context["test"]["vars"]["word"] += " " + name

        def beforeEach(context, options):
            add(context, "event")
            return context

        class Hooks:
            @staticmethod
            def every(event, context):
                add(context, "method")
                return context
        """
    forms = [
        "file://hooks.py",
        "file://./hooks.py:Hooks.every",
        f"file://{tmp_path}/hooks.py:beforeEach",
    ]
    suite = suite_of(tmp_path, code, extensions=forms)
    assert [row.output for row in ran(suite)] == ["say hi file method event"]
    form: Any
    for form in (None, [], "file://hooks.py:beforeEach"):
        (row,) = ran(suite_of(tmp_path, code, extensions=form))
        assert row.output == ("say hi event" if form else "say hi")
    with pytest.raises(SuiteError) as caught:
        suite_of(tmp_path, code, extensions=[{"path": "file://hooks.py"}])
    assert str(caught.value) == "$.extensions[0]: must be text, got an object"


def test_errors_of_before_all_are_reported_before_any_call(tmp_path: Path) -> None:
    """The cases are an exception, a result that is not a suite, and an invalid suite."""
    code = """
        def raises(event, context):
            raise RuntimeError("no database")

        def text(event, context):
            return "done"

        def mistaken(event, context):
            context["suite"]["tests"] = [{"vrs": {}}]
            return context
        """
    (raised,) = wrong(suite_of(tmp_path, code, "raises"))
    assert raised == (
        '$.extensions[0]: beforeAll of hooks.py:raises: raises of "hooks.py" failed: '
        "RuntimeError: no database\n  in line 3 of hooks.py"
    )
    (text,) = wrong(suite_of(tmp_path, code, "text"))
    assert text == (
        "$.extensions[0]: beforeAll of hooks.py:text: must be an object with a suite, "
        'got the text "done"\n  return the context, or nothing'
    )
    (mistaken,) = wrong(suite_of(tmp_path, code, "mistaken"))
    assert mistaken == (
        "$.extensions[0]: beforeAll of hooks.py:mistaken: $.suite.tests[0].vrs: "
        '"vrs" is not a key here\n  did you mean "vars"?'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file://nowhere.py:f", "file not found"),
        ("file://hooks.rb", "is not code that can be run"),
        ("file://hooks.py:missing", "missing"),
        ("hooks", "is not code that can be run"),
    ],
)
def test_extensions_that_cannot_be_called_are_reported(
    tmp_path: Path, text: str, message: str
) -> None:
    """All of them are reported, each at its position."""
    suite = suite_of(tmp_path, "def f(a, b): pass", extensions=["file://hooks.py:f", text])
    (problem,) = wrong(suite)
    assert problem.startswith("$.extensions[1]: ")
    assert message in problem


def test_before_each_may_change_the_test_of_a_row(tmp_path: Path) -> None:
    """It may change variables, assertions and metadata; the row shows the test that was judged."""
    suite = suite_of(
        tmp_path,
        """
        def beforeEach(context, options):
            test = context["test"]
            test["vars"]["word"] += " you"
            test["assert"] = [{"type": "contains", "value": "you"}]
            test["metadata"] = {"by": options["hookName"]}
            return {"test": test}
        """,
        "beforeEach",
        tests=[{"vars": {"word": ["hi", "hello"]}}],
    )
    rows = ran(suite)
    assert [row.output for row in rows] == ["say hi you", "say hello you"]
    assert [row.vars["word"] for row in rows] == ["hi you", "hello you"]
    assert [row.status for row in rows] == [Status.PASS] * 2
    assert rows[0].step.test.metadata == {"by": "beforeEach"}
    assert rows[0].verdict is not None
    assert len(rows[0].verdict.parts) == 1


@pytest.mark.parametrize("name", ["secret.txt", "evil.py", "*.txt"])
def test_before_each_cannot_name_a_file_outside_of_the_suites_folder(
    tmp_path: Path, name: str
) -> None:
    """The result of a hook is not checked when the suite is loaded."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "evil.py").write_text("open(__file__ + '.ran', 'w')")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "note.txt").write_text("a note")
    suite = suite_of(
        tmp_path / "suite",
        f"""
        def beforeEach(context, options):
            context["test"]["vars"]["word"] = {{
                "1": "file://../{name}", "2": "file://{tmp_path}/{name}", "3": "file://note.txt"
            }}[context["test"]["vars"]["word"]]
            return context
        """,
        "beforeEach",
        tests=[{"vars": {"word": ["1", "2", "3"]}}],
    )
    *refused, read = ran(suite)
    assert read.output == "say a note"
    for row in refused:
        assert row.output is None
        assert "is outside of the suite's folder" in str(row.error)
    assert not (tmp_path / "evil.py.ran").exists()


def test_a_failure_of_before_each_makes_its_row_an_error(tmp_path: Path) -> None:
    """No call is made for it; other rows continue."""
    suite = suite_of(
        tmp_path,
        """
        def beforeEach(context, options):
            if context["test"]["vars"]["word"] == "a":
                raise ValueError("not this one")
            if context["test"]["vars"]["word"] == "b":
                context["test"]["asert"] = []
                return context
        """,
        "beforeEach",
        tests=[{"vars": {"word": ["a", "b", "c"]}}],
    )
    first, second, third = ran(suite)
    assert (first.outcome, first.calls) == ("failed", 0)
    assert first.error is not None
    assert "beforeEach of hooks.py:beforeEach failed" in first.error
    assert "not this one" in first.error
    assert second.error is not None
    assert '"asert" is not a key here' in second.error
    assert third.status is Status.NOT_GRADED


def test_before_each_may_name_a_register(tmp_path: Path) -> None:
    """Later rows can read it; they run in order, because the file contains the word."""
    suite = suite_of(
        tmp_path,
        """
        def beforeEach(context, options):
            test = context["test"]
            if test["vars"]["word"] == "a":
                test["options"] = {**test.get("options", {}), "storeOutputAs": "kept"}
            return context
        """,
        "beforeEach",
        prompts=["{{word}}{{kept}}"],
        tests=[{"vars": {"word": ["a", "b", "c"]}}],
    )
    assert prepare(suite).in_order
    assert [row.output for row in ran(suite)] == ["a", "ba", "ca"]


def test_rows_with_hooks_that_store_nothing_run_concurrently(tmp_path: Path) -> None:
    """The end of a row does not change the data that others read."""
    assert not prepare(suite_of(tmp_path, "def beforeEach(c, o): pass", "beforeEach")).in_order
    storing = suite_of(tmp_path, "def afterEach(c, o): 'storeOutputAs'", "afterEach")
    assert not prepare(storing).in_order


SLOW_AFTER_EACH = """
    import time

    def afterEach(context, options):
        time.sleep(60)
    """


@pytest.mark.parametrize("limit", ["timeoutMs", "maxEvalTimeMs"])
def test_a_slow_after_each_does_not_change_the_verdict(tmp_path: Path, limit: str) -> None:
    """It is cut off with a warning; the row is not changed."""
    warnings: list[str] = []
    suite = suite_of(tmp_path, SLOW_AFTER_EACH, "afterEach", evaluateOptions={limit: 6000})
    (row,) = ran(suite, warnings)
    assert (row.status, row.outcome, row.output) == (Status.NOT_GRADED, "done", "say hi")
    assert row.error is None
    assert len(warnings) == 1
    assert warnings[0].startswith("afterEach of row 0 was interrupted: ")


def test_an_error_is_reported_unchanged_even_if_after_each_is_slow(tmp_path: Path) -> None:
    """The error is not replaced by a timeout."""

    async def mine(request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        raise ValueError("no luck")

    options = {"timeoutMs": 6000}
    suite = suite_of(
        tmp_path, SLOW_AFTER_EACH, "afterEach", providers=["mine"], evaluateOptions=options
    )
    (row,) = ran(suite, [], mine=mine)
    assert (row.status, row.outcome) == (Status.ERROR, "failed")
    assert "no luck" in str(row.error)


def test_after_all_ends_soon_after_the_deadline(tmp_path: Path) -> None:
    """It ends a few seconds after the deadline of the run, not later."""
    warnings: list[str] = []
    code = SLOW_AFTER_EACH.replace("afterEach", "afterAll")
    suite = suite_of(tmp_path, code, "afterAll", evaluateOptions={"maxEvalTimeMs": 10})
    began = time.monotonic()
    assert len(ran(suite, warnings)) == 1
    assert time.monotonic() - began < 50
    assert warnings == ["afterAll was cut off: the run's deadline (maxEvalTimeMs) passed"]


def test_after_each_adds_scores_and_metadata(tmp_path: Path) -> None:
    """Each extension sees the additions of the one before it; values that are not numbers are left out."""
    suite = suite_of(
        tmp_path,
        """
        def afterEach(context, options):
            result = context["result"]
            result["namedScores"]["length"] = len(result["response"]["output"])
            result["namedScores"]["nonsense"] = "high"
            result["metadata"]["pass"] = result["success"]
            result["response"]["metadata"] = {"checked": True}
            result["success"] = False
            return context

        def everything(event, context):
            if event == "afterEach":
                scores = context["result"]["namedScores"]
                return {"result": {"namedScores": {"twice": 2 * scores["length"]}}}
        """,
        "afterEach",
        "everything",
    )
    (row,) = ran(suite)
    assert row.named_scores == {"length": 6, "twice": 12}
    assert row.step.test.metadata == {"pass": True}
    assert row.status is Status.PASS
    assert row.reply is not None
    assert row.reply.metadata["checked"] is True


def test_a_failure_of_after_each_does_not_change_the_row(tmp_path: Path) -> None:
    """A warning names the failure."""
    warnings: list[str] = []
    (row,) = ran(
        suite_of(tmp_path, "def afterEach(a, b): raise OSError('gone')", "afterEach"), warnings
    )
    assert (row.status, row.output) == (Status.NOT_GRADED, "say hi")
    assert len(warnings) == 1
    assert warnings[0].startswith("afterEach of hooks.py:afterEach failed: ")


def test_after_each_gets_errors(tmp_path: Path) -> None:
    """It gets the text of the error; the row stays an error."""

    async def mine(request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        raise ValueError("no luck")

    suite = suite_of(
        tmp_path,
        """
        def afterEach(context, options):
            context["result"]["metadata"]["why"] = context["result"]["error"]
            return context
        """,
        "afterEach",
        providers=["mine"],
    )
    (row,) = ran(suite, mine=mine)
    assert row.status is Status.ERROR
    assert "no luck" in row.step.test.metadata["why"]


def test_a_value_that_is_not_json_is_a_warning(tmp_path: Path) -> None:
    """A provider of the caller may return anything, and its row is not lost."""

    async def mine(request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(output="ok", metadata={"raw": object()})

    warnings: list[str] = []
    suite = suite_of(tmp_path, "def afterEach(a, b): pass", "afterEach", providers=["mine"])
    (row,) = ran(suite, warnings, mine=mine)
    assert row.output == "ok"
    assert len(warnings) == 1


def test_after_all_gets_all_rows(tmp_path: Path) -> None:
    """It is called once, after the end of the last row; each task reports its own rows."""
    suite = suite_of(
        tmp_path,
        """
        import json

        def afterAll(context, options):
            rows = [[row["vars"]["word"], row["success"]] for row in context["results"]]
            found = [context["evalId"], len(context["suite"]["tests"]), rows]
            with open("calls.jsonl", "a") as file:
                file.write(json.dumps(found) + "\\n")
            raise RuntimeError("too late to matter")
        """,
        "afterAll",
        tests=[{"vars": {"word": ["a", "b"]}}],
    )
    warnings: list[str] = []
    assert len(ran(suite, warnings)) == 2
    messages = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert messages == [["eval-1", 1, [["a", True], ["b", True]]]]
    assert len(warnings) == 1
    assert "too late to matter" in warnings[0]


def test_each_task_has_the_extensions_of_the_suite(tmp_path: Path) -> None:
    """For the extensions, each task is a separate suite."""
    (tmp_path / "hooks.py").write_text(
        "def beforeAll(context, options):\n"
        "    suite = context['suite']\n"
        "    suite['tests'][0]['vars'] = {'word': suite['description']}\n"
        "    return context\n"
    )
    entry = {"type": "prompt_eval", "prompts": ["say {{word}}"], "tests": [{"vars": {}}]}
    suite = parse_suite(
        {
            "providers": ["echo"],
            "extensions": "file://hooks.py:beforeAll",
            "tasks": [{**entry, "description": "one"}, {**entry, "description": "two"}],
        },
        directory=tmp_path,
    )
    assert sorted(str(row.output) for row in ran(suite)) == ["say one", "say two"]


def test_a_suite_as_plain_data_is_equivalent() -> None:
    """Parsed again, it is equal to the original."""
    document: dict[str, Any] = {
        "description": "all of it",
        "providers": ["echo", {"id": "echo", "label": "b", "lane": {"rpm": 5}, "delay": 3}],
        "prompts": ["a {{x}}", {"raw": "b", "label": "c", "id": "d", "config": {"t": 0}}],
        "tests": [
            {
                "vars": {"x": ["1", "2"]},
                "assert": [{"type": "not-equals", "value": 1, "weight": 2}],
            },
            {"providerOutput": "", "threshold": 0.5, "providers": ["b"], "prompts": ["c"]},
            {"options": {"temperature": 0, "runSerially": True, "prefix": "p"}, "vars": {}},
        ],
        "defaultTest": {"metadata": {"k": [1]}, "provider": {"id": "echo", "config": {"a": 1}}},
        "scenarios": [{"config": [{"vars": {"y": 1}}], "tests": [{"vars": {"z": 2}}]}],
        "tags": {"k": "v"},
    }
    suite = parse_suite(document)
    assert parse_suite(plain_suite(suite)) == suite
    assert plain_prompt(suite.prompts[1]) == document["prompts"][1]
    assert plain_test(suite.tests[1]) == document["tests"][1]
