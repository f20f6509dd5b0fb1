"""Python expressions over the columns of a row: whether they are any, and which names they look at.

They run in a process of their own, as all code of a suite does; here none of them runs.
"""

import builtins
import symtable
from collections.abc import Iterator

_FILE = "<python>"
_KNOWN = frozenset(dir(builtins))


def python_error(text: str) -> str | None:
    """What is wrong with a text as a Python expression; None if nothing is.

    Example:
        >>> python_error("int(a) + 1"), python_error("a = 1")
        (None, "not a Python expression: invalid syntax. Maybe you meant '==' or ':=' instead of '='?")
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
    table = symtable.symtable(text.strip(), _FILE, "eval")
    return frozenset(_free(table))


def is_of_python(name: str) -> bool:
    """Whether a name means something in Python without a column; a column of that name comes first."""
    return name in _KNOWN


def _free(table: symtable.SymbolTable) -> Iterator[str]:
    is_top = table.get_type() == "module"
    made = {one.get_name() for one in table.get_symbols() if one.is_assigned()} if is_top else set()
    for one in table.get_symbols():
        name = one.get_name()
        if one.is_referenced() and (is_top or one.is_global()) and name not in made:
            yield name
    for child in table.get_children():
        yield from (name for name in _free(child) if name not in made)
