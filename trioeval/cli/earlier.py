"""The rows of earlier results, read one by one from the files that runs wrote."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trioeval.cli.settings import EarlierFile
from trioeval.errors import UsageError
from trioeval.suite.filters import EarlierRow, earlier_rows


def read_earlier(files: Iterable[EarlierFile]) -> frozenset[EarlierRow]:
    """The rows that some files hold and want again.

    Raises:
        UsageError: One of them cannot be read, or holds no results.
    """
    found: frozenset[EarlierRow] = frozenset()
    for file in files:
        try:
            found |= earlier_rows(_rows(file.path), failures=file.failures, errors=file.errors)
        except OSError as error:
            raise UsageError(f"{file.path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            msg = f"{file.path}: holds no results: give a .json or .jsonl file that -o wrote"
            raise UsageError(msg) from None
    return found


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            yield from (json.loads(line) for line in file if line.strip())
        else:
            document = json.load(file)
            for part in document["tasks"].values() if "tasks" in document else (document,):
                yield from part["results"]["results"]
