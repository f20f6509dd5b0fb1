"""Refuses `set` inside a `for` where the value would live longer in nunjucks than it does here.

Theory. In jinja2 a round of a loop has variables of its own. In nunjucks the whole loop has them, so a
value stays for the next round, and a variable that an enclosing part sets is changed there. Both languages
agree on a `set` if, and only if, no enclosing part sets the name, and every look at it comes after a `set`
in the same round. This is checked on the tree; names are followed through `if`, of which all branches must
set them.
"""

from collections.abc import Iterable, Iterator

from jinja2 import nodes

from trioeval.suite.templates.values import NunjucksOnlyError

_OWN_SCOPE = (nodes.Macro, nodes.CallBlock, nodes.For)


def check_loops(tree: nodes.Template) -> None:
    """Look at all loops of a template.

    Raises:
        NunjucksOnlyError: A value would be carried out of a round.
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
            what = f"`set` of {name} inside of a loop, which changes it outside"
            raise NunjucksOnlyError(what, "use another name, or a filter of the list", line)
    if own:
        _check_round(loop.body, frozenset(own), set())
    targets = {name.name for name in loop.target.find_all(nodes.Name)}
    if isinstance(loop.target, nodes.Name):
        targets.add(loop.target.name)
    _check_below(loop.body, outer | own.keys() | targets)
    _check_below(loop.else_, outer)


def _check_round(body: Iterable[nodes.Node], own: frozenset[str], known: set[str]) -> None:
    """Follow one round; `known` grows by what is surely set."""
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
                # Without `elif` the other branch is `else`; with it, who knows.
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
            what = f"{name.name}, which `set` keeps for the next round of the loop"
            raise NunjucksOnlyError(what, "set it before it is used, in each round", name.lineno)


def _names_in(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


def _names_set(body: Iterable[nodes.Node]) -> Iterator[str]:
    return (name for name, _ in _sets(body))


def _sets(body: Iterable[nodes.Node]) -> Iterator[tuple[str, nodes.Node]]:
    """Names that are set in a part itself, not in a loop or a macro inside of it."""
    for node in body:
        if isinstance(node, nodes.Assign | nodes.AssignBlock):
            for name in _targets(node):
                yield name, node
        if not isinstance(node, _OWN_SCOPE):
            yield from _sets(node.iter_child_nodes())


def _targets(node: nodes.Assign | nodes.AssignBlock) -> Iterator[str]:
    return (name.name for name in _names_in(node.target))
