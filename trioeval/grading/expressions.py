"""Arithmetic on metrics, as suites write it for derived metrics: `2 * p * r / (p + r)`.

A text is parsed once into a tree, which may be evaluated any number of times. There are only numbers, names
and calls of a few functions, all numbers are floats, and the depth of the tree is at most `DEEPEST`: no text
can run long or access anything. Operators, from loosest to tightest:

    a ? b : c        true for any number but 0; right-associative
    == != < <= > >=  give 1 or 0; a == b is also true if they differ by rounding alone
    + -              left-associative
    * / %            left-associative; a % b has the sign of b
    - +              before a value
    ^                power, right-associative

The tree is a function of the values of names. The parser is a recursive descent with one method per line of
that table.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeAlias

import attrs

LONGEST = 10_000
"""Most characters of an expression."""

DEEPEST = 100
"""Deepest nesting of brackets and operators."""

Names: TypeAlias = Mapping[str, float]
_Node: TypeAlias = Callable[[Names], float]


class ExpressionError(ValueError):
    """An expression is invalid, or has no value; the message is a clause about it."""


@attrs.frozen
class Expression:
    """A parsed expression.

    Example:
        >>> parse("2 * p * r / (p + r)").value({"p": 0.5, "r": 1})
        0.6666666666666666
    """

    text: str
    names: frozenset[str]
    """The names that it uses."""
    _root: _Node = attrs.field(repr=False, eq=False)

    def value(self, names: Names) -> float:
        """Return its value.

        Args:
            names: The values of names.

        Raises:
            ExpressionError: A name has no value, or the result is not finite.
        """
        try:
            found = self._root(names)
        except ZeroDivisionError:
            msg = "it divides by zero"
        except (OverflowError, ArithmeticError, ValueError) as error:
            if isinstance(error, ExpressionError):
                raise
            msg = "a function in it has no value there"
            if isinstance(error, OverflowError):
                msg = "a number in it is too large"
        else:
            if math.isfinite(found):
                return found
            msg = "a number in it is too large"
        raise ExpressionError(msg)


def parse(text: str) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: The text is not an expression.

    Example:
        >>> sorted(parse("__count > 0 ? hits / __count : 0").names)
        ['__count', 'hits']
    """
    if len(text) > LONGEST:
        msg = f"it is longer than {LONGEST} characters"
        raise ExpressionError(msg)
    reader = _ExpressionParser(_tokens(text))
    root = reader.choice()
    if reader.ahead:
        msg = f"{reader.ahead!r} is not expected there"
        raise ExpressionError(msg)
    return Expression(text, frozenset(reader.names), root)


def _round(value: float, digits: float = 0) -> float:
    """Round half away from zero, as taught at school and done by libraries for JavaScript."""
    exact = Decimal(repr(float(value)))
    # There is nothing to round beyond the 15th digit, and nothing left before it.
    places = min(max(int(digits), -400), 15)
    unit = Decimal(1).scaleb(-places)
    if exact.adjusted() + places > _PLACES:
        return float(value)
    return float(exact.quantize(unit, rounding=ROUND_HALF_UP))


_PLACES = 20  # beyond the digits of any float


def _log(value: float, base: float = math.e) -> float:
    return math.log(value) if base == math.e else math.log(value) / math.log(base)


def _mean(*values: float) -> float:
    return math.fsum(values) / len(values)


def _sum(*values: float) -> float:
    return math.fsum(values)


_ANY = 1_000

