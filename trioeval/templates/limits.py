"""Limits of one rendering: steps, printed characters, levels.

Theory. A template is the suite's own program, but a file from elsewhere, or a model's reply that is read as
one, must not block a run. So everything that takes time takes steps, before or right after it is done: loop
iterations and calls by the length of their bodies; filters, comparisons, printing and joining by the size of
their arguments or results, where a member that is contained twice counts twice, because it is visited twice.
Everything else in a template is bounded by its length. A step takes a microsecond or two.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trioeval.templates.faults import RenderError

STEPS = 1_000_000
CALL_STEPS = 10
"""Steps of a call: it takes that much longer than a loop iteration."""
CHARACTERS_A_STEP = 32
CHARACTERS = 10_000_000
LEVELS = 100
"""The maximum nesting of lists and objects, and of calls; less than would exhaust Python's stack."""

_LEAVES = frozenset({int, float, bool, type(None)})


class TooMuchError(RenderError):
    """A rendering would take too long, or too much memory."""


@attrs.define(eq=False, repr=False)
class Meter:
    """The remaining steps of the current rendering."""

    left: int = STEPS
    _level: int = 0

    def start(self) -> None:
        """Begin a rendering."""
        self.left, self._level = STEPS, 0

    def take(self, steps: int) -> None:
        """Count steps.

        Args:
            steps: Their number.

        Raises:
            TooMuchError: No steps are left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooMuchError(f"the template took more than {STEPS} steps")

    def take_text(self, characters: int) -> None:
        """Count characters that are read or copied.

        Raises:
            TooMuchError: No steps are left.
        """
        self.take(characters // CHARACTERS_A_STEP)

    def walk(self, *values: Any) -> int:
        """Count all members of values, on all levels; return the number of steps.

        Raises:
            TooMuchError: No steps are left, or the values are nested too deeply.
        """
        before = self.left
        level: list[Any] = list(values)
        depth = 0
        while level:
            if depth > LEVELS:
                raise too_deep("a value")
            below: list[Any] = []
            for one in level:
                if one.__class__ in _LEAVES:
                    continue
                if isinstance(one, str):
                    self.take_text(len(one))
                elif isinstance(one, list | tuple):
                    self.take(len(one))
                    below += one
                elif isinstance(one, Mapping):
                    self.take(len(one))
                    below += one
                    below += one.values()
            level = below
            depth += 1
        return before - self.left

    def enter(self) -> None:
        """Begin a call.

        Raises:
            TooMuchError: Too many calls are nested.
        """
        self.take(CALL_STEPS)
        self._level += 1
        if self._level > LEVELS:
            raise too_deep("a call")

    def leave(self) -> None:
        """End a call."""
        self._level -= 1

    def joined(self, parts: Iterable[str]) -> str:
        """Concatenate texts and count their characters.

        Raises:
            TooMuchError: They are too long together, or no steps are left.
        """
        text = joined(parts)
        self.take_text(len(text))
        return text


def too_deep(subject: str) -> TooMuchError:
    """Return the error for something that is nested too deeply."""
    return TooMuchError(f"{subject} is nested more than {LEVELS} levels deep")


def check_count(count: float) -> None:
    """Refuse a list before it is created.

    Raises:
        TooMuchError: It has more members than the maximum of steps.
    """
    if count > STEPS:
        raise TooMuchError(f"the template took more than {STEPS} steps")


def check_size(characters: float) -> None:
    """Refuse a text before it is created.

    Raises:
        TooMuchError: It is too long.
    """
    if characters > CHARACTERS:
        raise TooMuchError(f"the template printed more than {CHARACTERS} characters")


def joined(parts: Iterable[str]) -> str:
    """Concatenate texts.

    Raises:
        TooMuchError: They are too long together.
    """
    size = 0
    texts = []
    for part in parts:
        size += len(part)
        if size > CHARACTERS:
            check_size(size)
        texts.append(part)
    return "".join(texts)
