"""Words of agent commands with undefined variables are reported before anything runs."""

from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval import Row, parse_suite, run_suite
from trioeval.agent.cases import OWN_NAMES
from trioeval.errors import SuiteError
from trioeval.run.prepare import prepare


def document(word: str, *tests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A suite whose agent gets a word."""
    task = {
        "id": "t",
        "type": "agent",
        "prompts": ["Do it."],
        "providers": ["exec:true", f"exec:echo '{word}'"],
        "tests": [*tests] or [{}],
        **more,
    }
    first = {"id": "first", "type": "prompt_eval", "prompts": ["a"], "providers": ["echo"]}
    return {"tasks": [first, task]}


def told(word: str, *tests: dict[str, Any], folder: Path | None = None, **more: Any) -> list[str]:
    """Return the problems of a word."""
    suite = parse_suite(document(word, *tests, **more), directory=folder, environ={})
    try:
        prepare(suite, environ={})
    except SuiteError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_variable_that_no_test_has_is_told_with_the_nearest() -> None:
    """At the provider whose word it is, once for all tests that lack it."""
    (problem,) = told("{{nape}}", {"vars": {"nope": 1}}, {"vars": {"nope": 2}})
    unknown = '{{ nape }} is not defined; did you mean "nope"?'
    assert problem == f'$.tasks[1].providers[1].id: the word "{{{{nape}}}}": {unknown}'
    assert len(told("{{nope}}", {"vars": {"nope": 1}}, {"vars": {"x": 1}})) == 1


@pytest.mark.parametrize(
    "word",
    [
        *(f"{{{{{name}}}}}" for name in sorted(OWN_NAMES - {"done"})),
        "{{env.HOME}}",
        "{{x | default(1)}}",
        "{% if x %}{{x}}{% endif %}",
        "{{n}}",
        "plain",
    ],
)
def test_what_is_there_or_need_not_be_is_right(word: str) -> None:
    """All that a case has, variables of the test, and what the word itself does without."""
    assert told(word, {"vars": {"n": 1}}) == []


def test_of_variables_that_are_made_later_nothing_is_told(tmp_path: Path) -> None:
    """Registers, what code makes, and rows of which is not said what they bring."""
    registers: list[dict[str, Any]] = [
        {"vars": {"n": 1}, "options": {"storeOutputAs": "later"}},
        {"vars": {"n": 2}},
    ]
    assert told("{{later}}", *registers) == []
    (tmp_path / "t.py").write_text("def f(variables, context):\n    return {}\n")
    test = {"options": {"transformVars": "file://t.py:f"}}
    assert told("{{later}}", test, folder=tmp_path) == []
    assert told("{{output}}", tests={"fromTask": "first"}) == []
    (problem,) = told("{{other}}", tests={"fromTask": "first", "vars": {"said": "output"}})
    assert "{{ other }} is not defined" in problem


def test_a_word_without_its_variable_is_no_other_word() -> None:
    """The agent is given up before it is run."""
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> None:
        with trio.fail_after(60):
            await run_suite(prepare(parse_suite(suite), environ={}), emit=keep)

    suite = document("{{nope}}", tests={"fromTask": "first"}, providers=["exec:echo x{{nope}}"])
    trio.run(main)
    (row,) = (row for row in rows if row.task == "t")
    assert row.verdict is not None
    assert "the command cannot be rendered: {{ nope }} is not defined" in row.verdict.reason
