"""The shared data that a step may read and write, found in its templates.

A step reads a register if one of its texts names it: the prompt, a variable, the value of an assertion.
Anything that cannot be analysed (the user's code, a program, a file, a request whose config contains
templates) may read any register. So the result may be too large, but never too small.

Names cannot be computed in templates, but they can be assembled from pieces: references between variables are
replaced in their texts, so `{{ re{{b}} }}` may become any name. New marks can only appear if a brace opens
outside of a whole mark in some variable; so a step with such a variable, and with a reference between
variables, may read any register as well.

A step that may read one register may read all: all registers of a scope are one cell, because so many steps
may read any of them. Their values are data, and refer to no other registers.

A text names the variables in its syntax tree, and every word between marks: variables are also replaced where
no template engine looks, in `raw` blocks and in texts that are not valid templates.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import attrs

from trioeval.documents.files import names_file
from trioeval.kernel import Readiness, ReadinessUpdate
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.merge import CONVERSATION
from trioeval.suite.sources.output_paths import is_path
from trioeval.templates import Templates

# The order in which the steps of a run may start, if some need the data of others.
#
# A step reads and writes *cells*: registers, and conversations, of which each step of one reads all turns and
# adds its own. It waits for every earlier step that may write a cell which it may read. Waiting for the
# latest of them would suffice if it were certain to succeed; if it fails, the value before it counts.
# "Earlier" is as in `SharedData`: steps that run serially, which the kernel runs first anyway, and then by
# index.
#
# Waiting is counted, never searched: for each cell, writers are numbered, and a reader with n writers before
# it waits until the first n of them have ended. So a reader costs one number per cell, however many writers
# there are. Edges would cost readers times writers.
#
# Finding the cells of a step means reading it, and steps may be lines of a huge file. So steps are read in
# index order, with at most `AHEAD` unfinished ones at a time. The first of those waits for no other step, so
# the run makes progress whatever the others wait for.
#
# Law: BLOCK.


Cell: TypeAlias = Hashable

AHEAD = 8192
"""Maximum number of unfinished steps that are read: in a larger run, later ones start later."""


@attrs.frozen
class CellAccess:
    """The cells that one step may read, and the cells that it may write."""

    reads: frozenset[Cell] = frozenset()
    writes: frozenset[Cell] = frozenset()


@attrs.define(eq=False, repr=False)
class SerialReadiness(Readiness):
    """Lets every step wait for the one before it."""

    _rest: list[int]
    """Steps that have not started, the next one last."""
    _last: int = -1
    """The step that was started last."""

    @classmethod
    def of(cls, size: int, serial: Iterable[int]) -> "SerialReadiness":
        """Return the readiness before the first start.

        Args:
            size: Number of steps.
            serial: Steps that the kernel runs first, which no step waits for here.
        """
        first = frozenset(serial)
        return cls([index for index in reversed(range(size)) if index not in first])

    def begin(self) -> Sequence[int]:
        """Return the first step."""
        return self._next()

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - its outcome is irrelevant
        """Return the step after the ended one."""
        if index != self._last:
            return ReadinessUpdate()
        return ReadinessUpdate(self._next())

    def _next(self) -> Sequence[int]:
        if not self._rest:
            return ()
        self._last = self._rest.pop()
        return (self._last,)


@attrs.define(eq=False, repr=False)
class _CellState:
    """The ended writers of a cell."""

    writers: int = 0
    """Number of steps that may write it, among those read so far."""
    finished: int = 0
    """Number of writers that have ended with all before them."""
    over: set[int] = attrs.field(factory=set)
    """Numbers of other ended writers."""
    waiting: deque[tuple[int, int]] = attrs.field(factory=deque)
    """Pairs of the number of writers that a reader waits for, and the reader; both ascend."""


@attrs.define(eq=False, repr=False)
class CellReadiness(Readiness):
    """Lets a step wait for the earlier writers of the cells that it reads."""

    _size: int
    _serial: frozenset[int]
    _access: Callable[[int], CellAccess]
    _ahead: int = AHEAD
    _cursor: int = attrs.field(init=False, default=0)
    """The first step that has not been read."""
    _live: int = attrs.field(init=False, default=0)
    """Number of unfinished steps that have been read."""
    _cells: dict[Cell, _CellState] = attrs.field(init=False, factory=dict)
    _left: dict[int, int] = attrs.field(init=False, factory=dict)
    """Waiting steps, and the number of cells that they wait for."""
    _numbers: dict[int, list[tuple[_CellState, int]]] = attrs.field(init=False, factory=dict)
    """The cells that a step writes, with its number among their writers."""

    @classmethod
    def of(
        cls,
        size: int,
        serial: Iterable[int],
        access: Callable[[int], CellAccess],
        ahead: int = AHEAD,
    ) -> "CellReadiness":
        """Return the readiness before the first start.

        Args:
            size: Number of steps.
            serial: Steps that the kernel runs first.
            access: Returns the cells of a step.
            ahead: Maximum number of unfinished steps that are read; ≥ 1.
        """
        return cls(size, frozenset(serial), access, ahead)

    def begin(self) -> Sequence[int]:
        """Return the first steps that wait for no other step."""
        return self._read_further()

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - after a failed writer the old value counts
        """Return the readers whose last awaited step has ended, and further steps that are read instead."""
        ready: list[int] = []
        for cell, number in self._numbers.pop(index, ()):
            cell.over.add(number)
            while cell.finished in cell.over:
                cell.over.remove(cell.finished)
                cell.finished += 1
            while cell.waiting and cell.waiting[0][0] <= cell.finished:
                _, reader = cell.waiting.popleft()
                self._left[reader] -= 1
                if not self._left[reader]:
                    del self._left[reader]
                    ready.append(reader)
        # Serial steps have written before any other step starts, so no step waits for them.
        if index not in self._serial:
            self._live -= 1
        return ReadinessUpdate(sorted(ready) + self._read_further())

    def _read_further(self) -> list[int]:
        """Read further steps; return those that may start at once."""
        ready = []
        while self._live < self._ahead and self._cursor < self._size:
            index = self._cursor
            self._cursor += 1
            if index in self._serial:
                continue
            self._live += 1
            if self._register(index):
                ready.append(index)
        return ready

    def _register(self, index: int) -> bool:
        """Register a step; return whether it may start at once."""
        access = self._access(index)
        waits = 0
        for name in access.reads:
            cell = self._cells.get(name)
            if cell is not None and cell.finished < cell.writers:
                cell.waiting.append((cell.writers, index))
                waits += 1
        numbers = []
        for name in access.writes:
            cell = self._cells.get(name)
            if cell is None:
                cell = self._cells[name] = _CellState()
            numbers.append((cell, cell.writers))
            cell.writers += 1
        if numbers:
            self._numbers[index] = numbers
        if waits:
            self._left[index] = waits
        return not waits


CONVERSATION_VARIABLE = "_conversation"

_WORD = re.compile(r"\w+")
_OPENING = re.compile(r"\{[{%]")
_ESCAPED = re.compile(r"\\.")
"""An escape sequence in the texts of a JSON prompt; the `n` of `\\n` is not part of a name."""
_WHOLE_MARK = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}")
_REFERENCE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_CODE_POINT = "\\u"
"""The start of an escape in a JSON prompt that may stand for any character, including braces."""


@attrs.frozen
class Sharing:
    """The data that the steps of a suite share, as far as its texts show."""

    conversations: frozenset[int]
    """Columns whose prompt uses `_conversation`."""
    registers: frozenset[str]
    """Names of registers in which tests store their outputs."""

    @classmethod
    def of(cls, steps: Expansion, templates: Templates, *, conversation: bool = True) -> "Sharing":
        """Return the shared data of a suite.

        Args:
            steps: Its expansion.
            templates: Finds the variables of a text.
            conversation: False if `_conversation` is switched off.
        """
        suite = steps.suite
        named = {steps.tests[place].options.store_output_as for place in steps.checked_tests}
        if suite.default_test is not None:
            named.add(suite.default_test.options.store_output_as)
        speaking = frozenset(
            column.prompt_idx
            for column in steps.columns
            if conversation and _uses_conversation(column.prompt.raw, templates)
        )
        return cls(speaking, frozenset(name for name in named if name))

    @property
    def any(self) -> bool:
        """True if some steps may depend on others."""
        return bool(self.conversations or self.registers)


def _uses_conversation(prompt: str, templates: Templates) -> bool:
    """Return whether a prompt uses `_conversation`; an invalid template counts if it contains the word."""
    if CONVERSATION_VARIABLE not in prompt:
        return False
    named = CONVERSATION_VARIABLE in templates.references(prompt)
    return named or templates.syntax_error(prompt) is not None


def conversation_of(step: Step, provider: str) -> Hashable:
    """Return the conversation that a step is a turn of.

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
    """Finds the cells that a step reads and writes, by its index."""

    steps: Expansion
    sharing: Sharing
    templates: Templates
    provider_names: Sequence[str]
    """The label or id of each provider of the suite."""
    opaque: frozenset[int]
    """Indices of providers that get the variables, and may read any of them."""

    def __call__(self, index: int) -> CellAccess:
        """Return the cells of a step."""
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
        return CellAccess(frozenset(reads), frozenset(writes))

    def _registers(self, step: Step) -> Cell:
        own = self.steps.suite.evaluate_options.register_scope == "column"
        return ("registers", step.prompt_idx if own else None)

    def may_read(self, step: Step) -> bool:
        """Return whether a step may read a register."""
        names = self.sharing.registers
        return self._may_read_all(step) or any(
            self._named(text, names) for text in self._texts(step)
        )

    def visible(self, step: Step, registers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the given registers that a step may read."""
        if not registers or self._may_read_all(step):
            return registers
        found: set[str] = set()
        for text in self._texts(step):
            found |= self._named(text, registers.keys())
        # A single name needs no order, and there may be very many registers.
        ordered = registers if len(found) > 1 else found
        return {name: registers[name] for name in ordered if name in found}

    def _may_read_all(self, step: Step) -> bool:
        """Return whether the registers of a step cannot be determined from its texts."""
        entry = self.steps.providers[step.column.provider_index]
        codes = (entry.transform, step.test.options.transform)
        return (
            step.column.prompt.function is not None
            or step.provider_index in self.opaque
            or (step.user is not None and step.user.place in self.opaque)
            or any(code and not is_path(code) for code in codes)
            or any(map(names_file, step.vars.values()))
            or _CODE_POINT in step.template
            or _makes_names(step.vars)
        )

    def _named(self, text: str, names: AbstractSet[str]) -> set[str]:
        """Return those of the given names that a text refers to."""
        if "{" not in text:
            return set()
        found = _between_marks(text) & names
        # Marks inside of texts in a mark end it too early for a pattern.
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
        if step.user is not None and step.test.provider is not None:
            yield from texts_in(step.test.provider.config)


def _between_marks(text: str) -> set[str]:
    """Return all words in a text between `{{` and `}}`, or `{%` and `%}`."""
    marked = " ".join(_marks(text))
    return {*_WORD.findall(marked), *_WORD.findall(_ESCAPED.sub(" ", marked))}


def _marks(text: str) -> Iterator[str]:
    """Yield its marks, each to the first end of its kind, in linear time."""
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
    """Return whether replacing references between variables may create references that none of them has."""
    texts = [value for value in variables.values() if isinstance(value, str) and "{{" in value]
    used = {name for text in texts for name in _REFERENCE.findall(text)}
    if CONVERSATION_VARIABLE in used:
        return True
    if used.isdisjoint(variables):
        return False
    return any(map(_opens_brace, variables.values()))


def _opens_brace(value: Any) -> bool:
    """Return whether a brace opens in the text of a value outside of whole marks."""
    match value:
        case str():
            return "{" in _WHOLE_MARK.sub("", value)
        case list() | tuple():
            return any(map(_opens_brace, value))
        case _:
            return isinstance(value, Mapping)


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
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
