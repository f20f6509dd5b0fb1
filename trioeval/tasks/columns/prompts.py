"""What a model is asked for a row: the prompt of a column, filled in.

A prompt is text, or chat messages as JSON or YAML; which of the two is said by the prompt itself, never by
what stands in a row. So a row cannot add a message, nor speak as somebody else: messages are taken apart
before they are filled in, and a text that only looks like messages once it is filled in is what a user says.
The one exception are messages that a template writes with its own statements, a loop for instance: those are
filled in as a whole, so values belong behind `| dump` there, as in prompts of suites.

Values are data. What they hold is not rendered, whatever marks it has; objects and lists are written as JSON.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.errors import ProviderError
from trioeval.grading.text import parse_json
from trioeval.providers.messages import OPENS_LIKE_JSON, to_messages
from trioeval.suite.templates.marks import has_marks

Message: TypeAlias = Mapping[str, Any]
Fill: TypeAlias = Callable[[str], str]
"""Fills a row into a text; raises `TemplateError`."""

_MEANT_AS_MESSAGES = re.compile(r'\s*(?:\[\s*(?:\{%|\{\s*["}]|\]\s*\Z)|- role:)')
"""A value in brackets, `[{{ a }}]`, is text: else a row could be all messages."""
_TRANSCRIPT = re.compile(r"\s*(?:system|user|assistant):")
"""What some services read as messages as well."""
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
    """It, where it is messages with templates in their texts."""
    writes_messages: bool = False
    """Whether its messages are only known when it is filled in."""

    @classmethod
    def of(cls, text: str) -> "PromptTemplate":
        """A prompt as the suite has it."""
        if _MEANT_AS_MESSAGES.match(text) is None:
            return cls(text)
        messages = _yaml_messages(text) if text.lstrip().startswith("-") else _json_messages(text)
        return cls(text, messages, messages is None and _json_in(text) is None)

    def filled(self, fill: Fill) -> tuple[Message, ...]:
        """The messages for one row; never empty.

        Raises:
            TemplateError: It cannot be filled in.
            ProviderError: It was meant to be messages, and is none.
        """
        if self.messages is not None:
            return tuple(_inside(message, fill) for message in self.messages)
        if self.writes_messages:
            return tuple(to_messages(fill(self.text)))
        return ({"role": "user", "content": self.as_text(fill)},)

    def as_text(self, fill: Fill) -> str:
        """The prompt for one row as one text; one that is JSON stays JSON.

        Raises:
            TemplateError: It cannot be filled in.
        """
        document = _json_in(self.text)
        if document is None:
            return fill(self.text)
        return json.dumps(_inside(document, fill), ensure_ascii=False, indent=_INDENT)

    def sent(self, messages: Sequence[Message]) -> str:
        """The text that a provider is given for messages: of a single one what it says, else all as JSON."""
        match messages:
            case [{"role": "user", "content": str(content), **rest}] if not rest:
                # Its own JSON or transcript the suite may write; what a row makes of it, it did not.
                own = (
                    self.messages is None and not self.writes_messages and not _is_plain(self.text)
                )
                by_itself = own and (_json_in(self.text) is not None or not has_marks(self.text))
                if _is_plain(content) or by_itself:
                    return content
        return json.dumps(list(messages), ensure_ascii=False)


def with_instruction(messages: Sequence[Message], instruction: str) -> tuple[Message, ...]:
    r"""Messages that end with an instruction.

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
    """Marks of templates mean something else in YAML: words stand for them while it is read."""
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
    """JSON data with its texts changed; names of members stay as they are."""
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
    """Whether nobody takes a text for messages."""
    return not (
        text.lstrip().startswith("- role:")
        or OPENS_LIKE_JSON.match(text)
        or _TRANSCRIPT.match(text)
    )
