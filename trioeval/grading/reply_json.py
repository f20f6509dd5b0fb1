"""JSON objects in the reply of a model: alone, in a code fence, or in prose.

Models are asked for JSON and often write it slightly wrong: keys without quotes, single quotes, a comma too
many. This is read as well. Something that looks like an object but is unreadable ends the search: it may
contain a quotation from the judged output, which is not the judge's verdict. So does a truncated object: its
last number may be incomplete. The search is bounded, because a reply may have any content and length.
"""

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from trioeval.grading.services import JudgeReply
from trioeval.text import read_integer

_READ = 200_000
"""Characters of a reply that are searched."""

_LONGEST = 100_000
"""Most characters of one object."""

_MOST = 200
"""Most opening braces that are tried."""

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"|\'(?:[^\'\\]|\\.)*+\'|["\'{}]', re.DOTALL)
"""The tokens that decide where an object ends: quoted texts, and braces outside of them."""

_BEGINS = re.compile(r"""\{\s*+(?:["']|[^\s{}:]++\s*+:)""")
"""The start of an object; a word in braces is a placeholder."""


def objects_in(answer: JudgeReply) -> list[Mapping[str, Any]]:
    """Return the objects of a reply, in order; nested objects are not listed.

    Example:
        >>> reply = 'Sure, {name}: {"pass": true} and {reason: "fine",}'
        >>> objects_in(JudgeReply(reply, reply))
        [{'pass': True}, {'reason': 'fine'}]
        >>> reply = '{"reason": "it says "{"pass": true}"", "pass": false}'
        >>> objects_in(JudgeReply(reply, reply))
        []
    """
    if isinstance(answer.output, Mapping):
        return [answer.output]
    text, at = answer.text[:_READ], 0
    found: list[Mapping[str, Any]] = []
    for _ in range(_MOST):
        at = text.find("{", at)
        if at < 0:
            break
        read = _json_at(text, at) or _loose_at(text, at)
        if read is not None:
            value, at = read
            found.append(value)
        elif _BEGINS.match(text, at):
            break
        else:
            at += 1
    return found


def _json_at(text: str, at: int) -> tuple[Mapping[str, Any], int] | None:
    try:
        value, length = _decoder().raw_decode(text[at : at + _LONGEST])
    except (ValueError, RecursionError):
        return None
    return value, at + length


def _loose_at(text: str, at: int) -> tuple[Mapping[str, Any], int] | None:
    """Read an object as a mapping of YAML in braces."""
    from trioeval.grading.flow_yaml import read_yaml

    if not _BEGINS.match(text, at) or (end := _end_of(text, at)) is None:
        return None
    try:
        value = read_yaml(text[at:end])
    except ValueError:
        return None
    return (value, end) if isinstance(value, dict) else None


def _end_of(text: str, at: int) -> int | None:
    """Return the position after the brace that closes the one at a position."""
    depth = 0
    for piece in _PIECE.finditer(text, at, at + _LONGEST):
        match piece[0]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return piece.end()
            case '"' | "'":
                return None
    return None


@functools.cache
def _decoder() -> json.JSONDecoder:
    def refuse(constant: str) -> Any:
        msg = f"{constant} is not JSON"
        raise ValueError(msg)

    return json.JSONDecoder(parse_constant=refuse, parse_int=read_integer)
