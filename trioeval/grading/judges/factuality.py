"""Whether the facts of an output agree with those of an answer that is known to be right."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.grading.judges.shapes import object_of, prompt_of, text_kind
from trioeval.grading.kind import Finding, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Answer, Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.reply_json import objects_in
from trioeval.grading.strict_reading import (
    UnusableReplyError,
    ask,
    clamped,
    names_of,
    reason_of,
    told,
)
from trioeval.grading.subject import Subject
from trioeval.grading.text import quote

SCHEMA = object_of(
    {"reason": {"type": "string"}, "category": {"type": "string", "enum": list("ABCDE")}}
)

_WANTED = 'one JSON object {"reason": text, "category": "A", "B", "C", "D" or "E"}'

_NAMES: Mapping[str, str] = {
    "A": "subset",
    "B": "superset",
    "C": "agree",
    "D": "disagree",
    "E": "differButFactual",
}
"""What the test's options call the categories."""

CATEGORIES: Sequence[str] = tuple(_NAMES.values())
"""Those that the options may give scores."""

_MEANINGS: Mapping[str, str] = {
    "A": "the output states a part of the facts and contradicts none",
    "B": "the output states the facts and more, and contradicts none",
    "C": "the output states the same facts",
    "D": "the output contradicts the facts",
    "E": "the output differs in nothing that matters for the facts",
}

_LETTER = re.compile(r"(?<!\w)\(?([A-Ea-e])\)")


def read_category(answer: Answer, *, lenient: bool = False) -> tuple[str, str]:
    """The category in a reply, and the reason: an object, or a letter in parentheses.

    Raises:
        UnusableReplyError: There is none, or several that differ.

    Example:
        >>> read_category(Answer("(B) It says more.", "(B) It says more."))
        ('B', 'It says more.')
    """
    found = next(iter(objects_in(answer)), {})
    if isinstance(category := found.get("category"), str) and category:
        letter = category.strip().upper()
        if letter not in _NAMES:
            msg = f"its category must be A, B, C, D or E, got {quote(category)}"
            raise UnusableReplyError(msg)
        return letter, reason_of(found, _MEANINGS[letter], lenient=lenient)
    if "category" in found and not lenient:
        msg = f"its category must be A, B, C, D or E, got {quote(category)}"
        raise UnusableReplyError(msg)
    letters = [match.upper() for match in _LETTER.findall(answer.text)]
    if not letters:
        msg = "it names no category"
        raise UnusableReplyError(msg)
    if len(set(letters)) > 1 and not lenient:
        msg = f"it names several categories: {', '.join(dict.fromkeys(letters))}"
        raise UnusableReplyError(msg)
    return letters[0], answer.text.partition(")")[2].strip() or _MEANINGS[letters[0]]


async def _judge(subject: Subject, value: Any, _assertion: Assertion, outside: Outside) -> Finding:
    names = names_of(input=prompt_of(subject), ideal=value, completion=subject.text)
    read = await ask(
        outside,
        outside.grader.render(own_prompt("factuality"), names),
        functools.partial(read_category, lenient=outside.lenient),
        wanted=_WANTED,
        schema=SCHEMA,
    )
    letter, reason = read.value
    own = outside.factuality.get(_NAMES[letter])
    score = float(letter != "D") if own is None else float(own)
    return Finding(
        score > 0,
        reason,
        score=score,
        negated=clamped(1 - score),
        metadata={**told(read), "category": letter},
    )


KINDS: Kinds = {
    "factuality": text_kind(_judge),
    "model-graded-factuality": text_kind(_judge),
}
"""By name."""
