"""Mistakes in a document, before their file and line are known."""

import difflib
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
"""Line and column, both from 1."""


SUITE_HINT = "write its keys, such as providers, prompts and tests"
"""The hint for a suite that is not an object."""


@attrs.frozen
class Mistake:
    """One mistake in the value that is being read, or in a part of it."""

    message: str
    """The problem."""
    hint: str | None = None
    """The advice: how to correct it."""
    at: DocumentPath = attrs.field(default=(), kw_only=True)
    """The path of the mistake, relative to that value."""
    key: bool = attrs.field(default=False, kw_only=True)
    """True if the mistake is in the key at `at`, not in its value."""
    place: Place | None = attrs.field(default=None, kw_only=True)
    """The position in the file, if it is already known; otherwise it is looked up by `at`."""
    file: Path | None = attrs.field(default=None, kw_only=True)
    """The file, if it is not the one that is being read; `at` and `place` then refer to it."""

    def below(self, *steps: str | int) -> "Mistake":
        """Return the mistake relative to an enclosing value; one in another file is unchanged."""
        return self if self.file else attrs.evolve(self, at=(*steps, *self.at))


@attrs.frozen
class Warned(Mistake):
    """A warning about a value that can be used; see `collect_warning`."""


class MistakenError(ValueError):
    """A value that cannot be read, with all of its mistakes."""

    def __init__(self, *parts: Mistake) -> None:
        self.parts = parts
        super().__init__("; ".join(part.message for part in parts))


# Unknown keys, and some values to warn of, are found deep in a document, where nothing knows their whole
# path. They are collected on the way up, as mistakes are, and whatever completes the path of a mistake
# completes theirs.

_COLLECTED: ContextVar[list[Mistake] | None] = ContextVar("_COLLECTED", default=None)


@contextmanager
def collect_unknown_keys(warnings: list[Mistake]) -> Iterator[list[Mistake]]:
    """Collect the unknown keys that a block ignores; outside of such a block they are forgotten.

    Args:
        warnings: Gets the warnings of `collect_warning` when the block ends.
    """
    found: list[Mistake] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)
        warnings += (one for one in found if isinstance(one, Warned))
        found[:] = [one for one in found if not isinstance(one, Warned)]


@contextmanager
def moved_unknown_keys(move: Callable[[Mistake], Mistake]) -> Iterator[None]:
    """Complete the paths of the unknown keys that a block ignores."""
    start = _collected()
    try:
        yield
    finally:
        _move_collected(start, move)


def collect_warning(message: str, hint: str | None, *at: str | int, key: bool = False) -> None:
    """Collect a warning about a part of the value that is being read.

    Example:
        >>> with collect_unknown_keys(found := []) as unknown, below("tests", 0):
        ...     collect_warning("is empty", None, "vars")
        >>> found[0].at
        ('tests', 0, 'vars')
    """
    ignore_key(Warned(message, hint, at=at, key=key))


def _collected() -> int:
    found = _COLLECTED.get()
    return 0 if found is None else len(found)


def _move_collected(start: int, move: Callable[[Mistake], Mistake]) -> None:
    found = _COLLECTED.get()
    if found is not None and len(found) > start:
        found[start:] = map(move, found[start:])


def unknown_key(
    key: str, known: Collection[str], *, before: Iterable[Mistake] = (), refused: bool = False
) -> Iterator[Mistake]:
    """Yield the mistake of a key that is not known; if it resembles no known key, ignore it.

    Args:
        key: The key.
        known: The keys that are known.
        before: Mistakes that are already found: their hints are not repeated.
        refused: It is a mistake in any case.

    Example:
        >>> [mistake.hint for mistake in unknown_key("asserts", ["assert", "vars"])]
        ['did you mean "assert"?']
        >>> list(unknown_key("author", ["assert", "vars"]))
        []
    """
    hint, is_near = _advice(key, frozenset(known))
    ignored = _COLLECTED.get() or ()
    is_repeated = any(hint == mistake.hint for mistake in itertools.chain(before, ignored))
    mistake = Mistake(
        f'"{key}" is not a key here', None if is_repeated else hint, at=(key,), key=True
    )
    if refused or is_near:
        yield mistake
    else:
        ignore_key(mistake)


@functools.lru_cache(256)  # a file of many tests may have the same key in each of them
def _advice(key: str, known: frozenset[str]) -> tuple[str, bool]:
    """Return the hint for an unknown key, and whether it looks like a misspelling."""
    return nearest(key, known, most=FEW_KEYS), is_misspelt(key, known)


def ignore_key(mistake: Mistake) -> None:
    """Collect a key without effect, as the mistake that it is if unknown keys are refused."""
    if (found := _COLLECTED.get()) is not None:
        found.append(mistake)


def each_once(unknown: Iterable[Mistake]) -> Iterator[Mistake]:
    """Yield each key once: several tasks read what they inherit, and only the first has the hint."""
    seen: set[object] = set()
    for mistake in unknown:
        key = (mistake.file, mistake.place, mistake.at)
        if key not in seen:
            seen.add(key)
            yield mistake


