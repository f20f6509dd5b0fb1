"""Where the parts of a document come from that was put together from several places."""

from pathlib import Path

import attrs

from trioeval.suite.documents.read import Document
from trioeval.suite.mistakes import Mistake
from trioeval.suite.paths import DocumentPath


@attrs.define(eq=False)
class Origin:
    """The text that a value was read from, and what was put into it from elsewhere."""

    file: Path
    document: Document = attrs.field(repr=False)
    path: DocumentPath = ()
    """Where the value stands in that file."""
    grafts: dict[DocumentPath, "Origin | None"] = attrs.field(factory=dict)
    """What stands elsewhere, by where it was put in this value; None is this text again."""

    def trace(self, path: DocumentPath, *, key: bool = False) -> tuple["Origin", DocumentPath]:
        """Who wrote the value at `path`, or its key: the origin, and the path in the file of that.

        The deepest graft above it decides; what was put into the grafted value is looked up there.
        """
        deepest = len(path) - 1 if key and path else len(path)
        for depth in range(deepest, -1, -1):
            if path[:depth] not in self.grafts:
                continue
            graft = self.grafts[path[:depth]]
            if graft is None:
                break
            return graft.trace(path[depth:], key=key)
        return self, (*self.path, *path)

    def placed(self, mistake: Mistake) -> Mistake:
        """The same mistake in the file that it is in, with line, column and the path there."""
        if mistake.file is not None:
            return mistake
        origin, path = self.trace(mistake.at, key=mistake.key)
        root = origin.document.spots().root
        place = mistake.place or (root.find(path, key=mistake.key) if root else None)
        return attrs.evolve(mistake, file=origin.file, at=path, place=place)
