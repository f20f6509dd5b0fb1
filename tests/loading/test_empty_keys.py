"""Keys with empty values, and keys without effect: they are the same as absent ones."""

from typing import Any

import attrs
import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.suite.form import DEFINITIONS, IGNORED_OPTIONS
from trioeval.suite.model import Suite, Test


def parsed(**keys: Any) -> Suite:
    return parse_suite({"providers": ["echo"], **keys})


def problems_of(**keys: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parsed(**keys)
    return [str(problem) for problem in caught.value.problems]


NULLS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (dict.fromkeys(("prompts", "tests", "tasks", "lanes", "env", "tags", "targets"), None), {}),
    ({"outputPath": None, "extensions": None, "metadata": None, "evaluateOptions": None}, {}),
    ({"evaluateOptions": {"repeat": None, "budget": None, "serialize": None}}, {}),
    ({"serialize": None, "commandLineOptions": {"var": None, "output": None}}, {}),
    ({"providers": [{"echo": None}]}, {}),
    ({"providers": [{"id": "echo", "config": None, "env": None, "lane": None}]}, {}),
    ({"lanes": {"a": {"burst": None}}}, {"lanes": {"a": {}}}),
    (
        {"tests": [{"vars": {"x": 1}, "assert": None, "options": None, "metadata": None}]},
        {"tests": [{"vars": {"x": 1}}]},
    ),
    ({"tests": [{"vars": None}]}, {"tests": [{"vars": {}}]}),
    (
        {"tests": [{"assert": [{"type": "equals", "value": None, "weight": None}]}]},
        {"tests": [{"assert": [{"type": "equals", "value": None}]}]},
    ),
    ({"defaultTest": {"vars": None, "assert": None}}, {"defaultTest": {}}),
    (
        {"scenarios": [{"config": [{"vars": None}], "tests": None, "description": None}]},
        {"scenarios": [{"config": [{}]}]},
    ),
]


@pytest.mark.parametrize(("written", "meant"), NULLS, ids=[str(written) for written, _ in NULLS])
def test_a_key_with_an_empty_value_counts_as_absent(
    written: dict[str, Any], meant: dict[str, Any]
) -> None:
    """In YAML the lines below a key may be commented out."""
    assert parsed(**written) == parsed(**meant)


def test_null_is_a_value_if_any_value_is_allowed() -> None:
    """This holds for variables, and for keys of a config."""
    suite = parsed(
        providers=[{"id": "openai:x", "config": {"a": None}}],
        tests=[{"vars": {"x": None}, "options": {"stop": None}}],
    )
    assert suite.providers[0].config == {"a": None}
    assert suite.tests[0].vars == {"x": None}
    assert suite.tests[0].options.overrides == {"stop": None}


def test_null_is_a_mistake_for_a_required_value() -> None:
    """The message names the value."""
    assert problems_of(providers=None) == [
        '$.providers: the suite has no providers\n  for example "providers": ["echo"]'
    ]
    assert problems_of(scenarios=[{"config": None}]) == [
        "$.scenarios[0].config: must be a list of settings, got null"
    ]


def test_an_empty_key_of_a_task_does_not_override_the_top() -> None:
    """The value of the top applies."""
    task = {"type": "prompt_eval", "prompts": ["a"], "evaluateOptions": None, "dependsOn": None}
    suite = parsed(evaluateOptions={"repeat": 3}, tasks=[task])
    assert suite.tasks[0].suite.evaluate_options.repeat == 3


def test_a_description_may_be_a_number() -> None:
    """This holds for all descriptions; it becomes text."""
    suite = parsed(
        description=2024,
        tests=[{"description": 1.5, "vars": {}}],
        scenarios=[{"description": 7, "config": [{}]}],
    )
    assert suite.scenarios is not None
    assert (suite.description, suite.tests[0].description) == ("2024", "1.5")
    assert suite.scenarios[0].description == "7"
    assert problems_of(description=True) == ["$.description: must be text, got true"]


@pytest.mark.parametrize("nothing", [None, [], {}, ""])
def test_unsupported_keys_may_be_empty(nothing: Any) -> None:
    """They would have no effect anyway; 0 and false are values."""
    assert parsed(lanes={"a": {"itpm": nothing}}) == parsed(lanes={"a": {}})
    values: list[Any] = [0, False, [[]]]
    for something in values:
        assert problems_of(lanes={"a": {"itpm": something}}) == [
            "$.lanes.a.itpm: itpm is not supported yet"
        ]


def test_limits_of_zero_mean_no_limit() -> None:
    """A time limit of 0 is never meant; a negative one is a mistake."""
    options = parsed(evaluateOptions={"timeoutMs": 0, "maxEvalTimeMs": 0}).evaluate_options
    assert (options.timeout_ms, options.max_eval_time_ms) == (0, 0)
    assert problems_of(evaluateOptions={"timeoutMs": -1}) == [
        "$.evaluateOptions.timeoutMs: must be at least 0, got -1"
    ]


def test_options_without_effect_are_accepted_with_one_warning() -> None:
    """This holds in either spelling; one warning suffices, even if several tasks inherit them."""
    options = dict.fromkeys(IGNORED_OPTIONS, True)
    task = {"type": "prompt_eval", "prompts": ["a"]}
    suite = parsed(evaluateOptions={**options, "repeat": 2}, tasks=[task, task])
    assert [warning.path for warning in suite.warnings] == [
        f"$.evaluateOptions.{key}" for key in IGNORED_OPTIONS
    ]
    assert suite.tasks[1].suite.evaluate_options.repeat == 2
    (warning,) = parsed(evaluateOptions={"is_redteam": False}).warnings
    assert str(warning) == "$.evaluateOptions.is_redteam: is_redteam has no effect here"


def test_definitions_have_no_effect_by_themselves() -> None:
    """They are targets of references, so they cause no warning."""
    assert parsed(**{key: {"a": {"type": "no such"}} for key in DEFINITIONS}) == parsed()


def test_a_provider_replaced_by_an_echo_keeps_its_config() -> None:
    """The config is ignored, with a warning."""
    suite = parsed(providers=[{"id": "echo", "config": {"temperature": 0}}])
    assert attrs.evolve(suite, providers=(), warnings=()) == attrs.evolve(parsed(), providers=())
    (warning,) = suite.warnings
    assert "$.providers[0].config: the config of a provider echo is ignored" in str(warning)
    assert parsed(providers=[{"id": "echo", "config": {}}]).warnings == ()


def test_a_misspelt_key_is_not_the_id_of_a_provider() -> None:
    """This holds if the value is empty."""
    assert problems_of(providers=[{"lable": "x"}]) == [
        '$.providers[0].lable: "lable" is not a key here\n  did you mean "label"?',
        '$.providers[0]: "id" is missing',
    ]
    assert problems_of(providers=[{"openai:gpt-4.1": 5}]) == [
        '$.providers[0]["openai:gpt-4.1"]: must be an object, got 5'
    ]


def test_an_empty_test_is_reported_with_all_possible_keys() -> None:
    """The message lists all keys, including those for replies."""
    (problem,) = problems_of(tests=[{}])
    wanted = "assert, metadata, options, provider, providerOutput, threshold, vars"
    assert problem == f"$.tests[0]: a test needs at least one of {wanted}"
    assert parsed(tests=[{"providerOutput": "x"}]).tests == (Test(provider_output="x"),)
