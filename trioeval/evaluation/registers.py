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

import bisect
import heapq
import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.documents.files import names_file
from trioeval.kernel import Freed, Readiness
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.merge import CONVERSATION
from trioeval.suite.sources.output_paths import is_path
from trioeval.templates import Templates
from trioeval.text import from_model

# What steps leave for later ones: the outputs in registers, and the turns of conversations.
#
# A step sees what a strictly serial run would show it: what steps before it left, where `runSerially` steps
# come before all others and steps of a kind come in index order. Steps may end in any order, so everything
# is kept with its place in that run, and a reader looks at what stands before its own place. Whether all of
# that is known when a step starts is not this module's business: see `order`.
#
# Behind the steps that are over, only the latest value of each register can be seen any more: earlier ones
# are dropped. Turns of a conversation are kept, because each later turn shows all of them.
#
# All of it is marked here as what a model wrote, and so is data wherever later steps use it: see `verbatim`.


Rank: TypeAlias = tuple[bool, int]
"""The place of a step in the serial run: whether it runs with others, and its index."""


def rank(step: Step) -> Rank:
    """The place of a step in the serial run."""
    return not step.test.options.run_serially, step.index


@attrs.define(eq=False)
class _Entries:
    """What was left in one place, in the order of the serial run."""

    ranks: list[Rank] = attrs.field(factory=list)
    values: list[Any] = attrs.field(factory=list)

    def put(self, at: Rank, value: Any) -> bool:
        """Keep a value; whether the step has none here yet. One that runs again replaces its own."""
        place = self.count_before(at)
        if place < len(self.ranks) and self.ranks[place] == at:
            self.values[place] = value
            return False
        self.ranks.insert(place, at)
        self.values.insert(place, value)
        return True

    def count_before(self, at: Rank) -> int:
        return bisect.bisect_left(self.ranks, at)


@attrs.define(eq=False)
class _Registers:
    """Registers that are seen together."""

    settled: dict[str, Any] = attrs.field(factory=dict)
    """The latest values behind the steps that are over, in the order in which names were first used."""
    recent: dict[str, _Entries] = attrs.field(factory=dict)
    """What may still be seen in several states."""
    _ahead: list[tuple[Rank, str]] = attrs.field(factory=list)
    """A heap of what is in `recent`."""

    def store(self, at: Rank, name: str, value: Any) -> None:
        if self.recent.setdefault(name, _Entries()).put(at, value):
            heapq.heappush(self._ahead, (at, name))

    def seen(self, at: Rank) -> dict[str, Any]:
        """The values before a place, in the order in which names were first used."""
        found = self.settled.copy()
        shown = [
            (entries.ranks[0], name, entries.values[count - 1])
            for name, entries in self.recent.items()
            if (count := entries.count_before(at))
        ]
        for _, name, value in sorted(shown, key=lambda one: one[0]):
            found[name] = value
        return found

    def settle(self, before: Rank) -> None:
        """Nobody looks from a place before this one any more."""
        while self._ahead and self._ahead[0][0] < before:
            _, name = heapq.heappop(self._ahead)
            entries = self.recent[name]
            del entries.ranks[0]
            self.settled[name] = entries.values.pop(0)
            if not entries.ranks:
                del self.recent[name]


@attrs.define(eq=False)
class History:
    """The registers and conversations of one run.

    Args:
        scope: Whether all columns share registers, or each has its own.
    """

    scope: Literal["suite", "column"] = "suite"
    _registers: dict[int | None, _Registers] = attrs.field(init=False, factory=dict)
    _conversations: dict[Hashable, _Entries] = attrs.field(init=False, factory=dict)
    _over: Rank = (False, 0)
    """The first place from which somebody may still look."""

    def __len__(self) -> int:
        """How many outputs and turns are kept."""
        kept = [len(one.settled) for one in self._registers.values()]
        kept += [
            len(entries.ranks)
            for one in self._registers.values()
            for entries in one.recent.values()
        ]
        return sum(kept) + sum(len(one.ranks) for one in self._conversations.values())

    def store(self, step: Step, name: str, output: Any) -> None:
        """A step leaves its output in a register."""
        registers = self._registers.setdefault(self._column(step), _Registers())
        text = output.removesuffix("\n") if isinstance(output, str) else output
        registers.store(rank(step), name, from_model(text))

    def registers(self, step: Step) -> dict[str, Any]:
        """The registers that a step sees, in the order in which their names were first used."""
        registers = self._registers.get(self._column(step))
        return {} if registers is None else registers.seen(rank(step))

    def add_turn(self, step: Step, conversation: Hashable, turn: Mapping[str, Any]) -> None:
        """A call of a step was answered."""
        self._conversations.setdefault(conversation, _Entries()).put(rank(step), from_model(turn))

    def turns(self, step: Step, conversation: Hashable) -> list[Mapping[str, Any]]:
        """The turns of a conversation that a step sees."""
        entries = self._conversations.get(conversation)
        turns = [] if entries is None else entries.values[: entries.count_before(rank(step))]
        found: list[Mapping[str, Any]] = from_model(turns)
        return found

    def over(self, step: Step) -> None:
        """A step is over, and all with a lower index: told of every step, in index order."""
        # Serial steps run before all others, so behind one of those there are none left.
        with_others, _ = rank(step)
        self._over = (self._over[0] or with_others, step.index + 1)
        for registers in self._registers.values():
            registers.settle(self._over)

    def _column(self, step: Step) -> int | None:
        return step.prompt_idx if self.scope == "column" else None


