"""The cases of a run: their names, their dependencies, and their folders."""

import errno
import hashlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import attrs

from trioeval.agent.model import case_of
from trioeval.agent.workspace import make_done_folder, make_workspace, read_plain, write_whole
from trioeval.errors import AgentError
from trioeval.suite.dependencies import Dependent
from trioeval.suite.expand import Expansion, Step

# The paths of the files of a case: those that its agent itself must see, and its logs.


_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 60


def task_folder(task: str | None) -> str:
    """Return the name of a task's folder in that of its run, beside the bus; its id may be any text.

    Example:
        >>> task_folder("repairs"), task_folder(None), task_folder("../a b")
        ('repairs', 'cases', 'a-b-2c2c791a')
    """
    if task is None:
        return "cases"
    name = _OTHER.sub("-", task).strip("-.")[:_LONGEST]
    if name and name == task and name.lower() != "bus":
        return name
    return (
        f"{name or 'task'}-{hashlib.sha256(task.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    )


@attrs.frozen
class CaseFiles:
    """The folder of one case, and the paths in it."""

    folder: Path
    """Absolute."""
    done_file: str = "DONE"
    """Path relative to the workspace."""

    @property
    def workspace(self) -> Path:
        """The folder in which the agent works."""
        return self.folder / "workspace"

    @property
    def done(self) -> Path:
        """The file that the agent creates when its task is done."""
        return self.workspace / self.done_file

    @property
    def cancelled(self) -> Path:
        """The file that cancels the case while it waits."""
        return self.folder / "CANCELLED"

    @property
    def prompt(self) -> Path:
        """The file with the prompt of the case."""
        return self.folder / "prompt.md"

    @property
    def bus(self) -> Path:
        """The folder of its message bus."""
        return self.folder / "bus"

    @property
    def logs(self) -> Path:
        """The folder for the output of programs."""
        return self.folder / "logs"

    def attempt_prompt(self, number: int) -> Path:
        """Return the file with the prompt of an attempt, which may start with a continuation note."""
        return self.logs / f"attempt-{number:03d}.prompt.md"

    def stdout(self, number: int) -> Path:
        """Return the file with the standard output of an attempt."""
        return self.logs / f"attempt-{number:03d}.stdout"

    def stderr(self, number: int) -> Path:
        """Return the file with the standard error of an attempt."""
        return self.logs / f"attempt-{number:03d}.stderr"

    def report(self, number: int) -> Path:
        """Return the file with the report that an attempt writes about itself, as JSON."""
        return self.logs / f"attempt-{number:03d}.report.json"


# The context of a running case for its agent.


@attrs.frozen(kw_only=True)
class CaseContext:
    """The context of a case that agents of any kind get."""

    project: str
    """The id of the run."""
    task: str | None
    """The id of the task of the suite."""
    name: str
    """The name of the case, with its column if there are several: unique in its task."""
    files: CaseFiles
    suite: Path
    """The folder of the suite."""
    vars: Mapping[str, Any]
    """The variables of the test, rendered."""
    index: int
    """The index of the row."""
    row: str
    """The id of the row."""
    agent: str
    """The name of its agent."""


# The case names of the steps of a task, and their dependencies.
#
# A case is a test; each column (a prompt with a provider and a repetition) has one row for it, or several if
# its variables are lists. Its name is that of the test, and of several rows `name#2` and so on. A dependency
# on a case is one on all of its rows in the same column.


@attrs.frozen(kw_only=True)
class CaseNames:
    """The names of all steps, by their indices."""

    names: Sequence[str]
    """Unique in their column."""
    columns: Sequence[str]
    """The column of each step, as a part of a file name; empty if there is only one."""
    dependents: Mapping[str, Sequence[Dependent]]
    """All cases of each column; empty without any dependencies."""
    folder_names: Sequence[str]
    """The folder name of each step: unique in its task, also on file systems that ignore case."""
    _places: Mapping[tuple[str, str], int] = attrs.field(init=False, repr=False)

    @_places.default
    def _find_places(self) -> Mapping[tuple[str, str], int]:
        pairs = zip(self.columns, self.names, strict=True)
        return {pair: place for place, pair in enumerate(pairs)}

    @classmethod
    def of(cls, steps: Expansion) -> "CaseNames":
        """Return the names for an expansion all of whose tests are cases."""
        every = [*steps]
        labels = _labels(every, steps)
        prompts = _prompts(every)
        repeats = any(step.repeat_index for step in every)
        columns = [_column(step, labels, prompts, repeats=repeats) for step in every]
        own = [step.test.extra.name if step.test.extra else "" for step in every]
        several = Counter(zip(columns, own, strict=True))
        seen: Counter[tuple[str, str]] = Counter()
        names = []
        for place in zip(columns, own, strict=True):
            seen[place] += 1
            names.append(f"{place[1]}#{seen[place]}" if several[place] > 1 else place[1])
        return cls(
            names=names,
            columns=columns,
            dependents=_dependents(every, columns, own, names),
            folder_names=_folder_names(names, columns),
        )

    def folder_name_of(self, column: str, name: str) -> str:
        """Return the folder name of a case of a column."""
        return self.folder_names[self._places[column, name]]


def _folder_names(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    wanted = [
        ".".join(part for part in (name.replace("#", "-"), column) if part)
        for name, column in zip(names, columns, strict=True)
    ]
    several = Counter(room.lower() for room in wanted)
    taken = {room for room, count in several.items() if count == 1}
    found = []
    for place, room in enumerate(wanted):
        unique = room
        if several[room.lower()] > 1:
            unique = f"{room}-{place}"
            while unique.lower() in taken:
                unique += "-"
            taken.add(unique.lower())
        found.append(unique)
    return found


def _prompts(every: Sequence[Step]) -> dict[int, int]:
    """Return the number of each prompt, from 1, by its object id; `prompt_idx` counts columns."""
    found: dict[int, int] = {}
    for step in every:
        found.setdefault(id(step.column.prompt), len(found) + 1)
    return found


def _column(
    step: Step, labels: Mapping[int, str], prompts: Mapping[int, int], *, repeats: bool
) -> str:
    parts = [labels[step.column.provider_index]] if len(labels) > 1 else []
    parts += [f"prompt-{prompts[id(step.column.prompt)]}"] if len(prompts) > 1 else []
    parts += [f"repeat-{step.repeat_index + 1}"] if repeats else []
    return ".".join(parts)


def _labels(every: Sequence[Step], steps: Expansion) -> dict[int, str]:
    """Return a unique label for the provider of each column, for folder names.

    A test with its own provider belongs to the column all the same.
    """
    slugs = {}
    for place in sorted({step.column.provider_index for step in every}):
        entry = steps.providers[place]
        slugs[place] = _OTHER.sub("-", entry.name).strip("-.")[:_LONGEST]
    several = Counter(slug.lower() for slug in slugs.values())
    return {
        place: slug if slug and several[slug.lower()] == 1 else f"{slug or 'agent'}-{place + 1}"
        for place, slug in slugs.items()
    }


def _dependents(
    every: Sequence[Step], columns: Sequence[str], own: Sequence[str], names: Sequence[str]
) -> dict[str, Sequence[Dependent]]:
    cases = [case_of(step.test) for step in every]
    if not any(case and case.depends_on for case in cases):
        return {}
    named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for place, name in zip(zip(columns, own, strict=True), names, strict=True):
        named[place].append(name)
    found: defaultdict[str, list[Dependent]] = defaultdict(list)
    for case, column, name in zip(cases, columns, names, strict=True):
        if case is not None:
            # A case that is not in this column at all is not awaited.
            needs = [one for on in case.depends_on for one in named.get((column, on), ())]
            found[column].append(
                Dependent(name=name, depends_on=tuple(needs), when_failed=case.when_failed)
            )
    return dict(found)


ABOUT = "case.json"
"""The file that identifies the case of a folder."""
_LARGEST = 1024 * 1024  # bytes of that file


# Creates the folder of a case, or finds that of an earlier execution. Blocks on files.


@attrs.frozen(kw_only=True)
class FolderRequest:
    """The requirements for the folder of a case."""

    digest: str
    """Digest of everything that distinguishes the case from others."""
    about: str
    """The case name that people see in the folder."""
    template: Callable[[], Path | None]
    """Returns the template of its workspace. Raises `AgentError`."""
    is_continued: bool
    """True if there are attempts that count."""
    starts_over: bool = False
    """True if existing contents must not be used."""


def claim_folder(files: CaseFiles, request: FolderRequest, lock: Lock) -> None:
    """Create or find the folder of a case, before it waits for anything.

    A folder of another case, or with outdated contents, is moved aside: nothing is lost. A resumed case is
    found also under another name, in case its suite has another column now.

    Raises:
        AgentError: It cannot be created.
    """
    try:
        files.folder.parent.mkdir(parents=True, exist_ok=True)
        with lock:
            if not _find(files, request):
                files.logs.mkdir(parents=True, exist_ok=True)
                about = {"digest": request.digest, "case": request.about}
                text = json.dumps(about, indent=2, ensure_ascii=False)
                write_whole(files.folder / ABOUT, f"{text}\n".encode())
        files.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error


def open_workspace(files: CaseFiles, request: FolderRequest) -> bool:
    """Create or find the workspace in the folder of a case; return whether it existed before.

    Raises:
        AgentError: It cannot be created.
    """
    try:
        files.logs.mkdir(parents=True, exist_ok=True)  # hours may have passed since `claim_folder`
        if files.workspace.is_dir():
            make_done_folder(files.workspace, files.done_file)  # the agent may have removed it
            return True
        if request.is_continued:
            msg = f"{files.workspace} is missing, but attempts have worked in it"
            raise AgentError(f"{msg}; to start over, run the row again with --retry and its index")
        make_workspace(files.workspace, request.template(), files.done_file)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error
    return False


def _find(files: CaseFiles, request: FolderRequest) -> bool:
    """Return whether the folder exists; another folder in its place is moved away."""
    known = _digest_in(files)
    if known is not None:
        # A folder whose file cannot be read any more is accepted if the case must have one.
        is_own = known == request.digest or (request.is_continued and not known)
        if is_own and (request.is_continued or not request.starts_over):
            return True
        _move_aside(files.folder)
    if request.is_continued:
        for other in sorted(files.folder.parent.iterdir()):
            if request.digest and _digest_in(CaseFiles(other)) == request.digest:
                other.rename(files.folder)
                return True
    return False


def _digest_in(files: CaseFiles) -> str | None:
    """Return the digest of the case in a folder; None if it is unused, blank for an unreadable one."""
    try:
        found = json.loads(read_plain(files.folder / ABOUT, _LARGEST))["digest"]
    except (FileNotFoundError, NotADirectoryError):
        return "" if os.path.lexists(files.workspace) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # agents may write there
        return ""
    return found if isinstance(found, str) else ""


def _move_aside(folder: Path) -> None:
    number = 1
    while os.path.lexists(aside := folder.with_name(f"{folder.name}.old-{number}")):
        number += 1
    folder.rename(aside)


# The prompt of a case: written once; from then on the file is what counts.


_LARGEST_PROMPT = 64 * 1024 * 1024  # bytes


def ensure_prompt(file: Path, submitted: str | None) -> str:
    """Return the contents of a prompt file, creating it if necessary. Blocks on files.

    An existing file is never changed: editing it by hand changes the prompt of later attempts.

    Args:
        file: Its path, in a folder that belongs to one program at a time.
        submitted: The text to write; None without one.

    Raises:
        AgentError: There is neither a file nor a text; the file is blank, too large or not a regular
            file; or it cannot be read or written.
    """
    try:
        if not os.path.lexists(file):
            if submitted is None or not submitted.strip():
                raise AgentError(f"{file} does not exist, and no prompt was submitted")
            write_whole(file, submitted.encode(), durable=True)
        data = read_plain(file, _LARGEST_PROMPT + 1)
        if len(data) > _LARGEST_PROMPT:
            raise AgentError(f"{file} exceeds the {_LARGEST_PROMPT:,} bytes that a prompt may have")
        text = data.decode()
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise AgentError(f"{file}: {reason}") from error
    except UnicodeError as error:
        raise AgentError(f"{file}: a prompt must be UTF-8 text: {error}") from error
    if not text.strip():
        raise AgentError(f"{file} is blank; write the prompt there, or remove it")
    return text
