"""The tables of agents: the line in which they stand, and their attempts."""

from collections.abc import Sequence

from trioeval.store.line_schema import LINE_TABLES

AGENT_TABLES: Sequence[str] = (
    *LINE_TABLES,
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
