"""The cases of a run: their names, who waits for whom, and their folders."""

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

# Where the files of a case are: those that its agent itself must see, and its logs.


_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 60


def task_folder(task: str | None) -> str:
    """What the folder of a task is called in that of its run, beside the bus; any text may be its id.

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
    """The folder of one case, and what is in it."""

    folder: Path
    """Absolute."""
    done_file: str = "DONE"
    """Relative to the workspace."""

    @property
    def workspace(self) -> Path:
        """Where the agent works."""
        return self.folder / "workspace"

    @property
    def done(self) -> Path:
        """What the agent makes when its task is done."""
        return self.workspace / self.done_file

    @property
    def cancelled(self) -> Path:
        """What is made to cancel the case while it waits."""
        return self.folder / "CANCELLED"

    @property
    def prompt(self) -> Path:
        """What is to be done."""
        return self.folder / "prompt.md"

    @property
    def bus(self) -> Path:
        """The folder of its message bus."""
        return self.folder / "bus"

    @property
    def logs(self) -> Path:
        """What programs have written."""
        return self.folder / "logs"

    def told(self, number: int) -> Path:
        """What the agent is told in an attempt: the prompt, after a word on how it came to this."""
        return self.logs / f"attempt-{number:03d}.prompt.md"

    def stdout(self, number: int) -> Path:
        """The standard output of an attempt."""
        return self.logs / f"attempt-{number:03d}.stdout"

    def stderr(self, number: int) -> Path:
        """The standard error of an attempt."""
        return self.logs / f"attempt-{number:03d}.stderr"

    def report(self, number: int) -> Path:
        """What an attempt says of itself, as JSON."""
        return self.logs / f"attempt-{number:03d}.report.json"


# A case under way: what its agent is told of where it is.


@attrs.frozen(kw_only=True)
class CaseRoom:
    """What an agent is told of its case, whatever kind of agent it is."""

    project: str
    """The id of the run."""
    task: str | None
    """The id of the task of the suite."""
    name: str
    """Of the case, with its column where there are several: unique in its task."""
    files: CaseFiles
    suite: Path
    """The folder of the suite."""
    vars: Mapping[str, Any]
    """The variables of the test, rendered."""
    index: int
    """Of the row."""
    row: str
    """The id of the row."""
    agent: str
    """What its agent is called."""


# What the steps of a task are called as cases, and which of them wait for which.
#
# A case is a test; in each column (a prompt with a provider and a repetition) there is one of it, or several
# where its variables are lists. Its name is that of the test, and of several `name#2` and so on. What depends
# on a case depends on all of them in its own column.


@attrs.frozen(kw_only=True)
class CaseNames:
    """The names of all steps, by their indices."""

    names: Sequence[str]
    """Unique in their column."""
    columns: Sequence[str]
    """Of each step its column, as a part of a file name; empty where there is only one."""
    dependents: Mapping[str, Sequence[Dependent]]
    """By column, everything in it; empty where nothing depends on anything."""
    rooms: Sequence[str]
    """What the folder of each is called: unique in its task, also where capitals are no difference."""
    _places: Mapping[tuple[str, str], int] = attrs.field(init=False, repr=False)

    @_places.default
    def _find_places(self) -> Mapping[tuple[str, str], int]:
        pairs = zip(self.columns, self.names, strict=True)
        return {pair: place for place, pair in enumerate(pairs)}

    @classmethod
    def of(cls, steps: Expansion) -> "CaseNames":
        """Those of an expansion all of whose tests are cases."""
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
            rooms=_rooms(names, columns),
        )

    def room_of(self, column: str, name: str) -> str:
        """What the folder of a case of a column is called."""
        return self.rooms[self._places[column, name]]


def _rooms(names: Sequence[str], columns: Sequence[str]) -> list[str]:
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
    """The number of each prompt, from 1, by what it is; `prompt_idx` counts columns."""
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
    """What the provider of each column is called in names of folders; all differ.

    A test with a provider of its own stands in the column all the same.
    """
    slugs = {}
    for place in sorted({step.column.provider_index for step in every}):
        entry = steps.providers[place]
        slugs[place] = _OTHER.sub("-", entry.label or entry.id).strip("-.")[:_LONGEST]
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
            # What is not for this column at all is not waited for.
            needs = [one for on in case.depends_on for one in named.get((column, on), ())]
            found[column].append(
                Dependent(name=name, depends_on=tuple(needs), when_failed=case.when_failed)
            )
    return dict(found)


ABOUT = "case.json"
"""The file that says which case it is."""
_LARGEST = 1024 * 1024  # bytes of that file


# Makes the folder of a case, or finds that of an earlier execution. Blocks on files.


@attrs.frozen(kw_only=True)
class Wanted:
    """What the folder of a case is to be."""

    digest: str
    """Of everything that makes it another case."""
    about: str
    """What people read of it there."""
    template: Callable[[], Path | None]
    """Finds what its workspace is a copy of. Raises `AgentError`."""
    goes_on: bool
    """Whether attempts were made that count."""
    anew: bool = False
    """Whether what is there does not count, whatever it is."""


def claim_folder(files: CaseFiles, wanted: Wanted, lock: Lock) -> None:
    """See that the folder of a case is there, before it waits for anything.

    A folder of another case, or of what does not count any more, is moved aside: nothing is lost. A case that
    goes on is found also where it has had another name, because its suite has another column now.

    Raises:
        AgentError: It cannot be made.
    """
    try:
        files.folder.parent.mkdir(parents=True, exist_ok=True)
        with lock:
            if not _find(files, wanted):
                files.logs.mkdir(parents=True, exist_ok=True)
                about = {"digest": wanted.digest, "case": wanted.about}
                text = json.dumps(about, indent=2, ensure_ascii=False)
                write_whole(files.folder / ABOUT, f"{text}\n".encode())
        files.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error


def open_workspace(files: CaseFiles, wanted: Wanted) -> bool:
    """See that the workspace of a case is there, in the folder that it has. Whether it was there before.

    Raises:
        AgentError: It cannot be made.
    """
    try:
        files.logs.mkdir(parents=True, exist_ok=True)  # hours may lie between
        if files.workspace.is_dir():
            make_done_folder(files.workspace, files.done_file)  # the agent may have removed it
            return True
        if wanted.goes_on:
            msg = f"{files.workspace} is gone, in which the agent has begun"
            raise AgentError(f"{msg}; to begin anew, run the row again with --retry and its index")
        make_workspace(files.workspace, wanted.template(), files.done_file)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error
    return False


def _find(files: CaseFiles, wanted: Wanted) -> bool:
    """Whether the folder is there; what is in its place is moved away."""
    known = _digest_in(files)
    if known is not None:
        # One that cannot be read any more is believed where there must be one.
        is_own = known == wanted.digest or (wanted.goes_on and not known)
        if is_own and (wanted.goes_on or not wanted.anew):
            return True
        _move_aside(files.folder)
    if wanted.goes_on:
        for other in sorted(files.folder.parent.iterdir()):
            if wanted.digest and _digest_in(CaseFiles(other)) == wanted.digest:
                other.rename(files.folder)
                return True
    return False


def _digest_in(files: CaseFiles) -> str | None:
    """The digest of the case whose folder it is; None if nobody has worked there, blank of another one."""
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


# The prompt of a case: written once, and from then on what its file says is what holds.


_LARGEST_PROMPT = 64 * 1024 * 1024  # bytes


def ensure_prompt(file: Path, submitted: str | None) -> str:
    """What the file says; it is made from what was submitted, if it is not there. Blocks on files.

    A file that is there is never changed: who changes it by hand changes what agents are told from then on.

    Args:
        file: In a folder that belongs to one program at a time.
        submitted: What would be written; None if there is nothing.

    Raises:
        AgentError: There is neither a file nor a text; what is there is blank, too large or no regular
            file; or it cannot be read or written.
    """
    try:
        if not os.path.lexists(file):
            if submitted is None or not submitted.strip():
                raise AgentError(f"{file} is not there, and no prompt was submitted: one is needed")
            write_whole(file, submitted.encode(), durable=True)
        data = read_plain(file, _LARGEST_PROMPT + 1)
        if len(data) > _LARGEST_PROMPT:
            raise AgentError(
                f"{file} has more than {_LARGEST_PROMPT:,} bytes, which a prompt cannot have"
            )
        text = data.decode()
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise AgentError(f"{file}: {reason}") from error
    except UnicodeError as error:
        raise AgentError(f"{file}: a prompt is text in UTF-8: {error}") from error
    if not text.strip():
        raise AgentError(f"{file} is blank; write the prompt there, or remove it")
    return text
