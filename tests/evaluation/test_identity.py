"""The properties that count for the identity of a row, and those that do not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval import collect, parse_suite
from trioeval.evaluation.identity import (
    Identities,
    Identity,
    content_digest,
    recorded_row_id,
    recorded_row_name,
    row_id,
    row_name,
    settings_digest,
)
from trioeval.evaluation.suite_files import CodeFiles, file_digests, files_of, with_imports
from trioeval.grading import Assertion
from trioeval.report.row import row_json
from trioeval.suite.expand import Step, expand
from trioeval.suite.model import Test

SUITE: Mapping[str, Any] = {
    "providers": [{"id": "echo", "label": "one", "config": {"k": 1, "apiKey": "sk-1"}}],
    "prompts": [{"raw": "say {{x}}", "label": "p", "config": {"c": 1}}],
    "tests": [
        {
            "description": "d",
            "vars": {"x": "a", "n": 1},
            "assert": [{"type": "contains", "value": "a"}],
            "metadata": {"m": 1},
            "options": {"transform": "output"},
        }
    ],
}


def identity(document: Mapping[str, Any]) -> Identity:
    """Return the identity of its first row."""
    steps = expand(parse_suite(document))
    return Identities().of(steps[0], steps.providers[0])


def changed(where: str, key: str, value: Any) -> dict[str, Any]:
    """The suite with another value at a path, or an additional one."""
    document: dict[str, Any] = json.loads(json.dumps(SUITE))
    place: Any = document
    for part in where.split("."):
        place = place[int(part) if part.isdigit() else part] if part else place
    place[key] = value
    return document


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("tests.0", "description", "other"),
        ("tests.0.vars", "x", "b"),
        ("tests.0.vars", "y", ""),
        ("providers.0", "label", "two"),
        ("prompts.0", "label", "q"),
    ],
)
def test_a_row_is_identified_by_provider_prompt_variables_and_description(
    where: str, key: str, value: Any
) -> None:
    """Everything else is equal; and the content of a row does not depend on its name."""
    found, before = identity(changed(where, key, value)), identity(SUITE)
    assert found.id != before.id
    assert found.content == before.content


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("providers.0", "id", "openai:chat:x"),
        ("providers.0.config", "k", 2),
        ("providers.0", "transform", "output"),
        ("prompts.0", "raw", "say it: {{x}}"),
        ("prompts.0.config", "c", 2),
        ("tests.0.assert.0", "value", "b"),
        ("tests.0.assert.0", "type", "icontains"),
        ("tests.0.assert.0", "weight", 2),
        ("tests.0.assert.0", "metric", "m"),
        ("tests.0.assert.0", "threshold", 0.5),
        ("tests.0", "assert", []),
        ("tests.0", "threshold", 0.5),
        ("tests.0", "providerOutput", ""),
        ("tests.0", "provider", "echo"),
        ("tests.0.metadata", "m", 2),
        ("tests.0.options", "transform", "output.strip()"),
        ("tests.0.options", "prefix", "Hello, "),
        ("tests.0.options", "storeOutputAs", "r"),
        ("tests.0.options", "rubricPrompt", "judge it"),
        ("tests.0.options", "temperature", 0.5),
        ("", "defaultTest", {"assert": [{"type": "contains", "value": "z"}]}),
        ("", "defaultTest", {"options": {"suffix": "!"}}),
    ],
)
def test_everything_that_decides_the_verdict_is_content(where: str, key: str, value: Any) -> None:
    """The id of the row does not change."""
    found, before = identity(changed(where, key, value)), identity(SUITE)
    assert found.id == before.id
    assert found.content != before.content


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("providers.0", "lane", {"rpm": 5}),
        ("providers.0", "delay", 100),
        ("providers.0", "prompts", ["p"]),
        ("providers.0.config", "apiKey", "sk-2"),
        ("tests.0.options", "runSerially", True),
        ("tests.0.options", "repeat", 3),
        ("tests.0", "prompts", ["p"]),
        ("", "evaluateOptions", {"maxConcurrency": 9, "timeoutMs": 5, "repeat": 2}),
        ("", "description", "a suite"),
    ],
)
def test_places_limits_and_credentials_change_no_row(where: str, key: str, value: Any) -> None:
    """The rate limits, the key and the repeats of a provider do not affect rows."""
    assert identity(changed(where, key, value)) == identity(SUITE)


def test_identities_are_the_same_in_every_version() -> None:
    """Ids in existing stores are found by later versions."""
    assert identity(SUITE) == Identity(
        id="d7afa20f325b4d663859a8e8b96b3d81",
        content="bda7c7f60a7c867021d5e85c74fd3586",
    )
    assert settings_digest(parse_suite(SUITE)) == "adcbe3ca83f30820be1b7759c6d8a5cf"


def test_the_order_of_keys_and_the_place_of_a_test_do_not_count() -> None:
    """The spelling of whole numbers does not count either."""
    test = SUITE["tests"][0]
    turned = {key: test[key] for key in reversed(test)}
    turned["vars"] = {"n": 1.0, "x": "a"}
    steps = expand(parse_suite({**SUITE, "tests": [{"vars": {"x": "new"}}, turned]}))
    assert Identities().of(steps[1], steps.providers[0]) == identity(SUITE)


def test_an_own_provider_of_a_test_counts_and_that_of_its_column_does_not() -> None:
    """The transform of the column still counts, because it is applied."""
    own = changed("tests.0", "provider", {"id": "echo", "config": {"k": 5}})
    other = json.loads(json.dumps(own))
    other["providers"][0]["config"]["k"] = 7
    assert identity(own) == identity(other)
    other["providers"][0]["transform"] = "output"
    assert identity(own).content != identity(other).content


def test_members_of_sets_count() -> None:
    """They count like assertions of the test."""

    def of(value: str) -> str:
        members = [{"type": "contains", "value": value}]
        return identity(
            changed("tests.0", "assert", [{"type": "assert-set", "assert": members}])
        ).content

    assert of("a") != of("b")
    assert of("a") == of("a")


@pytest.mark.slow
def test_one_step_has_the_same_identity_as_among_many() -> None:
    """Cached texts of other rows change nothing, for any number of assertions."""
    tests = [
        {"vars": {"x": str(i % 7)}, "assert": [{"type": "contains", "value": str(i)}]}
        for i in range(5000)
    ]
    steps = expand(parse_suite({**SUITE, "tests": tests}))
    entry, identities = steps.providers[0], Identities()
    found = [identities.of(step, entry) for step in steps]
    assert len({one.content for one in found}) == 5000
    assert len({one.id for one in found}) == 7
    for index in (0, 1, 4097, 4999):
        step = steps[index]
        assert found[index].content == content_digest(step, entry)
        assert found[index].id == row_id("one", "p", step.vars, None)


def test_a_description_with_a_position_does_not_count() -> None:
    """Inserting a line in a spreadsheet changes none of the tests after it."""
    assert row_id("p", "l", {"x": 1}, "Row #3") == row_id("p", "l", {"x": 1}, "Row #4")
    assert row_id("p", "l", {"x": 1}, "Row #3") == row_id("p", "l", {"x": 1}, None)
    assert row_id("p", "l", {"x": 1}, "Row #x") != row_id("p", "l", {"x": 1}, None)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from([2**60, 1e300, -0.0, "\ud800", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.dictionaries(st.text(), JSON, max_size=4))
@example({"a": float("nan")})
@example({"a": 1e16, "b": 2.0})
def test_an_id_survives_serialization(variables: dict[str, Any]) -> None:
    """A record gives the same id as the suite."""
    text = json.dumps(variables).replace("NaN", "null")
    text = text.replace("-Infinity", "null").replace("Infinity", "null")
    if "Infinity" in repr(variables) or "NaN" in repr(variables):
        return  # serialized as a text
    assert row_id("p", "l", json.loads(text), None) == row_id("p", "l", variables, None)


@given(
    st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.booleans(), max_size=4)
)
@example({"a": "\x7f"})
@example({"b": "\x1b\n", "a": 2**70})
@example({"\ue000": "\u2028", "\U0001f600": "\ud800"})
@settings(max_examples=50)
def test_simple_variables_have_the_same_id_as_equal_ones(variables: dict[str, Any]) -> None:
    """Simple ones are computed on a fast path, and equal others on a slow one."""

    class Named(str):
        """A text that is not exactly a `str`."""

        __slots__ = ()

    same = {
        name: Named(part) if isinstance(part, str) else part for name, part in variables.items()
    }
    assert row_id("echo", "p", variables, None) == row_id("echo", "p", same, None)
    other: dict[str, Any] = {Named(name): part for name, part in variables.items()}
    assert row_id("echo", "p", variables, None) == row_id("echo", "p", other, None)


def test_variables_that_are_not_json_have_an_id() -> None:
    """A suite made in Python may contain anything."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    circle: dict[str, Any] = {}
    circle["me"] = circle
    for value in (deep, circle, {(1, 2): 3}, Path("a"), 10**5000, {1: "a", "b": 2}):
        found = row_id("p", "l", {"x": value}, None)
        assert len(found) == 32
        assert found == row_id("p", "l", {"x": value}, None)


