# Separate from `cli.commands.run_graph`: it belongs to this package.
"""The dependencies of a run as a graph: its tasks, and the cases of agent tasks.

Nodes without dependencies are in layer 1, all others one layer below the last node they depend on.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Literal, TypeAlias, get_args

import attrs

from trioeval.report.head import Head
from trioeval.run import Status
from trioeval.text_safety import escape_control_characters

State: TypeAlias = Literal[
    "passed",
    "failed",
    "error",
    "not graded",
    "blocked",
    "interrupted",
    "not run",
    "running",
    "waiting",
]
"""The state of rows. Missing rows of a run in progress are `running` or `waiting`; those of an ended run are
`interrupted` if they had started, else `not run`."""

Form: TypeAlias = Literal["text", "mermaid", "dot"]

_STATES: Sequence[State] = get_args(State)
_WIDTH = 60  # characters of a name
_NEEDS = 48  # characters of the names of dependencies


@attrs.frozen(kw_only=True)
class Node:
    """A task or a case."""

    name: str
    depends_on: tuple[str, ...] = ()
    layer: int = 1
    """The layer, ≥ 1."""
    states: Mapping[str, int] = attrs.field(factory=dict)
    """The number of its rows in each state; of a dataset, the number of rows that are written."""
    cases: tuple["Node", ...] = ()
    """The cases of an agent task."""

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "name": self.name,
            "dependsOn": list(self.depends_on),
            "layer": self.layer,
            "states": dict(self.states),
            **({"cases": [case.json() for case in self.cases]} if self.cases else {}),
        }


def state_of(outcome: str, status: Status) -> State:
    """Return the state of a row.

    Example:
        >>> state_of("blocked", Status.ERROR)
        'blocked'
    """
    match status, outcome:
        case Status.PASS, _:
            return "passed"
        case Status.FAIL, _:
            return "failed"
        case Status.NOT_GRADED, _:
            return "not graded"
        case _, "blocked":
            return "blocked"
        case _, "interrupted":
            return "interrupted"
        case _, "not_run":
            return "not run"
        case _:
            return "error"


def case_nodes(head: Head, rows: Mapping[int, State], missing: State) -> tuple[Node, ...]:
    """Return the cases of an agent task.

    Args:
        head: The head of the task.
        rows: The states of its rows by index.
        missing: The state of all other rows.
    """
    layers = layers_of({case.name: case.depends_on for case in head.cases})
    found, first = [], 0
    for case in head.cases:  # the rows of a case are consecutive
        own = range(first, first + case.rows)
        first = own.stop
        node = Node(
            name=case.name,
            depends_on=case.depends_on,
            layer=layers[case.name],
            states=_in_order(Counter(rows.get(index, missing) for index in own)),
        )
        found.append(node)
    return tuple(found)


def task_nodes(
    heads: Sequence[Head],
    states: Callable[[Head], Mapping[str, int]],
    cases: Callable[[Head], tuple[Node, ...]],
) -> Sequence[Node]:
    """Return the tasks of a run.

    Args:
        heads: The heads of the tasks.
        states: Returns the states of the rows of a task.
        cases: Returns the cases of a task.
    """
    layers = layers_of({_name(head): head.depends_on for head in heads})
    return [
        Node(
            name=_name(head),
            depends_on=head.depends_on,
            layer=layers[_name(head)],
            states=_in_order(states(head)),
            cases=cases(head),
        )
        for head in heads
    ]


def layers_of(graph: Mapping[str, Iterable[str]]) -> Mapping[str, int]:
    """Return the layer of each name of an acyclic graph; names outside of the graph are ignored.

    Example:
        >>> layers_of({"a": ["b", "elsewhere"], "b": ["c"], "c": []})
        {'c': 1, 'b': 2, 'a': 3}
    """
    known = {name: [one for one in needs if one in graph] for name, needs in graph.items()}
    found: dict[str, int] = {}
    for name in TopologicalSorter(known).static_order():
        found[name] = 1 + max((found[one] for one in known[name]), default=0)
    return found


def graph_text(nodes: Sequence[Node], form: Form) -> str:
    """Yield a graph as text for a terminal or a document."""
    match form:
        case "text":
            return "\n".join(_text(nodes))
        case "mermaid":
            return "\n".join(_mermaid(nodes))
        case "dot":
            return "\n".join(_dot(nodes))


def _text(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a line for each name, by layers; cases follow their task."""
    lines = []
    for node in _layered(nodes):
        lines.append((_line(node), node))
        lines += [(f"   {_line(case)}", case) for case in _layered(node.cases)]
    width = max((len(line) for line, _ in lines), default=0)
    for line, node in lines:
        yield f"{line:{width}}  {_details(node)}".rstrip()


