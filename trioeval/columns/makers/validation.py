# Apart from `columns.open_makers`: one module a kind of column.
"""Columns that say what assertions find in another column: those that ask nobody."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from trioeval.columns.makers.base import LOCAL, CellError, GroupOrder, Made
from trioeval.columns.model import ValidationColumn
from trioeval.columns.reply_json import TOO_DEEP, member
from trioeval.errors import GradingError, TemplateError
from trioeval.grading import KINDS, Assertion, Kinds, Subject, Verdict
from trioeval.grading.algebra import Place, fold, leaves
from trioeval.grading.grade import (
    Render,
    find,
    grading_error,
    make_ready,
    ungraded,
    verdict_of,
    with_named_sets,
)
from trioeval.grading.kind import Asking, Comparing, SlowError
from trioeval.kernel import Calls
from trioeval.templates import is_template
from trioeval.templates.expressions import compile_template
from trioeval.templates.values import as_json

_ROWS = 100  # judged without a look at others


@attrs.frozen
class ValidationMaker:
    """Makes the column of a validation: `{"pass": …, "score": …, "reason": …}`."""

    column: ValidationColumn
    kinds: Kinds = KINDS
    """The assertion types that there are."""
    filters: Mapping[str, Callable[..., Any]] = attrs.field(factory=dict)
    """The suite's own, by name."""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """What `env` is in the texts of assertions."""
    _templates: dict[str, Callable[[Mapping[str, Any]], str]] = attrs.field(
        init=False, factory=dict, repr=False
    )

    lane = LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it asks nobody
        """The verdicts on all rows. A checkpoint if they are many, or one takes long."""
        name = self.column.name
        made: list[tuple[int, Mapping[str, Any] | CellError]] = []
        for place, (row, values) in enumerate(zip(order.rows, order.values, strict=True), 1):
            try:
                verdict = await self._verdict(values)
            except RecursionError:
                made.append((row, CellError(TOO_DEEP)))
            except (GradingError, TemplateError, LookupError) as error:
                made.append((row, CellError(str(error))))
            else:
                found = {"pass": verdict.passed, "score": verdict.score, "reason": verdict.reason}
                made.append((row, {name: found}))
            if not place % _ROWS:
                await trio.lowlevel.checkpoint()
        return made

    async def _verdict(self, values: Mapping[str, Any]) -> Verdict:
        subject = Subject.of(member(values, self.column.target), vars=values)
        render = partial(self._render, values)
        assertions = with_named_sets(self.column.assertions, render)
        verdicts: dict[Place, Verdict] = {}
        for place, assertion in leaves(assertions):
            try:
                verdicts[place] = await self._judged(assertion, subject, render)
            except (GradingError, TemplateError) as error:
                if assertion.weight and assertions[place[0]].weight:
                    raise grading_error(assertion, place, error) from error
                verdicts[place] = ungraded(assertion, error)
        return fold(assertions, verdicts)

    async def _judged(self, assertion: Assertion, subject: Subject, render: Render) -> Verdict:
        """The verdict of one assertion. A checkpoint only if that takes long."""
        ready = make_ready(assertion, render, self.kinds)
        judge = ready.kind.judge
        if isinstance(judge, Asking | Comparing):
            raise GradingError("it asks others, or compares rows, which a validation does not")
        try:
            return verdict_of(ready, find(ready, judge, subject, patient=False))
        except SlowError:
            # Left alone when cancelled: what it may cost is bounded, and others need not wait for it.
            finding = await trio.to_thread.run_sync(
                find, ready, judge, subject, abandon_on_cancel=True
            )
        return verdict_of(ready, finding)

    def _render(self, values: Mapping[str, Any], text: str) -> str:
        if not is_template(text):
            return text
        template = self._templates.get(text)
        if template is None:
            template = self._templates[text] = compile_template(text, self.filters, self.env)
        return template({name: as_json(value) for name, value in values.items()})
