"""Columns that follow from others: templates, which are rendered here, and Python, which runs elsewhere."""

import keyword
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs
import trio

from trioeval.errors import TemplateError
from trioeval.kernel import Calls
from trioeval.suite.column_expressions import compile_template
from trioeval.suite.column_models import ExpressionColumn
from trioeval.suite.templates.values import as_json
from trioeval.tasks.columns.making import CODE, LOCAL, CellError, GroupOrder, Made
from trioeval.tasks.columns.reading import TOO_DEEP, is_deep, read_text_as, read_value_as
from trioeval.tasks.columns.worker_calls import called
from trioeval.tasks.scripts import Scripts

_ROWS = 100  # rendered without a look at others
_ROWS_A_CALL = 1000
_COMPOUND = (dict, list)


@attrs.frozen
class TemplateMaker:
    """Makes the column of a template. Values of the row are data: what looks like a template is none."""

    column: ExpressionColumn
    filters: Mapping[str, Callable[..., Any]] = attrs.field(factory=dict)
    """The suite's own, by name."""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What `env` is in templates."""
    _render: Callable[[Mapping[str, Any]], str] = attrs.field(init=False, repr=False)

    @_render.default
    def _compiled(self) -> Callable[[Mapping[str, Any]], str]:
        return compile_template(self.column.template or "", self.filters, self.env)

    @property
    def lane(self) -> str:
        """It asks nobody."""
        return LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it asks nobody
        """The values of all rows. A checkpoint if they are many."""
        name, wanted, render = self.column.name, self.column.as_type, self._render
        made: list[tuple[int, Mapping[str, Any] | CellError]] = []
        for place, (row, values) in enumerate(zip(order.rows, order.values, strict=True), 1):
            try:
                for key, value in values.items():
                    if value.__class__ in _COMPOUND:
                        values = {**values, key: as_json(value)}  # noqa: PLW2901 - printed as JSON
                text = render(values)
                made.append((row, {name: text if wanted == "text" else read_text_as(text, wanted)}))
            except RecursionError:
                made.append((row, CellError(TOO_DEEP)))
            except (TemplateError, CellError) as error:
                made.append((row, CellError(str(error))))
            if not place % _ROWS:
                await trio.lowlevel.checkpoint()
        return made


@attrs.frozen
class PythonExpressionMaker:
    """Makes the column of a Python expression, for many rows at a time in another process."""

    column: ExpressionColumn
    scripts: Scripts

    @property
    def lane(self) -> str:
        """It runs code of the suite."""
        return CODE

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it asks nobody
        """The values of all rows. A checkpoint if there are any."""
        made: list[tuple[int, Mapping[str, Any] | CellError]] = []
        sent: list[tuple[int, Mapping[str, Any]]] = []
        for row, values in zip(order.rows, order.values, strict=True):
            # One of them must not be the end of a call for all others.
            if any(one.__class__ in _COMPOUND and is_deep(one) for one in values.values()):
                made.append((row, CellError(TOO_DEEP)))
            else:
                sent.append((row, values))
        for begin in range(0, len(sent), _ROWS_A_CALL):
            some = sent[begin : begin + _ROWS_A_CALL]
            told = await self._told([values for _, values in some])
            made += [(row, self._value(one)) for (row, _), one in zip(some, told, strict=True)]
        return sorted(made, key=itemgetter(0))

    async def _told(self, values: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        code = self.column.python or ""
        rows = [{name: value for name, value in row.items() if _is_name(name)} for row in values]
        return await called(lambda: self.scripts.python_rows(code, rows))

    def _value(self, told: Mapping[str, Any]) -> Mapping[str, Any] | CellError:
        if "error" in told:
            return CellError(str(told["error"]))
        try:
            return {self.column.name: read_value_as(told["value"], self.column.as_type)}
        except CellError as error:
            return error


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)
