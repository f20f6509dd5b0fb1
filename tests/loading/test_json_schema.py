"""The published schema against the loader: it never refuses what the loader accepts."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from suite_schema import SHIPPED, schema_text, suite_schema

from trioeval.cli import run_command_line
from trioeval.documents.structure import Shape, camel
from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite, parse_suite

SCHEMA = suite_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

JUNK = st.sampled_from(
    [None, True, False, 0, 1, -1, 1.5, "", "a", "echo", "auto", "1:2", [], ["a"], [1], {}, {"a": 1}]
)
WORDS = st.sampled_from(["a", "echo", "x {{ y }}", "contains", "file://no.txt"])


@st.composite
def documents(draw: st.DrawFn, shape: Shape | bool, mutants: bool) -> Any:  # noqa: C901, FBT001, PLR0912 - one case a form
    """Draw a value that a schema describes; with mutations, sometimes with an invalid part."""
    if isinstance(shape, bool) or (mutants and draw(st.integers(0, 30)) == 0):
        return draw(JUNK)
    match shape:
        case {"$ref": str(name)}:
            return draw(documents(SCHEMA["$defs"][name.rpartition("/")[2]], mutants))
        case {"title": _}:  # the top
            keys = draw(st.sets(st.sampled_from(sorted(shape["properties"])), max_size=6))
            keys -= {"providers", "targets", "tasks"}
            return draw(
                members(shape, {*keys, draw(st.sampled_from(["providers", "targets"]))}, mutants)
            )
        case {"type": "object"}:
            keys = draw(st.sets(st.sampled_from(sorted(shape.get("properties", "a"))), max_size=4))
            needed = [part["required"] for part in shape.get("anyOf", ())]
            return draw(members(shape, {*keys, *(needed or [[]])[0]}, mutants))
        case {"anyOf": parts}:
            parts = [part for part in parts if part != {"$ref": "#/$defs/Reference"}]
            return draw(documents(draw(st.sampled_from(parts)), mutants))
        case {"enum": choices}:
            return draw(st.sampled_from(choices))
        case {"type": list(types)}:
            return draw(documents({"type": draw(st.sampled_from(types))}, mutants))
        case {"type": "string"}:
            return draw(WORDS)
        case {"type": "boolean"}:
            return draw(st.booleans())
        case {"type": "null"}:
            return None
        case {"type": "integer" | "number" as number}:
            least = int(shape.get("minimum", 0))
            found = draw(st.integers(least, least + 3))
            return found + 0.5 if number == "number" and draw(st.booleans()) else found
        case {"type": "array"}:
            return draw(st.lists(documents(shape.get("items", True), mutants), max_size=2))
        case _:
            return draw(JUNK)


@st.composite
def members(draw: st.DrawFn, shape: Shape, keys: set[str], mutants: bool) -> dict[str, Any]:  # noqa: FBT001
    rest = shape.get("additionalProperties", True)
    known = shape.get("properties", {})
    if rest is not False and (not known or draw(st.booleans())):
        keys = {*keys, draw(st.sampled_from(["openai:x", "temperature"]))}
    if "maxProperties" in shape:
        keys = {"echo"}
    # References concern files, and are tested elsewhere.
    keys -= {"$ref"}
    return {key: draw(documents(known.get(key, rest), mutants)) for key in sorted(keys)}


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(st.booleans().flatmap(lambda mutants: documents(SCHEMA, mutants)))
def test_the_schema_accepts_what_the_loader_accepts(document: Any) -> None:
    """An editor must not underline anything that is valid."""
    try:
        parse_suite(document, directory=Path(__file__).parent)
    except SuiteError:
        return
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with a file of questions and one of limits, with drawn names."""
    folder = tmp_path_factory.mktemp("questions")
    question = {"question": "?", "answers": ["a"], "correctAnswers": ["a"]}
    (folder / "a").write_text(json.dumps({"version": 1, "questions": [question]}))
    (folder / "echo").write_text("[]")
    return folder


