"""What cases have found out is told to the whole run, once. Blocks on files where it reads."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from trioeval.agents.bus.bus import Bus
from trioeval.agents.bus.messages import Draft, Message
from trioeval.agents.bus.reading import Reading, read_parts
from trioeval.errors import BusError, CursorExpiredError, CursorNotFoundError
from trioeval.tasks.agents.posts import BusTroubles, Patience

_FACT = "FACT"
_FROM = "fact_of"
"""The key of `meta` by which a fact is known that was passed on."""


@attrs.define(eq=False)
class RunFacts:
    """Tells the facts of cases on the bus of their run, and knows which are there.

    Args:
        bus: Of the run.
        patience: Of that bus.
        troubles: Counts what goes wrong.
    """

    _bus: Bus
    _patience: Patience
    _troubles: BusTroubles
    _known: set[str] = attrs.field(init=False, factory=set, repr=False)
    """Of the facts that are there, up to a cursor."""
    _cursor: int = attrs.field(init=False, default=0)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=lambda: trio.CapacityLimiter(1), repr=False
    )
    """One at a time looks what is there."""

    async def pass_on(self, case: Path) -> int:
        """Tell the facts of a case, but for those that are there. A checkpoint.

        Args:
            case: The folder of the bus of the case.

        Returns:
            How many were told.
        """
        told = 0

        async def tell(draft: Draft) -> None:
            nonlocal told
            failure = await self._patience.with_bus(lambda: self._bus.append(draft))
            if failure is None:
                told += 1
            else:
                self._troubles.add(failure)

        try:
            new = await trio.to_thread.run_sync(self._new, case, limiter=self._thread)
        except BusError as error:
            self._troubles.add(error)
            return 0
        async with trio.open_nursery() as nursery:
            for draft in new:
                nursery.start_soon(tell, draft)
                # It stands in line before the next one begins; all that do are written together.
                await trio.lowlevel.checkpoint()
        return told

    def _new(self, case: Path) -> list[Draft]:
        found = [
            _passed_on(one)
            for part in read_parts(case)
            for one in part.messages
            if one.draft.type == _FACT
        ]
        if found:
            self._look()
        return [draft for draft in found if draft.meta[_FROM] not in self._known]

    def _look(self) -> None:
        """Know what is there now."""
        for part in self._parts():
            self._known.update(
                one.draft.meta[_FROM] for one in part.messages if _FROM in one.draft.meta
            )
            self._cursor = part.cursor

    def _parts(self) -> Iterator[Reading]:
        try:
            yield from read_parts(self._bus.path, since=self._cursor or None)
        except (CursorExpiredError, CursorNotFoundError):  # it is another one
            self._known.clear()
            yield from read_parts(self._bus.path)


def _passed_on(message: Message) -> Draft:
    """A fact as it is told to all; what it says of other messages of its bus means nothing to them."""
    draft = message.draft
    text = f"{draft.task_id}\n{message.msg_id}\n{draft.body}"
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return attrs.evolve(draft, parents=(), issue_id=None, meta={**draft.meta, _FROM: mark})
