"""Lanes on servers that fail, on the virtual clock: time against a clairvoyant scheduler, and refusals.

    python tests/bench/failing_servers.py

Each figure is the median of seven seeds. The servers are those of the property tests. Seconds are virtual,
so the load of the machine does not matter.
"""

import statistics
import sys
from pathlib import Path

import attrs

from trioeval.kernel import LaneSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
from server_shapes import Server, run_on

SEEDS = range(7)


@attrs.frozen(kw_only=True)
class Shape:
    """A server, the work that it gets, and the targets."""

    name: str
    server: Server
    width: int
    jobs: int
    cells: int = 1
    """Calls of a job, one after another."""
    most_seconds: float | None = None
    """The target; None without one."""
    most_refusals: int | None = None


SHAPES = (
    Shape(
        name="10 % of replies are 500",
        server=Server(0.05, failed_share=0.1),
        width=20,
        jobs=200,
        most_seconds=1.1,
    ),
    Shape(
        name="refuses above 8 in flight, without hints",
        server=Server(0.2, cap=8),
        width=20,
        jobs=200,
        most_seconds=6.3,
        most_refusals=25,
    ),
    Shape(
        name="10 % of replies are 429, without hints",
        server=Server(0.2, refused_share=0.1),
        width=32,
        jobs=600,
        most_seconds=1.3 * Server(0.2, refused_share=0.1).ideal(600, 32),
    ),
    Shape(
        name="10 % are 429 with a wait of 1 ms, 10 % are 500",
        server=Server(0.05, refused_share=0.1, refused_wait=0.001, failed_share=0.1),
        width=32,
        jobs=1000,
        cells=3,
        most_seconds=9.0,
    ),
    Shape(
        name="token bucket of 20 a second, with hints",
        server=Server(0.2, rate=20, burst=20),
        width=20,
        jobs=200,
    ),
    Shape(
        name="token bucket of 20 a second, without hints",
        server=Server(0.2, rate=20, burst=20, names_wait=False),
        width=20,
        jobs=200,
    ),
)


def main() -> None:
    """Print the figures."""
    print("seconds (× ideal; target), refusals (target):")
    for shape in SHAPES:
        runs = [
            run_on(
                attrs.evolve(shape.server, seed=seed),
                LaneSpec("lane", shape.width),
                shape.jobs,
                cells=shape.cells,
            )
            for seed in SEEDS
        ]
        seconds = statistics.median(run.seconds for run in runs)
        refusals = statistics.median(run.refusals for run in runs)
        ideal = shape.server.ideal(shape.jobs * shape.cells, shape.width)
        aim = "" if shape.most_seconds is None else f"; ≤ {shape.most_seconds:.1f}"
        few = "" if shape.most_refusals is None else f" (≤ {shape.most_refusals})"
        print(
            f"  {shape.name}: {seconds:.2f} s ({seconds / ideal:.2f} ×{aim}), {refusals:.0f} refusals{few}"
        )


if __name__ == "__main__":
    main()
