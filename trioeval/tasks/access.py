"""What a step may read of what others leave, and what it may leave itself, found in its templates.

A step reads a register if one of its texts names it: the prompt, a variable, the value of an assertion.
What cannot be looked into (a function of the user's, a program, a file, a request whose config holds
templates) may read any register. So what is found may be too much, but never too little.

Who reads one register may read all. What a model answered is a template once it is in a variable, as
promptfoo has it, and can name whatever it likes. So all registers of a scope are one cell. A cell each would
let chains of registers run side by side that have nothing to do with each other, and was given up for this.

A text names what its syntax tree refers to, and every word between marks: variables are also replaced where
no template engine looks, in `raw` blocks and in texts that are no templates.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.suite import Expansion, Step, Templates
from trioeval.suite.joined import remarkable_places
from trioeval.suite.merge import CONVERSATION
from trioeval.tasks.order import Access, Cell

CONVERSATION_VARIABLE = "_conversation"

_FILE = "file://"
_WORD = re.compile(r"\w+")
_MARKED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_ESCAPED = re.compile(r"\\.")
"""What stands for one character in the texts of a prompt that is JSON; `\\n` is no part of a name."""
_ALL_VARIABLES = "vars"
"""A piece of code with this word may look at any variable."""


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
        named = {
            steps.tests[place].options.store_output_as for place in remarkable_places(steps.tests)
        }
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
        if step.column.prompt.function is not None or step.provider_index in self.opaque:
            return True
        if any(_is_opaque(code) for code in self._codes(step)) or any(
            isinstance(value, str) and value.startswith(_FILE) for value in step.vars.values()
        ):
            return True
        words = (word for code in self._codes(step) for word in _WORD.findall(code))
        return any(word in self.sharing.registers for word in words) or any(
            self._names_register(text) for text in self._texts(step)
        )

    def _codes(self, step: Step) -> Iterator[str]:
        entry = self.steps.providers[step.column.provider_index]
        yield from (code for code in (entry.transform, step.test.options.transform) if code)

    def _names_register(self, text: str) -> bool:
        found = {name for name in self.sharing.registers if name in text}
        if not found:
            return False
        return not found.isdisjoint(self.templates.references(text) | _between_marks(text))

    def _texts(self, step: Step) -> Iterator[str]:
        yield step.template
        yield from _texts_in(step.vars)
        for assertion in step.test.assertions:
            yield from _texts_in(assertion.value)
            if assertion.metric is not None:
                yield assertion.metric
        yield from _texts_in(step.test.options.rubric_prompt)
        yield from _texts_in(step.test.options.overrides)
        yield from _texts_in(step.column.prompt.config)


def _between_marks(text: str) -> set[str]:
    """All words in a text between `{{` and `}}`, or `{%` and `%}`."""
    marked = " ".join(_MARKED.findall(text))
    return {*_WORD.findall(marked), *_WORD.findall(_ESCAPED.sub(" ", marked))}


def _is_opaque(code: str) -> bool:
    return code.startswith(_FILE) or _ALL_VARIABLES in code or "context" in code


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for member in value.values():
                yield from _texts_in(member)
        case list() | tuple():
            for member in value:
                yield from _texts_in(member)
        case _:
            pass
