"""Cells that a model writes: text, or data of a JSON schema."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.makers.base import CellError, CellOrder
from trioeval.columns.makers.conversations import (
    Cells,
    Conversations,
    PromptTemplate,
    Said,
    with_instruction,
)
from trioeval.columns.model import Asking, EmbeddingColumn, LlmColumn
from trioeval.columns.reply_json import as_column
from trioeval.columns.types import output_types
from trioeval.errors import GradingError, TemplateError
from trioeval.evaluation.grader_replies import read_vector
from trioeval.grading.reply_json import objects_in
from trioeval.grading.schemas import Rules, rules_of
from trioeval.grading.services import Answer
from trioeval.grading.strict_reading import UnusableReplyError
from trioeval.kernel import Calls
from trioeval.providers.abilities import schema_options
from trioeval.providers.config import to_snake
from trioeval.text import parse_json, quote

# Reads the data of a JSON schema in what a model wrote.


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


# Cells that hold the vector of a text.
#
# Equal texts have equal vectors: rows share what the cache has, and a call that is under way.


@attrs.frozen(eq=False)
class EmbeddingMaker:
    """Makes the cells of one column; see `CellMaker`."""

    column: EmbeddingColumn
    number: int
    """The place of the column among the columns, ≥ 0."""
    cells: Cells

    @property
    def lane(self) -> str:
        """Where its calls are made."""
        return self.cells.asker.lanes[self.column.provider]

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:
        """The vector of one cell.

        Raises:
            CallError: The call failed.
            CellError: The text cannot be filled in, or is empty; or there is no vector.
        """
        column, asker = self.column, self.cells.asker
        try:
            text = self.cells.fill(order)(column.text)
        except TemplateError as error:
            raise CellError(f"the text cannot be filled in: {error}") from error
        if not text.strip():
            msg = "the text is empty, and has no vector"
            raise CellError(msg)
        request = self.cells.request(order, self.number, text, options=column.config)
        inquiry = asker.inquiry(order.row, "cell", column.provider, request, column.name)
        paid = await asker.ask(inquiry, calls, order.tally)
        vector = read_vector(paid.reply.output)
        if vector is None:
            asker.reject(inquiry)
            got = quote(paid.reply.output)
            name = asker.names[column.provider]
            msg = f"{name} gave no vector, which is a list of numbers, but {got}"
            raise CellError(msg)
        return {column.name: list(vector)}


_FORMS = frozenset({"output_format", "response_format", "text"})
"""Keys of configs that say how a model is to answer."""


@attrs.frozen(eq=False)
class LlmMaker:
    """Makes the cells of one column; see `CellMaker`.

    The model is held to a schema by its service where that takes schemas. Elsewhere the prompt says it.
    """

    column: LlmColumn
    conversations: Conversations
    rules: Rules | None = None
    """Of the schema."""
    kind: ColumnType = "text"
    """Of the column."""
    instruction: str | None = None
    """What the prompt says of the schema."""

    @classmethod
    def of(cls, column: LlmColumn, number: int, cells: Cells) -> "LlmMaker":
        """The maker of a column.

        Args:
            column: As the suite has it.
            number: Its place among the columns, ≥ 0.
            cells: What it asks with.

        Raises:
            ValueError: Its schema is not valid.
        """
        asking, schema = column.asking, column.schema
        options: Mapping[str, Any] = asking.config
        instruction = None
        if schema is not None:
            asked_for = asked_by_schema(cells, asking, schema)
            options = {**options, **asked_for}
            instruction = None if asked_for else _instruction(schema)
        prompt = PromptTemplate.of(asking.prompt)
        return cls(
            column,
            Conversations(cells, column.name, number, asking, prompt, options),
            None if schema is None else rules_of(dict(schema)),
            output_types(column)[column.name],
            instruction,
        )

    @property
    def lane(self) -> str:
        """Where its calls are made."""
        return self.conversations.lane

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:
        """The value of one cell, and its side effects.

        Raises:
            CallError: A call failed.
            CellError: The prompt cannot be filled in, or no reply can be used.
        """
        messages = self.conversations.messages(order)
        if self.instruction is not None:
            messages = with_instruction(messages, self.instruction)
        rules = self.rules
        read = _text if rules is None else functools.partial(read_data, rules=rules, kind=self.kind)
        wanted = "text" if rules is None else "JSON of the schema"
        said = await self.conversations.ask(order, calls, messages, read, wanted=wanted)
        return with_side_effects(self.column.name, said, self.column.reasoning, self.column.trace)


def asked_by_schema(cells: Cells, asking: Asking, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options of calls that ask a service for data of a schema; empty where the prompt has to.

    Services want an object at the root.
    """
    says = any(to_snake(name) in _FORMS for name in asking.config)
    if says or schema.get("type") != "object":
        return {}
    settings = cells.asker.providers[asking.provider].spec.settings
    return schema_options(settings, schema, name="answer")


def with_side_effects(
    name: str, said: Said[Any], reasoning: str | None, trace: str | None
) -> dict[str, Any]:
    """The values of a cell that was asked for, by column.

    Args:
        name: Its column.
        said: What came of asking.
        reasoning: The column for what the model thought; None if there is none.
        trace: The column for the conversation, likewise.
    """
    found = {name: said.value}
    if reasoning is not None:
        found[reasoning] = said.reasoning
    if trace is not None:
        found[trace] = [dict(message) for message in said.messages]
    return found


def _text(answer: Answer) -> str:
    if answer.is_cut_off:
        raise UnusableReplyError("it is not complete")
    return answer.text


def _instruction(schema: Mapping[str, Any]) -> str:
    text = json.dumps(schema, ensure_ascii=False)
    return f"Answer with JSON of this schema and nothing else:\n{text}"
