r"""JSON that is written as text with templates in it, so filled in that no value changes its meaning.

A value between the quotes of a text is escaped; one outside of quotes must be a JSON value of its own. Which
of the two it is follows from what the template itself prints before it, and so is known only when it is
rendered: conditions and loops may open and close quotes. Every place where a value is printed is therefore
put between marks, which hold a number that nobody outside of this process knows.
"""

import json
import re
import secrets
from collections.abc import Iterator
from typing import TypeAlias

import attrs
import jinja2

from trioeval.providers.http.replies import NOT_JSON, read_json

_NUMBER = f"{secrets.randbelow(10**18):018d}"
# Without letters, so that a filter such as `upper` leaves them as they are.
_BEGIN, _END = f"\ue000{_NUMBER}\ue001", f"\ue000{_NUMBER}\ue002"
_MARK = re.compile(f"(\ue000{_NUMBER}[\ue001\ue002])")
_QUOTE = re.compile(r'\\.|\\\Z|"', re.DOTALL)
_BETWEEN_VALUES = " \t\r\n,"
"""What a loop may print between two values: `{{ ", " if not loop.last }}`."""

_LEXER = jinja2.Environment(keep_trailing_newline=True)  # noqa: S701 - renders nothing

Piece: TypeAlias = "str | list[Piece]"


class JsonTextError(Exception):
    """What was filled in makes it no JSON; the message says where."""


@attrs.frozen
class JsonText:
    r"""A text that is JSON when its templates are filled in.

    Example:
        >>> written = JsonText('{"n": {{ n }}, "q": "<{{ prompt }}>"}')
        >>> said = jinja2.Template(written.marked).render(n=3, prompt='say "hi"')
        >>> written.read(said)
        '{"n": 3, "q": "<say \\"hi\\">"}'
    """

    text: str
    marked: str = attrs.field(init=False, repr=False, eq=False)
    """The template that `read` needs the rendering of."""

    @marked.default
    def _with_marks(self) -> str:
        try:
            return "".join(_marked(self.text))
        except jinja2.TemplateSyntaxError:
            return self.text  # told where the entry is read

    def read(self, rendered: str) -> str:
        """The JSON that a rendering of `marked` means.

        Raises:
            JsonTextError: It is none, or a value would change what the text around it means.
        """
        text = _join(_nested(rendered))
        if read_json(text) is NOT_JSON:
            msg = "is not JSON when its variables are filled in"
            raise JsonTextError(msg)
        return text


def _marked(text: str) -> Iterator[str]:
    """The pieces of a template, with what prints marks around what prints a value."""
    for _, kind, piece in _LEXER.lex(text):
        if kind == "variable_begin":
            yield f'{piece} "{_BEGIN}" }}}}{{{{'
        elif kind == "variable_end":
            yield f'}}}}{{{{ "{_END}" {piece}'
        else:
            yield piece


def _nested(rendered: str) -> list[Piece]:
    """What was printed: texts of the template, and lists for values, which may hold captured blocks."""
    open_lists: list[list[Piece]] = [[]]
    for piece in _MARK.split(rendered):
        if piece == _BEGIN:
            open_lists.append([])
        elif piece != _END:
            open_lists[-1].append(piece)
        elif len(open_lists) == 1:
            break
        else:
            value = open_lists.pop()
            open_lists[-1].append(value)
    else:
        if len(open_lists) == 1:
            return open_lists[0]
    msg = "prints a part of a block that was captured; print the whole of it"
    raise JsonTextError(msg)


def _join(pieces: list[Piece]) -> str:
    """The text with each value as its place wants it."""
    joined: list[str] = []
    in_quotes, after_backslash = False, False
    for piece in pieces:
        if isinstance(piece, str):
            joined.append(piece)
            for found in _QUOTE.findall(piece):
                after_backslash = in_quotes and found == "\\"
                in_quotes ^= found == '"' or (found == '\\"' and not in_quotes)
        elif after_backslash:
            msg = "has a backslash in front of a template"
            raise JsonTextError(msg)
        elif in_quotes:
            joined.append(json.dumps(_plain(piece), ensure_ascii=False)[1:-1])
        else:
            value = _join(piece)
            if read_json(value) is NOT_JSON and value.strip(_BETWEEN_VALUES):
                # Not shown: it may be a secret.
                msg = "has a template outside of quotes that gives no JSON value"
                raise JsonTextError(msg)
            joined.append(value)
    return "".join(joined)


def _plain(pieces: list[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else _plain(piece) for piece in pieces)