def unknown_key_warnings(unknown: Iterable[Mistake]) -> Iterator[Mistake]:
    """Yield the warnings of unknown keys, one for all paths that differ only in the indices of entries.

    Example:
        >>> keys = [Mistake('"a" is not a key here', at=("tests", n, "a")) for n in range(3)]
        >>> [(one.at, one.message) for one in unknown_key_warnings(keys)]
        [(('tests', 0, 'a'), '"a" is not a key here and has no effect (3 times)')]
    """
    alike: dict[object, list[Mistake]] = {}
    for mistake in each_once(unknown):
        steps = tuple(step if isinstance(step, str) else 0 for step in mistake.at)
        alike.setdefault((mistake.file, steps), []).append(mistake)
    for first, *more in alike.values():
        times = f" ({len(more) + 1} times)" if more else ""
        yield attrs.evolve(first, message=f"{first.message} and has no effect{times}", hint=None)


def is_misspelt(key: str, known: Iterable[str]) -> bool:
    """Return whether an unknown key looks like a misspelling of a known one.

    Example:
        >>> is_misspelt("treshold", ["threshold"]), is_misspelt("outputs", ["outputPath"])
        (True, False)
    """
    folded, key = {_folded(one) for one in known}, _folded(key)
    has_same_letters = any(sorted(one) == sorted(key) for one in folded)  # `hihg` for `high`
    return has_same_letters or bool(difflib.get_close_matches(key, folded, n=1, cutoff=_MISSPELT))


_MISSPELT = 0.8
"""The ratio of difflib from which a key counts as a misspelling; `lable` for `label` has exactly this one."""


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

    def below(self, *steps: str | int) -> "_MistakeCollector":
        """Return a context manager that collects the mistakes a block raises about the part at `steps`."""
        return _MistakeCollector(self, steps)

    def raise_any(self) -> None:
        """Raise the collected mistakes, if there are any.

        Raises:
            MistakenError: At least one mistake was collected.
        """
        if self:
            raise MistakenError(*self)


@attrs.define(eq=False, repr=False)
class _MistakeCollector:
    gathered: Mistakes
    steps: DocumentPath
    start: int = attrs.field(default=0, init=False)
    """The number of unknown keys before the block."""

    def __enter__(self) -> None:
        self.start = _collected()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> bool:
        if self.steps:
            _move_collected(self.start, lambda part: part.below(*self.steps))
        if not isinstance(error, MistakenError):
            return False
        self.gathered.extend(part.below(*self.steps) for part in error.parts)
        return True


@contextmanager
def below(*steps: str | int) -> Iterator[None]:
    """Re-raise the mistakes of a block relative to the enclosing value."""
    try:
        with moved_unknown_keys(lambda part: part.below(*steps)):
            yield
    except MistakenError as error:
        raise MistakenError(*(part.below(*steps) for part in error.parts)) from None


def read_each(parts: Iterable[tuple[Step, S]], read: Callable[[Step, S], T]) -> dict[Step, T]:
    """Read each part of a value and return the results by key or position.

    Raises:
        MistakenError: All mistakes of all parts.

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
    """Read each entry of a list.

    Raises:
        MistakenError: All mistakes of all entries.
    """
    return list(read_each(enumerate(entries), lambda _place, entry: read(entry)).values())


def kind(value: Any) -> str:
    """Describe a value in the terms of JSON, with the value itself if it is short.

    Example:
        >>> kind("5"), kind(5), kind(5.0), kind([5]), kind(())
        ('the text "5"', '5', '5.0', 'a list', 'a value of type tuple')
    """
    match value:
        case float() if value.is_integer():
            return repr(value)  # not `quote`: it must not look like a whole number
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


FEW_KEYS = 3
"""The maximum number of keys in a hint about an unknown one."""
_FEW_WORDS = 8


def nearest(word: str, known: Iterable[str], *, most: int = _FEW_WORDS) -> str:
    """Return a hint: the word that was probably meant, or else the known words that are nearest to it.

    Case, `_` and `-` do not count.

    Args:
        word: The unknown word.
        known: All words that would be valid.
        most: The maximum number of known words of which the hint names all, instead of the three nearest.

    Example:
        >>> nearest("promtps", ["prompts", "tests"]), nearest("x", ["prompts", "tests"])
        ('did you mean "prompts"?', 'known are prompts, tests')
        >>> nearest("output", ["prompts", "tests", "tags", "env", "limits"], most=3)
        'nearest are tests, prompts, tags'
    """
    words = sorted(known)
    by_folded: dict[str, str] = {}
    for one in words:
        by_folded.setdefault(_folded(one), one)
    if close := difflib.get_close_matches(_folded(word), by_folded, n=1):
        return f'did you mean "{by_folded[close[0]]}"?'
    if len(words) <= most:
        return f"known are {', '.join(words)}" if words else "there are none"
    near = difflib.get_close_matches(_folded(word), by_folded, n=FEW_KEYS, cutoff=0)
    return f"nearest are {', '.join(by_folded[one] for one in near)}"


def _folded(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
