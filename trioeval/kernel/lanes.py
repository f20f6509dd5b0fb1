"""The lanes that runs share, and their serial gate."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel.lane import Lane
from trioeval.kernel.lane_spec import LaneSpec, LaneStatistics, Rng
from trioeval.kernel.reservations import Permits
from trioeval.kernel.wait_queue import Cap

# The serial gate: either many parallel jobs run, or one serial job runs alone.
#
# A readers–writer lock over all lanes. Serial jobs go first: once one waits, no parallel job enters, so
# that a serial job cannot be starved. Parallel jobs enter synchronously after `wait_open`, in the same step
# in which they saw the gate open; a job that waits for the gate holds nothing.
#
# Law: SERIAL.


@attrs.define(eq=False, repr=False)
class Gate:
    """The serial gate of one `Lanes`; jobs of every run on those lanes pass through it."""

    _parallel: int = 0
    _serial: int = 0
    """Serial jobs that wait or run."""
    _serial_turn: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)
    _closed_out: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _drained: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    @property
    def open(self) -> bool:
        """True if a parallel job may enter now."""
        return not self._serial

    @property
    def idle(self) -> bool:
        """True if no job runs and none waits to run alone."""
        return self.open and not self._parallel

    async def wait_open(self) -> None:
        """Wait until parallel jobs may enter. A checkpoint only if the gate is closed."""
        while not self.open:
            await self._closed_out.park()

    def enter(self) -> None:
        """Let one parallel job enter; call it only while `open`."""
        self._parallel += 1

    def leave(self) -> None:
        """Count the end of one parallel job."""
        self._parallel -= 1
        if not self._parallel:
            self._drained.unpark()

    async def enter_serial(self) -> None:
        """Wait until nothing runs, and keep all other jobs out. First come, first served; a checkpoint."""
        with ExitStack() as undo:
            self._serial += 1
            undo.callback(self._one_serial_less)
            await self._serial_turn.acquire()
            undo.callback(self._serial_turn.release)
            while self._parallel:
                await self._drained.park()
            undo.pop_all()

    def leave_serial(self) -> None:
        """End a serial job. Called by the task that entered."""
        self._serial_turn.release()
        self._one_serial_less()

    def _one_serial_less(self) -> None:
        self._serial -= 1
        if self.open:
            self._closed_out.unpark_all()


_GOLDEN = 0.6180339887498949


def spread_evenly() -> Rng:
    """Return a generator of numbers from 0 to 1 with well-spread neighbours, the same in every run.

    The multiples of the golden ratio modulo 1 (Weyl's sequence): they spread the back-offs of one program
    better than chance. Programs that share a provider should each pass their own generator.
    """
    last = 0.0

    def following() -> float:
        nonlocal last
        last = (last + _GOLDEN) % 1.0
        return last

    return following


class Lanes(Mapping[str, Lane]):
    """The lanes that runs share. Created by the caller, inside or outside of `trio.run`; used in one.

    Args:
        specs: One configuration per lane; names must be different.
        rng: Returns numbers from 0 to 1 for back-offs, like `random.Random().random`; None uses an evenly
            spread sequence, the same in every run.
        cap: Calls in flight on all lanes together, ≥ 1; None sets no bound. With a cap, lanes are no longer
            independent of each other.
        permits: The source of permits for the calls of a lane, by lane name; other lanes need none.

    Raises:
        PlanError: Two lanes have the same name, permits name an unknown lane, or the cap is out of range.

    Example:
        >>> lanes = Lanes([LaneSpec("fast", max_concurrency=8), LaneSpec("slow", rpm=60)])
        >>> lanes["fast"].max_concurrency = 4  # at any time, also during runs
        >>> lanes["fast"]
        <Lane 'fast': 0 of 4 in flight, 0 queued>
    """

    def __init__(
        self,
        specs: Iterable[LaneSpec],
        *,
        rng: Rng | None = None,
        cap: int | None = None,
        permits: Mapping[str, Permits] | None = None,
    ) -> None:
        self.gate = Gate()
        """Passed by the jobs of every run on these lanes."""
        self.cap = None if cap is None else Cap(cap)
        self.by_name: dict[str, Lane] = {}
        """The same lanes as a plain dict, for look-ups at every call."""
        self._rng = spread_evenly() if rng is None else rng
        permits = {} if permits is None else permits
        for spec in specs:
            self.add(spec, permits.get(spec.name))
        if unknown := sorted(set(permits) - set(self.by_name)):
            msg = f"permits are given for unknown lanes {unknown}; the lanes are {sorted(self.by_name)}"
            raise PlanError(msg)

    def add(self, spec: LaneSpec, permits: Permits | None = None) -> Lane:
        """Make a lane, and return it; also while runs use other lanes.

        Args:
            spec: Its configuration.
            permits: The source of permits for its calls; None if they need none.

        Raises:
            PlanError: There is a lane with this name.
        """
        if spec.name in self.by_name:
            msg = f"two lanes are named {spec.name!r}"
            raise PlanError(msg)
        lane = self.by_name[spec.name] = Lane(spec, self._rng, self.cap, permits)
        return lane

    def __getitem__(self, name: str) -> Lane:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __repr__(self) -> str:
        return f"<Lanes {list(self.by_name.values())!r}>"

    def statistics(self) -> dict[str, LaneStatistics]:
        """Return a snapshot of every lane, by name. Not a checkpoint."""
        return {name: lane.statistics() for name, lane in self.by_name.items()}
