"""The ids of rows, by their indices: whoever writes down what a row does says with it which row that is."""

import attrs

from trioeval.suite import Expansion
from trioeval.tasks.identity import row_id

_MANY = 4096  # rows that are under way at a time, about


@attrs.define(eq=False)
class RowIds:
    """The ids of the rows of one task. Those of rows that are under way are computed once."""

    steps: Expansion
    """As the suite has them, whatever extensions make of them."""
    _known: dict[int, str] = attrs.field(init=False, factory=dict)

    def __call__(self, index: int) -> str:
        """What a row is known by; see `row_id`."""
        found = self._known.get(index)
        if found is None:
            if len(self._known) >= _MANY:
                self._known.clear()
            found = self._known[index] = self._of(index)
        return found

    def _of(self, index: int) -> str:
        step = self.steps[index]
        column, test = step.column, step.test
        entry = self.steps.providers[column.provider_index]
        label = entry.label or entry.id
        return row_id(label, column.prompt.label, step.vars, test.description)
