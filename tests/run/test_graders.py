"""The judges that a suite needs, and the mistakes in their settings, found before the first call."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import judged
import pytest
from judged import suite_of
from node_programs import NEEDS_NODE

import trioeval
from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite, parse_suite
from trioeval.run import PreparedSuite
from trioeval.run.prepare import prepare

ASKS = {"type": "asks", "value": "kind"}


async def answer(request: trioeval.Request) -> str:
    return request.prompt


PROVIDERS: dict[str, Any] = dict.fromkeys(("mine", "a", "b", "c", "d"), answer)


def prepared(suite: Any, **environ: str) -> PreparedSuite:
    return prepare(suite, providers=PROVIDERS, environ=environ)


def judges(suite: Any, **environ: str) -> list[str]:
    return [entry.id for entry in prepared(suite, **environ).graders.entries]


def problems(suite: Any, **environ: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        prepared(suite, **environ)
    return [str(problem) for problem in caught.value.problems]


def test_the_nearest_named_judge_is_used() -> None:
    """The order is: the assertion, the test's options, those of the default test, and its provider."""
    default = {"options": {"provider": "c"}, "provider": "d"}
    own = {"vars": {}, "assert": [ASKS], "options": {"provider": "b"}}
    nearest = {**own, "assert": [{**ASKS, "provider": "a"}]}
    for tests, test_default, name in (
        (nearest, default, "a"),
        (own, default, "b"),
        ({"vars": {}, "assert": [ASKS]}, default, "c"),
        ({"vars": {}, "assert": [ASKS]}, {"provider": "d"}, "d"),
    ):
        suite = suite_of(tests=[tests], defaultTest=test_default)
        assert judges(suite, OPENAI_API_KEY="sk-0123456789") == [name]


def test_assertions_of_the_default_test_use_the_judges_of_each_test() -> None:
    """Each judge is listed once, however many assertions need it, also in sets and equal entries."""
    tests = [
        {"vars": {}},
        {"vars": {}, "options": {"provider": "b"}},
        {"vars": {}, "options": {"provider": {"id": "b"}}},
        {"vars": {}, "assert": [{"type": "assert-set", "assert": [{**ASKS, "provider": "c"}]}]},
    ]
    suite = suite_of(tests=tests, defaultTest={"assert": [ASKS], "options": {"provider": "a"}})
    assert judges(suite) == ["a", "b", "c"]


def test_unused_judges_are_not_needed() -> None:
    """A judge that cannot be resolved is only a mistake if an assertion needs it."""
    equals = {"type": "equals", "value": "hello"}
    suite = suite_of(equals, defaultTest={"options": {"provider": "openai:gpt-4.1"}})
    assert judges(suite) == []


def test_each_role_has_its_own_judge() -> None:
    """Roles that are missing in a list by role are looked up further out."""
    suite = suite_of(
        {**ASKS, "provider": {"text": "a"}},
        {"type": "is-like", "value": "x", "provider": {"text": "a"}},
        defaultTest={"options": {"provider": {"embedding": {"id": "b"}}}},
    )
    assert judges(suite) == ["a", "b"]


@pytest.mark.parametrize(
    ("key", "ids"),
    [
        ("OPENAI_API_KEY", ["openai:chat:gpt-4.1", "openai:embedding:text-embedding-3-large"]),
        ("GOOGLE_API_KEY", ["google:gemini-2.5-pro", "google:embedding:gemini-embedding-001"]),
        ("MISTRAL_API_KEY", ["mistral:mistral-large-2512", "mistral:embedding:mistral-embed"]),
    ],
)
def test_a_family_with_a_key_is_the_default_judge(key: str, ids: list[str]) -> None:
    """Each role has a fixed model."""
    suite = suite_of(ASKS, {"type": "is-like", "value": "x"})
    assert judges(suite, **{key: "sk-0123456789"}) == ids


def test_families_may_differ_by_role() -> None:
    """Anthropic has no embeddings."""
    suite = suite_of(ASKS, {"type": "is-like", "value": "x"})
    found = judges(suite, ANTHROPIC_API_KEY="sk-ant-0123456789", MISTRAL_API_KEY="0123456789")
    assert found == ["anthropic:claude-sonnet-4-6", "mistral:embedding:mistral-embed"]


def test_a_suite_without_any_judge_is_an_error() -> None:
    """The message explains how to name a judge, at the assertion."""
    suite = suite_of({"type": "equals", "value": "x"}, ASKS, {"type": "is-of-class", "value": "x"})
    one, other = problems(suite)
    assert one == (
        "$.tests[0].assert[1]: asks needs a text model, and none is configured\n"
        '  name one, for example "provider": "openai:gpt-4.1" in the options of defaultTest, or set '
        "OPENAI_API_KEY or ANTHROPIC_API_KEY or GEMINI_API_KEY or MISTRAL_API_KEY"
    )
    assert other.startswith("$.tests[0].assert[2]: is-of-class needs a classification model")
    assert "set " not in other