_, QUESTION_TASK, _, AGENT_TASK = SCHEMA["$defs"]["Task"]["anyOf"]
_OWN_KEYS = {
    key: part
    for key, part in QUESTION_TASK["properties"].items()
    if camel(key) not in {"providers", "evaluateOptions", "questions", "questionsFile"}
}


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    entry=st.booleans().flatmap(
        lambda mutants: documents({**QUESTION_TASK, "properties": _OWN_KEYS}, mutants)
    ),
    limits=st.booleans().flatmap(
        lambda mutants: documents(SCHEMA["$defs"]["LimitsSettings"], mutants)
    ),
)
def test_the_schema_accepts_the_questions_and_limits_that_the_loader_accepts(
    questions: Path, entry: Any, limits: Any
) -> None:
    """A file of questions exists; otherwise most entries would be refused for its absence."""
    if isinstance(entry, dict):
        entry = {**entry, "questionsFile": "a"}
    document = {"providers": ["echo"], "tasks": [entry], "limits": limits}
    try:
        parse_suite(document, directory=questions)
    except SuiteError:
        return
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


_AGENT_KEYS = {
    key: part
    for key, part in AGENT_TASK["properties"].items()
    if camel(key) not in {"providers", "evaluateOptions", "defaultTest", "workspace"}
}


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    entry=st.booleans().flatmap(
        lambda mutants: documents({**AGENT_TASK, "properties": _AGENT_KEYS}, mutants)
    ),
    limits=st.booleans().flatmap(lambda mutants: documents(SCHEMA["$defs"]["RunLimits"], mutants)),
)
def test_the_schema_accepts_agents_that_the_loader_accepts(entry: Any, limits: Any) -> None:
    """Cases and settings have no folders; otherwise most entries would be refused for their absence."""
    document = {"providers": ["echo"], "tasks": [entry], "agents": limits}
    try:
        parse_suite(document, directory=Path(__file__).parent)
    except SuiteError:
        return
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


WRONG: list[dict[str, Any]] = [
    {"prompts": ["a"]},
    {"prompst": []},
    {"providers": 5},
    {"providers": [5]},
    {"providers": [{"label": "x", "config": {}}]},
    {"providers": [{"id": "echo", "lable": "x"}]},
    {"providers": [{"echo": {"lane": {"rpm": 0}}}]},
    {"providers": [{"echo": {"id": 7}}]},
    {"prompts": [{"raw": 5}]},
    {"tests": [{"vars": 5}]},
    {"tests": [{"assert": [{"type": 5}]}]},
    {"assertionTypes": {"polite": 5}},
    {"tests": [{"assert": [{"value": "x"}]}]},
    {"tests": [{"options": {"repeat": 0}}]},
    {"evaluateOptions": {"maxConcurrency": "5"}},
    {"evaluateOptions": {"serialize": "sometimes"}},
    {"serialize": "sometimes"},
    {"scenarios": [{"tests": []}]},
    {"commandLineOptions": {"filterFirstN": -1}},
    {"defaultTest": []},
    {"lanes": {"slow": {"burst": 1.5}}},
    {"env": {"A": None}},
    {"outputPath": 5},
    {"providers": []},
    {"providers": None},
    {"providers": ""},
    {"providers": [" "]},
    {"providers": [{"id": ""}]},
    {"targets": ["echo"]},
    {"prompts": [], "providers": ["echo"]},
    {"prompts": [""], "providers": ["echo"]},
    {"prompts": ["a"], "providers": ["echo"], "tasks": [{"type": "prompt_eval"}]},
    {"tests": [{}], "tasks": [{"type": "prompt_eval"}]},
    {"tasks": []},
    {"tasks": [{"type": "question_eval", "questionsFile": 5}]},
    {"tasks": [{"type": "question_eval", "questionsFile": "q.json", "workers": 0}]},
    {"tasks": [{"type": "question_eval", "questionsFile": "q.json", "prompts": ["a"]}]},
    {"tasks": [{"type": "question_eval", "questionsFile": "q.json", "budget": {"maxSteps": -1}}]},
    {"tasks": [{"type": "quiz"}]},
    {"tasks": [{"type": "agent", "maxRestarts": 0}]},
    {"tasks": [{"type": "agent", "restartBackoff": 0.5}]},
    {"tasks": [{"type": "agent", "scenarios": []}]},
    {"tasks": [{"type": "agent", "onFailedDependency": "wait"}]},
    {"tasks": [{"type": "agent", "tests": [{"id": "a", "dependsOn": 5}]}]},
    {"tasks": [{"type": "agent", "tests": [{"id": "a", "dependencyTimeout": 0}]}]},
    {"tasks": [{"type": "agent", "defaultTest": {"id": "a"}}]},
    {"agents": {"maxConcurrentRuns": -1}},
    {"tests": [{"id": "a", "vars": {}}]},
    {"questions": []},
    {"limits": {"backend": "file"}},
    {"limits": {"backend": "redis", "url": "redis://x", "workers": 0}},
    {"limits": {"backend": "redis", "url": "redis://x", "batch": {"flushMs": 0}}},
    {"limits": {"define": [{"key": "a:rpm", "kind": "rolling", "capacity": 0}]}},
    {"limits": {"define": [{"key": "a:rpm", "kind": "rolling", "windowSeconds": 1}]}},
    {"lanes": {"slow": {"limits": "a:rpm"}}},
    {"lanes": {"slow": {"limits": [{"unit": "tokens"}]}}},
    {"derivedMetrics": [{"name": "x"}]},
    {"evaluateOptions": {"timeoutMs": -1}},
]


