"""The first rows of a run, as far as a table shows them."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.report.inert import inert
from trioeval.report.json_text import shallow
from trioeval.report.records import name_of_test, shown_of, status_of
from trioeval.tasks import Status


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

    def add(self, record: Mapping[str, Any]) -> None:
        """Take note of a row."""
        test_idx = record["testIdx"]
        if test_idx not in self.names:
            if len(self.names) == self.tests:
                self.hidden += 1
                return
            self.names[test_idx] = inert(name_of_test(record), self.width)
        text = inert(shallow(shown_of(record)), self.width)
        self.cells[test_idx, record["promptIdx"]] = Cell(status_of(record), text)