@pytest.mark.parametrize(
    ("assertion", "options", "message"),
    [
        (
            {**ASKS, "provider": "openai:embedding:text-embedding-3-small"},
            {},
            "$.tests[0].assert[0].provider: asks needs a text model, and openai:embedding:text-embed",
        ),
        (
            {"type": "is-like", "value": "x"},
            {"provider": "openai:gpt-4.1"},
            "$.tests[0].options.provider: is-like needs an embedding model, and openai:gpt-4.1 is",
        ),
        (
            {"type": "is-harmless", "value": "x", "provider": {"moderation": "echo"}},
            {},
            "$.tests[0].assert[0].provider: is-harmless needs a moderation model, and echo is for",
        ),
        (
            {**ASKS, "provider": {"id": "openai:gpt-4.1", "config": {"temperature": "hot"}}},
            {},
            "$.tests[0].assert[0].provider.config.temperature: ",
        ),
        ({**ASKS, "provider": "opnai:gpt-4.1"}, {}, "$.tests[0].assert[0].provider.id: "),
        (
            {**ASKS, "provider": {"id": "a", "lane": "slow"}},
            {},
            '$.tests[0].assert[0].provider.lane: $.lanes has no lane "slow"',
        ),
        (
            {"type": "search-rubric", "value": "x", "provider": "openai:gpt-4.1"},
            {},
            "$.tests[0].assert[0].provider: search-rubric needs a model with web search, and openai:gpt-4.1",
        ),
        (
            {"type": "search-rubric", "value": "x", "provider": "echo"},
            {},
            "$.tests[0].assert[0].provider: search-rubric needs a model with web search, and echo has none",
        ),
        (
            {
                "type": "search-rubric",
                "value": "x",
                "provider": {"id": "sequence", "config": {"inputs": ["yes"]}},
            },
            {},
            "$.tests[0].assert[0].provider: search-rubric needs a model with web search, and sequence has",
        ),
    ],
)
def test_an_unsuitable_judge_is_reported_at_its_position(
    assertion: Any, options: Any, message: str
) -> None:
    """They are reported before the first call."""
    suite = suite_of(tests=[{"vars": {}, "assert": [assertion], "options": options}])
    (problem,) = problems(suite, OPENAI_API_KEY="sk-0123456789")
    assert problem.startswith(message)


def test_a_judge_that_searches_has_a_tool_for_it() -> None:
    """This holds for the built-in judge and for a named one."""
    config = {"tools": [{"type": "web_search_preview"}]}
    named = {"id": "openai:responses:gpt-4.1", "config": config}
    search = {"type": "search-rubric", "value": "x"}
    key = {"OPENAI_API_KEY": "sk-0123456789"}
    (built_in,) = prepared(suite_of(search), **key).graders.entries
    assert (built_in.id, built_in.config) == (named["id"], config)
    assert judges(suite_of({**search, "provider": named}), **key) == ["openai:responses:gpt-4.1"]


def test_programs_of_the_user_may_search() -> None:
    """Their abilities are unknown, as are those of servers and functions."""
    for judge in ("mine", "https://example.com", "exec:cat"):
        assert judges(suite_of({"type": "search-rubric", "value": "x", "provider": judge})) == [
            judge
        ]


NO_RUBRIC = {"type": "llm-rubric", "provider": "a"}


@pytest.mark.parametrize(
    ("test", "default", "paths"),
    [
        ({"assert": [NO_RUBRIC]}, {}, ["$.tests[0].assert[0]"]),
        ({"assert": [{**NO_RUBRIC, "value": ""}]}, {}, ["$.tests[0].assert[0]"]),
        (
            {
                "assert": [
                    {"type": "assert-set", "assert": [{**NO_RUBRIC, "type": "not-llm-rubric"}]}
                ]
            },
            {},
            ["$.tests[0].assert[0].assert[0]"],
        ),
        ({}, {"assert": [NO_RUBRIC]}, ["$.defaultTest.assert[0]"]),
        ({"options": {"disableDefaultAsserts": True}}, {"assert": [NO_RUBRIC]}, []),
        ({"options": {"rubricPrompt": "{{output}}"}}, {"assert": [NO_RUBRIC]}, []),
        ({"assert": [NO_RUBRIC]}, {"options": {"rubricPrompt": "{{output}}"}}, []),
        ({"assert": [{**NO_RUBRIC, "rubricPrompt": "{{output}}"}]}, {}, []),
    ],
)
def test_a_rubric_is_not_empty(test: Any, default: Any, paths: list[str]) -> None:
    """The rubric is in the value or in a `rubricPrompt`, at any level."""
    suite = suite_of(tests=[{"vars": {}, **test}], defaultTest=default)
    found = problems(suite) if paths else [str(prepared(suite).warnings or "")]
    assert [one.partition(":")[0] for one in found if one] == paths


