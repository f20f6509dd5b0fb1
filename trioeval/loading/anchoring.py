"""Anchoring of paths in a suite file that is combined with one of another folder.

Every path is relative to the folder of the file that contains it. This folder is unknown after several
files have been combined, so the paths of all files outside of the first file's folder are anchored before.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from trioeval.documents import top_key
from trioeval.documents.files import FILE, FileContext, anchored, names_file
from trioeval.documents.structure import camel
from trioeval.scripting import names_script
from trioeval.suite.sources.prompts import means_file

_PROGRAMS = (FILE, "python:", "replay:")
"""Prefixes of the ids of providers that name a file."""


Reader: TypeAlias = Callable[[Any, Path], Any]
"""Anchors the paths in a value of a file in a folder."""


def with_own_paths(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a suite file, or a task of one, with its paths anchored in its folder.

    Example:
        >>> with_own_paths({"tests": "t.csv", "tags": {"a": "file://x"}}, Path("/s"))
        {'tests': '/s/./t.csv', 'tags': {'a': 'file://x'}}
    """
    return {
        key: _READERS.get(top_key(key), _anywhere)(value, folder) for key, value in document.items()
    }


def _as_it_is(value: Any, _folder: Path) -> Any:
    return value


def _path(value: Any, folder: Path) -> Any:
    return anchored(value, folder) if isinstance(value, str) else value


def _marked(value: Any, folder: Path) -> Any:
    return anchored(value, folder) if names_file(value) else value


def _members(readers: Mapping[str, Reader], *, others: Reader, alone: Reader) -> Reader:
    """Return a reader of objects by their keys in camelCase, and of lists of them; `alone` reads the rest."""

    def read(value: Any, folder: Path) -> Any:
        match value:
            case list():
                return [read(entry, folder) for entry in value]
            case dict():
                return {
                    key: readers.get(camel(key), others)(part, folder)
                    for key, part in value.items()
                }
            case _:
                return alone(value, folder)

    return read


def _deep(text: Reader) -> Reader:
    """Return a reader of all texts in a value, at any depth."""

    def read(value: Any, folder: Path) -> Any:
        return members(value, folder)

    members = _members({}, others=read, alone=text)
    return read


_paths = _deep(_path)
"""Anchors paths: a single one, or those in a list or an object."""
_anywhere = _deep(_marked)
"""Anchors the files in a value that are marked as such by `file://`."""


def _prompts(value: Any, folder: Path) -> Any:
    if isinstance(value, dict) and "raw" not in value and "id" not in value:  # files with labels
        return {_prompt(file, folder): label for file, label in value.items()}
    if isinstance(value, list):
        return [_prompt(entry, folder) for entry in value]
    return _prompt(value, folder)


def _prompt(entry: Any, folder: Path) -> Any:
    match entry:
        case str() if means_file(entry, FileContext(directory=folder)):
            return anchored(entry, folder)
        case {"raw": str(raw)}:
            return {**entry, "raw": _prompt(raw, folder)}
        case {"id": str(name)}:
            return {**entry, "id": _prompt(name, folder)}
        case _:
            return entry


def _providers(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_provider(entry, folder) for entry in value]
    return _provider(value, folder)


def _provider(entry: Any, folder: Path) -> Any:
    """Return a provider; if it has no label, its id as written becomes its label."""
    match entry:
        case str() if names_script(entry) and not entry.startswith(FILE):
            return {"id": anchored(entry, folder), "label": entry}
        case str() if entry.startswith(_PROGRAMS) and not entry.endswith(
            (".json", ".yaml", ".yml")
        ):
            return {"id": _program(entry, folder), "label": entry}
        case {"id": str(name)} if name.startswith(_PROGRAMS):
            return {"label": name, **_anywhere(entry, folder), "id": _program(name, folder)}
        case _:
            return _anywhere(entry, folder)


def _program(name: str, folder: Path) -> str:
    if name.startswith(FILE):
        return anchored(name, folder)
    family, _, path = name.partition(":")
    return f"{family}:{anchored(path, folder)}"


def _tasks(value: Any, folder: Path) -> Any:
    if not isinstance(value, list):
        return value
    return [with_own_paths(task, folder) if isinstance(task, dict) else task for task in value]


def _variables(value: Any, folder: Path) -> Any:
    """Anchor the files that variables name, or the files that contain the variables."""
    return (_anywhere if isinstance(value, dict) else _paths)(value, folder)


_TESTS = _members(
    {"path": _paths, "workspace": _paths, "vars": _variables, "metadata": _as_it_is},
    others=_anywhere,
    alone=_paths,
)
_READERS: Mapping[str, Reader] = {
    **dict.fromkeys(("description", "env", "metadata", "tags"), _as_it_is),
    **dict.fromkeys(("nunjucksFilters", "extensions", "workspace"), _paths),
    **dict.fromkeys(("questionsFile", "questions_file"), _paths),
    "prompts": _prompts,
    "providers": _providers,
    "tests": _TESTS,
    "defaultTest": _TESTS,
    "scenarios": _members({"description": _as_it_is}, others=_TESTS, alone=_paths),
    "commandLineOptions": _members(
        dict.fromkeys(("envFile", "envPath"), _paths), others=_as_it_is, alone=_as_it_is
    ),
    "limits": _members({"file": _paths}, others=_as_it_is, alone=_as_it_is),
    # The files of datasets are named without `file://`.
    "columns": _members({"file": _paths, "provider": _provider}, others=_anywhere, alone=_anywhere),
    "tasks": _tasks,
}
"""Readers by the keys of a file and of a task."""
