"""Parsing of templates: jinja2's lexer and parser, with the tokens of nunjucks.

Syntax that is written alike but read differently is translated (`elseif`, `verbatim`, escapes in strings);
syntax of nunjucks only is refused here, where the line is known.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NoReturn

import attrs
import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.lexer import Lexer, Token
from jinja2.parser import Parser

from trioeval.errors import TemplateError
from trioeval.templates.faults import RefusedError, RenderError
from trioeval.templates.limits import TooMuchError
from trioeval.templates.undefined import UnknownVariableError
from trioeval.templates.values import NunjucksOnlyError

# The messages about templates that cannot be rendered.


@attrs.frozen
class Words:
    """The nouns and verbs of messages."""

    text: str
    fails: str
    owner: str


TEMPLATE = Words("the template", "cannot be rendered", "the test")
EXPRESSION = Words("the expression", "cannot be evaluated", "the row")
CELL = Words("the template", "cannot be rendered", "the row")


def refused(error: NunjucksOnlyError, line: int | None) -> RefusedError:
    """Return the error for a feature of nunjucks only."""
    where = "" if line is None else f" at line {line}"
    return RefusedError(f"nunjucks-only: {error.message}{where}; {error.hint}")


def render_error(
    error: Exception,
    template: jinja2.Template,
    variables: Mapping[str, Any],
    words: Words = TEMPLATE,
) -> TemplateError:
    """Return the error to report for an exception that occurred while a template was rendered.

    Args:
        error: The exception.
        template: The template, for the line.
        variables: Its variables.
        words: The words of the message.
    """
    message = f"{words.text} {words.fails}"
    match error:
        case NunjucksOnlyError():
            return refused(error, _line(error.__traceback__, template))
        case TooMuchError():
            return RefusedError(str(error))
        case UnknownVariableError():
            return TemplateError(_undefined(str(error), _of_the_test(variables), words.owner))
        case SecurityError():
            return TemplateError(f"{words.text} does what the sandbox refuses: {error}")
        case UndefinedError():
            return TemplateError(str(error))
        case RecursionError():
            return RefusedError(f"{words.text} or its values are nested too deeply")
        case jinja2.TemplateRuntimeError() | RenderError():
            return TemplateError(f"{message}: {error}")
        case _:
            return TemplateError(f"{message}: {type(error).__name__}: {error}")


def _of_the_test(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the variables without those that the run adds."""
    return {name: value for name, value in variables.items() if not name.startswith("__")}


def _line(trace: TracebackType | None, template: jinja2.Template) -> int | None:
    """Return the line of the template at which an exception occurred, in its innermost part."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _undefined(name: str, variables: Mapping[str, Any], owner: str) -> str:
    known = sorted(variables)
    if not known:
        return f"{{{{ {name} }}}} is not defined; {owner} has no variables"
    if close := difflib.get_close_matches(name, known, n=1):
        return f'{{{{ {name} }}}} is not defined; did you mean "{close[0]}"?'
    return f"{{{{ {name} }}}} is not defined; {owner} has {', '.join(known)}"


_MARK = "\x1f"
_RETURN, _ITSELF = f"{_MARK}\x1e", f"{_MARK}\x1d"
"""White space for jinja2. The first replaces carriage returns during parsing, which would otherwise become
line feeds; the second replaces the character that both begin with, which may occur in a text as well."""
_RETURNS = re.compile(f"{_RETURN}|{_ITSELF}")
_STRING_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_RAW_TAG = re.compile(r"\{%[-+]?\s*(?:end)?raw\s*-?%\}")
_VERBATIM_TAG = re.compile(r"(\{%-?\s*(?:end)?)verbatim(\s*-?%\})")
_REFUSED_TAGS = {
    "asyncAll": "write `for`",
    "asyncEach": "write `for`",
    "block": "write its text where it stands",
    "extends": "write the whole text here",
    "from": "write the macro here",
    "ifAsync": "write `if`",
    "import": "write the macro here",
    "include": "write its text here, or pass it as a variable",
    "switch": "write `if` and `elif`",
}
_INSTEAD = {
    "'&'": "write `and`",
    "'!'": "write `not`",
    "'?'": "write `a if condition else b`",
    "'|', got '|'": "write `or`",
    "got '|'": "write `or` for `||`",
}


class NunjucksLexer(Lexer):
    """jinja2's lexer, with tokens that have the same meaning as in nunjucks."""

    def wrap(
        self,
        stream: Iterable[tuple[int, str, str]],
        name: str | None = None,
        filename: str | None = None,
    ) -> Iterator[Token]:
        """Yield the tokens with their values."""
        return super().wrap(_translated(stream), name, filename)


