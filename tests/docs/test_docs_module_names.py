"""Every module, class and file of the package that a page names exists."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from snippets import DOCS, PAGES, ROOT

PACKAGE = ROOT / "trioeval"
SOURCES = (*PAGES, *sorted(DOCS.rglob("*.py")))

# Not a part of a longer name, such as `suite.trioeval.yaml` or `metadata.trioeval.outcome`.
_DOTTED = re.compile(r"(?<![\w.*/-])trioeval(?:\.[A-Za-z_]\w*)+")
_PACKAGES = "|".join(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
_FILE = re.compile(rf"(?<![\w./-])(?:trioeval/)?((?:{_PACKAGES})/[\w/]+\.py)\b")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _telemetry_names() -> Iterator[str]:
    """Return the names of spans, events and attributes: the literals of `trioeval/telemetry`."""
    for path in (PACKAGE / "telemetry").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


TELEMETRY = frozenset(_telemetry_names())


def is_resolved(dotted: str) -> bool:
    """Import the longest prefix that is a module, and look the rest up in it."""
    parts = dotted.split(".")
    found: object = import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                import_module(".".join(parts[:count]))
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", SOURCES, ids=_name)
def test_names_of_modules_can_be_resolved(page: Path) -> None:
    """A name of telemetry, such as `trioeval.run.id`, is not the name of a module."""
    names = set(_DOTTED.findall(page.read_text())) - TELEMETRY
    assert [name for name in sorted(names) if not is_resolved(name)] == []


@pytest.mark.parametrize("page", SOURCES, ids=_name)
def test_files_of_the_package_exist(page: Path) -> None:
    """A page names a file by its path inside the package, such as `kernel/lane.py`."""
    names = set(_FILE.findall(page.read_text()))
    assert [name for name in sorted(names) if not (PACKAGE / name).is_file()] == []


@pytest.mark.parametrize(
    ("dotted", "expected"),
    [
        ("trioeval.kernel", True),
        ("trioeval.kernel.lane.Lane", True),
        ("trioeval.run_suite", True),
        ("trioeval.kernel.crew", False),
        ("trioeval.run.id", False),
        ("trioeval.run_suites", False),
    ],
)
def test_a_name_is_resolved_as_python_does(
    dotted: str,
    expected: bool,  # noqa: FBT001
) -> None:
    """The test covers modules, their contents, and the lazy names of the package."""
    assert is_resolved(dotted) is expected


def test_names_inside_longer_names_are_ignored() -> None:
    """File names and keys of documents contain the name of the package, too."""
    text = "a.trioeval.yaml, metadata.trioeval.outcome, *.trioeval.json; trioeval.kernel."
    assert _DOTTED.findall(text) == ["trioeval.kernel"]


def test_the_table_of_packages_is_the_contract_of_layers() -> None:
    """The design page lists every package once, in the layer where the contract has it."""
    table = re.search(
        r"^## Packages\n(.*?)^## ", (DOCS / "design.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert table is not None
    rows = re.findall(r"^\| (`trioeval\..*?) \|", table[1], re.MULTILINE)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = config["tool"]["importlinter"]["contracts"]
    [layers] = [found["layers"] for found in contracts if found["name"] == "layers"]
    assert [re.findall(r"`trioeval\.(\w+)`", row) for row in rows] == [
        re.split(r"\s*\|\s*", layer) for layer in layers
    ]
