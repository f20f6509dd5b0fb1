"""Those who wait until their message is written: one of them writes for all.

Whoever comes first writes, and takes along what others put down meanwhile; then the first of those who are
left writes. There is no task beside them: a bus that nobody writes to costs nothing, an error comes out where
it belongs, and nothing has to be ended. The alternative, one task that serves all, would put a nursery around
the code of the user.
"""

from collections.abc import Sequence

import attrs
import trio
from outcome import Value

from trioeval.agents.bus.messages import Message
from trioeval.agents.bus.posting import Prepared
from trioeval.errors import BusError


@attrs.define(eq=False)
class Entry:
    """A message that is to be written, and who waits for it."""

    prepared: Prepared
    tries: int = 0
    """How often the lock was not to be had, as long as this has waited."""
    message: Message | None = None
    error: BusError | None = None
    is_taken: bool = False
    """It is being written: nobody can take it back."""
    task: trio.lowlevel.Task | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is known what became of it."""
        return self.message is not None or self.error is not None


@attrs.define(eq=False)
class Queue:
    """Messages that are to be written."""

    _entries: dict[Entry, None] = attrs.field(init=False, factory=dict)
    is_led: bool = attrs.field(init=False, default=False)
    """Somebody writes, or is about to."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Sequence[Entry]:
        """All of them, in the order in which they came."""
        return list(self._entries)

    def add(self, entry: Entry) -> bool:
        """Put a message down; whether whoever does so is the one who writes."""
        self._entries[entry] = None
        leads, self.is_led = not self.is_led, True
        return leads

    async def wait(self, entry: Entry) -> None:
        """Return when it is known what became of a message, or when it is the turn of its task to write.

        Cancelled, it is not written; unless it is being written: then this returns when that is done.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            if entry.is_taken:
                return trio.lowlevel.Abort.FAILED
            entry.task = None
            del self._entries[entry]
            return trio.lowlevel.Abort.SUCCEEDED

        entry.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def end(self, entry: Entry, result: Message | BusError) -> None:
        """Say what became of a message; nothing, if it was taken back."""
        if entry not in self._entries:
            return
        if isinstance(result, Message):
            entry.message = result
        else:
            entry.error = result
        del self._entries[entry]
        self._wake(entry)

    def lead_no_more(self, entry: Entry) -> None:
        """Leave the writing to the first of those who are left.

        Args:
            entry: Of whoever has led; it is taken back if it is not over.
        """
        self._entries.pop(entry, None)
        following = next(iter(self._entries), None)
        self.is_led = following is not None
        if following is not None:
            self._wake(following)

    def _wake(self, entry: Entry) -> None:
        task, entry.task = entry.task, None
        if task is not None:
            trio.lowlevel.reschedule(task, Value(None))
