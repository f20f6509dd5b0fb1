"""Which names a Python file has at its top level, as far as can be seen without running it.

What may get its names in ways that cannot be seen, by `import *` or `exec` for instance, is not judged.
"""

import ast
import difflib
from collections.abc import Iterable, Iterator

_UNSEEN = frozenset({"exec", "eval", "globals", "locals", "vars", "setattr", "modules", "__dict__"})
"""What code that makes names of its module without naming them uses."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def top_level_names(tree: ast.Module) -> frozenset[str] | None:
    r"""The names that may be bound when the file has run; None if that cannot be told.

    Example:
        >>> sorted(
        ...     top_level_names(ast.parse("import a.b\nif a:\n    def f(): x = 1\nelse: f = a.c"))
        ... )
        ['a', 'f']
        >>> top_level_names(ast.parse("from a import *")) is None
        True
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _UNSEEN:
            return None
        if isinstance(node, ast.Attribute) and node.attr in _UNSEEN:
            return None
        if isinstance(node, ast.alias) and node.name == "*":
            return None
    names = {name for node in _outermost(tree) for name in _bound(node)}
    names |= {
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    }
    return None if "__getattr__" in names else frozenset(names)


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, as a hint."""
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f'did you mean "{near[0]}"?' if near else None


def _outermost(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in functions and classes."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _outermost(node)


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.alias(name=name, asname=renamed):
            yield renamed or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
