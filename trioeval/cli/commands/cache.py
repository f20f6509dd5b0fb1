"""The commands for the cache of replies."""

import json as json_module
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import cyclopts

from trioeval.cli.environment import cache_path, databases, read_environment
from trioeval.cli.flag_types import Switch
from trioeval.cli.flags import read_age
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.errors import UsageError
from trioeval.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from trioeval.store.cache.file import CacheContents

_KILOBYTE = 1024

cache = cyclopts.App(name="cache")


@cache.command(name="stats")
def stats(*, json: Switch = False) -> int:
    """Show the number, providers and age of the replies in the cache.

    Parameters
    ----------
    json
        Print JSON.
    """
    from trioeval.store.cache.file import read_contents

    path = _path()
    if not path.exists():
        _say_missing(path)
        return Exit.OK
    found = read_contents(path)
    if json:
        show(json_module.dumps(_contents_json(path, found), indent=2))
        return Exit.OK
    say(_summary(path, found))
    if found.entries:
        draw(_table(found), sys.stdout)
    return Exit.OK


@cache.command(name="clear")
def clear(*, older_than: str | None = None, provider: str | None = None) -> int:
    """Remove replies from the cache, by default all of them.

    Parameters
    ----------
    older_than
        Only replies that were cached longer ago than this: `12h`, `30d`, `8w`.
    provider
        Only replies of this provider as `cache stats` names it: `openai`, or one model, `openai:gpt-4.1`.
    """
    from trioeval.store.cache.file import clear_cache

    age = None if older_than is None else read_age(older_than, "--older-than")
    path = _path()
    if not path.exists():
        _say_missing(path)
        return Exit.OK
    removed = clear_cache(path, older_than_s=age, provider=provider)
    say(f"{path}: {_replies(removed)} removed")
    return Exit.OK


@cache.command(name="export")
def export(file: Path, /) -> int:
    """Write the replies of the cache to a JSONL file, oldest first.

    Parameters
    ----------
    file
        The file to write; an existing file is replaced.
    """
    from trioeval.cli.inputs import check_files
    from trioeval.report.files import LINES, write_whole
    from trioeval.store.cache.file import export_entries

    path = _path()
    if file.suffix.lower() != LINES:  # do not overwrite a file that was named by mistake
        raise UsageError(f"{file}: the suffix must be {LINES}, got {file.suffix!r}")
    check_files(
        databases=databases(None, read_environment(os.environ)), written=[("the export", file)]
    )
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        for count, entry in enumerate(export_entries(path), start=1):  # noqa: B007 - counted
            yield json_module.dumps(entry) + "\n"

    write_whole(file, lines())
    say(f"wrote {file}: {_replies(count)}")
    return Exit.OK


def _path() -> Path:
    path = cache_path(read_environment(os.environ))
    if path is None:
        raise UsageError(
            "TRIOEVAL_CACHE_TYPE is memory, so the cache exists only during a run; set it to disk"
        )
    return path


def _say_missing(path: Path) -> None:
    say(f"{path}: no replies are cached yet")


def _summary(path: Path, found: "CacheContents") -> str:
    line = f"{path}: {_replies(found.entries)}, {_size(found.file_bytes)}"
    return f"{line}, the oldest from {found.utc_oldest}" if found.utc_oldest else line


def _table(found: "CacheContents") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table("provider")
    table.add_column("replies", justify="right")
    table.add_column("size", justify="right")
    for share in found.providers:
        table.add_row(Text(share.provider or "-"), str(share.entries), _size(share.bytes))
    return table


def _contents_json(path: Path, found: "CacheContents") -> dict[str, object]:
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
    return counted(count, "reply", "replies")


def _size(count: float) -> str:
    """Return a number of bytes in readable form.

    Example:
        >>> _size(900), _size(1536), _size(5 * 2**30)
        ('900 B', '1.5 KB', '5.0 GB')
    """
    units = iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while count >= _KILOBYTE and unit != "GB":
        count, unit = count / _KILOBYTE, next(units)
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
