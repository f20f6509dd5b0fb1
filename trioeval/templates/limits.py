"""What one rendering may use at most: steps, printed characters, levels.

Theory. A template is the suite's own program, but a file that comes from elsewhere, or a model's answer that
is read as one, must not hang a run of others. So whatever takes time takes steps, before or right after it is
done: rounds of loops and calls by the length of what they repeat; filters, comparisons, printing and joining
by the size of what they walk through or make, where a member that is held twice counts twice, because it is
visited twice. All else that a template does is bounded by its own length. A step is a microsecond or two.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from jinja2.exceptions import TemplateRuntimeError

STEPS = 1_000_000
CALL_STEPS = 10
"""Steps that a call counts for: it takes so much longer than a round of a loop."""
CHARACTERS_A_STEP = 32
CHARACTERS = 10_000_000
LEVELS = 100
"""How deep lists and objects may be nested, and calls; fewer than would fill Python's stack."""

_LEAVES = frozenset({int, float, bool, type(None)})


class TooMuchError(TemplateRuntimeError):
    """A rendering that would not end in good time, or would fill the memory."""


@attrs.define(eq=False)
class Meter:
    """The steps of the rendering under way."""

    left: int = STEPS
    _level: int = 0

    def start(self) -> None:
        """Begin a rendering."""
        self.left, self._level = STEPS, 0

    def take(self, steps: int) -> None:
        """Count steps.

        Raises:
            TooMuchError: They are more than are left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooMuchError(f"the template took more than {STEPS} steps")

    def take_text(self, characters: int) -> None:
        """Count characters that are read or copied.

        Raises:
            TooMuchError: They are more steps than are left.
        """
        self.take(characters // CHARACTERS_A_STEP)

    def walk(self, *values: Any) -> int:
        """Count all that values hold, on all levels; the steps that were taken.

        Raises:
            TooMuchError: They are more than are left, or the values are nested too deeply.
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
            TooMuchError: Too many have begun inside of each other.
        """
        self.take(CALL_STEPS)
        self._level += 1
        if self._level > LEVELS:
            raise too_deep("a call")

    def leave(self) -> None:
        """End a call."""
        self._level -= 1

    def joined(self, parts: Iterable[str]) -> str:
        """The parts in a row.

        Raises:
            TooMuchError: They are too long together, or more than steps are left for.
        """
        text = joined(parts)
        self.take_text(len(text))
        return text


def too_deep(what: str) -> TooMuchError:
    """The error that says that something is nested too deeply."""
    return TooMuchError(f"{what} is nested more than {LEVELS} levels deep")


def check_count(count: float) -> None:
    """Refuse a list before it is made.

    Raises:
        TooMuchError: It has more members than there are steps at all.
    """
    if count > STEPS:
        raise TooMuchError(f"the template took more than {STEPS} steps")


def check_size(characters: float) -> None:
    """Refuse a text before it is made.

    Raises:
        TooMuchError: It is too long.
    """
    if characters > CHARACTERS:
        raise TooMuchError(f"the template printed more than {CHARACTERS} characters")


def joined(parts: Iterable[str]) -> str:
    """The parts in a row.

    Raises:
        TooMuchError: They are too long together.
    """
    size = 0
    kept = []
    for part in parts:
        size += len(part)
        if size > CHARACTERS:
            check_size(size)
        kept.append(part)
    return "".join(kept)
