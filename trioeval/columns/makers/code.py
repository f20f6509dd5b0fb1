"""The makers of templates, validations, Python expressions and functions; conditions on rows."""

import keyword
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from trioeval.columns.lanes import CODE, LOCAL
from trioeval.columns.makers.base import CellError, CellOrder, GroupOrder, Made
from trioeval.columns.model import Column, ExpressionColumn, PythonColumn, ValidationColumn
from trioeval.columns.reply_json import TOO_DEEP, is_deep, member, read_text_as, read_value_as
from trioeval.columns.result import Cause
from trioeval.columns.spec import Condition
from trioeval.documents.files import FILE
from trioeval.documents.mistakes import kind, nearest
from trioeval.errors import DatasetError, GradingError, ProviderError, ScriptError, TemplateError
from trioeval.evaluation.scripts import Scripts
from trioeval.grading import KINDS, Assertion, Kinds, Subject, Verdict, quote
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
from trioeval.grading.kind import ComparisonJudge, ExternalJudge, SlowError
from trioeval.kernel import Calls
from trioeval.providers.programs.workers import KeptStateError
from trioeval.templates import is_template
from trioeval.templates.expressions import Filters, compile_condition, compile_template
from trioeval.templates.values import as_json
from trioeval.text import counted

# The conditions of a column, compiled: when a cell is skipped, and when a row is dropped.


def skip_condition(
    column: Column, filters: Filters, env: Mapping[str, str] | None = None
) -> Condition | None:
    """Return the compiled `skip.when`; None if the column has none.

    Raises:
        TemplateError: It is not a valid expression.
    """
    when = column.skip.when
    return None if when is None else compile_condition(when, filters, env)


def drop_conditions(
    column: Column, filters: Filters, env: Mapping[str, str] | None = None
) -> Sequence[tuple[Cause, Condition]]:
    """Return the conditions under which a row is dropped when its cell is made, each with its cause.

    Args:
        column: The column of the cells.
        filters: The suite's own filters, by name.
        env: The value of `env` in expressions; None is empty.

    Returns:
        Conditions over the row with the new values, which raise `TemplateError` if they cannot be evaluated.

    Raises:
        TemplateError: `dropWhen` is not a valid expression.
    """
    found: list[tuple[Cause, Condition]] = []
    if column.drop_when is not None:
        cause: Cause = "expression" if isinstance(column, ExpressionColumn) else "filtered"
        found.append((cause, compile_condition(column.drop_when, filters, env)))
    if isinstance(column, ValidationColumn) and column.drop:
        found.append(("validation", _did_not_pass(column.name)))
    return found


def _did_not_pass(name: str) -> Condition:
    def says(row: Mapping[str, Any]) -> bool:
        verdict = row[name]
        # A skipped validation has no verdict.
        return isinstance(verdict, Mapping) and verdict.get("pass") is False

    return says


# Calls of the suite's own code for columns, which are repeated once if only their process failed.


T = TypeVar("T")

_OF_THE_PROCESS = frozenset({"worker_crashed", "server"})
"""The error kinds of a call whose process ended, or could not be started."""

_WITHOUT_STATE = (
    "its process was replaced, or the run was resumed, and its state is lost. Compute the state from the "
    "number of the first row, or start another run with another folder (outputDir)"
)


