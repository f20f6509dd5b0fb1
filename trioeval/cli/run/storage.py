"""What a run is kept in: the store of runs and the cache of replies."""

import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Literal

import attrs

from trioeval.errors import StoreError
from trioeval.store import Store, open_store
from trioeval.store.cache.cache import Cache, open_cache


@attrs.frozen(kw_only=True)
class Keeping:
    """Where a run and its replies are kept."""

    database: Path | None
    """None keeps the run only as long as it goes."""
    durability: Literal["normal", "full"] = "normal"
    wal: bool = True
    """Whether the files have write-ahead logs."""
    is_cached: bool = True
    """Whether replies come from a cache, and go into it."""
    cache: Path | None = None
    """The file of the cache; None for one in memory."""
    cache_ttl_s: float = 1_209_600
    refresh: bool = False
    """Whether everything is asked anew."""
    reconcile: bool = False
    """Whether a run that goes on may be of another suite than it was."""
    named: bool = False
    """Whether a flag says where the database is, which has to be said again."""

    def resume(self, run: str, *, retry: bool = False) -> str:
        """The command that goes on with a run.

        Args:
            run: Its id.
            retry: Whether it also tries again what was lost.

        Example:
            >>> Keeping(database=Path("my runs.db"), named=True).resume("eval-1")
            "trioeval resume eval-1 --db 'my runs.db'"
        """
        return self._command("resume", run, *(["--retry", "errors"] if retry else ()))

    def show(self, run: str, task: str | None, index: int) -> str | None:
        """The command that shows a row of a run; None where the run is not kept.

        Example:
            >>> Keeping(database=Path("runs.db")).show("eval-1", "quiz", 3)
            'trioeval show eval-1 3 --task quiz'
        """
        if self.database is None:
            return None
        return self._command("show", run, str(index), *(() if task is None else ("--task", task)))

    def _command(self, *words: str) -> str:
        named = ["--db", str(self.database)] if self.named else []
        return shlex.join(["trioeval", *words, *named])


@asynccontextmanager
async def open_kept(
    keeping: Keeping, on_error: Callable[[StoreError], None], warn: Callable[[str], None]
) -> AsyncIterator[tuple[Store, Cache | None]]:
    """Open the store and the cache of a run, for as long as the block.

    Args:
        keeping: What that is.
        on_error: Told when nothing can be written any more.
        warn: Told of what does no harm, such as a cache that cannot be used.

    Raises:
        StoreError: The store cannot be used; says which flags help.
    """
    caching: AbstractAsyncContextManager[Cache | None] = nullcontext()
    if keeping.is_cached:
        caching = open_cache(
            keeping.cache,
            ttl_s=keeping.cache_ttl_s,
            wal=keeping.wal,
            told=lambda error: warn(str(error)),
        )
    storing = open_store(
        keeping.database,
        durability=keeping.durability,
        wal=keeping.wal,
        on_error=on_error,
        on_warning=warn,
    )
    async with storing as store, caching as cache:
        yield store, cache
