"""Rules of this repository that no linter checks."""

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import run_mutants

from trioeval.grading.registry import _MODULES as HOMES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trioeval"
MODULES = sorted(PACKAGE.rglob("*.py"))
STATEMENTS = (
    ast.ImportFrom,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ExceptHandler,
)


@functools.cache
def _statements() -> dict[Path, list[ast.AST]]:
    """Return the imports, classes, functions and handlers of each module. Finding them takes seconds."""
    return {
        path: [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, STATEMENTS)]
        for path in MODULES
    }


def test_a_module_is_one_idea_on_at_most_600_lines() -> None:
    """A module that grows is found at line 601."""
    lines = {_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > 600} == {}


def _importers() -> dict[str, set[str]]:
    """Return for each module those that import it; with a `?` if they do so inside of a function."""
    names = {path: _name(path) for path in MODULES}
    known = set(names.values())
    importers: dict[str, set[str]] = {name: set() for name in known}
    for path, nodes in _statements().items():
        importer = names[path]
        for node in nodes:
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


def test_a_module_with_one_importer_states_why_it_is_separate() -> None:
    """A helper with one importer is part of that module, or its first line states the reason.

    A module that is imported inside of a function needs no reason: other runs start without it.
    """
    importers_of = _importers()
    wrong = []
    for path in MODULES:
        importers = importers_of[_name(path)]
        expected = r"[^#]|\Z"
        if len(importers) == 1 and path.name != "__init__.py":
            (importer,) = importers
            folder = PACKAGE.parent / importer.rstrip("?").replace(".", "/")
            if not importer.endswith("?") and not folder.is_dir():  # a package re-exports names
                expected = (
                    f"# Separate from `{re.escape(importer.removeprefix('trioeval.'))}`: .+\n"
                )
        if not re.match(expected, path.read_text()):
            wrong.append(f"{_name(path)} does not begin with {expected}")
    assert wrong == []


def _places(is_wrong: Callable[[ast.AST], bool]) -> list[str]:
    """Return the module and line of each wrong node."""
    return [
        f"{_name(path)}:{getattr(node, 'lineno', '')}"
        for path, nodes in _statements().items()
        for node in nodes
        if is_wrong(node)
    ]


def test_cancellation_is_never_swallowed() -> None:
    """No handler catches BaseException or everything, and none is bare."""

    def swallows(node: ast.AST) -> bool:
        return isinstance(node, ast.ExceptHandler) and (
            node.type is None
            or "BaseException"
            in {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
        )

    assert _places(swallows) == []


def test_a_task_that_is_started_with_start_can_be_cancelled() -> None:
    """`nursery.start` in a cancelled scope waits for ever for a task that is shielded before it reports."""

    def is_started_shielded(node: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        named = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
        return "task_status" in named and _shields(node)

    assert _places(is_started_shielded) == []


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
    for path, nodes in _statements().items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), set()).add(_name(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


LAZY = ("", ".agent", ".columns", ".kernel", ".question_eval", ".store", ".suite")
"""The packages that import their public names at their first use."""


@pytest.mark.parametrize("package", LAZY)
def test_every_public_name_can_be_imported(package: str) -> None:
    """The lazy names of a package are those of type checkers; `dir` lists them."""
    module = importlib.import_module(f"trioeval{package}")
    source = Path(str(module.__file__)).read_text()
    typed = set(re.findall(r"import (\w+) as \1$", source, re.MULTILINE))
    modules = {name for name in typed if isinstance(getattr(module, name), ModuleType)}
    own = {name for name in vars(module) if name.startswith(("is_", "question_of"))}
    assert set(module.__all__) == typed - modules | own
    assert set(dir(module)) >= set(module.__all__) | modules
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_the_root_has_about_thirty_names_with_readable_signatures() -> None:
    """Most programs need only the root; help shows a signature on one screen."""
    module = importlib.import_module("trioeval")
    assert 25 <= len(module.__all__) <= 36
    for name in module.__all__:
        if inspect.isfunction(found := getattr(module, name)):
            assert len(str(inspect.signature(found))) < 1600, name


def test_importing_the_package_imports_nothing_else() -> None:
    """`--version` takes no longer than Python."""
    probe = "import sys, trioeval; print({'trio', 'attrs', 'cattrs', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_mutant_applies_to_the_code() -> None:
    """`tests/mutants/run_mutants.py` runs them."""
    found = {
        mutant.name: (PACKAGE / mutant.file).read_text().count(mutant.old)
        for mutant in run_mutants.MUTANTS
    }
    assert {name: count for name, count in found.items() if count != 1} == {}
    assert len(found) == len(run_mutants.MUTANTS)


def test_every_module_of_kernel_and_rates_has_a_mutant() -> None:
    """Code without a mutant is not known to be tested."""
    modules = {path for name in ("kernel", "rates") for path in (PACKAGE / name).glob("[!_]*.py")}
    assert {PACKAGE / mutant.file for mutant in run_mutants.MUTANTS} == modules
