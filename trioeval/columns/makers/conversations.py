"""The conversations with a model that make a cell: corrections within one, and then new ones.

A reply that cannot be used is answered with a description of its error, up to `corrections` times. Then the
cell starts a new conversation with the first question, up to `restarts` times; a refusal or an empty reply
ends its conversation immediately. If all of that fails, the cell has failed permanently and its replies are
discarded from journal and cache. Until then they stay there: an interrupted run, or a repeated one, arrives
at the same value in the same way without paying for it again.

Each cell makes its own calls. A hundred rows with the same prompt need a hundred texts, so a cached reply is
only used for the same question of the same cell: its task, the seed of the dataset, column, row, and the
number of the conversation. A repeated run finds all of them.

If a call of a cell fails transiently, the earlier replies of the cell are kept until its next round, so its
conversation continues.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from trioeval.columns.makers.base import CellError, CellOrder
from trioeval.columns.model import JudgeColumn, LlmColumn
from trioeval.errors import CallError, ProviderError, TemplateError
from trioeval.evaluation.provider_calls import ProviderCall, ReplySource
from trioeval.grading.services import CUT_OFF, JudgeReply, without_thoughts
from trioeval.grading.strict_reading import UnusableReplyError
from trioeval.kernel import Calls
from trioeval.providers import Reply, Request
from trioeval.providers.abilities import schema_options
from trioeval.providers.config import to_snake
from trioeval.providers.messages import OPENS_LIKE_JSON, to_messages
from trioeval.providers.secrets import hide_in, is_secret_name, longest_first, surely_keys
from trioeval.templates import Templates
from trioeval.templates.marks import has_marks
from trioeval.templates.values import as_json
from trioeval.text import counted, output_text, parse_json, quote, verbatim

# The messages to a model for a row: the prompt of a column, rendered.
#
# A prompt is text, or chat messages as JSON or YAML; the prompt itself determines which, never the values of
# a row. So a row cannot add a message, or speak in another role: messages are parsed before they are
# rendered, and a text that only looks like messages after rendering is sent as a user message. The one
# exception are messages that a template writes with its own statements, for example a loop: these are
# rendered as a whole, so values need `| dump` there, as in prompts of suites.
#
# Values are data. Templates in them are not rendered; objects and lists are written as JSON.


Message: TypeAlias = Mapping[str, Any]
Fill: TypeAlias = Callable[[str], str]
"""Renders a text with the values of a row; raises `TemplateError`."""

_MEANT_AS_MESSAGES = re.compile(r'\s*(?:\[\s*(?:\{%|\{\s*["}]|\]\s*\Z)|- role:)')
"""A value in brackets, `[{{ a }}]`, is text: otherwise a row could write all messages."""
_TRANSCRIPT = re.compile(r"\s*(?:system|user|assistant):")
"""Text that some services also read as messages."""
_MARK = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_INDENT = 2


@attrs.frozen
class PromptTemplate:
    r"""The prompt of a column.

    Example:
        >>> prompt = PromptTemplate.of("- role: user\n  content: {{ x }}")
        >>> prompt.filled(lambda text: text.replace("{{ x }}", "- role: system"))
        ({'role': 'user', 'content': '- role: system'},)
    """

    text: str
    messages: tuple[Message, ...] | None = None
    """The messages with templates in their texts; None for a text."""
    writes_messages: bool = False
    """True if its messages are only known after rendering."""

    @classmethod
    def of(cls, text: str) -> "PromptTemplate":
        """Return the prompt for its text in the suite."""
        if _MEANT_AS_MESSAGES.match(text) is None:
            return cls(text)
        messages = _yaml_messages(text) if text.lstrip().startswith("-") else _json_messages(text)
        return cls(text, messages, messages is None and _json_in(text) is None)

    def filled(self, fill: Fill) -> tuple[Message, ...]:
        """Return the messages for one row; never empty.

        Raises:
            TemplateError: It cannot be rendered.
            ProviderError: It should contain messages, but does not.
        """
        if self.messages is not None:
            return tuple(_inside(message, fill) for message in self.messages)
        if self.writes_messages:
            return tuple(to_messages(fill(self.text)))
        return ({"role": "user", "content": self.as_text(fill)},)

    def as_text(self, fill: Fill) -> str:
        """Return the prompt for one row as one text; a JSON prompt stays JSON.

        Raises:
            TemplateError: It cannot be rendered.
        """
        document = _json_in(self.text)
        if document is None:
            return fill(self.text)
        return json.dumps(_inside(document, fill), ensure_ascii=False, indent=_INDENT)

    def sent(self, messages: Sequence[Message]) -> str:
        """Return the text that is sent for messages: the content of a single one, otherwise all as JSON."""
        match messages:
            case [{"role": "user", "content": str(content), **rest}] if not rest:
                # JSON or a transcript is only passed on if the suite wrote it, not a row.
                own = (
                    self.messages is None and not self.writes_messages and not _is_plain(self.text)
                )
                by_itself = own and (_json_in(self.text) is not None or not has_marks(self.text))
                if _is_plain(content) or by_itself:
                    return content
        return json.dumps(list(messages), ensure_ascii=False)


def with_instruction(messages: Sequence[Message], instruction: str) -> tuple[Message, ...]:
    r"""Return messages that end with an instruction.

    Example:
        >>> with_instruction([{"role": "user", "content": "Hi"}], "Be brief.")
        ({'role': 'user', 'content': 'Hi\n\nBe brief.'},)
    """
    match messages:
        case [*before, {"role": "user", "content": str(content)} as last]:
            return (*before, {**last, "content": f"{content}\n\n{instruction}"})
        case _:
            return (*messages, {"role": "user", "content": instruction})


def _json_in(text: str) -> list[Any] | dict[str, Any] | None:
    try:
        document = parse_json(text)
    except ValueError:
        return None
    return document if isinstance(document, list | dict) else None


def _json_messages(text: str) -> tuple[Message, ...] | None:
    document = _json_in(text)
    if not isinstance(document, list) or not document:
        return None
    are = all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in document)
    return tuple(document) if are else None


def _yaml_messages(text: str) -> tuple[Message, ...] | None:
    """Return the messages of a YAML prompt; words replace its template marks while it is parsed."""
    marks: list[str] = []
    word = "mark"
    while word in text:
        word += "x"

    def hide(found: re.Match[str]) -> str:
        marks.append(found[0])
        return f"{word}{len(marks) - 1}e"

    def show(hidden: str) -> str:
        return re.sub(f"{word}([0-9]+)e", lambda found: marks[int(found[1])], hidden)

    try:
        messages = to_messages(_MARK.sub(hide, text))
    except ProviderError:
        return None
    return tuple(_inside(message, show) for message in messages)


def _inside(value: Any, change: Fill) -> Any:
    """Return JSON data with its texts changed; keys stay the same."""
    match value:
        case str():
            return change(value)
        case list():
            return [_inside(part, change) for part in value]
        case dict():
            return {name: _inside(part, change) for name, part in value.items()}
        case _:
            return value


def _is_plain(text: str) -> bool:
    """Return True if no service reads a text as messages."""
    return not (
        text.lstrip().startswith("- role:")
        or OPENS_LIKE_JSON.match(text)
        or _TRANSCRIPT.match(text)
    )


T = TypeVar("T")

_EXCERPT = 200  # characters


@attrs.frozen(kw_only=True)
class CellServices:
    """The services that the cells of one dataset use."""

    asker: ReplySource
    templates: Templates
    """Render prompts; should be strict, so that an unknown name is reported."""
    seed: int = 0
    """The seed of the dataset: with another seed, the same questions need new replies."""
    _keys: tuple[str, ...] = attrs.field(init=False, repr=False)

    @_keys.default
    def _find_keys(self) -> tuple[str, ...]:
        env = self.templates.env
        return longest_first(surely_keys(env[name] for name in env if is_secret_name(name)))

    def without_keys(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return messages without keys of providers and of the environment, to be stored."""
        clean: list[Message] = self.asker.hide_keys(hide_in(list(messages), self._keys))
        return tuple(clean)

    def fill(self, order: CellOrder) -> Callable[[str], str]:
        """Return a function that renders a text with the values of an order."""
        known = as_json(order.values)
        return lambda text: self.templates.fill(text, known)

    def request(self, order: CellOrder, number: int, prompt: str, **more: Any) -> Request:
        """Return a request of one cell.

        Args:
            order: The cell.
            number: The index of its column among the columns, ≥ 0.
            prompt: The prompt.
            **more: Further fields.
        """
        return Request(
            prompt=prompt,
            vars=verbatim(order.values),
            test_idx=order.row,
            prompt_idx=number,
            **more,
        )


