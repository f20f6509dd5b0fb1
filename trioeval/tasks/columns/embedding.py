"""Cells that hold the vector of a text.

Equal texts have equal vectors: rows share what the cache has, and a call that is under way.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import TemplateError
from trioeval.grading.text import quote
from trioeval.kernel import Calls
from trioeval.suite.column_models import EmbeddingColumn
from trioeval.tasks.columns.conversations import Cells
from trioeval.tasks.columns.making import CellError, CellOrder
from trioeval.tasks.grader_replies import read_vector


@attrs.frozen(eq=False)
class EmbeddingMaker:
    """Makes the cells of one column; see `CellMaker`."""

    column: EmbeddingColumn
    number: int
    """The place of the column among the columns, ≥ 0."""
    cells: Cells

    @property
    def lane(self) -> str:
        """Where its calls are made."""
        return self.cells.asker.lanes[self.column.provider]

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:
        """The vector of one cell.

        Raises:
            CallError: The call failed.
            CellError: The text cannot be filled in, or is empty; or there is no vector.
        """
        column, asker = self.column, self.cells.asker
        try:
            text = self.cells.fill(order)(column.text)
        except TemplateError as error:
            raise CellError(f"the text cannot be filled in: {error}") from error
        if not text.strip():
            msg = "the text is empty, and has no vector"
            raise CellError(msg)
        request = self.cells.request(order, self.number, text, options=column.config)
        inquiry = asker.inquiry(order.row, "cell", column.provider, request, column.name)
        paid = await asker.ask(inquiry, calls, order.tally)
        vector = read_vector(paid.reply.output)
        if vector is None:
            asker.reject(inquiry)
            got = quote(paid.reply.output)
            name = asker.names[column.provider]
            msg = f"{name} gave no vector, which is a list of numbers, but {got}"
            raise CellError(msg)
        return {column.name: list(vector)}
