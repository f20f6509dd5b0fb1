"""Judges without a required variable are reported before a run."""

from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite, parse_suite
from trioeval.run import PreparedSuite
from trioeval.run.prepare import prepare

RELEVANT = {"type": "context-relevance", "provider": "echo"}
HINT = '\n  add the question as "query" to "vars"'


def prepared(*tests: Any, **keys: Any) -> PreparedSuite:
    document = {"providers": ["echo"], "prompts": ["a"], "tests": list(tests), **keys}
    return prepare(parse_suite(document, environ={}), environ={})


def refused(*tests: Any, **keys: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        prepared(*tests, **keys)
    return [str(problem).removesuffix(HINT) for problem in caught.value.problems]


def test_a_question_that_is_missing_is_reported_at_every_assertion() -> None:
    """This includes sets and `not-`."""
    inner = {"type": "not-context-faithfulness", "provider": "echo"}
    test = {
        "vars": {"context": "c"},
        "assert": [RELEVANT, {"type": "assert-set", "assert": [inner]}],
    }
    assert refused({"vars": {"query": "q"}, "assert": [RELEVANT]}, test) == [
        (
            "$.tests[1].assert[0]: context-relevance judges by the variable query,"
            " but the test does not have it"
        ),
        (
            "$.tests[1].assert[1].assert[0]: not-context-faithfulness judges by the variable query,"
            " but the test does not have it"
        ),
    ]
    scenario = {"config": [{"vars": {"x": 1}}], "tests": [{"assert": [RELEVANT]}]}
    (message,) = refused(scenarios=[scenario], tests=[{"vars": {"y": 1}}])
    assert message.startswith("$.scenarios: context-relevance judges")


def test_an_assertion_for_all_tests_is_reported_once() -> None:
    """It is reported with the first test without a question."""
    (message,) = refused(
        {"vars": {"query": "q"}},
        {"vars": {"x": "1"}},
        {"vars": {"x": "2"}},
        defaultTest={"assert": [RELEVANT]},
    )
    assert message == (
        "$.defaultTest.assert[0]: context-relevance judges by the variable query,"
        " but tests[1] does not have it"
    )


@pytest.mark.parametrize(
    ("test", "keys"),
    [
        ({"vars": {"query": "q"}}, {}),
        ({}, {"defaultTest": {"vars": {"query": "q"}}}),
        ({"options": {"storeOutputAs": "query"}}, {}),
        ({}, {"defaultTest": {"options": {"storeOutputAs": "query"}}}),
    ],
    ids=["its own", "of all", "a register", "a register of all"],
)
def test_a_question_that_may_exist_is_not_reported(test: Any, keys: Any) -> None:
    """Variables come from several places."""
    prepared({"vars": {}, "assert": [RELEVANT], **test}, **keys)


@pytest.mark.slow
def test_a_question_from_code_is_not_reported(tmp_path: Path) -> None:
    """The results of code are only known when it has run."""
    (tmp_path / "more.py").write_text("def f(vars, context):\n    return {'query': 'q'}\n")
    (tmp_path / "suite.yaml").write_text(
        "providers: [echo]\nprompts: [a]\ntests:\n- vars: {x: '1'}\n"
        "  options: {transformVars: 'file://more.py:f'}\n"
        "  assert: [{type: context-relevance, provider: echo}]\n"
    )
    prepare(load_suite(tmp_path / "suite.yaml", environ={}), environ={})


def warned_of(*tests: Any, **keys: Any) -> list[str]:
    hint = '\n  add a variable of the assertion type, such as "{{ output }}"'
    return [str(warning).removesuffix(hint) for warning in prepared(*tests, **keys).warnings]


def judged_by(prompt: Any, **more: Any) -> dict[str, Any]:
    rubric = {"type": "llm-rubric", "value": "kind", "provider": "echo", "rubricPrompt": prompt}
    return {"vars": {"topic": "x"}, "assert": [rubric], **more}


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{{ rubrik }}", "; it only uses unknown variables: rubrik"),
        ("{{ rubrik }} {{ outptu }}", "; it only uses unknown variables: outptu, rubrik"),
        ("Is it kind?", ""),
        ([{"role": "user", "content": "{{ rubrik }}"}], "; it only uses unknown variables: rubrik"),
        (
            '[{"role": "user", "content": "{{ rubrik }}"}]',
            "; it only uses unknown variables: rubrik",
        ),
    ],
)
def test_a_prompt_without_variables_of_the_row_is_reported(prompt: Any, message: str) -> None:
    """Every row would get the same verdict, whatever its output; each prompt is reported once."""
    path = "$.tests[0].assert[0].rubricPrompt"
    expected = [f"{path}: the judge's prompt does not contain what is judged{message}"]
    assert warned_of(judged_by(prompt), judged_by(prompt)) == expected
    options = {"options": {"rubricPrompt": prompt}}
    (warning,) = warned_of({"vars": {"topic": "x"}}, defaultTest=options)
    assert warning.startswith("$.defaultTest.options.rubricPrompt: the judge's prompt does not")


@pytest.mark.parametrize(
    "prompt",
    [
        "{{ rubric }}",
        "{% for one in outputs %}{{ one }}{% endfor %}",
        "{{ topic }}",
        "{{ last }}",
        [{"role": "system", "content": "Judge."}, {"role": "user", "content": "{{ output }}"}],
        ["{{ question }}", "Judge."],
        "",
    ],
)
def test_a_prompt_with_a_variable_is_not_reported(prompt: Any) -> None:
    """A variable is enough, and so is a register."""
    stores = {"vars": {"y": "1"}, "options": {"storeOutputAs": "last"}}
    assert warned_of(judged_by(prompt), stores) == []


def test_a_misspelt_name_is_reported() -> None:
    """It would be rendered as an empty text, and the judge would not see the value."""
    message = '$.tests[0].assert[0].rubricPrompt: unknown variable outptu\n  did you mean "output"?'
    prompt = "{{ outptu }} by {{ rubric }}, for {{ tone }}"
    assert warned_of(judged_by(prompt)) == [message]
    assert warned_of(judged_by(prompt), {"vars": {"outptu": "mine"}}) == []
