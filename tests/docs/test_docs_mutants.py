"""The page of mutants equals the list of mutants."""

import re
from pathlib import Path

import run_mutants

import trioeval
from trioeval.testing import LAWS

TESTS = Path(__file__).parent.parent


def rows() -> list[list[str]]:
    lines = run_mutants.REPORT.read_text().splitlines()
    cells = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line[:2] == "| "
    ]
    return cells[1:]


def test_the_page_lists_every_mutant_and_none_survives() -> None:
    """After adding a mutant, run `python tests/mutants/run_mutants.py --report` again."""
    listed = [row[:3] for row in rows()]
    assert listed == [[mutant.name, mutant.file, mutant.law] for mutant in run_mutants.MUTANTS]
    assert not [row for row in rows() if row[3] in {"nothing", "not run yet"}]


def test_the_tests_that_kill_mutants_exist() -> None:
    """After renaming a test, generate the page again."""
    folders = [TESTS / folder for folder in ("kernel", "property")]
    source = "".join(path.read_text() for folder in folders for path in folder.glob("test_*.py"))
    named = {match for row in rows() for match in re.findall(r"\btest_\w+", row[3])}
    assert not {test for test in named if f"def {test}(" not in source}


def test_mutants_name_the_laws_that_they_break() -> None:
    """These are the laws that `trioeval.testing` checks, or an example."""
    assert {row[2] for row in rows()} <= {*LAWS, "EAGER", "ISOLATION", "RECOVERY", "example"}
    assert (Path(trioeval.__file__).parent / rows()[0][1]).exists()
