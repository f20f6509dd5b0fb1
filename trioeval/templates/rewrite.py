"""Translation of the syntax tree to the semantics of nunjucks, with refusal of what cannot be translated.

Conditions, comparisons, `~` and the iterables of loops become calls of internal filters, whose names begin
with a space so that no template can write them; jinja2 compiles filters to plain calls. What cannot be
translated is refused with its line.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from trioeval.templates.values import NunjucksOnlyError

# Refuses `set` inside a `for` where the value would live longer in nunjucks than here.
#
# Theory. In jinja2 each iteration of a loop has its own variables. In nunjucks they belong to the whole loop,
# so a value persists to the next iteration, and a variable set by an enclosing part is changed there. Both
# languages agree on a `set` if, and only if, no enclosing part sets the name, and every use of it comes after
# a `set` in the same iteration. This is checked on the tree; names are followed through `if`, of which all
# branches must set them.


_OWN_SCOPE = (nodes.Macro, nodes.CallBlock, nodes.For)


def check_loops(tree: nodes.Template) -> None:
    """Check all loops of a template.

    Raises:
        NunjucksOnlyError: A value would persist beyond an iteration.
    """
    _check_below(tree.body, frozenset(_names_set(tree.body)))


def _check_below(body: Iterable[nodes.Node], outer: frozenset[str]) -> None:
    for node in body:
        if isinstance(node, nodes.For):
            _check_loop(node, outer)
        else:
            _check_below(node.iter_child_nodes(), outer)


def _check_loop(loop: nodes.For, outer: frozenset[str]) -> None:
    if macro := next(iter(loop.find_all(nodes.Macro)), None):
        hint = "define it before the loop"
        raise NunjucksOnlyError("a macro inside of a loop", hint, macro.lineno)
    own = {name: node.lineno for name, node in _sets(loop.body)}
    for name, line in own.items():
        if name in outer:
            construct = f"`set` of {name} inside of a loop, which changes it outside"
            raise NunjucksOnlyError(construct, "use another name, or a filter of the list", line)
    if own:
        _check_round(loop.body, frozenset(own), set())
    targets = {name.name for name in loop.target.find_all(nodes.Name)}
    if isinstance(loop.target, nodes.Name):
        targets.add(loop.target.name)
    _check_below(loop.body, outer | own.keys() | targets)
    _check_below(loop.else_, outer)


def _check_round(body: Iterable[nodes.Node], own: frozenset[str], known: set[str]) -> None:
    """Follow one iteration; names that are certainly set are added to `known`."""
    for node in body:
        match node:
            case nodes.Assign():
                _check_reads(node.node, own, known)
                known.update(_targets(node))
            case nodes.AssignBlock():
                _check_round(node.body, own, known)
                known.update(_targets(node))
            case nodes.If():
                _check_reads(node.test, own, known)
                branches = []
                for branch in (node.body, node.elif_, node.else_):
                    branches.append(set(known))
                    _check_round(branch, own, branches[-1])
                # Without `elif` the other branch is `else`; with it, neither may run.
                if not node.elif_:
                    known |= branches[0] & branches[2]
            case nodes.Expr():
                _check_reads(node, own, known)
            case nodes.For():
                _check_reads(node.iter, own, known)
                hidden = {name.name for name in _names_in(node.target)}
                _check_round(node.body, own - hidden, set(known))
                _check_round(node.else_, own, set(known))
            case _:
                _check_round(node.iter_child_nodes(), own, known)


def _check_reads(expression: nodes.Node, own: frozenset[str], known: set[str]) -> None:
    for name in _names_in(expression):
        if name.name in own and name.name not in known:
            construct = f"{name.name}, which `set` keeps for the next round of the loop"
            raise NunjucksOnlyError(
                construct, "set it before it is used, in each round", name.lineno
            )


def _names_in(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


def _names_set(body: Iterable[nodes.Node]) -> Iterator[str]:
    return (name for name, _ in _sets(body))


def _sets(body: Iterable[nodes.Node]) -> Iterator[tuple[str, nodes.Node]]:
    """Yield names that are set in a part itself, not in a loop or a macro inside of it."""
    for node in body:
        if isinstance(node, nodes.Assign | nodes.AssignBlock):
            for name in _targets(node):
                yield name, node
        if not isinstance(node, _OWN_SCOPE):
            yield from _sets(node.iter_child_nodes())


def _targets(node: nodes.Assign | nodes.AssignBlock) -> Iterator[str]:
    return (name.name for name in _names_in(node.target))


CONDITION, CONCAT, ROUNDS, PAIRS = " condition", " concat", " rounds", " pairs"
STEPS = " steps"
"""Internal filters, besides those of `COMPARED`."""
COMPARED = {
    "eq": " ==",
    "ne": " !=",
    "lt": " <",
    "lteq": " <=",
    "gt": " >",
    "gteq": " >=",
    "in": " in",
    "notin": " not in",
}
LENGTH_HINT = "write `x | length`"
METHODS = {
    "toUpperCase": "write `x | upper`",
    "toLowerCase": "write `x | lower`",
    "trim": "write `x | trim`",
    "replace": "write `x | replace(a, b)`",
    "replaceAll": "write `x | replace(a, b)`",
    "join": "write `x | join(', ')`",
    "reverse": "write `x | reverse`",
    "sort": "write `x | sort`",
    "includes": "write `a in x`",
    "has": "write `a in x`",
    "hasOwnProperty": "write `a in x`",
    "toString": "write `x | string`",
    "toFixed": "write `x | round(2)`",
    "filter": "write `x | select(test)` or `x | selectattr(name)`",
    "entries": "write `x | items`",
    **dict.fromkeys(
        (
            *("at", "charAt", "charCodeAt", "concat", "endsWith", "every", "find", "findIndex"),
            *("flat", "flatMap", "forEach", "indexOf", "keys", "lastIndexOf", "map", "match"),
            *("matchAll", "padEnd", "padStart", "pop", "push", "reduce", "repeat", "search"),
            *("shift", "slice", "some", "splice", "split", "startsWith", "substr", "substring"),
            *("toISOString", "toLocaleString", "toPrecision", "trimEnd", "trimStart", "unshift"),
            *("valueOf", "values"),
        ),
        "use a filter, or make the value before the run with `transformVars`",
    ),
}
"""Methods of JavaScript's strings, arrays, numbers and objects, with their replacements."""
_LOOP = {"index", "index0", "revindex", "revindex0", "first", "last", "length"}
_NODES_A_STEP = 4
_BY_NAME = {"sort", "int", "map"}
"""Filters whose arguments may be given by name."""


