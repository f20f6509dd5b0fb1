"""What a step may read of what others leave, and what it may leave itself, found in its templates.

A step reads a register if one of its texts names it: the prompt, a variable, the value of an assertion.
What cannot be looked into (code of the user's, a program, a file, a request whose config holds templates)
may read any register. So what is found may be too much, but never too little.

Names cannot be computed in templates, but they can be put together of pieces: references between variables
are replaced in their texts, so `{{ re{{b}} }}` may become any name. New marks come about only where a brace
opens outside of a whole mark in some variable; a step with such a one, and with a reference between
variables, may read any register as well.

Who reads one register may read all: all registers of a scope are one cell, because so many steps may look at
any of them. What stands in them is data, and names nothing.

A text names what its syntax tree refers to, and every word between marks: variables are also replaced where
no template engine looks, in `raw` blocks and in texts that are no templates.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import attrs

from trioeval.suite import Expansion, Step, Templates
from trioeval.suite.merge import CONVERSATION
from trioeval.suite.sources.around import names_file
from trioeval.suite.sources.output_paths import is_path
from trioeval.tasks.order import Access, Cell

CONVERSATION_VARIABLE = "_conversation"

_WORD = re.compile(r"\w+")
_OPENING = re.compile(r"\{[{%]")
_ESCAPED = re.compile(r"\\.")
"""What stands for one character in the texts of a prompt that is JSON; `\\n` is no part of a name."""
_WHOLE_MARK = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}")
_REFERENCE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_CODE_POINT = "\\u"
"""How a prompt that is JSON may write any character, a brace among them."""


@attrs.frozen
class Sharing:
    """What the steps of a suite share, as far as its texts tell."""

    conversations: frozenset[int]
    """Columns whose prompt uses `_conversation`."""
    registers: frozenset[str]
    """Names that some test stores its output under."""

    @classmethod
    def of(cls, steps: Expansion, templates: Templates, *, conversation: bool = True) -> "Sharing":
        """What a suite shares.

        Args:
            steps: Its expansion.
            templates: What knows the variables of a text.
            conversation: False where `_conversation` is switched off.
        """
        suite = steps.suite
        named = {steps.tests[place].options.store_output_as for place in steps.looked_at}
        if suite.default_test is not None:
            named.add(suite.default_test.options.store_output_as)
        speaking = frozenset(
            column.prompt_idx
            for column in steps.columns
            if conversation and _speaks(column.prompt.raw, templates)
        )
        return cls(speaking, frozenset(name for name in named if name))

    @property
    def any(self) -> bool:
        """Whether some steps may depend on others."""
        return bool(self.conversations or self.registers)


def _speaks(prompt: str, templates: Templates) -> bool:
    """Whether a prompt uses `_conversation`; one that only its parts make templates, if it has the word."""
    if CONVERSATION_VARIABLE not in prompt:
        return False
    named = CONVERSATION_VARIABLE in templates.references(prompt)
    return named or templates.syntax_error(prompt) is not None


def conversation_of(step: Step, provider: str) -> Hashable:
    """Which conversation a step is a turn of.

    Args:
        step: The step.
        provider: The label of its column's provider, or its id.
    """
    return (
        provider,
        step.column.prompt.id,
        step.prompt_idx,
        json.dumps(step.test.metadata.get(CONVERSATION), default=str),
    )


@attrs.frozen
class FindAccess:
    """From the index of a step to the cells that it reads and writes."""

    steps: Expansion
    sharing: Sharing
    templates: Templates
    provider_names: Sequence[str]
    """Label or id of each provider of the suite."""
    opaque: frozenset[int]
    """Places of providers that are given the variables, and may look at any."""

    def __call__(self, index: int) -> Access:
        """The access of a step."""
        step = self.steps[index]
        reads: set[Cell] = set()
        writes: set[Cell] = set()
        if self.sharing.registers and self.may_read(step):
            reads.add(self._registers(step))
        if step.test.options.store_output_as:
            writes.add(self._registers(step))
        if step.prompt_idx in self.sharing.conversations:
            provider = self.provider_names[step.column.provider_index]
            conversation = ("conversation", conversation_of(step, provider))
            writes.add(conversation)
            if not step.test.options.disable_conversation_var:
                reads.add(conversation)
        return Access(frozenset(reads), frozenset(writes))

    def _registers(self, step: Step) -> Cell:
        own = self.steps.suite.evaluate_options.register_scope == "column"
        return ("registers", step.prompt_idx if own else None)

    def may_read(self, step: Step) -> bool:
        """Whether a step may look at a register."""
        names = self.sharing.registers
        return self._may_read_all(step) or any(
            self._named(text, names) for text in self._texts(step)
        )

    def visible(self, step: Step, registers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of some registers that a step may look at."""
        if not registers or self._may_read_all(step):
            return registers
        found: set[str] = set()
        for text in self._texts(step):
            found |= self._named(text, registers.keys())
        # One name needs no order, and registers may be very many.
        ordered = registers if len(found) > 1 else found
        return {name: registers[name] for name in ordered if name in found}

    def _may_read_all(self, step: Step) -> bool:
        """Whether what a step reads cannot be told from its texts."""
        entry = self.steps.providers[step.column.provider_index]
        codes = (entry.transform, step.test.options.transform)
        return (
            step.column.prompt.function is not None
            or step.provider_index in self.opaque
            or any(code and not is_path(code) for code in codes)
            or any(map(names_file, step.vars.values()))
            or _CODE_POINT in step.template
            or _makes_names(step.vars)
        )

    def _named(self, text: str, names: AbstractSet[str]) -> set[str]:
        """The names among some that a text refers to."""
        if "{" not in text:
            return set()
        found = _between_marks(text) & names
        # Marks in the texts of a mark end it too early for a pattern.
        others = {*_WORD.findall(text), *_WORD.findall(_ESCAPED.sub(" ", text))} & names
        return found if others <= found else found | (others & self.templates.references(text))

    def _texts(self, step: Step) -> Iterator[str]:
        yield step.template
        yield from texts_in(step.vars)
        for assertion in step.test.assertions:
            yield from texts_in(assertion.value)
            if assertion.metric is not None:
                yield assertion.metric
        yield from texts_in(step.test.options.rubric_prompt)
        yield from texts_in(step.test.options.overrides)
        yield from texts_in(step.column.prompt.config)


