"""Works are laid into their tables, many lines with each statement."""

import json
import sqlite3
from collections.abc import Sequence

from trioeval.store.columns import RESULT, SCORE
from trioeval.store.dataset_works import CELL, DROPPED, CellWork, DropWork
from trioeval.store.works import CALL, EVENT, CallWork, EventWork, RowWork, StepWork, Work, insert


def lay(connection: sqlite3.Connection, works: Sequence[Work]) -> None:
    """Lay works into their tables, in a transaction that is open. What is ready only once is not used up."""
    rows: list[RowWork] = []
    calls: list[CallWork] = []
    events: list[EventWork] = []
    cells: list[CellWork] = []
    drops: list[DropWork] = []

    def flush() -> None:
        _lay_rows(connection, rows)
        insert(connection, "call", CALL, [call.line() for call in calls])
        insert(connection, "event", EVENT, [event.line() for event in events])
        insert(
            connection, "cell", CELL, [line for cell in cells if (line := cell.line()) is not None]
        )
        insert(connection, "dropped_row", DROPPED, [drop.line() for drop in drops])
        rows.clear()
        calls.clear()
        events.clear()
        cells.clear()
        drops.clear()

    for work in works:
        match work:
            case RowWork():
                rows.append(work)
            case CallWork():
                calls.append(work)
            case EventWork():
                events.append(work)
            case CellWork():
                cells.append(work)
            case DropWork():
                drops.append(work)
            case StepWork():
                flush()
                work.write(connection)
    flush()


def _lay_rows(connection: sqlite3.Connection, rows: Sequence[RowWork]) -> None:
    if not rows:
        return
    results, records, scores = [], [], []
    for row in {
        (id(row.place), row.task, row.index): row for row in rows
    }.values():  # the last ones
        result, record, own = row.lines()
        results.append(result)
        records.append(record)
        scores += [*own]
    keys = json.dumps([result[0] for result in results])
    connection.execute("DELETE FROM score WHERE key IN (SELECT value FROM json_each(?))", (keys,))
    insert(connection, "result", RESULT, results)
    insert(connection, "record", ("key", "body"), records)
    insert(connection, "score", SCORE, scores)
