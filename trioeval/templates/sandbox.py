"""The jinja2 environment with the behaviour of nunjucks and without access to Python objects.

Data has members and no methods: a template can call only macros, the global functions and what these return.
So Python attributes cannot be reached from any variable.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any

import attrs
import jinja2
from jinja2 import nodes
from jinja2.lexer import Lexer
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trioeval.templates.checks import CHECKS
from trioeval.templates.costs import metered
from trioeval.templates.faults import RenderError
from trioeval.templates.grammar import NunjucksLexer, parse
from trioeval.templates.limits import Meter, check_size
from trioeval.templates.list_filters import LIST_FILTERS
from trioeval.templates.rewrite import (
    COMPARED,
    CONCAT,
    CONDITION,
    LENGTH_HINT,
    METHODS,
    PAIRS,
    ROUNDS,
    STEPS,
    rewritten,
)
from trioeval.templates.text_filters import TEXT_FILTERS
from trioeval.templates.undefined import Lenient, Strict
from trioeval.templates.values import (
    OBJECT,
    OPERATORS,
    NunjucksOnlyError,
    UndefinedValue,
    calculated,
    condition,
    contains,
    is_nothing,
    less,
    number_of,
    plus,
    printed,
    same,
    text_of,
)
from trioeval.text import quote

# The global functions of nunjucks: `range`, `cycler` and `joiner`.


def make_range(meter: Meter) -> Callable[..., list[float]]:
    """Return `range`, whose members count as steps of a meter."""

    def range_(start: Any, stop: Any = None, step: Any = None) -> list[float]:
        if is_nothing(stop):
            start, stop = 0, start
        begin, end, by = number_of(start), number_of(stop), number_of(step) or 1
        if not all(map(math.isfinite, (begin, end, by))):
            msg = "`range` needs numbers"
            raise RenderError(msg)
        count = max(0, math.ceil((end - begin) / by))
        meter.take(count)
        return [begin + place * by for place in range(count)]

    return range_


@attrs.define(eq=False, repr=False)
class Cycler:
    """Returns its members in turn."""

    items: tuple[Any, ...]
    current: Any = None
    _next: int = 0

    def next(self) -> Any:
        """Return the next member; after the last one, the first."""
        if not self.items:
            return None
        self.current = self.items[self._next % len(self.items)]
        self._next += 1
        return self.current

    def reset(self) -> None:
        """Start over."""
        self._next, self.current = 0, None


def cycler(*items: Any) -> Cycler:
    """Return a cycler over the arguments."""
    return Cycler(items)


def joiner(separator: Any = None) -> Callable[[], Any]:
    """Return a function that returns an empty text at first, and then the separator."""
    between = "," if is_nothing(separator) or separator == "" else separator
    calls = 0

    def join() -> Any:
        nonlocal calls
        calls += 1
        return between if calls > 1 else ""

    return join


_ACCEPT_UNDEFINED = {
    "default",
    "d",
    CONDITION,
    *(COMPARED[name] for name in ("eq", "ne", "in", "notin")),
}
"""Filters that accept an undefined value even if using one is an error."""
_ACCEPT_UNDEFINED_ALWAYS = {"default", "d"}
"""Those that accept one even if it is an error in conditions as well."""
_TESTS_OF_UNDEFINED = {
    "defined",
    "undefined",
    "mapping",
    "string",
    "number",
    "iterable",
    "truthy",
    "falsy",
}


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one run."""

    intercepted_binops = frozenset({"+", *OPERATORS})
    intercepted_unops = frozenset({"+", "-"})

    def __init__(
        self,
        env: Mapping[str, str],
        filters: Mapping[str, Callable[..., Any]],
        meter: Meter,
        *,
        strict: bool,
        in_conditions: bool = False,
    ) -> None:
        """Create an environment.

        Args:
            env: The value of `env`.
            filters: By name; they extend or replace those of nunjucks.
            meter: The steps of renderings.
            strict: Using an undefined value is an error.
            in_conditions: If `strict`, that includes conditions and comparisons.
        """
        super().__init__(
            undefined=Strict if strict else Lenient,
            keep_trailing_newline=True,
            autoescape=False,
            finalize=self._shown,
        )
        self.meter = meter
        self.concat = self.meter.joined  # type: ignore[method-assign]
        self._lexer = NunjucksLexer(self)
        self._env = MappingProxyType(dict(env))
        known: Mapping[str, Callable[..., Any]] = {
            **TEXT_FILTERS,
            **LIST_FILTERS,
            **filters,
            **_internal(self.meter),
        }
        checks = CHECKS
        if strict:
            known = _all_guarded(
                known, _ACCEPT_UNDEFINED_ALWAYS if in_conditions else _ACCEPT_UNDEFINED
            )
            checks = _all_guarded(CHECKS, _TESTS_OF_UNDEFINED)
        self.filters: dict[str, Callable[..., Any]] = metered(self.meter, known)
        self.tests = dict(metered(self.meter, checks))
        self.globals = {
            "range": make_range(self.meter),
            "cycler": cycler,
            "joiner": joiner,
            "env": self._env,
        }

    @property
    def lexer(self) -> Lexer:
        """The lexer of this environment; jinja2 would share one between environments."""
        return self._lexer

    def tree(self, text: str) -> nodes.Template:
        """Return the syntax tree of a text, with the semantics of nunjucks.

        Raises:
            TemplateSyntaxError: It is not a template.
            NunjucksOnlyError: It uses a feature that is not supported.
        """
        tree = rewritten(*parse(self, text))
        tree.set_environment(self)  # of the nodes that were inserted
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a member, or an undefined value."""
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return a member, or an undefined value.

        Raises:
            NunjucksOnlyError: It is a property or a method of JavaScript values.
        """
        if isinstance(obj, Mapping) or obj.__class__ is Context:
            key = argument if isinstance(argument, str) else self._text_of(argument)
            if key in obj:
                return obj[key]
            return (
                Lenient(name=f"env.{key}")
                if obj is self._env
                else self.undefined(obj=obj, name=key)
            )
        if isinstance(obj, UndefinedValue):
            return obj
        if isinstance(obj, str | list | tuple):
            place = (
                int(argument) if isinstance(argument, str) and argument.isdecimal() else argument
            )
            if isinstance(place, float) and place.is_integer():
                place = int(place)
            if isinstance(place, int) and 0 <= place < len(obj):
                return obj[place]
            if argument == "length":
                raise NunjucksOnlyError("`.length`", LENGTH_HINT)
        elif obj is not None and not isinstance(obj, int | float):
            return self._attribute(obj, argument)
        if isinstance(argument, str) and argument in METHODS and obj is not None:
            raise NunjucksOnlyError(f"`.{argument}`", METHODS[argument])
        return self.undefined(obj=obj, name=argument)

    def _text_of(self, value: Any) -> str:
        self.meter.walk(value)
        return text_of(value)

    def _attribute(self, obj: Any, name: Any) -> Any:
        if isinstance(obj, LoopContext | Cycler) and isinstance(name, str):
            return super().getattr(obj, name)
        return self.undefined(obj=obj, name=name)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a macro or a global function."""
        if not callable(obj):
            msg = f"{quote(obj)} is not a function and cannot be called"
            raise RenderError(msg)
        self.meter.enter()
        made = super().call(context, obj, *args, **kwargs)
        self.meter.leave()  # not in a `finally`: an exception ends the rendering
        return made

    def call_binop(
        self,
        context: Context,  # noqa: ARG002
        operator: str,
        left: Any,
        right: Any,
    ) -> Any:
        """Return the result of an operator."""
        if operator == "+":
            made = plus(left, right)
            if isinstance(made, str):
                self.meter.take_text(len(made))
            return made
        return calculated(operator, OPERATORS[operator], left, right)

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:  # noqa: ARG002
        """Return a number with a sign."""
        sign = -1 if operator == "-" else 1
        return calculated("*", OPERATORS["*"], sign, arg)

    @jinja2.pass_context
    def _shown(self, _context: Context, value: Any) -> Any:
        kind = value.__class__
        if kind is str:
            return value
        if kind is LoopContext or kind is Cycler:
            return OBJECT
        if isinstance(value, list | tuple):
            self.meter.walk(value)
        return printed(value)


def _internal(meter: Meter) -> Mapping[str, Callable[..., Any]]:
    """Return the functions that the rewritten tree calls; see `rewrite`."""
    return {
        CONDITION: condition,
        CONCAT: _concat,
        ROUNDS: functools.partial(_rounds, meter),
        PAIRS: functools.partial(_pairs, meter),
        STEPS: meter.take,
        COMPARED["eq"]: same,
        COMPARED["ne"]: lambda left, right: not same(left, right),
        COMPARED["lt"]: less,
        COMPARED["lteq"]: _at_most,
        COMPARED["gt"]: lambda left, right: less(right, left),
        COMPARED["gteq"]: lambda left, right: _at_most(right, left),
        COMPARED["in"]: lambda member, holder: contains(holder, member),
        COMPARED["notin"]: lambda member, holder: not contains(holder, member),
    }


def _at_most(left: Any, right: Any) -> bool:
    return less(left, right) or (not less(right, left) and bool(left == right))


def _concat(*parts: Any) -> str:
    texts = [text_of(part) for part in parts]
    check_size(sum(map(len, texts)))
    return "".join(texts)


def _rounds(meter: Meter, value: Any, steps: int) -> Iterable[Any]:
    """Return the iterable of a loop: members of a list, characters of a text; empty for anything else."""
    if isinstance(value, list | tuple | str):
        meter.take(len(value) * steps)
        return value
    return ()


def _pairs(meter: Meter, value: Any, steps: int) -> Iterable[Any]:
    if isinstance(value, Mapping):
        hint = "write `| items` after the object"
        raise NunjucksOnlyError("`for` over the pairs of an object", hint)
    return _rounds(meter, value, steps)


def _all_guarded(
    functions: Mapping[str, Callable[..., Any]], accepting: AbstractSet[str]
) -> dict[str, Callable[..., Any]]:
    return {
        name: function if name in accepting else _guarded(function)
        for name, function in functions.items()
    }


def _guarded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter so that it refuses undefined values."""

    @functools.wraps(filter_)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Strict):
                value.refuse()
        return filter_(*args, **kwargs)

    return guarded
