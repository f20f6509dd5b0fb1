"""A run on many machines: its rows are performed by the workers of a Dask cluster.

The coordinator is a normal run, with its store, journal, resume, results and exit code; only the bodies of
its rows are exchanged. It sends rows to workers in shards, and records each reply and each row as it arrives.
A worker runs the rows of a shard as a run of its own, on lanes that live as long as the worker's session.

`open_workers` holds workers for the runs of a program.
"""

from typing import TYPE_CHECKING

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.scaleout.workers import WorkerPool as WorkerPool
    from trioeval.scaleout.workers import open_workers as open_workers
else:  # the modules of a worker do not need those of a program
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.scaleout", {"trioeval.scaleout.workers": "WorkerPool open_workers"}
    )
