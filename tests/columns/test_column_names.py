"""References between the columns of a dataset: existing names, and dependencies."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from columns_suites import LLM, A, B, column_of, fill, hinted, parsed, problems_of, settings_of
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.columns.graph import ColumnGraph
from trioeval.columns.model import ColumnsSettings
from trioeval.columns.types import producers_of
from trioeval.templates.expressions import python_error, python_names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seeds, a prompt, a schema and functions."""
    return fill(tmp_path)


_NO_CONDITION = "unexpected token: %}"
_BARE = "write only the text between the braces of a template"
MADE: dict[str, Any] = {"name": "x", "type": "python", "target": "file://gen.py:make"}
CHECK: dict[str, Any] = {"name": "x", "type": "validation", "target": "a"}
VECTOR: dict[str, Any] = {"name": "x", "type": "embedding", "provider": "writer", "text": "t"}


def python(name: str, code: str) -> dict[str, Any]:
    return {"name": name, "type": "expression", "python": code}


def template(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "type": "expression", "template": text}


@pytest.mark.parametrize(
    ("entry", "at"),
    [
        ({**MADE, "requires": ["aa.b"]}, "requires[0]"),
        ({**MADE, "skip": {"when": "b > aa"}}, "skip.when"),
        ({**MADE, "dropWhen": "x > aa"}, "dropWhen"),
        ({**MADE, "drop_when": "x > aa"}, "drop_when"),
        (template("x", "{% if b %}{{ aa.c }}{% endif %}"), "template"),
        (python("x", "[n + aa for n in range(b)]"), "python"),
        ({**LLM, "name": "x", "prompt": "{{ aa }}"}, "prompt"),
        ({**LLM, "name": "x", "prompt": [{"role": "user", "content": "{{ aa }}"}]}, "prompt"),
        ({**VECTOR, "text": "{{ aa }}"}, "text"),
        ({**CHECK, "target": "aa.b", "assert": [{"type": "is-json"}]}, "target"),
        ({**CHECK, "assert": [{"type": "contains", "value": "{{ aa }}"}]}, "assert[0].value"),
        (
            {
                **CHECK,
                "assert": [
                    {"type": "assert-set", "assert": [{"type": "is-json", "metric": "{{ aa }}"}]}
                ],
            },
            "assert[0].assert[0].metric",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_co_02_an_unknown_column_is_reported_at_its_use(
    folder: Path, entry: dict[str, Any], at: str
) -> None:
    """The probable name is suggested."""
    assert hinted(folder, A, B, entry) == [
        f'columns[2].{at}: unknown column "aa" in column "x" | did you mean "a"?'
    ]


def test_co_02_a_condition_on_new_values_may_use_its_own_column(folder: Path) -> None:
    entry = {**LLM, "name": "text", "prompt": "x", "dropWhen": "txt | length < 3"}
    assert hinted(folder, A, entry) == [
        'columns[1].dropWhen: unknown column "txt" in column "text" | did you mean "text"?'
    ]


def test_co_02_a_cycle_is_reported_with_its_path(folder: Path) -> None:
    """Each cycle is reported once, for every kind of dependency."""
    assert problems_of(
        folder,
        template("p", "{{ q }}"),
        {**LLM, "name": "q", "prompt": "x", "skip": {"when": "r"}, "trace": "t"},
        python("r", "p"),
        {**MADE, "name": "u", "requires": ["v"]},
        {**LLM, "name": "v", "prompt": "{{ a }}", "dropWhen": "z == v"},
        template("w", "{{ t }}"),
        {**MADE, "name": "y", "outputs": ["y", "z"], "requires": ["u"]},
        A,
    ) == [
        "columns[0]: columns depend on each other in a circle: p → q → r → p",
        "columns[3]: columns depend on each other in a circle: u → v → y → u",
    ]


def test_co_02_a_cycle_is_reported_beside_other_mistakes(folder: Path) -> None:
    """Other mistakes are invalid columns, unknown names, and duplicate names."""
    assert problems_of(
        folder,
        template("p", "{{ q }} {{ nothing }}"),
        template("q", "{{ p }}"),
        template("p", "1"),
        {**A, "low": 10},
    ) == [
        'columns[0].template: unknown column "nothing" in column "p"',
        "columns[0]: columns depend on each other in a circle: p → q → p",
        'columns[2].name: columns[0] also makes the column "p"',
        "columns[3].low: low is 10, above high, 9",
    ]


def test_co_02_two_side_effects_of_one_name_are_reported(folder: Path) -> None:
    """They may be in one entry or in two; duplicate columns are reported as well."""
    assert problems_of(
        folder,
        A,
        {**LLM, "reasoning": "why", "trace": "why"},
        {**MADE, "outputs": ["x", "a"], "extras": ["z", "why"]},
        {"type": "seed", "file": "people.csv", "columns": {"x": "name", "z": "age"}},
    ) == [
        'columns[1].trace: columns[1] also makes the side-effect column "why"',
        'columns[2].outputs[1]: columns[0] also makes the column "a"',
        'columns[2].extras[1]: columns[1] also makes the side-effect column "why"',
        'columns[3].columns.x: columns[2] also makes the column "x"',
    ]


def test_co_03_a_real_column_wins_over_a_side_effect_of_its_name(folder: Path) -> None:
    """A reference to the name means the column, even in the column with the side effect."""
    suite = parsed(
        folder,
        {**LLM, "prompt": "{{ a }}", "trace": "a"},
        {**LLM, "name": "more", "prompt": "{{ text }}", "trace": "a"},
        A,
        B,
    )
    found = suite.tasks[0].suite.settings
    assert isinstance(found, ColumnsSettings)
    assert [column.requires for column in found.columns] == [("a",), ("text",), (), ("a",)]
    graph = ColumnGraph.of(producers_of(found))
    assert graph.producers[graph.maker["a"]].name == "a"
    assert [warning.path for warning in suite.warnings] == [
        "$.tasks[0].columns[0]",
        "$.tasks[0].columns[1]",
    ]


def test_co_32_an_unknown_name_of_a_condition_is_reported(folder: Path) -> None:
    """An invalid condition is reported as well."""
    conditions = ["a > bb", "a >", "{{ a }}", "a | nonsense", "range(a) and env.X"]
    entries = [
        {**LLM, "name": f"x{place}", "skip": {"when": text}}
        for place, text in enumerate(conditions)
    ]
    assert hinted(folder, A, B, *entries) == [
        'columns[2].skip.when: unknown column "bb" in column "x0" | did you mean "b"?',
        "columns[3].skip.when: not an expression: unexpected token: }}",
        f'columns[4].skip.when: "{{{{ a }}}}" is a template, not an expression; {_BARE}',
        "columns[5].skip.when: not an expression: No filter named 'nonsense'.",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            template("x", "{{ a | nonsense }}"),
            "template: not a template: line 1: No filter named 'nonsense'.",
        ),
        (python("x", "a +"), "python: not a Python expression: invalid syntax"),
        (
            {**LLM, "name": "x", "prompt": '["{{ a }}", "{{ a and }}"]'},
            "prompt: not a template: line 1: unexpected token: }}",
        ),
        (
            {**VECTOR, "text": "{% if %}"},
            "text: not a template: line 1: unexpected token: %}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_template_is_reported(folder: Path, entry: dict[str, Any], message: str) -> None:
    """So is an invalid Python expression."""
    assert problems_of(folder, A, entry) == [f"columns[1].{message}"]


def test_json_prompts_use_the_names_of_their_decoded_texts(folder: Path) -> None:
    """The names are those of the decoded texts, in which quotes are not escaped."""
    messages = [
        {"role": "user", "content": '{{ a | default("{{ x }}") }}', "more": [{"b": "{{ b }}"}]}
    ]
    for prompt in (messages, json.dumps(messages), "- role: user\n  content: '{{ a }} {{ b }}'"):
        assert column_of(folder, A, B, {**LLM, "prompt": prompt}).requires == ("a", "b")


def test_filters_of_the_suite_may_be_used(folder: Path) -> None:
    """They may be used in templates and in conditions."""
    entry = {**template("x", "{{ a | shout }}"), "dropWhen": "x | shout == 'A'"}
    (folder / "shout.py").write_text("def shout(text):\n    return text.upper()\n")
    top = {"nunjucksFilters": {"shout": "shout.py"}}
    assert settings_of(folder, A, entry, top=top).columns[1].requires == ("a",)


def test_a_column_cannot_use_its_own_value(folder: Path) -> None:
    """Its value does not exist yet, except in `dropWhen`; in `requires` its name is ignored."""
    x = {**LLM, "name": "x", "trace": "t"}
    expected = {
        "prompt": {**x, "prompt": "{{ x }}"},
        "skip.when": {**x, "skip": {"when": "t == 1"}},
    }
    for at, entry in expected.items():
        name = "x" if at == "prompt" else "t"
        assert hinted(folder, A, entry) == [
            f'columns[1].{at}: "{name}" is made here, and has no value yet | use another column'
        ]
    entry = {**x, "requires": ["x", "a"], "dropWhen": "x == t or a == 1"}
    assert column_of(folder, A, entry).requires == ("a",)


def test_columns_override_functions_of_their_name(folder: Path) -> None:
    """The functions are those of templates and of Python."""
    used = [template("x", "{{ range(3) }}"), python("y", "sum([1])")]
    assert [one.requires for one in settings_of(folder, *used).columns] == [(), ()]
    named = [{**A, "name": "range"}, {**A, "name": "sum"}]
    found = settings_of(folder, *named, *used).columns
    assert [one.requires for one in found] == [(), (), ("range",), ("sum",)]


def test_free_names_of_python_expressions_are_dependencies() -> None:
    """Names bound in comprehensions, functions and walrus expressions are excluded, and so are attributes."""
    code = "[n.x + a for n in b if (m := n)] + list(map(lambda q: q + c, d)) + [e['f']] + [m]"
    assert python_names(code) == {"a", "b", "c", "d", "e", "list", "map"}
    assert python_names("a +") == frozenset()
    assert python_error("f" + "(" * 500 + ")" * 500) is not None
    assert python_error("a\0") is not None
    assert python_error("y = a") is not None


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw columns that need any others."""
    names = [f"c{place}" for place in range(draw(st.integers(1, 6)))]
    found: list[dict[str, Any]] = []
    for name in names:
        needs = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
        text = " ".join(f"{{{{ {need} }}}}" for need in needs if need != name)
        found.append({**template(name, text), "requires": [name] if name in needs else []})
    return found


@settings(max_examples=settings().max_examples // 10)
@given(tables())
def test_co_02_a_loaded_dataset_has_a_valid_graph(entries: list[dict[str, Any]]) -> None:
    """Columns without a valid graph are refused, with one mistake for each cycle."""
    folder = Path(__file__).parent
    needs = {
        entry["name"]: {name for name in entry["template"].split() if name.startswith("c")}
        for entry in entries
    }
    made: set[str] = set()
    while free := {name for name, several in needs.items() if several <= made} - made:
        made |= free
    if made == needs.keys():
        graph = ColumnGraph.of(producers_of(settings_of(folder, *entries)))
        assert {one.name for one in graph.producers} == needs.keys()
    else:
        problems = problems_of(folder, *entries)
        assert problems
        for line in problems:
            path = line.rpartition(": ")[2].split(" → ")
            assert all(there in needs[name] for name, there in itertools.pairwise(path))
            assert path[0] == path[-1]


def test_columns_that_differ_only_in_case_are_refused_if_files_cannot_distinguish_them(
    tmp_path: Path,
) -> None:
    message = '"B" differs from "b" only in upper and lower case'
    upper = {**B, "name": "B"}
    assert any(message in one for one in hinted(tmp_path, A, B, upper))
    extra = {**LLM, "trace": "B"}
    assert any(message in one for one in hinted(tmp_path, A, B, extra))
    assert len(settings_of(tmp_path, A, B, upper, format="jsonl").columns) == 3
    assert len(settings_of(tmp_path, A, B, {**upper, "keep": False}).columns) == 3
