"""Files of `git bundle`, checked out by the `git` program. Blocks until it has ended.

git sees neither the user's settings nor those of the machine: it runs no hooks, asks for nothing and reaches
no network.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trioeval.errors import AgentError

_BEGINNINGS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_HEADS = "refs/heads/"
LONGEST = 600.0
"""Seconds that git may take."""


def is_bundle(file: Path) -> bool:
    """Whether a file begins as those of `git bundle` do.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as opened:
        return opened.read(len(_BEGINNINGS[0])) in _BEGINNINGS


def find_git(environ: Mapping[str, str]) -> str | None:
    """The path of the program; None if it is not there."""
    return shutil.which("git", path=environ.get("PATH", os.defpath))


def check_out(bundle: Path, folder: Path, longest: float = LONGEST) -> None:
    """Make a repository of what a bundle holds, and check out its branch: HEAD, or else the only one.

    Args:
        bundle: The file.
        folder: What the repository will be; nothing is there yet.
        longest: Seconds that git may take, each time that it is asked.

    Raises:
        AgentError: git is not there, or cannot do it in time; the bundle has several branches and no HEAD.
    """
    git = find_git(os.environ)
    if git is None:
        raise AgentError(f"git is not there, which opens {bundle}: install it")
    listed = _run(git, bundle, longest, ["bundle", "list-heads", str(bundle)])
    names = [line.partition(" ")[2] for line in listed.splitlines()]
    branch: list[str] = []
    if "HEAD" not in names:
        branches = [name.removeprefix(_HEADS) for name in names if name.startswith(_HEADS)]
        if len(branches) != 1:
            message = f"{bundle} has no HEAD and {len(branches)} branches: which one is meant is not known"
            raise AgentError(f"{message}; make it with `git bundle create {bundle.name} --all`")
        branch = ["--branch", branches[0]]
    cloning = ["clone", "--quiet", "--template=", *branch, "--", str(bundle), str(folder)]
    _run(git, bundle, longest, cloning)


def _run(git: str, bundle: Path, longest: float, arguments: Sequence[str]) -> str:
    """What git printed."""
    settings = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "advice.detachedHead=false")
    command = [git, *(word for one in settings for word in ("-c", one)), *arguments]
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file",
    }
    try:
        done = subprocess.run(  # noqa: S603 - git by its path, and a file behind `--`
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=longest,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AgentError(f"git took longer than {longest:g} s to open {bundle}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise AgentError(f"git cannot open {bundle}: {said[-1]}")
    return done.stdout
