"""The folder that an agent works in: a copy of a template, or the contents of a git bundle. Blocks on files.

A workspace appears complete: it is created under a temporary name in the same folder, and renamed. Remains of
an interrupted creation under that name are removed by the next one.

Nothing in a workspace refers outside of it. A template with a link that leaves it is refused, also if the
link comes back: in the copy it would have another target, and the agents of all cases would work on the same
files. So are absolute links, and `.git` files that name a repository elsewhere.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from trioeval.errors import AgentError
from trioeval.executables import find_program, missing_program

# Files of `git bundle`, checked out by the `git` program. Blocks until it has ended.
#
# git sees neither the user's settings nor those of the machine: it runs no hooks, never prompts and has no
# network access.


_BEGINNINGS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_HEADS = "refs/heads/"
LONGEST = 600.0
"""Default timeout of git in seconds."""


def is_bundle(file: Path) -> bool:
    """Return whether a file starts like those of `git bundle`."""
    with file.open("rb") as opened:
        return opened.read(len(_BEGINNINGS[0])) in _BEGINNINGS


def check_out(bundle: Path, folder: Path, longest: float = LONGEST) -> None:
    """Create a repository from a bundle, and check out its branch: HEAD, or else the only one.

    Raises:
        AgentError: git is not installed, fails or times out; or the bundle has several branches and no HEAD.
    """
    git = find_program("git", os.environ)
    if git is None:
        raise AgentError(f"{missing_program('git', f'opening {bundle}')}: install it")
    listed = _run(git, bundle, longest, ["bundle", "list-heads", str(bundle)])
    names = [line.partition(" ")[2] for line in listed.splitlines()]
    branch: list[str] = []
    if "HEAD" not in names:
        branches = [name.removeprefix(_HEADS) for name in names if name.startswith(_HEADS)]
        if len(branches) != 1:
            message = (
                f"{bundle} has no HEAD and {len(branches)} branches, so the branch is ambiguous"
            )
            raise AgentError(f"{message}; make it with `git bundle create {bundle.name} --all`")
        branch = ["--branch", branches[0]]
    cloning = ["clone", "--quiet", "--template=", *branch, "--", str(bundle), str(folder)]
    _run(git, bundle, longest, cloning)


def _run(git: str, bundle: Path, longest: float, arguments: Sequence[str]) -> str:
    """Run git and return its output."""
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
        done = subprocess.run(  # noqa: S603 - git by its path, and a file after `--`
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
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise AgentError(f"git cannot open {bundle}: {lines[-1]}")
    return done.stdout


# Files in folders of agents, which may contain anything: opened without blocking and without following links.


def open_plain(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor. Blocks only on the file.

    Raises:
        OSError: It cannot be opened, or is not a regular file but a link, a folder, or a named pipe.
    """
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | safe, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(None, "not a regular file", str(path))


