"""Files named in data that comes from a file itself: what they hold takes the place of their names."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.suite.anchors import FILE
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.placing import read_placed
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.csv_text import read_rows
from trioeval.suite.sources.functions import call_function
from trioeval.suite.sources.patterns import is_glob
from trioeval.suite.sources.prompt_files import read_text
from trioeval.suite.strict import camel

_DOCUMENTS = {".json", ".yaml", ".yml"}
_PROGRAMS = (".py", ".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")


_PYTHON = re.compile(r"(.+\.py)(?::([\w.]+))?")
_CODE_KEYS = {"responseParser", "transformRequest", "transformResponse", "validateStatus"}
"""Keys of a provider's config whose code runs for each call."""
_UNKNOWN = object()
"""What a function would return that only a run calls."""


def config_values(config: Mapping[str, Any], around: Around) -> dict[str, Any]:
    """A config with what its files hold, and what its functions `file://<file>.py[:<function>]` return.

    The function is called once without arguments, `get_config` where none is named.

    Raises:
        MistakenError: Files that there are not, that cannot be read, or whose function fails.
    """
    found, mistakes = [], []
    for key, value in config.items():
        keep = _keep if camel(str(key)) in _CODE_KEYS else _run
        try:
            found.append((key, with_files(value, around, program=keep)))
        except MistakenError as error:
            mistakes += [mistake.below(key) for mistake in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    return {key: value for key, value in found if value is not _UNKNOWN}


def _keep(reference: str, around: Around) -> Any:
    around.check_code(quote(reference))
    return reference


def _run(reference: str, around: Around) -> Any:
    parts = _PYTHON.fullmatch(reference.removeprefix(FILE))
    if parts is None:
        message = f"{quote(reference)} is JavaScript, which is not run for a config"
        raise MistakenError(Mistake(message, "write file://<file>.py[:<function>], JSON or YAML"))
    around.check_code(quote(reference))
    file, function = around.file(parts[1]), parts[2] or "get_config"
    if not around.may_run(quote(reference), f"the part of a config that {quote(reference)} makes"):
        return _UNKNOWN
    return call_function(file, function, (), around)


def with_files(value: Any, around: Around, *, program: Callable[[str, Around], Any] = _keep) -> Any:
    """A value whose texts `file://…` are replaced by what those files hold.

    Documents become data, tables lists of objects, or of texts if they have one column, and all others texts.
    A pattern stands for the list of what its files hold.

    Args:
        value: JSON data.
        around: What the files are read against.
        program: What a program stands for; its name, if it runs later.

    Raises:
        MistakenError: Files that there are not, or that cannot be read.
    """
    match value:
        case str() if value.startswith(FILE) and _is_program(value):
            return program(value, around)
        case str() if value.startswith(FILE):
            if not is_glob(value):
                return _content(around.file(value), around)
            found = []
            for file in around.files(value):
                content = _content(file, around)
                found += content if isinstance(content, list) else [content]
            return found
        case list():
            return [member for _, member in _members(enumerate(value), around, program)]
        case dict():
            return dict(_members(value.items(), around, program))
        case _:
            return value


def _members(
    members: Any, around: Around, program: Callable[[str, Around], Any]
) -> list[tuple[Any, Any]]:
    found, mistakes = [], []
    for step, member in members:
        try:
            found.append((step, with_files(member, around, program=program)))
        except MistakenError as error:
            mistakes += [mistake.below(step) for mistake in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    return [(step, value) for step, value in found if value is not _UNKNOWN]


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
