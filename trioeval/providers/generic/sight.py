"""Whether a transform may see the variables of a test, and not the reply alone.

Paths say what they look into. Of JavaScript only the plainest is known for certain: members of `json` and
`text`, calls of their methods, texts, numbers and operators, or a function of one or two arguments that
gives such an expression. Everything else may have its ways to the third argument (another name for it,
`arguments`, `eval`, a spread, a function that is made of texts), and counts as if it used them.
"""

import re

from trioeval.providers.generic.transform import MemberPath, Transform
from trioeval.scripting.javascript import Script

_NAME = r"[A-Za-z_$][A-Za-z0-9_$]*"
_HEAD = re.compile(rf"\s*(?:\(\s*({_NAME})\s*(?:,\s*({_NAME})\s*)?\)|({_NAME}))\s*=>")
_TEXT = r"""'[^'\\\n\r\u2028\u2029]*'|"[^"\\\n\r\u2028\u2029]*\""""
# No braces, backticks, backslashes, regular expressions, comments, assignments, arrows or spreads. Brackets
# hold one number or text: a member whose name is made up can be any.
_TOKEN = re.compile(
    rf"""
    \s+
    | (?P<member> (?:\?\.|\.)\s*{_NAME} | (?:\?\.)?\[\s*(?:{_TEXT})\s*\] )
    | (?P<name> {_NAME} )
    | (?:\?\.)?\[\s*[0-9]+\s*\] | [0-9]+(?:\.[0-9]+)? | {_TEXT}
    | [=!]==? | [<>]=? | && | \|\| | \?\? | [-+*%(),?:!]
    """,
    re.VERBOSE,
)
_KNOWN = frozenset(
    {"json", "text", "true", "false", "null", "undefined", "typeof"}
    | {"JSON", "Math", "Number", "String", "Boolean", "parseFloat", "parseInt"}
)
_MAKES_FUNCTIONS = re.compile(r"\b(?:constructor|bind|call|apply|__\w+)\b")


def may_see_variables(transform: Transform | Script | None) -> bool:
    """Whether it has a way to them; True where that is not certain.

    Example:
        >>> names = ("json", "text", "context")
        >>> [
        ...     may_see_variables(Script(code, names))
        ...     for code in ("json.a.trim()", "(a, b, c) => c.vars.w")
        ... ]
        [False, True]
    """
    match transform:
        case MemberPath():
            return transform.root == "context"
        case Script():
            return not _is_plain(transform.code)
        case _:
            return False


def _is_plain(code: str) -> bool:
    """Whether code is one of the expressions that this module knows."""
    head = _HEAD.match(code)
    known = _KNOWN if head is None else _KNOWN.union(filter(None, head.groups()))
    place = 0 if head is None else head.end()
    while place < len(code):
        token = _TOKEN.match(code, place)
        if token is None:
            return False
        if token["name"] is not None and token["name"] not in known:
            return False
        if token["member"] is not None and _MAKES_FUNCTIONS.search(token["member"]):
            return False
        place = token.end()
    return True