def _line(node: Node) -> str:
    needs = (
        f" ← {escape_control_characters(', '.join(node.depends_on), _NEEDS)}"
        if node.depends_on
        else ""
    )
    return f"{node.layer}  {escape_control_characters(node.name, _WIDTH)}{needs}"


def _layered(nodes: Sequence[Node]) -> Sequence[Node]:
    return sorted(nodes, key=lambda node: node.layer)  # in the original order within a layer


def _details(node: Node) -> str:
    """Return the state of a node; a single row has no number."""
    if sum(node.states.values()) == 1 and (only := next(iter(node.states))) in _STATES:
        return only
    return ", ".join(f"{count} {state}" for state, count in node.states.items())


def _in_order(states: Mapping[Any, int]) -> dict[str, int]:
    order = [*_STATES, *(state for state in states if state not in _STATES)]
    return {state: states[state] for state in order if states.get(state)}


def _name(head: Head) -> str:
    return "suite" if head.task is None else head.task


def _mermaid(nodes: Sequence[Node]) -> Iterator[str]:
    yield "flowchart LR"
    keys = _keys(nodes, "t")
    for node in nodes:
        if not node.cases:
            yield f"  {keys[node.name]}[{_quoted(node)}]"
            continue
        yield f"  subgraph {keys[node.name]}[{_quoted(node)}]"
        own = _keys(node.cases, f"{keys[node.name]}c")
        yield from (f"    {own[case.name]}[{_quoted(case)}]" for case in node.cases)
        yield from (f"    {one} --> {other}" for one, other in _edges(node.cases, own))
        yield "  end"
    yield from (f"  {one} --> {other}" for one, other in _edges(nodes, keys))


def _quoted(node: Node) -> str:
    label = _label(node, "\0")
    for sign, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        label = label.replace(sign, code)
    return '"' + label.replace("\0", "<br/>") + '"'


def _dot(nodes: Sequence[Node]) -> Iterator[str]:
    yield "digraph run {"
    yield "  rankdir=LR;"
    yield "  node [shape=box];"
    keys = _keys(nodes, "t")
    for node in nodes:
        if not node.cases:
            yield f"  {keys[node.name]} [label={_escaped(node)}];"
            continue
        # Arrows lead to nodes, not to frames: the task is a node in its own frame.
        yield f"  subgraph cluster_{keys[node.name]} {{"
        yield f"    {keys[node.name]} [label={_escaped(node)}, shape=plaintext];"
        own = _keys(node.cases, f"{keys[node.name]}c")
        yield from (f"    {own[case.name]} [label={_escaped(case)}];" for case in node.cases)
        yield from (f"    {one} -> {other};" for one, other in _edges(node.cases, own))
        yield "  }"
    yield from (f"  {one} -> {other};" for one, other in _edges(nodes, keys))
    yield "}"


def _escaped(node: Node) -> str:
    label = _label(node, "\0").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + label.replace("\0", "\\n") + '"'


def _label(node: Node, line_break: str) -> str:
    details = _details(node)
    return escape_control_characters(node.name, _WIDTH) + (
        f"{line_break}{details}" if details else ""
    )


def _keys(nodes: Sequence[Node], prefix: str) -> Mapping[str, str]:
    """Replace characters that identifiers of the graph formats cannot have."""
    return {node.name: f"{prefix}{place}" for place, node in enumerate(nodes, 1)}


def _edges(nodes: Sequence[Node], keys: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        yield from ((keys[one], keys[node.name]) for one in node.depends_on if one in keys)