def test_a_record_contains_the_id_of_its_row() -> None:
    """Every row of a run has one, with any variables and any outcome."""
    suite = parse_suite(
        {
            "providers": ["echo", {"id": "echo", "label": "two"}],
            "prompts": ["say {{x}}", {"raw": "{{x.y.z()}}", "label": "broken"}],
            "tests": [
                {"vars": {"x": ["a", "b"]}, "description": "list"},
                {"vars": {"x": {"k": [1, 2.0, None]}}},
                {"vars": {}, "assert": [{"type": "equals", "value": "no"}]},
            ],
        }
    )
    rows = trio.run(collect, suite)
    identities = Identities()
    for row in rows:
        record = json.loads(json.dumps(row_json(row, "eval-1")))
        assert recorded_row_id(record) == identities.of(row.step, row.provider).id
        assert recorded_row_name(record) == row_name(row.step)
    assert len({recorded_row_id(row_json(row, "eval-1")) for row in rows}) == len(rows) == 16


def test_a_record_of_another_program_has_an_id_too() -> None:
    """Any part of the record may be missing."""
    assert recorded_row_id({}) == row_id("", "", {}, None)
    assert recorded_row_id({"provider": "x", "vars": None, "testCase": 3}) == row_id("", "", {}, "")


def test_a_test_is_displayed_by_its_description_or_its_variables() -> None:
    """The text is one line of limited length."""

    def called(test: Test) -> str:
        step: Step = expand(attrs.evolve(parse_suite(SUITE), tests=(test,)))[0]
        return row_name(step)

    assert called(Test(description="the\n first", vars={"x": "a"})) == "the first"
    assert called(Test(vars={"x": "a\nb", "n": 1})) == "x=a b, n=1"
    assert called(Test()) == ""
    assert called(Test(vars={"x": "y" * 99})) == f"x={'y' * 57}…"