def _between_marks(text: str) -> set[str]:
    """All words in a text between `{{` and `}}`, or `{%` and `%}`."""
    marked = " ".join(_marks(text))
    return {*_WORD.findall(marked), *_WORD.findall(_ESCAPED.sub(" ", marked))}


def _marks(text: str) -> Iterator[str]:
    """Its marks, each to the first end of its kind; in time that grows as the text does."""
    place = 0
    unclosed: set[str] = set()
    while (opening := _OPENING.search(text, place)) is not None:
        closing = "}}" if opening[0] == "{{" else "%}"
        end = -1 if closing in unclosed else text.find(closing, opening.end())
        if end < 0:
            unclosed.add(closing)
            place = opening.start() + 1
        else:
            yield text[opening.start() : end]
            place = end + len(closing)


def _makes_names(variables: Mapping[str, Any]) -> bool:
    """Whether replacing references between variables may make references that none of them has."""
    texts = [value for value in variables.values() if isinstance(value, str) and "{{" in value]
    used = {name for text in texts for name in _REFERENCE.findall(text)}
    if CONVERSATION_VARIABLE in used:
        return True
    if used.isdisjoint(variables):
        return False
    return any(map(_opens_brace, variables.values()))


def _opens_brace(value: Any) -> bool:
    """Whether a brace opens in the text of a value outside of whole marks."""
    match value:
        case str():
            return "{" in _WHOLE_MARK.sub("", value)
        case list() | tuple():
            return any(map(_opens_brace, value))
        case _:
            return isinstance(value, Mapping)


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value, wherever they stand in it."""
    match value:
        case str():
            yield value
        case Mapping():
            for member in value.values():
                yield from texts_in(member)
        case list() | tuple():
            for member in value:
                yield from texts_in(member)
        case _:
            pass