def rewritten(tree: nodes.Template, grouped: Iterable[nodes.Node]) -> nodes.Template:
    """Return the tree with the semantics of nunjucks.

    Args:
        tree: The parsed tree; it is modified.
        grouped: The parenthesized expressions in it.

    Raises:
        NunjucksOnlyError: A part of it cannot be translated.
    """
    check_loops(tree)
    rewriter = _Rewriter(grouped)
    rewriter.check_operands(tree)
    rewriter.visit(tree)
    return tree


def _call(name: str, value: nodes.Node, *arguments: nodes.Node) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None, lineno=value.lineno)


class _Rewriter(NodeTransformer):
    def __init__(self, grouped: Iterable[nodes.Node]) -> None:
        self._grouped = {id(node) for node in grouped}

    def _is_open(self, node: nodes.Node, *kinds: type[nodes.Node]) -> bool:
        """Return whether an expression is of one of these kinds and not parenthesized."""
        return isinstance(node, kinds) and id(node) not in self._grouped

    def check_operands(self, tree: nodes.Template) -> None:
        """Refuse `a + b is c`, in which nunjucks tests the sum."""
        for node in tree.find_all((nodes.BinExpr, nodes.Concat, nodes.Operand, nodes.Compare)):
            if isinstance(node, nodes.And | nodes.Or):
                continue
            if any(self._is_open(operand, nodes.Test) for operand in node.iter_child_nodes()):
                construct = "`is` next to an operator, which binds more tightly"
                raise NunjucksOnlyError(construct, "put the test in parentheses", node.lineno)

    def _condition(self, node: nodes.Node) -> Any:
        if isinstance(node, nodes.Test | nodes.Not):
            return node
        return _call(CONDITION, node)

    def visit_If(self, node: nodes.If) -> nodes.Node:  # noqa: N802, the name is jinja2's
        self.generic_visit(node)
        node.test = self._condition(node.test)
        return node

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.test = self._condition(node.test)
        node.expr2 = node.expr2 or nodes.Const("", lineno=node.lineno)
        return node

    def visit_Not(self, node: nodes.Not) -> nodes.Node:  # noqa: N802
        inner = node.node
        open_ = self._is_open(inner, nodes.BinExpr, nodes.Concat)
        if isinstance(inner, nodes.Compare) and inner.ops[0].op not in {"in", "notin"}:
            open_ = self._is_open(inner, nodes.Compare)
        if open_ and not isinstance(inner, nodes.And | nodes.Or):
            construct = "`not` before an operator, which applies to its first operand only"
            raise NunjucksOnlyError(construct, "write `not (a == b)`", node.lineno)
        self.generic_visit(node)
        node.node = self._condition(node.node)
        return node

    def visit_And(self, node: nodes.And) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.left = self._condition(node.left)
        return node

    visit_Or = visit_And  # noqa: N815

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        if len(node.ops) > 1:
            hint = "write `a < b and b < c`"
            raise NunjucksOnlyError("chained comparisons", hint, node.lineno)
        self.generic_visit(node)
        [operand] = node.ops
        return _call(COMPARED[operand.op], node.expr, operand.expr)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call(CONCAT, node.nodes[0], *node.nodes[1:])

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if _is_text(one) and isinstance(other, nodes.Const) and not _is_text(other):
                raise NunjucksOnlyError("text + another value", "write `a ~ b`", node.lineno)
        return self.generic_visit(node)

    def visit_FloorDiv(self, node: nodes.FloorDiv) -> nodes.Node:  # noqa: N802
        if self._is_open(node.left, nodes.Mul, nodes.Div, nodes.Mod):
            self._refuse_floor(node)
        return self.generic_visit(node)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:  # noqa: N802
        if self._is_open(node.left, nodes.FloorDiv):
            self._refuse_floor(node)
        return self.generic_visit(node)

    def _refuse_floor(self, node: nodes.Node) -> None:
        construct = "`//` next to another operator, which binds more tightly"
        raise NunjucksOnlyError(construct, "put it in parentheses", node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        several = isinstance(node.target, nodes.Tuple)
        steps = _steps_of(node.body)
        if several:
            self._check_pairs(node)
            # The targets are not a list literal; `visit_Tuple` refuses those.
            node.iter = self.visit(node.iter)
            node.body = [self.visit(part) for part in node.body]
            node.else_ = [self.visit(part) for part in node.else_]
        else:
            self.generic_visit(node)
        rounds = PAIRS if several else ROUNDS
        node.iter = _call(rounds, node.iter, nodes.Const(steps, lineno=node.lineno))
        if node.test is not None:
            hint = "write `if` inside of the loop"
            raise NunjucksOnlyError("a condition of a loop", hint, node.lineno)
        if node.recursive:  # no filter sees its members
            _count_first(node.body, steps)
        return node

    def visit_Macro(self, node: nodes.Macro | nodes.CallBlock) -> nodes.Node:  # noqa: N802
        steps = _steps_of(node.body)
        self.generic_visit(node)
        _count_first(node.body, steps)
        return node

    visit_CallBlock = visit_Macro  # noqa: N815

    def _check_pairs(self, node: nodes.For) -> None:
        source = node.iter
        is_list = isinstance(source, nodes.List) or (
            isinstance(source, nodes.Filter) and source.name != "groupby"
        )
        if not is_list:
            hint = "write `| items` after the object, or `| list` after a list of pairs"
            construct = "`for` with several names, over what may be an object"
            raise NunjucksOnlyError(construct, hint, node.lineno)

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        if isinstance(node.target, nodes.Tuple):
            construct = "`set` of several names, which all get one value"
            raise NunjucksOnlyError(construct, "write one `set` for each", node.lineno)
        return self.generic_visit(node)

    def _refuse_inner_set(self, node: nodes.Node) -> nodes.Node:
        if inner := next(iter(node.find_all((nodes.Assign, nodes.AssignBlock))), None):
            construct = "`set` inside of a block whose text is captured, which is visible outside"
            raise NunjucksOnlyError(construct, "put it before the block", inner.lineno)
        return self.generic_visit(node)

    visit_AssignBlock = visit_FilterBlock = _refuse_inner_set  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        construct = "values in parentheses, of which the last one counts"
        raise NunjucksOnlyError(construct, "write `[a, b]`", node.lineno)

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        if isinstance(node.key, nodes.Name):
            node.key = nodes.Const(node.key.name, lineno=node.lineno)
        return self.generic_visit(node)

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802
        if node.ctx == "load" and node.name == "null":
            return nodes.Const(None, lineno=node.lineno)
        if node.ctx == "load" and node.name == "self":
            # jinja2 uses this name for something else.
            owner = nodes.ContextReference(lineno=node.lineno)
            key = nodes.Const("self", lineno=node.lineno)
            return nodes.Getitem(owner, key, "load", lineno=node.lineno)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        is_loop = isinstance(node.node, nodes.Name) and node.node.name == "loop"
        if is_loop and node.attr not in _LOOP:
            raise NunjucksOnlyError(
                f"`loop.{node.attr}`, which is undefined", "count with `loop.index`", node.lineno
            )
        if node.attr == "length" and not is_loop:
            raise NunjucksOnlyError("`.length`", LENGTH_HINT, node.lineno)
        return self.generic_visit(node)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        method = node.node
        if isinstance(method, nodes.Getattr) and method.attr in METHODS:
            hint = METHODS[method.attr]
            raise NunjucksOnlyError(f"`.{method.attr}()`", hint, node.lineno)
        return self.generic_visit(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        if node.kwargs and node.name not in _BY_NAME:
            construct = f"an argument of `{node.name}` by name, which is an object"
            raise NunjucksOnlyError(construct, "give it by its place", node.lineno)
        if node.name in {"selectattr", "rejectattr"} and len(node.args) > 1:
            construct = f"`{node.name}` with a test, which is not looked at"
            raise NunjucksOnlyError(construct, "write `if` inside of a loop", node.lineno)
        return self.generic_visit(node)


def _steps_of(body: Iterable[nodes.Node]) -> int:
    """Return the steps of one iteration of a body, without those that are counted during the iteration."""
    return 1 + sum(1 for part in body for _ in part.find_all(nodes.Node)) // _NODES_A_STEP


def _count_first(body: list[nodes.Node], steps: int) -> None:
    if body:
        line = body[0].lineno
        call = nodes.Filter(nodes.Const(steps), STEPS, [], [], None, None)
        body.insert(0, nodes.ExprStmt(call, lineno=line).set_lineno(line))


def _is_text(node: nodes.Node) -> bool:
    value: Any = node.value if isinstance(node, nodes.Const) else None
    return isinstance(value, str)