# In which order the steps of a run may start, where some need what others leave.
#
# A step reads and writes *cells*: registers, and conversations, of which each step of one reads all turns and
# adds its own. It waits for every earlier step that may write a cell which it may read. The latest of them
# would do if it were certain to succeed; if it fails, the value before it counts. "Earlier" is as in
# `history`: steps that run serially, which the kernel runs first anyway, and then by index.
#
# Waiting is counted, never searched: for each cell, writers are numbered, and a reader with n writers before
# it waits until the first n of them are over. So a reader costs one number a cell, however many writers
# there are. Edges would be as many as readers times writers.
#
# Finding what a step reads means looking at it, and steps may be lines of a huge file. So steps are looked at
# in index order, and no more of them than `AHEAD` at a time that are not over. The first of those waits for
# nobody, so the run goes on whatever the others wait for.
#
# Law: BLOCK.


Cell: TypeAlias = Hashable

AHEAD = 8192
"""Steps that are looked at and not over, at most: of a run that has more, later ones start later."""


@attrs.frozen
class Access:
    """The cells that one step may read, and those that it may write."""

    reads: frozenset[Cell] = frozenset()
    writes: frozenset[Cell] = frozenset()


@attrs.define(eq=False)
class OneByOne(Readiness):
    """Every step waits for the one before it."""

    _rest: list[int]
    """Steps that have not started, the next one last."""
    _last: int = -1
    """The step that has started."""

    @classmethod
    def of(cls, size: int, serial: Iterable[int]) -> "OneByOne":
        """Nothing has started yet.

        Args:
            size: How many steps there are.
            serial: Those that the kernel runs first, which nothing waits for here.
        """
        first = frozenset(serial)
        return cls([index for index in reversed(range(size)) if index not in first])

    def begin(self) -> Sequence[int]:
        """The first step."""
        return self._next()

    def over(self, index: int, *, done: bool) -> Freed:  # noqa: ARG002 - whatever its outcome is
        """The step after the one that is over."""
        if index != self._last:
            return Freed()
        return Freed(self._next())

    def _next(self) -> Sequence[int]:
        if not self._rest:
            return ()
        self._last = self._rest.pop()
        return (self._last,)


@attrs.define(eq=False)
class _CellState:
    """Who of the writers of a cell is over."""

    writers: int = 0
    """Steps that may write it, among those looked at so far."""
    finished: int = 0
    """Writers that are over, and all before them."""
    over: set[int] = attrs.field(factory=set)
    """Numbers of other writers that are over."""
    waiting: deque[tuple[int, int]] = attrs.field(factory=deque)
    """How many writers a reader waits for, and the reader; both ascend."""


@attrs.define(eq=False)
class ByCells(Readiness):
    """A step waits for the earlier writers of the cells that it reads."""

    _size: int
    _serial: frozenset[int]
    _access: Callable[[int], Access]
    _ahead: int = AHEAD
    _cursor: int = attrs.field(init=False, default=0)
    """The first step that is not looked at yet."""
    _live: int = attrs.field(init=False, default=0)
    """Steps that are looked at and not over."""
    _cells: dict[Cell, _CellState] = attrs.field(init=False, factory=dict)
    _left: dict[int, int] = attrs.field(init=False, factory=dict)
    """Steps that wait, and for how many cells."""
    _numbers: dict[int, list[tuple[_CellState, int]]] = attrs.field(init=False, factory=dict)
    """The cells that a step writes, and which of their writers it is."""

    @classmethod
    def of(
        cls,
        size: int,
        serial: Iterable[int],
        access: Callable[[int], Access],
        ahead: int = AHEAD,
    ) -> "ByCells":
        """Nothing has started yet.

        Args:
            size: How many steps there are.
            serial: Those that the kernel runs first.
            access: What a step reads and writes.
            ahead: Steps that are looked at and not over, at most; ≥ 1.
        """
        return cls(size, frozenset(serial), access, ahead)

    def begin(self) -> Sequence[int]:
        """The first steps that wait for nobody."""
        return self._look_on()

    def over(self, index: int, *, done: bool) -> Freed:  # noqa: ARG002 - a failed writer leaves the value before
        """The readers that waited for this step last, and what is looked at in its place."""
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
        # What serial steps write is there before any other step starts, so nobody waits for them.
        if index not in self._serial:
            self._live -= 1
        return Freed(sorted(ready) + self._look_on())

    def _look_on(self) -> list[int]:
        """Look at further steps; those of them that may start at once."""
        ready = []
        while self._live < self._ahead and self._cursor < self._size:
            index = self._cursor
            self._cursor += 1
            if index in self._serial:
                continue
            self._live += 1
            if self._enter(index):
                ready.append(index)
        return ready

    def _enter(self, index: int) -> bool:
        """Take note of a step; whether it may start at once."""
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
