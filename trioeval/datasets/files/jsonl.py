"""JSON lines: an object for each row, with its columns in order."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.datasets.files.cells import encode_json
from trioeval.datasets.types import ColumnType


def write_jsonl(
    path: Path, columns: Mapping[str, ColumnType], values: Mapping[str, Sequence[Any]]
) -> None:
    """Write a file of values as `file_columns` makes them.

    Raises:
        OSError: It cannot be written.
    """
    heads = [f"{encode_json(name)}:" for name in columns]
    texts = [_texts(values[name], kind) for name, kind in columns.items()]
    with path.open("wb") as file:
        for line in zip(*texts, strict=True):
            told = ",".join(map(str.__add__, heads, line))
            file.write(f"{{{told}}}\n".encode())


def read_jsonl(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The rows of a file.

    Raises:
        ValueError: It holds something else.
    """
    for line in content.splitlines():  # of bytes: only what ends a line, not what Unicode calls so
        yield json.loads(line)


def _texts(values: Sequence[Any], kind: ColumnType) -> Iterator[str]:
    if kind == "json":
        return ("null" if value is None else value for value in values)
    return map(encode_json, values)
