"""Signals to processes, and waiting for their end, without ever reaching who has got their number since."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

import attrs
import trio

from trioeval.providers.programs.members import PROCESS_TABLE, Member, is_alive

_LOOK_AGAIN = 0.01


def send_signal(
    members: Iterable[Member], number: signal.Signals, table: Path = PROCESS_TABLE
) -> None:
    """Send a signal to processes; those that have ended, or are not ours to signal, are left out."""
    for member in members:
        with suppress(ProcessLookupError, PermissionError), _Handle(member.pid) as handle:
            # Asked after the handle was opened: then the signal reaches this one or none.
            if is_alive(member, table):
                handle.send(number)


async def wait_gone(
    members: Iterable[Member], table: Path = PROCESS_TABLE, look_again: float = _LOOK_AGAIN
) -> None:
    """Wait until processes have ended, whoever started them, or for a moment: look at them again then.

    Args:
        members: The processes.
        table: Where the system shows them.
        look_again: Seconds of that moment, where the system does not tell of the end.
    """
    for member in members:
        with suppress(ProcessLookupError), _Handle(member.pid) as handle:
            if is_alive(member, table):
                await handle.wait(look_again)


@attrs.define(eq=False)
class _Handle:
    """A process under a number that nobody else gets meanwhile, if the system has such handles."""

    _pid: int
    _descriptor: int | None = attrs.field(init=False, default=None)

    def __enter__(self) -> Self:
        """Open the handle.

        Raises:
            ProcessLookupError: There is no such process.
        """
        try:
            self._descriptor = os.pidfd_open(self._pid)
        except ProcessLookupError:
            raise
        except OSError:  # an old system, or no more descriptors
            self._descriptor = None
        return self

    def __exit__(self, *_error: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def send(self, number: signal.Signals) -> None:
        if self._descriptor is None:
            os.kill(self._pid, number)
        else:
            signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self, look_again: float) -> None:
        """Until it has ended, or for a moment: then it has to be looked at again."""
        if self._descriptor is None:
            await trio.sleep(look_again)
        else:
            await trio.lowlevel.wait_readable(self._descriptor)
