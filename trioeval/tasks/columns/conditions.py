"""When a cell is left out, and when a row is dropped: the conditions of a column, compiled."""

from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.datasets.result import Cause
from trioeval.suite.column_expressions import Filters, compile_condition
from trioeval.suite.column_models import Column, ExpressionColumn, ValidationColumn
from trioeval.tasks.columns.dataset_spec import Condition


def skip_condition(
    column: Column, filters: Filters, env: Mapping[str, str] | None = None
) -> Condition | None:
    """Whether the cell of a row is left out, of what the row has; None if nothing says so.

    Args:
        column: Whose cells.
        filters: The suite's own, by name.
        env: What `env` is in expressions; None is empty.

    Returns:
        What raises `TemplateError` where it cannot be told.

    Raises:
        TemplateError: `skip.when` is no expression.

    Example:
        >>> from trioeval.suite.column_models import LlmColumn, Asking, Skip
        >>> asking = Asking(provider=0, prompt="Hint for {{ a }}?")
        >>> hint = LlmColumn(name="hint", asking=asking, skip=Skip(when="a.level < 3"))
        >>> skip = skip_condition(hint, {})
        >>> skip({"a": {"level": 2}}), skip({"a": {"level": 3}})
        (True, False)
    """
    when = column.skip.when
    return None if when is None else compile_condition(when, filters, env)


def drop_conditions(
    column: Column, filters: Filters, env: Mapping[str, str] | None = None
) -> Sequence[tuple[Cause, Condition]]:
    """Why a row may be dropped when its cell is made, each cause with when.

    Args:
        column: Whose cells.
        filters: The suite's own, by name.
        env: What `env` is in expressions; None is empty.

    Returns:
        Conditions over the row with the new values, which raise `TemplateError` where it cannot be told.

    Raises:
        TemplateError: `dropWhen` is no expression.
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
        # A validation that was skipped has found nothing.
        return isinstance(verdict, Mapping) and verdict.get("pass") is False

    return says
