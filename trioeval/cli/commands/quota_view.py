"""What people and programs see of shared limits. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from trioeval.errors import UsageError
from trioeval.limits.json import limit_data
from trioeval.limits.model import Limit, LimitState

if TYPE_CHECKING:
    from rich.table import Table

_WIDEST = 80  # characters of a key


def chosen(states: Sequence[LimitState], keys: Sequence[str]) -> list[LimitState]:
    """The limits with these keys, in the order of the keys; all of them if there are no keys.

    Raises:
        UsageError: There is no such limit.
    """
    if not keys:
        return list(states)
    by_key = {state.limit.key: state for state in states}
    unknown = [key for key in keys if key not in by_key]
    if unknown:
        known = ", ".join(by_key) or "none"
        raise UsageError(f"there is no limit {', '.join(unknown)}; known are {known}")
    return [by_key[key] for key in keys]


def limits_table(states: Iterable[LimitState]) -> "Table":
    """Limits and how they stand."""
    from rich.table import Table  # noqa: PLC0415 - only for who draws
    from rich.text import Text  # noqa: PLC0415

    table = Table("limit", "kind")
    for name in ("capacity", "span", "in use", "free"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for state in states:
        limit = state.limit
        table.add_row(
            Text(_plain(limit.key)),
            limit.kind,
            Text(f"{limit.capacity:,} {_plain(limit.unit)}".rstrip()),
            _span(limit),
            f"{in_use(state):,}",
            f"{max(0, limit.capacity - in_use(state)):,}",
            standing(state),
        )
    return table


def limit_line(state: LimitState) -> str:
    """A limit and how it stands, in one line.

    Example:
        >>> limit_line(
        ...     LimitState(limit=Limit(key="llm:rpm", kind="rolling", capacity=60, window=60))
        ... )
        'llm:rpm: 0 of 60 in use (rolling, 60 s), active'
    """
    limit = state.limit
    what = ", ".join(part for part in (limit.kind, _span(limit)) if part)
    of = f"{in_use(state):,} of {limit.capacity:,} {_plain(limit.unit)}".rstrip()
    return f"{_plain(limit.key)}: {of} in use ({what}), {standing(state)}"


def limit_record(state: LimitState) -> dict[str, Any]:
    """A limit and how it stands, for programs."""
    return {
        **limit_data(state.limit),
        "status": state.status,
        "pendingCapacity": state.pending_capacity,
        "used": state.used,
        "outstanding": state.outstanding,
        "debt": state.debt,
        "pausedSeconds": state.paused_for,
    }


def in_use(state: LimitState) -> int:
    """What of a limit is not free."""
    return state.used + state.outstanding


def standing(state: LimitState) -> str:
    """How a limit stands, in words.

    Example:
        >>> limit = Limit(key="llm:rpm", kind="rolling", capacity=60, window=60)
        >>> standing(LimitState(limit=limit, paused_until=1042.5, paused_for=117.25))
        'paused for 118 s'
    """
    words = [
        "active" if state.pending_capacity is None else f"decreasing to {state.pending_capacity:,}"
    ]
    if state.paused_until is not None:
        left = "" if state.paused_for is None else f" for {math.ceil(state.paused_for):,} s"
        words = [f"paused{left}", *words[state.pending_capacity is None :]]
    if state.debt:
        words.append(f"debt {state.debt:,}")
    return ", ".join(words)


def _span(limit: Limit) -> str:
    return "" if limit.span is None else f"{limit.span:g} s"


# The reports have one as well, but importing them takes longer than the whole command.
def _plain(text: str) -> str:
    """A text of others that does nothing to a terminal."""
    return "".join(one if one.isprintable() else "�" for one in text[:_WIDEST])
