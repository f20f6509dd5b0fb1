r"""JSON written as text with templates in it, rendered so that no value changes its meaning.

A value inside quotes is escaped; one outside of quotes must be a complete JSON value. Which of the two it is
depends on the text that the template prints before it, and so is known only after rendering: conditions and
loops may open and close quotes. Every printed value is therefore put between marks, which contain a number
that is unknown outside of this process.
"""

import json
import re
import secrets
from collections.abc import Iterator
from typing import TypeAlias

import attrs

from trioeval.providers.http.replies import NOT_JSON, read_json
from trioeval.templates.marks import tags

_NUMBER = f"{secrets.randbelow(10**18):018d}"
# Without letters, so that a filter such as `upper` does not change them.
_BEGIN, _END = f"\ue000{_NUMBER}\ue001", f"\ue000{_NUMBER}\ue002"
_MARK = re.compile(f"(\ue000{_NUMBER}[\ue001\ue002])")
_QUOTE = re.compile(r'\\.|\\\Z|"', re.DOTALL)
_BETWEEN_VALUES = " \t\r\n,"
"""Characters that a loop may print between two values: `{{ ", " if not loop.last }}`."""

Piece: TypeAlias = "str | list[Piece]"


class JsonTextError(Exception):
    """A filled-in text that is not valid JSON; the message says where."""


@attrs.frozen
class JsonText:
    r"""A text that is JSON when its templates are filled in.

    Example:
        >>> from trioeval.templates import Templates
        >>> written = JsonText('{"n": {{ n }}, "q": "<{{ prompt }}>"}')
        >>> rendered = Templates().fill(written.marked, {"n": 3, "prompt": 'say "hi"'})
        >>> written.read(rendered)
        '{"n": 3, "q": "<say \\"hi\\">"}'
    """

    text: str
    marked: str = attrs.field(init=False, repr=False, eq=False)
    """The template whose rendering `read` needs."""

    @marked.default
    def _with_marks(self) -> str:
        return "".join(_marked(self.text))

    def read(self, rendered: str) -> str:
        """Return the JSON text for a rendering of `marked`.

        Raises:
            JsonTextError: It is not JSON, or a value would change the meaning of the text around it.
        """
        text = _join(_nested(rendered))
        if read_json(text) is NOT_JSON:
            msg = "is not JSON when its variables are filled in"
            raise JsonTextError(msg)
        return text


def _marked(text: str) -> Iterator[str]:
    """Yield the pieces of a template, with marks printed around each printed value."""
    begin = 0
    for tag in tags(text):
        if value := tag["value"]:
            yield text[begin : tag.start()]
            yield f'{tag["opened"]} "{_BEGIN}" }}}}{{{{{value}}}}}{{{{ "{_END}" {tag["closed"]}'
            begin = tag.end()
    yield text[begin:]


def _nested(rendered: str) -> list[Piece]:
    """Return the output: texts of the template, and lists for values, which may hold captured blocks."""
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
    msg = "prints a part of a captured block; print the whole block"
    raise JsonTextError(msg)


def _join(pieces: list[Piece]) -> str:
    """Return the text with each value in the form that its place requires."""
    joined: list[str] = []
    in_quotes, after_backslash = False, False
    for piece in pieces:
        if isinstance(piece, str):
            joined.append(piece)
            for found in _QUOTE.findall(piece):
                after_backslash = in_quotes and found == "\\"
                in_quotes ^= found == '"' or (found == '\\"' and not in_quotes)
        elif after_backslash:
            msg = "has a backslash before a template"
            raise JsonTextError(msg)
        elif in_quotes:
            joined.append(json.dumps(_plain(piece), ensure_ascii=False)[1:-1])
        else:
            value = _join(piece)
            if read_json(value) is NOT_JSON and value.strip(_BETWEEN_VALUES):
                # Not shown: it may be a secret.
                msg = "has a template outside of quotes that does not print a JSON value"
                raise JsonTextError(msg)
            joined.append(value)
    return "".join(joined)


def _plain(pieces: list[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else _plain(piece) for piece in pieces)
