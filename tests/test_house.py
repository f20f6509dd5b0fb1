"""Rules of this repository that no linter checks."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import run_mutants

import trioeval
from trioeval.grading.registry import _MODULES as HOMES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trioeval"
MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_one_idea_on_at_most_600_lines(path: Path) -> None:
    """A module that grows is found at line 601."""
    assert len(path.read_text().splitlines()) <= 600


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def _importers() -> dict[str, set[str]]:
    """Return for each module those that import it; with a `?` if they do so inside of a function."""
    names = {path: _name(path) for path in MODULES}
    known = set(names.values())
    importers: dict[str, set[str]] = {name: set() for name in known}
    for path, importer in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = {f"{node.module}.{alias.name}" for alias in node.names} & known
                for module in named or {node.module} & known:
                    importers[module].add(f"{importer}?" if node.col_offset else importer)
    for module in HOMES:
        importers[f"trioeval.grading.{module}"].add("trioeval.grading.registry?")
    return importers


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


IMPORTERS = _importers()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_with_one_importer_states_why_it_is_separate(path: Path) -> None:
    """A helper with one importer is part of that module, or its first line states the reason.

    A module that is imported inside of a function needs no reason: other runs start without it.
    """
    importers = IMPORTERS[_name(path)]
    expected = r"[^#]|\Z"
    if len(importers) == 1 and path.name != "__init__.py":
        (importer,) = importers
        folder = PACKAGE.parent / importer.rstrip("?").replace(".", "/")
        if not importer.endswith("?") and not folder.is_dir():  # a package re-exports names
            expected = f"# Separate from `{re.escape(importer.removeprefix('trioeval.'))}`: .+\n"
    assert re.match(expected, path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_cancellation_is_never_swallowed(path: Path) -> None:
    """No handler catches BaseException or everything, and none is bare."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None
            assert "BaseException" not in {
                name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)
            }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_task_that_is_started_with_start_can_be_cancelled(path: Path) -> None:
    """`nursery.start` in a cancelled scope waits for ever for a task that is shielded before it reports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
            assert "task_status" not in named or not _shields(node)


def _shields(function: ast.AST) -> bool:
    return any(isinstance(one, ast.keyword) and one.arg == "shield" for one in ast.walk(function))


@pytest.mark.parametrize("package", ["kernel", "rates"])
def test_time_and_randomness_are_arguments(package: str) -> None:
    """Neither module is imported below the layers that interact with the outside."""
    for path in (PACKAGE / package).rglob("*.py"):
        assert not re.search(
            r"^\s*(import|from) (time|random|datetime)\b", path.read_text(), re.MULTILINE
        )


def test_no_two_classes_have_the_same_name() -> None:
    """A class is named after its owner, so that a name in a message or a traceback means one class."""
    homes: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), set()).add(_name(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_every_public_name_can_be_imported() -> None:
    """The lazy names of the package are those of type checkers."""
    source = (PACKAGE / "__init__.py").read_text()
    typed = set(re.findall(r"import (\w+) as \1$", source, re.MULTILINE))
    assert set(trioeval.__all__) == typed
    for name in trioeval.__all__:
        assert getattr(trioeval, name) is not None
    with pytest.raises(AttributeError, match="module 'trioeval' has no attribute 'nothing'"):
        trioeval.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    """`--version` takes no longer than Python."""
    probe = "import sys, trioeval; print({'trio', 'attrs', 'cattrs', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("mutant", run_mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_to_the_code(mutant: run_mutants.Mutant) -> None:
    """`tests/mutants/run_mutants.py` runs them."""
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1


def test_every_module_of_kernel_and_rates_has_a_mutant() -> None:
    """Code without a mutant is not known to be tested."""
    modules = {path for name in ("kernel", "rates") for path in (PACKAGE / name).glob("[!_]*.py")}
    assert {PACKAGE / mutant.file for mutant in run_mutants.MUTANTS} == modules
