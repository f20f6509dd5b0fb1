"""The meaning of suites, and messages about data without a file."""

import datetime as dt
import hashlib
import math
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.documents.structure import find_mistakes
from trioeval.errors import SuiteError
from trioeval.evaluation.hooks import result_json
from trioeval.grading import Assertion
from trioeval.grading.patterns import compile_javascript
from trioeval.loading.load import parse_suite
from trioeval.run import collect
from trioeval.suite.filters import keep_providers
from trioeval.suite.form import IGNORED_KEYS, IGNORED_SILENTLY
from trioeval.suite.model import (
    EvaluateOptions,
    LaneSettings,
    Prompt,
    ProviderEntry,
    Suite,
    Test,
    TestOptions,
)


def parsed(**keys: Any) -> Suite:
    return parse_suite({"providers": ["echo"], **keys})


def problems_of(document: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parse_suite(document)
    return [str(problem) for problem in caught.value.problems]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_smallest_suite_is_one_provider() -> None:
    """It has one prompt, one test without variables, the working directory, and no file."""
    assert parsed() == Suite(
        providers=(ProviderEntry(id="echo"),),
        prompts=(Prompt(raw="{{prompt}}", label="{{prompt}}", id=digest("{{prompt}}")),),
        tests=(Test(),),
        directory=Path.cwd(),
    )


def test_scenarios_need_a_config_unless_empty_tests_are_allowed() -> None:
    """An empty list of settings would make no rows."""
    document = {"providers": ["echo"], "scenarios": [{"config": []}]}
    assert problems_of(document) == [
        (
            "$.scenarios[0].config: the list of settings is empty\n"
            "  add a setting, or pass --allow-empty"
        )
    ]
    assert parse_suite(document, allow_empty=True).scenarios


def test_an_unknown_key_names_the_nearest_keys() -> None:
    """Either one suggestion, or three keys; case and `_` are ignored."""
    unknown = '"{}" is not a key here'
    options = {"MaxConcurency": 1, "xyzzy": 1}
    assert problems_of({"providers": ["echo"], "promtps": ["a"], "evaluateOptions": options}) == [
        f'$.promtps: {unknown.format("promtps")}\n  did you mean "prompts"?',
        (
            f"$.evaluateOptions.MaxConcurency: {unknown.format('MaxConcurency')}\n"
            '  did you mean "maxConcurrency"?'
        ),
        (
            f"$.evaluateOptions.xyzzy: {unknown.format('xyzzy')}\n"
            "  nearest are maxConcurrency, delay, maxTotalConcurrency"
        ),
    ]


def test_an_empty_list_of_tests_is_refused_unless_it_is_allowed() -> None:
    """Otherwise every prompt would be sent once, and pass."""
    document = {"providers": ["echo"], "tests": []}
    with pytest.raises(SuiteError) as caught:
        parse_suite(document)
    [problem] = caught.value.problems
    assert (problem.path, problem.message) == ("$.tests", "the list of tests is empty")
    assert problem.hint is not None
    assert "--allow-empty" in problem.hint
    assert parse_suite(document, allow_empty=True).tests == ()
    assert parse_suite({"providers": ["echo"]}).tests == (Test(),)
    scenario: dict[str, Any] = {"config": [{}], "tests": []}
    with pytest.raises(SuiteError, match=r"scenarios\[0\]\.tests: the list of tests is empty"):
        parse_suite({"providers": ["echo"], "scenarios": [scenario]})
    assert parse_suite({"providers": ["echo"], "scenarios": []}).tests == ()


def test_the_working_directory_is_that_of_the_caller(tmp_path: Path) -> None:
    """Relative paths of the suite are relative to it."""
    assert parse_suite({"providers": ["echo"]}, directory=tmp_path).directory == tmp_path


FORMS: list[tuple[Any, ProviderEntry]] = [
    ("openai:gpt-4.1", ProviderEntry(id="openai:gpt-4.1")),
    ({"id": "echo", "label": "a"}, ProviderEntry(id="echo", label="a")),
    ({"echo": {"label": "a"}}, ProviderEntry(id="echo", label="a")),
    ({"echo": {}}, ProviderEntry(id="echo")),
    (
        {"id": "echo", "config": {"a": [1, {"b": None}]}},
        ProviderEntry(id="echo", config={"a": [1, {"b": None}]}),
    ),
    ({"id": "echo", "prompts": []}, ProviderEntry(id="echo", prompts=())),
    ({"id": "echo", "prompts": ["p*"]}, ProviderEntry(id="echo", prompts=("p*",))),
    ({"id": "echo", "delay": 5}, ProviderEntry(id="echo", delay=5)),
    ({"id": "echo", "lane": None}, ProviderEntry(id="echo")),
    ({"id": "echo", "lane": "shared"}, ProviderEntry(id="echo", lane="shared")),
    (
        {"echo": {"lane": {"max_concurrency": 2, "rpm": 1.5, "burst": 3, "delay": 0}}},
        ProviderEntry(id="echo", lane=LaneSettings(max_concurrency=2, rpm=1.5, burst=3, delay=0)),
    ),
]


@pytest.mark.parametrize(("form", "entry"), FORMS, ids=[str(form) for form, _ in FORMS])
@pytest.mark.parametrize("key", ["providers", "targets"])
def test_a_provider_may_be_written_in_three_forms(
    key: str, form: Any, entry: ProviderEntry
) -> None:
    """Text, an object with an id, an object whose only key is the id; under either key."""
    suite = parse_suite({key: [form], "prompts": ["p1"], "lanes": {"shared": {}}})
    assert suite.providers == (entry,)


def test_an_id_below_an_id_names_a_provider() -> None:
    """The outer one remains its kind; references, filters and rows have the inner one."""
    suite = parsed(
        providers=[{"echo": {"id": "a", "label": "first"}}, {"echo": {"id": "b"}}, {"echo": None}],
        tests=[{"vars": {}, "providers": ["b"]}],
    )
    entries = suite.providers
    assert [(entry.id, entry.shown_id, entry.name) for entry in entries] == [
        ("echo", "a", "first"),
        ("echo", "b", "b"),
        ("echo", "echo", "echo"),
    ]
    assert [len(keep_providers(suite, compile_javascript(f"^{n}$")).providers) for n in "ab"] == [
        1,
        1,
    ]
    (row,) = trio.run(collect, suite)
    assert (row.label, result_json(row)["provider"]) == ("b", {"id": "b", "label": ""})
    assert problems_of({"providers": [{"echo": {"id": " "}}], "prompts": ["x"]}) == [
        "$.providers[0].echo.id: must not be empty"
    ]


def test_an_id_below_an_id_does_not_hide_code() -> None:
    """Otherwise a suite of another author would run a file under the name of a harmless provider."""
    providers = [{"python:x.py": {"id": "echo"}}]
    with pytest.raises(SuiteError, match=r"python:x\.py"):
        parse_suite({"providers": providers, "prompts": ["x"]}, trusted=False)


@pytest.mark.parametrize(
    ("form", "prompt"),
    [
        ("Hi", Prompt(raw="Hi", label="Hi", id=digest("Hi"))),
        ({"raw": "Hi"}, Prompt(raw="Hi", label="Hi", id=digest("Hi"))),
        ({"raw": "Hi", "id": "p"}, Prompt(raw="Hi", label="Hi", id=digest("p"), given_id="p")),
        ({"raw": "Hi", "label": "l"}, Prompt(raw="Hi", label="l", id=digest("l"))),
        (
            {"raw": "Hi", "label": "l", "id": "p"},
            Prompt(raw="Hi", label="l", id=digest("l"), given_id="p"),
        ),
    ],
)
def test_a_prompt_is_identified_by_label_then_id_then_text(form: Any, prompt: Prompt) -> None:
    """The digest is that of the first one that is given, so it changes only with it."""
    assert parsed(prompts=[form]).prompts == (prompt,)


def test_keys_are_parsed_into_fields() -> None:
    """Keys map to fields; `assert` is the only key that is not a valid name in Python."""
    suite = parsed(
        description="all of it",
        tests=[
            {
                "description": "d",
                "vars": {"a": [1, {"b": None}], "c": "x"},
                "assert": [
                    {"type": "contains", "value": "x", "weight": 2, "metric": "m"},
                    {"type": "not-is-json", "threshold": 0.5},
                ],
                "threshold": 1,
                "metadata": {"k": [1]},
                "options": {"runSerially": True, "repeat": 3},
            }
        ],
        defaultTest={"options": {"run_serially": False}},
        evaluateOptions={
            "maxConcurrency": 7,
            "timeout_ms": 1.5,
            "maxEvalTimeMs": 9,
            "repeat": 2,
            "delay": 0.5,
        },
        lanes={"slow": {"rpm": 6}},
    )
    assert suite.description == "all of it"
    assert suite.tests == (
        Test(
            description="d",
            vars={"a": [1, {"b": None}], "c": "x"},
            assertions=(
                Assertion(type="contains", value="x", weight=2, metric="m"),
                Assertion(type="not-is-json", threshold=0.5),
            ),
            threshold=1,
            metadata={"k": [1]},
            options=TestOptions(run_serially=True, repeat=3),
        ),
    )
    assert suite.default_test == Test(options=TestOptions(run_serially=False))
    assert suite.evaluate_options == EvaluateOptions(
        max_concurrency=7, timeout_ms=1.5, max_eval_time_ms=9, repeat=2, delay=0.5
    )
    assert suite.lanes == {"slow": LaneSettings(rpm=6)}


def test_keys_without_effect_are_accepted() -> None:
    """Their values are ignored, with a warning; top-level keys beginning with x- are ignored without one."""
    suite = parsed(**dict.fromkeys(IGNORED_KEYS, 5), **{"x-": [], "x-mine": {}})
    assert attrs.evolve(suite, warnings=()) == parsed()
    paths = {warning.path for warning in suite.warnings}
    assert paths == {f"$.{key}" for key in IGNORED_KEYS if key not in IGNORED_SILENTLY}


def test_null_counts_as_absent_for_optional_values() -> None:
    """This holds for text, numbers and optional parts."""
    suite = parse_suite(
        {
            "description": None,
            "providers": [{"id": "echo", "label": None, "delay": None, "prompts": None}],
            "defaultTest": None,
            "evaluateOptions": {"timeoutMs": None},
        }
    )
    assert suite == parsed()


@pytest.mark.parametrize("number", [0, -1, 1.5, "5", True, 10**400, []])
def test_a_count_is_a_whole_number_of_at_least_1(number: Any) -> None:
    """Text, true, fractions and numbers beyond floats are refused."""
    (problem,) = problems_of({"providers": ["echo"], "evaluateOptions": {"repeat": number}})
    assert problem.startswith("$.evaluateOptions.repeat: must be ")


@settings(max_examples=20)
@given(st.integers(1, 10**300))
def test_every_count_is_used_unchanged(number: int) -> None:
    """A whole number is accepted as a number."""
    options = {"repeat": number, "timeoutMs": number}
    suite = parsed(evaluateOptions=options)
    assert (suite.evaluate_options.repeat, suite.evaluate_options.timeout_ms) == (number, number)


def test_every_promptfoo_key_is_known_or_refused_by_name() -> None:
    """None of them counts as a misspelling, and none is ignored silently."""
    problems = problems_of(
        {
            "providers": [{"id": "echo", "env": {"A": 1}, "transform": "x"}],
            "outputPath": "o.json",
            "derivedMetrics": [{"name": "x", "value": "m"}],
            "lanes": {"a": {"itpm": 5}},
            "command_line_options": {},
            "tests": [
                {
                    "assert_scoring_function": None,
                    "provider_output": "",
                    "providers": ["echo"],
                    "prompts": ["{{prompt}}"],
                    "options": {"storeOutputAs": "x", "disable_var_expansion": True, "top_p": 1},
                    "assert": [{"type": "is-json", "rubricPrompt": "x", "contextTransform": "x"}],
                }
            ],
            "evaluateOptions": {"show_progress_bar": False, "filterRange": "1:2"},
        }
    )
    assert problems == ["$.lanes.a.itpm: itpm is not supported yet"]


def test_unknown_options_of_a_test_are_passed_to_its_provider() -> None:
    """This holds for all keys except those that look like a misspelt option."""
    suite = parsed(tests=[{"options": {"temperature": 0, "prefix": "a"}}])
    assert suite.tests[0].options == TestOptions(prefix="a", overrides={"temperature": 0})
    (problem,) = problems_of(
        {"providers": ["echo"], "tests": [{"options": {"storeOutputsAs": "x"}}]}
    )
    assert problem.startswith('$.tests[0].options.storeOutputsAs: "storeOutputsAs" is not a key')


def test_only_one_spelling_of_a_key_is_allowed() -> None:
    """Both spellings at once are a mistake, in either order."""
    assert problems_of(
        {"providers": ["echo"], "evaluate_options": {"timeout_ms": 1, "timeoutMs": 1}}
    ) == [
        "$.evaluate_options.timeoutMs: timeout_ms and timeoutMs are the same key: write one of them"
    ]


FOREIGN: list[tuple[Any, list[str]]] = [
    (
        {"providers": ("echo",), "prompts": {"a"}},
        [
            "$.providers: must be JSON data, got a value of type tuple",
            "$.prompts: must be JSON data, got a value of type set",
        ],
    ),
    (
        {5: 1, "providers": ["echo"], "tests": [{"vars": {None: 1, "d": dt.date(2024, 1, 1)}}]},
        [
            "$.tests[0].vars.d: must be JSON data, got a value of type date",
            "$.tests[0].vars: a key must be text, got null",
            "$: a key must be text, got 5",
        ],
    ),
    (
        {"providers": ["echo"], "tests": [{"threshold": -math.inf}]},
        ["$.tests[0].threshold: must be a finite number, got -Infinity"],
    ),
    (b"echo", ["$: must be JSON data, got a value of type bytes"]),
    (Path("x"), ["$: must be JSON data, got a value of type PosixPath"]),
]


@pytest.mark.parametrize(("document", "problems"), FOREIGN)
def test_data_that_json_cannot_represent_is_refused(document: Any, problems: list[str]) -> None:
    """Each part is reported with its path."""
    assert problems_of(document) == problems


def test_data_that_contains_itself_is_refused() -> None:
    """All cycles are found quickly; data that is contained twice is not a cycle."""
    loop: dict[str, Any] = {"providers": ["echo"]}
    loop["tests"] = [loop, loop]
    assert problems_of(loop) == ["$.tests[0]: contains itself", "$.tests[1]: contains itself"]
    shared = {"a": "1"}
    assert parsed(tests=[{"vars": shared}, {"vars": shared}]).tests[1].vars == shared


def test_data_nested_too_deeply_is_refused() -> None:
    """It is refused before any recursion."""
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert problems_of({"x": deep}) == ["$.x[0][0][0]: is nested more than 200 levels deep"]


def test_an_internal_error_is_not_reported_as_one_of_the_suite() -> None:
    """An error that is not a mistake of the suite is raised unchanged."""
    with pytest.raises(ZeroDivisionError):
        list(find_mistakes(ZeroDivisionError()))
