"""From text to syntax tree: jinja2's lexer and parser, with the tokens of nunjucks.

What is written alike but read differently is translated (`elseif`, `verbatim`, escapes in strings); what
nunjucks alone can read is refused here, where the line is known.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.lexer import Lexer, Token
from jinja2.parser import Parser

from trioeval.suite.templates.values import NunjucksOnlyError

_MARK = "\x1f"
_RETURN, _ITSELF = f"{_MARK}\x1e", f"{_MARK}\x1d"
"""White space to jinja2. The first stands for carriage returns while it reads, which would make line feeds of
them; the second for the mark that both begin with, which may stand in a text as well."""
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
    """jinja2's tokens, where they mean what they mean in nunjucks."""

    def wrap(
        self,
        stream: Iterable[tuple[int, str, str]],
        name: str | None = None,
        filename: str | None = None,
    ) -> Iterator[Token]:
        """The tokens with their values."""
        return super().wrap(_translated(stream), name, filename)


def _translated(stream: Iterable[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    """The stream of a text; each token is looked at with the one right before it."""
    last_kind, last = "", ""
    word, word_kind = "", ""  # the last one that is not white space
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
    """A string with the escapes of nunjucks, as one with those of Python."""
    value = _STRING_ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), token[1:-1])
    return f'"{value.encode("unicode-escape").decode()}"'


class NunjucksParser(Parser):
    """Knows what stood in brackets, and which tags are refused."""

    def __init__(self, environment: jinja2.Environment, source: str) -> None:
        super().__init__(environment, source)
        self.grouped: list[nodes.Node] = []
        """Expressions in round brackets; they are kept, so their identities stay theirs."""

    def parse_statement(self) -> nodes.Node | list[nodes.Node]:
        """A single statement."""
        token = self.stream.current
        if token.type == "name" and token.value in _REFUSED_TAGS:
            hint = _REFUSED_TAGS[token.value]
            raise NunjucksOnlyError(f"`{{% {token.value} %}}`", hint, token.lineno)
        return super().parse_statement()

    def parse_primary(self, with_namespace: bool = False) -> nodes.Expr:  # noqa: FBT001, FBT002, as in jinja2
        """A name, a literal, or an expression in brackets."""
        is_grouped = self.stream.current.type == "lparen"
        node = super().parse_primary(with_namespace=with_namespace)
        if is_grouped:
            self.grouped.append(node)
        return node


def parse(environment: jinja2.Environment, text: str) -> tuple[nodes.Template, list[nodes.Node]]:
    """The syntax tree of a text, and the expressions in it that stand in round brackets.

    Raises:
        TemplateSyntaxError: It is no template.
        NunjucksOnlyError: It has what only nunjucks can read.
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
    """Raise a syntax error with what to write instead, where that is known.

    Raises:
        TemplateSyntaxError: Always.
    """
    message = error.message or ""
    for sign, hint in _INSTEAD.items():
        if sign in message:
            raise TemplateSyntaxError(f"{message}; {hint}", error.lineno) from error
    raise error
