"""What a command line puts in place of parts of a suite file, on plain data, before it is structured."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.suite.anchors import FILE
from trioeval.suite.sources.around import names_file

_SEPARATORS = ":/"
"""What stands before the end of an id that is a name of its own: `mini` names `openai:mini`."""


def apply_given(document: Any, given: Mapping[str, Any]) -> Any:
    """A document with other parts; all of its own parts stay where nothing is given.

    Args:
        document: As it was read.
        given: Top-level keys. Of `providers`, names: see `chosen_providers`.

    Example:
        >>> apply_given({"targets": ["echo", "a:b"], "prompts": ["x"]}, {"providers": ["b"]})
        {'prompts': ['x'], 'providers': ['a:b']}
    """
    if not given or not isinstance(document, dict):
        return document
    found = {**document, **given}
    if "providers" in given:
        written = found.pop("targets", None) or document.get("providers") or []
        entries = written if isinstance(written, list) else [written]
        found["providers"] = chosen_providers(entries, given["providers"])
    return found


def chosen_providers(entries: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The providers of a suite that some names mean, in the order of the names.

    A name means every entry with that label or id, else every entry whose id ends in it; a name that means
    none of them is the id of a provider that the suite does not have.

    Args:
        entries: Of a suite file, in any of their forms.
        names: As a user gives them.

    Example:
        >>> entries = ["openai:chat:gpt-4.1-mini", {"id": "echo", "label": "back"}]
        >>> chosen_providers(entries, ["back", "gpt-4.1-mini", "exec:cat"])
        [{'id': 'echo', 'label': 'back'}, 'openai:chat:gpt-4.1-mini', 'exec:cat']
    """
    found: list[Any] = []
    for name in names:
        exact = [entry for entry in entries if name in _names(entry)]
        ends = [entry for entry in entries if any(_ends(known, name) for known in _names(entry))]
        found += [entry for entry in exact or ends or [name] if entry not in found]
    return found


def _ends(known: str, name: str) -> bool:
    return any(known.endswith(separator + name) for separator in _SEPARATORS)


def _names(entry: Any) -> Iterator[str]:
    """Label and id of an entry; none where it is not in one of the forms."""
    match entry:
        case str():
            yield entry
        case {"id": str(name)}:
            yield name
        case dict() if len(entry) == 1:
            yield from (name for name in entry if isinstance(name, str))
            entry = next(iter(entry.values()))
        case _:
            pass
    if isinstance(entry, dict) and isinstance(entry.get("label"), str):
        yield entry["label"]


_OF_FILES = ("python:", "replay:", "local:embedding:")
"""What ids of providers begin with that name a file or a folder."""


def folders_of(given: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """The folders of the files that are given. Whoever named them may read there.

    Args:
        given: See `apply_given`.
        directory: What paths in the ids of providers are relative to.

    Example:
        >>> given = {
        ...     "tests": "file:///t/a.csv",
        ...     "prompts": ["x"],
        ...     "providers": ["replay:../r.jsonl"],
        ... }
        >>> [str(folder) for folder in folders_of(given, Path("/s"))]
        ['/s/..', '/t']
    """
    named = [*given.get("prompts", ()), *given.get("extensions", ())]
    files = [Path(text.removeprefix(FILE)) for text in named if names_file(text)]
    for text in given.get("providers", ()):
        prefix = next((one for one in (FILE, *_OF_FILES) if text.startswith(one)), None)
        files += [] if prefix is None else [directory / text.removeprefix(prefix)]
    if isinstance(tests := given.get("tests"), str) and names_file(tests):
        files.append(Path(tests.removeprefix(FILE)))
    return tuple(dict.fromkeys(file.parent for file in files if file.is_absolute()))
