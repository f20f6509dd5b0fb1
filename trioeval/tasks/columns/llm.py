"""Cells that a model writes: text, or data of a JSON schema."""

import functools
import json
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.datasets.types import ColumnType
from trioeval.grading.outside import Answer
from trioeval.grading.schemas import Rules, rules_of
from trioeval.grading.strict_reading import UnusableReplyError
from trioeval.kernel import Calls
from trioeval.providers.abilities import schema_options
from trioeval.providers.config import to_snake
from trioeval.suite.column_models import Asking, LlmColumn
from trioeval.suite.column_producers import output_types
from trioeval.tasks.columns.conversations import Cells, Conversations, Said
from trioeval.tasks.columns.data_replies import read_data
from trioeval.tasks.columns.making import CellOrder
from trioeval.tasks.columns.prompts import PromptTemplate, with_instruction

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