def test_lines_of_a_large_file_share_the_rubrics_of_the_default_test(tmp_path: Path) -> None:
    """Missing values are reported without checking every line."""
    (tmp_path / "tests.jsonl").write_text('{"vars": {"word": "a"}}\n' * 3)
    suite = suite_of(
        tests="file://tests.jsonl", defaultTest={"assert": [NO_RUBRIC]}, directory=tmp_path
    )
    (problem,) = problems(suite)
    assert problem.startswith("$.defaultTest.assert[0]: llm-rubric has neither a value nor")


def test_only_known_categories_have_scores() -> None:
    """A misspelt category would change the measurement."""
    with pytest.raises(SuiteError) as caught:
        suite_of(defaultTest={"options": {"factuality": {"subset": 1, "agreee": 2}}})
    (problem,) = caught.value.problems
    assert str(problem).split("\n") == [
        '$.defaultTest.options.factuality.agreee: "agreee" is not a category',
        '  did you mean "agree"?',
    ]
    suite_of(defaultTest={"options": {"factuality": {"differButFactual": 0.5}}})
    suite_of(defaultTest={"options": {"factuality": None}})


def test_the_provider_of_the_default_test_judges_only_in_its_own_roles() -> None:
    """It is named as the tested provider: a suite that tests a chat model may still compare embeddings."""
    suite = suite_of(
        ASKS,
        {"type": "is-like", "value": "x"},
        defaultTest={"provider": "openai:gpt-4.1-mini"},
    )
    found = judges(suite, OPENAI_API_KEY="sk-0123456789")
    assert found == ["openai:gpt-4.1-mini", "openai:embedding:text-embedding-3-large"]


def test_a_python_file_has_a_function_for_each_role(tmp_path: Path) -> None:
    """As in promptfoo; a missing function is reported."""
    (tmp_path / "judge.py").write_text("def call_api(*a): ...\ndef call_embedding_api(*a): ...\n")
    like, harmless = {"type": "is-like", "value": "x"}, {"type": "is-of-class", "value": "x"}
    options = {"options": {"provider": "file://judge.py"}}
    suite = suite_of(ASKS, like, defaultTest=options, directory=tmp_path)
    assert judges(suite) == ["file://judge.py", "file://judge.py:call_embedding_api"]
    (problem,) = problems(suite_of(harmless, defaultTest=options, directory=tmp_path))
    assert 'function "call_classification_api" not found' in problem


def test_judges_share_the_lane_of_a_provider_with_the_same_key() -> None:
    """Limits count the calls of judges and of tested models together."""
    suite = suite_of(
        {**ASKS, "provider": "openai:gpt-4.1"},
        providers=["openai:gpt-4.1", "echo"],
        evaluateOptions={"maxConcurrency": 7},
    )
    found = prepared(suite, OPENAI_API_KEY="sk-0123456789")
    assert found.lane_names[2] == found.lane_names[0] != found.lane_names[1]
    assert [spec.max_concurrency for spec in found.lane_specs] == [7, 7]


def test_a_budget_applies_to_judges_too() -> None:
    """A judge with unbounded replies is reported at its place."""
    suite = suite_of(
        {**ASKS, "provider": "openai:my-model"}, evaluateOptions={"budget": {"usd": 1}}
    )
    tested, judge = problems(suite, OPENAI_API_KEY="sk-0123456789")
    assert tested.startswith("$.providers[0]: a budget in usd is set, but the cost of a call")
    assert judge.startswith("$.tests[0].assert[0].provider: a budget in usd is set")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "must be an id, an object"),
        (["a"], "must be an id, an object"),
        ("", "the id of a provider must not be empty"),
        ({"text": "a", "embeding": "b"}, '"embeding" is not a role of a grader'),
        ({"text": {"id": "a", "confg": {}}}, '"confg" is not a key here'),
        ("file://nothing.yaml", "file not found"),
    ],
)
def test_a_value_that_names_no_judge_is_reported_at_load(
    value: Any, message: str, tmp_path: Path
) -> None:
    """This does not depend on whether a judge is needed."""
    with pytest.raises(SuiteError) as caught:
        suite_of(defaultTest={"options": {"provider": value}}, directory=tmp_path)
    (problem,) = caught.value.problems
    assert problem.path.startswith("$.defaultTest.options.provider")
    assert message in problem.message