def write_plain(path: Path, data: bytes, flags: int = os.O_TRUNC) -> None:
    """Write to a regular file, which is created if it does not exist.

    Args:
        path: Its path, in an existing folder.
        data: The data to write.
        flags: The treatment of an existing file: `os.O_TRUNC` or `os.O_APPEND`.
    """
    with open(open_plain(path, os.O_WRONLY | os.O_CREAT | flags), "wb") as file:
        file.write(data)


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Create or replace a file atomically.

    Args:
        path: Its path, in an existing folder without other writers.
        data: The data to write.
        durable: Whether it is flushed to the disk.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with open(open_plain(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_plain(path: Path, limit: int, start: int = 0) -> bytes:
    """Return the contents of a regular file, at most `limit` bytes from `start`."""
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        return file.read(limit)


_HOPS = 40  # maximum links on the path to one file, as in the kernel
_GIT_FILE = b"gitdir:"
_LONGEST = 8192  # maximum bytes of such a file


def make_workspace(target: Path, template: Path | None, done_file: str | None = None) -> None:
    """Create a workspace, completely or not at all.

    Args:
        target: Its path, which does not exist yet, in an existing folder.
        template: A folder to copy, or a file of `git bundle` to check out; None for an empty workspace.
        done_file: Path relative to the workspace of the file by which an agent reports that it is done. Its
            folder is created as well.

    Raises:
        AgentError: It cannot be created: the template does not exist, has a link that leaves it, is not a
            bundle, or contains the done file; git is not installed, or the disk is full.
    """
    if os.path.lexists(target):
        raise AgentError(f"{target} already exists; a workspace must be created in a new folder")
    making = target.with_name(f".{target.name}.making")
    try:
        if os.path.lexists(making):  # an earlier creation was interrupted
            _remove(making)
        _fill(making, template)
        if done_file is not None:
            # Once it has its name, a done file in it counts as the work of an agent.
            check_not_done(making, done_file, called=template)
            make_done_folder(making, done_file)
        making.rename(target)
    except OSError as error:
        _remove(making)
        where = error.filename or template
        message = f"the workspace {target} cannot be created: {where}: {error.strerror}"
        raise AgentError(message) from error
    except AgentError:
        _remove(making)
        raise


def check_not_done(workspace: Path, done_file: str, called: Path | None = None) -> None:
    """Check that a folder does not contain the done file, so that an agent can work in it.

    Args:
        workspace: The folder, or the template of one.
        done_file: Path relative to it.
        called: The path to show in messages instead of the folder's own.

    Raises:
        AgentError: The file exists.
    """
    if os.path.lexists(workspace / done_file):
        holder = called or workspace
        message = f"{holder} already contains {done_file}, which marks a task as done"
        raise AgentError(f"{message}: remove it, or give the task another doneFile")


def make_done_folder(workspace: Path, done_file: str) -> None:
    """Create the folder of the done file."""
    folder = (workspace / done_file).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        shown = folder.relative_to(workspace)
        message = (
            f"the folder {shown} of the doneFile {done_file} cannot be created: {error.strerror}"
        )
        raise AgentError(message) from error


def _fill(folder: Path, template: Path | None) -> None:
    if template is None:
        folder.mkdir()
    elif template.is_dir():
        root = template.resolve()
        if folder.parent.resolve().is_relative_to(root):
            message = (
                f"the workspace {folder.parent} would be inside of its own template {template}"
            )
            raise AgentError(f"{message}: use a template that does not contain it")
        _copy(root, folder)
    elif not template.exists():
        raise AgentError(f"{template} does not exist")
    elif is_bundle(template):
        check_out(template, folder)
        for path in _walk(folder):
            _check(folder, path)
    else:
        raise AgentError(f"{template} is neither a folder nor a file of `git bundle`")


def _copy(root: Path, folder: Path) -> None:
    """Copy a folder with the modes and times of its contents; its folders are made writable."""
    folder.mkdir()
    folders = [(root, folder)]
    for path in _walk(root):
        _check(root, path)
        copy = folder / path.relative_to(root)
        if path.is_dir() and not path.is_symlink():
            copy.mkdir()
            folders.append((path, copy))
        else:
            shutil.copy2(path, copy, follow_symlinks=False)
    for path, copy in reversed(folders):  # adding entries to a folder changes its time
        shutil.copystat(path, copy)
        copy.chmod(stat.S_IMODE(copy.stat().st_mode) | stat.S_IRWXU)


def _walk(root: Path) -> Iterator[Path]:
    """Yield everything in a folder, folders before their contents, always in the same order."""
    todo = [root]
    while todo:
        here = todo.pop()
        with os.scandir(here) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                todo.append(Path(entry.path))


def _check(root: Path, path: Path) -> None:
    """Refuse links that leave a folder, and anything but files, folders and links."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = str(path.readlink())
        if not _stays_inside(root, path.parent, target):
            raise AgentError(f"{path} is a link that leads out of {root}, to {target}: {_INSIDE}")
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise AgentError(f"{path} is neither a file, a folder nor a link, and cannot be copied")
    elif path.name == ".git" and stat.S_ISREG(mode):
        with path.open("rb") as file:
            data = file.read(_LONGEST)
        target = os.fsdecode(data.removeprefix(_GIT_FILE).strip())
        if data.startswith(_GIT_FILE) and not _stays_inside(root, path.parent, target):
            hint = "use a clone of it, or a file of `git bundle`"
            raise AgentError(f"{path} belongs to a repository outside of {root}, {target}: {hint}")


_INSIDE = "use a relative link that stays inside, or remove it"


def _stays_inside(root: Path, folder: Path, target: str) -> bool:
    """Return whether the path along a link never leaves a folder, not even temporarily."""
    here = list(folder.relative_to(root).parts)
    todo = [target]
    hops = 0
    while todo:
        way = PurePosixPath(todo.pop())
        if way.is_absolute():
            return False
        first, *rest = way.parts or (".",)
        todo += [str(PurePosixPath(*rest))] if rest else []
        if first == "..":
            if not here:
                return False
            here.pop()
            continue
        if first == ".":
            continue
        path = root.joinpath(*here, first)
        if path.is_symlink():
            hops += 1
            if hops > _HOPS:
                return False
            todo.append(str(path.readlink()))
        else:
            here.append(first)
    return True


def _remove(making: Path) -> None:
    """Remove an incomplete workspace as far as possible; remains are reported when they are in the way."""
    shutil.rmtree(making, ignore_errors=True)