_FUNCTIONS: Mapping[str, tuple[Callable[..., float], int, int]] = {
    "abs": (abs, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "exp": (math.exp, 1, 1),
    "floor": (math.floor, 1, 1),
    "log": (_log, 1, 2),
    "log10": (math.log10, 1, 1),
    "log2": (math.log2, 1, 1),
    "max": (max, 1, _ANY),
    "mean": (_mean, 1, _ANY),
    "min": (min, 1, _ANY),
    "pow": (math.pow, 2, 2),
    "round": (_round, 1, 2),
    "sqrt": (math.sqrt, 1, 1),
    "sum": (_sum, 1, _ANY),
}
"""With the least and the most numbers that they take."""
"""With the least and the most arguments that they take."""
FUNCTIONS: Sequence[str] = tuple(_FUNCTIONS)
"""Their names."""


def _same(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-12)


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    "<=": lambda left, right: left < right or _same(left, right),
    ">=": lambda left, right: left > right or _same(left, right),
    "<": lambda left, right: left < right and not _same(left, right),
    ">": lambda left, right: left > right and not _same(left, right),
}
_SUMS: Mapping[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Mapping[str, Callable[[float, float], float]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}
_TOKEN = re.compile(
    r"\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([^\W\d]\w*)|([=!<>]=|[-+*/%^()?:,<>]))"
)


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            begin = text[at:].lstrip()[:1]
            msg = f"{begin!r} is not expected there"
            raise ExpressionError(msg)
        found.append(token[0].strip())
        at = token.end()
    return found


class _ExpressionParser:
    """A parser that reads tokens in order; `ahead` is the next one, empty at the end."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = iter(tokens)
        self.ahead = next(self._tokens, "")
        self.names: set[str] = set()
        self._depth = 0

    def choice(self) -> _Node:
        self._depth += 1
        if self._depth > DEEPEST:
            msg = f"it is nested more than {DEEPEST} times"
            raise ExpressionError(msg)
        condition = self._comparison()
        if self._take("?"):
            yes = self.choice()
            self._expect(":")
            no = self.choice()
            condition = _choice(condition, yes, no)
        self._depth -= 1
        return condition

    def _comparison(self) -> _Node:
        """Parse a chain of comparisons: `a < b < c` means "a < b and b < c"."""
        first = self._left(_SUMS, lambda: self._left(_PRODUCTS, self._signed))
        chain: list[tuple[Callable[[float, float], bool], _Node]] = []
        while (compare := _COMPARISONS.get(self.ahead)) is not None:
            self._next()
            chain.append((compare, self._left(_SUMS, lambda: self._left(_PRODUCTS, self._signed))))
        return _compared(first, chain) if chain else first

    def _left(
        self,
        operators: Mapping[str, Callable[[float, float], float]],
        part: Callable[[], _Node],
    ) -> _Node:
        """Parse left-associative operators."""
        first = part()
        others: list[tuple[Callable[[float, float], float], _Node]] = []
        while (apply := operators.get(self.ahead)) is not None:
            self._next()
            others.append((apply, part()))
        return _folded(first, others) if others else first

    def _signed(self) -> _Node:
        negative = False
        while self.ahead in {"-", "+"}:
            negative ^= self._next() == "-"
        value = self._power()
        return (lambda names: -value(names)) if negative else value

    def _power(self) -> _Node:
        base = self._atom()
        if not self._take("^"):
            return base
        self._depth += 1
        if self._depth > DEEPEST:
            msg = f"it is nested more than {DEEPEST} times"
            raise ExpressionError(msg)
        exponent = self._signed()
        self._depth -= 1
        return lambda names: math.pow(base(names), exponent(names))

    def _atom(self) -> _Node:
        taken = self._next()
        if taken == "(":
            inside = self.choice()
            self._expect(")")
            return inside
        if taken[:1].isdigit() or (taken[:1] == "." and taken[1:]):
            number = float(taken)
            return lambda _: number
        if not taken.isidentifier():
            msg = f"{taken!r} is not expected there" if taken else "it ends too early"
            raise ExpressionError(msg)
        if self._take("("):
            return self._call(taken)
        self.names.add(taken)
        return lambda names: _named(taken, names)

    def _call(self, name: str) -> _Node:
        if name not in _FUNCTIONS:
            msg = f"unknown function {name}; known functions are {', '.join(FUNCTIONS)}"
            raise ExpressionError(msg)
        function, least, most = _FUNCTIONS[name]
        arguments: list[_Node] = []
        if not self._take(")"):
            arguments.append(self.choice())
            while self._take(","):
                arguments.append(self.choice())
            self._expect(")")
        if not least <= len(arguments) <= most:
            count = len(arguments)
            msg = f"{name} does not take {count} argument{'s' * (count != 1)}"
            raise ExpressionError(msg)
        return lambda names: float(function(*[float(argument(names)) for argument in arguments]))

    def _next(self) -> str:
        taken, self.ahead = self.ahead, next(self._tokens, "")
        return taken

    def _take(self, mark: str) -> bool:
        found = self.ahead == mark
        if found:
            self._next()
        return found

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            there = repr(self.ahead) if self.ahead else "the end"
            msg = f"{mark!r} is missing before {there}"
            raise ExpressionError(msg)


def _named(name: str, names: Names) -> float:
    if name not in names:
        msg = f"unknown metric {name}"
        raise ExpressionError(msg)
    return float(names[name])


def _choice(condition: _Node, yes: _Node, no: _Node) -> _Node:
    return lambda names: yes(names) if condition(names) else no(names)


def _folded(first: _Node, others: Sequence[tuple[Callable[[float, float], float], _Node]]) -> _Node:
    def value(names: Names) -> float:
        found = first(names)
        for apply, other in others:
            found = apply(found, other(names))
        return found

    return value


def _compared(first: _Node, chain: Sequence[tuple[Callable[[float, float], bool], _Node]]) -> _Node:
    def value(names: Names) -> float:
        left, holds = first(names), True
        for compare, node in chain:
            right = node(names)
            holds = holds and compare(left, right)
            left = right
        return float(holds)

    return value
