"""The store of runs: an SQLite database that survives any end of the process."""

from typing import TYPE_CHECKING

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.report.stored import RunStart as RunStart
    from trioeval.store.cache.cache import open_cache as open_cache
    from trioeval.store.planner.planner import open_planner as open_planner
    from trioeval.store.store import open_store as open_store
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.store",
        {
            "trioeval.report.stored": "RunStart",
            "trioeval.store.cache.cache": "open_cache",
            "trioeval.store.planner.planner": "open_planner",
            "trioeval.store.store": "open_store",
        },
    )
