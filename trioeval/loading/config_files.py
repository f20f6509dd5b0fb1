# Apart from `loading.load`: together they exceed 600 lines.
"""What paths in a suite file mean where the file is laid over one of another folder.

Every path is relative to the folder of the file in which it stands. Once several files are one suite, that
can no longer be seen, so the paths of all but the first file's folder are anchored before.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trioeval.documents import top_key
from trioeval.documents.files import FILE, Around, anchored
from trioeval.suite.sources.prompts import means_file

_NO_PATHS = {"description", "env", "metadata", "tags"}
_PROGRAMS = (FILE, "python:", "replay:")
"""What ids of providers begin with that name a file."""


def with_own_paths(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A suite file, or a task of one, with its paths anchored in its folder.

    Example:
        >>> with_own_paths({"tests": "t.csv", "tags": {"a": "file://x"}}, Path("/s"))
        {'tests': '/s/./t.csv', 'tags': {'a': 'file://x'}}
    """
    readers: dict[str, Callable[[Any, Path], Any]] = {
        "prompts": _prompts,
        "providers": _providers,
        "tests": _tests,
        "scenarios": _scenarios,
        "defaultTest": _test,
        "nunjucksFilters": _paths,
        "extensions": _paths,
        "commandLineOptions": _flags,
        "tasks": _tasks,
        "quota": _quota,
        "columns": _columns,
        "questionsFile": _paths,
        "questions_file": _paths,
        "workspace": _paths,
    }
    return {
        key: value if key in _NO_PATHS else readers.get(top_key(key), _anywhere)(value, folder)
        for key, value in document.items()
    }


def _anywhere(value: Any, folder: Path) -> Any:
    """A value with the files named in it that say so themselves."""
    match value:
        case str() if value.startswith(FILE):
            return anchored(value, folder)
        case dict():
            return {key: _anywhere(part, folder) for key, part in value.items()}
        case list():
            return [_anywhere(part, folder) for part in value]
        case _:
            return value


def _paths(value: Any, folder: Path) -> Any:
    """A path, or paths in a list or an object."""
    match value:
        case str():
            return anchored(value, folder)
        case dict():
            return {key: _paths(part, folder) for key, part in value.items()}
        case list():
            return [_paths(part, folder) for part in value]
        case _:
            return value


def _prompts(value: Any, folder: Path) -> Any:
    if isinstance(value, dict) and "raw" not in value and "id" not in value:  # files with labels
        return {_prompt(file, folder): label for file, label in value.items()}
    if isinstance(value, list):
        return [_prompt(entry, folder) for entry in value]
    return _prompt(value, folder)


def _prompt(entry: Any, folder: Path) -> Any:
    match entry:
        case str() if means_file(entry, Around(directory=folder)):
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
    """A provider whose label, if it has none, is the id that it was given."""
    match entry:
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


def _tests(value: Any, folder: Path) -> Any:
    return (
        [_test(entry, folder) for entry in value]
        if isinstance(value, list)
        else _test(value, folder)
    )


def _test(value: Any, folder: Path) -> Any:
    """A test, the path of a file of tests, or an object with such a path."""
    if not isinstance(value, dict):
        return _paths(value, folder)
    found: dict[str, Any] = {}
    for key, part in value.items():
        match key, part:
            case ("path" | "workspace", str()) | ("vars", str() | list()):
                found[key] = _paths(part, folder)
            case "metadata", _:
                found[key] = part
            case _:
                found[key] = _anywhere(part, folder)
    return found


def _scenarios(value: Any, folder: Path) -> Any:
    match value:
        case list():
            return [_scenarios(entry, folder) for entry in value]
        case dict():
            return {
                key: _tests(part, folder) for key, part in value.items() if key != "description"
            } | {key: part for key, part in value.items() if key == "description"}
        case _:
            return _paths(value, folder)


def _flags(value: Any, folder: Path) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: _paths(part, folder) if key in {"envFile", "env_file", "envPath"} else part
        for key, part in value.items()
    }


def _quota(value: Any, folder: Path) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: _paths(part, folder) if key in {"limitsFile", "limits_file"} else part
        for key, part in value.items()
    }


def _columns(value: Any, folder: Path) -> Any:
    """Columns of a dataset: files of seeds are named without `file://`."""
    if not isinstance(value, list):
        return _anywhere(value, folder)
    readers = {"file": _paths, "provider": _provider}
    return [
        {key: readers.get(key, _anywhere)(part, folder) for key, part in entry.items()}
        if isinstance(entry, dict)
        else entry
        for entry in value
    ]


def _tasks(value: Any, folder: Path) -> Any:
    if not isinstance(value, list):
        return value
    return [with_own_paths(task, folder) if isinstance(task, dict) else task for task in value]
