"""A real Dask cluster of processes, and runs on it."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from distributed import LocalCluster

from trioeval.evaluation.journal import RecordObserver
from trioeval.providers import Provider
from trioeval.run import PreparedSuite, Row, RunOptions, prepare, run_with_options
from trioeval.scaleout.address import SchedulerAddress
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.dask_cluster import open_cluster
from trioeval.scaleout.private_files import Location
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.worker import SessionOptions


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Start worker processes, which end with the block."""
    with LocalCluster(
        n_workers=workers,
        processes=True,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as cluster:
        yield cluster


def processes(cluster: LocalCluster) -> dict[str, int]:
    """Return the id of the process of each worker, by its address."""
    return {one.worker_address: one.process.pid for one in cluster.workers.values()}


def written(folder: Path, suite: dict[str, Any]) -> str:
    """Write a suite, and return its path."""
    path = folder / "suite.json"
    path.write_text(json.dumps(suite))
    return str(path)


@attrs.define
class ClusterRun:
    """A run on a cluster."""

    rows: list[Row] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    stop: trio.Event = attrs.field(factory=trio.Event)
    owners: Callable[[], Sequence[str]] = tuple
    """Returns the workers that own lanes."""


def load_moved(
    path: str, location: Location, *, providers: Mapping[str, Provider] | None = None
) -> PreparedSuite:
    """Load a suite on a worker."""
    return prepare(location.path(Path(path)), providers=providers)


async def run_on(
    scheduler: str,
    path: str,
    *,
    observers: Sequence[RecordObserver] = (),
    on_row: Callable[[ClusterRun, Row], None] | None = None,
    providers: Mapping[str, Provider] | None = None,
) -> ClusterRun:
    """Run a suite on the workers of a cluster."""
    run = ClusterRun()
    prepared = prepare(path, providers=providers)

    async def emit(row: Row) -> None:
        run.rows.append(row)
        if on_row is not None:
            on_row(run, row)

    load = functools.partial(load_moved, path, providers=providers)
    opened = open_cluster(
        SchedulerAddress(scheduler),
        prepared,
        load,
        options=SessionOptions(run_id="r"),
        warn=run.warnings.append,
    )
    async with opened as cluster:
        coordinator = Coordinator(
            cluster,
            prepared,
            run.stop,
            run.warnings.append,
            records=RunRecords(observers=observers),
        )
        run.owners = lambda: [*coordinator._owners.values()]
        cluster.connect(coordinator)
        async with open_coordinator(coordinator):
            options = RunOptions(emit=emit, stop=run.stop, adapt=coordinator.adapt)
            await run_with_options(prepared, options)
        cluster.disconnect()
    return run


def plain(rows: Sequence[Row]) -> list[Row]:
    """Return rows without their times, which differ between two runs."""
    return [attrs.evolve(row, wait_ms=0.0, waits={}, latency_ms=None) for row in rows]