@pytest.mark.parametrize("part", WRONG, ids=json.dumps)
def test_wrong_shapes_are_refused_by_both(part: dict[str, Any]) -> None:
    """This covers keys, types, bounds and choices."""
    document = part if "prompts" in part else {"providers": ["echo"], **part}
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(SuiteError):
        parse_suite(document, strict=True)


RIGHT: list[dict[str, Any]] = [
    {},
    {"prompts": {"p.txt": "label"}},
    {"prompts": "one"},
    {"tests": None, "scenarios": []},
    {"tests": {"vars": {"x": 1}}},
    {"tests": ["t.csv", {"path": "t.py", "config": {"n": 1}}]},
    {"default_test": "file://d.yaml", "x-own": 1, "$schema": "s"},
    {"tests": [{"options": {"temperature": 1, "postprocess": "x"}, "vars": ["v.yaml"]}]},
    {"providers": ["echo", {"openai:gpt-4.1": {"label": "a"}}, {"id": "x", "lane": "slow"}]},
    {"scenarios": ["s.yaml", {"config": [{"vars": {"x": 1}}], "tests": "t.csv"}]},
    {"targets": None, "tasks": None, "prompts": None, "evaluateOptions": {"repeat": None}},
    {"providers": [{"echo": None}, {"id": "x", "config": None}]},
    {"description": 2024, "tests": [{"description": 1.5, "assert": None, "vars": None}]},
    {"assertionTypes": {"x": "file://x.py:f"}, "tests": [{"assert": [{"type": "x"}]}]},
    {"assertionTypes": {}, "derivedMetrics": [{"name": "x", "value": "m"}]},
    {"derivedMetrics": [], "tests": [{"vars": {}, "assert_scoring_function": ""}]},
    {"agents": {"maxConcurrentRuns": 0, "max_concurrent_root_tasks": 2}},
    {"tasks": [{"type": "agent", "prompts": "x", "tests": {"id": "a", "dependsOn": "b, c"}}]},
    {"tasks": [{"type": "agent", "default_test": {"threshold": 1}, "done_file": "D"}]},
    {"evaluateOptions": {"timeoutMs": 0, "silent": True, "generate_suggestions": False}},
]


