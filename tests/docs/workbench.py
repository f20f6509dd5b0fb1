"""Runs the content of pages: their commands in a shell, and their programs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

import attrs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from snippets import DOCS, ROOT, Block, blocks

_MARK = "\x1e"

_BEFORE = re.compile(r"^Before you start: install trioeval(.*); work in (.*)\.$", re.MULTILINE)
"""The line of a page that names its extras, further packages, and its starting folder."""
_FOLDERS = {"an empty folder": None, "a copy of `docs/examples`": DOCS / "examples"}

_WITHOUT = """
import os, sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    blocked = frozenset(os.environ["BLOCKED_MODULES"].split(","))
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in cls.blocked else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
"""A `sitecustomize` for an installation without some extras."""

_PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout
namespace, printed = {"__name__": "docs_page"}, []
for source, page in json.load(sys.stdin):
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(source, page, "exec"), namespace)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""
"""Runs the blocks of a page as one program, and returns the output of each."""


def lay_out(page: Path, folder: Path) -> None:
    """Put the files of a reader of the page into a folder."""
    for near in (DOCS / "examples", DOCS / "howto"):
        shutil.copytree(near, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
    write_files(page, folder)


def start_folder(page: Path, parent: Path) -> Path:
    """Create the starting folder of a page, with the files that it shows."""
    start = start_of(page)
    folder = parent / "new"
    if start is not None and start.folder is not None:
        shutil.copytree(start.folder, folder, ignore=shutil.ignore_patterns("__*"))
    else:
        folder.mkdir()
    write_files(page, folder)
    return folder


def write_files(page: Path, folder: Path) -> None:
    """Put the files that a page shows into a folder."""
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text)


@attrs.frozen
class Start:
    """The requirements of a page: extras, packages and the starting folder."""

    extras: frozenset[str]
    packages: frozenset[str]
    """Names of further packages to install, such as `pytest`."""
    folder: Path | None
    """The folder to copy; None for an empty one."""


def start_of(page: Path) -> Start | None:
    """Read the line of a page about its requirements; None if it has none."""
    found = _BEFORE.search(page.read_text())
    if found is None:
        return None
    names = frozenset(re.findall(r"`([\w-]+)`", found[1]))
    known = frozenset(metadata.metadata("trioeval").get_all("Provides-Extra") or ())
    return Start(names & known, names - known, _FOLDERS[found[2]])


def requirements(names: Iterable[str]) -> set[str]:
    """Return the distributions that are installed together with the given ones, `name` or `name[extra]`."""
    todo = [Requirement(name) for name in names]
    seen: set[str] = set()
    found: set[str] = set()
    while todo:
        wanted = todo.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            needed = metadata.requires(wanted.name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(canonicalize_name(wanted.name))
        for text in needed:
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *wanted.extras)]
            if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
                todo.append(requirement)
    return found


def present_distributions(start: Start) -> set[str]:
    """Return the distributions that the reader of a page has."""
    extras = f"[{','.join(sorted(start.extras))}]" if start.extras else ""
    return requirements([f"trioeval{extras}", *start.packages])


def missing_plugins(start: Start) -> list[str]:
    """Return the installed plugins of pytest that the reader of a page does not have."""
    present = present_distributions(start)
    return sorted(
        entry.name
        for entry in metadata.entry_points(group="pytest11")
        if entry.dist is not None and canonicalize_name(entry.dist.name) not in present
    )


@cache
def module_owners() -> Mapping[str, Sequence[str]]:
    """Return the distributions of each installed top-level module; reading them all takes a while."""
    return metadata.packages_distributions()


def missing_modules(start: Start) -> list[str]:
    """Return the installed top-level modules that the reader of a page does not have."""
    present = present_distributions(start)
    standard = sys.stdlib_module_names
    return sorted(
        module
        for module, distributions in module_owners().items()
        if module not in standard
        and not module.startswith("_")
        and not present & {canonicalize_name(name) for name in distributions}
    )


def installation(page: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a reader who has the repository in `~/trioeval`.

    Args:
        page: Only trioeval and the packages that the page names can be imported.
        folder: For the files that hide everything else.
    """
    start = start_of(page) or Start(frozenset(), frozenset(), None)
    home, site = folder / "home", folder / "site"
    home.mkdir()
    (home / "trioeval").symlink_to(ROOT)
    site.mkdir()
    (site / "sitecustomize.py").write_text(_WITHOUT)
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "BLOCKED_MODULES": ",".join(missing_modules(start)),
        "HOME": str(home),
        # pytest imports its plugins with its own finder, which would load hidden ones.
        "PYTEST_ADDOPTS": " ".join(f"-p no:{name}" for name in missing_plugins(start)),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def run_program(
    sources: Sequence[tuple[str, str]], folder: Path, environ: Mapping[str, str]
) -> list[str]:
    """Run blocks of Python in one process, and return the output of each."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=folder,
        env=environ,
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


def run_console(
    block: Block, folder: Path, environ: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Run the commands of a block in one shell; return command, expected and printed text of each."""
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    script = "".join(f"{command}\n_s=$?; printf '\\x1e'; (exit $_s)\n" for command, _ in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    *printed, _rest = done.stdout.split(_MARK)
    return [
        (command, wanted, got) for (command, wanted), got in zip(commands, printed, strict=True)
    ]


def load(program: Path) -> ModuleType:
    """A program of the documentation as a module; no code below its main guard is run."""
    spec = importlib.util.spec_from_file_location(f"docs_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
