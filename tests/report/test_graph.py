"""The graph of a run as text, documents and data."""

from collections.abc import Mapping, Sequence

import pytest
from finished import headed
from hypothesis import given
from hypothesis import strategies as st

from trioeval.loading.load import parse_suite
from trioeval.report.graph import (
    Node,
    State,
    case_nodes,
    graph_text,
    layers_of,
    state_of,
    task_nodes,
)
from trioeval.report.head import Head, HeadCase
from trioeval.run import Status


def head_of(task: str | None, *needs: str, cases: Sequence[HeadCase] = ()) -> Head:
    return Head(
        eval_id="e",
        utc_created="2026-01-01T00:00:00.000Z",
        columns=[],
        config={},
        runtime_options={},
        versions={},
        task=task,
        depends_on=needs,
        cases=tuple(cases),
    )


CASES = (
    HeadCase(name="ring", depends_on=("calc", "list"), rows=2),
    HeadCase(name="calc", rows=5),
    HeadCase(name="list"),
    HeadCase(name="late", depends_on=("ring",), rows=2),
)
ROWS: Mapping[int, State] = {
    0: "blocked",
    1: "not run",
    2: "passed",
    3: "failed",
    5: "running",
    7: "error",
}
HEADS = (head_of("later", "repairs"), head_of("smoke"), head_of("repairs", "smoke", cases=CASES))
STATES: Mapping[str | None, Mapping[str, int]] = {
    "later": {"running": 1},
    "smoke": {"error": 1, "passed": 2},
    "repairs": {"blocked": 1, "passed": 1, "failed": 1, "error": 1, "not run": 1},
}


def nodes() -> Sequence[Node]:
    return task_nodes(
        HEADS, lambda head: STATES[head.task], lambda head: case_nodes(head, ROWS, "waiting")
    )


def test_a_graph_is_drawn_by_layers_with_states() -> None:
    """Cases follow their task; the states of several rows are counted in a fixed order."""
    assert graph_text(nodes(), "text").splitlines() == [
        "1  smoke                 2 passed, 1 error",
        "2  repairs ← smoke       1 passed, 1 failed, 1 error, 1 blocked, 1 not run",
        "   1  calc               1 passed, 1 failed, 1 running, 2 waiting",
        "   1  list               error",
        "   2  ring ← calc, list  1 blocked, 1 not run",
        "   3  late ← ring        2 waiting",
        "3  later ← repairs       running",
    ]


def test_a_graph_is_drawn_for_documents() -> None:
    """Documents have the same names and states; cases are in a frame of their task."""
    assert graph_text(nodes(), "mermaid").splitlines() == [
        "flowchart LR",
        '  t1["later<br/>running"]',
        '  t2["smoke<br/>2 passed, 1 error"]',
        '  subgraph t3["repairs<br/>1 passed, 1 failed, 1 error, 1 blocked, 1 not run"]',
        '    t3c1["ring<br/>1 blocked, 1 not run"]',
        '    t3c2["calc<br/>1 passed, 1 failed, 1 running, 2 waiting"]',
        '    t3c3["list<br/>error"]',
        '    t3c4["late<br/>2 waiting"]',
        "    t3c2 --> t3c1",
        "    t3c3 --> t3c1",
        "    t3c1 --> t3c4",
        "  end",
        "  t3 --> t1",
        "  t2 --> t3",
    ]
    dot = graph_text(nodes(), "dot").splitlines()
    assert dot[0] == "digraph run {"
    assert '  t2 [label="smoke\\n2 passed, 1 error"];' in dot
    assert "  subgraph cluster_t3 {" in dot
    assert "    t3c2 -> t3c1;" in dot
    assert dot[-2:] == ["  t2 -> t3;", "}"]


def test_special_characters_of_names_are_escaped() -> None:
    """This applies to terminals and documents."""
    odd = [Node(name='a"<b>\\\x1b[31m#', states={"passed": 1}), Node(name="b", depends_on=("?",))]
    assert graph_text(odd, "text").splitlines() == ['1  a"<b>\\ [31m#  passed', "1  b ← ?"]
    assert '  t1["a#quot;#lt;b#gt;\\ [31m#35;<br/>passed"]' in graph_text(odd, "mermaid")
    assert '  t1 [label="a\\"<b>\\\\ [31m#\\npassed"];' in graph_text(odd, "dot")


def test_rows_of_a_dataset_are_counted() -> None:
    """A single task, and a suite without tasks, are graphs."""
    made = task_nodes([head_of(None)], lambda _: {"rows written": 1}, lambda _: ())
    assert graph_text(made, "text") == "1  suite  1 rows written"
    assert graph_text([], "text") == ""


@pytest.mark.parametrize(
    ("outcome", "status", "state"),
    [
        ("done", Status.PASS, "passed"),
        ("done", Status.FAIL, "failed"),
        ("failed", Status.ERROR, "error"),
        ("interrupted", Status.ERROR, "interrupted"),
        ("blocked", Status.ERROR, "blocked"),
        ("not_run", Status.ERROR, "not run"),
    ],
)
def test_every_row_has_a_state(outcome: str, status: Status, state: str) -> None:
    """The state of a row is its verdict, or else its outcome."""
    assert state_of(outcome, status) == state


def test_a_graph_is_available_as_json() -> None:
    """JSON has names, layers and states, and cases only if there are any."""
    repairs = nodes()[2].json()
    assert repairs["cases"][1] == {
        "name": "calc",
        "dependsOn": [],
        "layer": 1,
        "states": {"passed": 1, "failed": 1, "running": 1, "waiting": 2},
    }
    assert "cases" not in nodes()[0].json()


def test_a_head_counts_the_rows_of_cases() -> None:
    """The rows of a case count prompts, providers, repeats and combinations of variables."""
    tests = [{"id": "a", "vars": {"x": ["1", "2"]}}, {"id": "b"}, {"id": "c", "dependsOn": "b"}]
    options = {"repeat": 2}
    agents = {"id": "t", "type": "agent", "prompts": ["p", "q"], "evaluateOptions": options}
    suite = parse_suite({"providers": ["exec:true"], "tasks": [{**agents, "tests": tests}]})
    found = headed(suite.tasks[0].suite).cases
    last = HeadCase(name="c", depends_on=("b",), rows=4)
    assert found == (HeadCase(name="a", rows=8), HeadCase(name="b", rows=4), last)


def test_heads_keep_their_cases() -> None:
    """A head is read back unchanged; an old head has no cases."""
    head = head_of("a", cases=CASES)
    assert Head.read(head.json()) == head
    before = {**head.json(), "cases": [{"name": "a", "dependsOn": []}]}
    assert Head.read(before).cases == (HeadCase(name="a"),)
    assert "cases" not in head_of("a").json()
    assert Head.read(head_of("a").json()).cases == ()


@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=4), max_size=8))
def test_a_node_is_one_layer_after_its_last_dependency(
    drawn: Mapping[int, set[int]],
) -> None:
    """A node without dependencies in the graph is in the first layer."""
    graph = {str(name): [str(one) for one in needs if one < name] for name, needs in drawn.items()}
    layers = layers_of(graph)
    assert layers.keys() == graph.keys()
    for name, needs in graph.items():
        assert layers[name] == 1 + max((layers[one] for one in needs if one in graph), default=0)
