"""What earlier executions have made of a dataset, and what they have spent."""

from collections.abc import Iterable

import trio

from trioeval.datasets.files import GroupFile
from trioeval.tasks.columns.dataset_account import Account, read_tally
from trioeval.tasks.columns.dataset_endings import failed_producer
from trioeval.tasks.columns.dataset_journal import DatasetJournal, MadeRecord
from trioeval.tasks.columns.dataset_spec import DatasetSpec


def records_of(spec: DatasetSpec, made: Iterable[MadeRecord]) -> dict[tuple[int, int], MadeRecord]:
    """The records that count for a dataset, by producer and unit: those of columns that are as they were."""
    places = {one.name: place for place, one in enumerate(spec.graph.producers)}
    found = {}
    for record in made:
        place = places.get(record.producer)
        if place is not None and record.digest == spec.makings[place].digest:
            found[place, record.unit] = record
    return found


def count_recalled(account: Account, producer: int, record: MadeRecord) -> None:
    """An earlier execution has made something."""
    spent = account.spent[producer]
    spent.recalled += len(record.values)
    spent.add(read_tally(record.tally))


async def recall_earlier(
    spec: DatasetSpec, account: Account, journal: DatasetJournal, files: Iterable[GroupFile]
) -> None:
    """Count what the cells of groups have cost that are written, and tell of rows that are gone.

    A checkpoint for each group.
    """
    if not journal.resumed:
        return
    for file in files:
        await trio.lowlevel.checkpoint()
        restored = journal.restored(file.group, spec.grouping.rows_of(file.group))
        for row in restored.dropped:
            account.remember(row, failed_producer(spec.graph, row))
        for (place, _), record in records_of(spec, restored.made).items():
            count_recalled(account, place, record)
