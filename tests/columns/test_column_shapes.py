"""The JSON Schema of datasets accepts what the strict loader accepts, and refuses the same wrong shapes."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from columns_suites import LLM, TOPIC, A, fill
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_schema import suite_schema

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite

VALIDATOR = jsonschema.Draft202012Validator(suite_schema())
SAMPLED = {"type": "sampler", "name": "x"}
ENTRIES: list[dict[str, Any]] = [
    {
        "type": "seed",
        "file": "people.csv",
        "columns": {"x": "name"},
        "order": "shuffled",
        "seed": 3,
    },
    {"type": "seed", "from_task": "ask", "columns": ["output"], "dropWhen": "output", "keep": None},
    {**SAMPLED, "sampler": "category", "values": [1, "a"], "weights": [1, 2.5], "seed": 1},
    {
        **SAMPLED,
        "sampler": "subcategory",
        "category": "topic",
        "values": {"apples": [1], "trains": [2]},
    },
    {**SAMPLED, "sampler": "uniform", "low": 1, "high": 2.5, "decimals": 1},
    {**SAMPLED, "sampler": "gaussian", "mean": 1, "deviation": 2, "low": 0, "high": None},
    {**SAMPLED, "sampler": "datetime", "start": "2026-01-01", "end": "2026-01-02", "unit": "day"},
    {**SAMPLED, "sampler": "uuid", "prefix": "p", "short": True, "requires": ["topic"]},
    {"type": "expression", "name": "x", "template": "{{ a }}", "as": "int"},
    {"type": "expression", "name": "x", "python": "a + 1", "keep": False, "drop_when": "x > 1"},
    {
        **LLM,
        "schema": {"type": "integer"},
        "restarts": 1,
        "corrections": 0,
        "reasoning": "why",
        "trace": "trail",
        "config": {"temperature": 1},
        "skip": {"when": "a > 1", "value": 0, "propagate": False, "on_error": "skip"},
    },
    {
        **LLM,
        "provider": {"id": "echo"},
        "prompt": [{"role": "user"}],
        "schema": "file://answer.json",
    },
    {
        **LLM,
        "type": "judge",
        "scores": [{"name": "s", "description": "d", "options": {"1": "bad"}}],
    },
    {"type": "embedding", "name": "x", "provider": "writer", "text": "{{ a }}", "config": {}},
    {
        "type": "python",
        "name": "x",
        "target": "file://gen.py:make",
        "scope": "full",
        "outputs": ["x", "y"],
        "extras": ["z"],
        "ordered": True,
        "as": {"x": "int"},
        "timeout": 5,
    },
    {"type": "python", "name": "x", "target": "file://gen.py:make", "as": "vector"},
    {
        "type": "validation",
        "name": "x",
        "target": "a",
        "assert": [{"type": "contains", "value": "x"}],
        "drop": True,
    },
]
ASK: dict[str, Any] = {"id": "ask", "type": "prompt_eval"}
DATA: dict[str, Any] = {
    "id": "data",
    "type": "columns",
    "rows": 3,
    "groupSize": 2,
    "output_dir": "data",
    "format": "jsonl",
    "resume": "ifPossible",
    "salvageRounds": 1,
    "shutdown": {"calls": 5, "errorRate": 1},
    "processors": [
        {"stage": "before_batch", "target": "file://gen.py:make", "onError": "drop_group"},
        {"stage": "afterGeneration", "dropColumns": ["top*"], "keepAside": False, "timeout": 1},
    ],
    "evaluateOptions": {"repeat": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeds, a prompt, a schema and functions."""
    return fill(tmp_path_factory.mktemp("shapes"))


def suite(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"providers": [{"id": "echo", "label": "writer"}], "tasks": [ASK, *tasks]}


def faults(document: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(document)]


@pytest.mark.parametrize("entry", ENTRIES, ids=json.dumps)
def test_all_entries_are_accepted_by_both(folder: Path, entry: dict[str, Any]) -> None:
    """This holds for every type."""
    document = suite({**DATA, "columns": [A, TOPIC, entry]})
    parse_suite(document, directory=folder, strict=True)
    assert faults(document) == []


@pytest.mark.parametrize(
    "task",
    [
        {"type": "prompt_eval", "tests": {"fromTask": "ask", "vars": {"x": "output"}, "limit": 5}},
        {"type": "prompt_eval", "tests": {"from_task": "ask", "assert": [{"type": "is-json"}]}},
        {
            "type": "question_eval",
            "questions": {
                "fromTask": "ask",
                "question": "output",
                "answers": "output",
                "correct_answers": "output",
            },
        },
    ],
    ids=json.dumps,
)
def test_rows_of_tasks_are_accepted_by_both(folder: Path, task: dict[str, Any]) -> None:
    """They may be tests and questions."""
    document = suite(task)
    parse_suite(document, directory=folder, strict=True)
    assert faults(document) == []


@pytest.mark.parametrize(
    "part",
    [
        {"columns": []},
        {"columns": None},
        {"columns": [{"name": "x"}]},
        {"columns": [{**A, "sampler": "poisson"}]},
        {"columns": [{**A, "values": []}]},
        {"columns": [{**A, "name": "x y"}]},
        {"columns": [{**A, "skip": {"onError": "drop"}}]},
        {"columns": [{**LLM, "scores": []}]},
        {"columns": [{"type": "llm", "name": "x", "prompt": "x"}]},
        {"columns": [{**LLM, "schema": 5}]},
        {"columns": [{"type": "seed", "file": "people.csv", "columns": []}]},
        {"columns": [{**LLM, "type": "judge", "scores": [{"name": "s", "description": "d"}]}]},
        {"salvageRounds": 0},
        {"resume": "sometimes"},
        {"shutdown": {"errorRate": 1.5}},
        {"processors": [{"stage": "during", "target": "file://gen.py:make"}]},
        {"tests": []},
        {"questions": {"fromTask": "data"}},
    ],
    ids=json.dumps,
)
def test_wrong_shapes_are_refused_by_both(folder: Path, part: dict[str, Any]) -> None:
    """Cases: keys, types, bounds and choices."""
    document = suite({**DATA, "columns": [A, TOPIC], "processors": [], **part})
    assert faults(document)
    with pytest.raises(SuiteError):
        parse_suite(document, directory=folder, strict=True)


def steps_of(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of data."""
    found = [above] if above else []
    match value:
        case dict():
            members: Any = value.items()
        case list():
            members = enumerate(value)
        case _:
            members = ()
    for step, part in members:
        found += steps_of(part, (*above, step))
    return found


JUNK = st.sampled_from([None, 0, -1, 1.5, "", "a", "x", True, [], {}, ["a"], {"a": "a"}, [1]])


@settings(max_examples=settings().max_examples // 6)
@given(st.sampled_from(ENTRIES), st.data())
def test_the_schema_accepts_what_the_loader_accepts(
    folder: Path, entry: dict[str, Any], data: st.DataObject
) -> None:
    """In a dataset, any part is replaced or a key is added."""
    task = copy.deepcopy({**DATA, "columns": [{**A}, {**TOPIC}, entry]})
    *above, last = data.draw(st.sampled_from(steps_of(task)))
    holder: Any = task
    for step in above:
        holder = holder[step]
    if data.draw(st.booleans()) and isinstance(holder, dict):
        last = data.draw(st.sampled_from(["name", "seed", "as", "requires", "config", "drop"]))
    holder[last] = data.draw(JUNK)
    document = suite(task)
    try:
        parse_suite(document, directory=folder, strict=True)
    except SuiteError:
        return
    assert faults(document) == []
