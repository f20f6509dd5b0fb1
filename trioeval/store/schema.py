"""The tables of the database of runs, and the views that people read.

Tables have short names in the singular, and are ours to change; views have names in the plural, and stay.

A run has a part for each task of its suite. A row has a *key*, of which everything else of it is found: the
number of its part times 2^31, plus its index. So the rows of a part are neighbours, in the order of their
indices, without any index beside the table.
"""
# ruff: noqa: S608 - all of it is made of texts that stand here

from collections.abc import Sequence

from trioeval.store.agent_schema import AGENT_TABLES
from trioeval.store.database import DatabaseKind
from trioeval.store.dataset_schema import DATASET_TABLES

INDEX_BITS = 31
"""Bits of a key that are the row's index."""

_SHORT_RECORD = "CASE typeof(record.body) WHEN 'text' THEN record.body END"

_PLACE = """
    run.id AS run,
    part.task AS task,
    {table}.key & 2147483647 AS row
"""


def _place(table: str) -> str:
    return _PLACE.format(table=table)


def _joined(table: str) -> str:
    return f"""
    {table}
    JOIN part ON part.part = {table}.key >> 31
    JOIN run ON run.run = part.run
    """


def _counted(status: str | None = None) -> str:
    """How many rows a run has: as it was counted at its end, or else now."""
    path, chosen = (
        ("rows", "") if status is None else (f"statuses.{status}", f"AND status = '{status}'")
    )
    return f"""
        CASE WHEN run.totals IS NULL THEN (
            SELECT count(*) FROM part AS own JOIN result
            ON result.key BETWEEN own.part << {INDEX_BITS} AND (own.part + 1 << {INDEX_BITS}) - 1 {chosen}
            WHERE own.run = run.run
        ) ELSE coalesce(json_extract(run.totals, '$.{path}'), 0) END
    """


