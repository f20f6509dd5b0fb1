"""What a case has found out is told to the whole run, once. Blocks on files where it reads."""

import hashlib
from pathlib import Path

import attrs
import trio

from trioeval.agents.bus.bus import Bus
from trioeval.agents.bus.messages import Draft, Message
from trioeval.agents.bus.reading import read_bus
from trioeval.errors import BusError
from trioeval.tasks.agents.posts import BusTroubles

_FACT = "FACT"
_FROM = "fact_of"
"""The key of `meta` by which a fact is known that was passed on."""


async def pass_on_facts(case: Path, run: Bus, troubles: BusTroubles) -> int:
    """Tell the facts of a case on the bus of its run, but for those that are there. A checkpoint.

    Args:
        case: The folder of the bus of the case.
        run: The bus of the run.
        troubles: Counts what goes wrong.

    Returns:
        How many were told.
    """
    told = 0
    try:
        for draft in await trio.to_thread.run_sync(_new_facts, case, run.path):
            await run.append(draft)
            told += 1
    except BusError as error:
        troubles.add(error)
    return told


def _new_facts(case: Path, run: Path) -> list[Draft]:
    found = [one for one in read_bus(case).messages if one.draft.type == _FACT]
    if not found:
        return []
    known = {one.draft.meta.get(_FROM) for one in read_bus(run).messages}
    return [draft for draft in map(_passed_on, found) if draft.meta[_FROM] not in known]


def _passed_on(message: Message) -> Draft:
    draft = message.draft
    text = f"{draft.task_id}\n{message.msg_id}\n{draft.body}"
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return attrs.evolve(draft, meta={**draft.meta, _FROM: mark})
