"""Parsers for judge replies that are not text: vectors, scores of labels, flags of categories.

The providers of known services parse the services' own forms; the user's programs, functions and servers
return JSON, some of them as text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.grading.services import Flag
from trioeval.providers import Reply
from trioeval.text import parse_json


def read_vector(output: Any) -> Sequence[float] | None:
    """Return an output as a vector; None if it is not one.

    Example:
        >>> read_vector([1, 0.5]), read_vector('{"embedding": [1, 2]}'), read_vector("word")
        ((1.0, 0.5), (1.0, 2.0), None)
    """
    found = _data(output)
    if isinstance(found, Mapping):
        found = found.get("embedding")
    if not isinstance(found, list | tuple) or not found or not all(map(_is_number, found)):
        return None
    return tuple(map(float, found))


def read_labels(output: Any) -> Mapping[str, float] | None:
    """Return the score of each label; None without any.

    Example:
        >>> read_labels([[{"label": "joy", "score": 0.9}]]), read_labels({"joy": 0.9})
        ({'joy': 0.9}, {'joy': 0.9})
    """
    found = _data(output)
    if isinstance(found, Mapping) and isinstance(found.get("classification"), Mapping):
        found = found["classification"]
    while isinstance(found, list | tuple) and len(found) == 1 and isinstance(found[0], list):
        (found,) = found
    if isinstance(found, list | tuple):
        if not all(isinstance(one, Mapping) and {"label", "score"} <= one.keys() for one in found):
            return None
        found = {str(one["label"]): one["score"] for one in found}
    if not isinstance(found, Mapping) or not all(map(_is_number, found.values())):
        return None
    return {str(label): float(score) for label, score in found.items()}


def read_flags(reply: Reply) -> Sequence[Flag] | None:
    """Return the categories that a moderation found; None if the reply is not a moderation.

    Example:
        >>> read_flags(Reply(output={"categories": {"hate": True, "harm": False}}))
        (Flag(category='hate', description='', confidence=None),)
        >>> read_flags(Reply(output={"flags": [{"code": "hate", "confidence": 0.9}]}))
        (Flag(category='hate', description='', confidence=0.9),)
    """
    found = _data(reply.output)
    if "flags" in reply.metadata:
        return _flags(reply.metadata["flags"])
    if isinstance(found, Mapping) and "flags" in found:
        return _flags(found["flags"])
    if isinstance(found, list | tuple):
        return _flags(found)
    categories = found.get("categories") if isinstance(found, Mapping) else None
    if not isinstance(categories, Mapping):
        return None
    scores = found.get("category_scores")
    scores = scores if isinstance(scores, Mapping) else {}
    return tuple(
        Flag(str(name), confidence=_confidence(scores.get(name)))
        for name, holds in categories.items()
        if holds is True
    )


def _flags(value: Any) -> Sequence[Flag] | None:
    if not isinstance(value, list | tuple):
        return None
    flags = []
    for one in value:
        if not isinstance(one, Mapping) or not isinstance(one.get("code"), str):
            return None
        description = one.get("description")
        flags.append(
            Flag(
                one["code"],
                description if isinstance(description, str) else "",
                _confidence(one.get("confidence")),
            )
        )
    return tuple(flags)


def _data(output: Any) -> Any:
    if not isinstance(output, str):
        return output
    try:
        return parse_json(output)
    except ValueError:
        return output


def _confidence(value: Any) -> float | None:
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
