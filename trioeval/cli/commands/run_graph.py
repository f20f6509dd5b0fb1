"""`trioeval runs --graph`: the dependencies and the state of a stored run."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs

from trioeval.cli.environment import read_environment
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import Exit, show
from trioeval.report.graph import Form, Node, State, case_nodes, graph_text, state_of, task_nodes
from trioeval.report.head import Head
from trioeval.report.run_list import run_line
from trioeval.report.stored import StoredRunFacts
from trioeval.store.reader import StoreReader


def show_graph(db: Path | None, run: str, *, form: Form, as_json: bool) -> int:
    """Draw a run.

    Raises:
        UsageError: The run does not exist.
        StoreError: The database cannot be read.
    """
    with open_runs(db, read_environment(os.environ)) as reader:
        facts = reader.run(run)
        stored = _Stored(reader, facts)
        heads = [Head.read(head) for head in reader.heads(facts)]
        nodes = task_nodes(heads, stored.states, stored.cases)
    if as_json:
        graph = {"id": facts.id, "state": facts.state, "tasks": [node.json() for node in nodes]}
        show(json.dumps(graph, indent=2))
        return Exit.OK
    if form == "text":
        show(run_line(facts))
    show(graph_text(nodes, form))
    return Exit.OK


@attrs.frozen
class _Stored:
    """The stored state of a run."""

    reader: StoreReader
    facts: StoredRunFacts

    @property
    def missing(self) -> State:
        """The state of rows that are not stored and never started."""
        return "waiting" if self.facts.state == "running" else "not run"

    def rows(self, head: Head) -> Mapping[int, State]:
        """Return the states of a task's rows that are stored, or have started."""
        goes_on = self.facts.state == "running"
        started = {index for index, _ in self.reader.started_rows(self.facts, head.task)}
        working = self.reader.rows_with_processes(self.facts, head.task) if head.cases else ()
        states: dict[int, State] = dict.fromkeys(started, "running" if goes_on else "interrupted")
        for row in self.reader.outcomes(self.facts, head.task):
            states[row.index] = state_of(row.outcome, row.status)
        # A row that is being run again is stored already.
        return states | dict.fromkeys(working, "running" if goes_on else "interrupted")

    def states(self, head: Head) -> Mapping[str, int]:
        """Return the number of rows of a task by state."""
        if head.dataset_folder is not None:
            found = self.reader.datasets(self.facts).get(head.task)
            return {"rows written": found.written} if found else {self.missing: 1}
        states: Counter[str] = Counter(self.rows(head).values())
        size = self.facts.sizes[self.facts.tasks.index(head.task)]
        # The number of rows may be unknown until the task starts.
        lack = (0 if states else 1) if size is None else size - states.total()
        states[self.missing] += max(0, lack)
        return states

    def cases(self, head: Head) -> tuple[Node, ...]:
        """Return the cases of a task of type `agent`."""
        return case_nodes(head, self.rows(head), self.missing) if head.cases else ()
