"""Which HTTP statuses are a success: `validateStatus`, read once into the set of statuses it accepts.

A list with ranges (`200-299, 404`, `2xx`), or a comparison as programs write it (`status < 300`).
A comparison is read by Python's own parser and evaluated by a walk that knows comparisons and nothing else.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trioeval.providers.config import is_integer

STATUSES = range(100, 1000)
"""All that a status line can say."""

SUCCESS = frozenset(range(200, 300))

RIGHT = '"200-299, 404", a status, a list of statuses or a comparison such as "status < 500"'
"""What `validateStatus` must be."""

_LONGEST = 1000
"""Characters of a comparison; the parser's work grows with them."""

_RANGE = re.compile(r"([1-9]\d\d)(?:\s*-\s*([1-9]\d\d))?|([1-9])xx", re.IGNORECASE)
_FUNCTION = re.compile(r"\s*\(?\s*([A-Za-z_]\w*)?\s*\)?\s*=>")
_SPELLINGS = (("===", "=="), ("!==", "!="), ("&&", " and "), ("||", " or "))

Compare: TypeAlias = Callable[[Any, Any], bool]
_COMPARE: Mapping[type[ast.cmpop], Compare] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def read_statuses(value: Any) -> frozenset[int] | None:
    """The statuses that a `validateStatus` accepts; None if it is none.

    Example:
        >>> sorted(read_statuses("200-202, 404"))
        [200, 201, 202, 404]
        >>> 304 in read_statuses("(status) => status >= 200 && status < 400")
        True
    """
    if is_integer(value) or isinstance(value, str):
        text = str(value).strip()
        return _listed(text) or _compared(text)
    if isinstance(value, list | tuple) and value:
        parts = [read_statuses(part) for part in value]
        return frozenset().union(*(part or () for part in parts)) if all(parts) else None
    return None


def _listed(text: str) -> frozenset[int] | None:
    accepted: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            return None
        first, last, hundred = found.groups()
        if hundred:
            accepted.update(range(int(hundred) * 100, int(hundred) * 100 + 100))
        else:
            accepted.update(range(int(first), int(last or first) + 1))
    return frozenset(accepted)


def _compared(text: str) -> frozenset[int] | None:
    """The statuses for which a comparison holds; None if it is no comparison, or holds for none."""
    name = "status"
    if function := _FUNCTION.match(text):
        name, text = function[1] or name, text[function.end() :]
    for theirs, ours in _SPELLINGS:
        text = text.replace(theirs, ours)
    text = re.sub(r"!(?!=)", " not ", text)
    if len(text) > _LONGEST:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return frozenset(one for one in STATUSES if _holds(tree, name, one)) or None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _holds(node: ast.expr, name: str, status: int) -> bool:
    match node:
        case ast.BoolOp(ast.And(), parts):
            # All are looked at, also those that cannot matter: one that is wrong must be found.
            return all([_holds(part, name, status) for part in parts])  # noqa: C419
        case ast.BoolOp(_, parts):
            return any([_holds(part, name, status) for part in parts])  # noqa: C419
        case ast.UnaryOp(ast.Not(), part):
            return not _holds(part, name, status)
        case ast.Name("true" | "false" as value):
            return value == "true"
        case ast.Compare(left, operators, others):
            values = [_number(part, name, status) for part in (left, *others)]
            return all(
                _comparison(how)(one, other)
                for how, one, other in zip(operators, values, values[1:], strict=False)
            )
        case _:
            msg = "not a comparison"
            raise ValueError(msg)


def _comparison(how: ast.cmpop) -> Compare:
    if type(how) not in _COMPARE:
        msg = "not a comparison of numbers"
        raise ValueError(msg)
    return _COMPARE[type(how)]


def _number(node: ast.expr, name: str, status: int) -> int:
    match node:
        case ast.Name(id=written) if written == name:
            return status
        case ast.Constant(int() as value) if is_integer(value):
            return value
        case _:
            msg = "neither the status nor a whole number"
            raise ValueError(msg)
