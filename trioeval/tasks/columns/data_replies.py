"""Reads the data of a JSON schema in what a model wrote."""

import re
from collections.abc import Iterator
from typing import Any

from trioeval.datasets.types import ColumnType
from trioeval.errors import GradingError
from trioeval.grading.outside import Answer
from trioeval.grading.reply_json import objects_in
from trioeval.grading.schemas import Rules
from trioeval.grading.strict_reading import UnusableReplyError
from trioeval.grading.text import parse_json
from trioeval.tasks.columns.making import CellError
from trioeval.tasks.columns.reading import as_column

_READ = 2_000_000
"""Characters of a reply that is JSON."""
_SEARCHED = 100_000
"""Characters of an object in prose, at most; see `objects_in`."""

_FENCE = re.compile(r"^[ \t]*```[a-zA-Z0-9]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def read_data(answer: Answer, rules: Rules, kind: ColumnType = "json") -> Any:
    r"""The first value in a reply that is valid: all of it, what stands in fences, objects in prose.

    Where text is valid, a reply that is no JSON is that text. Of a reply that was cut off only objects and
    lists count: who knows how a number or a text went on.

    Args:
        answer: The reply.
        rules: Of the schema.
        kind: Of the column.

    Raises:
        UnusableReplyError: There is none; says what is wrong with the first one.

    Example:
        >>> from trioeval.grading.schemas import rules_of
        >>> reply = "Here it is:\n```json\n[1, 2]\n```"
        >>> read_data(Answer(reply, reply), rules_of({"type": "array"}))
        [1, 2]
    """
    found = list(_values(answer))
    told: list[str] = []
    try:
        for value in found:
            if not rules.hold(value):
                continue
            try:
                return _of_column(value, kind, answer)
            except UnusableReplyError as error:
                told.append(str(error))
        if isinstance(answer.output, str) and rules.hold(answer.text.strip()):
            return _of_column(answer.text.strip(), kind, answer)
        faults = told or (rules.faults(found[0]) if found else [_nothing_in(answer)])
    except GradingError as error:
        raise UnusableReplyError(str(error)) from error
    raise UnusableReplyError("; ".join(faults))


def _of_column(value: Any, kind: ColumnType, answer: Answer) -> Any:
    if answer.is_cut_off and not isinstance(value, dict | list):
        raise UnusableReplyError("it is not complete")
    try:
        return as_column(value, kind)
    except CellError as error:
        raise UnusableReplyError(str(error)) from None


def _nothing_in(answer: Answer) -> str:
    size = len(answer.text)
    if size <= _SEARCHED:
        return "it holds no JSON"
    return (
        f"it has {size:,} characters, and is no JSON of up to {_READ:,}; in prose, JSON of up to "
        f"{_SEARCHED:,} is found"
    )


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