_VERSION_1 = (
    """
    CREATE TABLE run (
        run INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        suite TEXT,
        description TEXT,
        state TEXT NOT NULL,
        utc_created TEXT NOT NULL,
        utc_finished TEXT,
        executions INTEGER NOT NULL,
        duration_ms REAL NOT NULL,
        versions TEXT NOT NULL,
        flags TEXT NOT NULL,
        files TEXT NOT NULL,
        derived TEXT,
        totals TEXT
    )
    """,
    """
    CREATE TABLE part (
        part INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        position INTEGER NOT NULL,
        task TEXT,
        expected INTEGER,
        head NOT NULL,
        UNIQUE (run, position)
    )
    """,
    """
    CREATE TABLE result (
        key INTEGER PRIMARY KEY,
        row_id TEXT NOT NULL,
        content TEXT,
        test INTEGER NOT NULL,
        prompt INTEGER NOT NULL,
        repeat INTEGER,
        status TEXT NOT NULL,
        outcome TEXT NOT NULL,
        error_kind TEXT,
        score REAL,
        latency_ms REAL,
        wait_ms REAL,
        calls INTEGER,
        tokens INTEGER NOT NULL,
        cost REAL,
        cached INTEGER NOT NULL,
        again INTEGER NOT NULL DEFAULT 0
    )
    """,
    "CREATE TABLE record (key INTEGER PRIMARY KEY, body NOT NULL)",
    """
    CREATE TABLE score (
        key INTEGER NOT NULL,
        position INTEGER NOT NULL,
        type TEXT,
        metric TEXT,
        passed INTEGER NOT NULL,
        score REAL,
        weight REAL,
        reason TEXT,
        PRIMARY KEY (key, position)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE call (
        call INTEGER PRIMARY KEY,
        key INTEGER NOT NULL,
        row_id TEXT NOT NULL,
        role TEXT NOT NULL,
        question BLOB NOT NULL,
        provider TEXT NOT NULL,
        prompt NOT NULL,
        reply,
        error TEXT,
        error_kind TEXT,
        latency_ms REAL,
        tokens INTEGER,
        cost REAL,
        cached INTEGER NOT NULL,
        recalled INTEGER NOT NULL,
        execution INTEGER NOT NULL
    )
    """,
    "CREATE INDEX call_key ON call (key)",
    """
    CREATE TABLE event (
        event INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        execution INTEGER NOT NULL,
        at_s REAL NOT NULL,
        lane TEXT NOT NULL,
        kind TEXT NOT NULL,
        row INTEGER,
        until_s REAL,
        retry_after_s REAL,
        concurrency INTEGER,
        reason TEXT
    )
    """,
    "CREATE INDEX event_run ON event (run)",
    """
    CREATE TABLE test (
        part INTEGER NOT NULL,
        position INTEGER NOT NULL,
        body NOT NULL,
        PRIMARY KEY (part, position)
    ) WITHOUT ROWID
    """,
    f"""
    CREATE VIEW runs AS SELECT
        run.id AS run,
        run.suite,
        run.description,
        run.state,
        run.utc_created,
        run.utc_finished,
        run.executions,
        round(run.duration_ms / 1000, 3) AS duration_s,
        sum(part.expected) AS expected,
        {_counted()} AS rows,
        {_counted("pass")} AS passed,
        {_counted("fail")} AS failed,
        {_counted("error")} AS errors,
        {_counted("not_run")} AS not_run,
        json_extract(run.totals, '$.tokens') AS tokens,
        json_extract(run.totals, '$.cost') AS cost_usd,
        run.flags
    FROM run LEFT JOIN part USING (run)
    GROUP BY run.run
    """,
    f"""
    CREATE VIEW results AS SELECT
        {_place("result")},
        result.test,
        result.prompt AS prompt_number,
        result.repeat,
        coalesce(
            nullif(json_extract({_SHORT_RECORD}, '$.provider.label'), ''),
            json_extract({_SHORT_RECORD}, '$.provider.id')
        ) AS provider,
        json_extract({_SHORT_RECORD}, '$.testCase.description') AS description,
        json_extract({_SHORT_RECORD}, '$.vars') AS vars,
        json_extract({_SHORT_RECORD}, '$.prompt.raw') AS prompt,
        CASE typeof(record.body)
            WHEN 'text' THEN json_extract(record.body, '$.response.output')
            ELSE '[compressed: trioeval show ' || run.id || ' ' || (result.key & 2147483647) || ']'
        END AS output,
        result.status,
        result.score,
        json_extract({_SHORT_RECORD}, '$.error') AS error,
        result.outcome,
        result.error_kind,
        result.latency_ms,
        result.wait_ms,
        result.calls,
        result.tokens,
        result.cost AS cost_usd,
        result.cached,
        result.row_id
    FROM {_joined("result")} JOIN record ON record.key = result.key
    """,
    f"""
    CREATE VIEW calls AS SELECT
        call.call,
        {_place("call")},
        call.execution,
        call.role,
        call.provider,
        CASE typeof(call.prompt) WHEN 'text' THEN json_extract(call.prompt, '$') ELSE '[compressed]' END
            AS prompt,
        CASE typeof(call.reply)
            WHEN 'text' THEN json_extract(call.reply, '$.output')
            WHEN 'blob' THEN '[compressed]'
        END AS output,
        call.error_kind,
        json_extract(call.error, '$.message') AS error,
        call.latency_ms,
        call.tokens,
        call.cost AS cost_usd,
        call.cached,
        call.row_id
    FROM {_joined("call")}
    """,
    f"""
    CREATE VIEW scores AS SELECT
        {_place("score")},
        score.position,
        score.type,
        score.metric,
        score.passed,
        score.score,
        score.weight,
        score.reason
    FROM {_joined("score")}
    """,
    """
    CREATE VIEW lane_events AS SELECT
        event.event,
        run.id AS run,
        event.execution,
        event.at_s,
        event.lane,
        event.kind,
        event.row,
        event.until_s,
        event.retry_after_s,
        event.concurrency,
        event.reason
    FROM event JOIN run ON run.run = event.run
    """,
)

_ACTIVITY: Sequence[str] = (
    # What the lanes did in an execution that came to its end, as `report.activity` tells it.
    """
    CREATE TABLE activity (
        run INTEGER NOT NULL,
        execution INTEGER NOT NULL,
        body NOT NULL,
        PRIMARY KEY (run, execution)
    ) WITHOUT ROWID
    """,
)

_NEVER_BEGAN: Sequence[str] = (
    # Rows that the last execution of a run never came to, many a line.
    """
    CREATE TABLE never_began (
        part INTEGER NOT NULL,
        first INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        error TEXT,
        question TEXT,
        columns TEXT NOT NULL,
        PRIMARY KEY (part, first)
    ) WITHOUT ROWID
    """,
    """
    CREATE VIEW rows_not_run AS SELECT
        run.id AS run,
        part.task,
        never_began.first AS first_row,
        never_began.stop - 1 AS last_row,
        never_began.stop - never_began.first AS rows,
        never_began.error
    FROM never_began JOIN part USING (part) JOIN run USING (run)
    """,
)

MIGRATIONS: Sequence[Sequence[str]] = (
    _VERSION_1,
    DATASET_TABLES,
    AGENT_TABLES,
    _ACTIVITY,
    _NEVER_BEGAN,
)
"""Statements that lead from each version of the tables to the next."""

RUNS = DatabaseKind(
    name="store of runs",
    application_id=0x7472696F,  # "trio"
    migrations=MIGRATIONS,
    hint="name another file with --db, or keep nothing with --no-write",
)
