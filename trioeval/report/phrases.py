"""The phrases that the records of nearly all rows repeat, and the tokens that the store writes for them.

Six of ten characters of a short record are token counts that are all zero. A token is JSON, so that SQLite
reads a shortened record and finds everything else in it under the same names. It spells a printable character
by its number, which no encoder of records does: nothing that a user wrote is taken for a token.
"""

import json
import re
from typing import Any

import attrs
import orjson

from trioeval.report.formats.json import compact
from trioeval.report.usage import usage_json
from trioeval.usage import Usage, tokens_json


@attrs.frozen
class Phrases:
    """The texts of one spelling: as they are, or as tokens."""

    reply_counts: str
    """The usage of a reply without tokens."""
    no_counts: str
    """The usage of judges that were not called."""
    no_details: str
    """Members of a usage, without details."""
    nothing_spent: str
    """Members of a verdict, without metrics and judges."""
    plain_test: str
    """Members of a test without settings."""
    plain_reply: str
    """Members of a reply without remarks."""
    success: str
    """Members of a row that passed with the full score."""


_NO_TOKENS = tokens_json(Usage(), 0)
_NO_COUNTS = compact(_NO_TOKENS)

IN_FULL = Phrases(
    reply_counts=compact(usage_json(Usage())),
    no_counts=_NO_COUNTS,
    no_details=f'"completionDetails":{compact(_NO_TOKENS["completionDetails"])}',
    nothing_spent=f'"namedScores":{{}},"tokensUsed":{_NO_COUNTS}',
    plain_test='"threshold":null,"options":{},"metadata":{}',
    plain_reply='"finishReason":null,"isRefusal":false,"metadata":{}',
    success='"score":1.0,"namedScores":{},"failureReason":0,"error":null',
)
SHORT = Phrases(
    reply_counts=r'"\u007ac"',
    no_counts=r'"\u007an"',
    no_details=r'"\u007ad":0',
    nothing_spent=r'"\u007au":0',
    plain_test=r'"\u007at":0',
    plain_reply=r'"\u007ar":0',
    success=r'"\u007as":0',
)

_TOKENS: dict[str, str] = dict(zip(attrs.astuple(IN_FULL), attrs.astuple(SHORT), strict=True))
# A longer phrase may contain shorter ones.
_LONGEST_FIRST = sorted(_TOKENS.items(), key=lambda one: -len(one[0]))
_PHRASES = {token: phrase for phrase, token in _TOKENS.items()}
_ANY_TOKEN = re.compile("|".join(map(re.escape, _PHRASES)))


def shortened(text: str) -> str:
    r"""Return the text of a record with tokens in place of phrases.

    Example:
        >>> shortened('{"threshold":null,"options":{},"metadata":{},"vars":{}}')
        '{"\\u007at":0,"vars":{}}'
    """
    for phrase, token in _LONGEST_FIRST:
        text = text.replace(phrase, token)
    return text


def in_full(text: str) -> str:
    r"""Return the text with the phrases again.

    Example:
        >>> in_full('{"\\u007at":0,"vars":{}}')
        '{"threshold":null,"options":{},"metadata":{},"vars":{}}'
    """
    return _ANY_TOKEN.sub(_phrase, text)


def _phrase(token: re.Match[str]) -> str:
    return _PHRASES[token[0]]


# Shortened records, parsed without their phrases, for programs that read very many.


_MARK, _NUL = r'"\u007a', r'"\u0000'
"""The beginning of tokens, and another one that parsers tell apart from all texts of users: no record that is
not compressed has this character."""
_ANY_NUL = _NUL[1:].encode()
_MEMBERS: dict[str, dict[str, Any]] = {
    token.replace(_MARK, "\0").split('"')[0]: json.loads(f"{{{phrase}}}")
    for token, phrase in _PHRASES.items()
    if phrase.startswith('"')
}
"""The members that phrases stand for, by the names of their tokens."""


def parsed_short(text: str) -> dict[str, Any] | None:
    r"""Return a shortened record, parsed fast; None if it has to be parsed in full to be exact.

    It has its own members, those of `gradingResult`, `vars`, `testCase.vars`, `testCase.metadata` and
    `response.output`, but no token counts. Whole numbers beyond 64 bits are rounded.

    Example:
        >>> parsed_short('{"\\u007as":0}')
        {'score': 1.0, 'namedScores': {}, 'failureReason': 0, 'error': None}
    """
    try:
        found = orjson.loads(text.replace(_MARK, _NUL))
    except ValueError:  # numbers and texts that only Python reads, or a damaged record
        return None
    if type(found) is not dict:
        return None
    test, response = _object(found.get("testCase")), _object(found.get("response"))
    by_users = found.get("vars"), test.get("vars"), test.get("metadata"), response.get("output")
    if _ANY_NUL in orjson.dumps(by_users):  # they hold a phrase as well
        return None
    for part in (found, _object(found.get("gradingResult"))):
        if not _MEMBERS.keys().isdisjoint(part):
            for name in _MEMBERS.keys() & part:
                del part[name]
                part.update(_MEMBERS[name])
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}