def _translated(stream: Iterable[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    """Translate the tokens of a text; each token is examined together with the one before it."""
    last_kind, last = "", ""
    word, word_kind = "", ""  # the last token that is not white space
    for line, kind, value in stream:
        given = value
        if kind == "operator":
            _refuse_operator(last_kind, last, value, line)
        elif kind == "string":
            given = _string_token(value)
        elif kind in {"integer", "float"} and not _NUMBER.fullmatch(value):
            raise NunjucksOnlyError(f"`{value}` as a name", "write the number out", line)
        elif kind == "name" and value in {"True", "False", "None"} and word != ".":
            raise NunjucksOnlyError(f"`{value}` as a name", f"write `{value.lower()}`", line)
        elif kind == "name" and value == "elseif" and word_kind == "block_begin":
            given = "elif"
        yield line, kind, given
        last_kind, last = kind, value
        if kind != "whitespace":
            word, word_kind = value, kind


def _refuse_operator(last_kind: str, last: str, value: str, line: int) -> None:
    if value.startswith("=") and last in {"==", "!="}:
        raise NunjucksOnlyError(f"`{last}=`", f"write `{last}`", line)
    if last_kind == "name" and last == "r" and value.startswith("/"):
        raise NunjucksOnlyError("a regular expression, `r/…/`", "write `in` or `replace`", line)


def _string_token(token: str) -> str:
    """Return a string with the escapes of nunjucks as one with those of Python."""
    value = _STRING_ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), token[1:-1])
    return f'"{value.encode("unicode-escape").decode()}"'


class NunjucksParser(Parser):
    """Records parenthesized expressions, and refuses some tags."""

    def __init__(self, environment: jinja2.Environment, source: str) -> None:
        super().__init__(environment, source)
        self.grouped: list[nodes.Node] = []
        """Parenthesized expressions; they are stored, so their identities stay unique."""

    def parse_statement(self) -> nodes.Node | list[nodes.Node]:
        """Parse a single statement."""
        token = self.stream.current
        if token.type == "name" and token.value in _REFUSED_TAGS:
            hint = _REFUSED_TAGS[token.value]
            raise NunjucksOnlyError(f"`{{% {token.value} %}}`", hint, token.lineno)
        return super().parse_statement()

    def parse_primary(self, with_namespace: bool = False) -> nodes.Expr:  # noqa: FBT001, FBT002, as in jinja2
        """Parse a name, a literal, or an expression in parentheses."""
        is_grouped = self.stream.current.type == "lparen"
        node = super().parse_primary(with_namespace=with_namespace)
        if is_grouped:
            self.grouped.append(node)
        return node


def parse(environment: jinja2.Environment, text: str) -> tuple[nodes.Template, list[nodes.Node]]:
    """Return the syntax tree of a text, and the parenthesized expressions in it.

    Raises:
        TemplateSyntaxError: It is not a template.
        NunjucksOnlyError: It uses a feature of nunjucks only.
    """
    parser = NunjucksParser(environment, _prepared(text))
    tree = parser.parse()
    if "\r" in text:
        for data in tree.find_all(nodes.TemplateData):
            data.data = _RETURNS.sub(
                lambda found: "\r" if found[0] == _RETURN else _MARK, data.data
            )
    return tree, parser.grouped


def _prepared(text: str) -> str:
    if "\r" in text:
        text = text.replace(_MARK, _ITSELF).replace("\r", _RETURN)
    if "verbatim" not in text or not (found := _VERBATIM_TAG.search(text)):
        return text
    if _RAW_TAG.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise NunjucksOnlyError("`verbatim` beside `raw`", "write `raw` for both", line)
    return _VERBATIM_TAG.sub(r"\1raw\2", text)


def refuse_syntax(error: TemplateSyntaxError) -> NoReturn:
    """Raise a syntax error with a correction, if one is known.

    Raises:
        TemplateSyntaxError: Always.
    """
    message = error.message or ""
    for sign, hint in _INSTEAD.items():
        if sign in message:
            raise TemplateSyntaxError(f"{message}; {hint}", error.lineno) from error
    raise error
