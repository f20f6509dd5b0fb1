"""Types that say whether an output is SQL, or has SQL in it, and touches only what it may."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import SLOW_AT_ONCE, Extra, Finding, Judge, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.sql_text import DIALECTS, read_sql
from trioeval.grading.subject import Subject
from trioeval.grading.text import quote

_DATABASE, _TABLES, _COLUMNS = "databaseType", "allowedTables", "allowedColumns"
_FENCE = re.compile(r"[ \t]{0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)", re.DOTALL)
_LINES = re.compile(r"\r\n?|\n")
_ENTRY_PARTS = 3


def _is_sql(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    fault = sql_fault(subject.text, value)
    reason = "the output is SQL" if fault is None else f"the output is not the SQL wanted: {fault}"
    return Finding(holds=fault is None, reason=reason)


def _contains_sql(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    reason = "the output contains no SQL"
    for block in sql_blocks(subject.text) or [subject.text]:
        if block.strip():
            fault = sql_fault(block, value)
            if fault is None:
                return Finding(holds=True, reason="the output contains SQL")
            reason = f"the output does not contain the SQL wanted: {fault}"
    return Finding(holds=False, reason=reason)


def sql_fault(text: str, value: Mapping[str, Any] | None) -> str | None:
    """What keeps a text from being SQL that may run; None if nothing does.

    Raises:
        GradingError: It is too long, or the database is none.
    """
    value = value or {}
    database = value.get(_DATABASE) or "MySQL"
    if database.lower() not in DIALECTS:
        msg = f"{quote(database)} is not a database that is known"
        raise GradingError(msg)
    try:
        found = read_sql(text, database)
    except ValueError as error:
        return f"not {database}: {error}"
    for what, entries, allowed in (
        ("table", found.tables, value.get(_TABLES)),
        ("column", found.columns, _with_bare(value.get(_COLUMNS) or ())),
    ):
        refused = _refused(entries, allowed or ())
        if refused is not None:
            return f"the {what} {quote(refused)} is not allowed"
    return None


def _with_bare(allowed: Sequence[str]) -> list[str]:
    """A column of a table may also be named without it."""
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
    r"""The fenced blocks of a Markdown text that have no language, or SQL.

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
        hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(known_keys)}"
        yield Problem(f".value.{key}", f"{quote(key)} is not a key here", hint)
    database = value.get(_DATABASE)
    if database and database.lower() not in DIALECTS:
        known = "MySQL, MariaDB, PostgreSQL, Sqlite, TransactSQL, BigQuery, Snowflake, Redshift, Hive, Trino"
        message = f"{quote(database)} is not a database that is known"
        yield Problem(f".value.{_DATABASE}", message, f"known are {known}")
    for key in (_TABLES, _COLUMNS):
        for place, entry in enumerate(value.get(key, ())):
            try:
                re.compile(entry)
            except re.error as error:
                message = f"{quote(entry)} is not a regular expression: {error}"
                yield Problem(f".value.{key}[{place}]", message)


_RIGHT = f"an object with {_DATABASE}, {_TABLES} and {_COLUMNS}, none of them needed"
_SQL = Extra("sql", "sqlglot")


def _kind(judge: Judge) -> Kind:
    return Kind(
        _RIGHT, _accepts, judge, bare=True, check=_check, requires=_SQL, at_once=SLOW_AT_ONCE
    )


KINDS: Kinds = {
    "contains-sql": _kind(_contains_sql),
    "is-sql": _kind(_is_sql),
}
