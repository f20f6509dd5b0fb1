"""Where the files of a case are: those that its agent itself must see, and its logs."""

import hashlib
import re
from pathlib import Path

import attrs

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