async def call_with_retry(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call. Always a checkpoint.

    If its process ends without an answer, or cannot be started, another attempt may succeed: the call is
    repeated once.

    Args:
        call: Makes the call; raises `ScriptError`.

    Raises:
        CellError: The call failed, timed out, or its process failed twice.
        DatasetError: It continues calls of a process that was replaced, and the function has state.
    """
    try:
        try:
            return await call()
        except ScriptError as error:
            if not _is_of_the_process(error):
                raise
        return await call()
    except ScriptError as error:
        if isinstance(error.__cause__, KeptStateError):
            raise DatasetError(f"{error.message}; {_WITHOUT_STATE}") from error
        raise CellError(error.message) from error


def function_of(target: str) -> tuple[Path, str]:
    """Return the file and the function that `file://<file>:<function>` names.

    Example:
        >>> function_of("file:///w/gen.py:make")
        (PosixPath('/w/gen.py'), 'make')
    """
    file, _, function = target.removeprefix(FILE).rpartition(":")
    return Path(file), function


def _is_of_the_process(error: ScriptError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ProviderError) and cause.kind in _OF_THE_PROCESS


# Columns computed from others: templates, which are rendered here, and Python, which runs in other processes.


_ROWS = 100  # made between two checkpoints
_ROWS_A_CALL = 1000
_COMPOUND = (dict, list)


async def _row_by_row(
    order: GroupOrder, name: str, make: Callable[[Mapping[str, Any]], Awaitable[Any]]
) -> Made:
    """Return the values or errors of one column. A checkpoint if they are many, or if `make` is one."""
    made: list[tuple[int, Mapping[str, Any] | CellError]] = []
    for place, (row, values) in enumerate(zip(order.rows, order.values, strict=True), 1):
        try:
            made.append((row, {name: await make(values)}))
        except RecursionError:
            made.append((row, CellError(TOO_DEEP)))
        except (CellError, GradingError, TemplateError, LookupError) as error:
            made.append((row, CellError(str(error))))
        if not place % _ROWS:
            await trio.lowlevel.checkpoint()
    return made


@attrs.frozen
class TemplateMaker:
    """Makes the column of a template. Values of the row are data: templates in them are not rendered."""

    column: ExpressionColumn
    filters: Filters = attrs.field(factory=dict)
    """The suite's own filters, by name."""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The value of `env` in templates."""
    _render: Callable[[Mapping[str, Any]], str] = attrs.field(init=False, repr=False)

    @_render.default
    def _compiled(self) -> Callable[[Mapping[str, Any]], str]:
        return compile_template(self.column.template or "", self.filters, self.env)

    lane = LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it makes no calls
        """Return the values of all rows. A checkpoint if they are many."""
        return await _row_by_row(order, self.column.name, self._value)

    async def _value(self, values: Mapping[str, Any]) -> Any:  # noqa: ASYNC124 - `_row_by_row` requires it
        for key, value in values.items():
            if value.__class__ in _COMPOUND:
                values = {**values, key: as_json(value)}  # printed as JSON
        text = self._render(values)
        as_type = self.column.as_type
        return text if as_type == "text" else read_text_as(text, as_type)


@attrs.frozen
class PythonExpressionMaker:
    """Makes the column of a Python expression, for many rows at a time in another process."""

    column: ExpressionColumn
    scripts: Scripts

    lane = CODE

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it makes no calls
        """Return the values of all rows. A checkpoint if there are any."""
        made: list[tuple[int, Mapping[str, Any] | CellError]] = []
        sent: list[tuple[int, Mapping[str, Any]]] = []
        for row, values in zip(order.rows, order.values, strict=True):
            # One such value must not fail the call for all others.
            if any(one.__class__ in _COMPOUND and is_deep(one) for one in values.values()):
                made.append((row, CellError(TOO_DEEP)))
            else:
                sent.append((row, values))
        for begin in range(0, len(sent), _ROWS_A_CALL):
            some = sent[begin : begin + _ROWS_A_CALL]
            results = await self._run_rows([values for _, values in some])
            made += [(row, self._value(one)) for (row, _), one in zip(some, results, strict=True)]
        return sorted(made, key=itemgetter(0))

    async def _run_rows(self, values: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        code = self.column.python or ""
        rows = [{name: value for name, value in row.items() if _is_name(name)} for row in values]
        return await call_with_retry(lambda: self.scripts.python_rows(code, rows))

    def _value(self, results: Mapping[str, Any]) -> Mapping[str, Any] | CellError:
        if "error" in results:
            return CellError(str(results["error"]))
        try:
            return {self.column.name: read_value_as(results["value"], self.column.as_type)}
        except CellError as error:
            return error


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


@attrs.frozen
class PythonCellMaker:
    """Makes the columns of a function that gets one row at a time: `make(row)`."""

    column: PythonColumn
    scripts: Scripts

    lane = CODE

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:  # noqa: ARG002 - it makes no calls
        """Return the results of the function for a row. Always a checkpoint."""
        value = await _result(self.column, self.scripts, [dict(order.values)])
        return values_of(self.column, value)


@attrs.frozen
class PythonGroupMaker:
    """Makes the columns of a function that gets a group: `make(rows, numbers)`, or `make(start, count)`."""

    column: PythonColumn
    scripts: Scripts

    lane = CODE

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it makes no calls
        """Return the results of the function for a group. Always a checkpoint."""
        column = self.column
        if column.scope == "scratch":
            arguments: list[Any] = [order.start, len(order.rows)]
        else:
            arguments = [list(map(dict, order.values)), list(order.rows)]
        continues = column.ordered and order.follows
        result = await _result(column, self.scripts, arguments, continues=continues)
        if not isinstance(result, list):
            raise CellError(
                f"{_name(column)} must return a list with one member per row, got {kind(result)}"
            )
        if len(result) != len(order.rows):
            raise CellError(
                f"{_name(column)} must return one member for each of {counted(len(order.rows), 'row')},"
                f" got {len(result)}"
            )
        return [
            (row, values_of(column, value, row))
            for row, value in zip(order.rows, result, strict=True)
        ]


def values_of(column: PythonColumn, value: Any, row: int | None = None) -> Mapping[str, Any]:
    """Return the values of the columns from the result of a function for one row. Pure.

    A column with one output and no side effects takes the whole result; others need an object with a member
    for each output. A missing side effect is None.

    Raises:
        CellError: It is not such an object.

    Example:
        >>> pair = PythonColumn(name="x", outputs=("x", "y"), extras=("z",), target="file://g.py:f")
        >>> values_of(pair, {"x": 1, "y": 2})
        {'x': 1, 'y': 2, 'z': None}
    """
    outputs = column.outputs
    if len(outputs) == 1 and not column.extras:
        return {outputs[0]: value}
    where = "" if row is None else f" for row {row}"
    if not isinstance(value, dict):
        names = ", ".join(map(quote, outputs))
        raise CellError(
            f"{_name(column)} must return an object with {names}{where}, got {kind(value)}"
        )
    if missing := [name for name in outputs if name not in value]:
        raise CellError(
            f"{_name(column)} did not return {', '.join(map(quote, missing))}{where}; "
            f"it returned {', '.join(map(quote, value)) or 'nothing'}"
        )
    known = (*outputs, *column.extras)
    if foreign := [name for name in value if name not in known]:
        raise CellError(
            f"{_name(column)} returned {', '.join(map(quote, foreign))}{where}, which are not its columns; "
            f"{nearest(foreign[0], known)}"
        )
    return {name: value.get(name) for name in known}


async def _result(
    column: PythonColumn, scripts: Scripts, arguments: Sequence[Any], *, continues: bool = False
) -> Any:
    file, function = function_of(column.target)
    # The calls of an ordered function are made one after another, in one process.
    workers = 1 if column.ordered else scripts.workers_of(column.workers)
    return await call_with_retry(
        lambda: scripts.call(
            file, function, arguments, column.timeout_s, workers=workers, continues=continues
        )
    )


def _name(column: PythonColumn) -> str:
    file, function = function_of(column.target)
    return f"{file.name}:{function}"


# Columns of validations: the results of assertions on another column, without calls.


@attrs.frozen
class ValidationMaker:
    """Makes the column of a validation: `{"pass": …, "score": …, "reason": …}`."""

    column: ValidationColumn
    kinds: Kinds = KINDS
    """The assertion types."""
    filters: Filters = attrs.field(factory=dict)
    """The suite's own filters, by name."""
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The value of `env` in the texts of assertions."""
    _templates: dict[str, Callable[[Mapping[str, Any]], str]] = attrs.field(
        init=False, factory=dict, repr=False
    )

    lane = LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it makes no calls
        """Return the verdicts on all rows. A checkpoint if they are many, or one is slow."""
        return await _row_by_row(order, self.column.name, self._verdict)

    async def _verdict(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
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
        verdict = fold(assertions, verdicts)
        return {"pass": verdict.passed, "score": verdict.score, "reason": verdict.reason}

    async def _judged(self, assertion: Assertion, subject: Subject, render: Render) -> Verdict:
        """Return the verdict of one assertion. A checkpoint only if it is slow."""
        ready = make_ready(assertion, render, self.kinds)
        judge = ready.kind.judge
        if isinstance(judge, ExternalJudge | ComparisonJudge):
            raise GradingError("a validation cannot make calls or compare rows")
        try:
            return verdict_of(ready, find(ready, judge, subject, patient=False))
        except SlowError:
            # Abandoned when cancelled: its cost is bounded, and others need not wait for it.
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
