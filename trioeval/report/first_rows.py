"""The first rows of a run, as far as a table shows them."""

import attrs

from trioeval.report.inert import inert
from trioeval.report.json_text import shallow
from trioeval.tasks import Row, Status


@attrs.frozen
class Cell:
    """How one row ended."""

    status: Status
    text: str
    """What was answered, or why there is no verdict: harmless, and cut."""


@attrs.define
class FirstRows:
    """Takes rows in index order, and keeps of the first tests what is shown of them."""

    width: int
    """Characters of an answer that are shown, ≥ 8."""
    tests: int
    """Tests that are shown, ≥ 1."""
    hidden: int = 0
    """Rows that came after those."""
    names: dict[int, str] = attrs.field(factory=dict)
    """Of each test, by its `test_idx`."""
    cells: dict[tuple[int, int], Cell] = attrs.field(factory=dict)
    """By `test_idx` and `prompt_idx`."""

    def add(self, row: Row) -> None:
        """Take note of a row."""
        test_idx = row.step.test_idx
        if test_idx not in self.names:
            if len(self.names) == self.tests:
                self.hidden += 1
                return
            self.names[test_idx] = self._name(row)
        shown = row.error if row.status is Status.ERROR else row.output
        self.cells[test_idx, row.step.prompt_idx] = Cell(
            row.status, inert(shallow(shown), self.width)
        )

    def _name(self, row: Row) -> str:
        given = row.step.test.description
        variables = (f"{name}={shallow(value)}" for name, value in row.vars.items())
        return inert(given or ", ".join(variables), self.width)
