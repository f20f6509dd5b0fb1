"""Reads the data of a JSON schema in what a model wrote."""

import re
from collections.abc import Iterator
from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.outside import Answer
from trioeval.grading.reply_json import objects_in
from trioeval.grading.schemas import Rules
from trioeval.grading.strict_reading import UnusableReplyError
from trioeval.grading.text import parse_json

_READ = 200_000
"""Characters of a reply that are looked at."""

_FENCE = re.compile(r"^[ \t]*```[a-zA-Z0-9]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def read_data(answer: Answer, rules: Rules) -> Any:
    r"""The first value in a reply that is valid: all of it, what stands in fences, objects in prose.

    Where text is valid, a reply that is no JSON is that text.

    Raises:
        UnusableReplyError: There is none; says what is wrong with the first one.

    Example:
        >>> from trioeval.grading.schemas import rules_of
        >>> reply = "Here it is:\n```json\n[1, 2]\n```"
        >>> read_data(Answer(reply, reply), rules_of({"type": "array"}))
        [1, 2]
    """
    found = list(_values(answer))
    try:
        for value in found:
            if rules.hold(value):
                return value
        if isinstance(answer.output, str) and rules.hold(answer.text.strip()):
            return answer.text.strip()
        faults = rules.faults(found[0]) if found else ["it holds no JSON"]
    except GradingError as error:
        raise UnusableReplyError(str(error)) from error
    raise UnusableReplyError("; ".join(faults))


def _values(answer: Answer) -> Iterator[Any]:
    if not isinstance(answer.output, str):
        yield answer.output
        return
    text = answer.text[:_READ].strip()
    for part in (text, *_FENCE.findall(text)):
        try:
            yield parse_json(part)
        except ValueError:
            continue
    yield from objects_in(answer)
