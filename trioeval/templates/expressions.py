"""Expressions and templates over one row of a dataset, compiled once and evaluated for many rows.

An expression is the text between the braces of a template, in the same engine, with the same bounds. A name
that the row does not have is an error everywhere, also in a condition and after a dot: a misspelt name must
not count as false.
"""

import builtins
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from trioeval.errors import TemplateError
from trioeval.templates import is_template
from trioeval.templates.faults import RefusedError, not_a_template, with_hint
from trioeval.templates.limits import TimeLeft, TooMuchError
from trioeval.templates.nunjucks import (
    CELL,
    EXPRESSION,
    Description,
    Filter,
    Kept,
    Nunjucks,
    SeveralError,
)
from trioeval.templates.plain import filled, plain_pieces
from trioeval.text import quote

# Python expressions over the columns of a row: their validity, and the names that they use.
#
# They run in a separate process, as all code of a suite does; nothing runs here.


_FILE = "<python>"
_KNOWN = frozenset(dir(builtins))


def python_error(text: str) -> str | None:
    """Return the mistake of a text as a Python expression; None if it is valid.

    Example:
        >>> python_error("int(a) + 1"), python_error("a +")
        (None, 'not a Python expression: invalid syntax')
    """
    try:
        compile(text.strip(), _FILE, "eval", dont_inherit=True)
    except SyntaxError as error:
        return f"not a Python expression: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"not a Python expression: {str(error) or 'nested too deeply'}"
    return None


def python_names(text: str) -> frozenset[str]:
    """Return the names that an expression uses and does not define. Empty if it is invalid.

    Builtin functions of Python are included if they are used, see `is_of_python`.

    Example:
        >>> sorted(python_names("sum(n * a for n in b)"))
        ['a', 'b', 'sum']
    """
    if python_error(text) is not None:
        return frozenset()
    tables = list(_tables(symtable.symtable(text.strip(), _FILE, "eval")))
    used = {one.get_name() for one in _outer(tables) if one.is_referenced()}
    return frozenset(used - {one.get_name() for one in _outer(tables) if one.is_assigned()})


def is_of_python(name: str) -> bool:
    """Return whether a name is a Python builtin; a column of that name has precedence."""
    return name in _KNOWN


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the symbol tables of an expression, its comprehensions and its functions."""
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _outer(tables: Iterable[symtable.SymbolTable]) -> Iterator[symtable.Symbol]:
    """Yield names that are not local to a comprehension or a function."""
    for table in tables:
        is_top = table.get_type() == "module"
        yield from (one for one in table.get_symbols() if is_top or one.is_global())


Row: TypeAlias = Mapping[str, Any]
Filters: TypeAlias = Mapping[str, Filter]

_HINT = "write only the text between the braces of a template"
_NOTHING: Filters = {}


def expression_names(text: str, filters: Filters = _NOTHING) -> frozenset[str]:
    """Return the names that an expression uses; of dotted names the first part. Empty if it is invalid.

    Names of `GLOBAL_NAMES` are included if they are used.

    Args:
        text: The expression.
        filters: The suite's own filters, by name.

    Example:
        >>> sorted(expression_names("a.b > 3 and not c or range(2)"))
        ['a', 'c', 'range']
    """
    try:
        return _valid(_nunjucks({}, filters), text).names
    except TemplateError:
        return frozenset()


def expression_error(text: str, filters: Filters = _NOTHING) -> str | None:
    """Return the mistake of a text as an expression; None if it is valid.

    Args:
        text: The expression.
        filters: The suite's own filters, by name.

    Example:
        >>> expression_error("a > 3"), expression_error("a | nonsense")
        (None, "not an expression: No filter named 'nonsense'.")
    """
    try:
        _valid(_nunjucks({}, filters), text)
    except TemplateError as error:
        return str(error)
    return None


def compile_expression(
    text: str, filters: Filters = _NOTHING, env: Mapping[str, str] | None = None
) -> Callable[[Row], Any]:
    """Compile an expression to a function of a row that returns its value.

    Args:
        text: The expression.
        filters: The suite's own filters, by name.
        env: The value of `env` in it; None is empty.

    Returns:
        A function that raises `TemplateError` if the row lacks a name, or evaluation fails.

    Raises:
        TemplateError: It is not a valid expression.

    Example:
        >>> (
        ...     compile_expression("a + 1")({"a": 2}),
        ...     compile_expression("a.b === 'x'")({"a": {"b": "x"}}),
        ... )
        (3, True)
    """
    return _compiled(_nunjucks(env or {}, filters), text, "value")


def compile_condition(
    text: str, filters: Filters = _NOTHING, env: Mapping[str, str] | None = None
) -> Callable[[Row], bool]:
    """Compile an expression to a function of a row that returns whether it is true.

    Args:
        text: The expression.
        filters: The suite's own filters, by name.
        env: The value of `env` in it; None is empty.

    Returns:
        As for `compile_expression`; a list or an object is an error, because it is always true.

    Raises:
        TemplateError: It is not a valid expression.

    Example:
        >>> compile_condition("a is even")({"a": 2}), compile_condition("a")({"a": ""})
        (True, False)
    """
    return _compiled(_nunjucks(env or {}, filters), text, "condition")


def compile_template(
    text: str, filters: Filters = _NOTHING, env: Mapping[str, str] | None = None
) -> Callable[[Row], str]:
    """Compile a template to a function of a row, whose values are not treated as templates.

    Args:
        text: The template; without marks it is the constant result.
        filters: The suite's own filters, by name.
        env: The value of `env` in it; None is empty.

    Returns:
        A function that raises `TemplateError` if the row lacks a name, or rendering fails.

    Raises:
        TemplateError: It is not a valid template.

    Example:
        >>> compile_template("{{ a }} and {{ b }}")({"a": "{{ b }}", "b": 1})
        '{{ b }} and 1'
    """
    if not is_template(text):
        return lambda _row: text
    engine = Nunjucks(env or {}, filters, 2, CELL)
    pieces = plain_pieces(text)
    if pieces is None and (fault := engine.describe(text, "").fault) is not None:
        raise TemplateError(not_a_template(engine.describe(text, "").line, fault))

    def render(row: Row) -> str:
        if pieces is not None:
            made = filled(pieces, row, strict=True)
            if made is not None:
                return made
        return str(_result(engine, text, row, ""))

    return render


def _nunjucks(env: Mapping[str, str], filters: Filters) -> Nunjucks:
    return Nunjucks(env, filters, 2, EXPRESSION)


def _compiled(engine: Nunjucks, text: str, kept: Kept) -> Callable[[Row], Any]:
    _valid(engine, text)
    written = _written(text)
    return lambda row: _result(engine, written, row, kept)


def _result(engine: Nunjucks, text: str, row: Row, kept: Kept) -> Any:
    try:
        return engine.render(text, row, TimeLeft(), kept)
    except TooMuchError as error:
        raise RefusedError(str(error)) from error


def _valid(engine: Nunjucks, text: str) -> Description:
    """Return the description of an expression.

    Raises:
        TemplateError: It is not one.
    """
    if not text.strip():
        raise TemplateError(f"an expression must not be empty; {_HINT}")
    if text.lstrip().startswith("{{"):
        raise TemplateError(f"{quote(text)} is a template, not an expression; {_HINT}")
    try:
        found = engine.describe(_written(text), "value")
    except SeveralError:
        raise TemplateError(f"{quote(text)} is not one expression; {_HINT}") from None
    if found.fault is not None:
        raise TemplateError(f"not an expression: {with_hint(found.fault)}")
    return found


def _written(text: str) -> str:
    return f"{{{{ {text}\n}}}}"
