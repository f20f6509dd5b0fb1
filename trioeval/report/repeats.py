"""The texts that a record of a row repeats, and the tokens that the store writes for them.

The id of a prompt is the digest of its label as a rule, and the variables of the test are those of the row.
Both have a token in a record that begins as records do; a token has the form of those in
`trioeval.report.phrases`.
"""

import hashlib
import json
import re

import attrs

LABEL_DIGEST, SAME_VARIABLES = r'"\u007ai"', r'"\u007av"'

_TEXT = r'"(?:[^"\\]++|\\.)*+"'  # possessive: a text has one end, so nothing is tried again
_BEGINNING = re.compile(
    rf'{{"id": ?{_TEXT}(?:, ?"task": ?{_TEXT})?, ?"testIdx": ?\d+, ?"promptIdx": ?\d+,'
    rf' ?"promptId": ?({_TEXT}), ?"provider": ?{{"id": ?{_TEXT}, ?"label": ?{_TEXT}}},'
    rf' ?"prompt": ?{{"raw": ?(?:null|{_TEXT}), ?"label": ?({_TEXT})}}, ?"vars": ?(?={{)'
)
"""A record up to its variables. Records that orjson does not write have spaces."""
_TEST = re.compile(
    rf', ?"testCase": ?{{(?:"case": ?{_TEXT}, ?)?"description": ?(?:null|{_TEXT}), ?"vars": ?'
)
"""The text between these and the variables of the test."""
_value_at = json.JSONDecoder().raw_decode


@attrs.frozen
class _Places:
    """The places of a record where texts are repeated."""

    prompt_id: slice
    label: str
    """The label of the prompt, as JSON."""
    variables: str
    """The variables of the row, as JSON."""
    test: int
    """The beginning of the variables of the test."""


def without_repeats(text: str) -> str:
    r"""Return the text of a record with tokens in place of repeated texts.

    Example:
        >>> text = (
        ...     '{"id":"","testIdx":0,"promptIdx":0,"promptId":"","provider":{"id":"","label":""},'
        ... )
        >>> text += '"prompt":{"raw":"","label":""},"vars":{"a":1},'
        >>> text += '"testCase":{"description":null,"vars":{"a":1}}}'
        >>> without_repeats(text)[-23:]
        'null,"vars":"\\u007av"}}'
    """
    if (places := _places(text)) is None:
        return text
    if text.startswith(places.variables, places.test):
        rest = text[places.test + len(places.variables) :]
        text = f"{text[: places.test]}{SAME_VARIABLES}{rest}"
    if text[places.prompt_id] == f'"{label_digest(json.loads(places.label))}"':
        text = _with_id(text, places, LABEL_DIGEST)
    return text


def with_repeats(text: str) -> str:
    """Return the text with the repeated texts again."""
    if LABEL_DIGEST not in text and SAME_VARIABLES not in text:
        return text
    if (places := _places(text)) is None:
        return text
    if text.startswith(SAME_VARIABLES, places.test):
        rest = text[places.test + len(SAME_VARIABLES) :]
        text = f"{text[: places.test]}{places.variables}{rest}"
    if text[places.prompt_id] == LABEL_DIGEST:
        text = _with_id(text, places, f'"{label_digest(json.loads(places.label))}"')
    return text


def label_digest(label: str) -> str:
    """Return the digest of the label of a prompt, which is the id of a prompt without an own one."""
    return hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()


def _with_id(text: str, places: _Places, prompt_id: str) -> str:
    return f"{text[: places.prompt_id.start]}{prompt_id}{text[places.prompt_id.stop :]}"


def _places(text: str) -> _Places | None:
    """Return the places of a record; None if it has another form."""
    if (head := _BEGINNING.match(text)) is None:
        return None
    try:
        _, end = _value_at(text, head.end())
    except ValueError:
        return None
    if (test := _TEST.match(text, end)) is None:
        return None
    return _Places(slice(*head.span(1)), head[2], text[head.end() : end], test.end())
