"""Code for outputs: transforms that are queries or paths of members, and JavaScript of assertions."""

import re
from collections.abc import Iterator
from typing import Any

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, collect_warning
from trioeval.grading import Assertion, quote
from trioeval.grading.registry import split_type

_QUERY = re.compile(r"\$[.\[]|\$$|jmespath:")
_MEMBERS = re.compile(r"output(?:\.[A-Za-z_]\w*|\[\d+\])+")
_LENGTH = ".length"


def is_query(text: str) -> bool:
    """Return whether a transform is a query into the output.

    Example:
        >>> is_query("$.answer"), is_query("jmespath: a.b"), is_query("output.a")
        (True, True, False)
    """
    return _QUERY.match(text.strip()) is not None


def names_members(text: str) -> bool:
    """Return whether a transform is a path of members of the output.

    Example:
        >>> names_members("output.answer.text"), names_members("output.length")
        (True, False)
    """
    code = text.strip()
    return _MEMBERS.fullmatch(code) is not None and not code.endswith(_LENGTH)


def is_path(text: str) -> bool:
    """Return whether a transform is a path or a query, which cannot do more than read the output.

    Example:
        >>> is_path("output.answer.text"), is_path("$.answer"), is_path("output.trim()")
        (True, True, False)
    """
    return is_query(text) or names_members(text)


def code_mistakes(settings: Any, keys: tuple[str, ...], context: FileContext) -> Iterator[Mistake]:
    """Yield a mistake for each transform of an object that is code which its suite must not run."""
    for key in keys if isinstance(settings, dict) else ():
        text = settings.get(key)
        if isinstance(text, str) and text.strip() and not is_path(text):
            try:
                context.check_code(quote(text.strip()))
            except MistakenError as error:
                yield from (part.below(key) for part in error.parts)


def javascript_mistakes(assertion: Assertion, context: FileContext) -> Iterator[Mistake]:
    """Yield the mistake of code that needs Node, which is not found; warn of code that always fails."""
    code, base = assertion.value, split_type(assertion.type)[0]
    if base != "javascript" or not isinstance(code, str) or "{{" in code:
        return
    from trioeval.grading.kinds.scripts import NAMES
    from trioeval.scripting.javascript import assertion_script, is_one_statement

    script = assertion_script(code, NAMES)
    if is_one_statement(code):
        message = f"{quote(code)} is a statement on one line, where JavaScript is an expression"
        hint = "every row fails; leave out the word, or write two lines"
        collect_warning(message, hint, "value")
    elif script.needs_node is not None and (fault := script.fault(context.environ)):
        yield Mistake(f"{quote(code)} {fault}", at=("value",))
