"""What datasets are doing and how they ended: lines while they are built, a block for each at the end."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from trioeval.columns.events import (
    DatasetBegun,
    DatasetEvent,
    GroupGivenUp,
    GroupOpened,
    GroupWritten,
    ManyMishaps,
    ProcessorBegun,
    ProcessorEnded,
    RowDropped,
    ShutDown,
)
from trioeval.columns.result import DatasetResult
from trioeval.report import inert
from trioeval.report.columns import dataset_lines, failure_line

_NAME = 50  # characters of a name
_MOST = 400  # of a line


@attrs.define
class _Task:
    """One dataset."""

    written: int = 0
    dropped: int = 0
    open_groups: set[int] = attrs.field(factory=set)
    processor: str | None = None
    """The one that is at work."""
    is_over: bool = False


@attrs.define
class DatasetProgress:
    """Collects what is shown of datasets; `observe` goes to the run."""

    warn: Callable[[str], None]
    """Told of what a person should know at once."""
    wanted: Mapping[str | None, int | None] = attrs.field(factory=dict)
    """Rows of each dataset; None where that is not known beforehand."""
    tell: Callable[[str], None] | None = None
    """Told of each event as a line."""
    began_at: float = 0.0
    """The instant from which its seconds are counted."""
    _tasks: dict[str | None, _Task] = attrs.field(init=False, factory=dict)

    def observe(self, name: str | None, event: DatasetEvent) -> None:
        """Take note of an event."""
        if self.tell is not None:
            self.tell(event_line(name, event, self.began_at))
        task = self._tasks.setdefault(name, _Task())
        match event:
            case DatasetBegun():
                task.written, task.dropped = event.written, event.dropped
            case GroupOpened():
                task.open_groups.add(event.group)
            case GroupWritten():
                task.open_groups.discard(event.group.group)
                task.written += event.group.count
            case GroupGivenUp():
                task.open_groups.discard(event.group)
            case RowDropped():
                task.dropped += 1
            case ProcessorBegun():
                task.processor = event.name
            case ProcessorEnded():
                task.processor = None
            case ShutDown() | ManyMishaps():
                self.warn(f"dataset {_shown(name)}: {_told(event)}")

    def ended(self, result: DatasetResult) -> None:
        """A dataset is over: its line goes."""
        self._tasks.setdefault(result.task, _Task()).is_over = True

    def lines(self) -> Sequence[str]:
        """A line for each dataset that is under way."""
        return [
            _line(name, task, self.wanted.get(name))
            for name, task in self._tasks.items()
            if not task.is_over
        ]


def _line(name: str | None, task: _Task, wanted: int | None) -> str:
    of = "" if wanted is None else f"/{wanted}"
    facts = [f"{task.written}{of} rows written", f"{len(task.open_groups)} open groups"]
    facts += [f"{task.dropped} dropped"] if task.dropped else []
    facts += [f"processor {inert(task.processor, _NAME)}"] if task.processor is not None else []
    return f"  {_shown(name)}: {', '.join(facts)}"


def event_line(name: str | None, event: DatasetEvent, began_at: float) -> str:
    """An event as one line, whatever stands in it.

    Args:
        name: The id of its task.
        event: It.
        began_at: The instant from which seconds are counted.

    Example:
        >>> event_line("problems", GroupOpened(at=12.5, group=3, restored=0), 10.0)
        '2.500 s problems: group 3 is begun'
    """
    return inert(f"{event.at - began_at:.3f} s {name or 'dataset'}: {_told(event)}", _MOST)


def _told(event: DatasetEvent) -> str:
    match event:
        case DatasetBegun():
            there = f", {event.written} of its rows are there already" if event.written else ""
            return f"it is begun{there}"
        case GroupOpened():
            there = f", {event.restored} of its jobs are there already" if event.restored else ""
            return f"group {event.group} is begun{there}"
        case GroupWritten():
            group = event.group
            file = "no file" if group.file is None else group.file
            return f"group {group.group} is written: {group.count} rows, {file}"
        case GroupGivenUp():
            return f"group {event.group} is left unfinished: {event.reason.replace('_', ' ')}"
        case RowDropped():
            return failure_line(event.row)
        case ProcessorBegun():
            return f"processor {event.name} begins{_of_group(event.group)}"
        case ProcessorEnded():
            why = "" if event.error is None else f": {event.error}"
            return f"processor {event.name} is over{_of_group(event.group)}{why}"
        case ShutDown():
            return "too many calls fail for good; nothing new begins"
        case ManyMishaps():
            return "half of the last calls failed, and are made again"


def _of_group(group: int | None) -> str:
    return "" if group is None else f", group {group}"


def _shown(name: str | None) -> str:
    return inert(name or "dataset", _NAME)


def ended_lines(result: DatasetResult) -> Sequence[str]:
    """The block of a dataset at the end of a run, as it is seen from the working folder."""
    first, *others = dataset_lines(result, Path.cwd())
    return [f"task {_shown(result.task)}: {first}", *(f"  {line}" for line in others)]
