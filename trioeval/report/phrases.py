"""The phrases that the records of nearly all rows repeat, and the tokens that the store writes for them.

Six of ten characters of a short record are token counts that are all zero. A token is JSON, so that SQLite
reads a shortened record and finds everything else in it under the same names. It spells a printable character
by its number, which no encoder of records does: nothing that a user wrote is taken for a token.
"""

import re
from typing import Any

import attrs
import orjson

from trioeval.report.formats.json import compact
from trioeval.report.repeats import SAME_VARIABLES, with_repeats, without_repeats
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
    free_reply: str
    """Members of a reply without cost, counts and remarks."""
    free: str
    """Members of a row without cost and counts."""
    all_passed: str
    """Members of the verdict of a row that passed with the full score."""
    passed: str
    """Members of the verdict of an assertion that passed with the full score."""
    at_once: str
    """Members of a row with one call that did not wait."""


_NO_TOKENS = tokens_json(Usage(), 0)
_NO_COUNTS = compact(_NO_TOKENS)

_REPLY_COUNTS = compact(usage_json(Usage()))
_PLAIN_REPLY = '"finishReason":null,"isRefusal":false,"metadata":{}'

IN_FULL = Phrases(
    reply_counts=_REPLY_COUNTS,
    no_counts=_NO_COUNTS,
    no_details=f'"completionDetails":{compact(_NO_TOKENS["completionDetails"])}',
    nothing_spent=f'"namedScores":{{}},"tokensUsed":{_NO_COUNTS}',
    plain_test='"threshold":null,"options":{},"metadata":{}',
    plain_reply=_PLAIN_REPLY,
    success='"score":1.0,"namedScores":{},"failureReason":0,"error":null',
    free_reply=f'"cached":false,"cost":0.0,"tokenUsage":{_REPLY_COUNTS},{_PLAIN_REPLY}',
    free=f'"cost":0.0,"tokenUsage":{_REPLY_COUNTS}',
    all_passed='"pass":true,"score":1.0,"reason":"all assertions passed"',
    passed='"pass":true,"score":1.0',
    at_once='"attempts":1,"waitMs":0.0',
)
SHORT = Phrases(
    reply_counts=r'"\u007ac"',
    no_counts=r'"\u007an"',
    no_details=r'"\u007ad":0',
    nothing_spent=r'"\u007au":0',
    plain_test=r'"\u007at":0',
    plain_reply=r'"\u007ar":0',
    success=r'"\u007as":0',
    free_reply=r'"\u007af":0',
    free=r'"\u007aw":0',
    all_passed=r'"\u007aa":0',
    passed=r'"\u007ap":0',
    at_once=r'"\u007ao":0',
)

_TOKENS: dict[str, str] = dict(zip(attrs.astuple(IN_FULL), attrs.astuple(SHORT), strict=True))
# A longer phrase may contain shorter ones. Replies of judges have phrases of verdicts as well: queries would
# find their tokens.
_OF_VERDICTS = {IN_FULL.all_passed, IN_FULL.passed, IN_FULL.at_once}
_ANY_PHRASE = re.compile(
    "|".join(map(re.escape, sorted(_TOKENS.keys() - _OF_VERDICTS, key=len, reverse=True)))
)
_PHRASES = {token: phrase for phrase, token in _TOKENS.items()}
_ANY_TOKEN = re.compile("|".join(map(re.escape, _PHRASES)))


def shortened(text: str) -> str:
    r"""Return the text of a record with tokens in place of phrases, as far as users do not write them.

    Example:
        >>> shortened('{"threshold":null,"options":{},"metadata":{},"vars":{}}')
        '{"\\u007at":0,"vars":{}}'
    """
    return _ANY_PHRASE.sub(_token, without_repeats(text))


def in_full(text: str) -> str:
    r"""Return the text with the phrases again.

    Example:
        >>> in_full('{"\\u007at":0,"vars":{}}')
        '{"threshold":null,"options":{},"metadata":{},"vars":{}}'
    """
    return _ANY_TOKEN.sub(_phrase, with_repeats(text))


def _token(phrase: re.Match[str]) -> str:
    return _TOKENS[phrase[0]]


def _phrase(token: re.Match[str]) -> str:
    return _PHRASES[token[0]]


# The members of a shortened record that a comparison of runs reads, without its phrases.


_MARK, _NUL = r'"\u007a', r'"\u0000'
"""The beginning of tokens, and another one that parsers tell apart from all texts of users: no record that is
not compressed has this character."""
_ANY_NUL = _NUL[1:]


def _name(token: str) -> str:
    """Return the text of a token as parsers of the other beginning read it."""
    return token.replace(_MARK, "\0").split('"')[0]


_SUCCESS, _NOTHING_SPENT = _name(SHORT.success), _name(SHORT.nothing_spent)
_SAME_VARIABLES = _name(SAME_VARIABLES)


def compared_members(text: str) -> dict[str, Any] | None:
    r"""Return a shortened record, parsed fast; None if it has to be parsed in full to be exact.

    Of the members that may be part of a phrase it has only `score`, the `namedScores` of `gradingResult`, the
    variables and metadata of the test, and the output. Whole numbers beyond 64 bits are rounded.

    Example:
        >>> compared_members('{"\\u007as":0,"vars":{"a":1}}')
        {'vars': {'a': 1}, 'score': 1.0}
    """
    if _ANY_NUL in text:
        return None
    try:
        found = orjson.loads(text.replace(_MARK, _NUL))
    except ValueError:  # numbers and texts that only Python reads, or a damaged record
        return None
    if type(found) is not dict:
        return None
    test, response = _object(found.get("testCase")), _object(found.get("response"))
    if test.get("vars") == _SAME_VARIABLES:
        test["vars"] = found["vars"]
    by_users = found.get("vars"), test.get("vars"), test.get("metadata"), response.get("output")
    if _ANY_NUL.encode() in orjson.dumps(by_users):  # they hold a phrase as well
        return None
    if found.pop(_SUCCESS, None) is not None:
        found["score"] = 1.0
    verdict = _object(found.get("gradingResult"))
    if verdict.pop(_NOTHING_SPENT, None) is not None:
        verdict["namedScores"] = {}
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}
