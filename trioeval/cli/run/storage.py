"""The storage of a run: the store of runs and the cache of replies."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from trioeval.errors import StoreError
from trioeval.store.run_start import PROGRAM
from trioeval.store.store import Store, open_store

if TYPE_CHECKING:
    from trioeval.report.stored import StoredRunFacts
    from trioeval.store.cache.cache import Cache


@attrs.frozen(kw_only=True)
class RunStorage:
    """The storage of a run and its replies."""

    database: Path | None
    """None stores the run only while it runs."""
    durability: Literal["normal", "full"] = "normal"
    wal: bool = True
    """True if the files use write-ahead logs."""
    is_cached: bool = True
    """True if replies are read from and written to a cache."""
    cache: Path | None = None
    """The file of the cache; None for a cache in memory."""
    cache_ttl_s: float = 1_209_600
    refresh: bool = False
    """True if providers are called even for cached replies."""
    reconcile: bool = False
    """True if the suite of a continued run may have changed."""
    named: bool = False
    """True if a flag names the database, so that commands must name it too."""

    def resume(self, run: str, *, retry: bool = False) -> str:
        """Return the command that continues a run.

        Args:
            run: The id of the run.
            retry: Whether the command also runs rows with errors again.

        Example:
            >>> RunStorage(database=Path("my runs.db"), named=True).resume("eval-1")
            "trioeval resume eval-1 --db 'my runs.db'"
        """
        return self._command("resume", run, *(["--retry", "errors"] if retry else ()))

    def continuation(self, facts: StoredRunFacts) -> str:
        """Return how a stored run is continued: by a command, or in the program that its suite is part of.

        Args:
            facts: The run.
        """
        if (program := facts.flags.get(PROGRAM)) is None:
            return self.resume(facts.id)
        return f'session.run(suite, id="{facts.id}", resume=True) in {program}'

    def show(self, run: str, task: str | None, index: int) -> str | None:
        """Return the command that shows a row of a run; None if the run is not stored.

        Example:
            >>> RunStorage(database=Path("runs.db")).show("eval-1", "quiz", 3)
            'trioeval show eval-1 3 --task quiz'
        """
        if self.database is None:
            return None
        return self._command("show", run, str(index), *(() if task is None else ("--task", task)))

    def _command(self, *words: str) -> str:
        named = ["--db", str(self.database)] if self.named else []
        return shlex.join(["trioeval", *words, *named])


@asynccontextmanager
async def open_storage(
    storage: RunStorage, on_error: Callable[[StoreError], None], warn: Callable[[str], None]
) -> AsyncIterator[tuple[Store, Cache | None]]:
    """Open the store and the cache of a run while the block runs.

    Args:
        storage: The storage of the run.
        on_error: Called when the store can no longer be written.
        warn: Called with problems that do no harm, such as a cache that cannot be used.

    Raises:
        StoreError: The store cannot be used; the message names flags that help.
    """
    caching: AbstractAsyncContextManager[Cache | None] = nullcontext()
    if storage.is_cached:
        from trioeval.store.cache.cache import open_cache

        caching = open_cache(
            storage.cache,
            ttl_s=storage.cache_ttl_s,
            wal=storage.wal,
            on_problem=lambda error: warn(str(error)),
        )
    storing = open_store(
        storage.database,
        durability=storage.durability,
        wal=storage.wal,
        on_error=on_error,
        on_warning=warn,
    )
    async with storing as store, caching as cache:
        yield store, cache
