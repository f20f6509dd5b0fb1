"""What one rendering may use at most: steps, printed characters, members of one value.

A template is the suite's own program, but a file that comes from elsewhere must not hang a run of others.
Steps are counted where a template can go round: members that a loop is about to visit, calls of macros and
functions. All else that it does between two steps is bounded by its own length.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from jinja2.exceptions import TemplateRuntimeError

STEPS = 1_000_000
CALL_STEPS = 10
"""Steps that a call counts for: it takes so much longer than a round of a loop."""
CHARACTERS = 10_000_000
MEMBERS = 1_000_000
"""Most members that a value may have to be printed, those of its members included."""


class TooMuchError(TemplateRuntimeError):
    """A rendering that would not end in good time, or would fill the memory."""


@attrs.define(eq=False)
class Meter:
    """The steps of the rendering under way."""

    left: int = STEPS

    def start(self) -> None:
        """Begin a rendering."""
        self.left = STEPS

    def take(self, steps: int) -> None:
        """Count steps that are about to be taken.

        Raises:
            TooMuchError: They are more than are left.
        """
        self.left -= steps
        if self.left < 0:
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


def check_members(value: Any) -> None:
    """Refuse a value that holds others so often that walking through it would not end.

    Raises:
        TooMuchError: It does.
    """
    seen = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        members = one.values() if isinstance(one, Mapping) else one
        seen += len(members)
        if seen > MEMBERS:
            raise TooMuchError(f"the template printed a value of more than {MEMBERS} members")
        waiting += (part for part in members if isinstance(part, list | tuple | Mapping))
