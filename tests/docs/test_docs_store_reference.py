"""The page about the store agrees with the code, and its example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import DOCS

from trioeval.store.database import open_database
from trioeval.store.schema import MIGRATIONS, RUNS

PAGE = (DOCS / "reference" / "store.md").read_text()


def test_the_store_page_lists_every_view_with_its_columns(tmp_path: Path) -> None:
    """It has the names and the order of columns, and the version of the tables."""
    listed = dict(re.findall(r"^\| `(\w+)` \| .* \| ([\w, ]+) \|$", PAGE, re.MULTILINE))
    connection = open_database(tmp_path / "r.db", RUNS)
    views = connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    found = {
        name: ", ".join(
            column[0]
            for column in connection.execute(f"SELECT * FROM {name}").description  # noqa: S608
        )
        for (name,) in views
    }
    connection.close()
    assert listed == found
    assert f"(`PRAGMA user_version`, {len(MIGRATIONS)})" in PAGE
    assert f"0x{RUNS.application_id:X}" in PAGE


@pytest.mark.slow
def test_the_example_of_the_store_page_prints_the_documented_output(tmp_path: Path) -> None:
    """It is run unchanged, in a separate folder."""
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", PAGE, re.DOTALL)[-2:]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == expected
