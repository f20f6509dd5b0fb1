# Separate from `store.schema`: a suite without datasets leaves all of these tables empty.
"""The tables of datasets that are built column by column, and their views.

A cell has the key of its row; a cell of a whole group has the key of the group's first row. So the cells of
a group are neighbours in the table.
"""

from collections.abc import Sequence

# ruff: noqa: S608 - all of it is made of texts that stand here

_SHORT = "CASE typeof(cell.made) WHEN 'text' THEN cell.made ELSE '[compressed]' END"

DATASET_TABLES: Sequence[str] = (
    """
    CREATE TABLE dataset (
        part INTEGER PRIMARY KEY,
        grouping TEXT NOT NULL,
        fingerprint TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE cell (
        key INTEGER NOT NULL,
        producer TEXT NOT NULL,
        unit INTEGER NOT NULL,
        is_group INTEGER NOT NULL,
        digest TEXT NOT NULL,
        made NOT NULL,
        skipped TEXT,
        tally TEXT,
        execution INTEGER NOT NULL,
        PRIMARY KEY (key, producer, is_group)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE dropped_row (
        key INTEGER PRIMARY KEY,
        cause TEXT NOT NULL,
        producer TEXT,
        error TEXT,
        error_kind TEXT,
        attempts INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE written_group (
        part INTEGER NOT NULL,
        number INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        numbers TEXT,
        file TEXT,
        digest TEXT,
        dropped TEXT NOT NULL,
        PRIMARY KEY (part, number)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE group_again (
        part INTEGER NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (part, number)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE dataset_stage (
        part INTEGER NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        PRIMARY KEY (part, name)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE dataset_result (
        part INTEGER PRIMARY KEY,
        body NOT NULL
    )
    """,
    """
    CREATE VIEW datasets AS SELECT
        run.id AS run,
        part.task AS task,
        json_extract(dataset.grouping, '$.targets[#-1]') AS expected,
        json_extract(dataset.grouping, '$.size') AS group_size,
        (SELECT count(*) FROM written_group AS own WHERE own.part = dataset.part) AS groups,
        (SELECT coalesce(sum(rows), 0) FROM written_group AS own WHERE own.part = dataset.part) AS written,
        (SELECT count(*) FROM dropped_row
            WHERE key BETWEEN dataset.part << 31 AND (dataset.part + 1 << 31) - 1) AS dropped
    FROM dataset JOIN part USING (part) JOIN run USING (run)
    """,
    f"""
    CREATE VIEW dataset_cells AS SELECT
        run.id AS run,
        part.task AS task,
        cell.key & 2147483647 AS row,
        CASE WHEN cell.is_group THEN cell.unit END AS row_group,
        cell.producer,
        cell.skipped IS NOT NULL AS skipped,
        {_SHORT} AS made,
        json_extract(cell.tally, '$.calls') AS calls,
        cell.execution
    FROM cell JOIN part ON part.part = cell.key >> 31 JOIN run USING (run)
    """,
    """
    CREATE VIEW dropped_rows AS SELECT
        run.id AS run,
        part.task AS task,
        dropped_row.key & 2147483647 AS row,
        dropped_row.cause,
        dropped_row.producer AS column,
        dropped_row.error,
        dropped_row.error_kind,
        dropped_row.attempts
    FROM dropped_row JOIN part ON part.part = dropped_row.key >> 31 JOIN run USING (run)
    """,
)
"""The statements that add them to tables of version 1."""
