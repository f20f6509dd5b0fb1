"""Limits of one rendering: steps, printed characters, seconds of computing, memory.

Theory. A template is the suite's own program, but a file from elsewhere, or a model's reply that is read as
one, must not block a run. Loops and calls take steps, which are counted and so end a template in the same
place every time. Everything else that a template can do is bounded by the engine's memory and by the
processor time of this process, in which the engine runs. Values that enter it are counted before.
"""

import time
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.templates.faults import RenderError

STEPS = 1_000_000
CHARACTERS_A_STEP = 32
CHARACTERS = 10_000_000
SECONDS = 2.0
MEMORY = 256
"""In MB."""
LEVELS = 100
"""The maximum nesting of a prompt that is JSON."""

_LEAVES = frozenset({int, float, bool, type(None)})
_DEEPEST = 1000
"""Levels of lists and objects that neither language's stack is too small for."""


class TooMuchError(RenderError):
    """A rendering would take too long, or too much memory."""


@attrs.define(eq=False, repr=False)
class TimeLeft:
    """The seconds that the current rendering has left, which may consist of several texts."""

    seconds: float = SECONDS
    is_new: bool = True
    """True until the engine has rendered a text of it."""
    _since: float = 0.0

    def start(self) -> None:
        """Begin a rendering."""
        self.seconds, self.is_new = SECONDS, True

    def enter(self) -> None:
        """Begin a call of the engine.

        Raises:
            TooMuchError: No time is left.
        """
        if self.seconds <= 0:
            raise too_long()
        self._since = time.process_time()

    def leave(self) -> None:
        """End a call of the engine."""
        self.seconds -= time.process_time() - self._since
        self.is_new = False


@attrs.define(eq=False, repr=False)
class Meter:
    """The remaining steps of work on variables in Python."""

    left: int = STEPS

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

    def walk(self, *values: Any) -> None:
        """Count all members of values, on all levels.

        A member that is contained twice counts twice, because it is visited twice.

        Raises:
            TooMuchError: No steps are left, or the values are nested too deeply.
        """
        level: list[Any] = list(values)
        depth = 0
        while level:
            if depth > _DEEPEST:
                raise TooMuchError(f"a value is nested more than {_DEEPEST} levels deep")
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


def too_long() -> TooMuchError:
    """Return the error for a template that takes too long."""
    return TooMuchError(f"the template took longer than {SECONDS:g} seconds")


def too_big() -> TooMuchError:
    """Return the error for a template that needs too much memory."""
    return TooMuchError(f"the template needed more than {MEMORY} MB of memory")


def check_size(characters: float) -> None:
    """Refuse a text before it is created.

    Raises:
        TooMuchError: It is too long.
    """
    if characters > CHARACTERS:
        raise TooMuchError(f"the template printed more than {CHARACTERS} characters")
