"""The description of the database for Datasette, compared with a real database."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from finished import results_of

from trioeval.report.files import write_results
from trioeval.report.formats.datasette import HIDDEN, VIEWS, datasette_metadata
from trioeval.store.store import open_store


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Return a new store."""
    path = tmp_path_factory.mktemp("store") / "results.db"

    async def make() -> None:
        async with open_store(path):
            pass

    trio.run(make)
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def names(database: sqlite3.Connection, kind: str) -> set[str]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = ?", [kind])
    return {name for (name,) in found if not name.startswith("sqlite_")}


def test_every_view_and_column_is_described(database: sqlite3.Connection) -> None:
    """Every table and view is described, and no other."""
    assert set(VIEWS) == names(database, "view")
    for name, view in VIEWS.items():
        columns = [line[1] for line in database.execute(f"PRAGMA table_info({name})")]
        assert sorted(view.columns) == sorted(columns)
        used = {*view.facets, *view.units, *filter(None, [view.newest_first])}
        assert used <= set(columns)
        assert all(about and not about.endswith(".") for about in view.columns.values())


def test_tables_behind_the_views_are_hidden(database: sqlite3.Connection) -> None:
    """Every column is described."""
    assert set(HIDDEN) == names(database, "table")


def test_the_queries_can_be_run(database: sqlite3.Connection) -> None:
    """Queries run with their parameters."""
    for query in datasette_metadata("x")["databases"]["x"]["queries"].values():
        assert set(query) == {"title", "description", "sql"}
        database.execute(query["sql"], {"run": "eval-1"}).fetchall()


def test_the_suffix_selects_datasette_metadata(tmp_path: Path) -> None:
    """A file with that suffix is metadata, not a result file."""
    results = results_of()
    named = attrs.evolve(results, info=attrs.evolve(results.info, database="mine"))
    path = tmp_path / "x.datasette.json"
    assert write_results(path, [named]) == [path]
    found: dict[str, Any] = json.loads(path.read_text())
    assert list(found["databases"]) == ["mine"]
    tables = found["databases"]["mine"]["tables"]
    assert tables["results"]["facets"][-1] == "error_kind"
    assert tables["runs"]["sort_desc"] == "utc_created"
    assert tables["record"] == {"hidden": True}


@pytest.mark.datasette
def test_datasette_accepts_the_metadata(database: sqlite3.Connection, tmp_path: Path) -> None:
    """Every page opens with the sorts, facets and units of the metadata."""
    (_, _, path), *_ = database.execute("PRAGMA database_list").fetchall()
    metadata = tmp_path / "m.datasette.json"
    metadata.write_text(json.dumps(datasette_metadata(Path(path).stem)))
    pages = {f"/results/{name}": view.title for name, view in VIEWS.items()}
    pages |= {"/results": "Runs of trioeval", "/results/pass_rates": "Pass rates"}
    for page, title in pages.items():
        command = [
            os.environ["DATASETTE"],
            "serve",
            path,
            "--metadata",
            str(metadata),
            "--get",
            page,
        ]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert title in found.stdout
