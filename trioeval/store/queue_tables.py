"""The tables of the planner: programs that run agents, and the queue of their tasks.

The queue holds only waiting and running entries, so that its cost does not grow with what is finished. Of
finished entries only the outcome stays, for their dependants.

To avoid counting waiting entries one by one, places are counted in blocks of 64, those in blocks of 64
blocks, and so on, so that a rank is the sum of a few numbers. Triggers maintain the counts.
"""

from collections.abc import Sequence

# ruff: noqa: S608 - all of it is made of texts that stand here


BLOCK_BITS = 6
LEVELS = 5
"""Number of block sizes; with the places themselves there is room for 2^36 places."""


def _nodes(place: str, change: int) -> str:
    return ", ".join(
        f"({level}, {place} >> {BLOCK_BITS * level}, {change})" for level in range(1, LEVELS + 1)
    )


def _counting(place: str, change: int) -> str:
    """Return the statements that change the counts of all blocks that contain a place."""
    return f"""
        INSERT INTO entry_count (level, block, waiting) VALUES {_nodes(place, change)}
        ON CONFLICT (level, block) DO UPDATE SET waiting = waiting + excluded.waiting
    """


_WAITS = "{}.state IN ('queued', 'blocked')"
_NEW_WAITS, _OLD_WAITS = _WAITS.format("NEW"), _WAITS.format("OLD")

QUEUE_TABLES: Sequence[str] = (
    # A program that runs agents, from its start to its end: what another one of the same number is not.
    # `most` is how many tasks it lets run at once.
    # A dead program keeps its slots while its remaining processes are being ended.
    """
    CREATE TABLE owner (
        id TEXT PRIMARY KEY,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        utc_started TEXT NOT NULL,
        heartbeat_s REAL NOT NULL,
        has_died INTEGER NOT NULL DEFAULT 0,
        most INTEGER
    ) WITHOUT ROWID
    """,
    # What people let run at once, whatever programs say: one row at most.
    "CREATE TABLE entry_limit (most INTEGER NOT NULL)",
    # `place` is the order of service: it is given once and never again.
    """
    CREATE TABLE entry (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        run TEXT NOT NULL,
        task TEXT NOT NULL,
        state TEXT NOT NULL,
        owner TEXT,
        utc_submitted TEXT NOT NULL,
        utc_started TEXT
    )
    """,
    "CREATE INDEX entry_next ON entry (place) WHERE state = 'queued' AND owner IS NOT NULL",
    "CREATE INDEX entry_running ON entry (owner) WHERE state = 'running'",
    "CREATE INDEX entry_owner ON entry (owner)",
    "CREATE INDEX entry_run ON entry (run)",
    "CREATE TABLE entry_needs (id TEXT NOT NULL, needs TEXT NOT NULL, PRIMARY KEY (id, needs)) WITHOUT ROWID",
    "CREATE INDEX entry_needed ON entry_needs (needs)",
    """
    CREATE TABLE entry_done (
        id TEXT PRIMARY KEY,
        run TEXT NOT NULL,
        done INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX entry_done_run ON entry_done (run)",
    """
    CREATE TABLE entry_count (
        level INTEGER NOT NULL,
        block INTEGER NOT NULL,
        waiting INTEGER NOT NULL,
        PRIMARY KEY (level, block)
    ) WITHOUT ROWID
    """,
    f"""
    CREATE TRIGGER entry_comes AFTER INSERT ON entry WHEN {_NEW_WAITS}
    BEGIN {_counting("NEW.place", 1)}; END
    """,
    f"""
    CREATE TRIGGER entry_goes AFTER DELETE ON entry WHEN {_OLD_WAITS}
    BEGIN {_counting("OLD.place", -1)}; END
    """,
    f"""
    CREATE TRIGGER entry_begins AFTER UPDATE OF state ON entry WHEN {_OLD_WAITS} AND NOT {_NEW_WAITS}
    BEGIN {_counting("NEW.place", -1)}; END
    """,
    f"""
    CREATE TRIGGER entry_returns AFTER UPDATE OF state ON entry WHEN {_NEW_WAITS} AND NOT {_OLD_WAITS}
    BEGIN {_counting("NEW.place", 1)}; END
    """,
    """
    CREATE TRIGGER entry_count_over AFTER UPDATE ON entry_count WHEN NEW.waiting = 0
    BEGIN DELETE FROM entry_count WHERE level = NEW.level AND block = NEW.block; END
    """,
)
