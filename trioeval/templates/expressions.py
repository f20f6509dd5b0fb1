"""Expressions and templates over one row of a dataset, compiled once and evaluated for many rows.

An expression is the text between the braces of a template, in the same sandbox, with the same bounds. A name
that the row does not have is an error everywhere, also in a condition and after a dot: a misspelt name must
not count as false.
"""

import builtins
import re
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import jinja2
from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.runtime import Context

from trioeval.errors import TemplateError
from trioeval.templates import is_template
from trioeval.templates.grammar import CELL, EXPRESSION, Words, refuse_syntax, refused, render_error
from trioeval.templates.limits import Meter, joined
from trioeval.templates.sandbox import Sandbox
from trioeval.templates.undefined import Strict
from trioeval.templates.values import NunjucksOnlyError, condition
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
Filters: TypeAlias = Mapping[str, Callable[..., Any]]

_RESULT = "__result"
_HINT = "write only the text between the braces of a template"
_PLACE = re.compile(r" at \d+(?=$|;)")
"""The position of a lexer error, which is not that in the text of the suite."""
_NOTHING: Filters = {}


def expression_names(text: str) -> frozenset[str]:
    """Return the names that an expression uses; of dotted names the first part. Empty if it is invalid.

    Names of `GLOBAL_NAMES` are included if they are used.

    Example:
        >>> sorted(expression_names("a.b > 3 and not c | default(range(2))"))
        ['a', 'c', 'range']
    """
    sandbox = _sandbox({}, _NOTHING)
    try:
        # An expression defines no names, so each name in it is looked up.
        tree = nodes.ExprStmt(_node(sandbox, text))
    except TemplateError:
        return frozenset()
    own = {"self"} if any(tree.find_all(nodes.ContextReference)) else set()
    return frozenset({name.name for name in tree.find_all(nodes.Name)} | own)


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
        compile_expression(text, filters)
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
        ...     compile_expression("a.b == 'x'")({"a": {"b": "x"}}),
        ... )
        (3, True)
    """
    sandbox = _sandbox(env or {}, filters)
    return _TemplateExpression(sandbox, _compiled(sandbox, _assigned(sandbox, text))).value


def compile_condition(
    text: str, filters: Filters = _NOTHING, env: Mapping[str, str] | None = None
) -> Callable[[Row], bool]:
    """Compile an expression to a function of a row that returns whether it is true.

    Args:
        text: The expression.
        filters: The suite's own filters, by name.
        env: The value of `env` in it; None is empty.

    Returns:
        As for `compile_expression`; a list or an object without members is an error, because Python and
        JavaScript differ about its truth.

    Raises:
        TemplateError: It is not a valid expression.

    Example:
        >>> compile_condition("a is even")({"a": 2}), compile_condition("a")({"a": ""})
        (True, False)
    """
    sandbox = _sandbox(env or {}, filters)
    return _TemplateExpression(sandbox, _compiled(sandbox, _assigned(sandbox, text))).holds


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
    sandbox = Sandbox(env or {}, filters, Meter(), strict=True)
    return _Rendering(sandbox, _compiled(sandbox, _tree(sandbox, text, CELL))).text


@attrs.frozen
class _TemplateExpression:
    _sandbox: Sandbox
    _template: jinja2.Template

    def value(self, row: Row) -> Any:
        """Return its value for a row."""
        try:
            return self._found(row)
        except Exception as error:
            raise render_error(error, self._template, row, EXPRESSION) from error

    def holds(self, row: Row) -> bool:
        """Return whether it is true for a row."""
        try:
            return bool(condition(self._found(row)))
        except Exception as error:
            raise render_error(error, self._template, row, EXPRESSION) from error

    def _found(self, row: Row) -> Any:
        context = _context(self._sandbox, self._template, row)
        for _ in self._template.root_render_func(context):
            pass
        found = context.vars[_RESULT]
        if isinstance(found, Strict):
            found.refuse()
        return found


@attrs.frozen(eq=False, repr=False)
class _Rendering:
    _sandbox: Sandbox
    _template: jinja2.Template

    def text(self, row: Row) -> str:
        """Return its text for a row."""
        context = _context(self._sandbox, self._template, row)
        try:
            return joined(self._template.root_render_func(context))
        except Exception as error:
            raise render_error(error, self._template, row, CELL) from error


def _context(sandbox: Sandbox, template: jinja2.Template, row: Row) -> Context:
    sandbox.meter.start()
    # As `Template.new_context`, without the steps that make no difference here.
    return Context(sandbox, {**sandbox.globals, **row}, template.name, template.blocks)


def _sandbox(env: Mapping[str, str], filters: Filters) -> Sandbox:
    return Sandbox(env, filters, Meter(), strict=True, in_conditions=True)


def _assigned(sandbox: Sandbox, text: str) -> nodes.Template:
    """Return a template that stores the value of an expression."""
    target = nodes.Name(_RESULT, "store", lineno=1)
    tree = nodes.Template([nodes.Assign(target, _node(sandbox, text), lineno=1)], lineno=1)
    tree.set_environment(sandbox)
    return tree


def _node(sandbox: Sandbox, text: str) -> nodes.Expr:
    if not text.strip():
        raise TemplateError(f"an expression must not be empty; {_HINT}")
    if text.lstrip().startswith("{{"):
        raise TemplateError(f"{quote(text)} is a template, not an expression; {_HINT}")
    match _tree(sandbox, f"{{{{ {text}\n}}}}", EXPRESSION).body:
        case [nodes.Output(nodes=[nodes.Expr() as node])] if not isinstance(
            node, nodes.TemplateData
        ):
            return node
        case _:
            raise TemplateError(f"{quote(text)} is not one expression; {_HINT}")


def _tree(sandbox: Sandbox, text: str, words: Words) -> nodes.Template:
    try:
        try:
            return sandbox.tree(text)
        except NunjucksOnlyError as error:
            raise refused(error, error.line) from error
        except TemplateSyntaxError as error:
            refuse_syntax(error)
    except TemplateSyntaxError as error:
        raise _wrong(error, words) from error
    except RecursionError:
        raise TemplateError("nested too deeply") from None


def _compiled(sandbox: Sandbox, tree: nodes.Template) -> jinja2.Template:
    try:
        return sandbox.from_string(tree)
    except TemplateSyntaxError as error:
        raise _wrong(error, EXPRESSION) from error
    except (RecursionError, SyntaxError, MemoryError):
        raise TemplateError("nested too deeply") from None


def _wrong(error: TemplateSyntaxError, words: Words) -> TemplateError:
    if words is EXPRESSION:
        return TemplateError(f"not an expression: {_PLACE.sub('', error.message or '')}")
    return TemplateError(f"not a template: line {error.lineno}: {error.message}")
