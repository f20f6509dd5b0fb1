"""Places of mistakes in other files than the suite's own."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from trioeval.documents import Document, read_document
from trioeval.documents.mistakes import Mistake, MistakenError

T = TypeVar("T")

TOLD = 50
"""Mistakes of one file that are told; of more there is only the number."""


def placed(mistakes: Iterable[Mistake], file: Path, document: Document | None) -> list[Mistake]:
    """Mistakes in a document as mistakes in its file, with line and column."""
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


def shortened(
    mistakes: Sequence[Mistake], file: Path, place: Callable[[Mistake], Mistake] = lambda one: one
) -> tuple[Mistake, ...]:
    """The first mistakes of a file, and how many more there are.

    Args:
        mistakes: All of them, in the order of the file.
        file: The file whose mistakes they are.
        place: Finds where one stands, for those that are told.

    Example:
        >>> told = shortened([Mistake("odd")] * 60, Path("t.jsonl"))
        >>> len(told), told[-1].message
        (51, '… and 10 more mistakes')
    """
    more = len(mistakes) - TOLD
    told = tuple(map(place, mistakes[: TOLD + 1]))
    if more <= 0:
        return told
    last = f"… and {more} more mistake{'s' if more > 1 else ''}"
    return (*told[:-1], Mistake(last, file=file, place=told[-1].place))


def read_placed(file: Path, read: Callable[[Path], Document] = read_document) -> Document:
    """A document whose mistakes, if it has any, name its file.

    Raises:
        MistakenError: It cannot be read, or is wrong as a document.
    """
    try:
        document = read(file)
    except MistakenError as error:
        raise MistakenError(*placed(error.parts, file, None)) from None
    if document.mistakes:
        raise MistakenError(*placed(document.mistakes, file, document))
    return document


def structured(document: Document, file: Path, structure: Callable[[object], T]) -> T:
    """What a document stands for.

    Raises:
        MistakenError: All that is wrong with it, placed in its file.
    """
    try:
        return structure(document.data)
    except MistakenError as error:
        raise MistakenError(*placed(error.parts, file, document)) from None
