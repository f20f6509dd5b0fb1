"""Whoever asks and hears nothing is told so, when an answer would usually be there.

A lane that asks for a permit keeps its turn at the cap over all lanes until it is told to wait, and whoever
keeps the limits may be silent for seconds. Meanwhile other lanes could use the slot that is kept for it.

How long an answer usually takes is what the last one took. To tell sooner would cost a lane whose keeper is
far away its turn with every question, on a cap that is always full again when the answer comes.
"""

import math
from collections.abc import Callable
from typing import NoReturn

import attrs
import trio

MOMENT = 0.05
"""Seconds of silence that are told at the earliest."""


@attrs.define(eq=False)
class Silence:
    """The time since something was asked; made by `Silences.begin`."""

    began_at: float
    told_at: float
    """The instant at which it is told."""
    tell: Callable[[], None]


@attrs.define(eq=False)
class Silences:
    """What was asked, and neither answered nor told to be silent."""

    _usual: float = 0.0
    """Seconds that the last answer took."""
    _open: dict[Silence, None] = attrs.field(factory=dict)
    _wake_at: float = -math.inf
    """The instant until which `run` sleeps."""
    _sooner: trio.Event = attrs.field(factory=trio.Event)

    def begin(self, tell: Callable[[], None]) -> Silence:
        """Something is asked. Synchronous.

        Args:
            tell: Called synchronously if this lasts: for 50 ms, and twice as long as the last answer took.
        """
        now = trio.current_time()
        silence = Silence(now, now + max(MOMENT, 2 * self._usual), tell)
        self._open[silence] = None
        if silence.told_at < self._wake_at:
            self._sooner.set()
        return silence

    def end(self, silence: Silence, *, is_answered: bool) -> None:
        """There is an answer, or nobody waits for one. Synchronous."""
        self._open.pop(silence, None)
        if is_answered:
            self._usual = trio.current_time() - silence.began_at

    async def run(self) -> NoReturn:
        """Tell of those that last, until cancelled."""
        while True:
            self._wake_at = min((one.told_at for one in self._open), default=math.inf)
            self._sooner = trio.Event()
            with trio.move_on_at(self._wake_at):
                await self._sooner.wait()
            now = trio.current_time()
            for silence in [one for one in self._open if one.told_at <= now]:
                del self._open[silence]
                silence.tell()
