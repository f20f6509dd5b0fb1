"""The folder that an agent works in: a copy of a template, or what a git bundle holds. Blocks on files.

A workspace appears whole: it is made under another name beside its place, and renamed. What a making that was
killed has left under that name is removed by the next one.

Nothing in a workspace leads out of it. A link of the template that does is refused, also one that comes back:
in the copy it would lead to another place, and the agents of all cases would work on the same files. So are
absolute links, and files `.git` that name a repository elsewhere.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from trioeval.errors import AgentError

# Files of `git bundle`, checked out by the `git` program. Blocks until it has ended.
#
# git sees neither the user's settings nor those of the machine: it runs no hooks, asks for nothing and
# reaches no network.


_BEGINNINGS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_HEADS = "refs/heads/"
LONGEST = 600.0
"""Seconds that git may take."""


def is_bundle(file: Path) -> bool:
    """Whether a file begins as those of `git bundle` do."""
    with file.open("rb") as opened:
        return opened.read(len(_BEGINNINGS[0])) in _BEGINNINGS


def find_git(environ: Mapping[str, str]) -> str | None:
    """The path of the program; None if it is not there."""
    return shutil.which("git", path=environ.get("PATH", os.defpath))


def check_out(bundle: Path, folder: Path, longest: float = LONGEST) -> None:
    """Make a repository of what a bundle holds, and check out its branch: HEAD, or else the only one.

    Raises:
        AgentError: git is not there, or cannot do it in time; the bundle has several branches and no HEAD.
    """
    git = find_git(os.environ)
    if git is None:
        raise AgentError(f"opening {bundle} requires git; install it")
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


# Files where agents may have put something else: opened without waiting and without following links.


def open_plain(path: Path, flags: int) -> int:
    """The descriptor of a regular file. Blocks on the file, never on anybody else.

    Raises:
        OSError: It cannot be opened; or something else is there: a link, a folder, a named pipe.
    """
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | safe, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(None, "not a regular file", str(path))


def write_plain(path: Path, data: bytes, flags: int = os.O_TRUNC) -> None:
    """Write to a regular file, which is made if nothing is there.

    Args:
        path: Where it is; its folder is there.
        data: What is written.
        flags: What becomes of a file that is there: `os.O_TRUNC` or `os.O_APPEND`.
    """
    with open(open_plain(path, os.O_WRONLY | os.O_CREAT | flags), "wb") as file:
        file.write(data)


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Make a file, or replace it, whole or not at all.

    Args:
        path: Where it is; its folder is there, and nobody else writes it.
        data: What is written.
        durable: Whether it is written through to the disk.
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
    """What stands in a regular file, as much as `limit` bytes from `start`."""
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        return file.read(limit)


_HOPS = 40  # links on the way to one file, as the kernel has it
_GIT_FILE = b"gitdir:"
_LONGEST = 8192  # bytes of such a file


def make_workspace(target: Path, template: Path | None, done_file: str | None = None) -> None:
    """Make a workspace, whole or not at all.

    Args:
        target: What it will be; nothing is there yet, but its parent is.
        template: A folder that is copied, or a file of `git bundle`, which is checked out; None is empty.
        done_file: Relative to the workspace: the file by which an agent says that it is done. The folder
            that it will be in is made as well.

    Raises:
        AgentError: It cannot be made: the template is not there, leads out of itself by a link, is no
            bundle, says that it is done, git is not there, or the disk is full.
    """
    if os.path.lexists(target):
        raise AgentError(f"{target} is there already: a workspace is made where nothing is")
    making = target.with_name(f".{target.name}.making")
    try:
        if os.path.lexists(making):  # a making was killed
            _remove(making)
        _fill(making, template)
        if done_file is not None:
            # Once it has its name, whoever finds it takes it for the work of an agent.
            check_not_done(making, done_file, called=template)
            make_done_folder(making, done_file)
        making.rename(target)
    except OSError as error:
        _remove(making)
        where = error.filename or template
        message = f"the workspace {target} cannot be made: {where}: {error.strerror}"
        raise AgentError(message) from error
    except AgentError:
        _remove(making)
        raise


def check_not_done(workspace: Path, done_file: str, called: Path | None = None) -> None:
    """Whether an agent can be asked to work somewhere: the file by which it says that it is done is missing.

    Args:
        workspace: The folder, or the template of one.
        done_file: Relative to it.
        called: What messages call the folder, if not by its own name.

    Raises:
        AgentError: It is there.
    """
    if os.path.lexists(workspace / done_file):
        holder = called or workspace
        message = f"{holder} holds {done_file} already, by which an agent says that it is done"
        raise AgentError(f"{message}: remove it, or give the task another doneFile")


def make_done_folder(workspace: Path, done_file: str) -> None:
    """See that the folder is there in which an agent says that it is done."""
    folder = (workspace / done_file).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = folder.relative_to(workspace)
        message = f"the folder {said} of the doneFile {done_file} cannot be made: {error.strerror}"
        raise AgentError(message) from error


def _fill(folder: Path, template: Path | None) -> None:
    if template is None:
        folder.mkdir()
    elif template.is_dir():
        root = template.resolve()
        if folder.parent.resolve().is_relative_to(root):
            message = f"the workspace {folder.parent} would be inside of {template}, of which it is a copy"
            raise AgentError(f"{message}: copy a folder that does not hold it")
        _copy(root, folder)
    elif not template.exists():
        raise AgentError(f"there is no folder or bundle {template}")
    elif is_bundle(template):
        check_out(template, folder)
        for path in _walk(folder):
            _check(folder, path)
    else:
        raise AgentError(f"{template} is neither a folder nor a file of `git bundle`")


def _copy(root: Path, folder: Path) -> None:
    """Copy a folder with the modes and times of what it holds; in its own folders the agent may write."""
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
    for path, copy in reversed(folders):  # what is put into a folder changes its time
        shutil.copystat(path, copy)
        copy.chmod(stat.S_IMODE(copy.stat().st_mode) | stat.S_IRWXU)


def _walk(root: Path) -> Iterator[Path]:
    """Everything in a folder, folders before what they hold, always in the same order."""
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
    """Refuse what leads out of a folder, and what is no file."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = str(path.readlink())
        if not _stays_inside(root, path.parent, target):
            raise AgentError(f"{path} is a link that leads out of {root}, to {target}: {_INSIDE}")
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise AgentError(f"{path} is neither a file, a folder nor a link, and cannot be copied")
    elif path.name == ".git" and stat.S_ISREG(mode):
        with path.open("rb") as file:
            said = file.read(_LONGEST)
        target = os.fsdecode(said.removeprefix(_GIT_FILE).strip())
        if said.startswith(_GIT_FILE) and not _stays_inside(root, path.parent, target):
            hint = "use a clone of it, or a file of `git bundle`"
            raise AgentError(f"{path} belongs to a repository outside of {root}, {target}: {hint}")


_INSIDE = "make it a relative one that stays inside, or leave it out"


def _stays_inside(root: Path, folder: Path, target: str) -> bool:
    """Whether the way along a link never leaves a folder, not even to come back."""
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
    """Remove a making, as far as that is possible; what is left is told when it is in the way."""
    shutil.rmtree(making, ignore_errors=True)
