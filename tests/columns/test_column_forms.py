"""Invalid entries of columns: each mistake is reported at its place, with a hint."""

from pathlib import Path
from typing import Any

import pytest
from columns_suites import LLM, TOPIC, A, fill, hinted, problems_of
from hypothesis import given
from hypothesis import strategies as st

from trioeval.columns.column_form import KINDS, SAMPLERS
from trioeval.columns.field_types import column_name
from trioeval.documents.mistakes import MistakenError
from trioeval.templates import Templates


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seeds, a prompt, a schema and functions."""
    return fill(tmp_path)


SEED: dict[str, Any] = {"type": "seed", "file": "people.csv", "columns": ["name"]}
CATEGORY: dict[str, Any] = {"name": "x", "type": "sampler", "sampler": "category", "values": [1]}
UNIFORM: dict[str, Any] = {**CATEGORY, "sampler": "uniform", "low": 0, "high": 1}
del UNIFORM["values"]
GAUSSIAN: dict[str, Any] = {"name": "x", "type": "sampler", "sampler": "gaussian", "mean": 0}
GAUSSIAN |= {"deviation": 1}
DATE: dict[str, Any] = {"name": "x", "type": "sampler", "sampler": "datetime"}
DATE |= {"start": "2026-01-02", "end": "2026-01-03"}
KIND: dict[str, Any] = {"name": "x", "type": "sampler", "sampler": "subcategory"}
KIND |= {"category": "topic", "values": {"apples": [1], "trains": [2]}}
TEMPLATE: dict[str, Any] = {"name": "x", "type": "expression", "template": "1"}
JUDGE: dict[str, Any] = {"name": "x", "type": "judge", "provider": "writer", "prompt": "?"}
SCORE: dict[str, Any] = {"name": "s", "description": "d", "options": {"1": "bad"}}
VECTOR: dict[str, Any] = {"name": "x", "type": "embedding", "provider": "writer", "text": "t"}
MADE: dict[str, Any] = {"name": "x", "type": "python", "target": "file://gen.py:make"}
CHECK: dict[str, Any] = {"name": "x", "type": "validation", "target": "a"}
OUTSIDE = (
    "a validation makes no calls; make a column of type judge or python, and validate that column"
)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"name": "x"}, ': "type" is missing'),
        ({"name": "x", "type": "sampled"}, '.type: the text "sampled" is not a column type'),
        ({"name": "x", "type": ["llm"]}, ".type: a list is not a column type"),
        ({**CATEGORY, "sampler": None}, ': "sampler" is missing'),
        (
            {**CATEGORY, "sampler": "poisson"},
            '.sampler: the text "poisson" is not a sampler',
        ),
        ({**CATEGORY, "low": 1}, '.low: "low" is not a key here'),
        ({**CATEGORY, "outputs": ["x"]}, '.outputs: "outputs" is not a key here'),
        ({**CATEGORY, "name": None}, ".name: must be text, got null"),
        ({**CATEGORY, "name": 5}, ".name: must be text, got 5"),
        (
            {**CATEGORY, "name": "x y"},
            '.name: "x y" is not a valid column name: templates cannot use it as a variable',
        ),
        (
            {**CATEGORY, "name": "in"},
            '.name: "in" is not a valid column name: templates cannot use it as a variable',
        ),
        ({**CATEGORY, "keep": "no"}, '.keep: must be true or false, got the text "no"'),
        ({**CATEGORY, "requires": "a"}, '.requires: must be a list of names, got the text "a"'),
        ({**CATEGORY, "requires": ["a", 5]}, ".requires[1]: must be text, got 5"),
        ({**CATEGORY, "skip": True}, ".skip: must be an object, got true"),
        ({**CATEGORY, "skip": {"if": "a"}}, '.skip.if: "if" is not a key here'),
        ({**CATEGORY, "skip": {"when": True}}, ".skip.when: must be text, got true"),
        ({**CATEGORY, "skip": {"when": " "}}, ".skip.when: must not be empty"),
        (
            {**CATEGORY, "skip": {"onError": "drop"}},
            '.skip.onError: must be fail or skip, got the text "drop"',
        ),
        (
            {**CATEGORY, "skip": {"value": "1"}},
            '.skip.value: must be a value of the type of x, int, got the text "1"',
        ),
        ({**CATEGORY, "dropWhen": 5}, ".dropWhen: must be text, got 5"),
        ({**CATEGORY, "values": []}, ".values: no values are given"),
        ({**CATEGORY, "values": "a"}, '.values: must be a list, got the text "a"'),
        ({**CATEGORY, "weights": [1, 2]}, ".weights: 2 weights for 1 value"),
        ({**CATEGORY, "weights": []}, ".weights: 0 weights for 1 value"),
        ({**CATEGORY, "weights": [0]}, ".weights: all weights are 0"),
        (
            {**CATEGORY, "values": [1, 2], "weights": [1e308, 1e308]},
            ".weights: the sum of the weights is too large",
        ),
        (
            {**UNIFORM, "low": -1.7e308, "high": 1.7e308},
            ".low: -1.7e+308 is too far from 0 to be represented",
        ),
        ({**UNIFORM, "decimals": 400}, ".decimals: must be at most 100, got 400"),
        (
            {**UNIFORM, "high": 1e30, "decimals": 0},
            ".high: 1e+30 is too far from 0 to be represented",
        ),
        (
            {**GAUSSIAN, "mean": 1e308, "deviation": 1e307},
            ".mean: 1e+307 is too far from 0 to be represented",
        ),
        ({**CATEGORY, "weights": [-1]}, ".weights[0]: must be at least 0, got -1"),
        ({**UNIFORM, "low": 2}, ".low: low is 2, above high, 1"),
        ({**UNIFORM, "low": None}, ".low: must be a number, got null"),
        ({**UNIFORM, "decimals": -1}, ".decimals: must be at least 0, got -1"),
        (
            {**UNIFORM, "low": 0.2, "high": 0.9, "decimals": 0},
            ".decimals: no number with 0 decimals is between 0.2 and 0.9",
        ),
        ({**GAUSSIAN, "deviation": 0}, ".deviation: must be more than 0, got 0"),
        ({**GAUSSIAN, "low": 1, "high": 0}, ".low: low is 1, above high, 0"),
        ({**GAUSSIAN, "low": 9}, ".low: almost no number is at least 9 with mean 0"),
        ({**GAUSSIAN, "high": -9}, ".high: almost no number is at most -9 with mean 0"),
        (
            {**GAUSSIAN, "low": 0.2, "high": 0.9, "decimals": 0},
            ".decimals: no number with 0 decimals is between 0.2 and 0.9",
        ),
        (
            {**DATE, "start": "yesterday"},
            '.start: must be a date or a date and time in ISO 8601, got the text "yesterday"',
        ),
        ({**DATE, "end": "2026-01-01"}, '.end: end is "2026-01-01", before start, "2026-01-02"'),
        ({**DATE, "end": "2026-02-01T00:00Z"}, ".end: only one of start and end has a time zone"),
        (
            {**DATE, "unit": "week"},
            '.unit: must be second, minute, hour or day, got the text "week"',
        ),
        ({**DATE, "format": ""}, ".format: must not be empty"),
        ({**KIND, "values": {"apples": [], "trains": [1]}}, ".values.apples: no values are given"),
        ({**KIND, "values": {}}, ".values: no values are given"),
        ({**KIND, "values": {"apples": [1]}}, '.values: no values are given for "trains"'),
        (
            {**KIND, "values": {**KIND["values"], "train": [1]}},
            '.values.train: "train" is not a value of topic',
        ),
        ({**KIND, "category": "topics"}, '.category: unknown column "topics" in column "x"'),
        (
            {**KIND, "category": "topic.x"},
            '.category: "topic.x" is not a valid column name: templates cannot use it as a variable',
        ),
        ({**SEED, "file": None}, ": neither file nor fromTask is given"),
        ({**SEED, "file": "peple.csv"}, '.file: file not found: "peple.csv"'),
        ({**SEED, "file": "ask.txt"}, '.file: "ask.txt" is not a seed file'),
        ({**SEED, "columns": None}, ': "columns" is missing'),
        ({**SEED, "columns": []}, ".columns: no columns are given"),
        (
            {**SEED, "columns": "name"},
            '.columns: must be a list of columns, or an object, got the text "name"',
        ),
        ({**SEED, "columns": ["x", "x"]}, '.columns[1]: "x" is listed twice'),
        (
            {**SEED, "columns": {"x y": "name"}},
            '.columns["x y"]: "x y" is not a valid column name: templates cannot use it as a variable',
        ),
        ({**SEED, "columns": {"x": 5}}, ".columns.x: must be text, got 5"),
        ({**SEED, "order": "random"}, '.order: must be ordered or shuffled, got the text "random"'),
        ({**SEED, "requires": ["a"]}, '.requires: "requires" is not a key here'),
        ({**SEED, "name": "x"}, '.name: "name" is not a key here'),
        (
            {**SEED, "dropWhen": "name == a"},
            ".dropWhen: this column is made first, but needs a, made later",
        ),
        ({**TEMPLATE, "template": None}, ": neither template nor python is given"),
        ({**TEMPLATE, "python": "1"}, ": both template and python are given"),
        (
            {**TEMPLATE, "as": "number"},
            '.as: must be text, int, float, bool or json, got the text "number"',
        ),
        (
            {**LLM, "name": "x", "provider": None},
            ".provider: must be a provider: its label or id, or an object, got null",
        ),
        (
            {**LLM, "name": "x", "prompt": " "},
            '.prompt: must be the text of a prompt, or a list of messages, got the text " "',
        ),
        ({**LLM, "name": "x", "prompt": "file://none.txt"}, '.prompt: file not found: "none.txt"'),
        ({**LLM, "name": "x", "restarts": -1}, ".restarts: must be at least 0, got -1"),
        ({**LLM, "name": "x", "config": 5}, ".config: must be an object, got 5"),
        ({**LLM, "name": "x", "schema": "text"}, '.schema: must be an object, got the text "text"'),
        (
            {**LLM, "name": "x", "schema": {"properties": {"a": {"tpye": "string"}}}},
            '.schema.properties.a.tpye: "tpye" is not a keyword of JSON Schema',
        ),
        (
            {**LLM, "name": "x", "schema": {"type": "text"}},
            '.schema.type: "text" is not a JSON Schema type',
        ),
        (
            {**LLM, "name": "x", "trace": "a b"},
            '.trace: "a b" is not a valid column name: templates cannot use it as a variable',
        ),
        ({**JUDGE}, ': "scores" is missing'),
        ({**JUDGE, "scores": []}, ".scores: no scores are given"),
        (
            {**JUDGE, "scores": [{**SCORE, "options": {}}]},
            ".scores[0].options: no options are given",
        ),
        (
            {**JUDGE, "scores": [{**SCORE, "options": {"1": "bad", "1.0": "worse"}}]},
            '.scores[0].options["1.0"]: is the same score as "1"',
        ),
        (
            {**JUDGE, "scores": [{**SCORE, "options": {"1": 1}}]},
            '.scores[0].options["1"]: must be text, got 1',
        ),
        (
            {**JUDGE, "scores": [SCORE, SCORE]},
            '.scores[1].name: another score is also named "s"',
        ),
        ({**VECTOR, "text": ""}, ".text: must not be empty"),
        (
            {**MADE, "target": "gen:make"},
            '.target: makers of columns are functions in Python files, got "gen:make"',
        ),
        (
            {**MADE, "target": "file://gen.py:mke"},
            '.target: function "mke" not found in "gen.py"',
        ),
        ({**MADE, "scope": "row"}, '.scope: must be cell, full or scratch, got the text "row"'),
        ({**MADE, "ordered": True}, ".ordered: cells are made in any order"),
        (
            {**MADE, "scope": "scratch", "requires": ["a"]},
            '.requires: a column of scope "scratch" cannot use other columns',
        ),
        (
            {**MADE, "scope": "scratch", "skip": {"when": "a > 1"}},
            '.skip: a column of scope "scratch" cannot use other columns',
        ),
        (
            {**MADE, "scope": "scratch", "dropWhen": "x > a"},
            ".dropWhen: this column is made first, but needs a, made later",
        ),
        ({**MADE, "outputs": ["y"]}, '.outputs: "x", the name of the column, is not in outputs'),
        ({**MADE, "outputs": ["x", "x"]}, '.outputs[1]: "x" is listed twice'),
        ({**MADE, "extras": ["x"]}, '.extras[0]: "x" is already one of its outputs'),
        ({**MADE, "as": "number"}, '.as: the text "number" is not a column type'),
        ({**MADE, "as": {"x": ["int"]}}, ".as.x: a list is not a column type"),
        ({**MADE, "as": {"y": "int"}}, '.as.y: it makes no column named "y"'),
        ({**MADE, "timeout": 0}, ".timeout: must be more than 0, got 0"),
        ({**CHECK}, ': "assert" is missing'),
        ({**CHECK, "assert": []}, ".assert: no assertions are given"),
        (
            {**CHECK, "assert": [{"type": "contians"}]},
            '.assert[0].type: "contians" is not an assertion type',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_column_settings_are_reported(
    folder: Path, entry: dict[str, Any], problem: str
) -> None:
    """Exactly one mistake is reported, at its place."""
    assert problems_of(folder, A, TOPIC, entry) == [f"columns[2]{problem}"]


@pytest.mark.parametrize(
    ("assertion", "problem"),
    [
        ({"type": "llm-rubric", "value": "x"}, ".type: llm-rubric calls a model or runs code"),
        ({"type": "not-similar", "value": "x"}, ".type: not-similar calls a model or runs code"),
        ({"type": "python", "value": "True"}, ".type: python calls a model or runs code"),
        ({"type": "select-best", "value": "x"}, ".type: select-best compares rows"),
        (
            {"type": "contains", "value": "file://gen.py:make"},
            ".value: the value would be computed by a program",
        ),
        (
            {"type": "contains", "value": "x", "transform": "output.x"},
            ".transform: a transform runs code",
        ),
        (
            {
                "type": "assert-set",
                "assert": [{"type": "is-json"}, {"type": "webhook", "value": "http://x"}],
            },
            ".assert[1].type: webhook calls a model or runs code",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_validation_makes_no_calls(folder: Path, assertion: dict[str, Any], problem: str) -> None:
    """It calls no model and runs no code, also in a set."""
    entry = {**CHECK, "assert": [assertion]}
    assert hinted(folder, A, entry) == [f"columns[1].assert[0]{problem} | {OUTSIDE}"]


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ({**LLM, "promt": "x"}, 'did you mean "prompt"?'),
        ({**LLM, "name": "full name"}, 'for example "full_name"'),
        ({**LLM, "name": "?"}, "use letters, digits and _"),
        ({**LLM, "type": "lm"}, 'did you mean "llm"?'),
        ({"name": "x"}, f"known are {', '.join(KINDS)}"),
        (
            {**CATEGORY, "sampler": "poisson"},
            f"known are {', '.join(sorted(SAMPLERS))}",
        ),
        ({**MADE, "as": "flot"}, 'did you mean "float"?'),
        ({**MADE, "as": {"xx": "int"}}, 'did you mean "x"?'),
        ({**DATE, "start": "1.1.2026"}, 'for example "2026-01-31" or "2026-01-31T12:00"'),
        (
            {**SEED, "columns": None},
            "list the columns of the source, or write an object to rename them",
        ),
        ({**KIND, "category": "topics"}, 'did you mean "topic"?'),
        ({**LLM, "name": "x", "schema": {"type": "strnig"}}, 'did you mean "string"?'),
        ({**LLM, "name": "x", "schema": {"type": ["null", "strnig"]}}, 'did you mean "string"?'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hints_suggest_the_intended_value(folder: Path, entry: dict[str, Any], hint: str) -> None:
    """The hint suggests the probable value, or lists the valid ones."""
    (found,) = hinted(folder, A, TOPIC, entry)
    assert found.partition(" | ")[2] == hint


def test_all_mistakes_are_reported_together(folder: Path) -> None:
    """Mistakes of all columns are reported in order; an invalid column still counts as a column."""
    assert problems_of(
        folder,
        {**LLM, "prompt": "{{ b }} {{ c }}", "restarts": -1, "skip": {"when": "d"}},
        {**UNIFORM, "name": "b", "low": 5, "hihg": 1},
        {**TEMPLATE, "template": "{{ text }} {{ b }}", "dropWhen": "e"},
        groupSize=0,
    ) == [
        "columns[0].restarts: must be at least 0, got -1",
        'columns[0].prompt: unknown column "c" in column "text"',
        'columns[0].skip.when: unknown column "d" in column "text"',
        'columns[1].hihg: "hihg" is not a key here',
        "columns[1].low: low is 5, above high, 1",
        'columns[2].dropWhen: unknown column "e" in column "x"',
        "groupSize: must be at least 1, got 0",
    ]


def test_an_unknown_key_hides_no_other_mistake(folder: Path) -> None:
    """Contradictions are reported as well."""
    assert problems_of(
        folder,
        {"name": "a", "type": "expression", "template": "x", "python": "1", "tmplate": "y"},
    ) == [
        'columns[0].tmplate: "tmplate" is not a key here',
        "columns[0]: both template and python are given",
    ]


WORDS = st.from_regex(r"[a-zA-Z_\u00e9][a-zA-Z0-9_]{0,5}", fullmatch=True)


@given(WORDS | st.sampled_from(["in", "not", "None", "null", "is", "self", "env", "loop", "range"]))
def test_names_of_columns_are_variables_of_templates(name: str) -> None:
    """So every text that uses one gets its value."""
    try:
        column_name(name)
    except MistakenError:
        return
    templates = Templates(strict=True)
    text = f"{{% if {name} %}}<{{{{ {name} }}}}|{{{{ [{name}, 1] | join }}}}>{{% endif %}}"
    assert templates.references(text) == {name}
    assert templates.fill(text, {name: "v"}) == "<v|v1>"
