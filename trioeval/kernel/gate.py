"""The serial gate: either many parallel jobs run, or one serial job runs alone.

A readers–writer lock over all lanes. Serial jobs go first: once one waits, no parallel job enters, so
that a serial job cannot be starved. Parallel jobs enter synchronously after `wait_open`, in the same step
in which they saw the gate open; a job that waits for the gate holds nothing.

Law: SERIAL.
"""

import attrs
import trio


@attrs.define(eq=False)
class Gate:
    """One per `Lanes`; jobs of every run on those lanes pass through it."""

    _parallel: int = 0
    _serial: int = 0
    """Serial jobs that wait or run."""
    _serial_turn: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)
    _closed_out: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _drained: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    @property
    def open(self) -> bool:
        """Whether a parallel job may enter now."""
        return not self._serial

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nobody waits to run alone."""
        return self.open and not self._parallel

    async def wait_open(self) -> None:
        """Wait until parallel jobs may enter. A checkpoint only if the gate is closed."""
        while not self.open:
            await self._closed_out.park()

    def enter(self) -> None:
        """Let one parallel job in; call it only while `open`."""
        self._parallel += 1

    def leave(self) -> None:
        """One parallel job is over."""
        self._parallel -= 1
        if not self._parallel:
            self._drained.unpark()

    async def enter_serial(self) -> None:
        """Wait until nothing runs, and keep everything else out. Order of arrival; a checkpoint."""
        entered = False
        self._serial += 1
        try:
            await self._serial_turn.acquire()
            try:
                while self._parallel:
                    await self._drained.park()
                entered = True
            finally:
                if not entered:
                    self._serial_turn.release()
        finally:
            if not entered:
                self._one_serial_less()

    def leave_serial(self) -> None:
        """The serial job is over. Called by the task that entered."""
        self._serial_turn.release()
        self._one_serial_less()

    def _one_serial_less(self) -> None:
        self._serial -= 1
        if self.open:
            self._closed_out.unpark_all()
