"""Python expressions over the columns of a row: whether they are any, and which names they look at.

They run in a process of their own, as all code of a suite does; here none of them runs.
"""

import builtins
import symtable
from collections.abc import Iterable, Iterator

_FILE = "<python>"
_KNOWN = frozenset(dir(builtins))


def python_error(text: str) -> str | None:
    """What is wrong with a text as a Python expression; None if nothing is.

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
    """The names that an expression looks at and does not make itself. None if it is wrong.

    Those of Python's own functions are among them where they are used, see `is_of_python`.

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
    """Whether a name means something in Python without a column; a column of that name comes first."""
    return name in _KNOWN


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """What an expression, its comprehensions and its functions name."""
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _outer(tables: Iterable[symtable.SymbolTable]) -> Iterator[symtable.Symbol]:
    """Names that do not belong to a comprehension or a function."""
    for table in tables:
        is_top = table.get_type() == "module"
        yield from (one for one in table.get_symbols() if is_top or one.is_global())
