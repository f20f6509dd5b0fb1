"""Files named in data that comes from a file itself: what they hold takes the place of their names."""

from pathlib import Path
from typing import Any

from trioeval.suite.anchors import FILE
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import MistakenError
from trioeval.suite.placing import read_placed
from trioeval.suite.sources.around import Around, is_glob
from trioeval.suite.sources.csv_text import read_rows
from trioeval.suite.sources.prompt_files import read_text

_DOCUMENTS = {".json", ".yaml", ".yml"}
_PROGRAMS = (".py", ".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")


def with_files(value: Any, around: Around) -> Any:
    """A value whose texts `file://…` are replaced by what those files hold.

    Documents become data, tables lists of objects, or of texts if they have one column, and all others texts.
    A pattern stands for the list of what its files hold. Programs keep their names: they run later.

    Raises:
        MistakenError: Files that there are not, or that cannot be read.
    """
    match value:
        case str() if value.startswith(FILE) and not _is_program(value):
            if not is_glob(value):
                return _content(around.file(value), around)
            found = []
            for file in around.files(value):
                content = _content(file, around)
                found += content if isinstance(content, list) else [content]
            return found
        case list():
            return [member for _, member in _members(enumerate(value), around)]
        case dict():
            return dict(_members(value.items(), around))
        case _:
            return value


def _members(members: Any, around: Around) -> list[tuple[Any, Any]]:
    found, mistakes = [], []
    for step, member in members:
        try:
            found.append((step, with_files(member, around)))
        except MistakenError as error:
            mistakes += [mistake.below(step) for mistake in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    return found


def _is_program(reference: str) -> bool:
    path = reference.rpartition("/")[2].partition(":")[0]
    return path.endswith(_PROGRAMS)


def _content(file: Path, around: Around) -> Any:
    if file.suffix.lower() in _DOCUMENTS:
        return read_placed(file, read_document).data
    text = read_text(file)
    if file.suffix.lower() != ".csv":
        return text
    header, *rows = (
        row.cells for row in read_rows(text, delimiter=around.variable("CSV_DELIMITER", ","))
    )
    if len(header) == 1:
        return [cells[0] for cells in rows]
    return [dict(zip(header, cells, strict=False)) for cells in rows]
