from typing import Any

import pytest

from trioeval.errors import GradingError
from trioeval.grading import Assertion, check_assertion, grade
from trioeval.grading.kinds.sql import sql_blocks, sql_fault

GOOD = [
    "SELECT a FROM t",
    "SELECT 1; DROP TABLE t",
    "REPLACE INTO t (a) VALUES (1)",
    "SHOW TABLES",
    "SELECT 'a b' x FROM t",
]
BAD = [
    "", "hello world", "SELECT FROM", "SELECT a b FROM t", "SELECT `a FROM t",
    "SELECT * FROM generate_series(1, 2)",
    "SELECT a, FROM t", "FROM t SELECT a", "SELECT a FROM t ORDER", "SELECT order FROM t",
    "VALUES (1)", "1", "VACUUM",
    "SELECT a FROM t WHERE a == 1", "SELECT [a] FROM t", "DELETE t WHERE a = 1",
    "SELECT a FROM t WHERE b ILIKE 'x'",
    "UPDATE t SET", "SELECT " + "(" * 5000, "-- only this",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_texts_that_are_sql(text: str) -> None:
    """One statement or several are SQL."""
    assert sql_fault(text, None) is None


@pytest.mark.parametrize("text", BAD)
def test_texts_that_are_not_sql(text: str) -> None:
    """Some of them would be accepted by sqlglot."""
    assert sql_fault(text, {"databaseType": "MySQL"})


@pytest.mark.parametrize(
    ("text", "key", "allowed", "passes"),
    [
        ("SELECT a FROM T x", "allowedTables", ["select::null::t"], True),
        ("SELECT a FROM tt", "allowedTables", ["select::null::t"], False),
        ("INSERT INTO t SELECT a FROM u", "allowedTables", ["insert::null::t"], False),
        ("CALL p()", "allowedTables", ["select::(.*)::(.*)"], False),
        ("SELECT a, x.b FROM t x", "allowedColumns", ["select::t::(a|b)"], True),
        ("SELECT * FROM t", "allowedColumns", ["select::null::a"], False),
        (
            "UPDATE t SET a = 1 WHERE b = 2",
            "allowedColumns",
            ["update::t::a", "select::t::b"],
            True,
        ),
        ("DELETE FROM t", "allowedColumns", ["delete::t::(.*)"], True),
        ("INSERT INTO t VALUES (1)", "allowedColumns", ["insert::t::a"], False),
        ("INSERT INTO t (a) VALUES (1)", "allowedColumns", ["insert::t::a"], True),
    ],
)
def test_allow_lists(text: str, key: str, allowed: list[str], *, passes: bool) -> None:
    """Each table and column must match an entry."""
    assert grade(text, [Assertion(type="is-sql", value={key: allowed})]).passed is passes


def test_databases_differ() -> None:
    """Each database has its own dialect; backticks quote in all of them."""
    assert sql_fault("SELECT TOP 5 [a] FROM `t`", {"databaseType": "TransactSQL"}) is None
    assert sql_fault("SELECT a FROM `t` WHERE b ILIKE 'x'", {"databaseType": "PostgreSQL"}) is None


def test_blocks() -> None:
    """There are two kinds of fences; a block that is not closed does not count."""
    assert sql_blocks("~~~sql\na\n```\n~~~\n```py\nb\n```\n```\nc\n````\n```\nd") == ["a\n```", "c"]
    assert grade("```sql\n\n```\n```sql\nSELECT 1\n```", [Assertion(type="contains-sql")]).passed
    assert grade("```py\nx\n```", [Assertion(type="not-contains-sql")]).passed


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"databaseType": "Foo"}, ".value.databaseType"),
        ({"allowedTables": ["("]}, ".value.allowedTables[0]"),
        ({"allowedTables": "t"}, ".value"),
        ([], ".value"),
    ],
)
def test_invalid_values_are_reported_at_load(value: Any, path: str) -> None:
    """The message has their position."""
    (problem,) = check_assertion(Assertion(type="is-sql", value=value))
    assert problem.path == path


def test_long_sql_is_an_error() -> None:
    """Parsing is slow."""
    with pytest.raises(GradingError, match="too long"):
        sql_fault("SELECT 1;" * 20_000, None)


def test_an_unknown_database_is_an_error() -> None:
    """It is raised if no loader has reported it."""
    wrong = Assertion(type="not-is-sql", value={"databaseType": "oracl"})
    with pytest.raises(GradingError, match='"oracl" is not a known database'):
        grade("SELECT 1", [wrong])
