"""Types that check whether an output is SQL, or contains some, and uses only what it may."""

import difflib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import SLOW_AT_ONCE, Extra, Finding, Judge, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.text import quote

# The SQL statements of a text, and the tables and columns that they use; parsed by sqlglot.
#
# sqlglot accepts what many databases would reject, because it translates. The most frequent mistakes of
# models are rejected here as well: a missing comma, a statement without its table, an alias that is a
# keyword.


DIALECTS: Mapping[str, str] = {
    "athena": "athena",
    "bigquery": "bigquery",
    "db2": "postgres",
    "flinksql": "mysql",
    "hive": "hive",
    "mariadb": "mysql",
    "mysql": "mysql",
    "noql": "postgres",
    "postgresql": "postgres",
    "redshift": "redshift",
    "snowflake": "snowflake",
    "sqlite": "sqlite",
    "transactsql": "tsql",
    "trino": "trino",
}
"""Databases, in lower case, and the dialects that they are parsed with."""

_LONGEST = 100_000
_NO_BACKTICKS = frozenset(("postgres", "redshift", "snowflake", "trino", "athena", "tsql"))
_NO_ILIKE = frozenset(
    ("athena", "bigquery", "db2", "flinksql", "hive", "mariadb", "mysql", "sqlite", "transactsql")
)
_NO_SERIES = frozenset(("athena", "db2", "flinksql", "hive", "mariadb", "mysql"))
_BRACKETS = frozenset(("bigquery", "transactsql"))
"""Dialects in which `[` may start an expression."""
_FAMILY = frozenset(("mysql", "mariadb"))
_NO_DUPLICATE = frozenset(("postgresql", "redshift", "snowflake", "sqlite", "transactsql", "trino"))
_MODIFIERS = {
    True: (
        "(?:all|distinct(?:row)?|high_priority|straight_join|sql_(?:big_result|buffer_result|cache"
        "|calc_found_rows|no_cache|small_result))"
    ),
    False: "(?:all|distinct)",
}
_WORD = "[A-Za-z_][A-Za-z0-9_]*+"
_NO_COMMA = {
    family: re.compile(
        rf"\bselect\s++(?:{words}\s++)*+(?!{words}\b){_WORD}\s++{_WORD}\s++from\b",
        re.IGNORECASE | re.ASCII,
    )
    for family, words in _MODIFIERS.items()
}
_SKIPPED = re.compile(
    r"""(?P<quoted>'(?:\\.|''|[^'\\])*+'?|"(?:\\.|""|[^"\\])*+"?|`(?:\\.|``|[^`\\])*+`?)"""
    r"""|--[^\r\n]*+|\#[^\r\n]*+|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
_SERIES = re.compile(r"\bgenerate_series\s*+\(", re.IGNORECASE | re.ASCII)
_REPLACE = re.compile(r"(?i)\A\s*+replace\s++into\b")
_REFUSED = tuple(
    (frozenset(databases), re.compile(pattern, re.IGNORECASE | re.ASCII), fault)
    for databases, pattern, fault in (
        (DIALECTS.keys() - {"bigquery"}, r",\s*+from\b", "a column is missing before FROM"),
        (DIALECTS, r"\b(?:order|group)(?:\s++by)?[\s;]*+\Z", "it ends too early"),
        (DIALECTS, r"\A\s*+from\b", "it starts with FROM"),
        (DIALECTS.keys() - _BRACKETS, r"(?:\A|[\s,.(])\[\s*+[a-z_]", "[ is not allowed there"),
        (_FAMILY, r"==", "== is not an operator"),
        (_FAMILY, r"\bon\s++conflict\b", "ON CONFLICT is not supported"),
        (_NO_DUPLICATE, r"\bon\s++duplicate\s++key\b", "ON DUPLICATE KEY is not supported"),
        (("sqlite",), r"\A\s*+(?:show|grant|revoke)\b", "it is not a known statement"),
        (("sqlite",), r"\bfor\s++update\b", "FOR UPDATE is not supported"),
        (_FAMILY, r"\bdelete\s++(?!from\b)\w++\s++where\b", "DELETE needs FROM"),
    )
)
_RESERVED = frozenset(
    """
    ALTER AND BETWEEN BY CASE CREATE CROSS DELETE DROP ELSE EXISTS FROM GROUP HAVING IN INNER INSERT INTO
    IS JOIN LIKE LIMIT NOT ON OR ORDER SELECT SET TABLE THEN UNION UPDATE USING VALUES WHEN WHERE WITH
    """.split()  # noqa: SIM905 - a list would be twice as long
)


@attrs.frozen
class Statements:
    """The tables and columns that the statements of a text use."""

    tables: tuple[str, ...]
    """As `<operation>::<database or null>::<table>`."""
    columns: tuple[str, ...]
    """As `<operation>::<table or null>::<column>`; all columns are `(.*)`."""


def read_sql(text: str, database: str) -> Statements:
    """Return the tables and columns that the statements of a text use.

    Args:
        text: Statements, separated by `;`.
        database: A key of `DIALECTS`, in any case.

    Raises:
        ValueError: They are not SQL of that database; the message says why.
        GradingError: The text is too long.
    """
    database = database.lower()
    _check_text(text, database)
    import sqlglot
    from sqlglot import exp

    # It warns of statements that it passes through unparsed; a verdict is enough.
    logging.getLogger("sqlglot").addHandler(logging.NullHandler())
    try:
        parsed = sqlglot.parse(_readable(text, database), dialect=DIALECTS[database])
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None
    statements = [statement for statement in parsed if statement is not None]
    if not statements:
        msg = "it has no statement"
        raise ValueError(msg)
    for statement in statements:
        _check_statement(statement, exp, database)
    return Statements(
        tuple(dict.fromkeys(entry for one in statements for entry in _tables(one, exp))),
        tuple(dict.fromkeys(entry for one in statements for entry in _columns(one, exp))),
    )


def _check_text(text: str, database: str) -> None:
    if len(text) > _LONGEST:
        msg = "the SQL is too long"
        raise GradingError(msg)
    if not text.strip():
        msg = "it is blank"
        raise ValueError(msg)
    if text.count("`") % 2:
        msg = "a backtick is not closed"
        raise ValueError(msg)
    bare = _SKIPPED.sub(lambda match: " ? " if match["quoted"] else " ", text)
    if _NO_COMMA[database in _FAMILY].search(bare):
        msg = "a comma seems to be missing between columns"
        raise ValueError(msg)
    if database in _NO_SERIES and _SERIES.search(text):
        msg = "generate_series does not exist"
        raise ValueError(msg)
    for databases, pattern, fault in _REFUSED:
        if database in databases and pattern.search(bare):
            raise ValueError(fault)


def _readable(text: str, database: str) -> str:
    """Rewrite what sqlglot does not parse: REPLACE, and backticks, which quote names everywhere."""
    if database in _FAMILY or database == "sqlite":
        text = _REPLACE.sub("INSERT INTO", text)
    if DIALECTS[database] not in _NO_BACKTICKS:
        return text
    left, right = ("[", "]") if database == "transactsql" else ('"', '"')
    return re.sub(r"`([^`\"\[\]]*)`", rf"{left}\1{right}", text)


def _check_statement(statement: Any, exp: Any, database: str) -> None:
    fault = None
    dialect = DIALECTS[database]
    words = statement.sql(dialect).split(None, 1) if isinstance(statement, exp.Command) else [""]
    if isinstance(statement, exp.Command) and words[0].upper() not in _COMMANDS:
        fault = "it is not a known statement"
    elif not isinstance(statement, exp.Query | exp.DML | exp.DDL | exp.Command) and not _is_other(
        statement, exp
    ):
        fault = "it is not a statement"
    elif isinstance(statement, exp.Values | exp.Merge) and dialect == "mysql":
        fault = f"{statement.key.upper()} is not supported as a statement"
    elif database in _NO_ILIKE and statement.find(exp.ILike):
        fault = "ILIKE is not supported"
    elif any(
        isinstance(select, exp.Select) and not select.expressions
        for select in statement.find_all(exp.Select)
    ):
        fault = "SELECT names no columns"
    elif isinstance(statement, exp.Update) and not statement.expressions:
        fault = "UPDATE sets nothing"
    elif any(
        name.name.upper() in _RESERVED and not name.args.get("quoted")
        for name in statement.find_all(exp.Identifier)
    ):
        fault = "a keyword is used as a name"
    if fault is not None:
        raise ValueError(fault)


_COMMANDS = frozenset(
    ("ALTER", "BEGIN", "CALL", "EXPLAIN", "GRANT", "LOCK", "RENAME", "REVOKE", "SHOW", "UNLOCK")
)


def _is_other(statement: Any, exp: Any) -> bool:
    names = (
        "Alter Commit Describe Drop Grant Revoke Rollback Set Show Transaction TruncateTable Use"
    )
    return isinstance(
        statement, tuple(getattr(exp, name) for name in names.split() if hasattr(exp, name))
    )


def _operation(node: Any, exp: Any) -> str:
    """Return the kind of the statement that names a table."""
    parent = node.parent
    if isinstance(parent, exp.Schema):
        parent = parent.parent
    kinds = {
        exp.Insert: "insert",
        exp.Update: "update",
        exp.Delete: "delete",
        exp.Create: "create",
        exp.Drop: "drop",
        exp.Alter: "alter",
        exp.TruncateTable: "truncate",
    }
    return kinds.get(type(parent), "select")


def _tables(statement: Any, exp: Any) -> Iterator[str]:
    if isinstance(statement, exp.Command):
        # It is not parsed: only a pattern that allows everything allows it.
        yield f"{statement.name.lower()}::null::null"
    for table in statement.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            yield f"{_operation(table, exp)}::{table.db or 'null'}::{table.name}"


def _columns(statement: Any, exp: Any) -> Iterator[str]:
    names = {table.alias: table.name for table in statement.find_all(exp.Table) if table.alias}
    if isinstance(statement, exp.Delete) and isinstance(statement.this, exp.Table):
        yield f"delete::{statement.this.name}::(.*)"
    if isinstance(statement, exp.Insert):
        target = statement.this
        table = target.this if isinstance(target, exp.Schema) else target
        named = target.expressions if isinstance(target, exp.Schema) else ()
        for column in named:
            yield f"insert::{table.name}::{column.name}"
        if not named:
            yield f"insert::{table.name}::(.*)"
    set_here = {
        id(part.this)
        for part in (statement.expressions if isinstance(statement, exp.Update) else ())
        if isinstance(part, exp.EQ)
    }
    for column in statement.find_all(exp.Column):
        table = names.get(column.table, column.table) or "null"
        if id(column) in set_here:
            yield f"update::{table}::{column.name}"
        else:
            yield f"select::{table}::{'(.*)' if isinstance(column.this, exp.Star) else column.name}"
    for select in statement.find_all(exp.Select):
        if any(isinstance(one, exp.Star) for one in select.expressions):
            yield "select::null::(.*)"


_DATABASE, _TABLES, _COLUMNS = "databaseType", "allowedTables", "allowedColumns"
_FENCE = re.compile(r"[ \t]{0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)", re.DOTALL)
_LINES = re.compile(r"\r\n?|\n")
_ENTRY_PARTS = 3


def _is_sql(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    fault = sql_fault(subject.text, value)
    reason = (
        "the output is SQL" if fault is None else f"the output is not the required SQL: {fault}"
    )
    return Finding(holds=fault is None, reason=reason)


def _contains_sql(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    reason = "the output does not contain SQL"
    for block in sql_blocks(subject.text) or [subject.text]:
        if block.strip():
            fault = sql_fault(block, value)
            if fault is None:
                return Finding(holds=True, reason="the output contains SQL")
            reason = f"the output does not contain the required SQL: {fault}"
    return Finding(holds=False, reason=reason)


def sql_fault(text: str, value: Mapping[str, Any] | None) -> str | None:
    """Return the reason why a text is not allowed SQL; None if it is.

    Raises:
        GradingError: It is too long, or the database is unknown.
    """
    value = value or {}
    database = value.get(_DATABASE) or "MySQL"
    if database.lower() not in DIALECTS:
        msg = f"{quote(database)} is not a known database"
        raise GradingError(msg)
    try:
        found = read_sql(text, database)
    except ValueError as error:
        return f"not {database}: {error}"
    for noun, entries, allowed in (
        ("table", found.tables, value.get(_TABLES)),
        ("column", found.columns, _with_bare(value.get(_COLUMNS) or ())),
    ):
        refused = _refused(entries, allowed or ())
        if refused is not None:
            return f"the {noun} {quote(refused)} is not allowed"
    return None


def _with_bare(allowed: Sequence[str]) -> list[str]:
    """Add the columns without their table: a column of a table may also be named so."""
    parts = (entry.split("::") for entry in allowed)
    bare = (f"{one[0]}::null::{one[2]}" for one in parts if len(one) == _ENTRY_PARTS)
    return [*allowed, *bare]


def _refused(entries: Sequence[str], allowed: Sequence[str]) -> str | None:
    if not allowed:
        return None
    patterns = [re.compile(pattern, re.IGNORECASE) for pattern in allowed]
    for entry in entries:
        if not any(pattern.fullmatch(entry) or pattern.pattern == entry for pattern in patterns):
            return entry
    return None


def sql_blocks(text: str) -> list[str]:
    r"""Return the fenced blocks of a Markdown text without a language, or with SQL.

    Example:
        >>> sql_blocks("So:\n```sql\nSELECT 1\n```")
        ['SELECT 1']
    """
    blocks: list[str] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    for line in _LINES.split(text):
        fence = _FENCE.match(line)
        if opening is None:
            opening, body = fence, []
        elif (
            fence is not None
            and not fence["info"].strip(" \t")
            and fence["fence"].startswith(opening["fence"])
        ):
            if opening["info"].strip().lower() in ("", "sql"):
                blocks.append("\n".join(body).strip())
            opening = None
        else:
            body.append(line)
    return blocks


def _accepts(value: Any) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, Mapping)
        and isinstance(value.get(_DATABASE, ""), str)
        and all(
            isinstance(entries, list | tuple) and all(isinstance(entry, str) for entry in entries)
            for entries in (value.get(_TABLES, ()), value.get(_COLUMNS, ()))
        )
    )


def _check(assertion: Assertion) -> Iterator[Problem]:
    value = assertion.value or {}
    known_keys = (_DATABASE, _TABLES, _COLUMNS)
    for key in value.keys() - set(known_keys):
        close = difflib.get_close_matches(str(key), known_keys, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"known keys are {', '.join(known_keys)}"
        yield Problem(f".value.{key}", f"{quote(key)} is not a known key", hint)
    database = value.get(_DATABASE)
    if database and database.lower() not in DIALECTS:
        known = "MySQL, MariaDB, PostgreSQL, Sqlite, TransactSQL, BigQuery, Snowflake, Redshift, Hive, Trino"
        message = f"{quote(database)} is not a known database"
        yield Problem(f".value.{_DATABASE}", message, f"known databases are {known}")
    for key in (_TABLES, _COLUMNS):
        for place, entry in enumerate(value.get(key, ())):
            try:
                re.compile(entry)
            except re.error as error:
                message = f"{quote(entry)} is not a regular expression: {error}"
                yield Problem(f".value.{key}[{place}]", message)


_RIGHT = f"an object with {_DATABASE}, {_TABLES} and {_COLUMNS}, all of them optional"
_SQL = Extra("sql", "sqlglot")


def _kind(judge: Judge) -> Kind:
    return Kind(
        _RIGHT, _accepts, judge, bare=True, check=_check, requires=_SQL, at_once=SLOW_AT_ONCE
    )


KINDS: Kinds = {
    "contains-sql": _kind(_contains_sql),
    "is-sql": _kind(_is_sql),
}