def test_edited_code_changes_the_content(tmp_path: Path) -> None:
    """Code of assertions, transforms and filters counts; without `sources`, files do not."""
    for name in ("check.py", "change.py", "filters.py"):
        (tmp_path / name).write_text("def get_assert(output, context): return True")
    document = changed("tests.0", "assert", [{"type": "python", "value": "file://check.py"}])
    document["tests"][0]["options"]["transform"] = "file://change.py:get_assert"
    document["nunjucksFilters"] = {"up": "filters.py"}
    suite = parse_suite(document, directory=tmp_path)
    steps = expand(suite)
    step, entry = steps[0], steps.providers[0]

    def now() -> tuple[str, str]:
        sources = CodeFiles(tmp_path)
        return content_digest(step, entry, sources), settings_digest(suite, sources)

    first = now()
    assert first == now()
    assert first[0] != content_digest(step, entry)
    (tmp_path / "check.py").write_text("def get_assert(output, context): return False")
    second = now()
    assert second[0] != first[0]
    assert second[1] == first[1]
    (tmp_path / "change.py").unlink()
    assert now()[0] not in (first[0], second[0])
    (tmp_path / "filters.py").write_text("def up(value): return value")
    assert now()[1] != first[1]


def test_the_digest_of_a_suite_depends_only_on_its_files(tmp_path: Path) -> None:
    """Its rows are not read."""
    for name in ("change.py", "provider.py"):
        (tmp_path / name).write_text("def f(output, context): return output")
    document = changed("tests.0.options", "transform", "file://change.py:f")
    document["providers"] = ["python:provider.py:f", "echo"]
    document["tests"] += [{"assert": [{"type": "equals", "value": "a", "transform": "f.py"}]}]
    suite = parse_suite(document, directory=tmp_path)
    assert [file.name for file in files_of(suite)] == ["provider.py", "change.py"]
    digests = file_digests(files_of(suite))
    assert digests == file_digests(files_of(suite))
    (tmp_path / "change.py").write_text("def f(output, context): return None")
    assert digests != file_digests(files_of(suite))
    (tmp_path / "provider.py").unlink()
    now = file_digests(digests)
    assert now[str(tmp_path / "provider.py")] is None
    assert now[str(tmp_path / "change.py")] != digests[str(tmp_path / "change.py")]


