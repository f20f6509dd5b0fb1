"""Positions of mistakes in other files than the suite's own."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from trioeval.documents import Document, read_document
from trioeval.documents.mistakes import Mistake, MistakenError, moved_unknown_keys

T = TypeVar("T")

MOST_SHOWN = 50
"""The maximum number of mistakes of one file that are shown; the others are only counted."""


def placed(mistakes: Iterable[Mistake], file: Path, document: Document | None) -> list[Mistake]:
    """Return mistakes in a document as mistakes in its file, with line and column."""
    root = None if document is None else document.spots().root
    return [
        mistake
        if mistake.file is not None
        else attrs.evolve(
            mistake,
            file=file,
            place=mistake.place or (root.find(mistake.at, key=mistake.key) if root else None),
        )
        for mistake in mistakes
    ]


def first_mistakes(
    mistakes: Sequence[Mistake], file: Path, place: Callable[[Mistake], Mistake] = lambda one: one
) -> tuple[Mistake, ...]:
    """Return the first mistakes of a file and the number of the others.

    Args:
        mistakes: All of them, in the order of the file.
        file: The file that contains the mistakes.
        place: Finds the position of a mistake; called only for those that are shown.

    Example:
        >>> shown = first_mistakes([Mistake("odd")] * 60, Path("t.jsonl"))
        >>> len(shown), shown[-1].message
        (51, '… and 10 more mistakes')
    """
    more = len(mistakes) - MOST_SHOWN
    shown = tuple(map(place, mistakes[: MOST_SHOWN + 1]))
    if more <= 0:
        return shown
    last = f"… and {more} more mistake{'s' if more > 1 else ''}"
    return (*shown[:-1], Mistake(last, file=file, place=shown[-1].place))


def read_placed(file: Path, read: Callable[[Path], Document] = read_document) -> Document:
    """Read a document and add the name of its file to its mistakes.

    Raises:
        MistakenError: It cannot be read, or is not a valid document.
    """
    try:
        document = read(file)
    except MistakenError as error:
        raise MistakenError(*placed(error.parts, file, None)) from None
    if document.mistakes:
        raise MistakenError(*placed(document.mistakes, file, document))
    return document


def structured(document: Document, file: Path, structure: Callable[[object], T]) -> T:
    """Structure the data of a document.

    Raises:
        MistakenError: All of its mistakes, with their positions in the file.
    """
    try:
        with moved_unknown_keys(lambda part: placed([part], file, document)[0]):
            return structure(document.data)
    except MistakenError as error:
        raise MistakenError(*placed(error.parts, file, document)) from None
