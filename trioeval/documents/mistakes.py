"""What is wrong with a document, before it is known in which file and line that stands."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import attrs

from trioeval.documents.paths import DocumentPath
from trioeval.grading import quote

S = TypeVar("S")
Step = TypeVar("Step", bound=str | int)
T = TypeVar("T")

Place: TypeAlias = tuple[int, int]
"""Line and column, from 1."""


@attrs.frozen
class Mistake:
    """One thing that is wrong at, or below, the value that is looked at."""

    message: str
    """What was found."""
    hint: str | None = None
    """What would be right."""
    at: DocumentPath = attrs.field(default=(), kw_only=True)
    """Where, relative to that value."""
    key: bool = attrs.field(default=False, kw_only=True)
    """Whether the key at `at` is meant rather than its value."""
    place: Place | None = attrs.field(default=None, kw_only=True)
    """Where it stands in the file, if that is known already; otherwise `at` tells."""
    file: Path | None = attrs.field(default=None, kw_only=True)
    """Another file than the one that is looked at, in which `at` and `place` are."""

    def below(self, *steps: str | int) -> "Mistake":
        """The same mistake, seen from further up; one in another file stays where it is."""
        return self if self.file else attrs.evolve(self, at=(*steps, *self.at))


class MistakenError(ValueError):
    """A value that cannot be taken, with everything that is wrong with it."""

    def __init__(self, *parts: Mistake) -> None:
        self.parts = parts
        super().__init__("; ".join(part.message for part in parts))


class Mistakes(list[Mistake]):
    """Mistakes of several parts of a value, to be raised together.

    Example:
        >>> mistakes = Mistakes()
        >>> for place, text in enumerate(["a", "", ""]):
        ...     with mistakes.below(place):
        ...         if not text:
        ...             raise MistakenError(Mistake("must not be empty"))
        >>> [mistake.at for mistake in mistakes]
        [(1,), (2,)]
    """

    def below(self, *steps: str | int) -> "_Part":
        """Gather what a block raises about the part at `steps`, and go on behind the block."""
        return _Part(self, steps)

    def raise_any(self) -> None:
        """Raise what was gathered.

        Raises:
            MistakenError: Something was.
        """
        if self:
            raise MistakenError(*self)


@attrs.define(eq=False)
class _Part:
    gathered: Mistakes
    steps: DocumentPath

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> bool:
        if not isinstance(error, MistakenError):
            return False
        self.gathered.extend(part.below(*self.steps) for part in error.parts)
        return True


@contextmanager
def below(*steps: str | int) -> Iterator[None]:
    """Raise what a block raises about the part at `steps` as mistakes of the whole."""
    try:
        yield
    except MistakenError as error:
        raise MistakenError(*(part.below(*steps) for part in error.parts)) from None


def read_each(parts: Iterable[tuple[Step, S]], read: Callable[[Step, S], T]) -> dict[Step, T]:
    """What each part of a value stands for, by its key or position, which it is read with.

    Raises:
        MistakenError: Everything that is wrong with any of them.

    Example:
        >>> read_each({"a": 1, "b": 2}.items(), lambda key, part: key * part)
        {'a': 'a', 'b': 'bb'}
    """
    found: dict[Step, T] = {}
    mistakes = Mistakes()
    for step, part in parts:
        with mistakes.below(step):
            found[step] = read(step, part)
    mistakes.raise_any()
    return found


def read_list(entries: Iterable[S], read: Callable[[S], T]) -> list[T]:
    """What each entry of a list stands for.

    Raises:
        MistakenError: Everything that is wrong with any of them.
    """
    return list(read_each(enumerate(entries), lambda _place, entry: read(entry)).values())


def kind(value: Any) -> str:
    """What a value is, in the words of JSON, with the value itself where it is short.

    Example:
        >>> kind("5"), kind(5), kind(5.0), kind([5]), kind(())
        ('the text "5"', '5', '5.0', 'a list', 'a value of type tuple')
    """
    match value:
        case float() if value.is_integer():
            return repr(value)  # which is no whole number, though it looks like one
        case None | bool() | int() | float():
            return quote(value)
        case str():
            return f"the text {quote(value)}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a value of type {type(value).__name__}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint: the word that was probably meant, or all that are known.

    Example:
        >>> nearest("promtps", ["prompts", "tests"]), nearest("x", ["prompts", "tests"])
        ('did you mean "prompts"?', 'known are prompts, tests')
    """
    words = sorted(known)
    if close := difflib.get_close_matches(word, words, n=1):
        return f'did you mean "{close[0]}"?'
    return f"known are {', '.join(words)}" if words else "there are none"