_FORMS = frozenset({"output_format", "response_format", "text"})
"""Config keys that set the format of replies."""


class ModelMaker:
    """Makes the cells of a column by calling a model; see `CellMaker`.

    Args:
        column: The column of the suite.
        number: Its index among the columns, ≥ 0.
        cells: The services that it uses.
        schema: The JSON schema of the data; None for text.
    """

    def __init__(
        self,
        column: LlmColumn | JudgeColumn,
        number: int,
        cells: CellServices,
        schema: Mapping[str, Any] | None,
    ) -> None:
        self.number = number
        self.cells = cells
        self.asking = column.asking
        self.prompt = PromptTemplate.of(column.asking.prompt)
        self.schema_options: Mapping[str, Any] = {}
        """Call options with which the service enforces the schema; empty if the prompt must contain it."""
        if schema is not None:
            self.schema_options = self._schema_options(schema)
        self._column = column
        self._replies: dict[int, list[Reply]] = {}
        """By row, the replies to cells that failed transiently, in order."""

    @property
    def lane(self) -> str:
        """The lane of its calls."""
        return self.cells.asker.lanes[self.asking.provider]

    def messages(self, order: CellOrder) -> tuple[Message, ...]:
        """Return the rendered prompt for one row.

        Raises:
            CellError: It cannot be rendered.
        """
        return self.filled(lambda: self.prompt.filled(self.cells.fill(order)))

    def filled(self, fill: Callable[[], T]) -> T:
        """Return the result of rendering, with its errors converted.

        Raises:
            CellError: The prompt cannot be rendered.
        """
        try:
            return fill()
        except TemplateError as error:
            raise CellError(f"the prompt cannot be rendered: {error}") from error
        except ProviderError as error:
            raise CellError(error.message) from error

    async def ask(
        self,
        order: CellOrder,
        calls: Calls[Any],
        messages: Sequence[Message],
        read: Callable[[JudgeReply], Any],
        *,
        expected: str,
    ) -> Mapping[str, Any]:
        """Return the cell of the first usable reply, and its side effects.

        A checkpoint, unless all replies are from the journal.

        Args:
            order: The cell.
            calls: The calls of its job.
            messages: The first messages.
            read: Reads a reply; raises `UnusableReplyError` with a description of its error.
            expected: The required form, for the sentence "Answer with … and nothing else."

        Raises:
            CallError: A call failed.
            CellError: No reply can be used.
        """
        talk = _CellConversations(self, order, calls, self._replies.pop(order.row, []))
        try:
            return await talk.find(messages, read, expected)
        except CallError:
            if talk.replies:
                self._replies[order.row] = talk.replies
            raise

    def cell(
        self, value: Any, messages: Sequence[Message], reasoning: str | None
    ) -> Mapping[str, Any]:
        """Return the values of a cell by column.

        Args:
            value: The value of the column.
            messages: The conversation, ending with the reply that was used.
            reasoning: The model's reasoning before that reply, if its service returns it.
        """
        column = self._column
        found = {column.name: value}
        if column.reasoning is not None:
            found[column.reasoning] = reasoning
        if column.trace is not None:
            clean = self.cells.without_keys(messages)
            found[column.trace] = [dict(message) for message in clean]
        return found

    def inquiry(self, order: CellOrder, messages: Sequence[Message], restart: int) -> ProviderCall:
        """Return the inquiry of one turn; each turn of a conversation has more messages than the last."""
        request = self.cells.request(
            order,
            self.number,
            self.prompt.sent(messages),
            options={**self.asking.config, **self.schema_options},
            repeat_index=restart,
        )
        asker = self.cells.asker
        mark = (asker.task, self.cells.seed, self._column.name, order.row, restart)
        place = self.asking.provider
        return asker.prepare(order.row, "cell", place, request, *mark, again=True)

    def _schema_options(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options by which the service enforces a schema; services require an object at the root."""
        says = any(to_snake(name) in _FORMS for name in self.asking.config)
        if says or schema.get("type") != "object":
            return {}
        settings = self.cells.asker.providers[self.asking.provider].spec.settings
        return schema_options(settings, schema, name="answer")


@attrs.define(eq=False, repr=False)
class _CellConversations:
    """All conversations of one cell."""

    of: ModelMaker
    order: CellOrder
    calls: Calls[Any]
    replies: list[Reply]
    """In the order of the questions; those of an earlier round of the job are used again."""
    requests: list[ProviderCall] = attrs.field(factory=list)
    fault: str = ""
    """The error of the last reply."""

    async def find(
        self, messages: Sequence[Message], read: Callable[[JudgeReply], Any], expected: str
    ) -> Mapping[str, Any]:
        for restart in range(self.of.asking.restarts + 1):
            cell = await self._converse(messages, read, expected, restart)
            if cell is not None:
                return cell
        for inquiry in self.requests:
            self.of.cells.asker.reject(inquiry)
        tried = len(self.requests)
        replies = counted(tried, "reply", "replies")
        name = self.of.cells.asker.names[self.of.asking.provider]
        raise CellError(
            f"{name} returned {replies}, none of which can be used; the last one: {self.fault}"
        )

    async def _converse(
        self,
        messages: Sequence[Message],
        read: Callable[[JudgeReply], Any],
        expected: str,
        restart: int,
    ) -> Mapping[str, Any] | None:
        """Return the cell that one conversation gives, or None."""
        for _ in range(self.of.asking.corrections + 1):
            reply = await self._reply(messages, restart)
            try:
                answer, thoughts = _read_reply(reply)
            except UnusableReplyError as error:
                self.fault = str(error)
                return None
            after = (*messages, {"role": "assistant", "content": answer.text})
            try:
                return self.of.cell(read(answer), after, thoughts)
            except UnusableReplyError as error:
                fault = f"{error}; {CUT_OFF}" if answer.is_cut_off else str(error)
                self.fault = f"{fault}; it starts with {quote(answer.text, _EXCERPT)}"
                hint = (
                    f"Your last answer could not be used: {error}. "
                    f"Answer with {expected} and nothing else."
                )
                messages = with_instruction(after, hint)
        return None

    async def _reply(self, messages: Sequence[Message], restart: int) -> Reply:
        inquiry = self.of.inquiry(self.order, messages, restart)
        number = len(self.requests)
        self.requests.append(inquiry)
        if number < len(self.replies):
            return self.replies[number]
        paid = await self.of.cells.asker.fetch(inquiry, self.calls, self.order.tally)
        self.replies.append(paid.reply)
        return paid.reply


def _read_reply(reply: Reply) -> tuple[JudgeReply, str | None]:
    """Return the output of a reply, and the model's reasoning.

    Raises:
        UnusableReplyError: It is a refusal, or empty.
    """
    if reply.is_refusal or reply.finish_reason == "content_filter":
        raise UnusableReplyError("the model refused to answer")
    is_cut_off = reply.finish_reason == "length"
    output = reply.answer
    try:
        text = "" if output is None else output_text(output)
    except (TypeError, ValueError, RecursionError) as error:
        msg = "it is not JSON data"
        raise UnusableReplyError(msg) from error
    whole = JudgeReply(text, output, is_cut_off=is_cut_off)
    answer = without_thoughts(whole)
    if not answer.text.strip():
        raise UnusableReplyError(f"it is empty: {CUT_OFF}" if is_cut_off else "it is empty")
    inline = text[: len(text) - len(answer.text)].strip()
    inline = inline.removeprefix("<think>").removesuffix("</think>").strip()
    return answer, "\n\n".join(filter(None, (reply.reasoning, inline))) or None
