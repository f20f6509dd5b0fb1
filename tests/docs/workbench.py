"""Runs what the pages show: their commands in a shell, and the programs beside them."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from snippets import DOCS, ROOT, Block, blocks

_MARK = "\x1e"


def lay_out(page: Path, folder: Path) -> None:
    """Put what a reader of the page has at hand into a folder."""
    for near in (DOCS / "examples", DOCS / "howto"):
        shutil.copytree(near, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text)


def run_console(block: Block, folder: Path) -> list[tuple[str, str, str]]:
    """Run the commands of a block in one shell; gives command, expected and printed text of each."""
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    script = "".join(f"{command}\n_s=$?; printf '\\x1e'; (exit $_s)\n" for command, _ in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
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
