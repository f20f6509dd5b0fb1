"""Pages, code and tests name the same laws."""

import ast
import re
from pathlib import Path

from snippets import DOCS, ROOT

from trioeval.testing import LAWS

HOLDING = {*LAWS, "EAGER", "ISOLATION", "RECOVERY", "RESUME", "COMPLETE", "ONCE"}
"""EAGER, ISOLATION and RECOVERY need own traces, RESUME runs of suites, the last two runs of datasets."""

DESIGN = (DOCS / "design.md").read_text()


def _claims(path: Path) -> set[str]:
    """The laws that the docstring of a module claims."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    found = re.findall(r"^Laws?: ([A-Z_, ]+)\.$", docstring, re.MULTILINE)
    return {law for names in found for law in names.split(", ")}


def test_the_design_lists_the_laws_that_hold() -> None:
    """Every law has a check, and every check has a law."""
    assert set(re.findall(r"^\| ([A-Z_]+) \|", DESIGN, re.MULTILINE)) == HOLDING


def test_the_overview_lists_the_laws_that_hold() -> None:
    """The first page promises the laws of the design."""
    page = (DOCS / "index.md").read_text()
    assert set(re.findall(r"^\* ([A-Z_]+): ", page, re.MULTILINE)) == HOLDING


def test_the_page_about_testing_names_the_check_of_each_law() -> None:
    """They are in the order of `LAWS`, by the names under which they are imported."""
    page = (DOCS / "reference" / "testing.md").read_text()
    listed = re.findall(r"^\| ([A-Z_]+) \| `(\w+)` \|$", page, re.MULTILINE)
    assert listed == [(law, check.__name__) for law, check in LAWS.items()]


def test_laws_of_runs_are_claimed_by_tests() -> None:
    """Laws without a check in `trioeval.testing` are named by a test that proves them."""
    proofs = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for law in HOLDING - LAWS.keys():
        assert re.search(rf'^ *"""(?:[A-Z]+, )*{law}\b', proofs, re.MULTILINE), law


def test_modules_claim_only_laws_that_hold() -> None:
    """A law in the docstring of a module of kernel or rates has a check."""
    modules = [p for name in ("kernel", "rates") for p in (ROOT / "trioeval" / name).glob("*.py")]
    claimed = set().union(*map(_claims, modules))
    assert claimed
    assert claimed <= HOLDING


def test_every_guarding_test_of_the_design_exists() -> None:
    """The named guards of a decision exist."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    guards = re.findall(r"`(test_\w+)`", DESIGN)
    assert guards
    assert [name for name in guards if f"def {name}(" not in tests] == []


def test_every_file_that_the_design_names_exists() -> None:
    """Paths are relative to the repository, or to the package if they begin with one of its packages."""
    paths = re.findall(r"`([\w/]+\.py)`", DESIGN)
    assert paths
    assert [
        p for p in paths if not (ROOT / p).exists() and not (ROOT / "trioeval" / p).exists()
    ] == []


def test_every_decision_has_a_rejected_alternative_and_a_guard() -> None:
    """Decisions are numbered without gaps, and end with what would break without them."""
    decisions = re.split(r"^### (\d+)\. .*$", DESIGN, flags=re.MULTILINE)[1:]
    numbers, texts = decisions[::2], decisions[1::2]
    assert numbers == [str(number) for number in range(1, len(texts) + 1)]
    assert [
        number for number, text in zip(numbers, texts, strict=True) if not _is_whole(text)
    ] == []


def _is_whole(decision: str) -> bool:
    return "\nRejected: " in decision and decision.strip().splitlines()[-1].startswith(
        "Guarded by "
    )
