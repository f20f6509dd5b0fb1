"""Removal of the folders of deleted runs' agents, and the end of processes that these left running."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import attrs
import trio

from trioeval.agent.case_folder import task_folder
from trioeval.agent.journal import ProcessIdentity
from trioeval.agent.processes import end_survivors
from trioeval.cli.terminal import say
from trioeval.report.head import Head
from trioeval.report.stored import StoredRunFacts
from trioeval.session.agents import agents_folder
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

_EARLY = frozenset({"bus", "logs"})
"""The contents of the folder of a case before its agent starts."""
_NOWHERE = frozenset({"", ".", ".."})
"""Names that are not file names."""


@attrs.frozen
class Leftovers:
    """The remaining processes of agents of runs that died."""

    ended: Counter[str] = attrs.field(factory=Counter)
    """Number of ended processes of each run."""

    def end(self, run: StoredRunFacts, processes: Sequence[ProcessIdentity]) -> None:
        """End remaining process trees: processes that work in a folder must not outlive it."""
        self.ended[run.id] += trio.run(end_survivors, processes)


def report_deleted(
    database: Path, runs: Iterable[StoredRunFacts], ended: Mapping[str, int] = MappingProxyType({})
) -> bool:
    """Remove the folders of deleted runs, and report what was deleted; return whether nothing is left."""
    all_gone = True
    for run in runs:
        folder, notes = agents_folder(database, run.id), ""
        # The id of an imported run may be any text.
        if folder.name == run.id not in _NOWHERE and os.path.lexists(folder):
            try:
                cases = remove_cases(folder)
                notes = f", and {counted(cases, 'folder of a case', 'folders of cases')}"
            except OSError as error:
                all_gone = False
                notes = f"; {escape_control_characters(folder)} was not removed: {error.strerror or error}"
        if count := ended.get(run.id):
            notes += f"; ended {counted(count, 'process', 'processes')} of its agents"
        say(f"deleted {run.id}: {counted(run.rows, 'row')}{notes}")
    return all_gone


def case_folders(folder: Path, head: Head, index: int) -> list[Path]:
    """Return the folder of a row's case; several if its column is unknown, empty before it starts."""
    names = [case.name for case in head.cases for _ in range(case.rows)]
    task = folder / task_folder(head.task)
    if index >= len(names) or not task.is_dir():
        return []
    own, others = names[index], {*names} - {names[index]}
    return sorted(
        folder
        for folder in task.iterdir()
        if (folder.name == own or folder.name.startswith((f"{own}.", f"{own}-")))
        and (folder / "workspace").is_dir()
        and folder.name not in others
        and ".old-" not in folder.name
    )


def remove_cases(folder: Path) -> int:
    """Remove the folder of a run's agents; return the number of its cases. Links in it are not followed.

    Raises:
        OSError: It contains something else than folders of cases, or cannot be removed.
    """
    if folder.is_symlink() or folder.parent.is_symlink():
        raise OSError("it is a link, or in one")
    cases = [*_cases(folder)]
    for inside, folders, _ in os.walk(folder):  # agents may have removed permissions
        for name in folders:
            if not (path := Path(inside, name)).is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)
    return len(cases)


def _cases(folder: Path) -> Iterator[Path]:
    """Yield the folders of cases in that of a run.

    Raises:
        OSError: There is anything else.
    """
    for task in folder.iterdir():
        if task.name == "bus" and _is_folder(task):
            continue
        for case in _inside(task):
            names = {path.name for path in _inside(case)}
            if "case.json" not in names and not names <= _EARLY:
                raise OSError(f"{escape_control_characters(case)} is not the folder of a case")
            yield case


def _inside(folder: Path) -> Iterator[Path]:
    if not _is_folder(folder):
        raise OSError(f"{escape_control_characters(folder)} is not the folder of a case")
    return folder.iterdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
