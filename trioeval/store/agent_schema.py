"""The tables of agents: programs that run them, the line of the planner, and attempts.

The line holds what waits or runs and nothing else, so that what it costs does not grow with what was done.
"""

from collections.abc import Sequence

AGENT_TABLES: Sequence[str] = (
    # A program that runs agents, from its start to its end: what another one of the same number is not.
    """
    CREATE TABLE owner (
        id TEXT PRIMARY KEY,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        utc_started TEXT NOT NULL,
        heartbeat_s REAL NOT NULL
    ) WITHOUT ROWID
    """,
    # `place` is the order of service: it is given once and never again.
    """
    CREATE TABLE entry (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        run TEXT NOT NULL,
        task TEXT NOT NULL,
        state TEXT NOT NULL,
        owner TEXT,
        waits_for INTEGER NOT NULL,
        utc_submitted TEXT NOT NULL,
        utc_started TEXT
    )
    """,
    "CREATE INDEX entry_state ON entry (state, place)",
    "CREATE INDEX entry_owner ON entry (owner)",
    "CREATE TABLE entry_needs (id TEXT NOT NULL, needs TEXT NOT NULL, PRIMARY KEY (id, needs)) WITHOUT ROWID",
    "CREATE INDEX entry_needed ON entry_needs (needs)",
    "CREATE TABLE entry_done (id TEXT PRIMARY KEY, done INTEGER NOT NULL) WITHOUT ROWID",
    # Attempts whose processes were not seen to end. `key` is that of the row, as everywhere.
    """
    CREATE TABLE running_attempt (
        id TEXT PRIMARY KEY,
        key INTEGER NOT NULL,
        row_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        agent TEXT NOT NULL,
        pid INTEGER NOT NULL,
        process TEXT NOT NULL,
        utc_started TEXT NOT NULL,
        execution INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX running_attempt_key ON running_attempt (key)",
)
