"""Arguments of agent commands with undefined variables are reported before anything runs."""

from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval import Row, parse_suite, run_suite
from trioeval.agent.cases import OWN_NAMES
from trioeval.errors import SuiteError
from trioeval.run.prepare import prepare


def document(word: str, *tests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a suite whose agent gets an argument."""
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


def problems_of(
    word: str, *tests: dict[str, Any], folder: Path | None = None, **more: Any
) -> list[str]:
    """Return the problems of an argument."""
    suite = parse_suite(document(word, *tests, **more), directory=folder, environ={})
    try:
        prepare(suite, environ={})
    except SuiteError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_an_unknown_variable_is_reported_with_the_nearest_name() -> None:
    """It is reported at the provider of the argument, once for all tests that lack it."""
    (problem,) = problems_of("{{nape}}", {"vars": {"nope": 1}}, {"vars": {"nope": 2}})
    unknown = '{{ nape }} is not defined; did you mean "nope"?'
    assert problem == f'$.tasks[1].providers[1].id: the word "{{{{nape}}}}": {unknown}'
    assert len(problems_of("{{nope}}", {"vars": {"nope": 1}}, {"vars": {"x": 1}})) == 1


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
def test_known_and_optional_variables_are_accepted(word: str) -> None:
    """They are the fields of a case, the variables of the test, and variables with a default."""
    assert problems_of(word, {"vars": {"n": 1}}) == []


def test_variables_that_are_created_later_are_not_reported(tmp_path: Path) -> None:
    """They come from registers, from code, and from rows whose columns are unknown."""
    registers: list[dict[str, Any]] = [
        {"vars": {"n": 1}, "options": {"storeOutputAs": "later"}},
        {"vars": {"n": 2}},
    ]
    assert problems_of("{{later}}", *registers) == []
    (tmp_path / "t.py").write_text("def f(variables, context):\n    return {}\n")
    test = {"options": {"transformVars": "file://t.py:f"}}
    assert problems_of("{{later}}", test, folder=tmp_path) == []
    assert problems_of("{{output}}", tests={"fromTask": "first"}) == []
    (problem,) = problems_of("{{other}}", tests={"fromTask": "first", "vars": {"reply": "output"}})
    assert "{{ other }} is not defined" in problem


def test_an_argument_without_its_variable_ends_the_case() -> None:
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
