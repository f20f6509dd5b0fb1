"""The tables of the database of runs, and the views that people read.

Tables have short names in the singular, and are ours to change; views have names in the plural, and stay.

A run has a part for each task of its suite. A row has a *key*, of which everything else of it is found: the
number of its part times 2^31, plus its index. So the rows of a part are neighbours, in the order of their
indices, without any index beside the table.
"""

import json
import zlib
from collections.abc import Sequence

from trioeval.evaluation.status import Status, recorded_status
from trioeval.store.database import DatabaseKind
from trioeval.store.dataset_tables import DATASET_TABLES
from trioeval.store.queue_tables import QUEUE_TABLES

# The tables of agents: the line in which they stand, and their attempts.


AGENT_TABLES: Sequence[str] = (
    *QUEUE_TABLES,
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


# ruff: noqa: S608 - all of it is made of texts that stand here


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
    """Return SQL for the number of rows of a run: as counted at its end, or else now."""
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


_COUNTS = {"pass": "passed", "fail": "failed", "error": "errors"}
"""The columns of numbers of rows whose names are not those of their statuses."""


def _view_of_runs(*statuses: str) -> str:
    counts = ",".join(f"{_counted(one)} AS {_COUNTS.get(one, one)}" for one in statuses)
    return f"""
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
        {counts},
        json_extract(run.totals, '$.tokens') AS tokens,
        json_extract(run.totals, '$.cost') AS cost_usd,
        run.flags
    FROM run LEFT JOIN part USING (run)
    GROUP BY run.run
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
    _view_of_runs("pass", "fail", "error", "not_run"),
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
    # The activity of lanes in a finished execution, as made by `report.activity`.
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


def _status_count(status: str) -> str:
    return f"""(
        SELECT count(*) FROM part JOIN result
        ON result.key BETWEEN part.part << {INDEX_BITS} AND (part.part + 1 << {INDEX_BITS}) - 1
        WHERE part.run = run.run AND status = '{status}'
    )"""


_NOT_GRADED: Sequence[str] = (
    # Rows that nothing graded were recorded as passed.
    """
    UPDATE result SET status = 'not_graded', score = NULL
    WHERE status = 'pass' AND is_not_graded((SELECT body FROM record WHERE record.key = result.key))
    """,
    f"""
    UPDATE run SET totals = json_set(
        totals,
        '$.statuses.pass', {_status_count("pass")},
        '$.statuses.not_graded', {_status_count("not_graded")}
    ) WHERE totals IS NOT NULL AND {_status_count("not_graded")} > 0
    """,
    "DROP VIEW runs",
    _view_of_runs("pass", "fail", "error", "not_graded", "not_run"),
)

_SHORT_RECORDS: Sequence[str] = ()
"""Nothing changes in the tables: from this version on, records are shortened, see `report.phrases`."""
_NO_REPEATS: Sequence[str] = ()
"""Nothing changes either: from this version on, more phrases have tokens; see also `report.repeats`."""
_TOTALS: Sequence[str] = (
    # The totals of a task of an ended run, as made by `report.kept_totals`; absent while they are not known.
    "CREATE TABLE part_totals (part INTEGER PRIMARY KEY, body NOT NULL)",
    # Failed rows are few as a rule, and are asked for among many.
    "CREATE INDEX result_failed ON result (key) WHERE status NOT IN ('pass', 'not_graded')",
)

_MEDIA: Sequence[str] = (
    # The files of media that a run names, in the folder beside the database.
    """
    CREATE TABLE IF NOT EXISTS media (
        run INTEGER NOT NULL,
        file TEXT NOT NULL,
        PRIMARY KEY (run, file)
    ) WITHOUT ROWID
    """,
)

_JOBS: Sequence[str] = (
    # Jobs at services that calls have paid for, and whose replies are not recorded yet.
    """
    CREATE TABLE IF NOT EXISTS job (
        key INTEGER NOT NULL,
        role TEXT NOT NULL,
        question BLOB NOT NULL,
        row_id TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (key, role, question)
    ) WITHOUT ROWID
    """,
)

MIGRATIONS: Sequence[Sequence[str]] = (
    _VERSION_1,
    DATASET_TABLES,
    AGENT_TABLES,
    _ACTIVITY,
    _NEVER_BEGAN,
    (*_NOT_GRADED, *_TOTALS),
    _SHORT_RECORDS,
    _NO_REPEATS,
    _MEDIA,
    _JOBS,
)
"""Statements that lead from each version of the tables to the next."""


def is_not_graded(body: str | bytes | None) -> bool:
    """Return whether a stored record is that of a row that nothing graded; false if it is damaged."""
    try:
        record = json.loads(zlib.decompress(body) if isinstance(body, bytes) else body or "")
    except (ValueError, zlib.error):
        return False
    return isinstance(record, dict) and recorded_status(record) is Status.NOT_GRADED


RUNS = DatabaseKind(
    name="store of runs",
    application_id=0x7472696F,  # "trio"
    migrations=MIGRATIONS,
    functions={"is_not_graded": is_not_graded},
    hint="name another file with --db, or store nothing with --no-write",
)
