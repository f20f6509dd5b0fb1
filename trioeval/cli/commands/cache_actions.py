# Apart from `cli.commands.cache`: loaded when it is used.
"""`trioeval cache`: what is in the cache of replies, and away with it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from trioeval.cli.environment import cache_path, databases, read_environment
from trioeval.cli.flags import read_age
from trioeval.cli.inputs import check_files
from trioeval.cli.output import LINES, write_whole
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.errors import UsageError
from trioeval.store.cache.file import CacheContents, clear_cache, export_entries, read_contents

if TYPE_CHECKING:
    from rich.table import Table

_KILOBYTE = 1024


def show_contents(*, as_json: bool) -> int:
    """Tell what is in the cache.

    Raises:
        UsageError: It is one in memory.
        StoreError: It cannot be read.
    """
    path = _path()
    if not path.exists():
        _say_missing(path)
        return Exit.OK
    found = read_contents(path)
    if as_json:
        show(json.dumps(_contents_json(path, found), indent=2))
        return Exit.OK
    say(_summary(path, found))
    if found.entries:
        draw(_table(found), sys.stdout)
    return Exit.OK


def clear_entries(*, older_than: str | None, provider: str | None) -> int:
    """Remove replies from the cache.

    Raises:
        UsageError: It is one in memory, or the age is none.
        StoreError: It cannot be written.
    """
    age = None if older_than is None else read_age(older_than, "--older-than")
    path = _path()
    if not path.exists():
        _say_missing(path)
        return Exit.OK
    removed = clear_cache(path, older_than_s=age, provider=provider)
    say(f"{path}: {_replies(removed)} removed")
    return Exit.OK


def write_entries(file: Path) -> int:
    """Write the replies of the cache to a file.

    Raises:
        UsageError: It is one in memory, or the file may not be written over.
        StoreError: It cannot be read.
        OutputError: The file cannot be written.
    """
    path = _path()
    if file.suffix.lower() != LINES:  # a file that was named by mistake
        raise UsageError(f"{file}: the suffix must be {LINES}, got {file.suffix!r}")
    check_files(
        databases=databases(None, read_environment(os.environ)), written=[("the export", file)]
    )
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        for count, entry in enumerate(export_entries(path), start=1):  # noqa: B007 - counted
            yield json.dumps(entry) + "\n"

    write_whole(file, lines())
    say(f"wrote {file}: {_replies(count)}")
    return Exit.OK


def _path() -> Path:
    path = cache_path(read_environment(os.environ))
    if path is None:
        raise UsageError("CACHE_TYPE is memory: such a cache ends with its run")
    return path


def _say_missing(path: Path) -> None:
    say(f"{path}: there is no cache yet")


def _summary(path: Path, found: CacheContents) -> str:
    told = f"{path}: {_replies(found.entries)}, {_size(found.file_bytes)}"
    return f"{told}, the oldest of {found.utc_oldest}" if found.utc_oldest else told


def _table(found: CacheContents) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - only for who draws
    from rich.text import Text  # noqa: PLC0415

    table = Table("provider")
    table.add_column("replies", justify="right")
    table.add_column("size", justify="right")
    for share in found.providers:
        table.add_row(Text(share.provider or "-"), str(share.entries), _size(share.bytes))
    return table


def _contents_json(path: Path, found: CacheContents) -> dict[str, object]:
    return {
        "file": str(path),
        "entries": found.entries,
        "bytes": found.bytes,
        "fileBytes": found.file_bytes,
        "utcOldest": found.utc_oldest,
        "utcNewest": found.utc_newest,
        "providers": [attrs.asdict(share) for share in found.providers],
    }


def _replies(count: int) -> str:
    return "1 reply" if count == 1 else f"{count} replies"


def _size(count: float) -> str:
    """A number of bytes for people.

    Example:
        >>> _size(900), _size(1536), _size(5 * 2**30)
        ('900 B', '1.5 KB', '5.0 GB')
    """
    units = iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while count >= _KILOBYTE and unit != "GB":
        count, unit = count / _KILOBYTE, next(units)
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
