"""The files of `tls`, of services described in the suite."""

from collections.abc import Mapping
from pathlib import Path

from trioeval.errors import Problem
from trioeval.providers.config import EntryContext
from trioeval.providers.generic.keys import TLS_FILES
from trioeval.providers.generic.request import find
from trioeval.providers.http.tls import check_tls
from trioeval.providers.http.wire import TlsSettings

_FILE = "file://"


def read_tls(
    given: Mapping[str, str] | None, context: EntryContext
) -> tuple[TlsSettings | None, list[Problem]]:
    """Return the settings, and the problems of their files; None if there are none.

    Args:
        given: The files by keys of `TLS_FILES`.
        context: The context of the entry.
    """
    if not given:
        return None, []
    files: dict[str, Path] = {}
    keys: dict[str, str] = {}
    problems: list[Problem] = []
    for key, name in given.items():
        place, path = f".config.tls.{key}", find(context, name.removeprefix(_FILE))
        field = TLS_FILES[key]
        if "-----BEGIN" in name:
            fault = "must name a file, not contain the certificate itself"
            problems.append(Problem(place, fault))
        elif isinstance(path, str):
            problems.append(Problem(place, path))
        elif field in files:
            problems.append(Problem(place, "is set twice", "keep one of them"))
        files[field], keys[field] = Path(path), key
    if "key" in files and "certificate" not in files:
        fault = "a key requires its certificate"
        problems.append(Problem(".config.tls.key", fault, "set cert as well"))
    tls = TlsSettings(files.get("ca"), files.get("certificate"), files.get("key"))
    if not problems:
        problems = [
            Problem(f".config.tls.{keys[field]}", fault) for field, fault in check_tls(tls).items()
        ]
    return tls, problems