def test_judges_and_their_prompts_may_be_in_files(tmp_path: Path) -> None:
    """A prompt is used unchanged; mistakes in its templates are reported with the file's name."""
    (tmp_path / "judge.yaml").write_text("id: a\nlabel: the judge\n")
    (tmp_path / "good.json").write_text('[{"role": "user", "content": "{{output}}"}]')
    (tmp_path / "bad.txt").write_text("{{ output | nothing_like_it }}")
    asks = {**ASKS, "provider": "file://judge.yaml", "rubricPrompt": ["file://good.json", "two"]}
    suite = suite_of(asks, directory=tmp_path)
    assert [entry.label for entry in prepared(suite).graders.entries] == ["the judge"]
    (assertion,) = suite.tests[0].assertions
    assert assertion.rubric_prompt == ['[{"role": "user", "content": "{{output}}"}]', "two"]
    with pytest.raises(SuiteError, match=r"bad\.txt.*nothing_like_it"):
        suite_of({**ASKS, "rubricPrompt": "file://bad.txt"}, directory=tmp_path)
    with pytest.raises(SuiteError, match=r"rubricPrompt\[1\].*nothing_like_it"):
        suite_of({**ASKS, "rubricPrompt": ["x", "{{ y | nothing_like_it }}"]})


def test_functions_may_make_prompts_of_judges(tmp_path: Path) -> None:
    """They are called once, when the suite is loaded, without arguments; a plan does not call them."""
    (tmp_path / "p.py").write_text(
        "def one():\n    return [{'role': 'user', 'content': '{{output}}'}]\n"
        "def bad():\n    return '{{ output | nothing_like_it }}'\ndef none():\n    return None\n"
        "def parts():\n    return {'a': '{{output}}'}\n"
    )

    def asks(prompt: str) -> Mapping[str, Any]:
        return {**ASKS, "rubricPrompt": prompt}

    (assertion,) = suite_of(asks("file://p.py:one"), directory=tmp_path).tests[0].assertions
    assert assertion.rubric_prompt == [{"role": "user", "content": "{{output}}"}]
    for prompt, message in {
        "file://p.py": r'"file://p\.py" names no function',
        "file://p.py:two": r'function "two" not found',
        "file://p.py:bad": r"p\.py.*nothing_like_it",
        "file://p.py:none": r"must return text or messages, got null",
        "file://p.py:parts": r"must return text or messages, got an object",
    }.items():
        with pytest.raises(SuiteError, match=message):
            suite_of(asks(prompt), directory=tmp_path)
    document = {
        "prompts": ["x"],
        "providers": ["echo"],
        "tests": [{"assert": [asks("file://p.py:none")]}],
    }
    planned = parse_suite(document, directory=tmp_path, kinds=judged.JUDGED, plans=True)
    assert planned.tests[0].assertions[0].rubric_prompt == "file://p.py:none"


@pytest.mark.slow  # a process
@NEEDS_NODE
def test_prompts_of_judges_may_be_in_javascript(tmp_path: Path) -> None:
    """A file exports the prompt, or a function that returns it."""
    (tmp_path / "p.js").write_text(
        "module.exports = async () => 'Is {{output}} fine?'; module.exports.named = ['a', 'b'];"
    )
    for prompt, made in {
        "file://p.js": "Is {{output}} fine?",
        "file://p.js:named": ["a", "b"],
    }.items():
        suite = suite_of({**ASKS, "rubricPrompt": prompt}, directory=tmp_path)
        assert suite.tests[0].assertions[0].rubric_prompt == made


@pytest.mark.parametrize("key", ["", "sk-0123456789"])
def test_tests_that_are_not_read_yet_may_need_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Possible judges are prepared if there are any; a line that names its own judge is checked."""
    monkeypatch.setattr("trioeval.suite.sources.jsonl_tests.CHECKED_AT_ONCE", 2)
    lines = [{"vars": {"word": str(number)}, "assert": [ASKS]} for number in range(4)]
    lines[2]["assert"] = [{**ASKS, "provider": "b"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    document = {"providers": ["echo"], "prompts": ["x"], "tests": "file://t.jsonl"}
    (tmp_path / "s.json").write_text(json.dumps(document))
    suite = load_suite(tmp_path / "s.json", kinds=judged.JUDGED)
    found = prepared(suite, OPENAI_API_KEY=key)
    assert [entry.id for entry in found.graders.entries][:2] == (
        ["b", "openai:chat:gpt-4.1"] if key else ["b"]
    )
    assert any("'text'" in one for one in found.graders.missing) is not bool(key)
