# Separate from `templates.sandbox`: the cost of a template is decided before it is rendered.
"""Costs of filters, tests and operators: each counts its arguments before it runs, and its result afterwards.

Nearly all read the whole of their arguments; the tables list those that do not, and those that make more than
one pass over them. The characters of a text that a slow filter creates count once more.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jinja2
from jinja2.runtime import Context

from trioeval.templates.limits import Meter
from trioeval.templates.rewrite import CONDITION, PAIRS, ROUNDS, STEPS
from trioeval.templates.values import is_nothing

_Arguments: TypeAlias = tuple[Any, ...]
_Cost: TypeAlias = Callable[[Meter, _Arguments], None]

_FREE = frozenset(
    {
        *("default", "d", "first", "last", "length"),
        *("callable", "defined", "escaped", "falsy", "iterable", "mapping", "none", "null"),
        *("number", "truthy", "undefined", CONDITION),
    }
)
"""Functions that read only the type or the length of a value."""
_PER_CHARACTER = {
    "int": 1,
    "title": 2,
    "urlize": 1,
    "load": 8,
    "striptags": 8,
    "urlencode": 8,
    "wordcount": 8,
}
"""Characters per step of filters that are slower than a copy."""


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | Mapping) else 0


def _all(meter: Meter, arguments: _Arguments) -> None:
    meter.walk(*arguments)


def _members(meter: Meter, arguments: _Arguments) -> None:
    """Count one access to each member, or as many as a path has parts."""
    parts = 1 + sum(path.count(".") for path in arguments[1:] if isinstance(path, str))
    meter.walk(*arguments[1:])
    meter.take(_length(arguments[0]) * parts)


def _grouped(meter: Meter, arguments: _Arguments) -> None:
    meter.walk(arguments[0])
    _members(meter, arguments)


def _sorted(meter: Meter, arguments: _Arguments) -> None:
    _grouped(meter, arguments)
    count = _length(arguments[0])
    meter.take(count * count.bit_length())


def _tested(meter: Meter, arguments: _Arguments) -> None:
    """Count a comparison of each member with the same argument."""
    meter.walk(arguments[0])
    meter.take(_length(arguments[0]) * (1 + meter.walk(*arguments[1:])))


def _slow(characters: int) -> _Cost:
    def cost(meter: Meter, arguments: _Arguments) -> None:
        meter.walk(*arguments)
        if isinstance(arguments[0], str):
            meter.take(len(arguments[0]) // characters)

    return cost


def _compared(meter: Meter, arguments: _Arguments) -> None:
    left, right = arguments
    if left is not right and not (is_nothing(left) or is_nothing(right)):
        meter.walk(left, right)


def _looked_into(meter: Meter, arguments: _Arguments) -> None:
    member, holder = arguments
    if isinstance(holder, list | tuple):
        # A text is read again for each member; lists are compared by identity.
        again = meter.walk(member) if isinstance(member, str) else 0
        meter.take(len(holder) * (1 + again))
    elif isinstance(holder, str):
        meter.walk(member, holder)
    else:
        meter.walk(member)


_COSTS: Mapping[str, _Cost] = {
    **dict.fromkeys(
        ("batch", "items", "list", "map", "rejectattr", "reverse", "selectattr", "slice", "sum"),
        _members,
    ),
    **dict.fromkeys(("dictsort", "sort"), _sorted),
    **dict.fromkeys(("reject", "select"), _tested),
    **{name: _slow(characters) for name, characters in _PER_CHARACTER.items()},
    **dict.fromkeys((" ==", " !="), _compared),
    **dict.fromkeys((" in", " not in"), _looked_into),
    "groupby": _grouped,
}
_COUNTING = {PAIRS, ROUNDS, STEPS}
"""Functions that count their steps themselves."""
_ROWS = {"batch", "slice"}
"""Filters that return lists of lists."""


def metered(
    meter: Meter, functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Wrap filters or tests so that they count steps."""
    return {
        name: function if name in _FREE else _metered(meter, name, function)
        for name, function in functions.items()
    }


def _metered(meter: Meter, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function; the context argument prevents evaluation at compile time, where nothing is counted."""
    if name in _COUNTING:
        return jinja2.pass_context(lambda _context, *arguments: function(*arguments))
    cost = _COSTS.get(name, _all)
    has_rows = name in _ROWS

    @jinja2.pass_context
    @functools.wraps(function)
    def run(_context: Context, *args: Any, **kwargs: Any) -> Any:
        cost(meter, (*args, *kwargs.values()))
        made = function(*args, **kwargs)
        if isinstance(made, str):
            meter.take_text(len(made))
        elif isinstance(made, list | Mapping):
            meter.take(len(made) + (sum(map(len, made)) if has_rows else 0))
        return made

    return run