@pytest.mark.parametrize("part", RIGHT, ids=json.dumps)
def test_all_forms_of_entries_are_accepted(part: dict[str, Any]) -> None:
    """This includes entries that name files, which the schema does not look up."""
    assert [*VALIDATOR.iter_errors({"providers": ["echo"], **part})] == []


def test_the_shipped_schema_is_generated_from_the_models(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`trioeval schema` prints it; `python tests/suite_schema.py` regenerates it."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert (
        SCHEMA["$defs"]["EvaluateOptions"]["properties"]["maxConcurrency"]["anyOf"][0]["minimum"]
        == 1
    )
    assert SHIPPED.read_text("utf-8") == schema_text()
    assert run_command_line(["schema"]) == 0
    assert capsys.readouterr().out == schema_text()


def test_fields_have_the_descriptions_of_the_models() -> None:
    """An editor shows the text of the documentation."""
    lane = SCHEMA["$defs"]["LaneSettings"]
    assert lane["description"] == "The limits of the calls to one provider key."
    assert lane["properties"]["rpm"] == {
        "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}],
        "description": "Requests per minute, > 0; None is unlimited.",
    }
    assert lane["properties"]["max_concurrency"] == lane["properties"]["maxConcurrency"]


REFERRING: dict[str, Any] = {
    "definitions": {
        "provider": {"id": "echo", "label": "a"},
        "text": "Say {{x}}",
        "tests": [{"vars": {"x": 1}}],
        "vars": {"x": 2},
        "slow": {"rpm": 60},
        "options": {"repeat": 2},
        "settings": [{"vars": {"x": 3}}],
    },
    "assertionTemplates": {"short": {"type": "contains", "value": "Say"}},
    "providers": [{"$ref": "#/definitions/provider"}, {"echo": {"$ref": "#/x-own"}}],
    "x-own": {"label": "b"},
    "prompts": [{"$ref": "#/definitions/text"}],
    "tests": {"$ref": "#/definitions/tests"},
    "defaultTest": {"assert": [{"$ref": "#/assertionTemplates/short", "weight": 2}]},
    "lanes": {"slow": {"$ref": "#/definitions/slow"}},
    "env": {"$ref": "#/definitions/vars"},
    "evaluateOptions": {"$ref": "#/definitions/options"},
    "scenarios": [
        {
            "config": {"$ref": "#/definitions/settings"},
            "tests": [
                {
                    "vars": {"$ref": "#/definitions/vars"},
                    "options": {"$ref": "#/definitions/options"},
                }
            ],
        }
    ],
}


@pytest.mark.parametrize(
    "document",
    [
        REFERRING,
        {"providers": ["echo"], "tests": [{"$ref": "#/x-own"}], "x-own": {"vars": {"x": 1}}},
        {"$ref": "base.json", "prompts": ["a"]},
    ],
)
def test_references_are_allowed_where_the_loader_accepts_them(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """This holds for lists, for their entries, and for objects; keys next to them are checked."""
    file = tmp_path / "suite.json"
    file.write_text(json.dumps(document))
    (tmp_path / "base.json").write_text('{"providers": ["echo"]}')
    assert load_suite(file).providers[0].id == "echo"
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize(
    "entry", [{"$ref": 5}, {"$ref": "#/x-own", "vrs": {}}, {"$ref": "#/x-own", "threshold": "1"}]
)
def test_keys_beside_a_reference_are_checked(entry: dict[str, Any], tmp_path: Path) -> None:
    """They override the target of the reference."""
    document = {"providers": ["echo"], "tests": [entry], "x-own": {"vars": {"x": 1}}}
    file = tmp_path / "suite.json"
    file.write_text(json.dumps(document))
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(SuiteError):
        load_suite(file)