def test_credentials_of_judges_and_settings_do_not_count() -> None:
    """This holds at any position; their neighbours count."""

    def of(config: Mapping[str, Any]) -> str:
        judge = Assertion(type="llm-rubric", provider={"id": "x", "config": config})
        suite = parse_suite(SUITE)
        suite = attrs.evolve(suite, tests=(Test(assertions=(judge,)),))
        steps = expand(suite)
        return content_digest(steps[0], steps.providers[0])

    assert of({"apiKey": "a"}) == of({"apiKey": "b"})
    assert of({"apiKey": "a", "model": "m"}) != of({"apiKey": "a", "model": "n"})


def test_imported_modules_of_code_change_the_content(tmp_path: Path) -> None:
    """Indirect imports and packages count; modules that are not imported do not."""
    (tmp_path / "pkg").mkdir()
    contents = {
        "gen.py": "import json, helper\nfrom pkg import part\ndef make(row): ...",
        "helper.py": "from deeper import one",
        "deeper.py": "one = 1",
        "pkg/__init__.py": "",
        "pkg/part.py": "from . import side\nfrom .other import thing",
        "pkg/side.py": "import helper",
        "pkg/other.py": "thing = 1",
        "unused.py": "",
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    before = CodeFiles(tmp_path)("file://gen.py:make")
    for name, text in contents.items():
        (tmp_path / name).write_text(text + "\n# changed")
        after = CodeFiles(tmp_path)("file://gen.py:make")
        assert (after != before) is (name != "unused.py"), name
        (tmp_path / name).write_text(text)
    assert CodeFiles(tmp_path)("file://gen.py:make") == before
    assert {file.name for file in with_imports(tmp_path / "gen.py")} == {
        Path(name).name for name in contents if name != "unused.py"
    }


def test_a_javascript_file_depends_on_the_files_that_it_imports(tmp_path: Path) -> None:
    """Relative paths count, also without a suffix and from there on; packages do not."""
    for name, code in {
        "a.ts": "import { b } from './lib/b';\nimport x from 'package';\nconst c = require('../out.js');",
        "lib/b.ts": "export { d } from './d.js';\nexport const b = await import('./e/index.mjs');",
        "lib/d.ts": "import '../a.ts';",
        "lib/e/index.mjs": "",
        "other.js": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    found = [str(file.relative_to(tmp_path)) for file in with_imports(tmp_path / "a.ts")]
    assert found == ["a.ts", "lib/b.ts", "lib/d.ts", "lib/e/index.mjs"]
    before = CodeFiles(tmp_path)("file://a.ts:make")
    (tmp_path / "lib/d.ts").write_text("")
    assert CodeFiles(tmp_path)("file://a.ts:make") != before
