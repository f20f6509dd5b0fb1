"""What a run is kept in: the store of runs and the cache of replies."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import attrs

from trioeval.cli.places import DATABASE, make_folder
from trioeval.errors import StoreError
from trioeval.store import Cache, Store, open_cache, open_store


@attrs.frozen(kw_only=True)
class Keeping:
    """Where a run and its replies are kept."""

    database: Path | None
    """None keeps the run only as long as it goes."""
    durability: Literal["normal", "full"] = "normal"
    is_cached: bool = True
    """Whether replies come from a cache, and go into it."""
    cache: Path | None = None
    """The file of the cache; None for one in memory."""
    cache_ttl_s: float = 1_209_600
    refresh: bool = False
    """Whether everything is asked anew."""


@attrs.frozen
class Kept:
    """What is open for a run."""

    store: Store
    cache: Cache | None


@asynccontextmanager
async def open_kept(
    keeping: Keeping, on_error: Callable[[StoreError], None]
) -> AsyncIterator[Kept]:
    """Open what a run is kept in, for as long as the block.

    Args:
        keeping: What that is.
        on_error: Told when nothing can be written any more.

    Raises:
        StoreError: The store cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="trioeval-") as folder:
        path = keeping.database or Path(folder) / DATABASE
        async with open_store(path, durability=keeping.durability, on_error=on_error) as store:
            if not keeping.is_cached:
                yield Kept(store, None)
                return
            async with open_cache(keeping.cache, ttl_s=keeping.cache_ttl_s) as cache:
                yield Kept(store, cache)
